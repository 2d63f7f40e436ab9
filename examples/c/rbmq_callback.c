// Prints the messages of topics of a broker that has users and certificates, until standard input ends. A thread of the library calls back,
// and the connection comes back by itself after a loss.
//
// RBMQ_USER=anna RBMQ_PASSWORD=... ./rbmq_callback TOPICS BROKER CA.pem

#include "check.h"

static void on_message(void *ctx, rb_status status, const rbmq_message *message) {
    if (status == RB_OK)
        fprintf(ctx, "%.*s: %.*s\n", (int)message->topic_len, message->topic, (int)message->len, (const char *)message->data), fflush(ctx);
    else
        fprintf(stderr, "%s\n", rb_last_error()); // A loss, or a refusal; further messages may follow.
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: rbmq_callback TOPICS BROKER CA.pem\n"), 2;
    rbmq_subscriber *subscriber;
    rbmq_login login = login_of_environment();
    rb_config *config;
    check(rb_config_new(&config), "the configuration");
    check(rb_config_set(config, "tls.mode", "require"), "the configuration");
    check(rb_config_set(config, "tls.ca", argv[3]), "the certificates");
    rbmq_subscriber_options options = {.size = sizeof options, .config = config, .login = &login};
    check(rbmq_subscriber_connect(argv[2], &options, &subscriber), "the subscriber");
    check(rbmq_subscriber_subscribe(subscriber, argv[1], NULL), "the topics");
    check(rbmq_subscriber_set_message_cb(subscriber, on_message, stdout), "the callback");
    while (getchar() != EOF) {}
    check(rbmq_subscriber_free(subscriber), "the subscriber");
    return rb_config_free(config);
}
