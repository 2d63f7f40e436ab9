"""Ethernet frames with UDP datagrams, the datagrams of MultiMQC, and what the NIC level does with a frame: a plain model."""

import struct
from dataclasses import dataclass, field

MAC_NIC, MAC_PEER = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
PUSH_PORT, PULL_PORT, HEADER_PORT = 19999, 19998, 19997
PUSH, PULL, REPLY, BATCH = 1, 2, 3, 4
DATA, END = 0, 1
MAX_MESSAGE, MAX_REPLY = 2047, 1472


def ones_sum(data):
    """The ones' complement sum of 16-bit words."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def udp_checksum(source, destination, datagram):
    """Of a datagram whose checksum field is 0; never 0 itself."""
    pseudo = source + destination + struct.pack("!HH", 17, len(datagram))
    return (0xFFFF - ones_sum(pseudo + datagram)) or 0xFFFF


@dataclass
class Udp:
    """A datagram in a frame. Fields that are None are computed; the others go in as they are, right or wrong."""

    payload: bytes
    port: int = PUSH_PORT
    source_port: int = 40000
    v6: bool = False
    to_mac: bytes = MAC_NIC
    from_mac: bytes = MAC_PEER
    source: bytes = None
    destination: bytes = None
    udp_length: int = None
    ip_length: int = None
    check: int = None
    ip_check: int = None
    first: int = 0x45
    tos: int = 0
    ident: int = 0x1234
    fragment: int = 0x4000
    ttl: int = 64
    protocol: int = 17
    ethertype: int = None
    trailer: bytes = b""
    pad: bool = True

    def frame(self):
        size = 16 if self.v6 else 4
        source = self.source or (bytes([0x20] + [0] * 14 + [2]) if self.v6 else bytes([10, 1, 2, 3]))
        destination = self.destination or (bytes([0x20] + [0] * 14 + [1]) if self.v6 else bytes([10, 1, 2, 1]))
        assert len(source) == len(destination) == size
        length = len(self.payload) + 8
        udp = struct.pack("!HHHH", self.source_port, self.port, length if self.udp_length is None else self.udp_length, 0)
        datagram = udp + self.payload
        check = udp_checksum(source, destination, datagram) if self.check is None else self.check
        datagram = datagram[:6] + struct.pack("!H", check) + datagram[8:]
        if self.v6:
            ip_length = length if self.ip_length is None else self.ip_length
            ip = struct.pack("!IHBB", 0x60000000, ip_length, self.protocol, self.ttl) + source + destination
        else:
            ip_length = length + 20 if self.ip_length is None else self.ip_length
            ip = struct.pack("!BBHHHBBH", self.first, self.tos, ip_length, self.ident, self.fragment, self.ttl,
                             self.protocol, 0) + source + destination
            ip_check = 0xFFFF - ones_sum(ip) if self.ip_check is None else self.ip_check
            ip = ip[:10] + struct.pack("!H", ip_check) + ip[12:]
        ethertype = (0x86DD if self.v6 else 0x0800) if self.ethertype is None else self.ethertype
        frame = self.to_mac + self.from_mac + struct.pack("!H", ethertype) + ip + datagram + self.trailer
        return frame.ljust(60, b"\0") if self.pad else frame


def header(kind, topic=7, status=0, cookie=0, sequence=0, offset=0, length=0, epoch=0, body=b""):
    """A datagram in the header form."""
    return b"MQ" + struct.pack("<BBHHIIQII", 1, kind, topic, status, cookie, sequence, offset, length, epoch) + body


def pull(start, length, pad=0):
    """A pull in the plain form, `pad` bytes long at least."""
    return struct.pack("<QQ", start, length).ljust(pad, b"\0")


@dataclass
class Topic:
    id: int = 7
    push: int = PUSH_PORT
    pull: int = PULL_PORT
    epoch: int = 5
    log: bytearray = field(default_factory=bytearray)


class Model:
    """The NIC's treatment of frames, in order: ("host", frame), ("reply", frame) or ("stored", topic, message)."""

    def __init__(self, topics, header_port=HEADER_PORT, max_message=MAX_MESSAGE, max_reply=MAX_REPLY, trusted=None,
                 window=31744):
        self.topics, self.header_port = topics, header_port
        self.max_message, self.max_reply, self.trusted = max_message, max_reply, trusted
        self.window = window  # bytes below the head that level 1 answers for
        self.counts = {}

    def count(self, kind, topic, size=0):
        times, total = self.counts.get((kind, topic), (0, 0))
        self.counts[kind, topic] = (times + 1, total + size)

    def frame(self, frame):
        outcome = self.outcome(frame)
        if isinstance(outcome, tuple) and outcome[0] in ("stored", "reply"):
            return outcome
        reason, topic = outcome
        self.count(reason, topic)
        return ("host", frame)

    def outcome(self, frame):
        v6 = frame[12:14] == b"\x86\xdd"
        start = 54 if v6 else 34
        if len(frame) < start + 8 or not self.is_for_one_receiver(frame, v6):
            return "passed", 0
        source_port, port, length, check = struct.unpack("!HHHH", frame[start:start + 8])
        index = next((i for i, t in enumerate(self.topics) if port and port in (t.push, t.pull)), None)
        headed = port != 0 and port == self.header_port
        if index is None and not headed:
            return "passed", 0
        payload = frame[start + 8:start + length]
        topic, headed_well = index or 0, True
        if headed:
            ids = [t.id for t in self.topics]
            headed_well = length >= 40 and len(payload) >= 32 and payload[:3] == b"MQ\x01" and \
                struct.unpack("<H", payload[4:6])[0] in ids
            topic = ids.index(struct.unpack("<H", payload[4:6])[0]) if headed_well else 0
        if not v6 and frame[20] & 0x20:
            return "fragments", topic
        ip_length = struct.unpack("!H", frame[18:20] if v6 else frame[16:18])[0] - (0 if v6 else 20)
        if length < 8 or length != ip_length or start + length > len(frame) or not headed_well:
            return "malformed", topic
        request = self.request(payload, headed, port, topic)
        if request is None:
            return "malformed", topic
        kind, *what = request
        if kind == PUSH and len(what[0]) == 0:
            return "passed", topic
        if kind == PUSH and len(what[0]) > self.max_message:
            return "oversize", topic
        if not self.sums_are_right(frame, v6, start, length, check):
            return "corrupt", topic
        if kind == PUSH:
            self.topics[topic].log += what[0]
            self.count("stored", topic, len(what[0]))
            return "stored", topic, what[0]
        return self.pull(frame, v6, start, source_port, len(payload), headed, topic, *what)

    @staticmethod
    def is_for_one_receiver(frame, v6):
        if frame[0] & 1:
            return False
        if v6:
            return frame[14] >> 4 == 6 and frame[20] == 17 and frame[38] != 0xFF
        fragment = struct.unpack("!H", frame[20:22])[0]
        return frame[12:15] == b"\x08\x00\x45" and frame[23] == 17 and not fragment & 0x1FFF and frame[30] < 224

    def request(self, payload, headed, port, topic):
        if not headed and port == self.topics[topic].push:
            return PUSH, payload
        if not headed:
            if len(payload) < 16:
                return None
            start, length = struct.unpack("<QQ", payload[:16])
            return None if start >> 63 else (PULL, start, length, 0, b"")
        kind = payload[3]
        offset, length, epoch = struct.unpack("<QII", payload[16:32])
        if kind == PUSH:
            body = payload[32:]
            return (PUSH, body) if body and len(body) == length else None
        return (PULL, offset, length, epoch, payload[8:16]) if kind == PULL and not offset >> 63 else None

    @staticmethod
    def sums_are_right(frame, v6, start, length, check):
        addresses = frame[22:54] if v6 else frame[26:34]
        whole = addresses + struct.pack("!HH", 17, length) + frame[start:start + length]
        if not v6 and ones_sum(frame[14:34]) != 0xFFFF:
            return False
        return (check == 0 and not v6) or ones_sum(whole) == 0xFFFF

    def pull(self, frame, v6, start, source_port, room, headed, topic, offset, length, epoch, names):
        own = self.topics[topic]
        source = frame[26:30]
        trusted = not v6 and self.trusted and all(s & m == n for s, m, n in zip(source, self.trusted[1], self.trusted[0]))
        limit = self.max_reply if trusted else min(room, self.max_reply)
        n = min(length, max(limit - 32, 0) if headed else limit)
        ports = [p for t in self.topics for p in (t.push, t.pull)] + [self.header_port]
        if n == 0 or source_port == 0 or source_port in ports:
            return "refused", topic
        if epoch not in (0, own.epoch):
            return "passed", topic
        if offset < len(own.log) - self.window:
            return "overwritten", topic
        data = bytes(own.log[offset:offset + n])
        self.count("hits" if data else "misses", topic, len(data))
        if headed:
            status, at = (DATA, offset) if data else (END, len(own.log))
            cookie, sequence = struct.unpack("<II", names)
            data = header(REPLY, own.id, status, cookie, sequence, at, len(data), own.epoch, data)
        return "reply", answer(frame, v6, start, data)


def answer(frame, v6, start, payload):
    """The frame of a reply."""
    source_port, port = struct.unpack("!HH", frame[start:start + 4])
    addresses = (frame[38:54], frame[22:38]) if v6 else (frame[30:34], frame[26:30])
    return Udp(payload, port=source_port, source_port=port, v6=v6, to_mac=frame[6:12], from_mac=frame[:6],
               source=addresses[0], destination=addresses[1], ident=0).frame()
