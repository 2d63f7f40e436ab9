// librabbitmq (AMQP 0-9-1): a fanout exchange, and one exclusive queue in memory for each subscriber, consumed without
// acknowledgements. Publishers ask for no confirms. The other systems offer the same: at most once.

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "end.h"

struct channel {
    amqp_connection_state_t connection;
    amqp_bytes_t exchange;
    amqp_envelope_t envelope;
    bool has_envelope;
};

static bool is_good(amqp_connection_state_t connection, const char *what) {
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(connection);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) return true;
    fprintf(stderr, "rabbitmq: %s: %s\n", what, amqp_error_string2(reply.library_error));
    return false;
}

// A connection and a channel; the exchange is there afterwards.
static struct channel *open_channel(const char *host, uint16_t port, const char *topic) {
    struct channel *channel = calloc(1, sizeof *channel);
    char exchange[300];
    // The harness has an exchange of its own, of another type, called `bench`.
    snprintf(exchange, sizeof exchange, "libraries-%s", topic);
    channel->exchange = amqp_bytes_malloc_dup(amqp_cstring_bytes(exchange));
    channel->connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(channel->connection);
    if (socket == NULL || amqp_socket_open(socket, host, port) != AMQP_STATUS_OK) {
        fprintf(stderr, "rabbitmq: cannot connect\n");
        return NULL;
    }
    amqp_rpc_reply_t login =
        amqp_login(channel->connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest");
    if (login.reply_type != AMQP_RESPONSE_NORMAL) {
        fprintf(stderr, "rabbitmq: login refused\n");
        return NULL;
    }
    amqp_channel_open(channel->connection, 1);
    if (!is_good(channel->connection, "channel")) return NULL;
    amqp_exchange_declare(channel->connection, 1, channel->exchange, amqp_cstring_bytes("fanout"), 0, 0, 0, 0,
                          amqp_empty_table);
    return is_good(channel->connection, "exchange") ? channel : NULL;
}

static void *connect_publisher(const char *host, uint16_t port, const char *topic, uint32_t subscribers, int at_once) {
    (void)at_once;
    (void)subscribers;
    return open_channel(host, port, topic);
}

static int publish(void *publisher, const void *message, size_t len) {
    struct channel *to = publisher;
    amqp_bytes_t body = {.len = len, .bytes = (void *)message};
    int status = amqp_basic_publish(to->connection, 1, to->exchange, amqp_empty_bytes, 0, 0, NULL, body);
    if (status != AMQP_STATUS_OK) fprintf(stderr, "rabbitmq: publish: %s\n", amqp_error_string2(status));
    return status;
}

static int flush(void *publisher) {
    (void)publisher;
    return 0;
}

static void *connect_subscriber(const char *host, uint16_t port, const char *topic) {
    struct channel *from = open_channel(host, port, topic);
    if (from == NULL) return NULL;
    amqp_queue_declare_ok_t *queue =
        amqp_queue_declare(from->connection, 1, amqp_empty_bytes, 0, 0, 1, 1, amqp_empty_table);
    if (queue == NULL || !is_good(from->connection, "queue")) return NULL;
    amqp_bytes_t name = amqp_bytes_malloc_dup(queue->queue);
    amqp_queue_bind(from->connection, 1, name, from->exchange, amqp_empty_bytes, amqp_empty_table);
    if (!is_good(from->connection, "bind")) return NULL;
    amqp_basic_consume(from->connection, 1, name, amqp_empty_bytes, 0, 1, 0, amqp_empty_table);
    return is_good(from->connection, "consume") ? from : NULL;
}

static const void *receive(void *subscriber, size_t *len) {
    struct channel *from = subscriber;
    if (from->has_envelope) amqp_destroy_envelope(&from->envelope);
    from->has_envelope = false;
    amqp_maybe_release_buffers(from->connection);
    amqp_rpc_reply_t reply = amqp_consume_message(from->connection, &from->envelope, NULL, 0);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) {
        fprintf(stderr, "rabbitmq: receive: %s\n", amqp_error_string2(reply.library_error));
        return NULL;
    }
    from->has_envelope = true;
    *len = from->envelope.message.body.len;
    return from->envelope.message.body.bytes;
}

const struct end_library end_rabbitmq = {amqp_version, connect_publisher, publish, flush, connect_subscriber, receive};
