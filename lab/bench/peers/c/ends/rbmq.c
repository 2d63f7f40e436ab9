// RBMQ's C client with its default settings: one rbmq_topic_publish per message, one rbmq_subscriber_recv per message received.

#include <rocketbufs.h>
#include <stdio.h>
#include <stdlib.h>

#include "end.h"

// How long everybody waits for everybody at the start.
#define SET_UP_WITHIN (15 * RB_S)

static void *failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, rb_last_error());
    return NULL;
}

static void *connect_publisher(const char *host, uint16_t port, const char *topic, uint32_t subscribers, int at_once) {
    (void)at_once;
    char address[300];
    rbmq_publisher *publisher;
    rbmq_topic *writer;
    snprintf(address, sizeof address, "%s:%u", host, port);
    if (rbmq_publisher_connect(address, NULL, &publisher) != RB_OK) return failed("connect");
    if (rbmq_publisher_topic(publisher, topic, NULL, &writer) != RB_OK) return failed("topic");
    if (rbmq_topic_wait_subscribers(writer, subscribers, SET_UP_WITHIN) != RB_OK) return failed("wait_subscribers");
    return writer;
}

static int publish(void *writer, const void *message, size_t len) {
    rb_status status = rbmq_topic_publish(writer, message, len, RB_NO_LIMIT, NULL);
    if (status != RB_OK) failed("publish");
    return status;
}

static int flush(void *writer) {
    (void)writer;
    return 0;
}

static void *connect_subscriber(const char *host, uint16_t port, const char *topic) {
    char address[300];
    rbmq_subscriber *subscriber;
    snprintf(address, sizeof address, "%s:%u", host, port);
    if (rbmq_subscriber_connect(address, NULL, &subscriber) != RB_OK) return failed("connect");
    if (rbmq_subscriber_subscribe(subscriber, topic, NULL) != RB_OK) return failed("subscribe");
    return subscriber;
}

static const void *receive(void *subscriber, size_t *len) {
    rbmq_message message;
    if (rbmq_subscriber_recv(subscriber, &message, RB_NO_LIMIT) != RB_OK) return failed("recv");
    *len = message.len;
    return message.data;
}

const struct end_library end_rbmq = {rb_version, connect_publisher, publish, flush, connect_subscriber, receive};
