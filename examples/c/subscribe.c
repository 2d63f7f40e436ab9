// Writes the data of a buffer to standard output, until its publisher closes it.
//
// ./subscribe BID [BROKER]

#include "check.h"
#include <unistd.h>

// Writes what a view shows, and releases it.
static void print(const rb_data *data) {
    if (data->data) {
        fwrite(data->data, 1, data->len, stdout);
    } else {
        // Memory that another process may write is copied before it is used.
        char *copy = malloc(data->len);
        check(rb_view_copy(data->view, 0, copy, data->len), "the data");
        fwrite(copy, 1, data->len, stdout);
        free(copy);
    }
    check(rb_view_consume(data->view), "the data");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: subscribe BID [BROKER]\n");
        return 2;
    }
    uint32_t bid = (uint32_t)atoi(argv[1]);
    rb_context *context;
    rb_conn *conn;
    rb_rin *in;
    check(rb_context_load(NULL, &context), "the context");
    check(rb_conn_connect(context, argc > 2 ? argv[2] : "127.0.0.1:7400", "subscriber", 10, &conn), "the connection");
    check(rb_rin_new(conn, &in), "the rIn");
    rb_subscribe_options oldest = {.size = sizeof oldest, .start = RB_START_OLDEST};
    check(rb_rin_subscribe_with(in, bid, &oldest, NULL), "the subscription");
    for (;;) {
        rb_in_event event;
        check(rb_rin_recv(in, &event, RB_NO_LIMIT), "receiving");
        switch (event.kind) {
        case RB_IN_DATA:
            print(&event.data);
            break;
        case RB_IN_REFUSED:
            // No publisher yet: try again.
            usleep(200000);
            check(rb_rin_subscribe_with(in, bid, &oldest, NULL), "the subscription");
            break;
        case RB_IN_CLOSED:
        case RB_IN_GONE:
            rb_rin_free(in);
            rb_conn_free(conn);
            rb_context_free(context);
            return 0;
        case RB_IN_CONN_DOWN:
            fprintf(stderr, "the broker: %s\n", event.down.text);
            return 1;
        default:
            break;
        }
    }
}
