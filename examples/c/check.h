// What the examples share: a program that ends with the library's text of an error.
#ifndef CHECK_H
#define CHECK_H

#include <rocketbufs.h>
#include <stdio.h>
#include <stdlib.h>

// Ends the program if a call failed, or if its outcome is not success.
static inline void check(int status, const char *what) {
    if (status == RB_OK) return;
    fprintf(stderr, "%s: %s\n", what, status < 0 ? rb_last_error() : rb_strerror(status));
    exit(1);
}

#endif
