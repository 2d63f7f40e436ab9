// The receiver of the CMQ paper's figure 3: pops messages until the sender has closed, and prints the losses.
//
// ./cmq_receive [ADDRESS], then ./cmq_send.

#include "check.h"
#include <inttypes.h>

int main(int argc, char **argv) {
    cmq_queue *queue;
    cmq_key key;
    char address[64];
    check(cmq_new_rq(argc > 1 ? argv[1] : "127.0.0.1:4711", NULL, &queue), "the queue");
    check(cmq_local_addr(queue, &key), "the address");
    check(cmq_key_format(&key, address, sizeof address, NULL), "the address");
    fprintf(stderr, "receiving at %s\n", address);
    uint64_t received = 0, lost = 0;
    for (;;) {
        cmq_message message;
        // cmq_cw_pop never waits. A pop with a time-out keeps this loop idle while no message arrives.
        while (cmq_pop(queue, &message, 20 * RB_MS) == RB_OK) {
            received++;
            check(cmq_message_free(&message), "the message");
        }
        cmq_event event;
        while (cmq_next_event(queue, &event) == RB_OK) {
            if (event.kind == CMQ_EVENT_JOINED || event.kind == CMQ_EVENT_LOST) lost += event.count;
            if (event.kind == CMQ_EVENT_CLOSED) {
                check(cmq_key_format(&event.peer, address, sizeof address, NULL), "the sender");
                printf("%s sent %" PRIu64 ": %" PRIu64 " received, %" PRIu64 " lost\n", address, event.count, received, lost);
                return cmq_free(queue);
            }
        }
    }
}
