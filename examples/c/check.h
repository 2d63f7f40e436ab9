// Shared by the examples: a program that ends with the library's text of an error.
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

// The environment's login: a token, or a user and a password, or nothing, for a broker that lets everybody in.
static inline rbmq_login login_of_environment(void) {
    rbmq_login login = {.size = sizeof login};
    login.token = getenv("RBMQ_TOKEN");
    login.user = getenv("RBMQ_USER");
    login.password = getenv("RBMQ_PASSWORD");
    return login;
}

#endif
