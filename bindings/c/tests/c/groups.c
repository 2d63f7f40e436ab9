// Workers of groups in C, with the broker whose address is the argument: it keeps the topics below kept/.

#include "check.h"
#include <pthread.h>
#include <unistd.h>

static const char *broker;
// The topics of this process: the broker keeps those of an earlier one.
static char jobs[40], letters[40], ordered[40], closing[40], shared[40];

// A topic with messages that the broker has on file. The key of each is its first letter.
static void publish(const char *name, const char *const *messages, size_t count) {
    rbmq_publisher *publisher;
    rbmq_topic *topic;
    uint64_t end;
    rbmq_topic_options small = {.size = sizeof small, .ring_bytes = 1 << 16};
    OK(rbmq_publisher_connect(broker, NULL, &publisher));
    OK(rbmq_publisher_topic(publisher, name, &small, &topic));
    for (size_t i = 0; i < count; i++) {
        rbmq_attributes says = {.size = sizeof says, .key = messages[i], .key_len = 1};
        OK(rbmq_topic_publish_with(topic, &says, messages[i], strlen(messages[i]), WAIT, &end));
    }
    if (count > 0) OK(rbmq_topic_confirm(topic, end, RBMQ_LEVEL_STORED, WAIT, NULL));
    OK(rbmq_topic_close(topic, WAIT));
    OK(rbmq_publisher_close(publisher, WAIT));
}

// An hour for a message: no time passes because the machine is slow.
static rbmq_group_options hour(void) { return (rbmq_group_options){.size = sizeof(rbmq_group_options), .ack_time_ns = 3600 * RB_S}; }

static rbmq_group_message *next(rbmq_group_worker *worker, const char *text, unsigned attempt) {
    rbmq_group_message *message;
    rbmq_group_content content;
    OK(rbmq_group_worker_recv(worker, &message, WAIT));
    OK(rbmq_group_message_get(message, &content));
    if (content.len != strlen(text) || memcmp(content.data, text, content.len) || content.attempt != attempt) {
        fprintf(stderr, "'%.*s', attempt %u, where '%s', attempt %u, was expected\n", (int)content.len, (const char *)content.data,
                content.attempt, text, attempt);
        exit(1);
    }
    return message;
}

// Acknowledges, extends, gives back with and without a failure, and finds what failed too often in the topic of dead letters.
static void words(void) {
    rbmq_group_worker *worker;
    rbmq_group_message *message;
    rbmq_group_options options = hour();
    options.max_attempts = 2, options.dead_letters = letters, options.name = "words";
    publish(letters, NULL, 0);
    publish(jobs, (const char *const[]){"a", "b"}, 2);
    OK(rbmq_group_join(broker, jobs, "g", &options, &worker));
    int64_t time = 0;
    OK(rbmq_group_worker_ack_time(worker, &time));
    CHECK(time == 3600 * RB_S && rbmq_group_worker_is_joined(worker) == 1);

    message = next(worker, "a", 1);
    rbmq_group_content content;
    rbmq_attributes says;
    OK(rbmq_group_message_get(message, &content));
    OK(rbmq_attributes_read(content.attributes, content.attributes_len, &says));
    CHECK(says.key_len == 1 && !memcmp(says.key, "a", 1));
    OK(rbmq_group_message_extend(message, 7200 * RB_S));
    FAILS(rbmq_group_message_extend(message, -1), RB_ERR_ARGUMENT, "time_ns is negative");
    FAILS(rbmq_group_message_nack(message, -1), RB_ERR_ARGUMENT, "delay_ns is negative");
    OK(rbmq_group_message_ack(message));
    FAILS(rbmq_group_message_ack(message), RB_ERR_FREED, "the message of a group was freed");
    FAILS(rbmq_group_message_get(message, &content), RB_ERR_FREED, "");

    // Given back it is the first attempt again; failed twice it is a dead letter.
    OK(rbmq_group_message_release(next(worker, "b", 1)));
    OK(rbmq_group_message_nack(next(worker, "b", 1), 10 * RB_MS));
    OK(rbmq_group_message_nack(next(worker, "b", 2), 0));
    CHECK(rbmq_group_worker_recv(worker, &message, RB_NO_WAIT) == RB_TIMED_OUT);
    OK(rbmq_group_worker_flush(worker, WAIT));

    rbmq_group_worker *buried;
    OK(rbmq_group_join(broker, letters, "g", NULL, &buried));
    message = next(buried, "b", 1);
    OK(rbmq_group_message_get(message, &content));
    rbmq_property properties[8];
    size_t count;
    bool found = false;
    OK(rbmq_attributes_properties(content.attributes, content.attributes_len, properties, 8, &count));
    for (size_t i = 0; i < count; i++)
        found = found || (!strncmp(properties[i].key, "rbmq-attempts", properties[i].key_len) && !strncmp(properties[i].value, "2", properties[i].value_len));
    CHECK(count == 4 && found);
    OK(rbmq_group_message_ack(message));
    OK(rbmq_group_worker_close(buried));
    OK(rbmq_group_worker_close(worker));
    FAILS(rbmq_group_worker_close(worker), RB_ERR_FREED, "the worker was freed");
}

// The messages of a closed worker come again at the next one: as failed attempts those that it had received, and only those.
static void closed_worker(void) {
    rbmq_group_worker *one, *two;
    rbmq_group_options options = hour();
    publish(closing, (const char *const[]){"a", "b", "c"}, 3);
    OK(rbmq_group_join(broker, closing, "g", &options, &one));
    OK(rbmq_group_message_ack(next(one, "a", 1)));
    rbmq_group_message *held = next(one, "b", 1);
    OK(rbmq_group_worker_close(one));
    OK(rbmq_group_join(broker, closing, "g", &options, &two));
    rbmq_group_message *got[2];
    bool again[2] = {false, false};
    for (int i = 0; i < 2; i++) {
        rbmq_group_content content;
        OK(rbmq_group_worker_recv(two, &got[i], WAIT));
        OK(rbmq_group_message_get(got[i], &content));
        int which = *(const char *)content.data - 'b';
        CHECK(content.len == 1 && (which == 0 || which == 1) && !again[which] && content.attempt == (which == 0 ? 2 : 1));
        again[which] = true;
    }
    // The message outlives its worker. Its acknowledgement has no way to the broker.
    rbmq_group_content content;
    OK(rbmq_group_message_get(held, &content));
    CHECK(!memcmp(content.data, "b", 1) && content.attempt == 1);
    OK(rbmq_group_message_free(held));
    OK(rbmq_group_message_ack(got[0]));
    OK(rbmq_group_message_ack(got[1]));
    OK(rbmq_group_worker_flush(two, WAIT));
    OK(rbmq_group_worker_free(two));
    OK(rbmq_group_worker_free(NULL));
    OK(rbmq_group_message_free(NULL));
}

// A message waits for the earlier ones with its key, and for no other.
static void in_order(void) {
    rbmq_group_worker *worker;
    rbmq_group_message *message;
    rbmq_group_options options = hour();
    options.ordered = true;
    publish(ordered, (const char *const[]){"a1", "a2", "b1", "a3"}, 4);
    OK(rbmq_group_join(broker, ordered, "g", &options, &worker));
    rbmq_group_message *first = next(worker, "a1", 1);
    OK(rbmq_group_message_ack(next(worker, "b1", 1)));
    // The word of b1 is with the broker, and still nothing of the key a comes.
    OK(rbmq_group_worker_flush(worker, WAIT));
    CHECK(rbmq_group_worker_recv(worker, &message, RB_NO_WAIT) == RB_TIMED_OUT);
    OK(rbmq_group_message_nack(first, 0));
    OK(rbmq_group_message_ack(next(worker, "a1", 2)));
    OK(rbmq_group_message_ack(next(worker, "a2", 1)));
    OK(rbmq_group_message_ack(next(worker, "a3", 1)));
    OK(rbmq_group_worker_close(worker));
}

static void *acknowledge(void *message) {
    OK(rbmq_group_message_ack(message));
    return NULL;
}

// Each message goes to one of two workers. Another thread acknowledges.
static void two_workers(void) {
    enum { MANY = 20 };
    char texts[MANY][3];
    const char *messages[MANY];
    bool seen[MANY] = {false};
    rbmq_group_worker *workers[2];
    rbmq_group_options options = hour();
    options.credit = 1;
    for (int i = 0; i < MANY; i++) snprintf(texts[i], sizeof texts[i], "%c", 'a' + i), messages[i] = texts[i];
    publish(shared, messages, MANY);
    for (int i = 0; i < 2; i++) OK(rbmq_group_join(broker, shared, "g", &options, &workers[i]));
    rbmq_group_message *received[2];
    for (int done = 0; done < MANY; done += 2) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) {
            rbmq_group_content content;
            OK(rbmq_group_worker_recv(workers[i], &received[i], WAIT));
            OK(rbmq_group_message_get(received[i], &content));
            int which = *(const char *)content.data - 'a';
            CHECK(which >= 0 && which < MANY && !seen[which] && content.attempt == 1);
            seen[which] = true;
        }
        for (int i = 0; i < 2; i++) CHECK(!pthread_create(&threads[i], NULL, acknowledge, received[i]));
        for (int i = 0; i < 2; i++) CHECK(!pthread_join(threads[i], NULL));
    }
    for (int i = 0; i < 2; i++) OK(rbmq_group_worker_close(workers[i]));
}

// Looks after the group of `two_workers`, and ends it.
static void administration(void) {
    rbmq_groups *groups;
    const rbmq_group_stats *rows, *mine = NULL;
    size_t count;
    rbmq_groups_options options = {.size = sizeof options, .name = "admin"};
    OK(rbmq_groups_connect(broker, &options, &groups));
    OK(rbmq_groups_list(groups, &rows, &count));
    for (size_t i = 0; i < count; i++)
        if (!strcmp(rows[i].topic, shared)) mine = &rows[i];
    CHECK(mine && !strcmp(mine->group, "g") && mine->acked == 20 && mine->pending == 0 && mine->lag_bytes == 0 && mine->unread_bytes == 0);
    CHECK(mine->workers == 0 && mine->floor == mine->end && mine->ack_ms == 3600000 && !mine->dead_letters && !mine->ordered && !mine->full);
    FAILS(rbmq_groups_list(groups, NULL, &count), RB_ERR_NULL, "the place for the rows is NULL");
    FAILS(rbmq_groups_reset(groups, shared, "g", 3, 0), RB_ERR_ARGUMENT, "3 is no start of a group");
    FAILS(rbmq_groups_reset(groups, shared, "none", RBMQ_GROUP_OLDEST, 0), RB_ERR_REFUSED, "none");
    FAILS(rbmq_groups_delete(groups, "a+b", "g"), RB_ERR_NAME, "");
    OK(rbmq_groups_reset(groups, shared, "g", RBMQ_GROUP_NEWEST, 0));
    OK(rbmq_groups_reset(groups, shared, "g", RBMQ_GROUP_OLDEST, 0));

    // With one message at a time nothing of before waits in the worker.
    rbmq_group_worker *worker;
    rbmq_group_message *message;
    rbmq_group_content content;
    rbmq_group_options one = {.size = sizeof one, .credit = 1};
    OK(rbmq_group_join(broker, shared, "g", &one, &worker));
    message = next(worker, "a", 1);
    OK(rbmq_group_message_get(message, &content));
    OK(rbmq_groups_reset(groups, shared, "g", RBMQ_GROUP_POSITION, content.position + 1));
    // Received before the group began anew: the acknowledgement is in vain, and said to be once.
    OK(rbmq_group_message_ack(message));
    FAILS(rbmq_group_worker_flush(worker, WAIT), RB_ERR_IN_VAIN, "1 acknowledgements do not count");
    OK(rbmq_group_worker_flush(worker, WAIT));
    message = next(worker, "b", 1);
    OK(rbmq_groups_delete(groups, shared, "g"));
    FAILS(rbmq_group_worker_recv(worker, &message, WAIT), RB_ERR_REFUSED, "group 'g'");
    FAILS(rbmq_group_worker_recv(worker, &message, WAIT), RB_ERR_REFUSED, "group 'g'");
    OK(rbmq_group_message_ack(message));
    OK(rbmq_group_worker_free(worker));
    OK(rbmq_groups_free(groups));
    OK(rbmq_groups_free(NULL));
    FAILS(rbmq_groups_list(groups, &rows, &count), RB_ERR_FREED, "the client of groups was freed");
}

static void errors(void) {
    rbmq_group_worker *worker = NULL;
    rbmq_group_options options = hour();
    FAILS(rbmq_group_join(broker, jobs, "g", &options, NULL), RB_ERR_NULL, "the place for the worker is NULL");
    FAILS(rbmq_group_join(broker, NULL, "g", &options, &worker), RB_ERR_NULL, "the topic is NULL");
    FAILS(rbmq_group_join(broker, jobs, "a group", &options, &worker), RB_ERR_NAME, "");
    FAILS(rbmq_group_join(broker, "jobs/#", "g", &options, &worker), RB_ERR_NAME, "");
    FAILS(rbmq_group_join(broker, "c/not/kept", "g", &options, &worker), RB_ERR_REFUSED, "group 'g'");
    FAILS(rbmq_group_join("127.0.0.1:1", jobs, "g", &options, &worker), RB_ERR_DOWN, "");
    options.max_attempts = 3;
    FAILS(rbmq_group_join(broker, jobs, "g", &options, &worker), RB_ERR_ARGUMENT, "belong together");
    options.dead_letters = "a+b";
    FAILS(rbmq_group_join(broker, jobs, "g", &options, &worker), RB_ERR_NAME, "");
    options = hour(), options.ack_time_ns = -1;
    FAILS(rbmq_group_join(broker, jobs, "g", &options, &worker), RB_ERR_ARGUMENT, "ack_time_ns is negative");
    CHECK(!worker);
    FAILS(rbmq_group_worker_flush(NULL, 0), RB_ERR_NULL, "the worker is NULL");
    FAILS(rbmq_group_message_ack(NULL), RB_ERR_NULL, "the message of a group is NULL");
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    broker = argv[1];
    snprintf(jobs, sizeof jobs, "kept/%d/jobs", getpid());
    snprintf(letters, sizeof letters, "kept/%d/letters", getpid());
    snprintf(ordered, sizeof ordered, "kept/%d/ordered", getpid());
    snprintf(closing, sizeof closing, "kept/%d/closing", getpid());
    snprintf(shared, sizeof shared, "kept/%d/shared", getpid());
    words();
    closed_worker();
    in_order();
    two_workers();
    administration();
    errors();
    puts("groups: ok");
    return 0;
}
