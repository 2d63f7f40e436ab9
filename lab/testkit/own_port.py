"""A port that a test has for itself, as testkit's own_port says (src/port.rs). As a program it prints one, and keeps it until its input ends."""

import os
import socket
import sys

FIRST, BLOCK, USUAL = 16384, 32, 32768
_claims = []
_left = []


def _end():
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as chosen:
            lowest = int(chosen.read().split()[0])
    except OSError:
        return USUAL
    return lowest if lowest >= FIRST + 64 * BLOCK else USUAL


def _claim():
    count = (_end() - FIRST) // BLOCK
    for number in range(count):
        first = FIRST + (os.getpid() + number) % count * BLOCK
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0testkit/ports/{first}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return range(first, first + BLOCK)
    raise RuntimeError("no block of ports is left")


def _is_free(port):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True


def own_port():
    """A port that no other test gets, for TCP and UDP at any address of this machine, up to the end of the process."""
    while True:
        if not _left:
            _left.extend(_claim())
        port = _left.pop(0)
        if _is_free(port):
            return port


if __name__ == "__main__":
    print(own_port(), flush=True)
    sys.stdin.read()
