// RocketBufs in a loop of libuv: the loop polls a descriptor of the library (rb_rin_fd, rbmq_subscriber_fd, cmq_fd, ...), and calls a
// function on the loop's thread when it is readable. The function receives with the time-out RB_NO_WAIT until RB_TIMED_OUT.
//
//     rb_uv *adapter = rb_uv_attach(uv_default_loop(), rbmq_subscriber_fd(subscriber), on_readable, subscriber);
//     ...
//     rb_uv_detach(adapter);
//     rbmq_subscriber_free(subscriber);

#ifndef ROCKETBUFS_ADAPTERS_LIBUV_H
#define ROCKETBUFS_ADAPTERS_LIBUV_H

#include <stdlib.h>
#include <uv.h>

// A descriptor in a loop.
typedef struct rb_uv {
    uv_poll_t poll;
    void (*ready)(void *ctx);
    void *ctx;
} rb_uv;

static inline void rb_uv_readable(uv_poll_t *poll, int status, int events) {
    rb_uv *adapter = (rb_uv *)poll->data;
    (void)status, (void)events;
    adapter->ready(adapter->ctx);
}

static inline void rb_uv_closed(uv_handle_t *poll) { free(poll->data); }

// Calls ready(ctx) on the loop's thread while `fd` is readable. NULL if `fd` is the status of an error, or libuv refuses it. On the
// loop's thread.
static inline rb_uv *rb_uv_attach(uv_loop_t *loop, int fd, void (*ready)(void *ctx), void *ctx) {
    rb_uv *adapter = fd < 0 ? NULL : (rb_uv *)calloc(1, sizeof *adapter);
    if (!adapter) return NULL;
    adapter->ready = ready;
    adapter->ctx = ctx;
    if (uv_poll_init(loop, &adapter->poll, fd) != 0) {
        free(adapter);
        return NULL;
    }
    adapter->poll.data = adapter;
    if (uv_poll_start(&adapter->poll, UV_READABLE, rb_uv_readable) != 0) {
        uv_close((uv_handle_t *)&adapter->poll, rb_uv_closed);
        return NULL;
    }
    return adapter;
}

// Ends the calls, and frees the adapter in the loop's next turn. Before the object of the descriptor is freed; also inside `ready`. NULL
// does nothing. On the loop's thread.
static inline void rb_uv_detach(rb_uv *adapter) {
    if (adapter) uv_close((uv_handle_t *)&adapter->poll, rb_uv_closed);
}

#endif
