// Random calls with random handles: of every kind in every place, NULL, freed, closed, made up, from several threads at once. Each call
// returns a status; nothing crashes, and no call says that the library has a bug. The second argument is a seed, the third the number
// of calls of a thread.

#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, KEPT = 16, SHORT = 2 };

// Everything here is a pointer that a call may take.
typedef enum {
    CONTEXT, CONN, LISTENER, ROUT, BUFFER, RIN, SUBSCRIPTION, BUDGET, RATE_LIMIT, PUBLISHER, CONFIRMATION, QUEUE, MAILBOX, SHARED_KINDS,
    CONFIG = SHARED_KINDS, WRITER, VIEW, READER, TOPIC, SUBSCRIBER, DEFERRED, OBSERVER, WORKER, GROUP_MESSAGE,
    GROUPS, KINDS
} kind;

static const char *broker;
static char address[64];

// The handles that threads have in common, and those of one thread: a writer and its like must not be used by two at once.
static _Atomic(void *) common[SHARED_KINDS][KEPT];

typedef struct {
    uint64_t state;
    void *own[KINDS][KEPT];
    rb_buf_seg segs[KEPT];
    rbmq_segment claims[KEPT];
    cmq_message messages[KEPT];
    long calls, succeeded;
} fuzzer;

static uint64_t next(fuzzer *f) {
    f->state ^= f->state << 13;
    f->state ^= f->state >> 7;
    f->state ^= f->state << 17;
    return f->state >> 11;
}

static unsigned below(fuzzer *f, unsigned limit) { return (unsigned)(next(f) % limit); }

// A handle that a call is given: mostly of the right kind.
static void *any(fuzzer *f, kind of) {
    if (below(f, 16) == 0) {
        static const uintptr_t odd[] = {0, 1, 42, UINTPTR_MAX, UINTPTR_MAX / 2};
        if (below(f, 2)) return (void *)odd[below(f, 5)];
        // As a handle looks that no thread has: one of another thread's would be a wrong use that the library cannot see.
        uintptr_t made_up = (uintptr_t)(1 + below(f, 40)) << 56 | UINT64_C(0xabcdef) << 32 | below(f, 200);
        return (void *)made_up;
    }
    if (below(f, 16) == 0) of = (kind)below(f, KINDS);
    return of < SHARED_KINDS ? common[of][below(f, KEPT)] : f->own[of][below(f, KEPT)];
}

static rb_status let_go(kind of, void *handle) {
    switch (of) {
    case CONFIG: return rb_config_free(handle);
    case CONN: return rb_conn_free(handle);
    case ROUT: return rb_rout_free(handle);
    case BUFFER: return rb_buffer_free(handle);
    case RIN: return rb_rin_free(handle);
    case SUBSCRIPTION: return rb_subscription_free(handle);
    case BUDGET: return rb_budget_free(handle);
    case RATE_LIMIT: return rb_rate_limit_free(handle);
    case PUBLISHER: return rbmq_publisher_free(handle);
    case CONFIRMATION: return rbmq_confirmation_free(handle);
    case QUEUE: return cmq_free(handle);
    case MAILBOX: return cmq_mailbox_free(handle);
    case WRITER: return rb_writer_free(handle);
    case VIEW: return rb_view_free(handle);
    case READER: return rb_reader_free(handle);
    case TOPIC: return rbmq_topic_free(handle);
    case SUBSCRIBER: return rbmq_subscriber_free(handle);
    case DEFERRED: return rbmq_deferred_free(handle);
    case OBSERVER: return rbmq_observer_free(handle);
    case WORKER: return rbmq_group_worker_free(handle);
    case GROUP_MESSAGE: return rbmq_group_message_free(handle);
    case GROUPS: return rbmq_groups_free(handle);
    // The context and the listener go on: without them every call would fail.
    default: return RB_OK;
    }
}

// Keeps a handle in the place of another one, which is freed, and what it is a handle of is ended: other threads may use it.
static void keep(fuzzer *f, kind of, void *handle) {
    unsigned at = below(f, KEPT);
    void *before;
    if (of < SHARED_KINDS) before = atomic_exchange(&common[of][at], handle);
    else before = f->own[of][at], f->own[of][at] = handle;
    if (of == BUFFER) rb_buffer_destroy(before, NULL);
    if (of == CONN) rb_conn_close(before, "another one");
    if (of == SUBSCRIPTION) rb_subscription_unsubscribe(before);
    let_go(of, before);
}

static bool note(fuzzer *f, int status, const char *call) {
    f->calls++;
    if (status == RB_ERR_BUG || status < RB_ERR_IN_VAIN || status > RB_END) {
        fprintf(stderr, "%s: %d (%s)\n", call, status, rb_last_error());
        abort();
    }
    CHECK(*rb_strerror(status));
    if (status < 0) CHECK(*rb_last_error());
    f->succeeded += status == RB_OK;
    return status == RB_OK;
}
static void note_number(fuzzer *f, int number, const char *call) { note(f, number < 0 ? number : RB_OK, call); }
#define CALL(f, call) note(f, call, #call)
// A call that returns a number, or a status below 0.
#define COUNT(f, call) note_number(f, call, #call)
#define TIMEOUT(f) (below(f, 4) ? RB_NO_WAIT : (int64_t)below(f, SHORT) * RB_MS)
#define H(f, of) any(f, of)

static void on_conn(void *ctx, rb_conn *conn) {
    rb_rout_add_conn(ctx, conn);
    rb_conn_free(conn);
}
static void on_data(void *ctx, uint32_t bid, const rb_buf_seg *seg) {
    rb_rin_data_consumed(ctx, bid, seg->len);
}
static void on_event(void *ctx, const rb_in_event *event) {
    (void)ctx;
    CHECK(event->kind != RB_IN_DATA);
}
static bool is_odd(void *ctx, const cmq_message *message) {
    (void)ctx;
    return message->len % 2;
}

static void make(fuzzer *f) {
    void *made = NULL;
    switch (below(f, 14)) {
    case 0: if (CALL(f, rb_config_new((rb_config **)&made))) keep(f, CONFIG, made); break;
    case 1: if (CALL(f, rb_conn_connect_start(H(f, CONTEXT), address, "x", below(f, 2), (rb_conn **)&made))) keep(f, CONN, made); break;
    case 2: if (CALL(f, rb_rout_new(H(f, CONTEXT), (rb_rout **)&made))) keep(f, ROUT, made); break;
    case 3: if (CALL(f, rb_rout_create_buffer(H(f, ROUT), below(f, 8), 1 << (12 + below(f, 8)), (rb_buffer **)&made))) keep(f, BUFFER, made); break;
    case 4: if (CALL(f, rb_rout_buffer(H(f, ROUT), below(f, 8), (rb_buffer **)&made))) keep(f, BUFFER, made); break;
    case 5: if (CALL(f, rb_rin_new(H(f, CONN), (rb_rin **)&made))) keep(f, RIN, made); break;
    case 6: if (CALL(f, rb_rin_subscribe(H(f, RIN), below(f, 8), 1 << 16, (rb_subscription **)&made))) keep(f, SUBSCRIPTION, made); break;
    case 7: if (CALL(f, rb_buffer_writer(H(f, BUFFER), (rb_writer **)&made))) keep(f, WRITER, made); break;
    case 8: if (CALL(f, rb_rin_reader(H(f, RIN), (rb_reader **)&made))) keep(f, READER, made); break;
    case 9: if (CALL(f, rb_rout_splice_as(H(f, ROUT), H(f, RIN), below(f, 8), below(f, 8), (rb_buffer **)&made))) keep(f, BUFFER, made); break;
    case 10: if (CALL(f, rb_budget_new(below(f, 1 << 20), (rb_budget **)&made))) keep(f, BUDGET, made); break;
    case 11: if (CALL(f, rb_rate_limit_new((uint64_t)below(f, 4) << 20, below(f, 1 << 20), (rb_rate_limit **)&made))) keep(f, RATE_LIMIT, made); break;
    case 12: if (CALL(f, cmq_mailbox_open(H(f, QUEUE), below(f, 4), (cmq_mailbox **)&made))) keep(f, MAILBOX, made); break;
    default: if (CALL(f, rb_rin_conn(H(f, RIN), (rb_conn **)&made))) keep(f, CONN, made); break;
    }
}

// Clients are slow to make, since they connect to the broker.
static void make_clients(fuzzer *f) {
    void *made = NULL;
    char topic[16];
    // The broker keeps half of these topics, as groups want them.
    snprintf(topic, sizeof topic, "%s/%u", below(f, 2) ? "fuzz" : "kept", below(f, 4));
    rbmq_topic_options options = {.size = sizeof options, .ring_bytes = 1 << 16};
    cmq_reliable soon = {.size = sizeof soon, .give_up_ns = 100 * RB_MS, .idle_ns = 3 * RB_S};
    cmq_options deliver = {.size = sizeof deliver, .reliable = &soon};
    rbmq_group_options few = {.size = sizeof few, .credit = below(f, 4), .ack_time_ns = (int64_t)below(f, 50) * RB_MS};
    switch (below(f, 10)) {
    case 0: if (below(f, 8) == 0 && CALL(f, rbmq_publisher_connect(broker, NULL, (rbmq_publisher **)&made))) keep(f, PUBLISHER, made); break;
    case 1: if (below(f, 8) == 0 && CALL(f, rbmq_subscriber_connect(broker, NULL, (rbmq_subscriber **)&made))) keep(f, SUBSCRIBER, made); break;
    case 2: if (below(f, 8) == 0 && CALL(f, rbmq_observer_connect(broker, NULL, (rbmq_observer **)&made))) keep(f, OBSERVER, made); break;
    case 3: if (CALL(f, rbmq_publisher_topic(H(f, PUBLISHER), topic, &options, (rbmq_topic **)&made))) keep(f, TOPIC, made); break;
    case 4: CALL(f, rbmq_subscriber_subscribe(H(f, SUBSCRIBER), topic, NULL)); break;
    case 5: if (CALL(f, rbmq_topic_confirmation(H(f, TOPIC), below(f, 100), below(f, 7), (rbmq_confirmation **)&made))) keep(f, CONFIRMATION, made); break;
    case 6: if (CALL(f, rbmq_subscriber_batch_defer(H(f, SUBSCRIBER), (rbmq_deferred **)&made))) keep(f, DEFERRED, made); break;
    case 7: if (below(f, 8) == 0 && CALL(f, rbmq_group_join(broker, topic, "g", &few, (rbmq_group_worker **)&made))) keep(f, WORKER, made); break;
    case 8: if (below(f, 8) == 0 && CALL(f, rbmq_groups_connect(broker, NULL, (rbmq_groups **)&made))) keep(f, GROUPS, made); break;
    default: if (CALL(f, cmq_new_rq("127.0.0.1:0", below(f, 2) ? &deliver : NULL, (cmq_queue **)&made))) keep(f, QUEUE, made); break;
    }
}

static void write_some(fuzzer *f) {
    static const char bytes[5000];
    uint64_t end;
    size_t count;
    rb_buf_seg *seg = &f->segs[below(f, KEPT)];
    struct iovec pieces[3] = {{(void *)(uintptr_t)bytes, below(f, 100)}, {NULL, 0}, {(void *)(uintptr_t)bytes, below(f, 5000)}};
    switch (below(f, 10)) {
    case 0: CALL(f, rb_writer_append(H(f, WRITER), below(f, 8) ? bytes : NULL, below(f, 5000), TIMEOUT(f), &end)); break;
    case 1: CALL(f, rb_writer_appendv(H(f, WRITER), pieces, below(f, 4), TIMEOUT(f), NULL)); break;
    case 2: CALL(f, rb_writer_append_many(H(f, WRITER), pieces, below(f, 4), TIMEOUT(f), &count, &end)); break;
    // A segment that is overwritten is lost, as a program may lose it.
    case 3: CALL(f, rb_buffer_segment(H(f, BUFFER), below(f, 3000), TIMEOUT(f), seg)); break;
    case 4: CALL(f, rb_writer_segment(H(f, WRITER), below(f, 3000), TIMEOUT(f), seg)); break;
    case 5: CALL(f, rb_rout_get_output_segment(H(f, ROUT), below(f, 8), below(f, 3000), false, seg)); break;
    case 6: CALL(f, rb_buffer_deliver(H(f, BUFFER), seg, below(f, 3000), NULL, &end)); break;
    case 7: CALL(f, rb_writer_deliver(H(f, WRITER), seg, below(f, 4) ? seg->len : 0, f, NULL)); break;
    case 8: CALL(f, rb_rout_deliver(H(f, ROUT), seg, below(f, 3000), f, &end)); break;
    default: if (seg->vecs && seg->len) memset(&end, 0, sizeof end); break;
    }
}

static void read_some(fuzzer *f) {
    rb_in_event event;
    rb_data data;
    bool has_event;
    char text[32];
    size_t len;
    switch (below(f, 12)) {
    case 0: if (CALL(f, rb_rin_recv(H(f, RIN), &event, TIMEOUT(f))) && event.kind == RB_IN_DATA) keep(f, VIEW, event.data.view); break;
    case 1: if (CALL(f, rb_subscription_recv(H(f, SUBSCRIPTION), &event, TIMEOUT(f))) && event.kind == RB_IN_DATA) keep(f, VIEW, event.data.view); break;
    case 2: CALL(f, rb_reader_recv(H(f, READER), below(f, 8) ? on_data : NULL, NULL, &event, &has_event, TIMEOUT(f))); break;
    case 3: CALL(f, rb_view_consume(H(f, VIEW))); break;
    case 4: CALL(f, rb_view_consume_part(H(f, VIEW), below(f, 10000))); break;
    case 5: CALL(f, rb_view_consume_up_to(H(f, VIEW), below(f, 10000))); break;
    case 6: CALL(f, rb_view_copy(H(f, VIEW), below(f, 64), text, below(f, sizeof text))); break;
    case 7: CALL(f, rb_view_data(H(f, VIEW), &data)); break;
    case 8: if (CALL(f, rb_rin_get_buf_ref(H(f, RIN), below(f, 8), &data))) keep(f, VIEW, data.view); break;
    case 9: CALL(f, rb_rin_data_consumed(H(f, RIN), below(f, 8), below(f, 1000))); break;
    case 10: CALL(f, rb_subscription_consume(H(f, SUBSCRIPTION), below(f, 1000))); break;
    default: CALL(f, rb_conn_peer_addr(H(f, CONN), text, below(f, sizeof text), &len)); break;
    }
}

static void ask(fuzzer *f) {
    rb_out_event out;
    rb_down down;
    rb_buffer_info info;
    rb_subscriber_info infos[2];
    rb_subscription_info subscription;
    rb_confirmed_positions confirmed;
    uint64_t number, other;
    uint32_t bid, bids[4];
    size_t count;
    char text[100];
    rb_peer_identity identity;
    rb_rate_limit_info limit;
    switch (below(f, 22)) {
    case 0: CALL(f, rb_rout_recv_event(H(f, ROUT), &out, TIMEOUT(f))); break;
    case 1: CALL(f, rb_conn_wait_down(H(f, CONN), &down, TIMEOUT(f))); break;
    case 2: CALL(f, rb_conn_wait_up(H(f, CONN), TIMEOUT(f))); break;
    case 3: CALL(f, rb_buffer_get_info(H(f, BUFFER), &info)); break;
    case 4: CALL(f, rb_buffer_subscribers(H(f, BUFFER), infos, below(f, 3), &count)); break;
    case 5: CALL(f, rb_subscription_get_info(H(f, SUBSCRIPTION), &subscription)); break;
    case 6: CALL(f, rb_buffer_confirmed(H(f, BUFFER), &confirmed)); break;
    case 7: CALL(f, rb_buffer_wait(H(f, BUFFER), below(f, 5), below(f, 1000), TIMEOUT(f))); break;
    case 8: CALL(f, rb_buffer_drain(H(f, BUFFER), TIMEOUT(f))); break;
    case 9: CALL(f, rb_rout_buffers(H(f, ROUT), bids, below(f, 5), &count)); break;
    case 10: CALL(f, rb_rin_subscriptions(H(f, RIN), bids, below(f, 5), &count)); break;
    case 11: CALL(f, rb_writer_info(H(f, WRITER), &number, &other)); break;
    case 12: CALL(f, rb_budget_info(H(f, BUDGET), &number, &other)); break;
    case 13: CALL(f, rb_config_to_toml(H(f, CONFIG), text, below(f, sizeof text), &count)); break;
    case 14: COUNT(f, rb_rin_fd(H(f, RIN))); break;
    case 15: COUNT(f, rb_rout_fd(H(f, ROUT))); break;
    case 16: CALL(f, rb_buffer_bid(H(f, BUFFER), &bid)); break;
    case 17: CALL(f, rb_conn_peer_identity(H(f, CONN), &identity)); break;
    case 18: CALL(f, rb_conn_peer_certificate(H(f, CONN), text, below(f, sizeof text), &count)); break;
    case 19: CALL(f, rb_rate_limit_get_info(H(f, RATE_LIMIT), &limit)); break;
    case 20: COUNT(f, rb_context_is_rate_limit_full(H(f, CONTEXT), H(f, RATE_LIMIT))); break;
    default: CALL(f, rb_conn_send_control(H(f, CONN), "control", below(f, 8))); break;
    }
}

static bool decide(void *ctx, const rb_asking *asking, rb_admitted *admitted) {
    (void)ctx;
    admitted->policies = asking->bid;
    return asking->bid != 7;
}

static void callbacks(fuzzer *f) {
    void *rin = H(f, RIN);
    const rb_rate_limit *limits[2] = {H(f, RATE_LIMIT), H(f, RATE_LIMIT)};
    switch (below(f, 14)) {
    case 0: CALL(f, rb_rin_set_data_in_cb(rin, below(f, 8) ? on_data : NULL, rin)); break;
    case 1: CALL(f, rb_rin_unset_data_in_cb(rin)); break;
    case 2: CALL(f, rb_rin_set_event_cb(rin, on_event, NULL)); break;
    case 3: CALL(f, rb_rin_unset_event_cb(rin)); break;
    case 4: CALL(f, rb_listener_set_conn_cb(H(f, LISTENER), on_conn, common[ROUT][below(f, KEPT)])); break;
    case 5: CALL(f, rb_rout_add_conn(H(f, ROUT), H(f, CONN))); break;
    case 6: CALL(f, rb_buffer_notify_room(H(f, BUFFER))); break;
    case 7: CALL(f, rb_conn_set_rate_limits(H(f, CONN), limits, below(f, 3), below(f, 8) ? limits : NULL, below(f, 3))); break;
    case 8: CALL(f, rb_conn_set_rate_limits(H(f, CONN), NULL, 0, NULL, 0)); break;
    case 9: CALL(f, rb_rate_limit_set(H(f, RATE_LIMIT), (uint64_t)below(f, 4) << 20, below(f, 1 << 20))); break;
    case 10: CALL(f, rb_rout_set_admission(H(f, ROUT), below(f, 8) ? decide : NULL, NULL)); break;
    case 11: CALL(f, rb_rout_unset_admission(H(f, ROUT))); break;
    case 12: CALL(f, rb_rout_review_admissions(H(f, ROUT))); break;
    default: CALL(f, rb_rin_resume(rin, H(f, CONN))); break;
    }
}

static void topics(fuzzer *f) {
    static const char bytes[3000];
    uint64_t end;
    rbmq_confirmed confirmed;
    rbmq_topic_info info;
    rbmq_segment *claim = &f->claims[below(f, KEPT)];
    switch (below(f, 14)) {
    case 0: case 1: CALL(f, rbmq_topic_publish(H(f, TOPIC), bytes, below(f, sizeof bytes), TIMEOUT(f), &end)); break;
    case 2: CALL(f, rbmq_topic_batch(H(f, TOPIC), below(f, 5000), TIMEOUT(f))); break;
    case 3: CALL(f, rbmq_topic_batch_push(H(f, TOPIC), bytes, below(f, 300))); break;
    case 4: CALL(f, rbmq_topic_batch_deliver(H(f, TOPIC), &end)); break;
    case 5: CALL(f, rbmq_topic_batch_cancel(H(f, TOPIC))); break;
    case 6: CALL(f, rbmq_topic_confirm(H(f, TOPIC), below(f, 10000), below(f, 7), TIMEOUT(f), &confirmed)); break;
    case 7: CALL(f, rbmq_confirmation_wait(H(f, CONFIRMATION), &confirmed, TIMEOUT(f))); break;
    case 8: CALL(f, rbmq_topic_get_info(H(f, TOPIC), &info)); break;
    case 9: if (!claim->claim) CALL(f, rbmq_topic_claim(H(f, TOPIC), below(f, 3000), TIMEOUT(f), claim)); break;
    case 10: CALL(f, rbmq_topic_publish_segment(H(f, TOPIC), claim, below(f, 2) ? claim->len : below(f, 3000), &end)); break;
    case 11: CALL(f, rbmq_topic_return_segment(H(f, TOPIC), claim)); break;
    case 12: CALL(f, rbmq_segment_free(claim)); break;
    default: CALL(f, rbmq_topic_publish_raw(H(f, TOPIC), bytes, below(f, 10), &end)); break;
    }
}

static void subscribers(fuzzer *f) {
    rbmq_message message;
    rbmq_batch batch;
    rbmq_event event;
    rbmq_record records[4];
    rbmq_broker_summary summary;
    rb_id128 epoch;
    size_t count;
    switch (below(f, 13)) {
    case 0: CALL(f, rbmq_subscriber_recv(H(f, SUBSCRIBER), &message, TIMEOUT(f))); break;
    case 1: CALL(f, rbmq_subscriber_next_batch(H(f, SUBSCRIBER), &batch, TIMEOUT(f))); break;
    case 2: CALL(f, rbmq_subscriber_batch_records(H(f, SUBSCRIBER), records, below(f, 5), &count)); break;
    case 3: CALL(f, rbmq_subscriber_batch_consume(H(f, SUBSCRIBER))); break;
    case 4: CALL(f, rbmq_subscriber_batch_consume_part(H(f, SUBSCRIBER), below(f, 10000))); break;
    case 5: CALL(f, rbmq_subscriber_batch_consume_up_to(H(f, SUBSCRIBER), below(f, 10000))); break;
    case 6: CALL(f, rbmq_subscriber_next_event(H(f, SUBSCRIBER), &event, TIMEOUT(f))); break;
    case 7: COUNT(f, rbmq_subscriber_fd(H(f, SUBSCRIBER))); break;
    case 8: COUNT(f, rbmq_subscriber_ended(H(f, SUBSCRIBER))); break;
    case 9: CALL(f, rbmq_deferred_consume(H(f, DEFERRED))); break;
    case 10: CALL(f, rbmq_deferred_consume_up_to(H(f, DEFERRED), below(f, 10000))); break;
    case 11: CALL(f, rbmq_deferred_epoch(H(f, DEFERRED), &epoch)); break;
    default: CALL(f, rbmq_observer_summary(H(f, OBSERVER), &summary)); break;
    }
}

static void groups(fuzzer *f) {
    void *made = NULL;
    rbmq_group_content content;
    const rbmq_group_stats *rows;
    size_t count;
    int64_t time;
    switch (below(f, 12)) {
    case 0: case 1: if (CALL(f, rbmq_group_worker_recv(H(f, WORKER), (rbmq_group_message **)&made, TIMEOUT(f)))) keep(f, GROUP_MESSAGE, made); break;
    case 2: CALL(f, rbmq_group_worker_flush(H(f, WORKER), TIMEOUT(f))); break;
    case 3: CALL(f, rbmq_group_worker_ack_time(H(f, WORKER), &time)); break;
    case 4: COUNT(f, rbmq_group_worker_is_joined(H(f, WORKER))); break;
    case 5: CALL(f, rbmq_group_message_get(H(f, GROUP_MESSAGE), &content)); break;
    case 6: CALL(f, rbmq_group_message_ack(H(f, GROUP_MESSAGE))); break;
    case 7: CALL(f, rbmq_group_message_nack(H(f, GROUP_MESSAGE), (int64_t)below(f, 50) * RB_MS - RB_MS)); break;
    case 8: CALL(f, rbmq_group_message_extend(H(f, GROUP_MESSAGE), (int64_t)below(f, 50) * RB_MS - RB_MS)); break;
    case 9: CALL(f, rbmq_group_message_release(H(f, GROUP_MESSAGE))); break;
    case 10: CALL(f, rbmq_groups_reset(H(f, GROUPS), "kept/1", "g", below(f, 4), below(f, 1000))); break;
    default: CALL(f, rbmq_groups_list(H(f, GROUPS), &rows, &count)); break;
    }
}

static void queues(fuzzer *f) {
    static const char bytes[3000];
    cmq_message *message = &f->messages[below(f, KEPT)];
    cmq_key key;
    cmq_sender senders[2];
    size_t count;
    memset(&key, (int)below(f, 256), sizeof key);
    if (below(f, 8)) CALL(f, cmq_local_addr(H(f, QUEUE), &key));
    key.id = below(f, 4);
    CALL(f, cmq_message_free(message));
    cmq_message_fate fate;
    cmq_public_key peer;
    switch (below(f, 15)) {
    case 0: case 1: CALL(f, cmq_cw_push(H(f, QUEUE), &key, bytes, below(f, sizeof bytes))); break;
    case 2: CALL(f, cmq_cw_pop(H(f, QUEUE), message)); break;
    case 3: CALL(f, cmq_pop(H(f, QUEUE), message, TIMEOUT(f))); break;
    case 4: CALL(f, cmq_mailbox_pop(H(f, MAILBOX), message, TIMEOUT(f))); break;
    case 5: CALL(f, cmq_pop_where(H(f, QUEUE), below(f, 8) ? is_odd : NULL, NULL, message, TIMEOUT(f))); break;
    case 6: CALL(f, cmq_mailbox_pop_where(H(f, MAILBOX), is_odd, NULL, message, TIMEOUT(f))); break;
    case 7: CALL(f, cmq_senders_at(H(f, QUEUE), &key, senders, below(f, 3), &count)); break;
    case 8: COUNT(f, cmq_fd(H(f, QUEUE))); break;
    case 9: case 10: CALL(f, cmq_push_reliable(H(f, QUEUE), &key, bytes, below(f, sizeof bytes), NULL)); break;
    case 11: CALL(f, cmq_fate(H(f, QUEUE), &key, below(f, 9), &fate, NULL)); break;
    case 12: CALL(f, cmq_wait_confirmed(H(f, QUEUE), &key, below(f, 9), TIMEOUT(f))); break;
    case 13: CALL(f, cmq_peer_key(H(f, QUEUE), &key, &peer)); break;
    default: CALL(f, cmq_flush(H(f, QUEUE))); break;
    }
}

static void end_some(fuzzer *f) {
    uint64_t end;
    kind of = (kind)below(f, KINDS);
    switch (below(f, 10)) {
    case 0: CALL(f, rb_buffer_destroy(H(f, BUFFER), &end)); break;
    case 1: CALL(f, rb_rout_destroy_buffer(H(f, ROUT), below(f, 8), NULL)); break;
    case 2: CALL(f, rb_rin_unsubscribe(H(f, RIN), below(f, 8))); break;
    case 3: CALL(f, rb_conn_close(H(f, CONN), below(f, 4) ? "the fuzzer" : NULL)); break;
    case 4: CALL(f, cmq_mailbox_close(H(f, MAILBOX))); break;
    // Clients are slow to make.
    default: if ((of != PUBLISHER && of != SUBSCRIBER) || below(f, 16) == 0) CALL(f, let_go(of, H(f, of))); break;
    }
}

static long calls;

static void *run(void *of) {
    static void (*const steps[])(fuzzer *) = {make, make, make_clients, write_some, write_some, read_some, read_some, ask, callbacks,
                                              topics, topics, subscribers, subscribers, groups, queues, queues, end_some};
    fuzzer *f = of;
    while (f->calls < calls) steps[below(f, sizeof steps / sizeof *steps)](f);
    // The objects of this thread are freed, so that a leak is the library's.
    for (int i = 0; i < KEPT; i++) {
        for (kind each = SHARED_KINDS; each < KINDS; each++) let_go(each, f->own[each][i]);
        rbmq_segment_free(&f->claims[i]);
        cmq_message_free(&f->messages[i]);
    }
    return NULL;
}

static void set_up(void) {
    rb_context *context;
    rb_listener *listener;
    rb_rout *out;
    rb_config *config;
    OK(rb_config_new(&config));
    // Many rings, many short waits.
    OK(rb_config_set(config, "session.connect_timeout_ms", "200"));
    OK(rb_context_new(config, &context));
    OK(rb_config_free(config));
    OK(rb_rout_new(context, &out));
    OK(rb_listener_bind(context, "127.0.0.1:0", &listener));
    OK(rb_listener_local_addr(listener, address, sizeof address, NULL));
    OK(rb_listener_set_conn_cb(listener, on_conn, out));
    for (int i = 0; i < KEPT; i++) {
        common[CONTEXT][i] = context;
        common[LISTENER][i] = listener;
    }
    common[ROUT][0] = out;
}

int main(int argc, char **argv) {
    static fuzzer fuzzers[THREADS];
    pthread_t threads[THREADS];
    CHECK(argc >= 2);
    broker = argv[argc - 1];
    uint64_t seed = argc > 2 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL) * 4 + 1;
    calls = argc > 3 ? atol(argv[2]) : 4000;
    printf("seed %llu: ", (unsigned long long)seed);
    fflush(stdout);
    set_up();
    for (int i = 0; i < THREADS; i++) {
        fuzzers[i].state = seed * 0x9e3779b97f4a7c15 + (uint64_t)i + 1;
        CHECK(!pthread_create(&threads[i], NULL, run, &fuzzers[i]));
    }
    long all = 0, succeeded = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        all += fuzzers[i].calls;
        succeeded += fuzzers[i].succeeded;
    }
    // Most calls fail, but a fuzzer whose calls all fail tests little.
    CHECK(succeeded > all / 10);
    OK(rb_context_shutdown(common[CONTEXT][0], 0));
    printf("%ld calls, %ld succeeded: ok\n", all, succeeded);
    return 0;
}
