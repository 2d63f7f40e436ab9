// Wrong calls: each is an error with its code and a text that says what is wrong, and never a crash.

#include "check.h"
#include <poll.h>
#include <pthread.h>

static rb_context *context;
static rb_rout *out;
static rb_buffer *buffer;
static rb_listener *listener;
static rb_rin *in;
static char address[64];

static void on_conn(void *ctx, rb_conn *conn) {
    ENTER(ctx);
    OK(rb_rout_add_conn(out, conn));
    OK(rb_conn_free(conn));
}

static void null_and_garbage(void) {
    rb_context *none;
    rb_rout *rout;
    char text[8];
    size_t len;
    FAILS(rb_context_new(NULL, NULL), RB_ERR_NULL, "the place for the context is NULL");
    FAILS(rb_rout_new(NULL, &rout), RB_ERR_NULL, "the context is NULL");
    FAILS(rb_rout_new((rb_context *)out, &rout), RB_ERR_HANDLE, "no handle of a context");
    FAILS(rb_rout_new((rb_context *)&rout, &rout), RB_ERR_HANDLE, "no handle of a context");
    FAILS(rb_rout_new((rb_context *)(uintptr_t)42, &rout), RB_ERR_HANDLE, "no handle of a context");
    FAILS(rb_rout_new((rb_context *)~(uintptr_t)0, &rout), RB_ERR_HANDLE, "no handle of a context");
    // The kind of a context, and a slot that no context ever had.
    FAILS(rb_rout_new((rb_context *)((uintptr_t)context | 0xffffff), &rout), RB_ERR_HANDLE, "no handle of a context");
    FAILS(rb_config_from_toml(NULL, NULL), RB_ERR_NULL, "the place for the configuration is NULL");
    FAILS(rb_rin_fd(NULL), RB_ERR_NULL, "the rIn is NULL");
    FAILS(rb_conn_peer_addr(NULL, text, sizeof text, &len), RB_ERR_NULL, "the connection is NULL");
    FAILS(rb_listener_set_conn_cb(listener, NULL, NULL), RB_ERR_NULL, "the callback is NULL");
    FAILS(rb_listener_local_addr(listener, NULL, 8, &len), RB_ERR_NULL, "the buffer for the text is NULL");
    FAILS(rb_rout_buffers(out, NULL, 3, &len), RB_ERR_NULL, "the place for the ids is NULL");
    FAILS(rb_rout_buffers(out, &(uint32_t){0}, SIZE_MAX, &len), RB_ERR_ARGUMENT, "longer than any memory");
    FAILS(rbmq_publisher_connect(NULL, NULL, NULL), RB_ERR_NULL, "the place for the publisher is NULL");
    FAILS(rbmq_topic_publish(NULL, "x", 1, RB_NO_WAIT, NULL), RB_ERR_NULL, "the topic is NULL");
    FAILS(rbmq_subscriber_recv((rbmq_subscriber *)out, &(rbmq_message){0}, 0), RB_ERR_HANDLE, "no handle of a subscriber");
    FAILS(cmq_cw_push(NULL, NULL, "x", 1), RB_ERR_NULL, "the key is NULL");
    FAILS(cmq_cw_push((cmq_queue *)out, &(cmq_key){.family = 4}, "x", 1), RB_ERR_HANDLE, "no handle of a queue");
    FAILS(cmq_key_parse("no address", 0, &(cmq_key){0}), RB_ERR_ADDRESS, "");
    CHECK(rb_context_new(NULL, &none) == RB_OK && rb_context_free(none) == RB_OK);
    // Freeing NULL does nothing, as of free().
    OK(rb_context_free(NULL));
    OK(rb_rout_free(NULL));
    OK(rb_view_free(NULL));
    OK(rbmq_topic_free(NULL));
    OK(cmq_free(NULL));
}

static void freed_handles(void) {
    rb_rout *rout, *next;
    rb_buffer *made;
    OK(rb_rout_new(context, &rout));
    OK(rb_rout_create_buffer(rout, 1, 1 << 16, &made));
    OK(rb_rout_free(rout));
    FAILS(rb_rout_free(rout), RB_ERR_FREED, "the rOut was freed");
    FAILS(rb_rout_create_buffer(rout, 2, 1 << 16, NULL), RB_ERR_FREED, "the rOut was freed");
    // Another object in the same place does not make the handle valid.
    OK(rb_rout_new(context, &next));
    FAILS(rb_rout_fd(rout), RB_ERR_FREED, "the rOut was freed");
    OK(rb_rout_free(next));
    OK(rb_buffer_free(made));
    FAILS(rb_buffer_destroy(made, NULL), RB_ERR_FREED, "the buffer was freed");
    rb_config *config;
    OK(rb_config_new(&config));
    OK(rb_config_free(config));
    FAILS(rb_config_set(config, "tcp.nodelay", "true"), RB_ERR_FREED, "the configuration was freed");
}

static void wrong_arguments(void) {
    rb_config *config;
    rb_subscription *subscription;
    rb_conn *conn;
    rb_listener *second;
    OK(rb_config_new(&config));
    FAILS(rb_config_set(config, "tcp.nodeley", "true"), RB_ERR_CONFIG, "tcp.nodelay");
    FAILS(rb_config_set(config, "tcp.nodelay", "perhaps"), RB_ERR_CONFIG, "perhaps");
    FAILS(rb_config_from_toml("[tcp]\nbacklog = -1", &config), RB_ERR_CONFIG, "backlog");
    FAILS(rb_config_from_toml("\xff", &config), RB_ERR_ARGUMENT, "not UTF-8");
    FAILS(rb_config_load("/there/is/no/such/file", &config), RB_ERR_CONFIG, "/there/is/no/such/file");
    FAILS(rb_conn_connect(context, "127.0.0.1:1", NULL, 0, &conn), RB_ERR_DOWN, "127.0.0.1:1");
    FAILS(rb_conn_connect(context, address, address, 5000, &conn), RB_ERR_TOO_LARGE, "at most 4096");
    FAILS(rb_conn_connect(context, address, NULL, 3, &conn), RB_ERR_NULL, "the hello is NULL");
    FAILS(rb_listener_bind(context, address, &second), RB_ERR_ADDRESS_IN_USE, "cannot listen");
    FAILS(rb_listener_bind(context, "nonsense", &second), RB_ERR_ADDRESS, "cannot listen");
    FAILS(rb_context_shutdown(context, -1), RB_ERR_ARGUMENT, "the grace is negative");
    rb_subscribe_options options = {.size = sizeof options, .policy = 9};
    FAILS(rb_rin_subscribe_with(in, 7, &options, &subscription), RB_ERR_ARGUMENT, "9 is no policy");
    options = (rb_subscribe_options){.size = sizeof options, .start = 77};
    FAILS(rb_rin_subscribe_with(in, 7, &options, &subscription), RB_ERR_ARGUMENT, "77 is no start");
    options = (rb_subscribe_options){.size = 0};
    FAILS(rb_rin_subscribe_with(in, 7, &options, &subscription), RB_ERR_ARGUMENT, "size is 0");
    options = (rb_subscribe_options){.size = sizeof options, .budget = (rb_budget *)context};
    FAILS(rb_rin_subscribe_with(in, 7, &options, &subscription), RB_ERR_HANDLE, "no handle of a budget");
    options = (rb_subscribe_options){.size = sizeof options, .name = "n", .name_len = (size_t)1 << 50};
    FAILS(rb_rin_subscribe_with(in, 7, &options, &subscription), RB_ERR_TOO_LARGE, "255");
    // A program that fills its options with ones: a flag is any byte but 0.
    options = (rb_subscribe_options){.size = sizeof options, .size_bytes = 1 << 16};
    memset(&options.own_memory, 0xff, sizeof options.own_memory);
    memset(&options.has_retain_bytes, 0xfe, sizeof options.has_retain_bytes);
    options.retain_bytes = 1 << 10;
    OK(rb_rin_subscribe_with(in, 7, &options, &subscription));
    rb_in_event event;
    OK(rb_rin_recv(in, &event, WAIT));
    CHECK(event.kind == RB_IN_SUBSCRIBED && event.bid == 7);
    OK(rb_subscription_unsubscribe(subscription));
    OK(rb_subscription_free(subscription));
    memset(&options, 0xff, sizeof options);
    FAILS(rb_rin_subscribe_with(in, 7, &options, &subscription), RB_ERR_ARGUMENT, "set it to sizeof");
    options.size = sizeof options;
    FAILS(rb_rin_subscribe_with(in, 7, &options, &subscription), RB_ERR_ARGUMENT, "4294967295 is no start");
    struct { rb_limits known; uint64_t unknown; } newer = {.known = {.size = sizeof newer}, .unknown = 1};
    FAILS(rb_buffer_set_limits(buffer, &newer.known), RB_ERR_ARGUMENT, "does not know");
    FAILS(rb_buffer_wait(buffer, 8, 0, RB_NO_WAIT), RB_ERR_ARGUMENT, "8 is no level");
    rbmq_subscriber *subscriber;
    rbmq_subscriber_options slow = {.size = sizeof slow, .slow = 5};
    FAILS(rbmq_subscriber_connect(address, &slow, &subscriber), RB_ERR_ARGUMENT, "5 is no policy");
    rbmq_login half = {.size = sizeof half, .user = "u"};
    rbmq_subscriber_options nobody = {.size = sizeof nobody, .login = &half};
    FAILS(rbmq_subscriber_connect(address, &nobody, &subscriber), RB_ERR_ARGUMENT, "a user and a password, or a token");
    rbmq_login token = {.size = sizeof token, .token = "secret"};
    nobody.login = &token;
    FAILS(rbmq_subscriber_connect("192.0.2.1:7411", &nobody, &subscriber), RB_ERR_CONFIG, "is not encrypted");
    cmq_queue *queue;
    cmq_options cmq = {.size = sizeof cmq, .qthresh = 1000000};
    FAILS(cmq_new_rq("127.0.0.1:0", &cmq, &queue), RB_ERR_CONFIG, "qthresh");
    CHECK(!strcmp(rb_strerror(12345), "unknown status"));
    OK(rb_config_free(config));
}

// Segments of a writer, which keeps the place of the last one.
static void wrong_order_of_a_writer(void) {
    rb_buf_seg seg, newer, copy;
    rb_writer *writer;
    OK(rb_buffer_writer(buffer, &writer));
    for (int i = 0; i < 3; i++) {
        OK(rb_writer_segment(writer, 10, RB_NO_WAIT, &seg));
        copy = seg;
        FAILS(rb_writer_deliver(writer, &seg, 11, NULL, NULL), RB_ERR_TOO_LARGE, "11 bytes");
        FAILS(rb_writer_deliver(writer, &copy, 10, NULL, NULL), RB_ERR_FREED, "the segment was freed");
        copy = seg;
        FAILS(rb_buffer_deliver(buffer, &seg, 10, NULL, NULL), RB_ERR_FOREIGN, "does not belong");
        FAILS(rb_writer_deliver(writer, &copy, 10, NULL, NULL), RB_ERR_FREED, "the segment was freed");
        copy = seg;
        OK(rb_writer_segment(writer, 10, RB_NO_WAIT, &newer));
        FAILS(rb_writer_deliver(writer, &seg, 5, NULL, NULL), RB_ERR_SHORT_DELIVER, "newest open segment");
        FAILS(rb_writer_deliver(writer, &copy, 10, NULL, NULL), RB_ERR_FREED, "the segment was freed");
        copy = seg;
        OK(rb_writer_deliver(writer, &seg, 10, NULL, NULL));
        FAILS(rb_writer_deliver(writer, &copy, 10, NULL, NULL), RB_ERR_FREED, "the segment was freed");
        FAILS(rb_writer_deliver(writer, &seg, 10, NULL, NULL), RB_ERR_NULL, "the segment is NULL");
        copy.segment = (rb_segment *)(void *)writer;
        FAILS(rb_writer_deliver(writer, &copy, 10, NULL, NULL), RB_ERR_HANDLE, "no handle of a segment");
        OK(rb_writer_deliver(writer, &newer, 10, NULL, NULL));
    }
    OK(rb_writer_segment(writer, 10, RB_NO_WAIT, &seg));
    OK(rb_writer_free(writer));
    copy = seg;
    memset(seg.vecs[0].iov_base, 1, seg.vecs[0].iov_len);
    OK(rb_buffer_deliver(buffer, &seg, 10, NULL, NULL));
    FAILS(rb_buffer_deliver(buffer, &copy, 10, NULL, NULL), RB_ERR_FREED, "the segment was freed");
}

static void wrong_order(void) {
    rb_buf_seg seg, older, copy;
    rb_writer *writer, *second;
    rb_buffer *other;
    OK(rb_rout_create_buffer(out, 8, 1 << 16, &other));
    FAILS(rb_rout_create_buffer(out, 8, 1 << 16, NULL), RB_ERR_EXISTS, "buffer 8 exists");
    FAILS(rb_rout_destroy_buffer(out, 99, NULL), RB_ERR_NO_SUCH_BUFFER, "no buffer 99");
    FAILS(rb_buffer_segment(buffer, 1 << 30, RB_NO_WAIT, &seg), RB_ERR_TOO_LARGE, "at most");
    FAILS(rb_buffer_segment(buffer, 0, RB_NO_WAIT, &seg), RB_ERR_EMPTY, "no bytes");
    OK(rb_buffer_segment(buffer, 10, RB_NO_WAIT, &older));
    OK(rb_buffer_segment(buffer, 10, RB_NO_WAIT, &seg));
    FAILS(rb_buffer_deliver(buffer, &older, 5, NULL, NULL), RB_ERR_SHORT_DELIVER, "newest open segment");
    FAILS(rb_buffer_deliver(buffer, &seg, 11, NULL, NULL), RB_ERR_TOO_LARGE, "11 bytes");
    FAILS(rb_buffer_deliver(other, &seg, 10, NULL, NULL), RB_ERR_FOREIGN, "does not belong");
    copy = seg;
    OK(rb_buffer_deliver(buffer, &seg, 0, NULL, NULL));
    FAILS(rb_buffer_deliver(buffer, &copy, 10, NULL, NULL), RB_ERR_FREED, "the segment was freed");
    FAILS(rb_buffer_deliver(buffer, &seg, 10, NULL, NULL), RB_ERR_NULL, "the segment is NULL");
    OK(rb_buffer_deliver(buffer, &older, 10, NULL, NULL));
    OK(rb_buffer_writer(buffer, &writer));
    FAILS(rb_buffer_writer(buffer, &second), RB_ERR_WRITER_TAKEN, "a buffer has one writer");
    FAILS(rb_buffer_segment(buffer, 10, RB_NO_WAIT, &seg), RB_ERR_WRITER_TAKEN, "a buffer has one writer");
    OK(rb_writer_free(writer));
    FAILS(rb_writer_append(writer, "x", 1, RB_NO_WAIT, NULL), RB_ERR_FREED, "the writer was freed");
    OK(rb_buffer_destroy(other, NULL));
    FAILS(rb_buffer_segment(other, 10, RB_NO_WAIT, &seg), RB_ERR_CLOSED, "destroyed");
    OK(rb_buffer_free(other));
}

static void receiving(void) {
    rb_in_event event;
    rb_data data;
    rb_reader *reader, *second;
    char byte;
    FAILS(rb_rin_data_consumed(in, 55, 1), RB_ERR_NOT_SUBSCRIBED, "no subscription of buffer 55");
    FAILS(rb_rin_get_buf_ref(in, 55, &data), RB_ERR_NOT_SUBSCRIBED, "buffer 55");
    OK(rb_rin_subscribe(in, 7, 1 << 16, NULL));
    FAILS(rb_rin_subscribe(in, 7, 1 << 16, NULL), RB_ERR_EXISTS, "subscribed to buffer 7 already");
    OK(rb_rin_recv(in, &event, WAIT));
    CHECK(event.kind == RB_IN_SUBSCRIBED);
    rb_buf_seg seg;
    OK(rb_buffer_segment(buffer, 4, WAIT, &seg));
    OK(rb_buffer_deliver(buffer, &seg, 4, NULL, NULL));
    OK(rb_rin_recv(in, &event, WAIT));
    FAILS(rb_view_copy(event.data.view, 3, &byte, 2), RB_ERR_ARGUMENT, "fewer bytes");
    FAILS(rb_view_copy(event.data.view, SIZE_MAX, &byte, 2), RB_ERR_ARGUMENT, "fewer bytes");
    OK(rb_view_consume(event.data.view));
    FAILS(rb_view_consume(event.data.view), RB_ERR_FREED, "the view was freed");
    FAILS(rb_view_data(event.data.view, &data), RB_ERR_FREED, "the view was freed");
    FAILS(rb_rin_data_consumed(in, 7, 1000), RB_ERR_TOO_MUCH, "1000 bytes were given back");
    FAILS(rb_buf_seg_copy(&(rb_buf_seg){.len = 5, .reserved = &byte}, 0, &byte, 1), RB_ERR_ARGUMENT, "not that of the callback");
    OK(rb_rin_reader(in, &reader));
    FAILS(rb_rin_reader(in, &second), RB_ERR_READER_TAKEN, "has a reader");
    FAILS(rb_rin_recv(in, &event, RB_NO_WAIT), RB_ERR_READER_TAKEN, "has a reader");
    OK(rb_reader_free(reader));
    rb_subscription *subscription;
    OK(rb_rin_subscription(in, 7, &subscription));
    OK(rb_subscription_unsubscribe(subscription));
    OK(rb_subscription_unsubscribe(subscription));
    FAILS(rb_subscription_consume(subscription, 1), RB_ERR_NOT_SUBSCRIBED, "buffer 7");
    OK(rb_subscription_free(subscription));
}

static int called;
static pthread_t main_thread;

static void waits_in_callback(void *ctx, const rb_out_event *event) {
    rb_in_event received;
    rb_conn *conn;
    (void)event;
    ENTER(&main_thread);
    // Events that waited come on the thread that sets the callback, which may wait.
    if (__atomic_load_n(&called, __ATOMIC_ACQUIRE) || pthread_equal(pthread_self(), main_thread)) return;
    FAILS(rb_buffer_drain(ctx, WAIT), RB_ERR_CALLED_FROM_CALLBACK, "was made from a callback");
    FAILS(rb_conn_connect(context, address, NULL, 0, &conn), RB_ERR_CALLED_FROM_CALLBACK, "was made from a callback");
    CHECK(rb_rin_recv(in, &received, RB_NO_WAIT) == RB_TIMED_OUT || received.kind == RB_IN_SUBSCRIBED);
    __atomic_store_n(&called, 1, __ATOMIC_RELEASE);
}

// Waiting inside a callback.
static void in_a_callback(void) {
    LEAVE(&main_thread);
    OK(rb_rout_set_event_cb(out, waits_in_callback, buffer));
    OK(rb_rin_subscribe(in, 7, 1 << 16, NULL));
    while (!__atomic_load_n(&called, __ATOMIC_ACQUIRE)) poll(NULL, 0, 1);
    OK(rb_rout_unset_event_cb(out));
    OK(rb_rout_unset_event_cb(out));
}

static void ignore(void *ctx, uint32_t bid, const rb_buf_seg *seg) {
    (void)ctx, (void)bid, (void)seg;
}

static void *receive_for_long(void *reader) {
    rb_in_event event;
    bool has_event;
    // Another thread frees the reader meanwhile, which fails, or did it before.
    rb_status status = rb_reader_recv(reader, ignore, NULL, &event, &has_event, 500 * RB_MS);
    CHECK(status == RB_TIMED_OUT || status == RB_OK || status == RB_ERR_FREED);
    return NULL;
}

// Two threads with an object of one thread.
static void two_threads(void) {
    rb_reader *reader;
    pthread_t thread;
    rb_status status;
    rb_in_event event;
    OK(rb_rin_unsubscribe(in, 7));
    while (rb_rin_recv(in, &event, 10 * RB_MS) == RB_OK) {}
    OK(rb_rin_reader(in, &reader));
    pthread_create(&thread, NULL, receive_for_long, reader);
    poll(NULL, 0, 100);
    status = rb_reader_free(reader);
    CHECK(status == RB_ERR_BUSY || status == RB_OK);
    if (status == RB_ERR_BUSY) CHECK(strstr(rb_last_error(), "one thread may use at a time"));
    pthread_join(thread, NULL);
    if (status == RB_ERR_BUSY) OK(rb_reader_free(reader));
    FAILS(rb_reader_free(reader), RB_ERR_FREED, "the reader was freed");
}

static void after_the_end(void) {
    rb_conn *conn;
    OK(rb_rin_conn(in, &conn));
    OK(rb_conn_close(conn, "enough"));
    OK(rb_conn_wait_down(conn, NULL, WAIT));
    FAILS(rb_conn_send_control(conn, "x", 1), RB_ERR_DOWN, "the connection is down");
    FAILS(rb_conn_wait_up(conn, WAIT), RB_ERR_DOWN, "enough");
    OK(rb_conn_free(conn));
    OK(rb_context_shutdown(context, 0));
    FAILS(rb_conn_connect(context, address, NULL, 0, &conn), RB_ERR_DOWN, "");
    rb_listener *late;
    FAILS(rb_listener_bind(context, "127.0.0.1:0", &late), RB_ERR_ADDRESS, "shut down");
}

static pthread_key_t at_end;

// Fails while its thread ends.
static void fail_at_end(void *told) {
    rb_config *config;
    FAILS(rb_config_from_toml("transport = 1", &config), RB_ERR_CONFIG, "transport");
    *(int *)told = 1;
}

static void *end_of_a_thread(void *told) {
    rb_last_error();
    pthread_setspecific(at_end, told);
    return NULL;
}

// A text is where the one before it was: a pointer that was taken before a call fails has the call's text then.
static void texts(void) {
    rb_config *config;
    FAILS(rb_rin_free((rb_rin *)0x10), RB_ERR_HANDLE, "no handle");
    const char *text = rb_last_error();
    char long_setting[4096] = "transport = '";
    memset(long_setting + 13, 'x', 3000);
    strcpy(long_setting + 3013, "'");
    CHECK(rb_config_from_toml(long_setting, &config) == RB_ERR_CONFIG);
    CHECK(text == rb_last_error() && strlen(text) > 500 && strlen(text) < 1024 && strstr(text, "transport"));
    pthread_t thread;
    int told = 0;
    OK(pthread_key_create(&at_end, fail_at_end));
    OK(pthread_create(&thread, NULL, end_of_a_thread, &told));
    OK(pthread_join(thread, NULL));
    CHECK(told);
    OK(pthread_key_delete(at_end));
}

int main(void) {
    main_thread = pthread_self();
    OK(rb_context_new(NULL, &context));
    OK(rb_rout_new(context, &out));
    OK(rb_rout_create_buffer(out, 7, 1 << 16, &buffer));
    OK(rb_listener_bind(context, "127.0.0.1:0", &listener));
    OK(rb_listener_local_addr(listener, address, sizeof address, NULL));
    LEAVE(address);
    OK(rb_listener_set_conn_cb(listener, on_conn, address));
    rb_conn *conn;
    OK(rb_conn_connect(context, address, NULL, 0, &conn));
    OK(rb_rin_new(conn, &in));
    OK(rb_conn_free(conn));
    null_and_garbage();
    freed_handles();
    wrong_arguments();
    wrong_order();
    wrong_order_of_a_writer();
    receiving();
    in_a_callback();
    two_threads();
    texts();
    after_the_end();
    OK(rb_rin_free(in));
    OK(rb_buffer_free(buffer));
    OK(rb_listener_free(listener));
    OK(rb_rout_free(out));
    OK(rb_context_free(context));
    puts("misuse: ok");
    return 0;
}
