// A publish/subscribe broker, as in Listing 3 of paper 1.
//
// ./broker [ADDRESS]; then ./subscribe 7 and ./publish 7 TOPIC in other terminals.

#include "check.h"
#include <string.h>
#include <unistd.h>

static rb_rout *out; // Dissemination object

// A publisher's topic: the id of its buffer and its name.
static void on_control(void *ctx, rb_rin *in, const void *message, size_t len) {
    const unsigned char *bytes = message;
    (void)ctx;
    if (len <= 4) return;
    uint32_t bid = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    // Subscribes to the publisher, and delivers to subscribers.
    if (rb_rout_splice_with(out, in, bid, bid, NULL, NULL) != RB_OK) {
        rb_conn *conn;
        fprintf(stderr, "topic %.*s: %s\n", (int)(len - 4), (const char *)bytes + 4, rb_last_error());
        check(rb_rin_conn(in, &conn), "the connection");
        rb_conn_close(conn, rb_last_error());
        rb_conn_free(conn);
    }
}

static void on_conn(void *ctx, rb_conn *conn) {
    char hello[16];
    rb_rin *in;
    (void)ctx;
    rb_conn_peer_hello(conn, hello, sizeof hello, NULL);
    if (!strcmp(hello, "publisher")) {
        // The connection keeps the rIn's callback, which needs no handle of it.
        check(rb_rin_new(conn, &in), "the rIn");
        check(rb_rin_set_control_msg_cb(in, on_control, NULL), "the callback");
        rb_rin_free(in);
    } else if (!strcmp(hello, "subscriber")) {
        check(rb_rout_add_conn(out, conn), "the subscriber");
    } else {
        rb_conn_reject(conn, "say 'publisher' or 'subscriber'");
    }
    rb_conn_free(conn);
}

int main(int argc, char **argv) {
    char address[64];
    rb_context *context;
    rb_listener *listener;
    check(rb_context_load(NULL, &context), "the context");
    check(rb_rout_new(context, &out), "the rOut");
    check(rb_listener_bind(context, argc > 1 ? argv[1] : "127.0.0.1:7400", &listener), "the listener");
    check(rb_listener_set_conn_cb(listener, on_conn, NULL), "the callback");
    check(rb_listener_local_addr(listener, address, sizeof address, NULL), "the address");
    printf("a broker on %s; Ctrl-C ends it\n", address);
    fflush(stdout);
    for (;;) pause();
}
