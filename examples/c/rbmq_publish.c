// Publishes the lines of standard input to a topic of an RBMQ broker, and waits until a subscriber has consumed them.
//
// seq 10 | ./rbmq_publish TOPIC [BROKER [REPLY_TO]], with `rbmq serve` and `rbmq sub TOPIC` running. REPLY_TO is a topic for answers. RBMQ_TOKEN, or RBMQ_USER and
// RBMQ_PASSWORD, log in. ROCKETBUFS_TLS_MODE=require and ROCKETBUFS_TLS_CA=FILE encrypt.

#include "check.h"
#include <string.h>

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: rbmq_publish TOPIC [BROKER [REPLY_TO]]\n");
        return 2;
    }
    rbmq_publisher *publisher;
    rbmq_topic *topic;
    rb_config *config;
    check(rb_config_load(NULL, &config), "the configuration of the environment");
    rbmq_login login = login_of_environment();
    rbmq_publisher_options options = {.size = sizeof options, .config = config, .login = &login};
    check(rbmq_publisher_connect(argc > 2 ? argv[2] : "127.0.0.1:7411", &options, &publisher), "the publisher");
    check(rb_config_free(config), "the configuration");
    check(rbmq_publisher_topic(publisher, argv[1], NULL, &topic), "the topic");
    check(rbmq_topic_wait_subscribers(topic, 1, 60 * RB_S), "a subscriber");

    rbmq_attributes attributes = {.size = sizeof attributes};
    if (argc > 3) attributes.reply_to = argv[3], attributes.reply_to_len = strlen(argv[3]);
    char line[4096];
    uint64_t end = 0;
    int lines = 0;
    for (; fgets(line, sizeof line, stdin); lines++) {
        line[strcspn(line, "\n")] = '\0';
        check(rbmq_topic_publish_with(topic, &attributes, line, strlen(line), RB_NO_LIMIT, &end), "a line");
    }
    rbmq_confirmed confirmed;
    check(rbmq_topic_confirm(topic, end, RBMQ_LEVEL_CONSUMED, 60 * RB_S, &confirmed), "the confirmation");
    printf("%d records, consumed by %u subscribers\n", lines, confirmed.subscribers);
    check(rbmq_topic_close(topic, 10 * RB_S), "closing the topic");
    check(rbmq_publisher_close(publisher, 10 * RB_S), "closing the connection");
    return 0;
}
