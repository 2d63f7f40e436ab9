"""multimqc_framer against the frames that frames.py builds."""

import cocotb

import axis
import frames


def header_of(udp, headed=None, summed=None):
    """The fields of multimqc_pkg::HEADER_* of the reply that `udp` is; `headed`: the 32 bytes of the header form; `summed`: the payload
    whose sum the header brings."""
    fields, at = 0, 0

    def put(data, bits):
        nonlocal fields, at
        fields |= (data if isinstance(data, int) else int.from_bytes(data, "little")) << at
        at += bits

    form = headed or bytes(32)
    put(int(udp.v6), 1)
    put(int(headed is not None), 1)
    put(udp.to_mac[5] & 3, 4)
    put(len(udp.payload) - (32 if headed else 0), 16)
    put(udp.to_mac, 48)
    put(udp.from_mac, 48)
    put(udp.source, 128)
    put(udp.destination, 128)
    put(udp.source_port.to_bytes(2, "big"), 16)
    put(udp.port.to_bytes(2, "big"), 16)
    put(form[3:4], 8)
    put(form[4:6], 16)
    put(form[6:8], 16)
    put(form[8:16], 64)
    put(form[16:24], 64)
    put(form[28:32], 32)
    words = (summed or b"") + bytes(len(summed or b"") % 2)
    total = sum(int.from_bytes(words[i : i + 2], "little") for i in range(0, len(words), 2))
    # A sum of 0 has two forms.
    put(total and (total - 1) % 0xFFFF + 1 if total or summed is None else 0xFFFF, 16)
    put(int(summed is not None), 1)
    assert at == 623
    return fields


def random_reply(rng, size):
    v6 = rng.random() < 0.5
    data = rng.choice([rng.randbytes(size), b"\xff" * size, bytes(size)])
    form = None
    if rng.random() < 0.5:
        form = frames.header(rng.choice([3, 4]), rng.randrange(65536), rng.choice([0, 1]), rng.randrange(2**32),
                             rng.randrange(2**32), rng.randrange(2**63), size, rng.randrange(2**32))
    count = 16 if v6 else 4
    return frames.Udp((form or b"") + data, port=rng.randrange(1, 65536), source_port=rng.randrange(1, 65536), v6=v6,
                      to_mac=rng.randbytes(6), from_mac=rng.randbytes(6), source=rng.randbytes(count),
                      destination=rng.randbytes(count), ident=0), form, data


@cocotb.test()
async def random_replies(dut):
    """All kinds of headers and sizes, with waits on both sides: the right bytes, without a gap inside of a frame."""
    rng = axis.generator("framer")
    await axis.start(dut)
    for round in range(6):
        busy_in, busy_out = (1.0, 1.0) if round == 0 else axis.speeds(rng)[:2]
        source = axis.Source(dut, "s_", rng, busy_in)
        sink = axis.Sink(dut, "m_", rng, ["tdata", "tkeep", "tlast", "tdest"], busy_out)
        expected, fed = [], []
        for _ in range(60):
            size = rng.choice([0, 1, 2, 17, 18, 22, 23, 63, 64, 65, rng.randrange(0, 300), rng.randrange(0, 2048)])
            udp, form, data = random_reply(rng, size)
            beats = axis.beats_of(data)
            # A payload whose sum is known comes without a gap.
            summed = data if busy_in == 1.0 and rng.random() < 0.5 else None
            for beat in beats:
                # The bytes behind tkeep must not matter.
                beat["tdata"] |= rng.getrandbits(512) & ~((1 << 8 * bin(beat["tkeep"]).count("1")) - 1)
                source.beats.append({**{key: beat[key] for key in ("tdata", "tkeep", "tlast")}, "header": header_of(udp, form, summed)})
            expected.append((udp.frame(), udp.to_mac[5] & 3))
        await axis.run(dut, [source, sink], lambda: sum(beat["tlast"] for beat in sink.beats) == 60)
        got = [(data, last["tdest"]) for data, last in axis.frames_of(sink.beats)]
        assert [data.hex() for data, _ in got] == [data.hex() for data, _ in expected]
        assert got == expected
        if busy_out == 1.0:
            for at in range(1, len(sink.beats)):
                assert sink.beats[at - 1]["tlast"] or sink.clocks[at] == sink.clocks[at - 1] + 1, "a gap inside of a frame"


@cocotb.test()
async def small_replies_in_each_clock(dut):
    """Replies of one beat: one in each clock."""
    rng = axis.generator("small")
    await axis.start(dut)
    source = axis.Source(dut, "s_", rng)
    sink = axis.Sink(dut, "m_", rng, ["tdata", "tkeep", "tlast", "tdest"])
    for _ in range(100):
        udp, form, data = random_reply(rng, 2)
        udp.v6, udp.source, udp.destination, udp.payload = False, bytes(4), bytes(4), data
        source.beats.append({"tdata": int.from_bytes(data, "little"), "tkeep": 3, "tlast": 1, "header": header_of(udp)})
    await axis.run(dut, [source, sink], lambda: len(sink.beats) == 100)
    assert sink.clocks[-1] - sink.clocks[0] == 99


@cocotb.test()
async def a_known_sum_saves_the_wait(dut):
    """With the payload's sum in the header, a long reply begins as early as a short one."""
    rng = axis.generator("known")
    await axis.start(dut)
    source = axis.Source(dut, "s_", rng)
    sink = axis.Sink(dut, "m_", rng, ["tdata", "tkeep", "tlast", "tdest"])
    waits = []
    for size in (2, 2, 1440, 1440):
        udp, form, data = random_reply(rng, size)
        begin, clock = len(sink.beats), sink.clock
        header = header_of(udp, form, data if len(waits) != 2 else None)
        source.beats = [{**{key: beat[key] for key in ("tdata", "tkeep", "tlast")}, "header": header} for beat in axis.beats_of(data)]
        await axis.run(dut, [source, sink], lambda: len(sink.beats) > begin and sink.beats[-1]["tlast"])
        assert axis.frames_of(sink.beats[begin:])[0][0] == udp.frame()
        waits.append(sink.clocks[begin] - clock)
    short, _, without, known = waits
    assert known == short and without == short + 22, waits
