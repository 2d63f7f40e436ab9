// Handles that any number of threads may use, by several at once; and that one call of a callback runs at a time.

#include "check.h"
#include <pthread.h>

#define THREADS 4
#define ROUNDS 50

static rb_context *context;
static rb_rout *out;
static char address[64];
static char segments;

static void on_conn(void *ctx, rb_conn *conn) {
    ENTER(ctx);
    OK(rb_rout_add_conn(out, conn));
    OK(rb_conn_free(conn));
}

// The counts of a callback, without a lock.
struct counted {
    rb_rin *in;
    size_t bytes, calls;
};

static void on_data(void *ctx, uint32_t bid, const rb_buf_seg *seg) {
    struct counted *counted = ctx;
    ENTER(counted);
    counted->bytes += seg->len;
    counted->calls++;
    rb_rin *in = counted->in;
    LEAVE(counted);
    OK(rb_rin_data_consumed(in, bid, seg->len));
}

static void *publish_and_receive(void *number) {
    uint32_t first = (uint32_t)(uintptr_t)number * 1000 + 1;
    for (uint32_t bid = first; bid < first + ROUNDS; bid++) {
        rb_buffer *buffer;
        rb_conn *conn;
        rb_in_event event;
        struct counted counted = {0};
        OK(rb_rout_create_buffer(out, bid, 1 << 16, &buffer));
        OK(rb_conn_connect(context, address, NULL, 0, &conn));
        OK(rb_rin_new(conn, &counted.in));
        LEAVE(&counted);
        OK(rb_rin_set_data_in_cb(counted.in, on_data, &counted));
        OK(rb_rin_subscribe(counted.in, bid, 1 << 16, NULL));
        OK(rb_rin_recv(counted.in, &event, WAIT));
        CHECK(event.kind == RB_IN_SUBSCRIBED);
        uint64_t end = 0;
        for (int i = 0; i < 20; i++) {
            rb_buf_seg seg;
            OK(rb_buffer_segment(buffer, 100, WAIT, &seg));
            ENTER(&segments);
            memset(seg.vecs[0].iov_base, i, 100);
            LEAVE(&segments);
            OK(rb_buffer_deliver(buffer, &seg, 100, NULL, &end));
        }
        OK(rb_buffer_wait(buffer, RB_LEVEL_CONSUMED, end, WAIT));
        OK(rb_rin_unset_data_in_cb(counted.in));
        ENTER(&counted);
        CHECK(counted.bytes == 2000 && counted.calls >= 1);
        OK(rb_conn_close(conn, "done"));
        OK(rb_buffer_destroy(buffer, NULL));
        OK(rb_buffer_free(buffer));
        OK(rb_rin_free(counted.in));
        OK(rb_conn_free(conn));
    }
    return NULL;
}

static rb_buffer *contested;

// Every call works until one thread has freed the handle, and fails afterwards.
static void *use_and_free(void *unused) {
    (void)unused;
    bool freed = false;
    for (int i = 0; i < 2000; i++) {
        uint32_t bid;
        rb_status status = rb_buffer_bid(contested, &bid);
        CHECK(status == (freed ? RB_ERR_FREED : status));
        CHECK(status == RB_OK || status == RB_ERR_FREED);
        freed = status == RB_ERR_FREED;
        if (i == 1000) {
            status = rb_buffer_free(contested);
            CHECK(status == RB_OK || status == RB_ERR_FREED);
            freed = true;
        }
    }
    return NULL;
}

static void run(void *(*body)(void *)) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, body, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(void) {
    rb_listener *listener;
    OK(rb_context_new(NULL, &context));
    OK(rb_rout_new(context, &out));
    OK(rb_listener_bind(context, "127.0.0.1:0", &listener));
    OK(rb_listener_local_addr(listener, address, sizeof address, NULL));
    LEAVE(address);
    OK(rb_listener_set_conn_cb(listener, on_conn, address));
    run(publish_and_receive);
    for (int i = 0; i < 20; i++) {
        OK(rb_rout_create_buffer(out, 1, 1 << 16, &contested));
        run(use_and_free);
        OK(rb_rout_destroy_buffer(out, 1, NULL));
    }
    OK(rb_listener_unset_conn_cb(listener));
    OK(rb_listener_free(listener));
    OK(rb_rout_free(out));
    OK(rb_context_shutdown(context, 0));
    OK(rb_context_free(context));
    puts("threads: ok");
    return 0;
}
