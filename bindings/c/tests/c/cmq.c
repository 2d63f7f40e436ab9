// CMQ in C.

#include "check.h"
#include <poll.h>

static bool is_b(void *ctx, const cmq_message *message) {
    (*(int *)ctx)++;
    return message->len == 1 && *(const char *)message->data == 'b';
}

// The calls of a mailbox that take many messages, and one out of their order.
static void in_a_mailbox(cmq_queue *sender, cmq_mailbox *mailbox, const cmq_key *to) {
    struct iovec three[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    cmq_message messages[3];
    size_t count = 0, waiting;
    uint32_t id;
    int looked = 0;
    CHECK(cmq_mailbox_pop_where(mailbox, is_b, &looked, messages, RB_NO_WAIT) == RB_TIMED_OUT && !looked);
    OK(cmq_cw_push_many(sender, to, three, 3, NULL));
    OK(cmq_mailbox_pop_where(mailbox, is_b, &looked, messages, WAIT));
    CHECK(*(const char *)messages[0].data == 'b' && looked >= 2);
    OK(cmq_message_free(messages));
    while (count < 2) {
        size_t more;
        OK(cmq_mailbox_pop_many(mailbox, messages + count, 3 - count, &more, WAIT));
        count += more;
    }
    CHECK(*(const char *)messages[0].data == 'a' && *(const char *)messages[1].data == 'c');
    OK(cmq_messages_free(messages, count));
    OK(cmq_mailbox_waiting(mailbox, &waiting));
    OK(cmq_mailbox_id(mailbox, &id));
    CHECK(waiting == 0 && id == to->id);
    CHECK(cmq_mailbox_pop_many(mailbox, messages, 3, &count, RB_NO_WAIT) == RB_TIMED_OUT && count == 0);
}

int main(void) {
    cmq_options options = {.size = sizeof options, .preset = CMQ_PRESET_IMMEDIATE};
    cmq_queue *receiver, *sender;
    cmq_key to;
    OK(cmq_new_rq("127.0.0.1:0", NULL, &receiver));
    OK(cmq_new_rq("127.0.0.1:0", &options, &sender));
    OK(cmq_local_addr(receiver, &to));
    char address[64];
    cmq_key parsed;
    OK(cmq_key_format(&to, address, sizeof address, NULL));
    OK(cmq_key_parse(address, 7, &parsed));
    CHECK(parsed.port == to.port && parsed.id == 7 && parsed.family == 4);

    struct pollfd readable = {.fd = cmq_fd(receiver), .events = POLLIN};
    CHECK(readable.fd >= 0 && poll(&readable, 1, 0) == 0);
    cmq_message message;
    CHECK(cmq_cw_pop(receiver, &message) == RB_TIMED_OUT);
    OK(cmq_cw_push(sender, &parsed, "hello", 5));
    CHECK(poll(&readable, 1, 60000) == 1);
    OK(cmq_cw_pop(receiver, &message));
    CHECK(message.len == 5 && !memcmp(message.data, "hello", 5) && message.from.id == 7);
    OK(cmq_message_free(&message));
    OK(cmq_message_free(&message));
    CHECK(cmq_cw_pop(receiver, &message) == RB_TIMED_OUT);
    CHECK(poll(&readable, 1, 0) == 0);

    // The readiness of the descriptor and the pops that empty it, many times.
    for (int i = 0; i < 1000; i++) {
        OK(cmq_cw_push(sender, &parsed, &i, sizeof i));
        CHECK(poll(&readable, 1, 60000) == 1);
        OK(cmq_cw_pop(receiver, &message));
        CHECK(!memcmp(message.data, &i, sizeof i));
        OK(cmq_message_free(&message));
        CHECK(cmq_cw_pop(receiver, &message) == RB_TIMED_OUT);
    }

    struct iovec three[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    size_t pushed, count = 0, waiting;
    OK(cmq_cw_push_many(sender, &parsed, three, 3, &pushed));
    CHECK(pushed == 3);
    cmq_message messages[3];
    while (count < 3) {
        size_t more;
        OK(cmq_pop_many(receiver, messages + count, 3 - count, &more, WAIT));
        count += more;
    }
    CHECK(*(const char *)messages[2].data == 'c');
    OK(cmq_messages_free(messages, 3));

    cmq_mailbox *mailbox;
    OK(cmq_mailbox_open(receiver, 9, &mailbox));
    parsed.id = 9;
    OK(cmq_cw_push(sender, &parsed, "box", 3));
    OK(cmq_mailbox_pop(mailbox, &message, WAIT));
    CHECK(message.len == 3 && message.from.id == 9);
    // An answer goes to the key that the question came with.
    cmq_key back = message.from;
    OK(cmq_message_free(&message));
    OK(cmq_cw_push(receiver, &back, "answer", 6));
    OK(cmq_flush(receiver));
    OK(cmq_pop(sender, &message, WAIT));
    CHECK(message.len == 6 && message.from.port == to.port);
    OK(cmq_message_free(&message));
    in_a_mailbox(sender, mailbox, &parsed);
    OK(cmq_mailbox_close(mailbox));

    int looked = 0;
    cmq_queue *selective;
    OK(cmq_new_rq("127.0.0.1:0", NULL, &selective));
    OK(cmq_local_addr(selective, &to));
    OK(cmq_cw_push_many(sender, &to, three, 3, NULL));
    OK(cmq_pop_where(selective, is_b, &looked, &message, WAIT));
    CHECK(looked >= 2 && *(const char *)message.data == 'b');
    OK(cmq_message_free(&message));
    OK(cmq_pop(selective, &message, WAIT));
    CHECK(*(const char *)message.data == 'a');
    OK(cmq_message_free(&message));
    OK(cmq_waiting(selective, &waiting));

    cmq_stats stats;
    OK(cmq_get_stats(receiver, &stats));
    CHECK(stats.counts.received == 1008 && stats.counts.lost == 0);
    cmq_sender senders[2];
    OK(cmq_senders(receiver, senders, 2, &count));
    CHECK(count == 1 && senders[0].counts.received == 1008);
    uint64_t epoch;
    cmq_key from = senders[0].from, nobody = from;
    OK(cmq_epoch(sender, &epoch));
    CHECK(senders[0].epoch == epoch);
    OK(cmq_senders_at(receiver, &from, senders, 2, &count));
    CHECK(count == 1 && senders[0].epoch == epoch);
    nobody.port ^= 1;
    OK(cmq_senders_at(receiver, &nobody, NULL, 0, &count));
    CHECK(count == 0);
    OK(cmq_finish(sender));
    cmq_event event;
    do {
        while (cmq_next_event(receiver, &event) == RB_TIMED_OUT) poll(NULL, 0, 1);
    } while (event.kind != CMQ_EVENT_CLOSED);
    CHECK(event.count == 1008);
    OK(cmq_free(selective));
    OK(cmq_free(sender));
    OK(cmq_free(receiver));
    puts("cmq: ok");
    return 0;
}
