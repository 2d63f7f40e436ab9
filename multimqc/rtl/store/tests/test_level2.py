"""Level 2: what moves there, what comes back, and what happens when the DRAM is slow or fails."""

import os

import cocotb

from bench import Bench
from test_store import message, some_length

SEED = int(os.environ.get("SEED", "1"))


async def fill(bench, topic, count, length=None):
    """Stores messages, and waits until level 2 has them."""
    for _ in range(count):
        bench.push(topic, message(bench.rng, length or some_length(bench.rng)))
    await bench.flush()
    for _ in range(1500):
        await bench.step()


async def read_all(bench, topic, begin, length):
    """Reads the log from `begin` on, one range after the other. Returns the statuses and the clocks of each."""
    statuses, clocks = [], []

    def note(request, response, first):
        statuses.append(response.status)
        clocks.append(first - request.since)

    bench.on_response = note
    at = begin
    while at < bench.logs[topic].head:
        bench.read(topic, at, length)
        at += length
        await bench.quiet()
    bench.on_response = None
    return statuses, clocks


@cocotb.test()
async def level_2_has_what_level_1_has_lost(dut):
    """All of the newest LEVEL2_BYTES are read back, in ranges of all kinds, across bursts and the end of the ring."""
    bench = Bench(dut, SEED)
    await bench.start()
    for topic in range(bench.topics):
        # Messages begin at all places of a row.
        await fill(bench, topic, 40, 1471)
    for length in (1, 32, 64, 65, 512, 1472, 2047):
        for topic in range(bench.topics):
            head = bench.logs[topic].head
            begin = max(0, head - bench.keeps)
            for _ in range(12):
                bench.read(topic, bench.rng.randint(begin, head - 1), length)
    await bench.quiet()
    assert await bench.stat(0, 8) > 0, "level 2 has answered nothing"
    assert await bench.stat(0, 10) == 0, "no hole"


@cocotb.test()
async def a_sequential_reader_is_foreseen(dut):
    """Ranges that follow each other come without the DRAM's latency."""
    bench = Bench(dut, SEED)
    await bench.start(levels=2)
    bench.alone = True
    bench.keeps = bench.level2 - 8192
    await fill(bench, 0, 14, 1472)
    statuses, clocks = await read_all(bench, 0, 0, 512)
    dut._log.info("clocks from level 2, 512 bytes at a time: %s", clocks)
    assert set(statuses) == {0}
    foreseen = await bench.stat(0, 9)
    assert foreseen * 2 > len(statuses), f"{foreseen} of {len(statuses)}"
    assert min(clocks) <= 40, clocks
    assert sorted(clocks)[len(clocks) // 2] < clocks[0], clocks


@cocotb.test()
async def nothing_is_lost_at_the_rate_of_the_wire(dut):
    """Long messages at the most that level 2 is made for: no holes in batches, and none in level 2."""
    bench = Bench(dut, SEED)
    await bench.start()
    bench.p_push = bench.level2_rate
    for _ in range(2500):
        if len(bench.push_beats) < 64:
            bench.push(bench.rng.randrange(bench.topics), message(bench.rng, 1472))
        await bench.step()
    await bench.flush()
    for topic in range(bench.topics):
        assert [await bench.stat(topic, index) for index in (3, 10)] == [0, 0], f"holes of topic {topic}"


@cocotb.test()
async def latency_of_level_2(dut):
    """From a request to the first beat of a response from the DRAM."""
    bench = Bench(dut, SEED)
    await bench.start()
    await fill(bench, 0, 20, 1472)
    took = []
    bench.on_response = lambda request, _, first: took.append(first - request.since)
    for at, length in ((5000, 4), (900, 32), (3000, 64), (70, 512), (2000, 1472)):
        bench.read(0, bench.logs[0].head - bench.window - at - 1472, length)
        await bench.quiet()
    dut._log.info("clocks from request to first beat, from DRAM: %s", took)


@cocotb.test()
async def a_failing_dram_leaves_holes(dut):
    """A burst that the DRAM refuses is a hole of level 2; a read that fails goes to the host."""
    bench = Bench(dut, SEED)
    await bench.start()
    await fill(bench, 0, 14, 1472)
    old = bench.logs[0].head
    dut.fail_write.value = 1
    await fill(bench, 0, 2, 1472)
    dut.fail_write.value = 0
    assert await bench.stat(0, 10) > 0
    await fill(bench, 0, 14, 1472)
    bench.keeps = bench.window - 2047
    statuses = []
    bench.on_response = lambda _, response, __: statuses.append(response.status)
    bench.read(0, old - 3000, 1000)
    await bench.quiet()
    assert statuses == [2], "before a hole nothing is answered"
    statuses.clear()
    offset = bench.logs[0].head - bench.window - 2500
    bench.read(0, offset, 1000)
    await bench.quiet()
    assert statuses == [0]
    dut.fail_read.value = 1
    statuses.clear()
    bench.read(0, offset - 1000, 500)
    bench.read(0, offset - 400, 500)
    await bench.quiet()
    dut.fail_read.value = 0
    assert statuses == [2, 2], statuses


@cocotb.test()
async def level_2_is_overwritten_while_it_is_read(dut):
    """Full speed into a ring of level 2, with reads at its oldest bytes."""
    bench = Bench(dut, SEED)
    await bench.start()
    rng, hits = bench.rng, [0, 0, 0]

    def count(_, response, __):
        hits[response.status] += 1

    bench.on_response = count
    bench.keeps = bench.window - 2047
    bench.p_push = 0.5
    for _ in range(5000):
        if len(bench.push_beats) < 64:
            bench.push(0, message(rng, rng.choice([64, 1472, 2047])))
        if len(bench.requests) < 2:
            offset = bench.logs[0].head - bench.level2 + rng.randint(-1000, 2000)
            bench.read(0, max(offset, 0), rng.choice([64, 1472]))
        await bench.step()
    await bench.flush()
    dut._log.info("%s of each status", hits)
    assert hits[0] > 20 and hits[2] > 10, hits


@cocotb.test()
async def what_is_overwritten_meanwhile_is_not_answered(dut):
    """Reads wait in the DRAM while the bursts that overwrite their bytes go before them."""
    bench = Bench(dut, SEED)
    await bench.start()
    rng, statuses = bench.rng, []
    bench.on_response = lambda _, response, __: statuses.append(response.status)
    bench.keeps = bench.window - 2047
    for _ in range(bench.level2 // 1472 + 2):
        bench.push(0, message(rng, 1472))
    await bench.flush()
    for _ in range(2000):
        if len(bench.push_beats) < 64:
            bench.push(0, message(rng, 512))
        if len(bench.requests) < 4:
            bench.read(0, bench.logs[0].head - bench.level2 - rng.randint(-1000, 2500), 2047)
        await bench.step()
    await bench.flush()
    assert statuses.count(2) > 20, statuses


@cocotb.test()
async def the_oldest_bytes_of_level_2_stay_whole(dut):
    """A burst that ends inside of a beat leaves the rest of it: the oldest bytes that are there."""
    bench = Bench(dut, SEED)
    await bench.start()
    rng, statuses = bench.rng, []
    await fill(bench, 0, bench.level2 // 1472 + 2, 1472)
    bench.on_response = lambda _, response, __: statuses.append(response.status)
    bench.keeps = bench.level2
    for _ in range(25):
        bench.push(0, message(rng, rng.randint(1, 300)))
        await bench.flush()
        for _ in range(120):
            await bench.step()
        bench.read(0, bench.logs[0].head - bench.level2, 64)
        await bench.quiet()
    assert statuses == [0] * 25, statuses


@cocotb.test()
async def two_readers_follow(dut):
    """Two readers of other topics go on in turns, while new messages come in."""
    bench = Bench(dut, SEED)
    await bench.start(levels=2)
    bench.alone = True
    bench.keeps = bench.level2 - 8192
    for topic in (0, bench.topics - 1):
        await fill(bench, topic, 12, 1472)
    at = 0
    while at < 12 * 1472 - 700:
        bench.read(0, at, 700)
        bench.read(bench.topics - 1, at, 300)
        bench.push(0, message(bench.rng, 40))
        at += 300
        for _ in range(30):
            await bench.step()
    await bench.flush()


@cocotb.test()
async def level_2_is_read_as_it_is_written(dut):
    """Level 2 alone is asked for its newest bytes while they are on their way to the DRAM."""
    bench = Bench(dut, SEED)
    await bench.start(levels=2)
    bench.alone = True
    bench.keeps = bench.level2 - 8192
    answered = []
    bench.on_response = lambda _, response, __: answered.append(response.status)
    bench.p_push = 0.3
    for _ in range(2500):
        if len(bench.push_beats) < 64:
            bench.push(0, message(bench.rng, bench.rng.choice([64, 700])))
        if len(bench.requests) < 2:
            bench.read(0, max(0, bench.logs[0].head - bench.rng.randint(1, 2500)), 64)
        await bench.step()
    await bench.flush()
    assert answered.count(0) > 50 and answered.count(1) > 0, answered
