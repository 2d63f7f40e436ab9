#!/usr/bin/env python3
"""Receives a buffer from another process of this machine through shared memory, without a library.

    python3 examples/python/shm_subscribe.py 127.0.0.1:7600 BUFFER > file

The other process has a rocketbufs::Listener at that address, with transport = "shm" or "auto", and a buffer with that number.
The other process is no RBMQ broker: subscribers of a broker name topics. docs/PROTOCOL.md describes the messages on the socket
and the layout of the memory. The memory is mapped read-only. The script copies a range first, and then checks that it was
intact.
"""

import fcntl
import mmap
import os
import socket
import struct
import sys

CONTROL, LOCAL, MORE = 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000
OFFER, RANGE = 1, 3
HELLO, WELCOME, BYE, PING, PONG = 0x01, 0x02, 0x03, 0x04, 0x05
SUBSCRIBE, SUBSCRIBED, REFUSED = 0x10, 0x11, 0x12
CREDIT, ASK, LOST, CLOSED, GONE = 0x15, 0x16, 0x17, 0x18, 0x19
F_GET_SEALS, SEALS = 1034, 0x01 | 0x02 | 0x04 | 0x10  # SEAL, SHRINK, GROW, FUTURE_WRITE
OLDEST, BLOCK, DEFAULT_TIMEOUT = 1, 0, 0xFFFFFFFF
WIRE = 1
REASONS = {1: "there is no such buffer", 2: "its ring is too small", 3: "it does not allow the policy block",
           4: "it has too many subscriptions", 6: "that process sends nothing", 7: "this reader was too slow"}


class Ring:
    """The ring of another process: a page with its positions, and the data."""

    def __init__(self, descriptor):
        if fcntl.fcntl(descriptor, F_GET_SEALS) & SEALS != SEALS:
            raise SystemExit("the memory is not sealed: it could shrink while it is read")
        size = os.fstat(descriptor).st_size
        self.memory = mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ)
        os.close(descriptor)
        self.capacity, self.data = self.word(1), self.word(2)
        honest = self.word(0) == int.from_bytes(b"RKTRING1", sys.byteorder)
        whole = self.data == mmap.PAGESIZE and self.capacity >= self.data and self.data + self.capacity == size
        if not honest or not whole or self.capacity & (self.capacity - 1):
            raise SystemExit("the memory is no ring")

    def word(self, number):
        return struct.unpack_from("=Q", self.memory, 8 * number)[0]

    def copy(self, start, end):
        """The bytes between two positions, in two pieces if the end of the ring is between them."""
        first = start % self.capacity
        until = min(first + end - start, self.capacity)
        rest = end - start - (until - first)
        pieces = self.memory[self.data + first : self.data + until] + self.memory[self.data : self.data + rest]
        if start + self.capacity < self.word(32):
            raise SystemExit("the writer overwrote bytes that it had to keep")
        return pieces


class Peer:
    """The socket: a stream of messages, each after a header of eight bytes, and descriptors."""

    def __init__(self, addr):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect("\0rocketbufs/" + addr)
        except ConnectionRefusedError:
            raise SystemExit(f'no process listens at {addr} with transport = "shm" or "auto"; write the address as the listener does')
        credentials = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        user = struct.unpack("3i", credentials)[1]
        if user not in (0, os.geteuid()):
            raise SystemExit(f"a process of user {user} listens there")
        self.bytes, self.descriptors = b"", []

    def send(self, kind, fields=b""):
        self.socket.sendall(struct.pack("<IIB", CONTROL, 1 + len(fields), kind) + fields)

    def read(self, size):
        while len(self.bytes) < size:
            data, descriptors, flags, _ = socket.recv_fds(self.socket, 65536, 4)
            if flags & socket.MSG_CTRUNC:
                raise SystemExit("too many open descriptors (ulimit -n)")
            if not data:
                raise SystemExit("the other process has ended")
            self.bytes += data
            self.descriptors += descriptors
        taken, self.bytes = self.bytes[:size], self.bytes[size:]
        return taken

    def messages(self):
        """The messages: ("range", wire id, end, whole), ("offer", wire id) or (kind, fields)."""
        while True:
            wire, size = struct.unpack("<II", self.read(8))
            if wire == LOCAL:
                of, amount = struct.unpack("<II", self.read(8))
                if size == OFFER:
                    yield "offer", of
                elif size == RANGE:
                    yield "range", of & ~MORE, amount, not of & MORE
            elif wire == CONTROL:
                message = self.read(size)
                yield message[0], message[1:]
            else:
                raise SystemExit("the bytes of this buffer are not in shared memory")


class Subscription:
    def __init__(self, peer, out):
        self.peer, self.out = peer, out
        self.ring, self.start, self.landed, self.boundary, self.reported = None, 0, 0, 0, 0

    def credit(self):
        """Releases everything up to the boundary, so that the writer may write a ring beyond it."""
        self.reported = self.boundary
        positions = self.boundary, self.boundary, self.boundary, self.boundary + self.ring.capacity
        self.peer.send(CREDIT, struct.pack("<I4Q3IQB", WIRE, *positions, 1, 0, 0, self.start, 0))

    def arrived(self, low, whole):
        """Handles the data up to a position; `low` has the low 32 bits of the position."""
        size = (low - self.landed) & 0xFFFFFFFF
        if self.ring is None or self.landed + size > self.reported + self.ring.capacity:
            raise SystemExit("the writer wrote beyond its credit")
        self.landed += size
        if not whole:
            return
        # One or more complete deliveries.
        self.out.write(self.ring.copy(self.boundary, self.landed))
        self.boundary = self.landed
        if self.boundary - self.reported >= self.ring.capacity // 8:
            self.credit()


def arguments():
    """The address and the number of the buffer; exits with status 2 if they are wrong."""
    wrong = None
    if len(sys.argv) != 3:
        wrong = f"usage: {sys.argv[0]} HOST:PORT BUFFER > file"
    elif not sys.argv[1].rpartition(":")[0] or not sys.argv[1].rpartition(":")[2].isdecimal():
        wrong = f"{sys.argv[1]!r} is no address: expected HOST:PORT"
    elif not sys.argv[2].isdecimal() or int(sys.argv[2]) > 0xFFFFFFFF:
        wrong = f"{sys.argv[2]!r} is no buffer number"
    if wrong:
        print(wrong, file=sys.stderr)
        raise SystemExit(2)
    return sys.argv[1], int(sys.argv[2])


def main():
    addr, buffer = arguments()
    peer = Peer(addr)
    subscription = Subscription(peer, sys.stdout.buffer)
    instance = os.urandom(16)
    # This end announces no heartbeat, so the peer expects none.
    peer.send(HELLO, b"RKTB" + struct.pack("<HHI16sII", 1, 1, 0, instance, 0, 65536) + struct.pack("<H", 0))
    for kind, *fields in peer.messages():
        if kind == WELCOME:
            name = b""
            asks = struct.pack("<IIQBB16sQQII", WIRE, buffer, 1 << 30, BLOCK, OLDEST, bytes(16), 0, 0,
                               DEFAULT_TIMEOUT, 0)
            peer.send(SUBSCRIBE, asks + bytes([len(name)]) + name)
        elif kind == "offer":
            if not peer.descriptors:
                raise SystemExit("an offer arrived without a descriptor")
            subscription.ring = Ring(peer.descriptors.pop(0))
        elif kind == SUBSCRIBED:
            if subscription.ring is None:
                raise SystemExit("the ring of this buffer cannot be mapped")
            start = struct.unpack_from("<I16sQ", fields[0])[2]
            subscription.start = subscription.landed = subscription.boundary = start
            subscription.credit()
        elif kind == "range":
            subscription.arrived(fields[1], fields[2])
        elif kind == LOST:
            subscription.landed = subscription.boundary = struct.unpack("<IQQ", fields[0])[2]
            subscription.credit()
        elif kind == ASK:
            subscription.credit()
        elif kind == PING:
            peer.send(PONG, fields[0])
        elif kind in (CLOSED, GONE):
            subscription.out.flush()
            subscription.credit()
            print(f"the log ends at {struct.unpack('<IQ', fields[0])[1]}", file=sys.stderr)
            return
        elif kind == REFUSED:
            code = struct.unpack_from("<H", fields[0], 4)[0]
            raise SystemExit(f"buffer {buffer} was refused: {REASONS.get(code, f'code {code}')}")
        elif kind == BYE:
            text = fields[0][4:].decode(errors="replace")
            raise SystemExit(f"the other process closed the connection: {text!r}")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        # The reader of the output has ended: the interpreter must not flush it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise SystemExit(f"the connection to the other process failed: {error.strerror}")
    except KeyboardInterrupt:
        raise SystemExit(130)
