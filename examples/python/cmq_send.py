#!/usr/bin/env python3
"""The sender of the paper's figure 2: pushes 10,000 messages of four bytes.

    python3 examples/python/cmq_send.py [RECEIVER]       # with cmq_receive.py running
"""

import sys

from rocketbufs import cmq

if __name__ == "__main__":
    host, _, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:4711").rpartition(":")
    key = cmq.Key(host, int(port), 0)
    # The end of the block sends pending messages and tells the receiver how many there were.
    with cmq.new_rq("0.0.0.0:0") as queue:
        for _ in range(10_000):
            queue.cw_push(key, b"ping")
