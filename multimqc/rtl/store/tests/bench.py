"""Drives the store's streams in a single loop: one step for each clock, with gaps and back-pressure at random."""

import random
from collections import deque

import cocotb
from cocotb.triggers import FallingEdge, ReadOnly, Timer

from golden import Batches, Log, Request

MAX_MESSAGE = 2047
# From the last beat of a push to the clock in which readers see it, with room to spare.
PIPELINE = 8


class Response:
    """A response without its timing."""

    def __init__(self, tag, status, offset, length, data):
        self.tag, self.status, self.offset, self.length, self.data = tag, status, offset, length, data

    def __repr__(self):
        return f"tag {self.tag} status {self.status} offset {self.offset} length {self.length}"


def chance(rng, probability):
    return probability >= 1 or rng.random() < probability


class Bench:
    """The store with its streams. The probabilities are those of a valid or ready in a clock."""

    def __init__(self, dut, seed):
        self.dut, self.rng = dut, random.Random(seed)
        dut._log.info("seed %d", seed)
        self.topics = int(dut.TOPICS.value)
        self.window = int(dut.LEVEL1_BYTES.value) - 64 * 16
        self.keeps = self.window - MAX_MESSAGE
        self.level2 = int(dut.LEVEL2_BYTES.value)
        if self.level2:
            self.keeps = max(self.keeps, self.level2 - 8192)
        self.alone = False
        # Level 2 is made for a part of the core's rate, 32 or 39 bytes of 64 in a clock; a test of more says so.
        self.level2_rate = 0.5 if int(dut.RINGS.value) == 1 else 0.6
        self.full_rate = not self.level2
        self.logs = [Log() for _ in range(self.topics)]
        self.hosts = [Batches(log) for log in self.logs]
        self.clock = 0
        self.pushes, self.requests = deque(), deque()
        self.waiting = deque()
        self.push_beats = deque()
        self.p_push = self.p_read = self.p_response = self.p_batch = 1.0
        self.recent = deque()  # (clock, topic, head): messages on their way
        self.stored = [0] * self.topics
        self.response_parts, self.batch_parts = [], []
        self.responses = self.gaps = 0
        self.first_beat = {}
        self.covered = set()
        self.push_valid = self.read_valid = False
        self.held = {}
        self.on_response = None
        self.new_levels = None

    async def start(self, levels=3, batch_bytes=1440, batch_age=2000):
        dut = self.dut
        for name in ("s_push_tvalid", "s_push_tdata", "s_push_tkeep", "s_push_tlast", "s_push_tuser", "s_read_valid", "s_read_data",
                     "m_response_tready", "m_batch_tready", "cfg_open_valid", "cfg_open_topic", "cfg_open_offset", "cfg_flush",
                     "stat_topic", "stat_index", "fail_write", "fail_read"):
            getattr(dut, name).value = 0
        dut.cfg_levels.value = levels
        dut.cfg_batch_bytes.value = batch_bytes
        dut.cfg_batch_age.value = batch_age
        dut.clk.value = 0
        dut.rst.value = 1
        cocotb.start_soon(self._tick())
        for _ in range(8):
            await FallingEdge(dut.clk)
        dut.rst.value = 0

    async def _tick(self):
        while True:
            self.dut.clk.value = 0
            await Timer(3200, "ps")
            self.dut.clk.value = 1
            await Timer(3200, "ps")

    # --- What is asked for ---------------------------------------------------------

    def push(self, topic, message, port=0):
        """Queues a message."""
        user = len(message) | port << 16 | topic << 20
        for at in range(0, len(message), 64):
            part = message[at : at + 64]
            last = at + 64 >= len(message)
            self.push_beats.append((topic, int.from_bytes(part, "little"), (1 << len(part)) - 1, last, user,
                                    message if last else None, at == 0))

    def read(self, topic, offset, length):
        """Queues a read request."""
        tag = self.rng.randrange(256)
        self.requests.append((tag, topic, offset, length))

    def open(self, topic, offset):
        """Opens a topic anew, in the next step; its streams must be quiet."""
        self.dut.cfg_open_valid.value = 1
        self.dut.cfg_open_topic.value = topic
        self.dut.cfg_open_offset.value = offset
        self.logs[topic] = Log(offset)
        self.hosts[topic] = Batches(self.logs[topic])
        self.stored[topic] = offset

    # --- One clock -----------------------------------------------------------------

    async def step(self):
        dut, rng = self.dut, self.rng
        if not self.push_valid and self.push_beats and chance(rng, self.p_push if self.full_rate else min(self.p_push, self.level2_rate)):
            _, data, keep, last, user, _, _ = self.push_beats[0]
            dut.s_push_tdata.value, dut.s_push_tkeep.value = data, keep
            dut.s_push_tlast.value, dut.s_push_tuser.value = int(last), user
            self.push_valid = True
        if not self.read_valid and self.requests and chance(rng, self.p_read):
            tag, topic, offset, length = self.requests[0]
            dut.s_read_data.value = length | offset << 16 | topic << 80 | tag << 88
            self.read_valid, self.offered = True, self.clock
        dut.s_push_tvalid.value = int(self.push_valid)
        dut.s_read_valid.value = int(self.read_valid)
        response_ready, batch_ready = chance(rng, self.p_response), chance(rng, self.p_batch)
        dut.m_response_tready.value = int(response_ready)
        dut.m_batch_tready.value = int(batch_ready)
        await ReadOnly()
        if self.push_valid and dut.s_push_tready.value:
            self._pushed()
        if self.read_valid and dut.s_read_ready.value:
            tag, topic, offset, length = self.requests.popleft()
            self.waiting.append(Request(tag, topic, offset, length, self.logs[topic], self.stored[topic]))
            self.waiting[-1].since, self.waiting[-1].offered = self.clock, self.offered
            self.read_valid = False
        self._watch("m_response", response_ready, self._response_beat)
        self._watch("m_batch", batch_ready, self._batch_beat)
        while self.recent and self.recent[0][0] + PIPELINE <= self.clock:
            _, log, topic, head = self.recent.popleft()
            if log is self.logs[topic]:
                self.stored[topic] = head
        await FallingEdge(dut.clk)
        dut.cfg_open_valid.value = 0
        self.clock += 1

    def _pushed(self):
        topic, _, _, last, _, message, first = self.push_beats.popleft()
        if first:
            self._first_of = self._message_ahead(topic, message)
        if last:
            self.recent.append((self.clock, self.logs[topic], topic, self.logs[topic].head))
        self.push_valid = False

    def _message_ahead(self, topic, message):
        """With its first beat a message has its place: the model has all of it from then on."""
        if message is None:
            message = next(beat[5] for beat in self.push_beats if beat[5] is not None)
        self.logs[topic].append(message)

    def _watch(self, stream, ready, taken):
        """Checks that a beat which waits does not change, and hands over one that is taken."""
        dut = self.dut
        valid = bool(getattr(dut, f"{stream}_tvalid").value)
        if not valid:
            assert stream not in self.held, f"{stream}: tvalid was taken back"
            self.gaps += stream == "m_response" and bool(self.response_parts)
            return
        keep = int(getattr(dut, f"{stream}_tkeep").value)
        bytes_in = keep.bit_length()
        assert keep == (1 << bytes_in) - 1, f"{stream}: tkeep {keep:x}"
        data = int(getattr(dut, f"{stream}_tdata").value) & ((1 << 8 * bytes_in) - 1) if bytes_in else 0
        beat = (data, bytes_in, int(getattr(dut, f"{stream}_tlast").value), int(getattr(dut, f"{stream}_tuser").value))
        if stream in self.held:
            assert beat == self.held[stream], f"{stream}: a waiting beat has changed"
        if ready:
            self.held.pop(stream, None)
            taken(beat)
        else:
            self.held[stream] = beat
            self.covered.add(f"{stream} waits")

    def _response_beat(self, beat):
        data, bytes_in, last, user = beat
        if not self.response_parts:
            self.first_clock, self.gaps = self.clock, 0
        self.response_parts.append(data.to_bytes(64, "little")[:bytes_in])
        if not last:
            assert bytes_in == 64
            return
        body, self.response_parts = b"".join(self.response_parts), []
        response = Response(user >> 82 & 0xFF, user >> 80 & 3, user >> 16 & (1 << 64) - 1, user & 0xFFFF, body)
        if user >> 106:
            self._summed(user >> 90 & 0xFFFF, response)
        request = self.waiting.popleft()
        request.check(response, self.keeps, self.alone)
        self.responses += 1
        self.covered.add(f"status {response.status}")
        if response.status == 0 and response.length < request.length:
            self.covered.add("short")
        if response.status == 0 and response.offset % 64 and response.length > 64:
            self.covered.add("unaligned")
        if self.on_response:
            self.on_response(request, response, self.first_clock)

    def _summed(self, total, response):
        """Checks the sum that came with a response, and that it came without a gap."""
        words = response.data + bytes(len(response.data) % 2)
        right = sum(int.from_bytes(words[at : at + 2], "little") for at in range(0, len(words), 2))
        # In 16 bits there are two zeros.
        assert total % 0xFFFF == right % 0xFFFF, f"another sum: {total:#06x} of {response}"
        assert not self.gaps, f"{self.gaps} gaps in {response}"
        self.covered.add("summed")
        if response.offset % 2:
            self.covered.add("summed from an odd offset")

    def _batch_beat(self, beat):
        data, bytes_in, last, user = beat
        self.batch_parts.append(data.to_bytes(64, "little")[:bytes_in])
        if not last:
            assert bytes_in == 64
            return
        body, self.batch_parts = b"".join(self.batch_parts), []
        topic, offset, length = user >> 80, user >> 16 & (1 << 64) - 1, user & 0xFFFF
        self.hosts[topic].take(offset, length, body)
        self.covered.add("batch" if length else "hole")

    async def quiet(self, limit=20000):
        """Steps until nothing is on its way any more."""
        for _ in range(limit):
            if not (self.push_beats or self.requests or self.waiting or self.recent):
                return
            await self.step()
        raise AssertionError(f"{len(self.waiting)} requests without a response")

    async def flush(self, limit=20000):
        """Takes all batches, and checks that the host has everything, or a hole in its place."""
        self.p_batch = 1.0
        await self.quiet()
        self.dut.cfg_flush.value = 1
        for _ in range(limit):
            if all(host.at == log.head for host, log in zip(self.hosts, self.logs)):
                break
            await self.step()
        self.dut.cfg_flush.value = 0
        for topic, (host, log) in enumerate(zip(self.hosts, self.logs)):
            assert host.at == log.head, f"topic {topic}: the host has {host.at} of {log.head}"

    async def stat(self, topic, index):
        """A counter."""
        self.dut.stat_topic.value, self.dut.stat_index.value = topic, index
        for _ in range(4):
            await self.step()
        return int(self.dut.stat_value.value)
