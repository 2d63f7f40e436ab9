// A child process that fork makes: handles of the parent are errors there, and the child's own work. The parent notices nothing.

#include "check.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static rb_context *context;
static rb_rout *out;
static rb_buffer *buffer;
static rb_writer *writer;
static rb_listener *listener;
static rb_conn *conn;
static rb_rin *in;
static cmq_queue *queue;
static rb_rout *freed;

static void on_conn(void *ctx, rb_conn *came) {
    OK(rb_rout_add_conn(ctx, came));
    OK(rb_conn_free(came));
}

static void open_ends(void) {
    rb_in_event event;
    char address[64];
    OK(rb_context_new(NULL, &context));
    OK(rb_rout_new(context, &out));
    OK(rb_rout_create_buffer(out, 7, 1 << 16, &buffer));
    OK(rb_buffer_writer(buffer, &writer));
    OK(rb_listener_bind(context, "127.0.0.1:0", &listener));
    OK(rb_listener_local_addr(listener, address, sizeof address, NULL));
    OK(rb_listener_set_conn_cb(listener, on_conn, out));
    OK(rb_conn_connect(context, address, NULL, 0, &conn));
    OK(rb_rin_new(conn, &in));
    OK(rb_rin_subscribe(in, 7, 1 << 16, NULL));
    OK(rb_rin_recv(in, &event, WAIT));
    OK(cmq_new_rq("127.0.0.1:0", NULL, &queue));
    OK(rb_rout_new(context, &freed));
    OK(rb_rout_free(freed));
}

static void delivers(void) {
    rb_in_event event;
    OK(rb_writer_append(writer, "hello", 5, WAIT, NULL));
    OK(rb_rin_recv(in, &event, WAIT));
    CHECK(event.kind == RB_IN_DATA && event.data.len == 5 && !memcmp(event.data.data, "hello", 5));
    OK(rb_view_consume(event.data.view));
}

static void close_ends(void) {
    OK(rb_rin_free(in));
    OK(rb_conn_free(conn));
    OK(rb_writer_free(writer));
    OK(rb_buffer_free(buffer));
    OK(rb_listener_free(listener));
    OK(rb_rout_free(out));
    OK(rb_context_shutdown(context, 0));
    OK(rb_context_free(context));
    OK(cmq_free(queue));
}

// Every call on a handle of the parent.
static void handles_of_the_parent(void) {
    const char *text = "belongs to the process that this one was forked from";
    rb_in_event event;
    rb_rout *rout;
    cmq_key key = {.family = 4};
    FAILS(rb_context_shutdown(context, RB_S), RB_ERR_FORKED, text);
    FAILS(rb_rout_new(context, &rout), RB_ERR_FORKED, text);
    FAILS(rb_writer_append(writer, "x", 1, WAIT, NULL), RB_ERR_FORKED, text);
    FAILS(rb_buffer_drain(buffer, WAIT), RB_ERR_FORKED, text);
    FAILS(rb_rin_recv(in, &event, WAIT), RB_ERR_FORKED, text);
    FAILS(rb_conn_wait_down(conn, NULL, WAIT), RB_ERR_FORKED, text);
    FAILS(rb_listener_fd(listener), RB_ERR_FORKED, text);
    FAILS(cmq_cw_push(queue, &key, "x", 1), RB_ERR_FORKED, text);
    FAILS(rb_writer_free(writer), RB_ERR_FORKED, text);
    FAILS(rb_rin_free(in), RB_ERR_FORKED, text);
    FAILS(rb_context_free(context), RB_ERR_FORKED, text);
    FAILS(cmq_free(queue), RB_ERR_FORKED, text);
    FAILS(rb_rout_free(freed), RB_ERR_FREED, "the rOut was freed");
    OK(rb_rout_free(NULL));
    FAILS(rb_rout_fd(NULL), RB_ERR_NULL, "the rOut is NULL");
}

// Forks a child, which forks another one, and so on.
static void forks(int generations);

static void child(int generations) {
    handles_of_the_parent();
    open_ends();
    delivers();
    if (generations > 0) forks(generations - 1);
    delivers();
    close_ends();
}

static void forks(int generations) {
    pid_t pid = fork();
    int status;
    CHECK(pid >= 0);
    if (pid == 0) {
        child(generations);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int stop;

// Makes and frees handles all the time, so that a fork comes at any moment of it.
static void *makes_handles(void *unused) {
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        rb_rout *routs[200];
        for (int i = 0; i < 200; i++) OK(rb_rout_new(context, &routs[i]));
        for (int i = 0; i < 200; i++) OK(rb_rout_free(routs[i]));
        // The worker frees the memory. valgrind runs one thread at a time, and may never run the worker beside a busy thread.
        usleep(1000);
    }
    return NULL;
}

int main(void) {
    pthread_t thread;
    open_ends();
    delivers();
    forks(2);
    CHECK(!pthread_create(&thread, NULL, makes_handles, NULL));
    for (int i = 0; i < 10; i++) forks(0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    delivers();
    close_ends();
    puts("forked: ok");
    return 0;
}
