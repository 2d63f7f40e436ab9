// nats.c: publish without acknowledgements (core NATS), and a synchronous subscription.
//
// A thread of the library sends what was published, after a pause in which more may come. For round trips the library sends at
// once (`natsOptions_SetSendAsap`). It keeps up to 65,536 messages for a subscription, its default; each later message
// is dropped.

#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "end.h"

struct client {
    natsConnection *connection;
    natsSubscription *subscription;
    natsMsg *message;
    const char *topic;
};

static int failed(const char *what, natsStatus status) {
    fprintf(stderr, "nats: %s: %s\n", what, natsStatus_GetText(status));
    return 1;
}

static struct client *open_client(const char *host, uint16_t port, const char *topic, int at_once) {
    struct client *client = calloc(1, sizeof *client);
    char url[300];
    snprintf(url, sizeof url, "nats://%s:%u", host, port);
    client->topic = strdup(topic);
    natsOptions *options = NULL;
    natsStatus status = natsOptions_Create(&options);
    if (status == NATS_OK) status = natsOptions_SetURL(options, url);
    if (status == NATS_OK) status = natsOptions_SetSendAsap(options, at_once != 0);
    if (status == NATS_OK) status = natsConnection_Connect(&client->connection, options);
    return status == NATS_OK ? client : (failed("connect", status), NULL);
}

static void *connect_publisher(const char *host, uint16_t port, const char *topic, uint32_t subscribers, int at_once) {
    (void)subscribers;
    return open_client(host, port, topic, at_once);
}

static int publish(void *publisher, const void *message, size_t len) {
    struct client *to = publisher;
    natsStatus status = natsConnection_Publish(to->connection, to->topic, message, (int)len);
    return status == NATS_OK ? 0 : failed("publish", status);
}

// A thread of the library sends.
static int flush(void *publisher) {
    (void)publisher;
    return 0;
}

static void *connect_subscriber(const char *host, uint16_t port, const char *topic) {
    struct client *from = open_client(host, port, topic, 0);
    if (from == NULL) return NULL;
    natsStatus status = natsConnection_SubscribeSync(&from->subscription, from->connection, topic);
    // A round trip: the subscription is in force afterwards.
    if (status == NATS_OK) status = natsConnection_Flush(from->connection);
    return status == NATS_OK ? from : (failed("subscribe", status), NULL);
}

static const void *receive(void *subscriber, size_t *len) {
    struct client *from = subscriber;
    natsMsg_Destroy(from->message);
    from->message = NULL;
    natsStatus status = natsSubscription_NextMsg(&from->message, from->subscription, 3600 * 1000);
    if (status != NATS_OK) return failed("receive", status), NULL;
    *len = (size_t)natsMsg_GetDataLength(from->message);
    return natsMsg_GetData(from->message);
}

const struct end_library end_nats = {nats_GetVersion, connect_publisher, publish, flush, connect_subscriber, receive};
