// hiredis: a pipeline of PUBLISH commands, and a subscription.

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "end.h"

// A pipeline is sent when it has this many commands,
#define COMMANDS 128
// or this many bytes.
#define BYTES (64 * 1024)

struct connection {
    redisContext *context;
    const char *topic;
    size_t commands, bytes;
    redisReply *reply;
};

static void *open_connection(const char *host, uint16_t port, const char *topic) {
    struct connection *connection = calloc(1, sizeof *connection);
    connection->context = redisConnect(host, port);
    connection->topic = strdup(topic);
    if (connection->context == NULL || connection->context->err) {
        fprintf(stderr, "cannot connect to redis\n");
        return NULL;
    }
    return connection;
}

static int next_reply(struct connection *connection) {
    if (connection->reply != NULL) freeReplyObject(connection->reply);
    connection->reply = NULL;
    void *reply;
    if (redisGetReply(connection->context, &reply) != REDIS_OK) {
        fprintf(stderr, "redis: %s\n", connection->context->errstr);
        return 1;
    }
    connection->reply = reply;
    if (connection->reply->type != REDIS_REPLY_ERROR) return 0;
    fprintf(stderr, "redis: %s\n", connection->reply->str);
    return 1;
}

static void *connect_publisher(const char *host, uint16_t port, const char *topic, uint32_t subscribers, int at_once) {
    (void)at_once;
    (void)subscribers;
    return open_connection(host, port, topic);
}

// Sends the pipeline and waits for its replies.
static int flush(void *publisher) {
    struct connection *to = publisher;
    for (; to->commands > 0; to->commands--) {
        if (next_reply(to) != 0) return 1;
    }
    to->bytes = 0;
    return 0;
}

static int publish(void *publisher, const void *message, size_t len) {
    struct connection *to = publisher;
    const char *words[] = {"PUBLISH", to->topic, message};
    const size_t lengths[] = {7, strlen(to->topic), len};
    if (redisAppendCommandArgv(to->context, 3, words, lengths) != REDIS_OK) return 1;
    to->commands++;
    to->bytes += len;
    return to->commands == COMMANDS || to->bytes >= BYTES ? flush(to) : 0;
}

static void *connect_subscriber(const char *host, uint16_t port, const char *topic) {
    struct connection *from = open_connection(host, port, topic);
    if (from == NULL || redisAppendCommand(from->context, "SUBSCRIBE %s", topic) != REDIS_OK) return NULL;
    return next_reply(from) == 0 ? from : NULL;
}

static const void *receive(void *subscriber, size_t *len) {
    struct connection *from = subscriber;
    if (next_reply(from) != 0 || from->reply->elements != 3) return NULL;
    *len = from->reply->element[2]->len;
    return from->reply->element[2]->str;
}

#define TEXT(number) #number
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)
static const char *version(void) { return VERSION(HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH); }

const struct end_library end_hiredis = {version, connect_publisher, publish, flush, connect_subscriber, receive};
