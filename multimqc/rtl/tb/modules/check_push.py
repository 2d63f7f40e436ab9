"""multimqc_push against the messages that were put into frames."""

import cocotb

import axis
import frames

USER_W = 178


def user_of(n, headed, v6, topic, port):
    """The fields of multimqc_pkg::FRAME_* that matter for a push."""
    return 1 | topic << 6 | v6 << 14 | headed << 15 | n << 28 | port << 172


@cocotb.test()
async def random_pushes(dut):
    rng = axis.generator("push")
    await axis.start(dut)
    for round in range(5):
        busy_in, busy_out = (1.0, 1.0) if round == 0 else axis.speeds(rng)[:2]
        source = axis.Source(dut, "s_", rng, busy_in)
        sink = axis.Sink(dut, "m_", rng, ["tdata", "tkeep", "tlast", "tuser"], busy_out)
        expected = []
        for _ in range(120):
            n = rng.choice([1, 2, 22, 23, 54, 55, 64, 86, 87, 128, rng.randrange(1, 200), rng.randrange(1, 1500)])
            headed, v6, topic, port = rng.random() < 0.5, rng.random() < 0.5, rng.randrange(256), rng.randrange(16)
            message = rng.randbytes(n)
            payload = frames.header(frames.PUSH, length=n, body=message) if headed else message
            frame = frames.Udp(payload, v6=v6, trailer=bytes(rng.choice([0, 0, 3, 70]))).frame()
            user = user_of(n, headed, v6, topic, port)
            source.beats += [{"tdata": beat["tdata"], "tlast": beat["tlast"], "tuser": user} for beat in axis.beats_of(frame)]
            expected.append((message, topic << 20 | port << 16 | n))
        beats_in = len(source.beats)
        await axis.run(dut, [source, sink], lambda: sum(beat["tlast"] for beat in sink.beats) == 120)
        assert [(data, last["tuser"]) for data, last in axis.frames_of(sink.beats)] == expected
        if busy_in == busy_out == 1.0:
            # A beat of a frame in each clock, whatever it has.
            assert sink.clocks[-1] <= beats_in + 4
