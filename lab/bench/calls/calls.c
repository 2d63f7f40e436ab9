// The calls that a program makes for every message, each in a function of its own whose instructions callgrind counts:
// `scripts/bench-calls` compares them with those of calls.rs, which does the same in Rust.
//
// calls ROW ROUNDS BROKER prints the row, the number of calls, and the least nanoseconds of a call in any round.

#include <rocketbufs.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 64, RING = 1 << 22, ARRIVES_US = 20000 };

static const char data[SIZE];

static void check(rb_status status, const char *what) {
    if (status != RB_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, rb_strerror(status), rb_last_error());
        exit(1);
    }
}
#define CHECK(call) check(call, #call)
#define COUNTED __attribute__((noinline)) static void

// The objects that the rows use. Each row opens its own.
static rb_context *context;
static rb_rout *out;
static rb_buffer *buffer;
static rb_writer *writer;
static rb_rin *in;
static rb_reader *reader;
static rbmq_topic *topic;
static rbmq_subscriber *subscriber;
static cmq_queue *queue;
static cmq_key key;
static uint64_t sum;

COUNTED counted_append(int count) {
    for (int i = 0; i < count; i++) CHECK(rb_writer_append(writer, data, SIZE, RB_NO_WAIT, &sum));
}

COUNTED counted_writer_segment(int count) {
    rb_buf_seg seg;
    for (int i = 0; i < count; i++) {
        CHECK(rb_writer_segment(writer, SIZE, RB_NO_WAIT, &seg));
        memcpy(seg.vecs[0].iov_base, data, SIZE);
        CHECK(rb_writer_deliver(writer, &seg, SIZE, NULL, &sum));
    }
}

COUNTED counted_buffer_segment(int count) {
    rb_buf_seg seg;
    for (int i = 0; i < count; i++) {
        CHECK(rb_buffer_segment(buffer, SIZE, RB_NO_WAIT, &seg));
        memcpy(seg.vecs[0].iov_base, data, SIZE);
        CHECK(rb_buffer_deliver(buffer, &seg, SIZE, NULL, &sum));
    }
}

COUNTED counted_rin_recv(int count) {
    rb_in_event event;
    for (int i = 0; i < count; i++) {
        CHECK(rb_rin_recv(in, &event, RB_NO_LIMIT));
        sum += *(const unsigned char *)event.data.data;
        CHECK(rb_view_consume(event.data.view));
    }
}

static void read_one(void *ctx, uint32_t bid, const rb_buf_seg *seg) {
    (void)bid;
    *(uint64_t *)ctx += *(const unsigned char *)seg->vecs[0].iov_base;
}

COUNTED counted_reader_recv(int count) {
    rb_in_event event;
    bool has_event;
    for (int i = 0; i < count; i++) CHECK(rb_reader_recv(reader, read_one, &sum, &event, &has_event, RB_NO_LIMIT));
}

COUNTED counted_publish(int count) {
    for (int i = 0; i < count; i++) CHECK(rbmq_topic_publish(topic, data, SIZE, RB_NO_LIMIT, &sum));
}

COUNTED counted_recv(int count) {
    rbmq_message message;
    for (int i = 0; i < count; i++) {
        CHECK(rbmq_subscriber_recv(subscriber, &message, RB_NO_LIMIT));
        sum += message.len;
    }
}

COUNTED counted_next_batch(int count) {
    rbmq_batch batch;
    for (int i = 0; i < count; i++) {
        CHECK(rbmq_subscriber_next_batch(subscriber, &batch, RB_NO_LIMIT));
        sum += batch.len;
        CHECK(rbmq_subscriber_batch_consume(subscriber));
    }
}

COUNTED counted_cmq_push(int count) {
    for (int i = 0; i < count; i++) CHECK(cmq_cw_push(queue, &key, data, SIZE));
}

COUNTED counted_cmq_pop(int count) {
    cmq_message message;
    for (int i = 0; i < count; i++) {
        CHECK(cmq_pop(queue, &message, RB_S));
        sum += message.len;
        CHECK(cmq_message_free(&message));
    }
}

static void add(void *ctx, rb_conn *conn) {
    rb_rout_add_conn(ctx, conn);
    rb_conn_free(conn);
}

static void open_buffer(void) {
    CHECK(rb_context_new(NULL, &context));
    CHECK(rb_rout_new(context, &out));
    CHECK(rb_rout_create_buffer(out, 7, RING, &buffer));
}

static void open_writer(void) {
    open_buffer();
    CHECK(rb_buffer_writer(buffer, &writer));
}

static void open_rin(void) {
    rb_listener *listener;
    rb_conn *conn;
    char address[64];
    rb_in_event event;
    open_writer();
    CHECK(rb_listener_bind(context, "127.0.0.1:0", &listener));
    CHECK(rb_listener_local_addr(listener, address, sizeof address, NULL));
    CHECK(rb_listener_set_conn_cb(listener, add, out));
    CHECK(rb_conn_connect(context, address, NULL, 0, &conn));
    CHECK(rb_rin_new(conn, &in));
    CHECK(rb_rin_subscribe(in, 7, RING, NULL));
    CHECK(rb_rin_recv(in, &event, 5 * RB_S)); // subscribed
}

static void open_reader(void) {
    open_rin();
    CHECK(rb_rin_reader(in, &reader));
}

static void deliver_one(int count) {
    (void)count;
    CHECK(rb_writer_append(writer, data, SIZE, RB_NO_LIMIT, &sum));
    usleep(ARRIVES_US);
}

static const char *broker;

static void open_topic(void) {
    rbmq_publisher *publisher;
    rbmq_topic_options options = {.size = sizeof options, .ring_bytes = RING};
    char name[64];
    snprintf(name, sizeof name, "calls/c/%d", getpid());
    CHECK(rbmq_publisher_connect(broker, NULL, &publisher));
    CHECK(rbmq_publisher_topic(publisher, name, &options, &topic));
}

static void open_subscriber(void) {
    char name[64];
    snprintf(name, sizeof name, "calls/c/%d", getpid());
    open_topic();
    CHECK(rbmq_subscriber_connect(broker, NULL, &subscriber));
    CHECK(rbmq_subscriber_subscribe(subscriber, name, NULL));
    CHECK(rbmq_topic_wait_subscribers(topic, 1, 10 * RB_S));
}

static void publish_all(int count) {
    CHECK(rbmq_topic_batch(topic, (uint64_t)count * (SIZE + 4), RB_NO_LIMIT));
    for (int i = 0; i < count; i++) CHECK(rbmq_topic_batch_push(topic, data, SIZE));
    CHECK(rbmq_topic_batch_deliver(topic, &sum));
    usleep(10 * ARRIVES_US);
}

static void publish_one(int count) {
    (void)count;
    CHECK(rbmq_topic_publish(topic, data, SIZE, RB_NO_LIMIT, &sum));
    usleep(ARRIVES_US);
}

static void open_queue(void) {
    CHECK(cmq_new_rq("127.0.0.1:0", NULL, &queue));
    CHECK(cmq_local_addr(queue, &key));
}

static void push_all(int count) {
    counted_cmq_push(count);
    CHECK(cmq_flush(queue));
    usleep(10 * ARRIVES_US);
}

// A row: what opens its ends, what happens before each round, and what is counted, so many calls a round.
static const struct row {
    const char *name;
    void (*open)(void);
    void (*before)(int count);
    void (*counted)(int count);
    int count;
} rows[] = {
    {"append", open_writer, NULL, counted_append, 1000},
    {"writer_segment", open_writer, NULL, counted_writer_segment, 1000},
    {"buffer_segment", open_buffer, NULL, counted_buffer_segment, 1000},
    {"rin_recv", open_rin, deliver_one, counted_rin_recv, 1},
    {"reader_recv", open_reader, deliver_one, counted_reader_recv, 1},
    {"publish", open_topic, NULL, counted_publish, 1000},
    {"recv", open_subscriber, publish_all, counted_recv, 1000},
    {"next_batch", open_subscriber, publish_one, counted_next_batch, 1},
    {"cmq_push", open_queue, NULL, counted_cmq_push, 1000},
    {"cmq_pop", open_queue, push_all, counted_cmq_pop, 1000},
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void run(const struct row *row, int rounds) {
    double least = 1e18;
    row->open();
    for (int i = 0; i < rounds; i++) {
        if (row->before) row->before(row->count);
        double begin = now();
        row->counted(row->count);
        double took = (now() - begin) / row->count;
        if (took < least) least = took;
    }
    printf("%s %d %.1f\n", row->name, rounds * row->count, least);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    broker = argv[3];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].name, argv[1]) != 0) continue;
        run(&rows[i], atoi(argv[2]));
        fflush(stdout);
        _exit(0);
    }
    return 2;
}
