"""multimqc_arbiter: all frames, each stream's in order, each stream in turn, no clock without a beat."""

import cocotb

import axis

PORTS, WIDTH = 4, 32


class Ports:
    """Four sources on the flat vectors."""

    def __init__(self, dut, rng, busy):
        self.dut, self.rng, self.busy = dut, rng, busy
        self.beats = [[] for _ in range(PORTS)]
        self.held = [False] * PORTS

    def drive(self):
        data = last = valid = 0
        for i, beats in enumerate(self.beats):
            self.held[i] = self.held[i] or (bool(beats) and self.rng.random() < self.busy)
            if self.held[i]:
                valid |= 1 << i
                data |= beats[0][0] << i * WIDTH
                last |= beats[0][1] << i
        self.dut.s_valid.value, self.dut.s_data.value, self.dut.s_last.value = valid, data, last

    def sample(self):
        ready = int(self.dut.s_ready.value)
        for i in range(PORTS):
            if self.held[i] and ready >> i & 1:
                self.beats[i].pop(0)
                self.held[i] = False


@cocotb.test()
async def random_frames(dut):
    rng = axis.generator("arbiter")
    await axis.start(dut)
    for round in range(6):
        busy_in, busy_out = (1.0, 1.0) if round < 2 else axis.speeds(rng)[:2]
        ports = Ports(dut, rng, busy_in)
        sink = axis.Sink(dut, "m_", rng, ["data", "last", "index"], busy_out, "valid", "ready")
        sent = [[] for _ in range(PORTS)]
        for i in range(PORTS):
            for _ in range(100):
                size = 1 if round == 0 else rng.randrange(1, 6)
                sent[i] += [(rng.getrandbits(WIDTH), int(at == size - 1)) for at in range(size)]
            ports.beats[i] = list(sent[i])
        total = sum(map(len, sent))
        await axis.run(dut, [ports, sink], lambda: len(sink.beats) == total)
        owner, got = None, [[] for _ in range(PORTS)]
        for beat in sink.beats:
            assert owner in (None, beat["index"]), "a frame is inside of another"
            got[beat["index"]].append((beat["data"], beat["last"]))
            owner = None if beat["last"] else beat["index"]
        assert got == sent
        if busy_in == busy_out == 1.0:
            assert sink.clocks[-1] - sink.clocks[0] == total - 1
        if round == 0:
            # All want to: each gets every fourth turn.
            assert all(a["index"] != b["index"] for a, b in zip(sink.beats, sink.beats[1:]))
            assert [beat["index"] for beat in sink.beats[4:8]] == [beat["index"] for beat in sink.beats[:4]]
