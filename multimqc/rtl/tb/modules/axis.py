"""Streams for tests with cocotb: sources and sinks that wait at random, and check the rules of AXI-Stream.

All signals are driven at the falling edge of the clock and looked at a moment later, so that it does not matter when the simulator
calls back at the rising one.
"""

import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge, Timer

SEED = int(os.environ.get("SEED", "1"))


class Source:
    """Sends beats (dicts of signal values); `tdata`, `tvalid`, … follow the prefix."""

    def __init__(self, dut, prefix, rng, busy=1.0, valid="tvalid", ready="tready"):
        self.dut, self.prefix, self.rng, self.busy = dut, prefix, rng, busy
        self.valid, self.ready = getattr(dut, prefix + valid), getattr(dut, prefix + ready, None)
        self.beats, self.held = [], False
        self.valid.value = 0

    def drive(self):
        self.held = self.held or (bool(self.beats) and self.rng.random() < self.busy)
        self.valid.value = int(self.held)
        if self.held:
            for name, value in self.beats[0].items():
                getattr(self.dut, self.prefix + name).value = value

    def sample(self):
        if self.held and (self.ready is None or self.ready.value):
            self.beats.pop(0)
            self.held = False


class Sink:
    """Takes beats; what waits must not change."""

    def __init__(self, dut, prefix, rng, names, busy=1.0, valid="tvalid", ready="tready"):
        self.dut, self.rng, self.busy = dut, rng, busy
        self.valid, self.ready = getattr(dut, prefix + valid), getattr(dut, prefix + ready)
        self.names = {name: getattr(dut, prefix + name) for name in names}
        self.beats, self.clocks, self.waits = [], [], None
        self.clock = 0
        self.ready.value = 0

    def drive(self):
        self.is_ready = self.rng.random() < self.busy
        self.ready.value = int(self.is_ready)

    def sample(self):
        self.clock += 1
        if not self.valid.value:
            assert self.waits is None, "tvalid fell before tready"
            return
        beat = {name: int(signal.value) for name, signal in self.names.items()}
        assert self.waits is None or beat == self.waits, "a beat changed before it was taken"
        self.waits = None if self.is_ready else beat
        if self.is_ready:
            self.beats.append(beat)
            self.clocks.append(self.clock)


def beats_of(data, width=64, **more):
    """The beats of a frame; at least one, so that a frame may be empty."""
    found = []
    for at in range(0, max(len(data), 1), width):
        part = data[at:at + width]
        found.append({"tdata": int.from_bytes(part, "little"), "tkeep": (1 << len(part)) - 1,
                      "tlast": int(at + width >= len(data)), **more})
    return found


def frames_of(beats, width=64):
    """The frames that beats make: [(bytes, the last beat)]."""
    found, data = [], b""
    for beat in beats:
        keep = beat["tkeep"]
        size = bin(keep).count("1")
        assert keep == (1 << size) - 1, "tkeep has a gap"
        assert beat["tlast"] or size == width, "a beat that is not the last has not all bytes"
        data += beat["tdata"].to_bytes(width, "little")[:size]
        if beat["tlast"]:
            found.append((data, beat))
            data = b""
    return found


async def start(dut):
    """Starts the clock and resets."""
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    dut.rst.value = 1
    for _ in range(5):
        await FallingEdge(dut.clk)
    dut.rst.value = 0


async def run(dut, agents, done, limit=200_000):
    """Clocks until `done()`; fails after `limit` clocks."""
    for _ in range(limit):
        await FallingEdge(dut.clk)
        for agent in agents:
            agent.drive()
        await Timer(1, "ns")
        for agent in agents:
            agent.sample()
        if done():
            # A beat that was taken in this clock is taken.
            await RisingEdge(dut.clk)
            return
    raise AssertionError("it does not end")


def speeds(rng):
    """How busy the sides of a test are: full speed, or waiting now and then."""
    return [rng.choice([1.0, 0.7, 0.3]) for _ in range(8)]


def generator(test):
    """A generator of random numbers of its own for each test."""
    return random.Random(f"{SEED} {test}")
