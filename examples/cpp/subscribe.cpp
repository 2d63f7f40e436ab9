// Writes the data of a buffer to standard output, until its publisher closes it.
//
// ./subscribe BID [BROKER]

#include <rocketbufs.hpp>

#include <iostream>
#include <thread>

int main(int argc, char **argv) try {
    if (argc < 2) throw std::runtime_error("usage: subscribe BID [BROKER]");
    auto bid = static_cast<rocketbufs::bid_t>(std::stoul(argv[1]));
    rocketbufs::rIn in(rocketbufs::Conn(argc > 2 ? argv[2] : "127.0.0.1:7400", "subscriber"));
    rb_subscribe_options oldest{};
    oldest.size = sizeof oldest;
    oldest.start = RB_START_OLDEST;
    in.subscribe_with(bid, oldest);
    for (;;) {
        auto event = in.recv(rocketbufs::no_limit);
        if (!event) continue;
        switch (event->kind) {
        case RB_IN_DATA:
            // Memory that another process may write is copied before it is used.
            std::cout << (event->view.data() ? event->view.text() : std::string_view(event->view.to_string()));
            event->view.consume();
            break;
        case RB_IN_REFUSED:
            // No publisher yet: try again.
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            in.subscribe_with(bid, oldest);
            break;
        case RB_IN_CLOSED:
        case RB_IN_GONE:
            return 0;
        case RB_IN_CONN_DOWN:
            throw std::runtime_error("the broker: " + event->text);
        default:
            break;
        }
    }
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
