#!/usr/bin/env python3
"""The receiver of the paper's figure 3: pops messages until the sender has closed, and prints the losses.

    python3 examples/python/cmq_receive.py [ADDRESS]     # then cmq_send.py
"""

import sys

from rocketbufs import cmq

if __name__ == "__main__":
    queue = cmq.new_rq(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:4711")
    print("receiving at %s:%d" % queue.local_addr, file=sys.stderr, flush=True)
    received = lost = 0
    while True:
        # cw_pop never waits. A pop with a time-out keeps this loop idle while no message arrives.
        while queue.pop(0.02) is not None:
            received += 1
        while (event := queue.next_event()) is not None:
            if event.kind == "Joined":
                lost += event.missed
            elif event.kind == "Lost":
                lost += event.count
            elif event.kind == "Closed":
                print("%s:%d sent %d: %d received, %d lost" % (*event.sender, event.sent, received, lost))
                sys.exit()
