// A module of Redis: Redis' own event loop (ae) polls the descriptor of an RBMQ subscriber, and calls back on Redis' thread.
//
// redis-server --loadmodule redis_module.so BROKER TOPIC; `rocketbufs.count` returns how many messages came.

#include <pthread.h>
#include <rocketbufs.h>
#include <stddef.h>

// The part of Redis' module API (redismodule.h of Redis 7.0) that the module uses. The server hands the functions out by
// name.
typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleString RedisModuleString;
typedef void (*event_loop_fn)(int fd, void *data, int mask);
typedef int (*command_fn)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
#define MODULE_OK 0
#define MODULE_ERR 1
#define READABLE 1

static int (*get_api)(const char *name, void *to);
static void (*set_attributes)(RedisModuleCtx *ctx, const char *name, int version, int api_version);
static int (*event_loop_add)(int fd, int mask, event_loop_fn callback, void *data);
static int (*create_command)(RedisModuleCtx *ctx, const char *name, command_fn, const char *flags, int, int, int);
static int (*reply_number)(RedisModuleCtx *ctx, long long number);
static const char *(*string_of)(const RedisModuleString *string, size_t *len);

static rbmq_subscriber *subscriber;
static pthread_t redis_thread;
static long long messages;

// Called by ae.
static void on_readable(int fd, void *data, int mask) {
    rbmq_message message;
    (void)fd, (void)data, (void)mask;
    if (!pthread_equal(pthread_self(), redis_thread)) {
        messages = -1;
        return;
    }
    while (rbmq_subscriber_recv(subscriber, &message, RB_NO_WAIT) == RB_OK) messages++;
}

static int count(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return reply_number(ctx, messages);
}

int RedisModule_OnLoad(RedisModuleCtx *ctx, RedisModuleString **argv, int argc) {
    // The first word of the context is the function that finds the others.
    get_api = *(int (**)(const char *, void *))(void *)ctx;
    if (get_api("RedisModule_SetModuleAttribs", (void *)&set_attributes) != MODULE_OK ||
        get_api("RedisModule_EventLoopAdd", (void *)&event_loop_add) != MODULE_OK ||
        get_api("RedisModule_CreateCommand", (void *)&create_command) != MODULE_OK ||
        get_api("RedisModule_ReplyWithLongLong", (void *)&reply_number) != MODULE_OK ||
        get_api("RedisModule_StringPtrLen", (void *)&string_of) != MODULE_OK || argc != 2)
        return MODULE_ERR;
    set_attributes(ctx, "rocketbufs", 1, 1);
    redis_thread = pthread_self();
    if (rbmq_subscriber_connect(string_of(argv[0], NULL), NULL, &subscriber) != RB_OK ||
        rbmq_subscriber_subscribe(subscriber, string_of(argv[1], NULL), NULL) != RB_OK)
        return MODULE_ERR;
    int fd = rbmq_subscriber_fd(subscriber);
    if (fd < 0 || event_loop_add(fd, READABLE, on_readable, NULL) != MODULE_OK) return MODULE_ERR;
    // Takes the data that arrived before the loop polls.
    on_readable(fd, NULL, READABLE);
    return create_command(ctx, "rocketbufs.count", count, "readonly", 0, 0, 0);
}
