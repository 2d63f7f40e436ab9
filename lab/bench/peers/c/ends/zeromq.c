// libzmq: publishers and subscribers, and a proxy between them, which is ZeroMQ's broker. Publishers connect to the proxy's port,
// subscribers to the next one.
//
// A socket drops what a slow peer does not take beyond 1,000 messages, its default. Here sockets keep everything
// (`ZMQ_SNDHWM` and `ZMQ_RCVHWM` are 0), and the bench holds the publisher back.

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "end.h"

// How often a subscriber asks whether the proxy has its subscription, in milliseconds.
#define ASK_EVERY_MS 10

struct socket {
    void *context, *socket;
    const char *topic;
    zmq_msg_t message;
};

static struct socket *open_socket(void *context, int type, const char *host, unsigned port, const char *topic) {
    struct socket *opened = calloc(1, sizeof *opened);
    char address[300];
    int none = 0;
    snprintf(address, sizeof address, "tcp://%s:%u", host, port);
    opened->topic = strdup(topic);
    opened->context = context;
    opened->socket = zmq_socket(context, type);
    zmq_msg_init(&opened->message);
    zmq_setsockopt(opened->socket, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(opened->socket, ZMQ_RCVHWM, &none, sizeof none);
    if (zmq_connect(opened->socket, address) == 0) return opened;
    fprintf(stderr, "zeromq: cannot connect: %s\n", zmq_strerror(zmq_errno()));
    return NULL;
}

static int publish(void *publisher, const void *message, size_t len) {
    struct socket *to = publisher;
    bool is_sent = zmq_send(to->socket, to->topic, strlen(to->topic), ZMQ_SNDMORE) >= 0 &&
                   zmq_send(to->socket, message, len, 0) >= 0;
    if (!is_sent) fprintf(stderr, "zeromq: publish: %s\n", zmq_strerror(zmq_errno()));
    return is_sent ? 0 : 1;
}

// A publisher that receives subscriptions: the proxy passes the first one of a topic on.
static void *connect_publisher(const char *host, uint16_t port, const char *topic, uint32_t subscribers, int at_once) {
    (void)at_once;
    struct socket *to = open_socket(zmq_ctx_new(), ZMQ_XPUB, host, port, topic);
    if (to == NULL || subscribers == 0) return to;
    char subscription[300];
    for (;;) {
        int len = zmq_recv(to->socket, subscription, sizeof subscription, 0);
        if (len < 1) return NULL;
        if ((size_t)len == strlen(topic) + 1 && memcmp(subscription + 1, topic, (size_t)len - 1) == 0) return to;
    }
}

static int flush(void *publisher) {
    (void)publisher;
    return 0;
}

// The proxy handles a socket's subscriptions in order: once a message of the second one has come, the first one is in force.
static void *connect_subscriber(const char *host, uint16_t port, const char *topic) {
    void *context = zmq_ctx_new();
    char probe[64];
    snprintf(probe, sizeof probe, "probe-%d-%s", (int)getpid(), topic);
    struct socket *from = open_socket(context, ZMQ_SUB, host, port + 1u, topic);
    struct socket *prober = open_socket(context, ZMQ_PUB, host, port, probe);
    if (from == NULL || prober == NULL) return NULL;
    zmq_setsockopt(from->socket, ZMQ_SUBSCRIBE, topic, strlen(topic));
    zmq_setsockopt(from->socket, ZMQ_SUBSCRIBE, probe, strlen(probe));
    zmq_pollitem_t readable = {.socket = from->socket, .events = ZMQ_POLLIN};
    do {
        if (publish(prober, "", 0) != 0) return NULL;
    } while (zmq_poll(&readable, 1, ASK_EVERY_MS) == 0);
    zmq_setsockopt(from->socket, ZMQ_UNSUBSCRIBE, probe, strlen(probe));
    zmq_close(prober->socket);
    return from;
}

static const void *receive(void *subscriber, size_t *len) {
    struct socket *from = subscriber;
    char topic[300];
    int topic_len;
    do {
        topic_len = zmq_recv(from->socket, topic, sizeof topic, 0);
        zmq_msg_close(&from->message);
        zmq_msg_init(&from->message);
        if (topic_len < 0 || zmq_msg_recv(&from->message, from->socket, 0) < 0) {
            fprintf(stderr, "zeromq: receive: %s\n", zmq_strerror(zmq_errno()));
            return NULL;
        }
        // The rest of the probes is skipped.
    } while ((size_t)topic_len != strlen(from->topic) || memcmp(topic, from->topic, (size_t)topic_len) != 0);
    *len = zmq_msg_size(&from->message);
    return zmq_msg_data(&from->message);
}

static const char *version(void) {
    static char text[32];
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    snprintf(text, sizeof text, "%d.%d.%d", major, minor, patch);
    return text;
}

// Binds a socket that keeps everything.
static void *bind_socket(void *context, int type, unsigned port) {
    char address[64];
    int none = 0;
    void *socket = zmq_socket(context, type);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &none, sizeof none);
    snprintf(address, sizeof address, "tcp://127.0.0.1:%u", port);
    if (zmq_bind(socket, address) == 0) return socket;
    zmq_close(socket);
    return NULL;
}

// Runs a proxy until the process ends. `ready` gets the port for publishers.
void zeromq_proxy(void (*ready)(uint16_t port)) {
    void *context = zmq_ctx_new();
    for (unsigned port = 20000 + (unsigned)getpid() % 20000; port < 60000; port += 2) {
        void *publishers = bind_socket(context, ZMQ_XSUB, port);
        void *subscribers = publishers == NULL ? NULL : bind_socket(context, ZMQ_XPUB, port + 1);
        if (subscribers != NULL) {
            ready((uint16_t)port);
            zmq_proxy(publishers, subscribers, NULL);
        }
        if (publishers != NULL) zmq_close(publishers);
    }
}

const struct end_library end_zeromq = {version, connect_publisher, publish, flush, connect_subscriber, receive};
