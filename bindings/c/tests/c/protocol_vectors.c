// The bytes of docs/protocol-vectors.json, between a plain socket and the library: as the sender, and as the receiver. The first
// argument is the file with the vectors, which scripts/test-c makes: a line for each, `LIST` and `KEY=VALUE` with tabs between them.

#include "octets.h"
#include <arpa/inet.h>
#include <endian.h>
#include <inttypes.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { LINES = 256, FIELDS = 24, HEADER = 8, BUFFER = 7, RING = 1 << 20 };
enum { BYE = 0x03, PONG = 0x05, WELCOME = 0x02, SUBSCRIBE = 0x10, SUBSCRIBED = 0x11 };
#define CONTROL UINT32_C(0x7fffffff)
#define MORE UINT32_C(0x80000000)

// A vector: its list, and its fields.
typedef struct {
    char *list, *key[FIELDS], *value[FIELDS];
    int fields;
} vector;

static vector vectors[LINES];
static int count;

static void parse(char *line) {
    vector *found = &vectors[count++];
    line[strcspn(line, "\n")] = '\0';
    found->list = strsep(&line, "\t");
    for (char *field; (field = strsep(&line, "\t"));) {
        CHECK(found->fields < FIELDS);
        found->key[found->fields] = strsep(&field, "=");
        found->value[found->fields++] = field;
    }
}

static const char *text_of(const vector *of, const char *key) {
    for (int i = 0; i < of->fields; i++)
        if (!strcmp(of->key[i], key)) return of->value[i];
    fprintf(stderr, "a vector of %s has no %s\n", of->list, key);
    exit(1);
}

static uint64_t number_of(const vector *of, const char *key) { return strtoull(text_of(of, key), NULL, 10); }

static bool is(const vector *of, const char *kind) {
    return !strcmp(of->list, "messages") && !strcmp(text_of(of, "type"), kind);
}

static const vector *named(const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(vectors[i].list, "messages") && !strcmp(text_of(&vectors[i], "vector"), name)) return &vectors[i];
    fprintf(stderr, "there is no %s\n", name);
    exit(1);
}

static octets body_of(const vector *of) { return from_hex(text_of(of, "hex")); }

static bool same(const octets *a, const octets *b) { return a->len == b->len && !memcmp(a->data, b->data, a->len); }

static uint32_t load32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static void store32(uint8_t *at, uint32_t value) {
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

// The wire id of most control messages stands behind the type.
static void set_wire(octets *body, uint32_t wire) { store32(body->data + 1, wire); }

// Values that an end chooses itself are not compared: `len` bytes from `from` on.
static void clear(octets *body, size_t from, size_t len) {
    CHECK(from + len <= body->len);
    memset(body->data + from, 0, len);
}

static bool same_but(octets a, octets b, size_t from, size_t len) {
    clear(&a, from, len);
    clear(&b, from, len);
    return same(&a, &b);
}

static bool is_id(rb_id128 id, const char *hex) {
    char found[33];
    snprintf(found, sizeof found, "%016" PRIx64 "%016" PRIx64, id.high, id.low);
    return !strcmp(found, hex);
}

// The plain socket: a peer that knows the framing.

static void give(int wire, uint32_t id, const octets *body) {
    uint8_t header[HEADER];
    store32(header, id);
    store32(header + 4, (uint32_t)body->len);
    CHECK(send(wire, header, HEADER, MSG_NOSIGNAL) == HEADER);
    for (size_t sent = 0; sent < body->len;) {
        ssize_t more = send(wire, body->data + sent, body->len - sent, MSG_NOSIGNAL);
        CHECK(more > 0);
        sent += (size_t)more;
    }
}

static bool exactly(int wire, void *to, size_t len) {
    for (size_t got = 0; got < len;) {
        ssize_t more = recv(wire, (char *)to + got, len - got, 0);
        if (more <= 0) return false;
        got += (size_t)more;
    }
    return true;
}

// The next transfer or control message; false at the end of the connection.
static bool take(int wire, uint32_t *id, octets *body) {
    uint8_t header[HEADER];
    if (!exactly(wire, header, HEADER)) return false;
    *id = load32(header);
    body->len = load32(header + 4);
    CHECK(body->len <= SIZE);
    return exactly(wire, body->data, body->len);
}

// The next control message of this type. Heartbeats and credits may come before.
static octets control(int wire, uint8_t kind) {
    uint32_t id;
    octets body;
    do CHECK(take(wire, &id, &body));
    while (id != CONTROL || !body.len || body.data[0] != kind);
    return body;
}

static void limit(int wire) {
    struct timeval within = {.tv_sec = WAIT / RB_S};
    CHECK(wire >= 0 && !setsockopt(wire, SOL_SOCKET, SO_RCVTIMEO, &within, sizeof within));
}

static struct sockaddr_in loopback(int port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
}

static rb_context *new_context(void) {
    rb_config *config;
    rb_context *context;
    OK(rb_config_new(&config));
    OK(rb_config_set(config, "transport", "tcp"));
    OK(rb_context_new(config, &context));
    OK(rb_config_free(config));
    return context;
}

// The library as the sender.

static rb_context *context;
static rb_rout *out;
static rb_listener *listener;

static void foreign(void *ctx, const char *peer, const char *reason, const char *why) {
    ENTER(ctx);
    CHECK(peer && reason && why);
}

static void open_sender(void) {
    context = new_context();
    OK(rb_rout_new(context, &out));
    OK(rb_listener_bind(context, "127.0.0.1:0", &listener));
    OK(rb_listener_set_foreign_conn_cb(listener, foreign, NULL));
}

static void close_sender(void) {
    OK(rb_listener_free(listener));
    OK(rb_rout_free(out));
    OK(rb_context_shutdown(context, 0));
    OK(rb_context_free(context));
}

static int connect_to_sender(void) {
    char address[64];
    OK(rb_listener_local_addr(listener, address, sizeof address, NULL));
    struct sockaddr_in to = loopback(atoi(strrchr(address, ':') + 1));
    int wire = socket(AF_INET, SOCK_STREAM, 0);
    limit(wire);
    CHECK(!connect(wire, (struct sockaddr *)&to, sizeof to));
    return wire;
}

// Connects with this HELLO; the socket, the connection and the WELCOME.
static int accept_hello(const vector *hello, rb_conn **conn, octets *welcome) {
    int wire = connect_to_sender();
    octets body = body_of(hello), answer;
    give(wire, CONTROL, &body);
    OK(rb_listener_accept(listener, conn, WAIT));
    OK(rb_rout_add_conn(out, *conn));
    answer = control(wire, WELCOME);
    if (welcome) *welcome = answer;
    return wire;
}

static int accept_any(rb_conn **conn) { return accept_hello(named("HELLO with an application's hello"), conn, NULL); }

static void hang_up(int wire, rb_conn *conn) {
    OK(rb_conn_close(conn, "done"));
    OK(rb_conn_free(conn));
    close(wire);
}

static void hello_is_read(const vector *of) {
    rb_conn *conn;
    octets welcome, hello = {.len = 0}, expected = from_hex(text_of(of, "hello"));
    rb_id128 instance;
    int wire = accept_hello(of, &conn, &welcome);
    OK(rb_conn_peer_hello(conn, (char *)hello.data, SIZE, &hello.len));
    OK(rb_conn_peer_instance(conn, &instance));
    CHECK(same(&hello, &expected) && is_id(instance, text_of(of, "instance")));
    octets known = body_of(named("WELCOME"));
    CHECK(!memcmp(welcome.data, known.data, 9));
    hang_up(wire, conn);
}

static void bye_ends_the_connection(const vector *of) {
    rb_conn *conn;
    rb_down down;
    int wire = accept_any(&conn);
    octets bye = body_of(of);
    give(wire, CONTROL, &bye);
    OK(rb_conn_wait_down(conn, &down, WAIT));
    CHECK(down.by == RB_DOWN_BY_PEER && down.code == (int)number_of(of, "code") && strstr(down.text, text_of(of, "text")));
    hang_up(wire, conn);
}

static void ping_is_answered(const vector *of) {
    rb_conn *conn;
    int wire = accept_any(&conn);
    octets pong = body_of(named("PONG")), ping = body_of(of);
    give(wire, CONTROL, &pong);
    give(wire, CONTROL, &ping);
    octets answer = control(wire, PONG);
    CHECK(same_but(answer, ping, 0, 1) && rb_conn_is_up(conn) == 1);
    hang_up(wire, conn);
}

static void app_arrives_and_is_sent(const vector *of) {
    rb_conn *conn;
    rb_out_event event;
    int wire = accept_any(&conn);
    octets app = body_of(of), expected = from_hex(text_of(of, "bytes"));
    give(wire, CONTROL, &app);
    do OK(rb_rout_recv_event(out, &event, WAIT));
    while (event.kind != RB_OUT_CONTROL);
    CHECK(event.message_len == expected.len && (!expected.len || !memcmp(event.message, expected.data, expected.len)));
    OK(rb_conn_send_control(conn, expected.data, expected.len));
    octets sent = control(wire, app.data[0]);
    CHECK(same(&sent, &app));
    hang_up(wire, conn);
}

static void subscription_is_answered(const vector *of) {
    static const uint32_t policies[] = {RB_POLICY_BLOCK, RB_POLICY_DROP, RB_POLICY_DISCONNECT, RB_POLICY_OVERWRITE};
    rb_conn *conn;
    rb_buffer *buffer;
    rb_subscriber_info info;
    size_t subscribers;
    uint64_t policy = number_of(of, "policy");
    rb_buffer_options options = {.size = sizeof options, .size_bytes = RING, .without_flow_control = policy == 3};
    int wire = accept_any(&conn);
    OK(rb_rout_create_buffer_with(out, (uint32_t)number_of(of, "bid"), &options, &buffer));
    octets body = body_of(of), name = from_hex(text_of(of, "name"));
    give(wire, CONTROL, &body);
    octets answer = control(wire, SUBSCRIBED);
    CHECK(load32(answer.data + 1) == number_of(of, "wire"));
    OK(rb_buffer_subscribers(buffer, &info, 1, &subscribers));
    CHECK(subscribers == 1 && policy < 4 && info.policy == policies[policy]);
    CHECK(info.name_len == name.len && !memcmp(info.name, name.data, name.len));
    OK(rb_buffer_subscriber_count(buffer, &subscribers));
    CHECK(subscribers == 1);
    OK(rb_buffer_destroy(buffer, NULL));
    OK(rb_buffer_free(buffer));
    hang_up(wire, conn);
}

static void wrong_message_ends_the_connection(const vector *of) {
    rb_conn *conn;
    rb_down down;
    uint32_t id;
    octets body = body_of(of);
    int wire;
    if (!strncmp(text_of(of, "vector"), "HELLO", 5)) {
        wire = connect_to_sender();
        give(wire, CONTROL, &body);
        CHECK(rb_listener_accept(listener, &conn, 50 * RB_MS) == RB_TIMED_OUT);
    } else {
        wire = accept_any(&conn);
        give(wire, CONTROL, &body);
        OK(rb_conn_wait_down(conn, &down, WAIT));
        CHECK(down.by == RB_DOWN_BY_LOCAL || down.by == RB_DOWN_BY_TRANSPORT);
        CHECK(down.code == RB_CLOSE_PROTOCOL || down.code == -1);
        OK(rb_conn_free(conn));
    }
    while (take(wire, &id, &body)) continue;
    close(wire);
    // The listener goes on.
    wire = accept_any(&conn);
    OK(rb_conn_wait_up(conn, WAIT));
    hang_up(wire, conn);
}

static void marks_are_written(const vector *of) {
    rb_conn *conn;
    rb_buffer *buffer;
    rb_writer *writer;
    octets payload = from_hex(text_of(of, "payload")), expected = body_of(of), found = {.len = 0}, part;
    // A delivery of no bytes gives its segment back.
    if (!payload.len) return;
    // The last position is a quarter of the deliveries away that a ring has by default.
    rb_buffer_options options = {.size = sizeof options, .size_bytes = RING, .without_flow_control = true,
                                 .max_delivery_bytes = 4096, .start = number_of(of, "position")};
    int wire = accept_any(&conn);
    OK(rb_rout_create_buffer_with(out, BUFFER, &options, &buffer));
    octets subscribe = body_of(named("SUBSCRIBE, Overwrite"));
    give(wire, CONTROL, &subscribe);
    control(wire, SUBSCRIBED);
    OK(rb_buffer_writer(buffer, &writer));
    OK(rb_writer_append(writer, payload.data, payload.len, RB_NO_WAIT, NULL));
    while (found.len < expected.len) {
        uint32_t id;
        CHECK(take(wire, &id, &part));
        if (id == CONTROL) continue;
        CHECK(found.len + part.len <= SIZE);
        memcpy(found.data + found.len, part.data, part.len);
        found.len += part.len;
    }
    CHECK(same(&found, &expected));
    OK(rb_writer_free(writer));
    OK(rb_buffer_destroy(buffer, NULL));
    OK(rb_buffer_free(buffer));
    hang_up(wire, conn);
}

// The example session. A step: who sends, its type, the header's wire id and MORE bit, and the bytes behind the header.

typedef struct {
    const char *from, *kind;
    uint32_t id;
    octets body;
} step;

static step step_of(const vector *of) {
    octets sent = body_of(of);
    CHECK(sent.len >= HEADER && load32(sent.data + 4) == sent.len - HEADER);
    step found = {.from = text_of(of, "from"), .kind = text_of(of, "type"), .id = load32(sent.data)};
    found.body.len = sent.len - HEADER;
    memcpy(found.body.data, sent.data + HEADER, found.body.len);
    return found;
}

static bool kind_is(const step *of, const char *kind) { return !strcmp(of->kind, kind); }

// Delivers what the session's sender has delivered, and waits until the socket has it.
static void deliver_session(int wire, rb_buffer *buffer, const octets *expected) {
    static const char *const parts[] = {"hello", "world"};
    octets found = {.len = 0}, part;
    rb_writer *writer;
    uint64_t end;
    OK(rb_buffer_writer(buffer, &writer));
    for (uint64_t i = 0; i < 2; i++) {
        OK(rb_writer_append(writer, parts[i], 5, RB_NO_WAIT, &end));
        CHECK(end == 4096 + 5 * (i + 1));
    }
    OK(rb_writer_free(writer));
    while (found.len < expected->len) {
        uint32_t id;
        CHECK(take(wire, &id, &part));
        if ((id & ~MORE) != 1) continue;
        memcpy(found.data + found.len, part.data, part.len);
        found.len += part.len;
    }
    CHECK(same(&found, expected));
    OK(rb_buffer_request_confirm(buffer, RB_LEVEL_LANDED, end));
}

// A message that the session's sender has sent, and now the library.
static void compare_sent(int wire, const step *of) {
    octets found = control(wire, of->body.data[0]);
    if (kind_is(of, "WELCOME")) {
        // But the sender's instance, and its hello.
        CHECK(!memcmp(found.data, of->body.data, 13) && !memcmp(found.data + 29, of->body.data + 29, 8));
    } else if (kind_is(of, "SUBSCRIBED")) {
        CHECK(same_but(found, of->body, 5, 16));
    } else {
        CHECK(same(&found, &of->body));
    }
}

static void session_as_its_sender(void) {
    rb_buffer_options options = {.size = sizeof options, .size_bytes = RING, .max_delivery_bytes = 1 << 18, .start = 4096};
    rb_buffer *buffer;
    rb_conn *conn = NULL;
    rb_down down;
    octets data = {.len = 0};
    int wire = -1;
    OK(rb_rout_create_buffer_with(out, BUFFER, &options, &buffer));
    for (int i = 0; i < count; i++) {
        if (strcmp(vectors[i].list, "session")) continue;
        step now = step_of(&vectors[i]);
        if (!strcmp(now.from, "receiver")) {
            bool connects = kind_is(&now, "HELLO");
            if (connects) wire = connect_to_sender();
            if (!kind_is(&now, "PONG")) give(wire, now.id, &now.body);
            if (connects) OK(rb_listener_accept(listener, &conn, WAIT));
            if (connects) OK(rb_rout_add_conn(out, conn));
        } else if (kind_is(&now, "data")) {
            memcpy(data.data + data.len, now.body.data, now.body.len);
            data.len += now.body.len;
        } else if (!kind_is(&now, "PING")) {
            if (kind_is(&now, "ASK")) deliver_session(wire, buffer, &data);
            compare_sent(wire, &now);
        }
    }
    OK(rb_conn_wait_down(conn, &down, WAIT));
    CHECK(down.by == RB_DOWN_BY_PEER && down.code == RB_CLOSE_NORMAL && strstr(down.text, "done"));
    OK(rb_buffer_destroy(buffer, NULL));
    OK(rb_buffer_free(buffer));
    OK(rb_conn_free(conn));
    close(wire);
}

// The library as the receiver.

static rb_conn *to_wire;
static rb_rin *in;
static octets hello;

static int open_receiver(void) {
    struct sockaddr_in at = loopback(0);
    socklen_t len = sizeof at;
    char address[32];
    context = new_context();
    int server = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(server >= 0 && !bind(server, (struct sockaddr *)&at, len) && !listen(server, 1));
    CHECK(!getsockname(server, (struct sockaddr *)&at, &len));
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
    OK(rb_conn_connect_start(context, address, "reader", 6, &to_wire));
    OK(rb_rin_new(to_wire, &in));
    int wire = accept(server, NULL, NULL);
    limit(wire);
    close(server);
    hello = control(wire, 0x01);
    octets welcome = body_of(named("WELCOME"));
    give(wire, CONTROL, &welcome);
    OK(rb_conn_wait_up(to_wire, WAIT));
    return wire;
}

static void close_receiver(int wire) {
    close(wire);
    OK(rb_rin_free(in));
    OK(rb_conn_free(to_wire));
    OK(rb_context_shutdown(context, 0));
    OK(rb_context_free(context));
}

// Subscribes to the buffer; the wire id.
static uint32_t subscribe(int wire, rb_subscribe_options options) {
    rb_subscription *made;
    options.size = sizeof options;
    options.size_bytes = RING;
    OK(rb_rin_subscribe_with(in, BUFFER, &options, &made));
    OK(rb_subscription_free(made));
    return load32(control(wire, SUBSCRIBE).data + 1);
}

static void give_message(int wire, const vector *of, uint32_t id) {
    octets body = body_of(of);
    set_wire(&body, id);
    give(wire, CONTROL, &body);
}

// Accepts a subscription at a position.
static void give_subscribed(int wire, uint32_t id, uint64_t position, bool flow_control) {
    const vector *of =
        named(flow_control ? "SUBSCRIBED, flow control true, restarted false" : "SUBSCRIBED, flow control false, restarted false");
    octets body = body_of(of);
    uint64_t known = htole64(number_of(of, "start")), wanted = htole64(position);
    uint8_t *at = memmem(body.data, body.len, &known, sizeof known);
    CHECK(at);
    memcpy(at, &wanted, sizeof wanted);
    set_wire(&body, id);
    give(wire, CONTROL, &body);
}

static rb_in_event event_of(rb_in_kind kind) {
    rb_in_event event;
    do OK(rb_rin_recv(in, &event, WAIT));
    while (event.kind != kind);
    CHECK(event.bid == BUFFER || kind == RB_IN_CONN_DOWN);
    return event;
}

static void refusal_is_an_event(const vector *of) {
    int wire = open_receiver();
    give_message(wire, of, subscribe(wire, (rb_subscribe_options){0}));
    rb_in_event event = event_of(RB_IN_REFUSED);
    CHECK(event.status < RB_OK && event.text && *event.text);
    close_receiver(wire);
}

static void subscription_is_an_event(const vector *of) {
    int wire = open_receiver();
    give_message(wire, of, subscribe(wire, (rb_subscribe_options){.name = "n", .name_len = 1, .hold_ns = 60 * RB_S}));
    rb_in_event event = event_of(RB_IN_SUBSCRIBED);
    CHECK(is_id(event.epoch, text_of(of, "epoch")) && event.from == number_of(of, "start"));
    if (!strcmp(text_of(of, "without_slot"), "True")) event_of(RB_IN_NOT_DURABLE);
    close_receiver(wire);
}

static void end_of_a_log_is_an_event(const vector *of, rb_in_kind kind) {
    int wire = open_receiver();
    const uint64_t last = UINT64_C(1) << 60, end = number_of(of, "end");
    uint32_t id = subscribe(wire, (rb_subscribe_options){0});
    give_subscribed(wire, id, end < last ? end : last, true);
    give_message(wire, of, id);
    if (end > last) {
        // Not a position that a log can have.
        rb_down down;
        OK(rb_conn_wait_down(to_wire, &down, WAIT));
        CHECK(down.by == RB_DOWN_BY_LOCAL && down.code == RB_CLOSE_PROTOCOL);
    } else {
        CHECK(event_of(kind).to == end);
    }
    close_receiver(wire);
}

static void loss_is_an_event(const vector *of) {
    int wire = open_receiver();
    uint32_t id = subscribe(wire, (rb_subscribe_options){.policy = RB_POLICY_DROP});
    give_subscribed(wire, id, number_of(of, "from"), true);
    give_message(wire, of, id);
    octets after = {.data = "after", .len = 5};
    give(wire, id, &after);
    rb_in_event event = event_of(RB_IN_LOST);
    CHECK(event.from == number_of(of, "from") && event.to == number_of(of, "to"));
    event = event_of(RB_IN_DATA);
    CHECK(event.data.position == number_of(of, "to") && event.data.len == 5 && !memcmp(event.data.data, "after", 5));
    OK(rb_view_consume(event.data.view));
    close_receiver(wire);
}

static void marks_are_read(const vector *of, bool good) {
    int wire = open_receiver();
    uint32_t id = subscribe(wire, (rb_subscribe_options){.policy = RB_POLICY_OVERWRITE});
    give_subscribed(wire, id, number_of(of, "position"), false);
    event_of(RB_IN_SUBSCRIBED);
    octets marked = body_of(of), found;
    give(wire, id, &marked);
    rb_in_event event;
    OK(rb_rin_recv(in, &event, WAIT));
    if (!good) {
        CHECK(event.kind == RB_IN_LOST || event.kind == RB_IN_CONN_DOWN);
    } else {
        octets payload = from_hex(text_of(of, "payload"));
        CHECK(event.kind == RB_IN_DATA && event.data.len == payload.len);
        found.len = payload.len;
        OK(rb_view_copy(event.data.view, 0, found.data, found.len));
        CHECK(same(&found, &payload));
        OK(rb_view_free(event.data.view));
    }
    close_receiver(wire);
}

// Receives both deliveries of the session, and releases the first one.
static void release_first(rb_view *views[2], int *held) {
    size_t got = 0;
    while (got < 10) {
        rb_in_event event = event_of(RB_IN_DATA);
        CHECK(*held < 2);
        views[(*held)++] = event.data.view;
        got += event.data.len;
    }
    OK(rb_view_consume_up_to(views[0], 4101));
    views[0] = NULL;
}

// A message that the session's receiver has sent, and now the library.
static void compare_received(int wire, const step *of) {
    octets found = control(wire, of->body.data[0]);
    // The answer to the question may come in two credits.
    while (kind_is(of, "CREDIT") && !same_but(found, of->body, 1, 4)) found = control(wire, of->body.data[0]);
    CHECK(kind_is(of, "CREDIT") || kind_is(of, "UNSUBSCRIBE") ? same_but(found, of->body, 1, 4) : same(&found, &of->body));
}

static void session_as_its_receiver(void) {
    int wire = open_receiver(), steps = 0, held = 0;
    uint32_t id = 0;
    rb_view *views[2] = {NULL, NULL};
    for (int i = 0; i < count; i++) {
        if (strcmp(vectors[i].list, "session")) continue;
        step now = step_of(&vectors[i]);
        // The first two steps are behind: only the instance differs.
        if (!steps++) CHECK(same_but(hello, now.body, 13, 16));
        if (steps <= 2) continue;
        if (kind_is(&now, "SUBSCRIBE")) {
            OK(rb_rin_subscribe(in, BUFFER, RING, NULL));
            octets found = control(wire, SUBSCRIBE);
            id = load32(found.data + 1);
            CHECK(same_but(found, now.body, 1, 4));
        } else if (!strcmp(now.from, "sender")) {
            if (now.id == CONTROL && !kind_is(&now, "PING")) set_wire(&now.body, id);
            if (kind_is(&now, "ASK")) release_first(views, &held);
            give(wire, now.id == CONTROL ? CONTROL : (now.id & MORE) | id, &now.body);
        } else {
            if (kind_is(&now, "UNSUBSCRIBE")) OK(rb_rin_unsubscribe(in, BUFFER));
            if (kind_is(&now, "BYE")) OK(rb_conn_close(to_wire, "done"));
            compare_received(wire, &now);
        }
    }
    for (int i = 0; i < 2; i++) OK(rb_view_free(views[i]));
    close_receiver(wire);
}

// Each vector has a sender of its own: a buffer's id is free again only when its subscriptions are gone.
static void as_the_sender(const vector *of) {
    open_sender();
    if (is(of, "HELLO")) hello_is_read(of);
    if (is(of, "BYE")) bye_ends_the_connection(of);
    if (is(of, "PING")) ping_is_answered(of);
    if (is(of, "APP")) app_arrives_and_is_sent(of);
    if (is(of, "SUBSCRIBE")) subscription_is_answered(of);
    if (!strcmp(of->list, "rejects")) wrong_message_ends_the_connection(of);
    if (!strcmp(of->list, "marks")) marks_are_written(of);
    close_sender();
}

static void as_the_receiver(const vector *of) {
    if (is(of, "REFUSED")) refusal_is_an_event(of);
    if (is(of, "SUBSCRIBED")) subscription_is_an_event(of);
    if (is(of, "CLOSED")) end_of_a_log_is_an_event(of, RB_IN_CLOSED);
    if (is(of, "GONE")) end_of_a_log_is_an_event(of, RB_IN_GONE);
    if (is(of, "LOST")) loss_is_an_event(of);
    if (!strcmp(of->list, "marks")) marks_are_read(of, true);
    if (!strcmp(of->list, "mark_rejects")) marks_are_read(of, false);
}

int main(int argc, char **argv) {
    static char lines[LINES][1 << 15];
    CHECK(argc > 1);
    FILE *file = fopen(argv[1], "r");
    CHECK(file);
    while (fgets(lines[count], sizeof *lines, file)) {
        CHECK(strchr(lines[count], '\n') && count < LINES - 1);
        parse(lines[count]);
    }
    fclose(file);
    for (int i = 0; i < count; i++) as_the_sender(&vectors[i]);
    open_sender();
    session_as_its_sender();
    close_sender();
    for (int i = 0; i < count; i++) as_the_receiver(&vectors[i]);
    session_as_its_receiver();
    printf("protocol_vectors: %d vectors: ok\n", count);
    return 0;
}
