// CMQ's strategies in C: requests, replay and replacement.

#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

static const cmq_options immediate = {.size = sizeof immediate, .preset = CMQ_PRESET_IMMEDIATE};

static const cmq_options sharing = {.size = sizeof sharing, .preset = CMQ_PRESET_IMMEDIATE, .reuse_address = true};

static char reversed[16];

// Answers with the bytes of the request in reverse; "nothing" is not answered, and "much" with too much.
static bool reverse(void *ctx, const cmq_message *request, struct iovec *response) {
    const char *bytes = request->data;
    static char much[4096];
    ++*(int *)ctx;
    if (request->len == 7 && !memcmp(bytes, "nothing", 7)) return false;
    if (request->len == 4 && !memcmp(bytes, "much", 4)) {
        *response = (struct iovec){much, sizeof much};
        return true;
    }
    for (size_t i = 0; i < request->len; i++) reversed[i] = bytes[request->len - 1 - i];
    *response = (struct iovec){reversed, request->len};
    return true;
}

static void requests(void) {
    // An answer is waited for as long as a loaded machine takes. What is never answered is given up after two short attempts.
    cmq_call_options patient = {.size = sizeof patient, .timeout_ns = WAIT, .max_attempts = 1};
    cmq_call_options calls = {.size = sizeof calls, .timeout_ns = 20 * RB_MS, .max_attempts = 2, .max_outstanding = 2};
    cmq_caller *caller;
    cmq_responder *responder;
    cmq_call *call, *unanswered, *much, *third;
    cmq_message response;
    cmq_key to, from;
    int asked = 0;
    rb_status served;
    OK(cmq_responder_new("127.0.0.1:0", &immediate, &responder));
    OK(cmq_responder_local_addr(responder, &to));
    OK(cmq_caller_new("127.0.0.1:0", &immediate, &patient, &caller));
    OK(cmq_caller_local_addr(caller, &from));
    CHECK(cmq_responder_serve(responder, reverse, &asked, RB_NO_WAIT) == RB_TIMED_OUT);

    OK(cmq_caller_call(caller, &to, "abc", 3, &call));
    CHECK(cmq_call_wait(call, &response, RB_NO_WAIT) == RB_TIMED_OUT);
    OK(cmq_responder_serve(responder, reverse, &asked, WAIT));
    OK(cmq_call_wait(call, &response, WAIT));
    CHECK(response.len == 3 && !memcmp(response.data, "cba", 3) && response.from.port == to.port && asked >= 1);
    OK(cmq_message_free(&response));
    // The response stays until the call is freed.
    OK(cmq_call_wait(call, &response, RB_NO_WAIT));
    OK(cmq_message_free(&response));

    OK(cmq_call_free(call));
    FAILS(cmq_call_free(call), RB_ERR_FREED, "the call was freed");
    OK(cmq_caller_free(caller));

    OK(cmq_caller_new("127.0.0.1:0", &immediate, &calls, &caller));
    OK(cmq_caller_call(caller, &to, "nothing", 7, &unanswered));
    OK(cmq_caller_call(caller, &to, "much", 4, &much));
    FAILS(cmq_caller_call(caller, &to, "x", 1, &third), RB_ERR_TOO_MANY, "2 calls are outstanding");
    // Requests are sent again while their time passes, which it does on a loaded machine.
    do served = cmq_responder_serve(responder, reverse, &asked, WAIT);
    while (served == RB_OK);
    FAILS(served, RB_ERR_TOO_LARGE, "larger than the caller allows");
    FAILS(cmq_call_wait(unanswered, &response, WAIT), RB_ERR_LOST, "no attempt");
    FAILS(cmq_call_wait(much, &response, WAIT), RB_ERR_LOST, "no attempt");
    FAILS(cmq_responder_serve(responder, NULL, NULL, WAIT), RB_ERR_NULL, "the callback is NULL");
    OK(cmq_call_free(unanswered));
    // A call outlives the handle of its caller.
    OK(cmq_caller_free(caller));
    FAILS(cmq_call_wait(much, &response, RB_NO_WAIT), RB_ERR_LOST, "no attempt");
    OK(cmq_call_free(much));
    OK(cmq_responder_free(responder));
}

// An address of this machine where nobody receives yet. The socket that is returned holds the port, which a queue that shares addresses can
// have nevertheless.
static int reserved_address(char *text, size_t size, cmq_key *key) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_DGRAM, 0), shared = 1;
    CHECK(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &shared, sizeof shared));
    CHECK(!bind(fd, (struct sockaddr *)&at, len) && !getsockname(fd, (struct sockaddr *)&at, &len));
    snprintf(text, size, "127.0.0.1:%u", ntohs(at.sin_port));
    OK(cmq_key_parse(text, 0, key));
    return fd;
}

// Twenty messages about two things, of which no receiver gets one; what arrives after the repair.
static void repair(uint32_t policy, size_t kept, int expected) {
    cmq_repair_options options = {
        .size = sizeof options, .policy = policy, .kept = kept, .request_interval_ns = 10 * RB_MS};
    cmq_repair *sender, *receiver;
    cmq_repaired got;
    cmq_key to;
    char address[32];
    uint64_t missing = 0, unrecoverable = 0;
    int arrived = 0, newest = 0, reserved = reserved_address(address, sizeof address, &to);
    OK(cmq_repair_new("127.0.0.1:0", &immediate, &options, &sender));
    for (int i = 0; i < 20; i++) OK(cmq_repair_push(sender, &to, (uint64_t)i % 2, &i, sizeof i));
    OK(cmq_repair_new(address, &sharing, &options, &receiver));
    close(reserved);
    for (int rounds = 0; rounds < 1000 && (arrived < expected || missing > 0); rounds++) {
        OK(cmq_repair_notify_end(sender, &to));
        while (cmq_repair_pop(receiver, &got, 5 * RB_MS) == RB_OK) {
            CHECK(got.repaired && got.message.len == sizeof newest && got.slot == got.number % 2);
            memcpy(&newest, got.message.data, sizeof newest);
            CHECK((uint64_t)newest == got.number);
            OK(cmq_message_free(&got.message));
            arrived++;
        }
        CHECK(cmq_repair_pop(sender, &got, 5 * RB_MS) == RB_TIMED_OUT);
        OK(cmq_repair_counts(receiver, &missing, &unrecoverable));
    }
    CHECK(arrived == expected && unrecoverable == 20 - (uint64_t)expected);
    OK(cmq_repair_free(sender));
    OK(cmq_repair_free(receiver));
}

int main(void) {
    cmq_repair_options wrong = {.size = sizeof wrong, .policy = 7};
    cmq_repair *none;
    requests();
    repair(CMQ_REPAIR_REPLAY, 100, 20);
    repair(CMQ_REPAIR_REPLACE, 10, 2);
    FAILS(cmq_repair_new("127.0.0.1:0", NULL, &wrong, &none), RB_ERR_ARGUMENT, "7 is no policy");
    puts("strategies: ok");
    return 0;
}
