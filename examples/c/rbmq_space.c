// Publishes to many topics of an RBMQ broker by one writer: each line of standard input is a topic of a space, a blank, and a message.
//
// printf 'devices/7/temp 21.5\ndevices/7/door open\n' | ./rbmq_space 'devices/#' [BROKER], with `rbmq sub 'devices/#'` running, and `rbmq serve` with a
// rule of this pattern and `space = true`. RBMQ_TOKEN, or RBMQ_USER and RBMQ_PASSWORD, log in. ROCKETBUFS_TLS_MODE=require and
// ROCKETBUFS_TLS_CA=FILE encrypt.

#include "check.h"
#include <string.h>

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: rbmq_space PATTERN [BROKER]\n");
        return 2;
    }
    rbmq_publisher *publisher;
    rbmq_space *space;
    rb_config *config;
    check(rb_config_load(NULL, &config), "the configuration of the environment");
    rbmq_login login = login_of_environment();
    rbmq_publisher_options options = {.size = sizeof options, .config = config, .login = &login};
    check(rbmq_publisher_connect(argc > 2 ? argv[2] : "127.0.0.1:7411", &options, &publisher), "the publisher");
    check(rb_config_free(config), "the configuration");
    check(rbmq_publisher_space(publisher, argv[1], NULL, &space), "the space");
    check(rbmq_space_wait_subscribers(space, 1, 60 * RB_S), "a subscriber");

    rbmq_attributes attributes = {.size = sizeof attributes, .payload_is_utf8 = true};
    char line[4096];
    uint64_t end = 0;
    int lines = 0;
    for (; fgets(line, sizeof line, stdin); lines++) {
        line[strcspn(line, "\n")] = '\0';
        char *text = strchr(line, ' ');
        if (!text) {
            fprintf(stderr, "a line is a topic, a blank and a message, not '%s'\n", line);
            return 1;
        }
        *text++ = '\0';
        check(rbmq_space_publish_to(space, line, &attributes, text, strlen(text), RB_NO_LIMIT, &end), line);
    }
    rbmq_confirmed confirmed;
    check(rbmq_space_confirm(space, end, RBMQ_LEVEL_DELIVERED, 60 * RB_S, &confirmed), "the confirmation");
    printf("%d records, delivered to %u subscribers\n", lines, confirmed.subscribers);
    check(rbmq_space_close(space, 10 * RB_S), "closing the space");
    check(rbmq_publisher_close(publisher, 10 * RB_S), "closing the connection");
    return 0;
}
