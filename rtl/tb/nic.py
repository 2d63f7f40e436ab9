"""Runs scripts of frames through the simulated NIC (nic_bench.cpp)."""

import os
import struct
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

BENCH = Path(os.environ.get("NIC_BENCH", Path(__file__).parents[2] / "target/rtl/nic/nic_bench"))
CLOCK_HZ = 156_250_000
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
        self.parts = []

    def write(self, address, value):
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

    def read_counters(self, topics, ports=4):
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
            return parse(result.read_bytes())


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
