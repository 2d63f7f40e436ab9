#!/usr/bin/env python3
"""Sends the lines of its input to a queue, encrypted, and waits until each is confirmed or given up.

    cmq keygen server.key; cmq receive 127.0.0.1:4711 --reliable --key server.key
    python3 examples/python/cmq_send_reliable.py server.key.pub [RECEIVER] < lines
"""

import sys

import rocketbufs
from rocketbufs import cmq

if __name__ == "__main__":
    server = cmq.PublicKey.read(sys.argv[1] if len(sys.argv) > 1 else "server.key.pub")
    host, _, port = (sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:4711").rpartition(":")
    key = cmq.Key(host, int(port), 0)
    security = cmq.Security(cmq.SecretKey.generate(), default_peer=server)
    with cmq.new_rq("0.0.0.0:0", security=security, reliable=True) as queue:
        for line in sys.stdin.buffer:
            while True:
                try:
                    queue.push_reliable(key, line.rstrip(b"\n"))
                    break
                except rocketbufs.Full:
                    queue.wait_all_confirmed(0.1)
        queue.wait_all_confirmed()
        counts = queue.stats().reliable
        print(f"{counts.confirmed} confirmed, {counts.failed} given up")
    sys.exit(1 if counts.failed else 0)
