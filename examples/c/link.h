// Shared by the publishers of the framework's examples: a buffer that a broker has subscribed to.
#ifndef LINK_H
#define LINK_H

#include "check.h"
#include <string.h>

struct link {
    rb_context *context;
    rb_rout *out;
    rb_buffer *buffer;
    rb_conn *conn;
};

// Connects to a broker, names a topic, and waits until the broker has subscribed.
static inline struct link link_open(uint32_t bid, const char *topic, const char *broker) {
    struct link link;
    check(rb_context_load(NULL, &link.context), "the context");
    check(rb_rout_new(link.context, &link.out), "the rOut");
    check(rb_rout_create_buffer(link.out, bid, 1 << 20, &link.buffer), "the buffer");
    check(rb_conn_connect(link.context, broker, "publisher", 9, &link.conn), "the connection");
    check(rb_rout_add_conn(link.out, link.conn), "the connection");

    // The id, little endian, and the name.
    unsigned char message[4 + 256];
    size_t name = strlen(topic);
    if (name > 256) name = 256;
    for (int i = 0; i < 4; i++) message[i] = (unsigned char)(bid >> 8 * i);
    memcpy(message + 4, topic, name);
    check(rb_conn_send_control(link.conn, message, 4 + name), "the topic");

    rb_out_event event;
    do {
        check(rb_rout_recv_event(link.out, &event, 5 * RB_S), "the broker's answer");
        if (event.kind == RB_OUT_CONN_DOWN) {
            fprintf(stderr, "the broker: %s\n", event.down.text);
            exit(1);
        }
    } while (event.kind != RB_OUT_SUBSCRIBED);
    return link;
}

// Ends the buffer, and waits until the broker has all of it.
static inline void link_close(struct link *link) {
    check(rb_buffer_destroy(link->buffer, NULL), "the end");
    check(rb_buffer_drain(link->buffer, 10 * RB_S), "the end");
    rb_buffer_free(link->buffer);
    rb_conn_free(link->conn);
    rb_rout_free(link->out);
    rb_context_free(link->context);
}

#endif
