// A program's control of its peers: verified identities, admission to subscriptions, rate limits. The environment variable
// TLS names a folder that `rbmq keygen all` has made.

#include "check.h"
#include <stdatomic.h>
#include <unistd.h>

enum { OPEN = 1, CLOSED = 2, LIMITED = 3, RING = 1 << 16, BYTES = 32 << 10 };

// The two ends of a transport.
struct ends {
    rb_context *context;
    rb_rout *out;
    rb_listener *listener;
    char address[64];
    // The last connection as the listener's callback saw it, and the rate of its connections.
    rb_peer_identity seen;
    char certificate[4096];
    rb_rate_limit *limit;
    atomic_uint_least64_t conn;
};

static void on_conn(void *ctx, rb_conn *conn) {
    struct ends *ends = ctx;
    uint64_t id;
    size_t len;
    ENTER(ends);
    OK(rb_conn_peer_identity(conn, &ends->seen));
    OK(rb_conn_peer_certificate(conn, ends->certificate, sizeof ends->certificate, &len));
    CHECK(len == ends->seen.certificate_len && len < sizeof ends->certificate && ends->certificate[len] == 0);
    if (ends->limit) {
        const rb_rate_limit *sent[] = {ends->limit};
        OK(rb_conn_set_rate_limits(conn, NULL, 0, sent, 1));
    }
    OK(rb_conn_id(conn, &id));
    LEAVE(ends);
    atomic_store(&ends->conn, id);
    OK(rb_rout_add_conn(ends->out, conn));
    OK(rb_conn_free(conn));
}

static void open_ends(struct ends *ends, const char *settings[][2]) {
    rb_config *config;
    memset(ends, 0, sizeof *ends);
    OK(rb_config_new(&config));
    for (; *(*settings)[0]; settings++) OK(rb_config_set(config, (*settings)[0], (*settings)[1]));
    OK(rb_context_new(config, &ends->context));
    OK(rb_config_free(config));
    OK(rb_rout_new(ends->context, &ends->out));
    for (uint32_t bid = OPEN; bid <= LIMITED; bid++) OK(rb_rout_create_buffer(ends->out, bid, RING, NULL));
    OK(rb_listener_bind(ends->context, "127.0.0.1:0", &ends->listener));
    OK(rb_listener_local_addr(ends->listener, ends->address, sizeof ends->address, NULL));
    LEAVE(ends);
    OK(rb_listener_set_conn_cb(ends->listener, on_conn, ends));
}

static void close_ends(struct ends *ends) {
    OK(rb_listener_unset_conn_cb(ends->listener));
    OK(rb_listener_free(ends->listener));
    OK(rb_rout_free(ends->out));
    OK(rb_context_shutdown(ends->context, 0));
    OK(rb_context_free(ends->context));
}

static rb_conn *connect_to(struct ends *ends) {
    rb_conn *conn;
    OK(rb_conn_connect(ends->context, ends->address, NULL, 0, &conn));
    ENTER(ends);
    return conn;
}

static rb_rin *rin_of(rb_conn *conn) {
    rb_rin *in;
    OK(rb_rin_new(conn, &in));
    OK(rb_conn_free(conn));
    return in;
}

static rb_in_event next_event(rb_rin *in) {
    rb_in_event event;
    OK(rb_rin_recv(in, &event, WAIT));
    return event;
}

// Over TCP nothing is known, over shared memory the process, with TLS the certificate.
static void identities(void) {
    struct ends ends;
    rb_peer_identity seen;
    open_ends(&ends, (const char *[][2]){{"transport", "tcp"}, {""}});
    rb_conn *conn = connect_to(&ends);
    CHECK(!ends.seen.encrypted && !ends.seen.has_process && ends.seen.certificate_len == 0);
    FAILS(rb_conn_peer_identity(conn, NULL), RB_ERR_NULL, "the place for the identity is NULL");
    FAILS(rb_conn_peer_identity(NULL, &seen), RB_ERR_NULL, "the connection is NULL");
    OK(rb_conn_free(conn));
    close_ends(&ends);

    open_ends(&ends, (const char *[][2]){{"transport", "shm"}, {""}});
    conn = connect_to(&ends);
    OK(rb_conn_peer_identity(conn, &seen));
    CHECK(seen.has_process && seen.pid == (uint32_t)getpid() && !seen.encrypted && seen.certificate_len == 0);
    CHECK(ends.seen.has_process && ends.seen.uid == geteuid() && ends.seen.gid == getegid());
    OK(rb_conn_free(conn));
    close_ends(&ends);
}

static void certificates(const char *folder) {
    char ca[512], cert[512], key[512];
    snprintf(ca, sizeof ca, "%s/ca.pem", folder);
    snprintf(cert, sizeof cert, "%s/server.pem", folder);
    snprintf(key, sizeof key, "%s/server-key.pem", folder);
    struct ends ends;
    open_ends(&ends, (const char *[][2]){{"tls.mode", "require"}, {"tls.ca", ca}, {"tls.cert", cert}, {"tls.key", key},
                                         {"tls.client_certificates", "require"}, {""}});
    rb_conn *conn = connect_to(&ends);
    rb_peer_identity seen;
    char certificate[4096];
    size_t len;
    OK(rb_conn_peer_identity(conn, &seen));
    OK(rb_conn_peer_certificate(conn, certificate, sizeof certificate, &len));
    // Both ends have the same one, which certificates of a server allow.
    CHECK(seen.encrypted && !seen.has_process && len > 100 && (unsigned char)certificate[0] == 0x30);
    CHECK(ends.seen.encrypted && ends.seen.certificate_len == len && !memcmp(certificate, ends.certificate, len));
    OK(rb_conn_peer_certificate(conn, certificate, 10, &len));
    CHECK(len == seen.certificate_len && certificate[9] == 0);
    OK(rb_conn_free(conn));
    close_ends(&ends);
}

struct rights {
    struct ends *ends;
    atomic_int asked;
    atomic_bool open_is_denied;
};

static bool decide(void *ctx, const rb_asking *asking, rb_admitted *admitted) {
    struct rights *rights = ctx;
    ENTER(rights);
    CHECK(asking->conn == atomic_load(&rights->ends->conn) && admitted->owner == 0 && admitted->policies == 0xf);
    atomic_fetch_add(&rights->asked, 1);
    bool is_friend = asking->name_len == 6 && !memcmp(asking->name, "friend", 6);
    admitted->policies = 1 << RB_POLICY_DROP;
    admitted->owner = 7;
    bool allows = asking->bid == OPEN ? !atomic_load(&rights->open_is_denied) : is_friend;
    LEAVE(rights);
    return allows;
}

static void admission(void) {
    struct ends ends;
    open_ends(&ends, (const char *[][2]){{"transport", "tcp"}, {""}});
    struct rights *rights = calloc(1, sizeof *rights);
    rights->ends = &ends;
    LEAVE(rights);
    OK(rb_rout_set_admission(ends.out, decide, rights));
    rb_rin *in = rin_of(connect_to(&ends));
    // A buffer that must not be read looks as if it did not exist.
    OK(rb_rin_subscribe(in, CLOSED, RING, NULL));
    rb_in_event event = next_event(in);
    CHECK(event.kind == RB_IN_REFUSED && event.bid == CLOSED && event.status == RB_ERR_NO_SUCH_BUFFER);
    OK(rb_rin_subscribe(in, OPEN, RING, NULL));
    event = next_event(in);
    CHECK(event.kind == RB_IN_REFUSED && event.bid == OPEN && strstr(event.text, "allowed: drop"));
    rb_subscribe_options options = {.size = sizeof options, .size_bytes = RING, .policy = RB_POLICY_DROP};
    OK(rb_rin_subscribe_with(in, OPEN, &options, NULL));
    event = next_event(in);
    CHECK(event.kind == RB_IN_SUBSCRIBED && event.bid == OPEN);
    options.name = "friend";
    options.name_len = 6;
    OK(rb_rin_subscribe_with(in, CLOSED, &options, NULL));
    event = next_event(in);
    CHECK(event.kind == RB_IN_SUBSCRIBED && event.bid == CLOSED && atomic_load(&rights->asked) == 4);
    // A right that is lost ends its subscription and no other.
    atomic_store(&rights->open_is_denied, true);
    OK(rb_rout_review_admissions(ends.out));
    event = next_event(in);
    CHECK(event.kind == RB_IN_REFUSED && event.bid == OPEN);
    rb_buffer *buffer;
    size_t count;
    OK(rb_rout_buffer(ends.out, CLOSED, &buffer));
    OK(rb_buffer_subscriber_count(buffer, &count));
    CHECK(count == 1);
    OK(rb_buffer_free(buffer));
    OK(rb_rout_unset_admission(ends.out));
    ENTER(rights);
    free(rights);
    OK(rb_rin_subscribe(in, OPEN, RING, NULL));
    event = next_event(in);
    CHECK(event.kind == RB_IN_SUBSCRIBED && event.bid == OPEN);
    FAILS(rb_rout_set_admission(ends.out, NULL, NULL), RB_ERR_NULL, "the callback is NULL");
    FAILS(rb_rout_review_admissions(NULL), RB_ERR_NULL, "the rOut is NULL");
    OK(rb_rin_free(in));
    close_ends(&ends);
}

static uint64_t counted(const rb_rate_limit *limit) {
    rb_rate_limit_info info;
    OK(rb_rate_limit_get_info(limit, &info));
    return info.bytes;
}

// Everything arrives, later.
static void limits(void) {
    struct ends ends;
    open_ends(&ends, (const char *[][2]){{"transport", "tcp"}, {""}});
    rb_rate_limit *slow, *arriving;
    rb_rate_limit_info info;
    OK(rb_rate_limit_new(200000, 1, &slow));
    OK(rb_rate_limit_get_info(slow, &info));
    CHECK(info.bytes_per_second == 200000 && info.burst_bytes == 4096 && !info.in_use && !info.bytes && !info.delayed_ns);
    // Never full again within this test, and never in debt.
    OK(rb_rate_limit_new(1, 1 << 20, &arriving));
    CHECK(rb_context_is_rate_limit_full(ends.context, arriving) == 1);
    ends.limit = slow;
    LEAVE(&ends);
    rb_conn *conn = connect_to(&ends);
    const rb_rate_limit *received[] = {arriving};
    OK(rb_conn_set_rate_limits(conn, received, 1, NULL, 0));
    rb_rin *in = rin_of(conn);
    OK(rb_rin_subscribe(in, LIMITED, RING, NULL));
    CHECK(next_event(in).kind == RB_IN_SUBSCRIBED);
    rb_buf_seg seg;
    size_t got = 0;
    for (int i = 0; i < BYTES / 4096; i++) {
        OK(rb_rout_get_output_segment(ends.out, LIMITED, 4096, true, &seg));
        memset(seg.vecs[0].iov_base, 1, 4096);
        OK(rb_rout_deliver(ends.out, &seg, 4096, NULL, NULL));
    }
    while (got < BYTES) {
        rb_in_event event = next_event(in);
        CHECK(event.kind == RB_IN_DATA);
        got += event.data.len;
        OK(rb_view_consume(event.data.view));
    }
    while (counted(slow) != BYTES || counted(arriving) != BYTES) usleep(1000);
    OK(rb_rate_limit_get_info(slow, &info));
    CHECK(info.delayed_ns > 0 && info.in_use);
    CHECK(rb_context_is_rate_limit_full(ends.context, arriving) == 0);
    OK(rb_rate_limit_set(slow, 0, 0));
    OK(rb_rate_limit_get_info(slow, &info));
    CHECK(info.bytes_per_second == 0 && info.burst_bytes == 4096);

    const rb_rate_limit *wrong[] = {slow, (rb_rate_limit *)ends.out};
    OK(rb_rin_conn(in, &conn));
    FAILS(rb_conn_set_rate_limits(conn, wrong, 2, NULL, 0), RB_ERR_HANDLE, "no handle of a rate limit");
    FAILS(rb_conn_set_rate_limits(conn, NULL, 0, NULL, 1), RB_ERR_NULL, "the array of limits on what is sent is NULL");
    CHECK(rb_context_is_rate_limit_full(ends.context, NULL) == RB_ERR_NULL);
    // Connections keep the limits.
    OK(rb_rate_limit_free(slow));
    OK(rb_rate_limit_free(arriving));
    FAILS(rb_rate_limit_set(slow, 1, 1), RB_ERR_FREED, "the rate limit was freed");
    OK(rb_conn_free(conn));
    OK(rb_rin_free(in));
    close_ends(&ends);
}

int main(void) {
    const char *folder = getenv("TLS");
    CHECK(folder);
    identities();
    certificates(folder);
    admission();
    limits();
    puts("peers: ok");
    return 0;
}
