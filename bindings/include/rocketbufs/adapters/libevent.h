// RocketBufs in a loop of libevent: as libuv.h in this folder, with rb_event_attach and rb_event_detach.

#ifndef ROCKETBUFS_ADAPTERS_LIBEVENT_H
#define ROCKETBUFS_ADAPTERS_LIBEVENT_H

#include <event2/event.h>
#include <stdlib.h>

// A descriptor in a loop.
typedef struct rb_event {
    struct event *event;
    void (*ready)(void *ctx);
    void *ctx;
} rb_event;

static inline void rb_event_readable(evutil_socket_t fd, short events, void *arg) {
    rb_event *adapter = (rb_event *)arg;
    (void)fd, (void)events;
    adapter->ready(adapter->ctx);
}

// Calls ready(ctx) on the loop's thread while `fd` is readable. NULL if `fd` is the status of an error, or libevent refuses it. On the
// loop's thread.
static inline rb_event *rb_event_attach(struct event_base *base, int fd, void (*ready)(void *ctx), void *ctx) {
    rb_event *adapter = fd < 0 ? NULL : (rb_event *)calloc(1, sizeof *adapter);
    if (!adapter) return NULL;
    adapter->ready = ready;
    adapter->ctx = ctx;
    adapter->event = event_new(base, fd, EV_READ | EV_PERSIST, rb_event_readable, adapter);
    if (!adapter->event || event_add(adapter->event, NULL) != 0) {
        if (adapter->event) event_free(adapter->event);
        free(adapter);
        return NULL;
    }
    return adapter;
}

// Ends the calls, and frees the adapter. Before the object of the descriptor is freed; also inside `ready`. NULL does nothing. On the
// loop's thread.
static inline void rb_event_detach(rb_event *adapter) {
    if (!adapter) return;
    event_free(adapter->event);
    free(adapter);
}

#endif
