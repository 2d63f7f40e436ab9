// RocketBufs in a loop of libev: as libuv.h in this folder, with rb_ev_attach and rb_ev_detach.

#ifndef ROCKETBUFS_ADAPTERS_LIBEV_H
#define ROCKETBUFS_ADAPTERS_LIBEV_H

#include <ev.h>
#include <stdlib.h>

// A descriptor in a loop.
typedef struct rb_ev {
    ev_io io;
    struct ev_loop *loop;
    void (*ready)(void *ctx);
    void *ctx;
} rb_ev;

static inline void rb_ev_readable(struct ev_loop *loop, ev_io *io, int events) {
    rb_ev *adapter = (rb_ev *)io->data;
    (void)loop, (void)events;
    adapter->ready(adapter->ctx);
}

// Calls ready(ctx) on the loop's thread while `fd` is readable. NULL if `fd` is the status of an error. On the loop's thread.
static inline rb_ev *rb_ev_attach(struct ev_loop *loop, int fd, void (*ready)(void *ctx), void *ctx) {
    rb_ev *adapter = fd < 0 ? NULL : (rb_ev *)calloc(1, sizeof *adapter);
    if (!adapter) return NULL;
    adapter->loop = loop;
    adapter->ready = ready;
    adapter->ctx = ctx;
    // Done in place of ev_io_init, whose macro breaks the rules of aliasing.
    adapter->io.data = adapter;
    adapter->io.cb = rb_ev_readable;
    adapter->io.fd = fd;
    adapter->io.events = EV_READ | EV__IOFDSET;
    ev_io_start(loop, &adapter->io);
    return adapter;
}

// Ends the calls, and frees the adapter. Before the object of the descriptor is freed; also inside `ready`. NULL does nothing. On the
// loop's thread.
static inline void rb_ev_detach(rb_ev *adapter) {
    if (!adapter) return;
    ev_io_stop(adapter->loop, &adapter->io);
    free(adapter);
}

#endif
