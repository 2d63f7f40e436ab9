#!/usr/bin/env python3
"""A publish/subscribe broker, as in Listing 3 of paper 1.

    python3 examples/python/broker.py [ADDRESS]
    python3 examples/python/subscribe.py 7                          # in another terminal
    seq 10000 | python3 examples/python/publish.py 7 numbers        # in a third

Publishers and subscribers in Rust, C and C++ can use it too: the protocol is the same.
"""

import signal
import struct
import sys

import rocketbufs

topics = {}


def on_conn(conn):
    """Handles new connections, on a worker thread."""
    if conn.peer_hello == b"publisher":
        rocketbufs.rIn(conn).set_control_msg_cb(on_ctrl_msg)
    elif conn.peer_hello == b"subscriber":
        out.add_conn(conn)
    else:
        conn.reject("say 'publisher' or 'subscriber'")


def on_ctrl_msg(rin, message):
    """Handles control messages: a topic is created by its buffer id and its name."""
    if len(message) < 4:
        rin.conn.close("no topic creation")
        return
    (bid,) = struct.unpack_from("<I", message)
    try:
        # Subscribe to the publisher, deliver to subscribers: what arrives is forwarded without a copy, and without Python.
        out.splice_with(rin, bid, size_bytes=1 << 20)
    except rocketbufs.OutBufferError as error:
        rin.conn.close(str(error))
    else:
        topics[bid] = message[4:].decode(errors="replace")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(f"usage: {sys.argv[0]} [ADDRESS]")
    context = rocketbufs.Context(rocketbufs.Config.load())
    out = rocketbufs.rOut(context)  # Disseminates.
    listener = rocketbufs.Listener(context, sys.argv[1] if len(sys.argv) == 2 else "127.0.0.1:7400")
    listener.set_conn_cb(on_conn)  # Listens for publishers and subscribers.
    print(f"a broker on {listener.local_addr}; Ctrl-C ends it", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        context.shutdown()
