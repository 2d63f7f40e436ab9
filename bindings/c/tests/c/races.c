// Threads that end things while others use them, and callbacks that end what they were called for: every call has an outcome or an
// error, and nothing is used after its end.

#include "check.h"
#include <poll.h>
#include <pthread.h>

#define THREADS 4
#define ROUNDS 20

static rb_context *context;
static rb_rout *out;
static char address[64];
static char segments;

static void on_conn(void *ctx, rb_conn *conn) {
    ENTER(ctx);
    OK(rb_rout_add_conn(out, conn));
    OK(rb_conn_free(conn));
}

static void run(void *(*first)(void *), void *(*others)(void *), void *ctx) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&threads[i], NULL, i ? others : first, ctx));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void short_sleep(void) {
    static unsigned state = 1;
    poll(NULL, 0, (int)(__atomic_fetch_add(&state, 1, __ATOMIC_RELAXED) % 4));
}

// A subscription to a buffer, by a connection of its own.
struct ends {
    uint32_t bid;
    rb_buffer *buffer;
    rb_conn *conn;
    rb_rin *in;
    rb_subscription *subscription;
};

static void open_ends(struct ends *ends, uint32_t bid) {
    rb_in_event event;
    ends->bid = bid;
    OK(rb_rout_create_buffer(out, bid, 1 << 16, &ends->buffer));
    OK(rb_conn_connect(context, address, NULL, 0, &ends->conn));
    OK(rb_rin_new(ends->conn, &ends->in));
    OK(rb_rin_subscribe(ends->in, bid, 1 << 16, &ends->subscription));
    OK(rb_rin_recv(ends->in, &event, WAIT));
    CHECK(event.kind == RB_IN_SUBSCRIBED);
}

static rb_status deliver(rb_buffer *buffer) {
    rb_buf_seg seg;
    rb_status status = rb_buffer_segment(buffer, 100, 10 * RB_MS, &seg);
    if (status != RB_OK) return status;
    ENTER(&segments);
    memset(seg.vecs[0].iov_base, 7, 100);
    LEAVE(&segments);
    return rb_buffer_deliver(buffer, &seg, 100, NULL, NULL);
}

// The statuses that a delivery may return when its buffer is destroyed, or its handle freed, at any moment.
static bool ended(rb_status status) { return status == RB_ERR_CLOSED || status == RB_ERR_FREED; }

static void *destroys(void *ctx) {
    struct ends *ends = ctx;
    short_sleep();
    OK(rb_buffer_destroy(ends->buffer, NULL));
    OK(rb_subscription_unsubscribe(ends->subscription));
    OK(rb_conn_close(ends->conn, "the race"));
    OK(rb_buffer_free(ends->buffer));
    OK(rb_subscription_free(ends->subscription));
    OK(rb_conn_free(ends->conn));
    OK(rb_rin_free(ends->in));
    return NULL;
}

static void *uses(void *ctx) {
    struct ends *ends = ctx;
    for (;;) {
        rb_in_event event;
        rb_status status = deliver(ends->buffer);
        CHECK(status == RB_OK || status == RB_TIMED_OUT || status == RB_ERR_SHORT_DELIVER || ended(status));
        rb_status sent = rb_conn_send_control(ends->conn, "x", 1);
        CHECK(sent == RB_OK || sent == RB_FULL || sent == RB_ERR_DOWN || sent == RB_ERR_FREED);
        rb_status got = rb_rin_recv(ends->in, &event, RB_MS);
        CHECK(got == RB_OK || got == RB_TIMED_OUT || got == RB_ERR_FREED);
        if (got == RB_OK && event.kind == RB_IN_DATA) OK(rb_view_consume(event.data.view));
        if (rb_subscription_consume(ends->subscription, 0) == RB_ERR_FREED && got == RB_ERR_FREED) return NULL;
    }
}

static void ends_beside_uses(void) {
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct ends ends;
        open_ends(&ends, 100 + round);
        run(destroys, uses, &ends);
    }
}

static int consumed;

static void *consumes(void *view) {
    rb_status status = rb_view_consume(view);
    CHECK(status == RB_OK || status == RB_ERR_FREED || status == RB_ERR_BUSY);
    if (status == RB_OK) __atomic_fetch_add(&consumed, 1, __ATOMIC_RELAXED);
    return NULL;
}

// Several threads that release the same view: one of them does.
static void one_of_many_consumes(void) {
    struct ends ends;
    rb_in_event event;
    open_ends(&ends, 1);
    for (int round = 0; round < ROUNDS; round++) {
        OK(deliver(ends.buffer));
        OK(rb_rin_recv(ends.in, &event, WAIT));
        CHECK(event.kind == RB_IN_DATA);
        __atomic_store_n(&consumed, 0, __ATOMIC_RELAXED);
        run(consumes, consumes, event.data.view);
        CHECK(__atomic_load_n(&consumed, __ATOMIC_RELAXED) == 1);
    }
    destroys(&ends);
}

static void *shuts_down(void *own) {
    short_sleep();
    OK(rb_context_shutdown(own, 0));
    OK(rb_context_free(own));
    return NULL;
}

static void *connects(void *own) {
    for (;;) {
        rb_conn *conn;
        rb_status status = rb_conn_connect(own, address, NULL, 0, &conn);
        if (status == RB_OK) {
            OK(rb_conn_free(conn));
            continue;
        }
        CHECK(status == RB_ERR_DOWN || status == RB_ERR_FREED);
        if (status == RB_ERR_FREED) return NULL;
    }
}

static void shutdown_beside_connects(void) {
    for (int round = 0; round < 5; round++) {
        rb_context *own;
        OK(rb_context_new(NULL, &own));
        run(shuts_down, connects, own);
    }
}

// The handles that a callback frees, and its signal to the test.
struct own {
    rb_context *context;
    rb_listener *listener;
    rb_rout *out;
    rb_buffer *buffer;
    rb_conn *conn;
    rb_rin *in;
    bool shuts_down;
    int state;
};

static void done(struct own *own) { __atomic_store_n(&own->state, 1, __ATOMIC_RELEASE); }

static void await(struct own *own) {
    while (!__atomic_load_n(&own->state, __ATOMIC_ACQUIRE)) poll(NULL, 0, 1);
    __atomic_store_n(&own->state, 0, __ATOMIC_RELAXED);
}

// Frees every handle, the callback's own and the last ones of the context among them.
static void frees_everything(void *ctx, uint32_t bid, const rb_buf_seg *seg) {
    struct own *own = ctx;
    char byte;
    ENTER(own);
    OK(rb_rin_unset_data_in_cb(own->in));
    OK(rb_rin_data_consumed(own->in, bid, seg->len));
    OK(rb_rin_unsubscribe(own->in, bid));
    OK(rb_conn_close(own->conn, "by the callback"));
    // Stops the thread that this runs on, once this has returned.
    if (own->shuts_down) OK(rb_context_shutdown(own->context, RB_S));
    OK(rb_rin_free(own->in));
    OK(rb_conn_free(own->conn));
    OK(rb_buffer_destroy(own->buffer, NULL));
    OK(rb_buffer_free(own->buffer));
    OK(rb_listener_free(own->listener));
    OK(rb_rout_free(own->out));
    OK(rb_context_free(own->context));
    FAILS(rb_rin_free(own->in), RB_ERR_FREED, "the rIn was freed");
    // The segment that the callback was given is there until the callback returns.
    OK(rb_buf_seg_copy(seg, 0, &byte, 1));
    CHECK(byte == 7);
    done(own);
}

static void add_own(void *ctx, rb_conn *conn) {
    struct own *own = ctx;
    ENTER(own);
    OK(rb_rout_add_conn(own->out, conn));
    OK(rb_conn_free(conn));
}

static void open_own(struct own *own) {
    rb_in_event event;
    char at[64];
    *own = (struct own){0};
    OK(rb_context_new(NULL, &own->context));
    OK(rb_rout_new(own->context, &own->out));
    OK(rb_rout_create_buffer(own->out, 1, 1 << 16, &own->buffer));
    OK(rb_listener_bind(own->context, "127.0.0.1:0", &own->listener));
    OK(rb_listener_local_addr(own->listener, at, sizeof at, NULL));
    LEAVE(own);
    OK(rb_listener_set_conn_cb(own->listener, add_own, own));
    OK(rb_conn_connect(own->context, at, NULL, 0, &own->conn));
    OK(rb_rin_new(own->conn, &own->in));
    OK(rb_rin_subscribe(own->in, 1, 1 << 16, NULL));
    OK(rb_rin_recv(own->in, &event, WAIT));
    CHECK(event.kind == RB_IN_SUBSCRIBED);
}

static void callback_frees_everything(void) {
    for (int round = 0; round < 5; round++) {
        struct own own;
        open_own(&own);
        own.shuts_down = round % 2 == 1;
        LEAVE(&own);
        OK(rb_rin_set_data_in_cb(own.in, frees_everything, &own));
        OK(deliver(own.buffer));
        await(&own);
    }
}

// A callback for new connections that ends the listening, and refuses the connection.
static void ends_listening(void *ctx, rb_conn *conn) {
    struct own *own = ctx;
    ENTER(own);
    OK(rb_conn_reject(conn, "not today"));
    OK(rb_conn_free(conn));
    FAILS(rb_conn_is_up(conn), RB_ERR_FREED, "the connection was freed");
    OK(rb_listener_unset_conn_cb(own->listener));
    OK(rb_listener_free(own->listener));
    done(own);
}

static void callback_ends_listening(void) {
    struct own own = {0};
    rb_conn *conn;
    char at[64];
    OK(rb_listener_bind(context, "127.0.0.1:0", &own.listener));
    OK(rb_listener_local_addr(own.listener, at, sizeof at, NULL));
    LEAVE(&own);
    OK(rb_listener_set_conn_cb(own.listener, ends_listening, &own));
    FAILS(rb_conn_connect(context, at, NULL, 0, &conn), RB_ERR_REFUSED, "not today");
    await(&own);
}

// The answer to a control message destroys the buffer; the event of its end replaces the callback and closes the connection; the event
// of that removes the callback.
static void last_event(void *ctx, const rb_in_event *event) {
    struct own *own = ctx;
    ENTER(own);
    CHECK(event->kind == RB_IN_CONN_DOWN);
    OK(rb_rin_unset_event_cb(own->in));
    done(own);
}

static void first_event(void *ctx, const rb_in_event *event) {
    struct own *own = ctx;
    ENTER(own);
    CHECK(event->kind == RB_IN_CLOSED);
    OK(rb_rin_set_event_cb(own->in, last_event, own));
    OK(rb_conn_close(own->conn, "the buffer has ended"));
}

static void on_answer(void *ctx, rb_rin *rin, const void *message, size_t len) {
    struct own *own = ctx;
    ENTER(own);
    CHECK(len == 4 && !memcmp(message, "pong", 4));
    OK(rb_rin_unset_control_msg_cb(rin));
    OK(rb_buffer_destroy(own->buffer, NULL));
}

static void on_control(void *ctx, rb_conn *conn, const void *message, size_t len) {
    struct own *own = ctx;
    ENTER(own);
    CHECK(len == 4 && !memcmp(message, "ping", 4));
    OK(rb_conn_send_control(conn, "pong", 4));
    OK(rb_rout_unset_control_msg_cb(own->out));
}

// The end of a buffer follows its data, and so goes to a callback only where data does.
static void no_data(void *ctx, uint32_t bid, const rb_buf_seg *seg) {
    (void)ctx, (void)bid, (void)seg;
    CHECK(false);
}

static void callback_replaces_itself(void) {
    struct own own;
    open_own(&own);
    LEAVE(&own);
    OK(rb_rin_set_data_in_cb(own.in, no_data, &own));
    OK(rb_rin_set_event_cb(own.in, first_event, &own));
    OK(rb_rin_set_control_msg_cb(own.in, on_answer, &own));
    OK(rb_rout_set_control_msg_cb(own.out, on_control, &own));
    OK(rb_rin_send_control(own.in, "ping", 4));
    await(&own);
    OK(rb_rin_free(own.in));
    OK(rb_conn_free(own.conn));
    OK(rb_buffer_free(own.buffer));
    OK(rb_listener_free(own.listener));
    OK(rb_rout_free(own.out));
    OK(rb_context_shutdown(own.context, 0));
    OK(rb_context_free(own.context));
}

int main(void) {
    rb_listener *listener;
    OK(rb_context_new(NULL, &context));
    OK(rb_rout_new(context, &out));
    OK(rb_listener_bind(context, "127.0.0.1:0", &listener));
    OK(rb_listener_local_addr(listener, address, sizeof address, NULL));
    LEAVE(address);
    OK(rb_listener_set_conn_cb(listener, on_conn, address));
    ends_beside_uses();
    one_of_many_consumes();
    shutdown_beside_connects();
    callback_frees_everything();
    callback_ends_listening();
    callback_replaces_itself();
    OK(rb_listener_free(listener));
    OK(rb_rout_free(out));
    OK(rb_context_shutdown(context, 0));
    OK(rb_context_free(context));
    puts("races: ok");
    return 0;
}
