// The datagrams of docs/cmq-vectors.json, sent by a socket to a queue of the library, and sent by a queue to a socket. The first
// argument is the file with the vectors as lines of fields with tabs between them, which scripts/test-c makes:
// `good KIND HEX STREAM EPOCH FIRST MAILBOX MESSAGE,MESSAGE,…` and `bad HEX`.

#include "octets.h"
#include <arpa/inet.h>
#include <inttypes.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER = 28, EPOCH = 8 };

// A socket of this program, and a queue that it sends to.
typedef struct {
    int socket;
    uint16_t port;
    cmq_queue *queue;
} endpoint;

static int bound(uint16_t *port) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&at, len) && !getsockname(fd, (struct sockaddr *)&at, &len));
    *port = ntohs(at.sin_port);
    return fd;
}

static endpoint open_wire(void) {
    endpoint wire;
    cmq_options options = {.size = sizeof options, .unordered = true};
    cmq_key to;
    wire.socket = bound(&wire.port);
    OK(cmq_new_rq("127.0.0.1:0", &options, &wire.queue));
    OK(cmq_local_addr(wire.queue, &to));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(to.port)};
    CHECK(!connect(wire.socket, (struct sockaddr *)&at, sizeof at));
    return wire;
}

static void close_wire(endpoint *wire) {
    OK(cmq_free(wire->queue));
    close(wire->socket);
}

static void put(const endpoint *wire, const octets *datagram) {
    CHECK(send(wire->socket, datagram->data, datagram->len, 0) == (ssize_t)datagram->len);
}

static void pops(const endpoint *wire, const octets *expected, unsigned mailbox) {
    cmq_message message;
    OK(cmq_pop(wire->queue, &message, WAIT));
    CHECK(message.len == expected->len && (!message.len || !memcmp(message.data, expected->data, message.len)));
    CHECK(message.from.id == mailbox && message.from.port == wire->port);
    OK(cmq_message_free(&message));
}

static cmq_event event_of(const endpoint *wire, cmq_event_kind kind) {
    cmq_event event;
    do {
        while (cmq_next_event(wire->queue, &event) == RB_TIMED_OUT) poll(NULL, 0, 1);
    } while (event.kind != kind);
    return event;
}

static uint64_t malformed(const endpoint *wire) {
    cmq_stats stats;
    OK(cmq_get_stats(wire->queue, &stats));
    return stats.malformed;
}

typedef struct {
    char *kind;
    octets datagram;
    unsigned stream, mailbox, count;
    uint64_t epoch, first;
    octets messages[4];
} sample;

static sample parse(char *line) {
    sample vector = {0};
    char *field[8];
    for (int i = 0; i < 8; i++) CHECK((field[i] = strsep(&line, "\t")));
    vector.kind = field[1];
    vector.datagram = from_hex(field[2]);
    vector.stream = (unsigned)atoi(field[3]);
    vector.epoch = strtoull(field[4], NULL, 10);
    vector.first = strtoull(field[5], NULL, 10);
    vector.mailbox = (unsigned)strtoul(field[6], NULL, 10);
    if (strcmp(vector.kind, "batch")) return vector;
    for (char *message; (message = strsep(&field[7], ","));) {
        CHECK(vector.count < 4);
        vector.messages[vector.count++] = from_hex(message);
    }
    return vector;
}

static void batch_is_popped(const sample *vector) {
    endpoint wire = open_wire();
    put(&wire, &vector->datagram);
    for (unsigned i = 0; i < vector->count; i++) pops(&wire, &vector->messages[i], vector->mailbox);
    // What came before the first message is known a moment later: it might still arrive.
    event_of(&wire, CMQ_EVENT_JOINED);
    cmq_sender sender;
    size_t senders;
    OK(cmq_senders(wire.queue, &sender, 1, &senders));
    CHECK(senders == 1 && sender.epoch == vector->epoch && sender.stream == vector->stream);
    CHECK(sender.counts.received == vector->count && sender.counts.missed == vector->first && !malformed(&wire));
    close_wire(&wire);
}

// The queue sends the vector's messages, at the vector's place in the vector's stream; the epoch is the queue's.
static void batch_is_sent(const sample *vector) {
    cmq_options options = {.size = sizeof options, .timeout_ns = 60 * RB_S};
    cmq_queue *sender;
    OK(cmq_new_rq("127.0.0.1:0", &options, &sender));
    uint16_t port;
    int target = bound(&port);
    cmq_key to;
    octets sent;
    char address[32];
    for (unsigned i = 0; i < vector->stream; i++) {
        uint16_t other;
        int before = bound(&other);
        snprintf(address, sizeof address, "127.0.0.1:%u", other);
        OK(cmq_key_parse(address, 0, &to));
        OK(cmq_cw_push(sender, &to, "first", 5));
        OK(cmq_flush(sender));
        close(before);
    }
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    OK(cmq_key_parse(address, vector->mailbox, &to));
    for (uint64_t i = 0; i < vector->first; i++) {
        OK(cmq_cw_push(sender, &to, "x", 1));
        OK(cmq_flush(sender));
        CHECK(recv(target, sent.data, SIZE, 0) > 0);
    }
    for (unsigned i = 0; i < vector->count; i++)
        OK(cmq_cw_push(sender, &to, vector->messages[i].data, vector->messages[i].len));
    OK(cmq_flush(sender));
    ssize_t len = recv(target, sent.data, SIZE, 0);
    CHECK(len > 0 && (size_t)len <= vector->datagram.len);
    memcpy(sent.data + EPOCH, vector->datagram.data + EPOCH, sizeof(uint64_t));
    CHECK(!memcmp(sent.data, vector->datagram.data, (size_t)len));
    // The rest of a vector is padding.
    for (size_t i = (size_t)len; i < vector->datagram.len; i++) CHECK(!vector->datagram.data[i]);
    OK(cmq_free(sender));
    close(target);
}

// The vectors are the second fragment of a message of two, the same one with padding, and their parity fragment. The parity and
// either of the others are the whole message, whose bytes are all alike.
static void fragments_are_joined(const sample *second, const sample *parity) {
    endpoint wire = open_wire();
    put(&wire, &second->datagram);
    put(&wire, &parity->datagram);
    octets whole = {.len = 300};
    memset(whole.data, 0xab, whole.len);
    pops(&wire, &whole, second->mailbox);
    CHECK(!malformed(&wire));
    close_wire(&wire);
}

static void close_is_reported(const sample *first, const sample *last) {
    endpoint wire = open_wire();
    put(&wire, &first->datagram);
    pops(&wire, &first->messages[0], first->mailbox);
    put(&wire, &last->datagram);
    CHECK(event_of(&wire, CMQ_EVENT_LOST).count == last->first - 1);
    CHECK(event_of(&wire, CMQ_EVENT_CLOSED).count == last->first);
    close_wire(&wire);
}

static void is_refused(const char *hex) {
    endpoint wire = open_wire();
    octets datagram = from_hex(hex);
    put(&wire, &datagram);
    CHECK(event_of(&wire, CMQ_EVENT_MALFORMED).peer.port == wire.port && malformed(&wire) == 1);
    cmq_message message;
    CHECK(cmq_cw_pop(wire.queue, &message) == RB_TIMED_OUT);
    close_wire(&wire);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    FILE *file = fopen(argv[1], "r");
    CHECK(file);
    static char lines[64][SIZE];
    static sample fragments[3], first;
    int good = 0, bad = 0, count = 0;
    while (fgets(lines[good + bad], SIZE, file)) {
        char *line = lines[good + bad];
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "bad\t", 4)) {
            is_refused(line + 4);
            bad++;
            continue;
        }
        sample vector = parse(line);
        if (!strcmp(vector.kind, "batch")) {
            batch_is_popped(&vector);
            batch_is_sent(&vector);
            if (!good) first = vector;
        } else if (!strcmp(vector.kind, "fragment")) {
            CHECK(count < 3);
            fragments[count++] = vector;
        } else {
            close_is_reported(&first, &vector);
        }
        good++;
        CHECK(good + bad < 64);
    }
    fclose(file);
    CHECK(count == 3);
    fragments_are_joined(&fragments[0], &fragments[2]);
    fragments_are_joined(&fragments[1], &fragments[2]);
    printf("cmq_vectors: %d datagrams, %d refused: ok\n", good, bad);
    return 0;
}
