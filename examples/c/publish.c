// Publishes the lines of standard input in one buffer, with a delivery for each line.
//
// seq 10 | ./publish BID TOPIC [BROKER]

#include "link.h"

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: publish BID TOPIC [BROKER]\n");
        return 2;
    }
    struct link link = link_open((uint32_t)atoi(argv[1]), argv[2], argc > 3 ? argv[3] : "127.0.0.1:7400");
    rb_writer *writer;
    check(rb_buffer_writer(link.buffer, &writer), "the writer");
    char line[4096];
    while (fgets(line, sizeof line, stdin))
        check(rb_writer_append(writer, line, strlen(line), RB_NO_LIMIT, NULL), "a line");
    rb_writer_free(writer);
    link_close(&link);
    return 0;
}
