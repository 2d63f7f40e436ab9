// The sender of the CMQ paper's figure 2: pushes 10,000 messages of four bytes.
//
// ./cmq_send [RECEIVER], with cmq_receive running.

#include "check.h"

int main(int argc, char **argv) {
    cmq_queue *queue;
    cmq_key receiver;
    check(cmq_key_parse(argc > 1 ? argv[1] : "127.0.0.1:4711", 0, &receiver), "the receiver");
    check(cmq_new_rq("0.0.0.0:0", NULL, &queue), "the queue");
    for (int i = 0; i < 10000; i++) check(cmq_cw_push(queue, &receiver, "ping", 4), "a message");
    // Sends pending messages, and tells the receiver how many there were.
    check(cmq_free(queue), "the end");
    return 0;
}
