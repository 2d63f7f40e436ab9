// Publishes the lines of standard input in one buffer, with a delivery for each line.
//
// seq 10 | ./publish BID TOPIC [BROKER]

#include "link.hpp"

#include <iostream>

int main(int argc, char **argv) try {
    if (argc < 3) throw std::runtime_error("usage: publish BID TOPIC [BROKER]");
    Link link(static_cast<rocketbufs::bid_t>(std::stoul(argv[1])), argv[2], argc > 3 ? argv[3] : "127.0.0.1:7400");
    {
        rocketbufs::Writer writer = link.buffer.writer();
        for (std::string line; std::getline(std::cin, line);) writer.append(line + "\n");
    }
    link.close();
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
