#!/usr/bin/env python3
"""Publishes numbers without a copy: each segment of the buffer is filled in place.

    python3 examples/python/fill.py BID TOPIC COUNT [BROKER]

COUNT segments have 1,000 numbers of 64 bits (little endian) each, which continue from one segment to the next.
"""

import sys

from publish import arguments, finish, publish_to

NUMBERS = 1000

if __name__ == "__main__":
    bid, topic, count, broker = arguments("BID TOPIC COUNT [BROKER]", 3)
    out, buffer = publish_to(bid, topic, broker)
    for n in range(int(count)):
        with buffer.segment(8 * NUMBERS) as segment:
            # numpy.frombuffer(segment, dtype="<u8") is the same memory as an array.
            with segment.view as view, view.cast("Q") as numbers:
                for i in range(NUMBERS):
                    numbers[i] = n * NUMBERS + i
    finish(out, buffer)
