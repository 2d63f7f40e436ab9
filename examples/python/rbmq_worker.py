#!/usr/bin/env python3
"""Works on the messages of a topic that an RBMQ broker keeps, together with the other workers of a group: prints each one, and acknowledges it.

    python3 examples/python/rbmq_worker.py TOPIC GROUP COUNT [BROKER]

The program ends after so many messages. RBMQ_TOKEN, or RBMQ_USER and RBMQ_PASSWORD, log in. ROCKETBUFS_TLS_MODE=require and
ROCKETBUFS_TLS_CA=FILE encrypt.
"""

import sys

from login import login_of_environment
from rocketbufs import Config, rbmq

if __name__ == "__main__":
    if not 4 <= len(sys.argv) <= 5:
        print(f"usage: {sys.argv[0]} TOPIC GROUP COUNT [BROKER]", file=sys.stderr)
        sys.exit(2)
    broker = sys.argv[4] if len(sys.argv) > 4 else "127.0.0.1:7411"
    # Of few messages at a time each worker has some. One that is not acknowledged within a minute goes to another worker.
    with rbmq.GroupWorker(broker, sys.argv[1], sys.argv[2], credit=5, ack_time=60, config=Config.load(), **login_of_environment()) as worker:
        for _ in range(int(sys.argv[3])):
            # The end of the block acknowledges the message; after an exception it comes again.
            with worker.recv() as message:
                sys.stdout.buffer.write(message.data + b"\n")
    sys.stdout.buffer.flush()
