// The sender of the CMQ paper's figure 2: pushes 10,000 messages of four bytes.
//
// ./cmq_send [RECEIVER], with cmq_receive running.

#include <rocketbufs.hpp>

#include <iostream>

int main(int argc, char **argv) try {
    cmq::Queue queue = cmq::new_rq("0.0.0.0:0");
    cmq::Key receiver(argc > 1 ? argv[1] : "127.0.0.1:4711");
    for (int i = 0; i < 10000; i++) queue.cw_push(receiver, "ping");
    // The queue's end sends pending messages, and tells the receiver how many there were.
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
