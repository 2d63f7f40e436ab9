// The functions that the bench calls for each library. Every function prints its reason to standard error before it fails.

#ifndef END_H
#define END_H

#include <stddef.h>
#include <stdint.h>

struct end_library {
    const char *(*version)(void);
    // A publisher at HOST and PORT, when messages published from then on reach `subscribers` subscribers. With
    // `at_once`, the program waits for an answer to each message. NULL fails.
    void *(*publisher)(const char *host, uint16_t port, const char *topic, uint32_t subscribers, int at_once);
    // Publishes one message. Not 0 fails.
    int (*publish)(void *publisher, const void *message, size_t len);
    // Sends what the program still keeps. Not 0 fails.
    int (*flush)(void *publisher);
    // A subscriber, when no message published from then on is missed. NULL fails.
    void *(*subscriber)(const char *host, uint16_t port, const char *topic);
    // The next message, valid until the next call. NULL fails.
    const void *(*receive)(void *subscriber, size_t *len);
};

#endif
