#!/usr/bin/env python3
"""Receives a buffer from another process of this machine through shared memory, without any library of ours.

    python3 examples/python/shm_subscribe.py 127.0.0.1:7600 BUFFER > file

The other process is a program that has a rocketbufs::Listener at that address, with transport = "shm" or "auto", and a buffer
of that number. It is no RBMQ broker, whose subscribers name topics. What is said over its socket, and how the memory is
laid out, is in docs/PROTOCOL.md. The memory is mapped to be read: this script can harm nobody, and copies a range out before
it believes it.
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
    """Another process's ring: one page that says how far it is, and the data."""

    def __init__(self, descriptor):
        if fcntl.fcntl(descriptor, F_GET_SEALS) & SEALS != SEALS:
            raise SystemExit("the memory is not sealed: it could be taken away while it is read")
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
        """The bytes at these positions, which lie in two pieces where the ring's end is between them."""
        first = start % self.capacity
        until = min(first + end - start, self.capacity)
        rest = end - start - (until - first)
        pieces = self.memory[self.data + first : self.data + until] + self.memory[self.data : self.data + rest]
        if start + self.capacity < self.word(32):
            raise SystemExit("the writer overwrote what it had promised to keep")
        return pieces


class Peer:
    """The other end of the socket: a stream of messages with eight bytes before each, and descriptors."""

    def __init__(self, addr):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect("\0rocketbufs/" + addr)
        except ConnectionRefusedError:
            raise SystemExit(f'nobody listens at {addr} with transport = "shm" or "auto"; it is written as it was there')
        credentials = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        user = struct.unpack("3i", credentials)[1]
        if user not in (0, os.geteuid()):
            raise SystemExit(f"a process of user {user} listens there")
        self.bytes, self.descriptors = b"", []

    def say(self, kind, fields=b""):
        self.socket.sendall(struct.pack("<IIB", CONTROL, 1 + len(fields), kind) + fields)

    def read(self, size):
        while len(self.bytes) < size:
            data, descriptors, flags, _ = socket.recv_fds(self.socket, 65536, 4)
            if flags & socket.MSG_CTRUNC:
                raise SystemExit("there is no place for one more descriptor (ulimit -n)")
            if not data:
                raise SystemExit("the other process is gone")
            self.bytes += data
            self.descriptors += descriptors
        taken, self.bytes = self.bytes[:size], self.bytes[size:]
        return taken

    def messages(self):
        """What comes: ("range", wire, up to, whole), ("offer", wire) or (kind, fields)."""
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
        self.ring, self.start, self.landed, self.boundary, self.told = None, 0, 0, 0, 0

    def credit(self):
        """Everything whole was written out: it is needed no more, and the writer may go a ring beyond it."""
        self.told = self.boundary
        positions = self.boundary, self.boundary, self.boundary, self.boundary + self.ring.capacity
        self.peer.say(CREDIT, struct.pack("<I4Q3IQB", WIRE, *positions, 1, 0, 0, self.start, 0))

    def arrived(self, low, whole):
        """What lies in the ring up to a position, of which these are the low 32 bits."""
        size = (low - self.landed) & 0xFFFFFFFF
        if self.ring is None or self.landed + size > self.told + self.ring.capacity:
            raise SystemExit("the writer went beyond what it may write")
        self.landed += size
        if not whole:
            return
        # Deliveries, one or several, and never part of one.
        self.out.write(self.ring.copy(self.boundary, self.landed))
        self.boundary = self.landed
        if self.boundary - self.told >= self.ring.capacity // 8:
            self.credit()


def arguments():
    """The address and the buffer's number, or the end with status 2."""
    wrong = None
    if len(sys.argv) != 3:
        wrong = f"usage: {sys.argv[0]} HOST:PORT BUFFER > file"
    elif not sys.argv[1].rpartition(":")[0] or not sys.argv[1].rpartition(":")[2].isdecimal():
        wrong = f"{sys.argv[1]!r} is no address: it is written 127.0.0.1:7600"
    elif not sys.argv[2].isdecimal() or int(sys.argv[2]) > 0xFFFFFFFF:
        wrong = f"{sys.argv[2]!r} is no number of a buffer"
    if wrong:
        print(wrong, file=sys.stderr)
        raise SystemExit(2)
    return sys.argv[1], int(sys.argv[2])


def main():
    addr, buffer = arguments()
    peer = Peer(addr)
    subscription = Subscription(peer, sys.stdout.buffer)
    instance = os.urandom(16)
    # No signs of life are promised, so none are expected.
    peer.say(HELLO, b"RKTB" + struct.pack("<HHI16sII", 1, 1, 0, instance, 0, 65536) + struct.pack("<H", 0))
    for kind, *fields in peer.messages():
        if kind == WELCOME:
            name = b""
            asks = struct.pack("<IIQBB16sQQII", WIRE, buffer, 1 << 30, BLOCK, OLDEST, bytes(16), 0, 0,
                               DEFAULT_TIMEOUT, 0)
            peer.say(SUBSCRIBE, asks + bytes([len(name)]) + name)
        elif kind == "offer":
            if not peer.descriptors:
                raise SystemExit("an offer came without its descriptor")
            subscription.ring = Ring(peer.descriptors.pop(0))
        elif kind == SUBSCRIBED:
            if subscription.ring is None:
                raise SystemExit("the ring of this buffer is not one that can be mapped")
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
            peer.say(PONG, fields[0])
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
        # Whoever read has gone: nothing is left to write when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise SystemExit(f"the connection to the other process failed: {error.strerror}")
    except KeyboardInterrupt:
        raise SystemExit(130)
