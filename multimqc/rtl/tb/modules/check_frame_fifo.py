"""multimqc_frame_fifo: frames come out whole, without a gap, in order."""

import os

import cocotb

import axis


@cocotb.test()
async def random_frames(dut):
    rng = axis.generator("fifo")
    drops = os.environ["DROP"] == "1"
    await axis.start(dut)
    for round in range(5):
        busy_in, busy_out = (1.0, 1.0) if round == 0 else axis.speeds(rng)[:2]
        source = axis.Source(dut, "s_", rng, busy_in)
        sink = axis.Sink(dut, "m_", rng, ["tdata", "tkeep", "tlast", "tuser"], busy_out)
        dropped = 0

        class Counter:
            def drive(self):
                pass

            def sample(self):
                nonlocal dropped
                dropped += int(dut.event_dropped.value)

        sent = [(rng.randbytes(rng.randrange(1, rng.choice([70, 600, 2200]))), rng.randrange(16)) for _ in range(150)]
        for data, user in sent:
            source.beats += axis.beats_of(data, tuser=user)
        done = lambda: not source.beats and dropped + sum(beat["tlast"] for beat in sink.beats) == len(sent)  # noqa: E731
        await axis.run(dut, [source, sink, Counter()], done)
        got = [(data, last["tuser"]) for data, last in axis.frames_of(sink.beats)]
        fits = [(data, user) for data, user in sent if len(data) <= 2048]
        if drops:
            left = iter(fits)
            assert all(any(frame == found for frame in left) for found in got)
            assert busy_out < 1.0 or got == fits
        else:
            assert got == fits
        if busy_out == 1.0:
            for at in range(1, len(sink.beats)):
                assert sink.beats[at - 1]["tlast"] or sink.clocks[at] == sink.clocks[at - 1] + 1, "a gap inside of a frame"
