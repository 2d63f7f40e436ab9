// Bytes of the vectors of docs/, which are written in hexadecimal.
#ifndef OCTETS_H
#define OCTETS_H

#include "check.h"

enum { SIZE = 1 << 15 };

typedef struct {
    uint8_t data[SIZE];
    size_t len;
} octets;

static octets from_hex(const char *hex) {
    octets out = {.len = strlen(hex) / 2};
    CHECK(out.len <= SIZE);
    for (size_t i = 0; i < out.len; i++) {
        unsigned byte;
        CHECK(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        out.data[i] = (uint8_t)byte;
    }
    return out;
}

#endif
