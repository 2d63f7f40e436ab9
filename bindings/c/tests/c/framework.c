// The framework in C: both ends in one process, over loopback, by calls and by callbacks.

#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

static rb_context *context;
static rb_listener *listener;
static rb_rout *out;
static char address[64];

static void on_conn(void *ctx, rb_conn *conn) {
    ENTER(&out);
    char hello[16];
    size_t len;
    OK(rb_conn_peer_hello(conn, hello, sizeof hello, &len));
    CHECK(len == 10 && !strcmp(hello, "subscriber"));
    OK(rb_rout_add_conn(ctx, conn));
    OK(rb_conn_free(conn));
}

static rb_rin *connect_rin(void) {
    rb_conn *conn;
    rb_rin *in;
    OK(rb_conn_connect(context, address, "subscriber", 10, &conn));
    CHECK(rb_conn_is_up(conn) == 1);
    OK(rb_rin_new(conn, &in));
    OK(rb_conn_free(conn));
    return in;
}

static void wait_subscribed(rb_rin *in, uint32_t bid) {
    rb_in_event event;
    OK(rb_rin_recv(in, &event, WAIT));
    CHECK(event.kind == RB_IN_SUBSCRIBED && event.bid == bid);
}

// Segment, deliver, view, consume; the descriptors; what is confirmed.
static void by_calls(void) {
    rb_buffer *buffer;
    rb_subscription *subscription;
    OK(rb_rout_create_buffer(out, 7, 1 << 16, &buffer));
    rb_rin *in = connect_rin();
    OK(rb_rin_subscribe(in, 7, 1 << 16, &subscription));
    wait_subscribed(in, 7);

    rb_buf_seg seg;
    uint64_t end;
    OK(rb_buffer_segment(buffer, 100, RB_NO_WAIT, &seg));
    CHECK(seg.vec_count == 1 && seg.len == 100 && seg.vecs[0].iov_len == 100 && seg.bid == 7);
    memcpy(seg.vecs[0].iov_base, "hello", 5);
    OK(rb_buffer_deliver(buffer, &seg, 5, NULL, &end));
    CHECK(end == 5 && seg.segment == NULL);

    struct pollfd readable = {.fd = rb_rin_fd(in), .events = POLLIN};
    CHECK(readable.fd >= 0 && poll(&readable, 1, 60000) == 1);
    rb_in_event event;
    OK(rb_rin_recv(in, &event, RB_NO_WAIT));
    CHECK(event.kind == RB_IN_DATA && event.data.len == 5 && !memcmp(event.data.data, "hello", 5));
    char copy[5];
    OK(rb_view_copy(event.data.view, 1, copy, 4));
    CHECK(!memcmp(copy, "ello", 4));
    OK(rb_view_consume(event.data.view));
    CHECK(rb_rin_recv(in, &event, RB_NO_WAIT) == RB_TIMED_OUT);
    OK(rb_buffer_wait(buffer, RB_LEVEL_CONSUMED, end, WAIT));
    rb_confirmed_positions confirmed;
    OK(rb_buffer_confirmed(buffer, &confirmed));
    CHECK(confirmed.consumed == 5 && confirmed.subscriptions == 1);

    rb_subscriber_info infos[2];
    size_t count;
    OK(rb_buffer_subscribers(buffer, infos, 2, &count));
    CHECK(count == 1 && infos[0].consumed == 5 && !infos[0].offline);
    OK(rb_buffer_subscriber_count(buffer, &count));
    CHECK(count == 1);
    rb_config *config;
    OK(rb_context_config(context, &config));
    OK(rb_config_to_toml(config, NULL, 0, &count));
    CHECK(count > 100);
    OK(rb_config_free(config));

    OK(rb_buffer_destroy(buffer, &end));
    OK(rb_subscription_recv(subscription, &event, WAIT));
    CHECK(event.kind == RB_IN_CLOSED && event.to == 5);
    OK(rb_subscription_free(subscription));
    OK(rb_rin_free(in));
    OK(rb_buffer_free(buffer));
}

struct received {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    rb_rin *in;
    size_t bytes;
    uint64_t sum;
    int delivered;
};

static void on_data(void *ctx, uint32_t bid, const rb_buf_seg *seg) {
    struct received *received = ctx;
    ENTER(received);
    unsigned char *bytes = malloc(seg->len);
    OK(rb_buf_seg_copy(seg, 0, bytes, seg->len));
    pthread_mutex_lock(&received->lock);
    for (size_t i = 0; i < seg->len; i++) received->sum += bytes[i];
    received->bytes += seg->len;
    pthread_cond_signal(&received->changed);
    pthread_mutex_unlock(&received->lock);
    free(bytes);
    rb_rin *in = received->in;
    // Held beyond their release.
    rb_data held;
    OK(rb_buf_seg_to_view(seg, &held));
    OK(rb_rin_data_consumed(in, bid, seg->len));
    CHECK(held.len == seg->len && held.position == seg->position && held.data == seg->vecs[0].iov_base);
    OK(rb_view_free(held.view));
    FAILS(rb_buf_seg_to_view(seg, &held), RB_ERR_OTHER, "cannot be held");
    rb_buf_seg other = *seg;
    other.reserved = &other;
    FAILS(rb_buf_seg_to_view(&other, &held), RB_ERR_ARGUMENT, "not that of the callback");
    LEAVE(received);
}

static void on_data_out(void *ctx, uint32_t bid, void *delivery) {
    struct received *received = ctx;
    ENTER(received);
    pthread_mutex_lock(&received->lock);
    CHECK(bid == 8 && delivery == received);
    received->delivered++;
    pthread_cond_signal(&received->changed);
    pthread_mutex_unlock(&received->lock);
    LEAVE(received);
}

// A writer, and callbacks; when the context of a callback may be freed.
static void by_callbacks(void) {
    struct received *received = calloc(1, sizeof *received);
    pthread_mutex_init(&received->lock, NULL);
    pthread_cond_init(&received->changed, NULL);
    rb_buffer *buffer;
    rb_writer *writer;
    rb_buffer_options options = {.size = sizeof options, .size_bytes = 1 << 16};
    OK(rb_rout_create_buffer_with(out, 8, &options, &buffer));
    rb_rin *in = received->in = connect_rin();
    LEAVE(received);
    OK(rb_rout_set_data_out_cb(out, on_data_out, received));
    OK(rb_rin_set_data_in_cb(in, on_data, received));
    rb_subscribe_options subscribe = {.size = sizeof subscribe, .start = RB_START_OLDEST};
    OK(rb_rin_subscribe_with(in, 8, &subscribe, NULL));
    wait_subscribed(in, 8);

    OK(rb_buffer_writer(buffer, &writer));
    size_t wanted = 0;
    uint64_t sum = 0, end = 0;
    for (int i = 0; i < 20000; i++) {
        unsigned char message[16];
        memset(message, i, sizeof message);
        OK(rb_writer_append(writer, message, sizeof message, WAIT, &end));
        wanted += sizeof message;
        sum += (uint64_t)(unsigned char)i * sizeof message;
    }
    struct iovec many[3] = {{"a", 1}, {"bc", 2}, {"def", 3}};
    size_t appended;
    OK(rb_writer_append_many(writer, many, 3, WAIT, &appended, &end));
    OK(rb_writer_appendv(writer, many, 3, WAIT, &end));
    CHECK(appended == 3 && end == wanted + 12);
    wanted += 12;
    sum += 2 * ('a' + 'b' + 'c' + 'd' + 'e' + 'f');
    rb_buf_seg seg;
    OK(rb_writer_segment(writer, 1, WAIT, &seg));
    *(char *)seg.vecs[0].iov_base = 1;
    OK(rb_writer_deliver(writer, &seg, 1, received, NULL));
    pthread_mutex_lock(&received->lock);
    while (received->bytes < wanted + 1 || !received->delivered)
        pthread_cond_wait(&received->changed, &received->lock);
    CHECK(received->bytes == wanted + 1 && received->sum == sum + 1);
    pthread_mutex_unlock(&received->lock);
    OK(rb_rin_unset_data_in_cb(in));
    OK(rb_rout_unset_data_out_cb(out));
    ENTER(received);
    free(received);
    OK(rb_writer_free(writer));
    OK(rb_buffer_destroy(buffer, NULL));
    OK(rb_buffer_free(buffer));
    OK(rb_rin_free(in));
}

static void on_read(void *ctx, uint32_t bid, const rb_buf_seg *seg) {
    char *copy = ctx;
    CHECK(bid == 9 && seg->len == 3 && seg->vec_count == 1);
    memcpy(copy, seg->vecs[0].iov_base, 3);
}

// Control messages, and the reader.
static void control_and_reader(void) {
    rb_buffer *buffer;
    OK(rb_rout_create_buffer(out, 9, 1 << 16, &buffer));
    rb_rin *in = connect_rin();
    OK(rb_rin_send_control(in, "ask", 3));
    rb_out_event event;
    do OK(rb_rout_recv_event(out, &event, WAIT));
    while (event.kind != RB_OUT_CONTROL);
    CHECK(event.message_len == 3 && !memcmp(event.message, "ask", 3));
    OK(rb_rin_subscribe(in, 9, 1 << 16, NULL));
    rb_reader *reader;
    OK(rb_rin_reader(in, &reader));
    rb_in_event read;
    bool has_event;
    char copy[3] = "";
    OK(rb_reader_recv(reader, on_read, copy, &read, &has_event, WAIT));
    CHECK(has_event && read.kind == RB_IN_SUBSCRIBED);
    rb_buf_seg seg;
    OK(rb_rout_get_output_segment(out, 9, 3, true, &seg));
    memcpy(seg.vecs[0].iov_base, "abc", 3);
    OK(rb_rout_deliver(out, &seg, 3, NULL, NULL));
    OK(rb_reader_recv(reader, on_read, copy, &read, &has_event, WAIT));
    CHECK(!has_event && !memcmp(copy, "abc", 3));
    OK(rb_buffer_wait(buffer, RB_LEVEL_CONSUMED, 3, WAIT));
    CHECK(rb_reader_recv(reader, on_read, copy, &read, &has_event, RB_NO_WAIT) == RB_TIMED_OUT);
    OK(rb_reader_free(reader));
    OK(rb_rin_free(in));
    OK(rb_buffer_free(buffer));
}

// A broker: splice, and a subscriber at its other side.
static void splice(void) {
    rb_rout *broker;
    rb_listener *second;
    char second_address[64];
    OK(rb_rout_new(context, &broker));
    OK(rb_listener_bind(context, "127.0.0.1:0", &second));
    OK(rb_listener_local_addr(second, second_address, sizeof second_address, NULL));
    rb_buffer *source;
    OK(rb_rout_create_buffer(out, 10, 1 << 16, &source));
    rb_rin *upstream = connect_rin();
    OK(rb_rout_splice_with(broker, upstream, 10, 100, NULL, NULL));
    rb_conn *conn, *accepted;
    OK(rb_conn_connect_start(context, second_address, "subscriber", 10, &conn));
    OK(rb_listener_accept(second, &accepted, WAIT));
    OK(rb_rout_add_conn(broker, accepted));
    OK(rb_conn_wait_up(conn, WAIT));
    rb_rin *in;
    OK(rb_rin_new(conn, &in));
    OK(rb_rin_subscribe(in, 100, 1 << 16, NULL));
    wait_subscribed(in, 100);
    rb_buf_seg seg;
    OK(rb_buffer_segment(source, 4, WAIT, &seg));
    memcpy(seg.vecs[0].iov_base, "news", 4);
    OK(rb_buffer_deliver(source, &seg, 4, NULL, NULL));
    rb_in_event event;
    OK(rb_rin_recv(in, &event, WAIT));
    CHECK(event.kind == RB_IN_DATA && event.bid == 100 && event.data.len == 4);
    OK(rb_view_consume(event.data.view));
    OK(rb_conn_close(accepted, "done"));
    rb_down down;
    OK(rb_conn_wait_down(conn, &down, WAIT));
    CHECK(down.by == RB_DOWN_BY_PEER && down.code == RB_CLOSE_NORMAL && strstr(down.text, "done"));
    OK(rb_conn_free(accepted));
    OK(rb_conn_free(conn));
    OK(rb_rin_free(in));
    OK(rb_rin_free(upstream));
    OK(rb_buffer_free(source));
    OK(rb_listener_free(second));
    OK(rb_rout_free(broker));
}

int main(void) {
    rb_config *config;
    OK(rb_config_from_toml("[tcp]\ntcp_num_threads = 2\n", &config));
    OK(rb_config_set(config, "buffers.size_bytes", "64 KiB"));
    OK(rb_context_new(config, &context));
    OK(rb_config_free(config));
    OK(rb_rout_new(context, &out));
    OK(rb_listener_bind(context, "127.0.0.1:0", &listener));
    OK(rb_listener_local_addr(listener, address, sizeof address, NULL));
    LEAVE(&out);
    OK(rb_listener_set_conn_cb(listener, on_conn, out));
    by_calls();
    by_callbacks();
    control_and_reader();
    splice();
    OK(rb_listener_unset_conn_cb(listener));
    OK(rb_listener_free(listener));
    OK(rb_rout_free(out));
    OK(rb_context_shutdown(context, 0));
    OK(rb_context_free(context));
    puts("framework: ok");
    return 0;
}
