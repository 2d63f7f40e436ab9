"""multimqc_rx: whole frames come out as they came in, with the model's verdict; what has no place is dropped whole."""

import os

import cocotb

import axis
import frames

BYTES = int(os.environ["PORT_BITS"]) // 8
CLASSES = {"host": 0, "stored": 1, "reply": 2}


def beats_in(frame, broken=False):
    beats = axis.beats_of(frame, BYTES, tuser=0)
    beats[-1]["tuser"] = int(broken)
    return beats


def configure(dut):
    dut.cfg_open.value = 1
    dut.cfg_id.value = 7
    dut.cfg_push_port.value = frames.PUSH_PORT
    dut.cfg_pull_port.value = frames.PULL_PORT
    dut.cfg_epoch.value = 5
    dut.cfg_header_port.value = frames.HEADER_PORT
    dut.cfg_max_message.value = 1000
    dut.cfg_max_reply.value = frames.MAX_REPLY
    dut.cfg_trusted_network.value = int.from_bytes(bytes([10, 1, 2, 0]), "little")
    dut.cfg_trusted_mask.value = int.from_bytes(bytes([255, 255, 255, 0]), "little")


def random_frame(rng):
    size = rng.randrange(1, rng.choice([30, 150, 1400]))
    data = rng.choice([rng.randbytes(size), frames.header(frames.PUSH, length=size, body=bytes(size)),
                       frames.pull(rng.randrange(100), rng.randrange(1, 2000), rng.randrange(16, 100)),
                       frames.header(frames.PULL, offset=rng.randrange(2**20), length=rng.randrange(1, 3000), epoch=5,
                                     body=bytes(rng.randrange(100)))])
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(1, 200))
    source = rng.choice([bytes([10, 1, 2, 9]), bytes([10, 1, 3, 9])])
    v6 = rng.random() < 0.3
    frame = frames.Udp(data, port=rng.choice([frames.PUSH_PORT, frames.PULL_PORT, frames.HEADER_PORT]), v6=v6,
                       source=None if v6 else source, pad=rng.random() < 0.8).frame()
    if rng.random() < 0.1:
        at = rng.randrange(len(frame))
        frame = frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1:]
    return frame


def words_of(frame):
    return len(axis.beats_of(frame))


async def collect(dut, source, sink, count):
    await axis.run(dut, [source, sink], lambda: not source.beats and sum(b["tlast"] for b in sink.beats) == count)
    found, data = [], b""
    for beat in sink.beats:
        data += beat["tdata"].to_bytes(64, "little")
        if beat["tlast"]:
            user = beat["tuser"]
            found.append((data[:user >> 16 & 0xFFF], user))
            data = b""
    return found


@cocotb.test()
async def random_frames(dut):
    rng = axis.generator("rx")
    configure(dut)
    await axis.start(dut)
    trusted = (bytes([10, 1, 2, 0]), bytes([255, 255, 255, 0]))
    for round in range(6):
        busy_in, busy_out = (1.0, 1.0) if round == 0 else (rng.choice([1.0, 0.6]), rng.choice([1.0, 0.5]))
        source = axis.Source(dut, "s_", rng, busy_in)
        sink = axis.Sink(dut, "m_", rng, ["tdata", "tlast", "tuser"], busy_out)
        model = frames.Model([frames.Topic()], max_message=1000, trusted=trusted, window=2**62)
        sent, broken = [], 0
        for _ in range(60):
            frame, is_broken = random_frame(rng), rng.random() < 0.1
            source.beats += beats_in(frame, is_broken)
            if not is_broken:
                sent.append(frame)
        got = await collect(dut, source, sink, len(sent))
        assert [data for data, _ in got] == sent
        for frame, (_, user) in zip(sent, got):
            model.counts.clear()
            outcome = model.frame(frame)
            assert user & 3 == CLASSES[outcome[0]], (frame.hex(), outcome[0], user & 3)
            if outcome[0] == "host":
                reason = next(iter(model.counts))[0]
                names = ["stored", "hits", "misses", "overwritten", "dropped", "oversize", "corrupt", "fragments", "malformed",
                         "refused", "passed"]
                assert names[user >> 2 & 15] == reason, (frame.hex(), reason)
            elif outcome[0] == "stored":
                assert user >> 28 & 0xFFFF == len(outcome[2])


@cocotb.test()
async def frames_without_a_place_are_dropped_whole(dut):
    """The side behind does not take; then it does: what comes out is whole, and all that was not counted as lost."""
    rng = axis.generator("overrun")
    configure(dut)
    await axis.start(dut)
    sink = axis.Sink(dut, "m_", rng, ["tdata", "tlast", "tuser"], 0.0)
    source = axis.Source(dut, "s_", rng)
    counts = {"received": 0, "overrun": 0, "broken": 0}

    class Counter:
        def drive(self):
            pass

        def sample(self):
            for name in counts:
                counts[name] += int(getattr(dut, "event_" + name).value)

    sent = [frames.Udp(rng.randbytes(rng.randrange(900, 1400)), port=53).frame() for _ in range(45)]
    sent += [frames.Udp(rng.randbytes(8), port=53).frame() for _ in range(80)]
    sent.append(rng.randbytes(2048))
    sent.append(rng.randbytes(2049))
    sent.append(rng.randbytes(9000))
    for frame in sent:
        source.beats += beats_in(frame)
    await axis.run(dut, [source, sink, Counter()], lambda: not source.beats)
    await axis.run(dut, [source, sink, Counter()], lambda: sum(counts.values()) == len(sent), 20)
    assert counts["overrun"] > 3 and counts["broken"] == 0
    sink.busy = 1.0
    got = await collect(dut, source, sink, counts["received"])
    assert len(got) == len(sent) - counts["overrun"]
    left = iter(sent)
    assert all(any(frame == data for frame in left) for data, _ in got), "out of order, or not as it came"
    # The FIFO has a place again, but not for a frame that is too long.
    again = [rng.randbytes(2049), frames.Udp(bytes(100), port=53).frame(), rng.randbytes(2048)]
    sink.beats.clear()
    for frame in again:
        source.beats += beats_in(frame)
    got = await collect(dut, source, sink, 2)
    # 2,048 does not fit into the 12 bits that say a frame's length only if they are too few.
    assert [data for data, _ in got] == again[1:]
