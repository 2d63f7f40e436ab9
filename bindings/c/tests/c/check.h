// Shared by the C tests: a check that says where it failed.
#ifndef CHECK_H
#define CHECK_H

#include <rocketbufs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition,        \
                    rb_last_error());                                                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) CHECK((call) == RB_OK)

// The call fails with this code and with a text that has this part.
#define FAILS(call, code, part)                                                                    \
    do {                                                                                           \
        int status_ = (call);                                                                      \
        if (status_ != (code) || !strstr(rb_last_error(), part)) {                                 \
            fprintf(stderr, "%s:%d: %s: %d (%s), expected %d (%s) with '%s'\n", __FILE__,          \
                    __LINE__, #call, status_, rb_last_error(), (code), rb_strerror(code), part);   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

// The library is not instrumented, so ThreadSanitizer does not see what the library promises: setting a callback happens before
// its calls, a call before the next one, the last call before unset returns; and a delivery before the next segment in the same
// memory. ENTER and LEAVE say so, and nothing more: calls that overlap are found. They use an address that no lock has: a structure may
// begin with a mutex, and unlocking a mutex replaces all that was released at its address while it was locked.
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *);
void __tsan_release(void *);
#define ENTER(of) __tsan_acquire((char *)(of) + 1)
#define LEAVE(of) __tsan_release((char *)(of) + 1)
#else
#define ENTER(of) (void)(of)
#define LEAVE(of) (void)(of)
#endif

// Longer than anything here takes: a test that waits for this has failed.
#define WAIT (60 * RB_S)

#endif
