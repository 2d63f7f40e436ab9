#!/usr/bin/env python3
"""Publishes standard input in one buffer, with a delivery for each piece that was read.

    seq 10 | python3 examples/python/publish.py BID TOPIC [BROKER]
"""

import struct
import sys

import rocketbufs

PIECE = 64 << 10


def publish_to(bid, topic, broker):
    """A buffer to which the broker has subscribed, and its rOut."""
    context = rocketbufs.Context(rocketbufs.Config.load())
    out = rocketbufs.rOut(context)
    buffer = out.create_buffer(bid, 1 << 20)
    conn = rocketbufs.Conn(context, broker, b"publisher")
    out.add_conn(conn)
    conn.send_control(struct.pack("<I", bid) + topic.encode())
    while (event := out.recv_event(5)) is not None:
        # The broker subscribes, or closes the connection because it refuses the topic.
        if event.kind == "Subscribed":
            return out, buffer
        if event.kind == "ConnDown":
            sys.exit(event.reason.text)
    sys.exit("the broker does not answer")


def finish(out, buffer):
    """Ends the buffer, and waits until the broker has everything."""
    buffer.destroy()
    buffer.drain(10)
    while (event := out.recv_event(0)) is not None:
        if event.kind == "ConnDown":
            # The connection was lost meanwhile: the drain had nobody to wait for.
            sys.exit(event.reason.text)


def arguments(usage, least):
    """The arguments; exits with the usage if they are wrong."""
    given = sys.argv[1:]
    if not least <= len(given) <= least + 1 or not given[0].isdecimal():
        print(f"usage: {sys.argv[0]} {usage}", file=sys.stderr)
        sys.exit(2)
    return [int(given[0]), *given[1:least], given[least] if len(given) > least else "127.0.0.1:7400"]


if __name__ == "__main__":
    out, buffer = publish_to(*arguments("BID TOPIC [BROKER]", 2))
    while piece := sys.stdin.buffer.read1(PIECE):
        buffer.append(piece)
    finish(out, buffer)
