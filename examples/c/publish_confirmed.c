// Publishes each line of standard input, and waits until every subscriber has consumed the line before the next one.
//
// seq 10 | ./publish_confirmed BID TOPIC [BROKER]

#include "link.h"

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: publish_confirmed BID TOPIC [BROKER]\n");
        return 2;
    }
    struct link link = link_open((uint32_t)atoi(argv[1]), argv[2], argc > 3 ? argv[3] : "127.0.0.1:7400");
    rb_writer *writer;
    check(rb_buffer_writer(link.buffer, &writer), "the writer");
    char line[4096];
    int deliveries = 0;
    for (; fgets(line, sizeof line, stdin); deliveries++) {
        uint64_t end;
        check(rb_writer_append(writer, line, strlen(line), 30 * RB_S, &end), "a line");
        // Through the broker: its subscribers have released the line, and not only the broker.
        check(rb_buffer_wait(link.buffer, RB_LEVEL_CONSUMED, end, 30 * RB_S), "the confirmation");
    }
    fprintf(stderr, "%d deliveries consumed\n", deliveries);
    rb_writer_free(writer);
    link_close(&link);
    return 0;
}
