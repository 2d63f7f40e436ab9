// Sends the lines of its input to a queue, encrypted, and waits until each is confirmed or given up.
//
// cmq keygen server.key; cmq receive 127.0.0.1:4711 --reliable --key server.key
// ./cmq_send_reliable server.key.pub [RECEIVER] < lines

#include "check.h"
#include <inttypes.h>
#include <string.h>

int main(int argc, char **argv) {
    cmq_public_key server;
    cmq_secret_key own;
    cmq_key receiver;
    check(cmq_public_key_read(argc > 1 ? argv[1] : "server.key.pub", &server), "the receiver's public key");
    check(cmq_key_parse(argc > 2 ? argv[2] : "127.0.0.1:4711", 0, &receiver), "the receiver");
    // A key of its own makes this sender known to a receiver with a list of those that it allows. This one needs none to be known by.
    check(cmq_secret_key_generate(&own), "the key");
    cmq_security security = {.size = sizeof security, .secret = &own, .default_peer = &server};
    cmq_reliable reliable = {.size = sizeof reliable};
    cmq_options options = {.size = sizeof options, .security = &security, .reliable = &reliable};
    cmq_queue *queue;
    check(cmq_new_rq("0.0.0.0:0", &options, &queue), "the queue");
    check(cmq_secret_key_erase(&own), "the key");
    char line[4096];
    while (fgets(line, sizeof line, stdin)) {
        rb_status pushed;
        while ((pushed = cmq_push_reliable(queue, &receiver, line, strcspn(line, "\n"), NULL)) == RB_FULL)
            cmq_wait_all_confirmed(queue, 100 * RB_MS); // cmq_options.reliable has the limit
        check(pushed, "a message");
    }
    check(cmq_wait_all_confirmed(queue, RB_NO_LIMIT), "the confirmations");
    cmq_stats stats;
    check(cmq_get_stats(queue, &stats), "the counters");
    printf("%" PRIu64 " confirmed, %" PRIu64 " given up\n", stats.reliable.confirmed, stats.reliable.failed);
    check(cmq_free(queue), "the end");
    return stats.reliable.failed ? 1 : 0;
}
