// Fills segments of a buffer in place: the numbers are made in the memory that they are sent from.
//
// ./fill BID TOPIC COUNT [BROKER]

#include "link.h"

// Numbers of eight bytes in a segment.
#define NUMBERS 1000

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: fill BID TOPIC COUNT [BROKER]\n");
        return 2;
    }
    struct link link = link_open((uint32_t)atoi(argv[1]), argv[2], argc > 4 ? argv[4] : "127.0.0.1:7400");
    uint64_t number = 0;
    for (int count = atoi(argv[3]); count > 0; count--) {
        rb_buf_seg seg;
        check(rb_buffer_segment(link.buffer, NUMBERS * 8, RB_NO_LIMIT, &seg), "a segment"); // Waits for room.
        unsigned char *bytes = seg.vecs[0].iov_base;
        for (int i = 0; i < NUMBERS; i++, number++)
            for (int byte = 0; byte < 8; byte++) *bytes++ = (unsigned char)(number >> 8 * byte);
        check(rb_buffer_deliver(link.buffer, &seg, NUMBERS * 8, NULL, NULL), "a delivery");
    }
    link_close(&link);
    return 0;
}
