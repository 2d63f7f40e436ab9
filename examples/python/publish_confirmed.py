#!/usr/bin/env python3
"""Publishes each line of standard input, and waits until every subscriber has consumed it before the next one.

    seq 10 | python3 examples/python/publish_confirmed.py BID TOPIC [BROKER]
"""

import sys

from publish import arguments, finish, publish_to

if __name__ == "__main__":
    out, buffer = publish_to(*arguments("BID TOPIC [BROKER]", 2))
    count = 0
    for line in sys.stdin.buffer:
        # Through the broker: its subscribers have released the line, and not only the broker.
        buffer.wait("consumed", buffer.append(line))
        count += 1
    print(f"{count} deliveries consumed", file=sys.stderr)
    finish(out, buffer)
