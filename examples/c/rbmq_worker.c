// Works on the messages of a topic that an RBMQ broker keeps, together with the other workers of a group: prints each one, and acknowledges it.
//
// ./rbmq_worker TOPIC GROUP COUNT [BROKER] ends after so many messages. RBMQ_TOKEN, or RBMQ_USER and RBMQ_PASSWORD, log in.
// ROCKETBUFS_TLS_MODE=require and ROCKETBUFS_TLS_CA=FILE encrypt.

#include "check.h"

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: rbmq_worker TOPIC GROUP COUNT [BROKER]\n");
        return 2;
    }
    rb_config *config;
    check(rb_config_load(NULL, &config), "the configuration of the environment");
    rbmq_login login = login_of_environment();
    // Of few messages at a time each worker has some. One that is not acknowledged within a minute goes to another worker.
    rbmq_group_options options = {.size = sizeof options, .credit = 5, .ack_time_ns = 60 * RB_S, .config = config, .login = &login};
    rbmq_group_worker *worker;
    check(rbmq_group_join(argc > 4 ? argv[4] : "127.0.0.1:7411", argv[1], argv[2], &options, &worker), "the group");
    check(rb_config_free(config), "the configuration");
    for (long left = atol(argv[3]); left > 0; left--) {
        rbmq_group_message *message;
        rbmq_group_content content;
        check(rbmq_group_worker_recv(worker, &message, RB_NO_LIMIT), "a message");
        check(rbmq_group_message_get(message, &content), "its content");
        printf("%.*s\n", (int)content.len, (const char *)content.data);
        // rbmq_group_message_nack would have it come again.
        check(rbmq_group_message_ack(message), "the acknowledgement");
    }
    check(rbmq_group_worker_close(worker), "the end");
    return 0;
}
