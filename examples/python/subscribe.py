#!/usr/bin/env python3
"""Writes the data of a buffer to standard output, until its publisher closes it.

    python3 examples/python/subscribe.py BID [BROKER]
"""

import sys
import time

import rocketbufs
from publish import arguments


def receive(rin, bid):
    """The buffer's data, in the memory where it landed."""
    rin.subscribe(bid, start="oldest")
    while True:
        match rin.recv():
            case rocketbufs.InView() as view:
                with view:
                    yield view
            case rocketbufs.Event(kind="Refused"):
                # No publisher yet: try again.
                time.sleep(0.2)
                rin.subscribe(bid, start="oldest")
            case rocketbufs.Event(kind="Closed" | "Gone"):
                return
            case rocketbufs.Event(kind="ConnDown", reason=reason):
                sys.exit(reason.text)


if __name__ == "__main__":
    bid, broker = arguments("BID [BROKER]", 1)
    context = rocketbufs.Context(rocketbufs.Config.load())
    rin = rocketbufs.rIn(rocketbufs.Conn(context, broker, b"subscriber"))
    for view in receive(rin, bid):
        sys.stdout.buffer.write(view)
    sys.stdout.buffer.flush()
