// CMQ's encryption and reliable mode in C.

#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COUNT = 300 };

static char folder[] = "/tmp/cmq_secure.XXXXXX";

// The path of a file in the folder of this test.
static const char *path(const char *name) {
    static char paths[4][64];
    static int next;
    char *to = paths[next++ % 4];
    snprintf(to, sizeof paths[0], "%s/%s", folder, name);
    return to;
}

static void write_text(const char *name, const char *text, mode_t mode) {
    int file = open(path(name), O_CREAT | O_TRUNC | O_WRONLY, mode);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text) && !close(file));
}

// Waits for an event of a kind.
static cmq_event event_of(cmq_queue *queue, cmq_event_kind kind) {
    cmq_event event;
    do {
        while (cmq_next_event(queue, &event) == RB_TIMED_OUT) poll(NULL, 0, 1);
    } while (event.kind != kind);
    return event;
}

static bool same(const cmq_public_key *one, const cmq_public_key *other) { return !memcmp(one, other, sizeof *one); }

// Keys as files and as texts, and what is none.
static void keys(void) {
    cmq_secret_key secret, read, zeros = {{0}};
    cmq_public_key public_key, parsed;
    char digits[65];
    size_t len;
    OK(cmq_secret_key_generate(&secret));
    OK(cmq_secret_key_public(&secret, &public_key));
    OK(cmq_secret_key_write_new(&secret, path("secret")));
    struct stat file;
    CHECK(!stat(path("secret"), &file) && (file.st_mode & 0777) == 0600);
    OK(cmq_secret_key_read(path("secret"), &read));
    CHECK(!memcmp(&secret, &read, sizeof secret));
    OK(cmq_public_key_format(&public_key, digits, sizeof digits, &len));
    CHECK(len == 64 && strlen(digits) == 64);
    OK(cmq_public_key_parse(digits, &parsed));
    CHECK(same(&public_key, &parsed));
    write_text("secret.pub", digits, 0644);
    OK(cmq_public_key_read(path("secret.pub"), &parsed));
    CHECK(same(&public_key, &parsed));

    FAILS(cmq_secret_key_write_new(&secret, path("secret")), RB_ERR_CONFIG, "secret: ");
    FAILS(cmq_secret_key_read(path("nothing"), &read), RB_ERR_CONFIG, "nothing: ");
    FAILS(cmq_public_key_read(path("nothing"), &parsed), RB_ERR_CONFIG, "nothing: ");
    CHECK(!chmod(path("secret"), 0640));
    FAILS(cmq_secret_key_read(path("secret"), &read), RB_ERR_CONFIG, "chmod 600");
    CHECK(!memcmp(&secret, &read, sizeof secret));
    write_text("short", "0123", 0600);
    FAILS(cmq_secret_key_read(path("short"), &read), RB_ERR_CONFIG, "64 hexadecimal digits");
    FAILS(cmq_public_key_parse("0123", &parsed), RB_ERR_ARGUMENT, "64 hexadecimal digits");
    FAILS(cmq_public_key_parse(NULL, &parsed), RB_ERR_NULL, "the text of the key is NULL");
    FAILS(cmq_secret_key_generate(NULL), RB_ERR_NULL, "the place for the key is NULL");
    FAILS(cmq_secret_key_public(NULL, &public_key), RB_ERR_NULL, "the key is NULL");
    FAILS(cmq_secret_key_public(&secret, NULL), RB_ERR_NULL, "the place for the public key is NULL");
    OK(cmq_secret_key_erase(&secret));
    OK(cmq_secret_key_erase(&read));
    CHECK(!memcmp(&secret, &zeros, sizeof zeros));
    FAILS(cmq_secret_key_erase(NULL), RB_ERR_NULL, "the key is NULL");
}

// Settings that no queue has.
static void wrong_settings(const cmq_secret_key *secret) {
    cmq_security security = {.size = sizeof security};
    cmq_reliable reliable = {.size = sizeof reliable, .window = 1000};
    cmq_options options = {.size = sizeof options, .security = &security};
    cmq_queue *queue;
    FAILS(cmq_new_rq("127.0.0.1:0", &options, &queue), RB_ERR_ARGUMENT, "no secret key");
    security.key_file = path("nothing");
    FAILS(cmq_new_rq("127.0.0.1:0", &options, &queue), RB_ERR_CONFIG, "nothing: ");
    security.secret = secret;
    FAILS(cmq_new_rq("127.0.0.1:0", &options, &queue), RB_ERR_ARGUMENT, "not both");
    security.key_file = NULL;
    security.peer_count = 3;
    FAILS(cmq_new_rq("127.0.0.1:0", &options, &queue), RB_ERR_NULL, "the peers is NULL");
    security.peer_count = 0;
    security.rekey_after_ns = 1;
    FAILS(cmq_new_rq("127.0.0.1:0", &options, &queue), RB_ERR_CONFIG, "rekey_after");
    security.rekey_after_ns = -1;
    FAILS(cmq_new_rq("127.0.0.1:0", &options, &queue), RB_ERR_ARGUMENT, "rekey_after_ns is negative");
    security.size = 3;
    FAILS(cmq_new_rq("127.0.0.1:0", &options, &queue), RB_ERR_ARGUMENT, "set it to sizeof");
    options.security = NULL;
    options.reliable = &reliable;
    FAILS(cmq_new_rq("127.0.0.1:0", &options, &queue), RB_ERR_CONFIG, "window");
}

static cmq_queue *open_queue(const cmq_security *security, const cmq_reliable *reliable) {
    cmq_options options = {.size = sizeof options, .preset = CMQ_PRESET_IMMEDIATE, .security = security, .reliable = reliable};
    cmq_queue *queue;
    OK(cmq_new_rq("127.0.0.1:0", &options, &queue));
    return queue;
}

// Messages arrive in order and are confirmed, encrypted and not.
static void delivered(const cmq_security *from, const cmq_security *to) {
    cmq_reliable reliable = {.size = sizeof reliable};
    cmq_queue *receiver = open_queue(to, &reliable), *sender = open_queue(from, &reliable);
    cmq_key key, back;
    OK(cmq_local_addr(receiver, &key));
    OK(cmq_local_addr(sender, &back));
    key.id = 7;
    uint64_t number = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        OK(cmq_push_reliable(sender, &key, &i, sizeof i, &number));
        CHECK(number == i);
    }
    OK(cmq_push_reliable(sender, &key, NULL, 0, NULL));
    OK(cmq_wait_confirmed(sender, &key, number, WAIT));
    OK(cmq_wait_all_confirmed(sender, WAIT));
    cmq_message message;
    for (uint64_t i = 0; i < COUNT; i++) {
        // A confirmed message is there.
        OK(cmq_cw_pop(receiver, &message));
        CHECK(message.len == sizeof i && !memcmp(message.data, &i, sizeof i) && message.from.port == back.port);
        OK(cmq_message_free(&message));
    }
    cmq_message_fate fate;
    cmq_reason why;
    OK(cmq_fate(sender, &key, number, &fate, &why));
    CHECK(fate == CMQ_FATE_CONFIRMED && why == CMQ_REASON_NONE);
    OK(cmq_fate(sender, &key, COUNT + 1, &fate, NULL));
    CHECK(fate == CMQ_FATE_UNKNOWN);
    FAILS(cmq_wait_confirmed(sender, &key, COUNT + 1, RB_NO_WAIT), RB_ERR_ARGUMENT, "no message with this number");
    cmq_stats stats;
    OK(cmq_get_stats(sender, &stats));
    CHECK(stats.reliable.pushed == COUNT + 1 && stats.reliable.confirmed == COUNT + 1 && !stats.reliable.failed);
    CHECK(!stats.reliable.unconfirmed_bytes && stats.security.handshakes == (from ? 1 : 0));
    OK(cmq_get_stats(receiver, &stats));
    CHECK(stats.reliable.received == COUNT + 1 && stats.reliable.links == 1 && stats.reliable.acks > 0);
    cmq_public_key known, expected;
    if (from) {
        OK(cmq_peer_key(receiver, &back, &known));
        OK(cmq_secret_key_public(from->secret, &expected));
        CHECK(same(&known, &expected));
        cmq_event event = event_of(receiver, CMQ_EVENT_SECURED);
        CHECK(same(&event.key, &expected) && event.peer.port == back.port && !event.renewed);
    }
    cmq_sender senders[2];
    size_t count;
    OK(cmq_senders(receiver, senders, 2, &count));
    CHECK(count == 1 && senders[0].reliable && !senders[0].closed && senders[0].counts.received == COUNT + 1);
    OK(cmq_finish(sender));
    CHECK(event_of(receiver, CMQ_EVENT_CLOSED).count == COUNT + 1);
    OK(cmq_senders(receiver, senders, 2, &count));
    CHECK(count == 1 && senders[0].closed);
    back.port ^= 1;
    CHECK(cmq_peer_key(receiver, &back, &known) == RB_TIMED_OUT);
    OK(cmq_free(sender));
    OK(cmq_free(receiver));
}

// Nobody confirms: messages are given up, with the reason.
static void given_up(void) {
    cmq_reliable soon = {.size = sizeof soon, .give_up_ns = 200 * RB_MS, .idle_ns = 3 * RB_S};
    cmq_reliable patience = {.size = sizeof patience};
    cmq_queue *sender = open_queue(NULL, &soon), *patient = open_queue(NULL, &patience), *off = open_queue(NULL, NULL);
    cmq_key key, group;
    OK(cmq_local_addr(off, &key));
    uint64_t number;
    OK(cmq_push_reliable(patient, &key, "x", 1, &number));
    CHECK(cmq_wait_confirmed(patient, &key, number, RB_NO_WAIT) == RB_TIMED_OUT);
    CHECK(cmq_wait_all_confirmed(patient, RB_NO_WAIT) == RB_TIMED_OUT);
    cmq_message_fate fate;
    cmq_reason why;
    OK(cmq_fate(patient, &key, number, &fate, &why));
    CHECK(fate == CMQ_FATE_PENDING && why == CMQ_REASON_NONE);
    OK(cmq_free(patient));
    OK(cmq_push_reliable(sender, &key, "x", 1, &number));
    FAILS(cmq_wait_confirmed(sender, &key, number, WAIT), RB_ERR_UNDELIVERED, "reliable mode off");
    OK(cmq_wait_all_confirmed(sender, WAIT));
    OK(cmq_fate(sender, &key, number, &fate, &why));
    CHECK(fate == CMQ_FATE_FAILED && why == CMQ_REASON_NO_ANSWER);
    cmq_event event = event_of(sender, CMQ_EVENT_UNDELIVERED);
    CHECK(event.why == CMQ_REASON_NO_ANSWER && event.first == number && event.count == 1 && event.peer.port == key.port);

    FAILS(cmq_push_reliable(off, &key, "x", 1, NULL), RB_ERR_CONFIG, "reliable mode of this queue is off");
    OK(cmq_key_parse("239.1.1.1:9", 0, &group));
    FAILS(cmq_push_reliable(sender, &group, "x", 1, NULL), RB_ERR_ADDRESS, "group");
    FAILS(cmq_push_reliable(sender, NULL, "x", 1, NULL), RB_ERR_NULL, "the key is NULL");
    FAILS(cmq_push_reliable(sender, &key, NULL, 1, NULL), RB_ERR_NULL, "the message is NULL");
    FAILS(cmq_push_reliable(NULL, &key, "x", 1, NULL), RB_ERR_NULL, "the queue is NULL");
    FAILS(cmq_fate(sender, &key, 0, NULL, NULL), RB_ERR_NULL, "the place for the fate is NULL");
    FAILS(cmq_wait_all_confirmed((cmq_queue *)&key, 0), RB_ERR_HANDLE, "no handle of a queue");
    OK(cmq_free(off));
    OK(cmq_free(sender));
}

// Queues that must not understand each other say why.
static void refused(const cmq_security *good, const cmq_security *receiving) {
    cmq_queue *receiver = open_queue(receiving, NULL), *plain = open_queue(NULL, NULL);
    cmq_secret_key other;
    cmq_public_key other_public;
    OK(cmq_secret_key_generate(&other));
    OK(cmq_secret_key_public(&other, &other_public));
    cmq_key key;
    OK(cmq_local_addr(receiver, &key));
    OK(cmq_cw_push(plain, &key, "x", 1));
    CHECK(event_of(receiver, CMQ_EVENT_REFUSED).why == CMQ_REASON_PLAIN);
    CHECK(event_of(plain, CMQ_EVENT_ENCRYPTION_REQUIRED).peer.port == key.port);

    // The receiver lets in whom it knows. The stranger's handshake ends in vain.
    cmq_security strange = *good;
    strange.secret = &other;
    strange.handshake_timeout_ns = 300 * RB_MS;
    cmq_queue *stranger = open_queue(&strange, NULL);
    OK(cmq_cw_push(stranger, &key, "x", 1));
    cmq_event event = event_of(receiver, CMQ_EVENT_REFUSED);
    CHECK(event.why == CMQ_REASON_STRANGER && same(&event.key, &other_public));
    event = event_of(stranger, CMQ_EVENT_HANDSHAKE_FAILED);
    CHECK(event.why == CMQ_REASON_NO_ANSWER && event.count == 1);
    cmq_security lost = *good;
    lost.default_peer = NULL;
    cmq_queue *keyless = open_queue(&lost, NULL);
    OK(cmq_cw_push(keyless, &key, "x", 1));
    CHECK(event_of(keyless, CMQ_EVENT_HANDSHAKE_FAILED).why == CMQ_REASON_NO_KEY);
    cmq_stats stats;
    OK(cmq_get_stats(receiver, &stats));
    CHECK(stats.security.plain >= 1 && stats.security.strangers >= 1 && !stats.security.sessions && !stats.counts.received);
    OK(cmq_secret_key_erase(&other));
    OK(cmq_free(keyless));
    OK(cmq_free(stranger));
    OK(cmq_free(plain));
    OK(cmq_free(receiver));
}

int main(void) {
    CHECK(mkdtemp(folder));
    cmq_secret_key one, other, shared;
    cmq_public_key one_public, other_public;
    OK(cmq_secret_key_generate(&one));
    OK(cmq_secret_key_generate(&other));
    OK(cmq_secret_key_generate(&shared));
    OK(cmq_secret_key_public(&one, &one_public));
    OK(cmq_secret_key_public(&other, &other_public));
    OK(cmq_secret_key_write_new(&other, path("other")));
    OK(cmq_secret_key_write_new(&shared, path("shared")));
    keys();
    wrong_settings(&one);
    cmq_security sending = {.size = sizeof sending, .secret = &one, .shared_secret = &shared, .default_peer = &other_public};
    cmq_security receiving = {.size = sizeof receiving, .key_file = path("other"), .allowed = &one_public, .allowed_count = 1};
    receiving.shared_secret_file = path("shared");
    delivered(NULL, NULL);
    delivered(&sending, &receiving);
    refused(&sending, &receiving);
    // Nobody is known: nobody gets in.
    receiving.allowed_count = 0;
    receiving.only_known = true;
    refused(&sending, &receiving);
    given_up();
    for (const char *const *name = (const char *const[]){"other", "shared", "secret", "secret.pub", "short", NULL}; *name; name++)
        CHECK(!unlink(path(*name)));
    CHECK(!rmdir(folder));
    puts("cmq_secure: ok");
    return 0;
}
