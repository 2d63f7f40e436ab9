// Publishes standard input without a copy: the system reads into the memory that the bytes are sent from.
//
// ./fill_segment BID TOPIC [BROKER] < FILE

#include "link.h"
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: fill_segment BID TOPIC [BROKER]\n");
        return 2;
    }
    struct link link = link_open((uint32_t)atoi(argv[1]), argv[2], argc > 3 ? argv[3] : "127.0.0.1:7400");
    for (;;) {
        rb_buf_seg seg;
        check(rb_buffer_segment(link.buffer, 64 << 10, RB_NO_LIMIT, &seg), "a segment");
        ssize_t bytes = readv(STDIN_FILENO, seg.vecs, seg.vec_count);
        // A delivery of 0 bytes gives the segment back.
        check(rb_buffer_deliver(link.buffer, &seg, bytes > 0 ? (uint64_t)bytes : 0, NULL, NULL), "a delivery");
        if (bytes <= 0) break;
    }
    link_close(&link);
    return 0;
}
