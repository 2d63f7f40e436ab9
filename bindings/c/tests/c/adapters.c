// The adapters of event loops, each with the real library: LOOP_UV, LOOP_EV or LOOP_EVENT says which.

#include "check.h"
#include <pthread.h>

#if defined(LOOP_UV)
#include <rocketbufs/adapters/libuv.h>
typedef rb_uv adapter;
#define LOOP uv_default_loop()
#define ATTACH rb_uv_attach
#define DETACH rb_uv_detach
#define RUN() uv_run(LOOP, UV_RUN_DEFAULT)
#define FINISH() CHECK(uv_loop_close(LOOP) == 0)
#elif defined(LOOP_EV)
#include <rocketbufs/adapters/libev.h>
typedef rb_ev adapter;
#define LOOP EV_DEFAULT
#define ATTACH rb_ev_attach
#define DETACH rb_ev_detach
#define RUN() ev_run(LOOP, 0)
#define FINISH() ev_loop_destroy(LOOP)
#else
#include <rocketbufs/adapters/libevent.h>
typedef rb_event adapter;
static struct event_base *base;
#define LOOP (base ? base : (base = event_base_new()))
#define ATTACH rb_event_attach
#define DETACH rb_event_detach
#define RUN() event_base_dispatch(LOOP)
#define FINISH() event_base_free(base)
#endif

#define MESSAGES 500

// A queue of CMQ and its adapter.
struct source {
    cmq_queue *queue;
    adapter *adapter;
    int messages;
};

static pthread_t loop_thread;

// Detaches itself after the last message: the loop ends when nothing is attached.
static void on_readable(void *ctx) {
    struct source *source = ctx;
    cmq_message message;
    CHECK(pthread_equal(pthread_self(), loop_thread));
    while (cmq_cw_pop(source->queue, &message) == RB_OK) {
        source->messages++;
        OK(cmq_message_free(&message));
    }
    if (source->messages == MESSAGES) DETACH(source->adapter);
}

static void *push_all(void *ctx) {
    struct source *sources = ctx;
    cmq_queue *sender;
    cmq_key to;
    OK(cmq_new_rq("127.0.0.1:0", NULL, &sender));
    for (int i = 0; i < 2 * MESSAGES; i++) {
        OK(cmq_local_addr(sources[i % 2].queue, &to));
        OK(cmq_cw_push(sender, &to, "message", 7));
    }
    OK(cmq_free(sender));
    return NULL;
}

int main(void) {
    struct source sources[2] = {{0}};
    pthread_t thread;
    loop_thread = pthread_self();
    CHECK(!ATTACH(LOOP, rb_rin_fd(NULL), on_readable, NULL));
    DETACH(NULL);
    for (int i = 0; i < 2; i++) {
        OK(cmq_new_rq("127.0.0.1:0", NULL, &sources[i].queue));
        sources[i].adapter = ATTACH(LOOP, cmq_fd(sources[i].queue), on_readable, &sources[i]);
        CHECK(sources[i].adapter);
    }
    CHECK(!pthread_create(&thread, NULL, push_all, sources));
    RUN();
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK(sources[i].messages == MESSAGES);
        OK(cmq_free(sources[i].queue));
    }
    FINISH();
    puts("adapter: ok");
    return 0;
}
