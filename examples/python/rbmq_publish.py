#!/usr/bin/env python3
"""Publishes the lines of standard input to a topic of an RBMQ broker, and waits until a subscriber has consumed them.

    seq 10 | python3 examples/python/rbmq_publish.py TOPIC [BROKER [REPLY_TO]]    # with `rbmq serve` and `rbmq sub TOPIC` running

REPLY_TO is a topic for answers. RBMQ_TOKEN, or RBMQ_USER and RBMQ_PASSWORD, log in. ROCKETBUFS_TLS_MODE=require and ROCKETBUFS_TLS_CA=FILE encrypt.
"""

import sys

from login import login_of_environment
from rocketbufs import Config, rbmq

if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        print(f"usage: {sys.argv[0]} TOPIC [BROKER [REPLY_TO]]", file=sys.stderr)
        sys.exit(2)
    # The end of a block closes its topic or its connection.
    broker = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:7411"
    reply_to = sys.argv[3] if len(sys.argv) > 3 else None
    with rbmq.Publisher(broker, config=Config.load(), **login_of_environment()) as publisher:
        with publisher.topic(sys.argv[1]) as topic:
            topic.wait_subscribers(1, timeout=60)
            count = 0
            for line in sys.stdin.buffer:
                end = topic.publish(line.rstrip(b"\n"), reply_to=reply_to)
                count += 1
            if count:
                confirmed = topic.confirm(end, "consumed", timeout=60)
                print(f"{count} records, consumed by {confirmed.subscribers} subscribers")
