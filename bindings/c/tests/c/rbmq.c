// RBMQ's client in C, with the broker whose address is the argument.

#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

static const char *broker;
// The topics of this process: the broker keeps those of an earlier one.
static char news[32], grown[32], raw[32], says[32], events[32], all[32], observed[32], in_place[32], kept[32], called[32], temp[32], door[32];

// Each way to publish, each way to receive.
static void publish_and_receive(void) {
    rbmq_publisher *publisher;
    rbmq_topic *topic;
    rbmq_subscriber *subscriber;
    // A broker without users lets everybody in, whatever is presented.
    rbmq_login login = {.size = sizeof login, .user = "c", .password = "secret of c"};
    rbmq_publisher_options options = {.size = sizeof options, .name = "c", .login = &login};
    OK(rbmq_publisher_connect(broker, &options, &publisher));
    CHECK(rbmq_publisher_is_connected(publisher) == 1);
    OK(rbmq_publisher_topic(publisher, news, NULL, &topic));
    rbmq_subscriber_options receives = {.size = sizeof receives, .until_ended = true, .confirm_consumed = true};
    OK(rbmq_subscriber_connect(broker, &receives, &subscriber));
    OK(rbmq_subscriber_subscribe(subscriber, all, NULL));
    OK(rbmq_topic_wait_subscribers(topic, 1, WAIT));

    uint64_t end;
    size_t published;
    OK(rbmq_topic_publish(topic, "one", 3, WAIT, NULL));
    OK(rbmq_topic_batch(topic, 100, WAIT));
    FAILS(rbmq_topic_publish(topic, "x", 1, WAIT, NULL), RB_ERR_BUSY, "a batch of the topic is open");
    OK(rbmq_topic_batch_push(topic, "two", 3));
    OK(rbmq_topic_batch_push_encoded(topic, "\5\0\0\0three", 9));
    OK(rbmq_topic_batch_deliver(topic, &end));
    struct iovec many[] = {{"four", 4}, {"five", 4}};
    OK(rbmq_topic_publish_many(topic, many, 2, WAIT, &published, &end));
    CHECK(published == 2);

    rbmq_message message;
    const char *expected[] = {"one", "two", "three", "four", "five"};
    for (int i = 0; i < 5; i++) {
        OK(rbmq_subscriber_recv(subscriber, &message, WAIT));
        CHECK(message.len == strlen(expected[i]) && !memcmp(message.data, expected[i], message.len));
        CHECK(message.topic_len == strlen(news) && !memcmp(message.topic, news, strlen(news)) && message.publisher == -1);
    }
    CHECK(message.end == end);
    CHECK(rbmq_subscriber_recv(subscriber, &message, RB_NO_WAIT) == RB_TIMED_OUT);
    rbmq_confirmed confirmed;
    OK(rbmq_topic_confirm(topic, end, RBMQ_LEVEL_CONSUMED, WAIT, &confirmed));
    CHECK(confirmed.subscribers == 1 && confirmed.position >= end && confirmed.left == 0);
    FAILS(rbmq_topic_confirm(topic, end + 1, RBMQ_LEVEL_ACCEPTED, WAIT, NULL), RB_ERR_NOT_PUBLISHED, "was not published");

    OK(rbmq_topic_publish_many(topic, many, 2, WAIT, NULL, &end));
    struct pollfd readable = {.fd = rbmq_subscriber_fd(subscriber), .events = POLLIN};
    CHECK(readable.fd >= 0 && poll(&readable, 1, 60000) == 1);
    rbmq_batch batch;
    rbmq_record records[4];
    size_t count;
    OK(rbmq_subscriber_next_batch(subscriber, &batch, WAIT));
    FAILS(rbmq_subscriber_ended(subscriber), RB_ERR_BUSY, "a batch of the subscriber is open");
    OK(rbmq_subscriber_batch_records(subscriber, records, 1, &count));
    CHECK(count == 1 && !memcmp(records[0].data, "four", 4));
    OK(rbmq_subscriber_batch_consume_part(subscriber, records[0].end));
    OK(rbmq_subscriber_batch_records(subscriber, records, 4, &count));
    CHECK(count == 1 && !memcmp(records[0].data, "five", 4) && records[0].end == end && batch.end == end);
    CHECK(rbmq_subscriber_batch_records(subscriber, records, 4, &count) == RB_END);
    rbmq_deferred *deferred;
    OK(rbmq_subscriber_batch_defer(subscriber, &deferred));
    rbmq_confirmation *confirmation;
    OK(rbmq_topic_confirmation(topic, end, RBMQ_LEVEL_CONSUMED, &confirmation));
    CHECK(rbmq_confirmation_wait(confirmation, NULL, RB_NO_WAIT) == RB_TIMED_OUT);
    OK(rbmq_deferred_consume(deferred));
    OK(rbmq_confirmation_wait(confirmation, &confirmed, WAIT));
    OK(rbmq_confirmation_free(confirmation));

    OK(rbmq_topic_close(topic, WAIT));
    rbmq_event event;
    do OK(rbmq_subscriber_next_event(subscriber, &event, WAIT));
    while (event.kind != RBMQ_EVENT_CLOSED);
    CHECK(!strcmp(event.topic, news) && event.to == end);
    OK(rbmq_subscriber_close(subscriber, WAIT));
    OK(rbmq_publisher_close(publisher, WAIT));
}

// Messages that are larger than the rings were made for, with the options that every program has, and one that the broker takes no more.
static void any_size(void) {
    static const size_t sizes[] = {1, 1 << 20, 2, 16 << 20, 3};
    rbmq_publisher *publisher;
    rbmq_topic *topic;
    rbmq_subscriber *subscriber;
    rbmq_message message;
    char *bytes = malloc((64 << 20) + 1);
    CHECK(bytes);
    OK(rbmq_publisher_connect(broker, NULL, &publisher));
    OK(rbmq_publisher_topic(publisher, grown, NULL, &topic));
    OK(rbmq_subscriber_connect(broker, NULL, &subscriber));
    OK(rbmq_subscriber_subscribe(subscriber, grown, NULL));
    OK(rbmq_topic_wait_subscribers(topic, 1, WAIT));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(bytes, 'a' + (int)i, sizes[i]);
        OK(rbmq_topic_publish(topic, bytes, sizes[i], WAIT, NULL));
        OK(rbmq_subscriber_recv(subscriber, &message, WAIT));
        CHECK(message.len == sizes[i] && !memcmp(message.data, bytes, sizes[i]));
    }
    FAILS(rbmq_topic_publish(topic, bytes, (64 << 20) + 1, WAIT, NULL), RB_ERR_TOO_LARGE, "broker.max_message_bytes");
    OK(rbmq_subscriber_free(subscriber));
    OK(rbmq_topic_free(topic));
    OK(rbmq_publisher_free(publisher));

    // A subscriber that takes less is told what to set.
    rbmq_subscriber_options little = {.size = sizeof little, .max_message_bytes = 1 << 20};
    OK(rbmq_publisher_connect(broker, NULL, &publisher));
    OK(rbmq_publisher_topic(publisher, grown, NULL, &topic));
    OK(rbmq_subscriber_connect(broker, &little, &subscriber));
    OK(rbmq_subscriber_subscribe(subscriber, grown, NULL));
    OK(rbmq_topic_wait_subscribers(topic, 1, WAIT));
    OK(rbmq_topic_publish(topic, bytes, 4 << 20, WAIT, NULL));
    FAILS(rbmq_subscriber_recv(subscriber, &message, WAIT), RB_ERR_REFUSED, "max_message_bytes");
    OK(rbmq_subscriber_free(subscriber));
    OK(rbmq_topic_free(topic));
    OK(rbmq_publisher_free(publisher));
    free(bytes);
}

// What records say about their content, in each way to publish and to receive.
static void attributes(void) {
    rbmq_publisher *publisher;
    rbmq_topic *topic;
    rbmq_subscriber *subscriber;
    OK(rbmq_publisher_connect(broker, NULL, &publisher));
    OK(rbmq_publisher_topic(publisher, says, NULL, &topic));
    OK(rbmq_subscriber_connect(broker, NULL, &subscriber));
    OK(rbmq_subscriber_subscribe(subscriber, says, NULL));
    OK(rbmq_topic_wait_subscribers(topic, 1, WAIT));

    rbmq_property properties[] = {{"k", 1, "one", 3}, {"k", 1, "", 0}}, found[3];
    rbmq_attributes given = {.size = sizeof given, .reply_to = "answers", .reply_to_len = 7, .key = "\xff", .key_len = 1};
    given.properties = properties, given.properties_count = 2, given.time_ms = 5, given.retain = true, given.has_qos = true;
    OK(rbmq_topic_publish_with(topic, &given, "one", 3, WAIT, NULL));
    OK(rbmq_topic_publish_with(topic, NULL, "two", 3, WAIT, NULL));
    rbmq_message message;
    rbmq_attributes read;
    size_t count;
    OK(rbmq_subscriber_recv(subscriber, &message, WAIT));
    CHECK(message.len == 3 && !memcmp(message.data, "one", 3));
    OK(rbmq_attributes_read(message.attributes, message.attributes_len, &read));
    CHECK(read.reply_to_len == 7 && !memcmp(read.reply_to, "answers", 7) && read.key_len == 1 && !memcmp(read.key, "\xff", 1));
    CHECK(read.time_ms == 5 && read.retain && read.has_qos && read.qos == 0 && !read.topic && !read.content_type);
    OK(rbmq_attributes_properties(message.attributes, message.attributes_len, found, 3, &count));
    CHECK(count == 2 && !memcmp(found[0].value, "one", 3) && found[1].key_len == 1 && found[1].value_len == 0);
    OK(rbmq_attributes_properties(message.attributes, message.attributes_len, NULL, 0, &count));
    CHECK(count == 2);

    // Passed on with another topic for answers, in a batch and in a segment.
    rbmq_attributes passed = {.size = sizeof passed, .encoded = message.attributes, .encoded_len = message.attributes_len};
    passed.reply_to = "others", passed.reply_to_len = 6;
    OK(rbmq_topic_batch(topic, 200, WAIT));
    OK(rbmq_topic_batch_push_with(topic, &passed, "three", 5));
    CHECK(rbmq_topic_batch_push_with(topic, &passed, properties, 200) == RB_FULL);
    OK(rbmq_topic_batch_deliver(topic, NULL));
    rbmq_segment segment;
    OK(rbmq_topic_claim_with(topic, &passed, 10, WAIT, &segment));
    memcpy(segment.data, "four", 4);
    CHECK(segment.len == 10);
    OK(rbmq_topic_publish_segment(topic, &segment, 4, NULL));
    OK(rbmq_subscriber_recv(subscriber, &message, WAIT));
    CHECK(!memcmp(message.data, "two", 3) && message.attributes_len == 0);
    size_t received = 0;
    while (received < 2) {
        rbmq_batch batch;
        rbmq_record record;
        OK(rbmq_subscriber_next_batch(subscriber, &batch, WAIT));
        while (rbmq_subscriber_batch_records(subscriber, &record, 1, &count) == RB_OK) {
            CHECK(!memcmp(record.data, received ? "four" : "three", record.len));
            OK(rbmq_attributes_read(record.attributes, record.attributes_len, &read));
            CHECK(read.reply_to_len == 6 && !memcmp(read.reply_to, "others", 6) && read.key_len == 1 && read.time_ms == 5);
            received++;
        }
    }
    given.content_type = "\xff", given.content_type_len = 1;
    FAILS(rbmq_topic_publish_with(topic, &given, "x", 1, WAIT, NULL), RB_ERR_ARGUMENT, "not UTF-8");
    given.content_type = NULL, given.content_type_len = 1;
    FAILS(rbmq_topic_publish_with(topic, &given, "x", 1, WAIT, NULL), RB_ERR_NULL, "the type of the content");
    given.content_type = NULL, given.content_type_len = 0, given.key_len = 65536;
    given.key = calloc(1, 65536);
    FAILS(rbmq_topic_publish_with(topic, &given, "x", 1, WAIT, NULL), RB_ERR_TOO_LARGE, "attribute key has 65536 bytes");
    free((void *)given.key);
    FAILS(rbmq_attributes_read("\1", 1, &read), RB_ERR_MALFORMED, "cut off");
    OK(rbmq_subscriber_free(subscriber));
    OK(rbmq_topic_free(topic));
    OK(rbmq_publisher_free(publisher));
}

static ptrdiff_t fill(void *ctx, void *to, size_t capacity) {
    CHECK(capacity == 8);
    memcpy(to, ctx, 6);
    return 6;
}

static ptrdiff_t fill_fails(void *ctx, void *to, size_t capacity) {
    (void)ctx, (void)to, (void)capacity;
    return -7;
}

// Raw bytes, filled in place; a shared context; the oldest messages; the end.
static void raw_bytes(void) {
    rb_context *context;
    OK(rb_context_load(NULL, &context));
    rbmq_publisher *publisher;
    rbmq_topic *topic;
    rbmq_publisher_options shares = {.size = sizeof shares, .context = context};
    OK(rbmq_publisher_connect(broker, &shares, &publisher));
    rbmq_topic_options options = {.size = sizeof options, .framing = RBMQ_FRAMING_RAW, .ring_bytes = 1 << 16};
    OK(rbmq_publisher_topic(publisher, raw, &options, &topic));
    FAILS(rbmq_topic_publish(topic, "x", 1, WAIT, NULL), RB_ERR_WRONG_FRAMING, "opened for raw");
    ptrdiff_t filled;
    OK(rbmq_topic_fill_raw(topic, 8, WAIT, fill, "filled", &filled));
    CHECK(filled == 6);
    OK(rbmq_topic_fill_raw(topic, 8, WAIT, fill_fails, NULL, &filled));
    CHECK(filled == -7);
    uint64_t end;
    OK(rbmq_topic_publish_raw(topic, " more", 5, &end));
    CHECK(end == 11);
    OK(rbmq_topic_flush(topic, WAIT));
    rbmq_subscriber *subscriber;
    rbmq_subscriber_options receives = {.size = sizeof receives, .until_ended = true, .context = context};
    OK(rbmq_subscriber_connect(broker, &receives, &subscriber));
    rbmq_start oldest = {.size = sizeof oldest, .kind = RBMQ_START_OLDEST};
    OK(rbmq_subscriber_subscribe(subscriber, raw, &oldest));
    OK(rbmq_topic_wait_subscribers(topic, 1, WAIT));
    rbmq_topic_info info;
    OK(rbmq_topic_get_info(topic, &info));
    CHECK(info.position == 11 && info.subscribers == 1);
    OK(rbmq_topic_close(topic, WAIT));
    char got[16] = "";
    rbmq_message message;
    rb_status status;
    while ((status = rbmq_subscriber_recv(subscriber, &message, WAIT)) == RB_OK)
        strncat(got, message.data, message.len);
    CHECK(status == RB_END && !strcmp(got, "filled more"));
    OK(rbmq_subscriber_free(subscriber));
    OK(rbmq_publisher_free(publisher));
    OK(rb_context_free(context));
}

// Messages that are filled where they are sent from, and a batch that is consumed later.
static void claimed(void) {
    rbmq_publisher *publisher;
    rbmq_topic *topic, *other;
    rbmq_subscriber *subscriber;
    rbmq_segment first, second, third;
    OK(rbmq_publisher_connect(broker, NULL, &publisher));
    OK(rbmq_publisher_topic(publisher, in_place, NULL, &topic));
    FAILS(rbmq_publisher_topic(publisher, all, NULL, &other), RB_ERR_NAME, "");
    OK(rbmq_subscriber_connect(broker, NULL, &subscriber));
    OK(rbmq_subscriber_subscribe(subscriber, in_place, NULL));
    OK(rbmq_topic_wait_subscribers(topic, 1, WAIT));

    uint64_t end;
    OK(rbmq_topic_claim(topic, 5, WAIT, &first));
    OK(rbmq_topic_claim(topic, 100, WAIT, &second));
    CHECK(first.len == 5 && second.len == 100);
    memcpy(first.data, "first", 5);
    memcpy(second.data, "second", 6);
    FAILS(rbmq_topic_publish_segment(topic, &first, 3, NULL), RB_ERR_SHORT_DELIVER, "newest");
    FAILS(rbmq_topic_publish_segment(topic, &first, 6, NULL), RB_ERR_SHORT_DELIVER, "6 bytes");
    rbmq_segment copy = first;
    OK(rbmq_topic_publish_segment(topic, &first, 5, NULL));
    CHECK(!first.claim && !first.data);
    FAILS(rbmq_topic_publish_segment(topic, &copy, 5, NULL), RB_ERR_FREED, "segment was freed");
    FAILS(rbmq_topic_publish_segment(topic, &first, 5, NULL), RB_ERR_NULL, "segment is NULL");
    OK(rbmq_topic_publish_segment(topic, &second, 6, &end));
    OK(rbmq_topic_claim(topic, 8, WAIT, &third));
    OK(rbmq_topic_return_segment(topic, &third));
    OK(rbmq_topic_claim(topic, 8, WAIT, &third));
    OK(rbmq_segment_free(&third));
    OK(rbmq_segment_free(&third));
    FAILS(rbmq_topic_claim(topic, 1 << 30, WAIT, &third), RB_ERR_TOO_LARGE, "");

    rbmq_batch batch;
    rbmq_deferred *deferred;
    rb_id128 epoch;
    char got[32] = "";
    rbmq_record records[2];
    size_t count;
    while (strlen(got) < 11) {
        OK(rbmq_subscriber_next_batch(subscriber, &batch, WAIT));
        while (rbmq_subscriber_batch_records(subscriber, records, 2, &count) == RB_OK)
            for (size_t i = 0; i < count; i++) strncat(got, records[i].data, records[i].len);
        OK(rbmq_subscriber_batch_defer(subscriber, &deferred));
        OK(rbmq_deferred_epoch(deferred, &epoch));
        CHECK(epoch.high == batch.epoch.high && epoch.low == batch.epoch.low);
        OK(rbmq_deferred_consume_up_to(deferred, batch.end));
        FAILS(rbmq_deferred_consume_up_to(deferred, batch.end), RB_ERR_FREED, "was freed");
    }
    CHECK(!strcmp(got, "firstsecond"));
    OK(rbmq_topic_confirm(topic, end, RBMQ_LEVEL_DELIVERED, WAIT, NULL));
    OK(rbmq_subscriber_free(subscriber));
    OK(rbmq_topic_free(topic));
    OK(rbmq_publisher_free(publisher));
}

// Events of a publisher, with its descriptor.
static void publisher_events(void) {
    rbmq_publisher *publisher;
    rbmq_topic *topic;
    rbmq_subscriber *subscriber;
    OK(rbmq_publisher_connect(broker, NULL, &publisher));
    struct pollfd readable = {.fd = rbmq_publisher_fd(publisher), .events = POLLIN};
    OK(rbmq_publisher_topic(publisher, events, NULL, &topic));
    OK(rbmq_subscriber_connect(broker, NULL, &subscriber));
    OK(rbmq_subscriber_subscribe(subscriber, events, NULL));
    rbmq_publisher_event event;
    do {
        CHECK(poll(&readable, 1, 60000) == 1);
        OK(rbmq_publisher_next_event(publisher, &event, RB_NO_WAIT));
    } while (event.kind != RBMQ_PUBLISHER_SUBSCRIBERS || event.count != 1);
    CHECK(!strcmp(event.topic, events));
    OK(rbmq_topic_free(topic));
    OK(rbmq_subscriber_unsubscribe(subscriber, events));
    OK(rbmq_subscriber_free(subscriber));
    OK(rbmq_publisher_free(publisher));
}

static const rbmq_topic_stats *stats_of(rbmq_observer *observer, const char *filter, size_t *count) {
    const rbmq_topic_stats *topics;
    OK(rbmq_observer_topics(observer, filter, &topics, count));
    return topics;
}

// The state of the broker, of a topic, and of its subscription.
static void observing(void) {
    rbmq_publisher *publisher;
    rbmq_subscriber *subscriber;
    rbmq_topic *topic;
    rbmq_observer *observer;
    rbmq_broker_summary summary;
    const rbmq_buffer_stats *buffers;
    size_t count;
    rbmq_subscriber_options options = {.size = sizeof options, .name = "watched", .slow = RBMQ_SLOW_DROP};
    OK(rbmq_publisher_connect(broker, NULL, &publisher));
    OK(rbmq_publisher_topic(publisher, observed, NULL, &topic));
    OK(rbmq_subscriber_connect(broker, &options, &subscriber));
    OK(rbmq_subscriber_subscribe(subscriber, observed, NULL));
    OK(rbmq_topic_wait_subscribers(topic, 1, WAIT));
    uint64_t end;
    OK(rbmq_topic_publish(topic, "hello", 5, WAIT, &end));
    OK(rbmq_topic_flush(topic, WAIT));

    OK(rbmq_observer_connect(broker, NULL, &observer));
    OK(rbmq_observer_summary(observer, &summary));
    CHECK(summary.topics >= 1 && summary.observers >= 1 && summary.version[0] != 0);
    CHECK(stats_of(observer, "nothing/#", &count) && count == 0);
    const rbmq_topic_stats *topics = stats_of(observer, observed, &count);
    CHECK(count == 1 && !strcmp(topics[0].topic, observed) && topics[0].subscribers == 1 && topics[0].publishers == 1);
    OK(rbmq_observer_topic(observer, observed, &buffers, &count));
    CHECK(count == 1 && buffers[0].head == end && buffers[0].stage == RBMQ_STAGE_LIVE && buffers[0].connected);
    CHECK(buffers[0].framing == RBMQ_FRAMING_RECORDS && buffers[0].subscriptions_count == 1);
    CHECK(!strcmp(buffers[0].subscriptions[0].client, "watched") && buffers[0].subscriptions[0].policy == RB_POLICY_DROP);
    FAILS(rbmq_observer_topic(observer, "", &buffers, &count), RB_ERR_NAME, "");
    FAILS(rbmq_observer_topics(observer, NULL, NULL, &count), RB_ERR_NULL, "the place for the rows is NULL");
    OK(rbmq_observer_free(observer));
    FAILS(rbmq_observer_summary(observer, &summary), RB_ERR_FREED, "the observer was freed");
    OK(rbmq_subscriber_free(subscriber));
    OK(rbmq_topic_free(topic));
    OK(rbmq_publisher_free(publisher));
}

// The levels of the disk, in a topic that the broker keeps and in another one.
static void disk(void) {
    rbmq_publisher *publisher;
    rbmq_topic *topic, *plain;
    rbmq_confirmed confirmed;
    uint64_t end, position;
    char failure[8];
    size_t len;
    rbmq_topic_options options = {.size = sizeof options, .ring_bytes = 1 << 16};
    OK(rbmq_publisher_connect(broker, NULL, &publisher));
    OK(rbmq_publisher_topic(publisher, kept, &options, &topic));
    OK(rbmq_topic_publish(topic, "kept", 4, WAIT, &end));
    OK(rbmq_topic_confirm(topic, end, RBMQ_LEVEL_STORED, WAIT, &confirmed));
    CHECK(confirmed.level == RBMQ_LEVEL_STORED && confirmed.position >= end && confirmed.subscribers == 0);
    rbmq_confirmation *confirmation;
    OK(rbmq_topic_confirmation(topic, end, RBMQ_LEVEL_SYNCED, &confirmation));
    OK(rbmq_confirmation_wait(confirmation, &confirmed, WAIT));
    OK(rbmq_confirmation_free(confirmation));
    OK(rbmq_topic_confirmed(topic, RBMQ_LEVEL_SYNCED, &position));
    CHECK(position >= end);
    OK(rbmq_topic_disk_failure(topic, failure, sizeof failure, &len));
    CHECK(len == 0 && failure[0] == 0);
    OK(rbmq_publisher_topic(publisher, observed, NULL, &plain));
    OK(rbmq_topic_publish(plain, "memory", 6, WAIT, &end));
    FAILS(rbmq_topic_confirm(plain, end, RBMQ_LEVEL_STORED, WAIT, NULL), RB_ERR_REFUSED, "keep = true");
    FAILS(rbmq_topic_confirm(plain, end, RBMQ_LEVEL_ARCHIVED, WAIT, NULL), RB_ERR_REFUSED, "keep = true");
    FAILS(rbmq_topic_confirm(plain, end, 6, WAIT, NULL), RB_ERR_ARGUMENT, "6 is no level");
    OK(rbmq_topic_free(plain));
    OK(rbmq_topic_free(topic));
    OK(rbmq_publisher_free(publisher));
}

struct got {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    rbmq_subscriber *subscriber;
    int messages, statuses;
    rb_status last;
    char text[8];
};

static void note(struct got *got, rb_status status, const rbmq_message *message) {
    pthread_mutex_lock(&got->lock);
    if (message) memcpy(got->text, message->data, message->len < sizeof got->text ? message->len : sizeof got->text);
    got->messages += message != NULL;
    got->statuses += message == NULL;
    got->last = status;
    pthread_cond_signal(&got->changed);
    pthread_mutex_unlock(&got->lock);
}

static void wait_got(struct got *got, int messages, int statuses) {
    pthread_mutex_lock(&got->lock);
    while (got->messages < messages || got->statuses < statuses) pthread_cond_wait(&got->changed, &got->lock);
    CHECK(got->messages == messages && got->statuses == statuses);
    pthread_mutex_unlock(&got->lock);
}

static void on_message(void *ctx, rb_status status, const rbmq_message *message) {
    ENTER(ctx);
    CHECK((status == RB_OK) == (message != NULL));
    note(ctx, status, message);
    LEAVE(ctx);
}

static void unset_itself(void *ctx, rb_status status, const rbmq_message *message) {
    struct got *got = ctx;
    ENTER(ctx);
    // The thread of the callback ends before it sees the interrupt.
    OK(rbmq_subscriber_interrupt(got->subscriber));
    OK(rbmq_subscriber_unset_message_cb(got->subscriber));
    note(got, status, message);
    LEAVE(ctx);
}

static void free_itself(void *ctx, rb_status status, const rbmq_message *message) {
    struct got *got = ctx;
    ENTER(ctx);
    OK(rbmq_subscriber_free(got->subscriber));
    note(got, status, message);
    LEAVE(ctx);
}

static void *receive(void *subscriber) {
    rbmq_message message;
    FAILS(rbmq_subscriber_recv(subscriber, &message, RB_NO_LIMIT), RB_ERR_INTERRUPTED, "another thread ended the wait");
    return NULL;
}

// Messages by a callback; a wait that another thread ends.
static void by_callback(void) {
    struct got got = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    rbmq_publisher *publisher;
    rbmq_topic *topic;
    rbmq_subscriber *subscriber;
    rbmq_message message;
    pthread_t thread;
    OK(rbmq_publisher_connect(broker, NULL, &publisher));
    OK(rbmq_publisher_topic(publisher, called, NULL, &topic));
    rbmq_subscriber_options ends = {.size = sizeof ends, .until_ended = true};
    OK(rbmq_subscriber_connect(broker, &ends, &subscriber));
    OK(rbmq_subscriber_subscribe(subscriber, called, NULL));
    OK(rbmq_topic_wait_subscribers(topic, 1, WAIT));
    OK(pthread_create(&thread, NULL, receive, subscriber));
    OK(rbmq_subscriber_interrupt(subscriber));
    OK(pthread_join(thread, NULL));

    FAILS(rbmq_subscriber_set_message_cb(subscriber, NULL, NULL), RB_ERR_NULL, "the callback is NULL");
    got.subscriber = subscriber;
    LEAVE(&got);
    OK(rbmq_subscriber_set_message_cb(subscriber, on_message, &got));
    FAILS(rbmq_subscriber_set_message_cb(subscriber, on_message, &got), RB_ERR_BUSY, "a callback gets");
    FAILS(rbmq_subscriber_recv(subscriber, &message, WAIT), RB_ERR_BUSY, "a callback gets");
    OK(rbmq_topic_publish(topic, "one", 3, WAIT, NULL));
    wait_got(&got, 1, 0);
    OK(rbmq_subscriber_interrupt(subscriber));
    wait_got(&got, 1, 1);
    CHECK(got.last == RB_ERR_INTERRUPTED && !strcmp(got.text, "one"));
    OK(rbmq_subscriber_unset_message_cb(subscriber));
    OK(rbmq_subscriber_unset_message_cb(subscriber));
    ENTER(&got);
    OK(rbmq_topic_publish(topic, "two", 3, WAIT, NULL));
    OK(rbmq_subscriber_recv(subscriber, &message, WAIT));
    CHECK(message.len == 3 && !memcmp(message.data, "two", 3));

    LEAVE(&got);
    OK(rbmq_subscriber_set_message_cb(subscriber, unset_itself, &got));
    OK(rbmq_topic_publish(topic, "three", 5, WAIT, NULL));
    wait_got(&got, 2, 1);
    OK(rbmq_topic_publish(topic, "four", 4, WAIT, NULL));
    FAILS(rbmq_subscriber_recv(subscriber, &message, WAIT), RB_ERR_INTERRUPTED, "another thread ended the wait");
    OK(rbmq_subscriber_recv(subscriber, &message, WAIT));
    CHECK(message.len == 4 && !memcmp(message.data, "four", 4));

    LEAVE(&got);
    OK(rbmq_subscriber_set_message_cb(subscriber, on_message, &got));
    OK(rbmq_topic_close(topic, WAIT));
    wait_got(&got, 2, 2);
    CHECK(got.last == RB_END);
    OK(rbmq_subscriber_close(subscriber, WAIT));
    FAILS(rbmq_subscriber_interrupt(subscriber), RB_ERR_FREED, "the subscriber was freed");

    OK(rbmq_publisher_topic(publisher, called, NULL, &topic));
    OK(rbmq_subscriber_connect(broker, NULL, &got.subscriber));
    OK(rbmq_subscriber_subscribe(got.subscriber, called, NULL));
    OK(rbmq_topic_wait_subscribers(topic, 1, WAIT));
    LEAVE(&got);
    OK(rbmq_subscriber_set_message_cb(got.subscriber, free_itself, &got));
    OK(rbmq_topic_publish(topic, "last", 4, WAIT, NULL));
    wait_got(&got, 3, 2);
    FAILS(rbmq_subscriber_interrupt(got.subscriber), RB_ERR_FREED, "the subscriber was freed");
    FAILS(rbmq_subscriber_interrupt(NULL), RB_ERR_NULL, "the subscriber is NULL");
    OK(rbmq_topic_free(topic));
    OK(rbmq_publisher_close(publisher, WAIT));
}

// Topics of a space share a log, and are received as others: one by one, and in batches of one topic.
static void in_space(void) {
    rbmq_publisher *publisher;
    rbmq_topic *first, *second;
    rbmq_subscriber *subscriber;
    OK(rbmq_publisher_connect(broker, NULL, &publisher));
    OK(rbmq_publisher_topic(publisher, temp, NULL, &first));
    OK(rbmq_publisher_topic(publisher, door, NULL, &second));
    rbmq_subscriber_options receives = {.size = sizeof receives, .confirm_consumed = true};
    OK(rbmq_subscriber_connect(broker, &receives, &subscriber));
    OK(rbmq_subscriber_subscribe(subscriber, temp, NULL));
    OK(rbmq_topic_wait_subscribers(first, 1, WAIT));

    uint64_t end;
    OK(rbmq_topic_publish(second, "open", 4, WAIT, NULL));
    OK(rbmq_topic_publish(first, "21.5", 4, WAIT, NULL));
    OK(rbmq_topic_publish(second, "closed", 6, WAIT, &end));
    rbmq_message message;
    OK(rbmq_subscriber_recv(subscriber, &message, WAIT));
    CHECK(message.len == 4 && !memcmp(message.data, "21.5", 4) && message.publisher >= 0);
    CHECK(message.topic_len == strlen(temp) && !memcmp(message.topic, temp, strlen(temp)));
    CHECK(rbmq_subscriber_recv(subscriber, &message, RB_NO_WAIT) == RB_TIMED_OUT);

    struct iovec many[] = {{"22", 2}, {"23", 2}, {"24", 2}};
    size_t published;
    OK(rbmq_topic_publish_many(first, many, 3, WAIT, &published, &end));
    CHECK(published == 3);
    rbmq_deferred *last = NULL;
    for (size_t got = 0; got < 3;) {
        rbmq_batch batch;
        rbmq_record records[3];
        size_t count;
        OK(rbmq_subscriber_next_batch(subscriber, &batch, WAIT));
        CHECK(batch.topic_len == strlen(temp) && !memcmp(batch.topic, temp, strlen(temp)));
        OK(rbmq_subscriber_batch_records(subscriber, records, 3, &count));
        for (size_t i = 0; i < count; i++, got++) CHECK(records[i].len == 2 && !memcmp(records[i].data, many[got].iov_base, 2));
        if (last) OK(rbmq_deferred_consume(last));
        OK(rbmq_subscriber_batch_defer(subscriber, &last));
    }
    rbmq_confirmed confirmed;
    OK(rbmq_deferred_consume(last));
    OK(rbmq_topic_confirm(second, end, RBMQ_LEVEL_CONSUMED, WAIT, &confirmed));
    CHECK(confirmed.subscribers == 1 && confirmed.position >= end);
    OK(rbmq_topic_close(second, WAIT));
    OK(rbmq_topic_close(first, WAIT));
    OK(rbmq_subscriber_close(subscriber, WAIT));
    OK(rbmq_publisher_close(publisher, WAIT));
}

// A writer of a whole space, in each way to publish.
static void whole_space(void) {
    rbmq_publisher *publisher;
    rbmq_space *space;
    rbmq_subscriber *subscriber;
    char filter[40], elsewhere[40];
    snprintf(filter, sizeof filter, "space/%d/#", getpid());
    snprintf(elsewhere, sizeof elsewhere, "kept/%d", getpid());
    OK(rbmq_publisher_connect(broker, NULL, &publisher));
    FAILS(rbmq_publisher_space(publisher, filter, NULL, &space), RB_ERR_REFUSED, "this broker has no such space");
    FAILS(rbmq_publisher_space(publisher, "space/+", NULL, &space), RB_ERR_NAME, "space/+");
    OK(rbmq_publisher_space(publisher, "space/#", NULL, &space));
    CHECK(rbmq_space_contains(space, temp) == 1 && rbmq_space_contains(space, elsewhere) == 0);
    CHECK(rbmq_space_covers(space, filter) == 1 && rbmq_space_covers(space, "#") == 0);
    CHECK(rbmq_space_contains(space, "a/#") == RB_ERR_NAME && rbmq_space_contains(NULL, temp) == RB_ERR_NULL);
    rbmq_subscriber_options receives = {.size = sizeof receives, .confirm_consumed = true};
    OK(rbmq_subscriber_connect(broker, &receives, &subscriber));
    OK(rbmq_subscriber_subscribe(subscriber, filter, NULL));
    OK(rbmq_space_wait_subscribers(space, 1, WAIT));

    uint64_t end, confirmed_end;
    rbmq_property unit = {"unit", 4, "C", 1};
    rbmq_attributes given = {.size = sizeof given, .reply_to = "answers", .reply_to_len = 7, .properties = &unit, .properties_count = 1};
    OK(rbmq_space_publish_to(space, temp, &given, "21.5", 4, WAIT, NULL));
    OK(rbmq_space_publish_to(space, door, NULL, "open", 4, WAIT, NULL));
    FAILS(rbmq_space_publish_to(space, elsewhere, NULL, "x", 1, WAIT, NULL), RB_ERR_NAME, "is not in the space 'space/#'");
    FAILS(rbmq_space_publish_to(space, "", NULL, "x", 1, WAIT, NULL), RB_ERR_NAME, "");
    given.topic = door, given.topic_len = strlen(door);
    FAILS(rbmq_space_publish_to(space, temp, &given, "x", 1, WAIT, NULL), RB_ERR_ARGUMENT, "the call says the topic");
    given.topic = NULL, given.topic_len = 0;
    FAILS(rbmq_space_batch_push(space, temp, NULL, "x", 1), RB_ERR_ARGUMENT, "no batch of the space is open");
    OK(rbmq_space_batch(space, 100, WAIT));
    FAILS(rbmq_space_publish_to(space, temp, NULL, "x", 1, WAIT, NULL), RB_ERR_BUSY, "a batch of the space is open");
    OK(rbmq_space_batch_push(space, temp, NULL, "dropped", 7));
    OK(rbmq_space_batch_cancel(space));
    OK(rbmq_space_batch(space, 100, WAIT));
    OK(rbmq_space_batch_push(space, temp, &given, "22", 2));
    OK(rbmq_space_batch_push(space, door, NULL, "closed", 6));
    char large[200] = {0};
    CHECK(rbmq_space_batch_push(space, temp, NULL, large, sizeof large) == RB_FULL);
    OK(rbmq_space_batch_deliver(space, &end));

    // The topic is the message's own, and so are its attributes.
    const char *topics[] = {temp, door, temp, door}, *expected[] = {"21.5", "open", "22", "closed"};
    rbmq_message message;
    for (int i = 0; i < 4; i++) {
        OK(rbmq_subscriber_recv(subscriber, &message, WAIT));
        CHECK(message.len == strlen(expected[i]) && !memcmp(message.data, expected[i], message.len));
        CHECK(message.topic_len == strlen(topics[i]) && !memcmp(message.topic, topics[i], message.topic_len));
        rbmq_attributes read;
        rbmq_property property;
        size_t count;
        OK(rbmq_attributes_read(message.attributes, message.attributes_len, &read));
        OK(rbmq_attributes_properties(message.attributes, message.attributes_len, &property, 1, &count));
        CHECK(read.reply_to_len == (i % 2 ? 0u : 7u) && count == (i % 2 ? 0u : 1u));
        CHECK(i % 2 || (!memcmp(read.reply_to, "answers", 7) && property.value_len == 1 && *property.value == 'C'));
    }
    CHECK(rbmq_subscriber_recv(subscriber, &message, RB_NO_WAIT) == RB_TIMED_OUT);
    rbmq_confirmed confirmed;
    rbmq_confirmation *confirmation;
    OK(rbmq_space_confirmation(space, end, RBMQ_LEVEL_CONSUMED, &confirmation));
    OK(rbmq_space_confirm(space, end, RBMQ_LEVEL_CONSUMED, WAIT, &confirmed));
    CHECK(confirmed.subscribers == 1 && confirmed.position >= end);
    OK(rbmq_confirmation_wait(confirmation, NULL, WAIT));
    OK(rbmq_confirmation_free(confirmation));
    OK(rbmq_space_confirmed(space, RBMQ_LEVEL_CONSUMED, &confirmed_end));
    uint64_t from = 1, to = 1;
    size_t len;
    OK(rbmq_space_accept_lost(space, RBMQ_LEVEL_CONSUMED, &from, &to));
    OK(rbmq_space_disk_failure(space, NULL, 0, &len));
    rbmq_topic_info info;
    OK(rbmq_space_get_info(space, &info));
    CHECK(confirmed_end >= end && from == 0 && to == 0 && len == 0 && info.position == end && info.subscribers == 1);
    CHECK(info.max_delivery_bytes > 0);

    // A topic of the space shares the log, and outlives the writer of the space.
    rbmq_topic *topic;
    OK(rbmq_publisher_topic(publisher, door, NULL, &topic));
    OK(rbmq_space_batch(space, 100, WAIT));
    OK(rbmq_space_batch_push(space, temp, NULL, "never", 5));
    OK(rbmq_space_free(space));
    OK(rbmq_space_free(NULL));
    OK(rbmq_publisher_space(publisher, "space/#", NULL, &space));
    OK(rbmq_space_publish_to(space, temp, NULL, "23", 2, WAIT, NULL));
    OK(rbmq_space_flush(space, WAIT));
    OK(rbmq_space_close(space, WAIT));
    FAILS(rbmq_space_flush(space, WAIT), RB_ERR_FREED, "");
    OK(rbmq_topic_publish(topic, "open", 4, WAIT, NULL));
    OK(rbmq_subscriber_recv(subscriber, &message, WAIT));
    CHECK(message.len == 2 && !memcmp(message.data, "23", 2));
    OK(rbmq_subscriber_recv(subscriber, &message, WAIT));
    CHECK(message.topic_len == strlen(door) && !memcmp(message.topic, door, message.topic_len));
    OK(rbmq_topic_close(topic, WAIT));
    OK(rbmq_subscriber_close(subscriber, WAIT));
    OK(rbmq_publisher_close(publisher, WAIT));
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    broker = argv[1];
    snprintf(kept, sizeof kept, "kept/%d", getpid());
    snprintf(news, sizeof news, "c%d/news", getpid());
    snprintf(grown, sizeof grown, "c/%d/large", getpid());
    snprintf(called, sizeof called, "c/%d/called", getpid());
    snprintf(all, sizeof all, "c%d/+", getpid());
    snprintf(raw, sizeof raw, "c/%d/raw", getpid());
    snprintf(says, sizeof says, "c/%d/says", getpid());
    snprintf(events, sizeof events, "c/%d/events", getpid());
    snprintf(temp, sizeof temp, "space/%d/temp", getpid());
    snprintf(door, sizeof door, "space/%d/door", getpid());
    snprintf(observed, sizeof observed, "c/%d/observed", getpid());
    snprintf(in_place, sizeof in_place, "c/%d/filled", getpid());
    publish_and_receive();
    any_size();
    attributes();
    claimed();
    raw_bytes();
    publisher_events();
    observing();
    disk();
    by_callback();
    in_space();
    whole_space();
    puts("rbmq: ok");
    return 0;
}
