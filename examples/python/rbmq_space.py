#!/usr/bin/env python3
"""Publishes to many topics of an RBMQ broker by one writer: each line of standard input is a topic of a space, a blank, and a message.

    printf 'devices/7/temp 21.5\\ndevices/7/door open\\n' | python3 examples/python/rbmq_space.py 'devices/#' [BROKER]

With `rbmq sub 'devices/#'` running, and `rbmq serve` with a rule of this pattern and `space = true`. RBMQ_TOKEN, or RBMQ_USER and RBMQ_PASSWORD, log
in. ROCKETBUFS_TLS_MODE=require and ROCKETBUFS_TLS_CA=FILE encrypt.
"""

import sys

from login import login_of_environment
from rocketbufs import Config, rbmq

if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        print(f"usage: {sys.argv[0]} PATTERN [BROKER]", file=sys.stderr)
        sys.exit(2)
    broker = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:7411"
    with rbmq.Publisher(broker, config=Config.load(), **login_of_environment()) as publisher:
        with publisher.space(sys.argv[1]) as space:
            space.wait_subscribers(1, timeout=60)
            count = 0
            for line in sys.stdin.buffer:
                topic, text = line.rstrip(b"\n").split(b" ", 1)
                space.publish_to(topic.decode(), text, payload_is_utf8=True)
                count += 1
            confirmed = space.confirm(level="delivered", timeout=60)
            print(f"{count} records, delivered to {confirmed.subscribers} subscribers")
