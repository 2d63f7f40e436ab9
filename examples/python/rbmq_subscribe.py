#!/usr/bin/env python3
"""Prints the messages of topics of an RBMQ broker, each with the topic for answers if it has one, until every publisher has closed its topic.

    python3 examples/python/rbmq_subscribe.py TOPICS [BROKER]

TOPICS is a name or a pattern, such as 'sensors/+/temperature' or '#'. RBMQ_TOKEN, or RBMQ_USER and RBMQ_PASSWORD, log in.
ROCKETBUFS_TLS_MODE=require and ROCKETBUFS_TLS_CA=FILE encrypt.
"""

import sys

from login import login_of_environment
from rocketbufs import Config, rbmq

if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        print(f"usage: {sys.argv[0]} TOPICS [BROKER]", file=sys.stderr)
        sys.exit(2)
    broker = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:7411"
    with rbmq.Subscriber(broker, until_ended=True, confirm_consumed=True, config=Config.load(), **login_of_environment()) as subscriber:
        subscriber.subscribe(sys.argv[1])
        # Several messages at once, in the memory where they landed. The end of the block consumes them.
        while (batch := subscriber.recv_batch()) is not None:
            with batch:
                for message in batch:
                    answers = f"\t{message.reply_to}" if message.reply_to is not None else ""
                    sys.stdout.buffer.write(message.data + answers.encode() + b"\n")
        sys.stdout.buffer.flush()
