// A loop of libuv that owns the waiting: RocketBufs' descriptors are polled by it, and everything happens on its thread.
// The argument is the address of an RBMQ broker.

#include "check.h"
#include <pthread.h>
#include <unistd.h>
#include <uv.h>

#define MESSAGES 1000

static pthread_t loop_thread;
static uv_poll_t from_rin, from_subscriber, from_queue;
static rb_rin *in;
static rbmq_subscriber *subscriber;
static cmq_queue *queue;
static int rin_messages, topic_messages, queue_messages;

static void on_rin(uv_poll_t *handle, int status, int events) {
    CHECK(status == 0 && (events & UV_READABLE) && pthread_equal(pthread_self(), loop_thread));
    rb_in_event event;
    while (rb_rin_recv(in, &event, RB_NO_WAIT) == RB_OK) {
        if (event.kind == RB_IN_DATA) {
            rin_messages += (int)event.data.len;
            OK(rb_view_consume(event.data.view));
        }
        if (event.kind == RB_IN_CLOSED) uv_close((uv_handle_t *)handle, NULL);
    }
}

static void on_subscriber(uv_poll_t *handle, int status, int events) {
    CHECK(status == 0 && (events & UV_READABLE) && pthread_equal(pthread_self(), loop_thread));
    rbmq_message message;
    rb_status received;
    while ((received = rbmq_subscriber_recv(subscriber, &message, RB_NO_WAIT)) == RB_OK) topic_messages++;
    if (received == RB_END) uv_close((uv_handle_t *)handle, NULL);
}

static void on_queue(uv_poll_t *handle, int status, int events) {
    CHECK(status == 0 && (events & UV_READABLE) && pthread_equal(pthread_self(), loop_thread));
    cmq_message message;
    while (cmq_cw_pop(queue, &message) == RB_OK) {
        queue_messages++;
        OK(cmq_message_free(&message));
    }
    if (queue_messages == MESSAGES) uv_close((uv_handle_t *)handle, NULL);
}

static void poll_fd(uv_poll_t *handle, int fd, uv_poll_cb callback) {
    CHECK(fd >= 0 && uv_poll_init(uv_default_loop(), handle, fd) == 0);
    CHECK(uv_poll_start(handle, UV_READABLE, callback) == 0);
}

// The other ends, on a thread of their own.
struct sender {
    rb_buffer *buffer;
    rbmq_topic *topic;
    cmq_queue *queue;
    cmq_key to;
};

static void *send_all(void *ctx) {
    struct sender *sender = ctx;
    rb_writer *writer;
    OK(rb_buffer_writer(sender->buffer, &writer));
    for (int i = 0; i < MESSAGES; i++) {
        OK(rb_writer_append(writer, "x", 1, WAIT, NULL));
        OK(rbmq_topic_publish(sender->topic, "record", 6, WAIT, NULL));
        OK(cmq_cw_push(sender->queue, &sender->to, "message", 7));
        if (i % 100 == 0) usleep(1000);
    }
    OK(cmq_flush(sender->queue));
    OK(rb_writer_free(writer));
    OK(rb_buffer_destroy(sender->buffer, NULL));
    OK(rbmq_topic_close(sender->topic, WAIT));
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    loop_thread = pthread_self();
    rb_context *context;
    rb_listener *listener;
    rb_rout *out;
    rb_conn *conn, *accepted;
    char address[64], topic[64];
    struct sender sender;
    OK(rb_context_new(NULL, &context));
    OK(rb_rout_new(context, &out));
    OK(rb_rout_create_buffer(out, 7, 1 << 16, &sender.buffer));
    OK(rb_listener_bind(context, "127.0.0.1:0", &listener));
    OK(rb_listener_local_addr(listener, address, sizeof address, NULL));
    OK(rb_conn_connect_start(context, address, NULL, 0, &conn));
    OK(rb_listener_accept(listener, &accepted, WAIT));
    OK(rb_rout_add_conn(out, accepted));
    OK(rb_rin_new(conn, &in));
    rb_subscribe_options oldest = {.size = sizeof oldest, .start = RB_START_OLDEST};
    OK(rb_rin_subscribe_with(in, 7, &oldest, NULL));

    rbmq_publisher *publisher;
    rbmq_subscriber_options options = {.size = sizeof options, .until_ended = true};
    snprintf(topic, sizeof topic, "uv/%d", getpid());
    OK(rbmq_publisher_connect(argv[1], NULL, &publisher));
    OK(rbmq_publisher_topic(publisher, topic, NULL, &sender.topic));
    OK(rbmq_subscriber_connect(argv[1], &options, &subscriber));
    OK(rbmq_subscriber_subscribe(subscriber, topic, NULL));
    OK(rbmq_topic_wait_subscribers(sender.topic, 1, WAIT));
    OK(cmq_new_rq("127.0.0.1:0", NULL, &queue));
    OK(cmq_new_rq("127.0.0.1:0", NULL, &sender.queue));
    OK(cmq_local_addr(queue, &sender.to));

    poll_fd(&from_rin, rb_rin_fd(in), on_rin);
    poll_fd(&from_subscriber, rbmq_subscriber_fd(subscriber), on_subscriber);
    poll_fd(&from_queue, cmq_fd(queue), on_queue);
    pthread_t thread;
    pthread_create(&thread, NULL, send_all, &sender);
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    pthread_join(thread, NULL);
    CHECK(rin_messages == MESSAGES && topic_messages == MESSAGES && queue_messages == MESSAGES);

    OK(rbmq_subscriber_free(subscriber));
    OK(rbmq_publisher_free(publisher));
    OK(cmq_free(queue));
    OK(cmq_free(sender.queue));
    OK(rb_rin_free(in));
    OK(rb_conn_free(conn));
    OK(rb_conn_free(accepted));
    OK(rb_buffer_free(sender.buffer));
    OK(rb_rout_free(out));
    OK(rb_listener_free(listener));
    OK(rb_context_free(context));
    puts("libuv: ok");
    return 0;
}
