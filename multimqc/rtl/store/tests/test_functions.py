"""The example functions against what functions.rs says of them."""

import os
import random

import cocotb
from cocotb.triggers import FallingEdge, ReadOnly, Timer

SEED = int(os.environ.get("SEED", "1"))
LOW, HIGH = -5, 100


async def start(dut, signals):
    dut._log.info("seed %d", SEED)
    for name in signals:
        getattr(dut, name).value = 0
    dut.rst.value = 1
    dut.clk.value = 0

    async def tick():
        while True:
            dut.clk.value = 0
            await Timer(3200, "ps")
            dut.clk.value = 1
            await Timer(3200, "ps")

    cocotb.start_soon(tick())
    for _ in range(4):
        await FallingEdge(dut.clk)
    dut.rst.value = 0


def beats(message):
    return [message[at : at + 64] for at in range(0, len(message), 64)] or [b""]


def number(rng):
    return rng.choice([-6, -5, 0, 100, 101, rng.randint(-(1 << 31), (1 << 31) - 1)]).to_bytes(4, "little", signed=True)


def in_range(data):
    return LOW <= int.from_bytes(data, "little", signed=True) <= HIGH


ALL = ("s_tdata", "s_tlast", "s_tuser", "s_tvalid", "r_tdata", "r_tkeep", "r_tlast", "r_tuser", "ra_valid", "rb_valid", "o_tready")


@cocotb.test()
async def input_functions(dut):
    """Messages of all lengths, with gaps."""
    rng = random.Random(SEED)
    await start(dut, ALL)
    expected, got, dropped = {"a": [], "b": []}, {"a": [], "b": []}, {"a": 0, "b": 0}
    parts = {"a": b"", "b": b""}
    lost = {"a": 0, "b": 0}

    async def step():
        await ReadOnly()
        for name in "ab":
            dropped[name] += int(getattr(dut, f"{name}_dropped").value)
            if getattr(dut, f"{name}_tvalid").value:
                length = int(getattr(dut, f"{name}_tuser").value) & 0xFFFF
                parts[name] += int(getattr(dut, f"{name}_tdata").value).to_bytes(64, "little")
                if getattr(dut, f"{name}_tlast").value:
                    got[name].append(parts[name][:length])
                    parts[name] = b""
        await FallingEdge(dut.clk)

    for _ in range(300):
        length = rng.choice([1, 2, 5, 6, 8, 9, 20, 64, 65, 200])
        message = (rng.randbytes(2) + number(rng) + rng.randbytes(length))[:length]
        if length >= 6 and in_range(message[2:6]):
            lost["a"] += 1
        else:
            expected["a"].append(message)
        if length >= 9:
            expected["b"].append(message[3:9])
        else:
            lost["b"] += 1
        for at, part in enumerate(beats(message)):
            dut.s_tvalid.value = 1
            dut.s_tdata.value = int.from_bytes(part, "little")
            dut.s_tlast.value = int((at + 1) * 64 >= length)
            dut.s_tuser.value = length
            await step()
        dut.s_tvalid.value = 0
        if rng.random() < 0.3:
            await step()
    for _ in range(3):
        await step()
    assert got == expected
    assert dropped == lost


@cocotb.test()
async def output_functions(dut):
    """Ranges of records, aligned and not, with back-pressure."""
    rng = random.Random(SEED)
    await start(dut, ALL)
    got, parts = {"a": [], "b": []}, {"a": b"", "b": b""}
    expected = {"a": [], "b": []}
    queues = {"a": [], "b": []}
    for tag in range(200):
        records = rng.randint(1, 60)
        data = b"".join(rng.randbytes(4) + number(rng) + rng.randbytes(8) for _ in range(records))
        if rng.random() < 0.1:
            data = b"".join(bytes(4) + (7).to_bytes(4, "little") + bytes(8) for _ in range(records))
        offset, status = 64 * rng.randint(0, 1 << 40), 0
        if rng.random() < 0.15:
            offset += rng.randint(1, 63)
        if rng.random() < 0.15:
            data = data[: rng.randint(1, len(data))]
        if rng.random() < 0.1:
            data, status = b"", rng.choice([1, 2])
        user = len(data) | offset << 16 | status << 80 | (tag & 0xFF) << 82
        for name, size in (("a", 16), ("b", 32)):
            out = b""
            if status == 0 and offset % size == 0 and len(data) % size == 0:
                for at in range(0, len(data), size):
                    record = data[at : at + size]
                    if name == "b":
                        out += record[8:13]
                    elif not in_range(record[4:8]):
                        out += record
            after = status if out or status else 2
            expected[name].append((tag & 0xFF, after, offset, len(out), out))
            for at, part in enumerate(beats(data)):
                queues[name].append((int.from_bytes(part, "little"), (1 << len(part)) - 1, int((at + 1) * 64 >= len(data)), user))
    which = "a"
    sent = False
    while queues["a"] or queues["b"] or any(len(got[name]) < 200 for name in "ab"):
        if not sent:
            which = "a" if queues["a"] and (not queues["b"] or rng.random() < 0.5) else "b"
            dut.ra_valid.value = dut.rb_valid.value = 0
            if queues[which] and rng.random() < 0.9:
                beat = queues[which][0]
                dut.r_tdata.value, dut.r_tkeep.value, dut.r_tlast.value, dut.r_tuser.value = beat
                getattr(dut, f"r{which}_valid").value = 1
                sent = True
        ready = int(rng.random() < 0.7)
        dut.o_tready.value = ready
        await ReadOnly()
        if sent and getattr(dut, f"r{which}_ready").value:
            queues[which].pop(0)
            sent = False
        for name in "ab":
            if ready and getattr(dut, f"o{name}_tvalid").value:
                keep = int(getattr(dut, f"o{name}_tkeep").value)
                last = int(getattr(dut, f"o{name}_tlast").value)
                assert last or keep == (1 << 64) - 1
                parts[name] += int(getattr(dut, f"o{name}_tdata").value).to_bytes(64, "little")[: keep.bit_length()]
                if last:
                    user = int(getattr(dut, f"o{name}_tuser").value)
                    got[name].append((user >> 82 & 0xFF, user >> 80 & 3, user >> 16 & (1 << 64) - 1, user & 0xFFFF, parts[name]))
                    parts[name] = b""
        await FallingEdge(dut.clk)
    for name in "ab":
        for have, want in zip(got[name], expected[name]):
            assert have == want, f"{name}: {have} is not {want}"
