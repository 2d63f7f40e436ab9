// Publishes standard input without a copy: the system reads into the memory that the bytes are sent from.
//
// ./fill_segment BID TOPIC [BROKER] < FILE

#include "link.hpp"

#include <iostream>
#include <sys/uio.h>
#include <unistd.h>

int main(int argc, char **argv) try {
    if (argc < 3) throw std::runtime_error("usage: fill_segment BID TOPIC [BROKER]");
    Link link(static_cast<rocketbufs::bid_t>(std::stoul(argv[1])), argv[2], argc > 3 ? argv[3] : "127.0.0.1:7400");
    for (;;) {
        rocketbufs::buf_seg seg = link.buffer.segment(64 << 10);
        ssize_t bytes = readv(STDIN_FILENO, seg.vecs, seg.vec_count);
        // A delivery of 0 bytes gives the segment back.
        link.buffer.deliver(seg, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
        if (bytes <= 0) break;
    }
    link.close();
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
