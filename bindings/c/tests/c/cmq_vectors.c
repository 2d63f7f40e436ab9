// The datagrams of docs/cmq-vectors.json, sent by a socket to a queue of the library, and sent by a queue to a socket. The first
// argument is the file with the vectors as lines of fields with tabs between them, which scripts/test-c makes:
// `good KIND HEX STREAM EPOCH FIRST MAILBOX MESSAGE,MESSAGE,…` and `bad HEX`; of the reliable mode `unreliable HEX`, which is refused,
// `segment HEX BYTES MAILBOX` and `ack HEX`; of encryption `insecure HEX`, which is refused, and `secured INITIATOR RESPONDER HELLO WELCOME`.

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

static endpoint open_wire_to(const cmq_options *options) {
    endpoint wire;
    cmq_key to;
    wire.socket = bound(&wire.port);
    OK(cmq_new_rq("127.0.0.1:0", options, &wire.queue));
    OK(cmq_local_addr(wire.queue, &to));
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(to.port)};
    CHECK(!connect(wire.socket, (struct sockaddr *)&at, sizeof at));
    return wire;
}

static endpoint open_wire(void) {
    cmq_options options = {.size = sizeof options, .unordered = true};
    return open_wire_to(&options);
}

static endpoint open_reliable(void) {
    cmq_reliable reliable = {.size = sizeof reliable};
    cmq_options options = {.size = sizeof options, .preset = CMQ_PRESET_IMMEDIATE, .reliable = &reliable};
    return open_wire_to(&options);
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
    // Whether a message before the first one was lost is known a moment later: the message might still arrive.
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

static void is_refused(endpoint wire, const char *hex) {
    octets datagram = from_hex(hex);
    put(&wire, &datagram);
    CHECK(event_of(&wire, CMQ_EVENT_MALFORMED).peer.port == wire.port && malformed(&wire) == 1);
    cmq_message message;
    CHECK(cmq_cw_pop(wire.queue, &message) == RB_TIMED_OUT);
    close_wire(&wire);
}

static octets got(const endpoint *wire) {
    octets datagram;
    ssize_t len = recv(wire->socket, datagram.data, SIZE, 0);
    CHECK(len > 0);
    datagram.len = (size_t)len;
    return datagram;
}

static uint64_t number_at(const octets *datagram, size_t at, size_t bytes) {
    uint64_t number = 0;
    while (bytes--) number = number << 8 | datagram->data[at + bytes];
    return number;
}

// The vector's segment is one for another run of the queue: it is answered with a reset. As the first one of a stream, it is popped and
// acknowledged.
static void segment_is_popped(const octets *vector, const octets *bytes, unsigned mailbox) {
    endpoint wire = open_reliable();
    uint64_t epoch;
    OK(cmq_epoch(wire.queue, &epoch));
    put(&wire, vector);
    octets reset = got(&wire), first = *vector;
    CHECK(reset.len == 44 && !memcmp(reset.data, "\xc5\x14\x01", 4) && !memcmp(reset.data + 4, vector->data + 4, 20));
    CHECK(number_at(&reset, 24, 4) == 1 && number_at(&reset, 28, 8) == epoch && number_at(&reset, 36, 8) == UINT64_C(1) << 32);
    // No receiver's epoch, run 0 and offset 0; such a datagram has 60 bytes at least.
    memset(first.data + HEADER, 0, 20);
    memset(first.data + first.len, 0, 60 - first.len);
    first.len = 60;
    put(&wire, &first);
    octets message = {.len = bytes->len - 2};
    memcpy(message.data, bytes->data + 2, message.len);
    pops(&wire, &message, mailbox);
    octets ack = got(&wire);
    CHECK(ack.len == 60 && !memcmp(ack.data, "\xc5\x14\x01", 4) && !memcmp(ack.data + 4, vector->data + 4, 20));
    CHECK(!number_at(&ack, 24, 4) && number_at(&ack, 28, 8) == epoch && number_at(&ack, 36, 8) == UINT64_C(1) << 32);
    CHECK(number_at(&ack, 44, 4) == mailbox && !number_at(&ack, 48, 4) && number_at(&ack, 52, 8) == bytes->len + (1 << 20));
    close_wire(&wire);
}

// The queue sends the vector's bytes as the first segment of a stream, and takes an acknowledgement of it.
static void segment_is_sent(const octets *vector, const octets *bytes, unsigned mailbox, octets ack) {
    endpoint wire = open_reliable();
    cmq_key to = {.family = 4, .ip = {127, 0, 0, 1}, .port = wire.port, .id = mailbox};
    uint64_t epoch, number;
    OK(cmq_epoch(wire.queue, &epoch));
    OK(cmq_push_reliable(wire.queue, &to, bytes->data + 2, bytes->len - 2, &number));
    octets sent = got(&wire);
    CHECK(sent.len == 60 && number_at(&sent, EPOCH, 8) == epoch && !memcmp(sent.data, vector->data, 4));
    CHECK(!number_at(&sent, 16, 8) && number_at(&sent, 24, 4) == mailbox && !number_at(&sent, HEADER, 8));
    CHECK(!number_at(&sent, 40, 8) && !memcmp(sent.data + 48, bytes->data, bytes->len));
    for (size_t i = 48 + bytes->len; i < sent.len; i++) CHECK(!sent.data[i]);
    cmq_message_fate fate;
    OK(cmq_fate(wire.queue, &to, number, &fate, NULL));
    CHECK(fate == CMQ_FATE_PENDING);
    // The vector's acknowledgement, of this link and its only number.
    memcpy(ack.data + 4, sent.data + 4, 12);
    memset(ack.data + 16, 0, 8);
    memcpy(ack.data + 36, "\0\0\0\0\1\0\0\0", 8);
    ack.data[2] = 1;
    ack.len = 44;
    put(&wire, &ack);
    OK(cmq_wait_confirmed(wire.queue, &to, number, WAIT));
    close_wire(&wire);
}

// A queue with the responder's keys of the vectors.
static endpoint open_responder(void) {
    cmq_secret_key responder, shared;
    memset(&responder, 2, sizeof responder);
    memset(&shared, 5, sizeof shared);
    cmq_security security = {.size = sizeof security, .secret = &responder, .shared_secret = &shared};
    cmq_options options = {.size = sizeof options, .security = &security};
    return open_wire_to(&options);
}

// Waits until the queue has counted a datagram that does not follow the format: another version is none that encrypts.
static void is_insecure(const char *hex) {
    endpoint wire = open_responder();
    octets datagram = from_hex(hex);
    put(&wire, &datagram);
    cmq_stats stats = {0};
    for (cmq_message message; !stats.security.malformed && !stats.security.plain;) {
        CHECK(cmq_pop(wire.queue, &message, RB_MS) == RB_TIMED_OUT);
        OK(cmq_get_stats(wire.queue, &stats));
    }
    CHECK(!stats.security.sessions && !stats.counts.received);
    close_wire(&wire);
}

static void hello_is_answered(char **field) {
    octets public_keys[] = {from_hex(field[1]), from_hex(field[2])}, hello = from_hex(field[3]), welcome = from_hex(field[4]);
    for (int i = 0; i < 2; i++) {
        cmq_secret_key secret;
        cmq_public_key public_key;
        memset(&secret, i + 1, sizeof secret);
        OK(cmq_secret_key_public(&secret, &public_key));
        CHECK(!memcmp(&public_key, public_keys[i].data, sizeof public_key));
    }
    endpoint wire = open_responder();
    put(&wire, &hello);
    octets answer = got(&wire);
    // The rest depends on a random key.
    CHECK(answer.len == welcome.len && !memcmp(answer.data, welcome.data, 16));
    close_wire(&wire);

    cmq_secret_key initiator, shared;
    cmq_public_key responder;
    memset(&initiator, 1, sizeof initiator);
    memset(&shared, 5, sizeof shared);
    memcpy(&responder, public_keys[1].data, sizeof responder);
    cmq_security security = {.size = sizeof security, .secret = &initiator, .shared_secret = &shared, .default_peer = &responder};
    cmq_options options = {.size = sizeof options, .preset = CMQ_PRESET_IMMEDIATE, .security = &security};
    wire = open_wire_to(&options);
    cmq_key to = {.family = 4, .ip = {127, 0, 0, 1}, .port = wire.port};
    OK(cmq_cw_push(wire.queue, &to, "x", 1));
    answer = got(&wire);
    CHECK(answer.len == hello.len && !memcmp(answer.data, hello.data, 4) && !number_at(&answer, 8, 8));
    close_wire(&wire);
}

// The vectors of encryption and of the reliable mode. False for a line of another kind.
static bool is_of_a_mode(char *line, octets segments[2], unsigned *mailbox) {
    char *field[5] = {0};
    for (int i = 0; i < 5 && line; i++) field[i] = strsep(&line, "\t");
    if (!strcmp(field[0], "unreliable")) {
        is_refused(open_reliable(), field[1]);
    } else if (!strcmp(field[0], "insecure")) {
        is_insecure(field[1]);
    } else if (!strcmp(field[0], "secured")) {
        hello_is_answered(field);
    } else if (!strcmp(field[0], "segment")) {
        segments[0] = from_hex(field[1]);
        segments[1] = from_hex(field[2]);
        *mailbox = (unsigned)atoi(field[3]);
        segment_is_popped(&segments[0], &segments[1], *mailbox);
    } else if (!strcmp(field[0], "ack")) {
        segment_is_sent(&segments[0], &segments[1], *mailbox, from_hex(field[1]));
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    FILE *file = fopen(argv[1], "r");
    CHECK(file);
    static char lines[64][SIZE];
    static sample fragments[3], first;
    static octets segments[2];
    unsigned mailbox = 0;
    int good = 0, bad = 0, count = 0, modes = 0;
    while (fgets(lines[good + bad], SIZE, file)) {
        char *line = lines[good + bad];
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "bad\t", 4)) {
            is_refused(open_wire(), line + 4);
            bad++;
            continue;
        }
        if (strncmp(line, "good\t", 5)) {
            CHECK(is_of_a_mode(line, segments, &mailbox));
            modes++;
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
    CHECK(modes > 3);
    printf("cmq_vectors: %d datagrams, %d refused, %d of encryption and the reliable mode: ok\n", good, bad, modes);
    return 0;
}
