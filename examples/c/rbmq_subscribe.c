// Prints the messages of topics of an RBMQ broker, each with the topic for answers if it has one, until every publisher has closed its topic.
//
// ./rbmq_subscribe TOPICS [BROKER]; TOPICS is a name or a pattern, such as 'sensors/+/temperature' or '#'. RBMQ_TOKEN, or
// RBMQ_USER and RBMQ_PASSWORD, log in. ROCKETBUFS_TLS_MODE=require and ROCKETBUFS_TLS_CA=FILE encrypt.

#include "check.h"

static void print(const rbmq_record *record) {
    rbmq_attributes says;
    check(rbmq_attributes_read(record->attributes, record->attributes_len, &says), "the attributes");
    printf("%.*s", (int)record->len, (const char *)record->data);
    if (says.reply_to) printf("\t%.*s", (int)says.reply_to_len, says.reply_to);
    puts("");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: rbmq_subscribe TOPICS [BROKER]\n");
        return 2;
    }
    rbmq_subscriber *subscriber;
    rb_config *config;
    check(rb_config_load(NULL, &config), "the configuration of the environment");
    rbmq_login login = login_of_environment();
    rbmq_subscriber_options options = {.size = sizeof options, .until_ended = true, .confirm_consumed = true, .config = config, .login = &login};
    check(rbmq_subscriber_connect(argc > 2 ? argv[2] : "127.0.0.1:7411", &options, &subscriber), "the subscriber");
    check(rb_config_free(config), "the configuration");
    check(rbmq_subscriber_subscribe(subscriber, argv[1], NULL), "the topics");
    rbmq_batch batch;
    rb_status status;
    // Several messages at once, in the memory where they landed.
    while ((status = rbmq_subscriber_next_batch(subscriber, &batch, RB_NO_LIMIT)) == RB_OK) {
        rbmq_record records[64];
        size_t count;
        while (rbmq_subscriber_batch_records(subscriber, records, 64, &count) == RB_OK)
            for (size_t i = 0; i < count; i++) print(&records[i]);
        check(rbmq_subscriber_batch_consume(subscriber), "the batch");
    }
    check(status == RB_END ? RB_OK : (int)status, "receiving");
    check(rbmq_subscriber_close(subscriber, 10 * RB_S), "closing the connection");
    return 0;
}
