// The receiver of the CMQ paper's figure 3: pops messages until the sender has closed, and prints the losses.
//
// ./cmq_receive [ADDRESS], then ./cmq_send.

#include <rocketbufs.hpp>

#include <iostream>

int main(int argc, char **argv) try {
    cmq::Queue queue = cmq::new_rq(argc > 1 ? argv[1] : "127.0.0.1:4711");
    std::cerr << "receiving at " << queue.local_addr().address() << "\n";
    std::uint64_t received = 0, lost = 0;
    for (;;) {
        // cw_pop never waits. A pop with a time-out keeps this loop idle while no message arrives.
        while (queue.pop(std::chrono::milliseconds(20))) received++;
        while (auto event = queue.next_event()) {
            if (event->kind == CMQ_EVENT_JOINED || event->kind == CMQ_EVENT_LOST) lost += event->count;
            if (event->kind == CMQ_EVENT_CLOSED) {
                std::cout << cmq::Key(event->peer).address() << " sent " << event->count << ": " << received << " received, "
                          << lost << " lost\n";
                return 0;
            }
        }
    }
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
