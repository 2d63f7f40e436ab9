// Publishes each line of standard input, and waits until every subscriber has consumed the line before the next one.
//
// seq 10 | ./publish_confirmed BID TOPIC [BROKER]

#include "link.hpp"

#include <iostream>

int main(int argc, char **argv) try {
    using namespace std::chrono_literals;
    if (argc < 3) throw std::runtime_error("usage: publish_confirmed BID TOPIC [BROKER]");
    Link link(static_cast<rocketbufs::bid_t>(std::stoul(argv[1])), argv[2], argc > 3 ? argv[3] : "127.0.0.1:7400");
    int deliveries = 0;
    {
        rocketbufs::Writer writer = link.buffer.writer();
        for (std::string line; std::getline(std::cin, line); deliveries++) {
            rocketbufs::position_t end = 0;
            // Through the broker: its subscribers have released the line, and not only the broker.
            if (!writer.append(line + "\n", 30s, &end) || !link.buffer.wait(RB_LEVEL_CONSUMED, end, 30s))
                throw std::runtime_error("a subscriber is too slow");
        }
    }
    std::cerr << deliveries << " deliveries consumed\n";
    link.close();
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
