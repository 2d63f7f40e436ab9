"""Runs scripts of frames through the simulated NIC (nic_bench.cpp)."""

import os
import struct
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

BENCH = Path(os.environ.get("NIC_BENCH", Path(__file__).parents[3] / "target/rtl/nic/nic_bench"))
# The ports that the bench was built with, 4x10 or 1x100: how many, and of how many GbE.
SHAPE = os.environ.get("NIC_SHAPE", "4x10")
PORTS, GBITS = map(int, SHAPE.split("x"))
CLOCK_HZ = {10: 156_250_000, 100: 322_265_625}[GBITS]
COUNTS = ["stored", "hits", "misses", "overwritten", "dropped", "oversize", "corrupt", "fragments", "malformed", "refused",
          "passed", "busy"]
PORT_COUNTS = ["received", "overrun", "broken", "sent", "tx_dropped"]


@dataclass
class Frame:
    """A frame that came out: where, from its first to its last beat, its bytes."""

    where: int
    first: int
    last: int
    data: bytes


@dataclass
class Result:
    inputs: list = field(default_factory=list)    # (port, first clock, last clock), in the order of last clocks
    network: list = field(default_factory=list)   # frames to the network; `where` is the port
    host: list = field(default_factory=list)      # frames to the host; `where` is 16 for a batch, else the port
    registers: list = field(default_factory=list)  # (address, value)
    clocks: int = 0


class Script:
    """Operations for the bench; nic_bench.cpp describes them."""

    def __init__(self):
        self.parts, self.written = [], []

    def write(self, address, value):
        self.written.append((address, value))
        self.parts.append(struct.pack("<cII", b"W", address, value & 0xFFFFFFFF))

    def read(self, address):
        self.parts.append(struct.pack("<cI", b"R", address))

    def speed(self, seed=1, host=255, port=255):
        self.parts.append(struct.pack("<cIBB", b"S", seed, host, port))

    def frame(self, port, data, gap=0, broken=False, tight=False):
        self.parts.append(struct.pack("<cBBII", b"F", port, broken + 2 * tight, gap, len(data)) + data)

    def from_host(self, port, data):
        self.parts.append(struct.pack("<cBI", b"H", port, len(data)) + data)

    def settle(self, clocks=400):
        self.parts.append(struct.pack("<cI", b"B", clocks))

    def dram(self, clocks):
        self.parts.append(struct.pack("<cI", b"D", clocks))

    def open(self, index, topic, offset=0):
        """Opens a topic (frames.Topic)."""
        at = 0x2000 + index * 32
        for step, value in enumerate([1, topic.id, topic.push, topic.pull, topic.epoch, offset & 0xFFFFFFFF, offset >> 32]):
            self.write(at + 4 * step, value)

    def functions(self, index, into=0, out=0):
        """Chooses a topic's input and output function: 0 none, 1 drops by range, 2 one field."""
        self.write(0x2000 + index * 32 + 28, into | out << 4)

    def read_counters(self, topics, ports=PORTS):
        for topic in range(topics):
            for port in range(ports):
                for kind in range(len(COUNTS)):
                    for word in (0, 2):
                        self.read(0x800000 + (topic << 12) + (port << 8) + (kind << 4) + 4 * word)
        for port in range(ports):
            for event in range(len(PORT_COUNTS)):
                self.read(0x200 + 32 * port + 4 * event)
        self.read(0x80)

    def run(self):
        with tempfile.TemporaryDirectory() as folder:
            script, result = Path(folder) / "script", Path(folder) / "result"
            script.write_bytes(b"".join(self.parts))
            seed = os.environ.get("NIC_RESET_SEED", "1")
            subprocess.run([BENCH, script, result, "+verilator+rand+reset+2", f"+verilator+seed+{seed}"], check=True)
            found = parse(result.read_bytes())
        if "NIC_COVERAGE" in os.environ:
            with open(Path(os.environ["NIC_COVERAGE"]) / "points", "a", encoding="utf-8") as points:
                points.write("".join(f"{point}\n" for point in sorted(reached(self.written, found))))
        return found


def parse(data):
    result, at = Result(), 0
    while at < len(data):
        code, at = data[at:at + 1], at + 1
        if code == b"I":
            result.inputs.append(struct.unpack_from("<BQQ", data, at))
            at += 17
        elif code == b"R":
            result.registers.append(struct.unpack_from("<II", data, at))
            at += 8
        elif code in (b"P", b"O"):
            where, first, last, length = struct.unpack_from("<BQQI", data, at)
            at += 21
            (result.network if code == b"P" else result.host).append(Frame(where, first, last, data[at:at + length]))
            at += length
        elif code == b"E":
            result.clocks = struct.unpack_from("<Q", data, at)[0]
            at += 8
        else:
            raise ValueError(f"an unknown record {code}")
    return result


FORMS = [f"{form} {version}" for form in ("plain", "header form") for version in ("IPv4", "IPv6")]
# The functional points that the tests together must have seen.
POINTS = ([f"counted: {kind}" for kind in COUNTS] + [f"port: {event}" for event in PORT_COUNTS]
          + [f"levels: {levels:02b}" for levels in range(4)]
          + [f"{place} function {number}" for place in ("input", "output") for number in (1, 2)]
          + [f"reply: {form}, {what}" for form in FORMS for what in ("bytes", "end of the log")]
          + [f"reply: of {beats} beats" for beats in ("1", "2", "3 to 22", "23 and more")]
          + [f"{way} port {port}" for way in ("from", "reply to") for port in range(4)]
          + ["host: a batch", "host: an empty batch, after a hole", "host: a frame as it came", "host: frames dropped"])


def reached(written, result):
    """Which of POINTS a run has seen."""
    points = {f"from port {port}" for port, _, _ in result.inputs}
    points |= {f"levels: {value:02b}" for address, value in written if address == 0x08}
    for address, value in written:
        if 0x2000 <= address < 0x4000 and address & 31 == 28:
            points |= {f"{place} function {number}" for place, number in (("input", value & 3), ("output", value >> 4 & 3)) if number}
    counts, ports, dropped = counters(result)
    points |= {f"counted: {kind}" for kind, _ in counts} | {f"port: {event}" for (event, _), times in ports.items() if times}
    if dropped:
        points.add("host: frames dropped")
    for frame in result.host:
        body = int.from_bytes(frame.data[66:70], "little")
        points.add("host: a frame as it came" if not frame.where & 16 else "host: a batch" if body else
                   "host: an empty batch, after a hole")
    for frame in result.network:
        v6 = frame.data[12:14] == b"\x86\xdd"
        datagram = frame.data[54:] if v6 else frame.data[34:]
        headed, length = datagram[8:10] == b"MQ", int.from_bytes(datagram[4:6], "big") - 8
        beats = -(-len(frame.data) // 64)
        points |= {f"reply to port {frame.where}",
                   f"reply: {'header form' if headed else 'plain'} IPv{6 if v6 else 4}, {'bytes' if length > 32 * headed else 'end of the log'}",
                   f"reply: of {beats if beats < 3 else '3 to 22' if beats < 23 else '23 and more'} beats"}
    return points


def counters(result):
    """The counters of `Script.read_counters`: {(kind, topic): (times, bytes)} over all ports, {(event, port): times}."""
    counts, ports, host = {}, {}, 0
    for address, value in result.registers:
        if address >= 0x800000:
            key = COUNTS[address >> 4 & 15], address >> 12 & 255
            times, size = counts.get(key, (0, 0))
            counts[key] = (times + value, size) if address & 15 == 0 else (times, size + value)
        elif 0x200 <= address < 0x300:
            ports[PORT_COUNTS[address >> 2 & 7], address >> 5 & 7] = value
        elif address == 0x80:
            host = value
    return {key: value for key, value in counts.items() if value[0]}, ports, host
