// Fills segments of a buffer in place: the numbers are made in the memory that they are sent from.
//
// ./fill BID TOPIC COUNT [BROKER]

#include "link.hpp"

#include <iostream>

// Numbers of eight bytes in a segment.
static const std::size_t numbers = 1000;

int main(int argc, char **argv) try {
    if (argc < 4) throw std::runtime_error("usage: fill BID TOPIC COUNT [BROKER]");
    Link link(static_cast<rocketbufs::bid_t>(std::stoul(argv[1])), argv[2], argc > 4 ? argv[4] : "127.0.0.1:7400");
    std::uint64_t number = 0;
    for (unsigned long count = std::stoul(argv[3]); count > 0; count--) {
        rocketbufs::buf_seg seg = link.buffer.segment(numbers * 8); // Waits for room.
        unsigned char *bytes = seg.data();
        for (std::size_t i = 0; i < numbers; i++, number++)
            for (int byte = 0; byte < 8; byte++) *bytes++ = static_cast<unsigned char>(number >> 8 * byte);
        link.buffer.deliver(seg, numbers * 8);
    }
    link.close();
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
