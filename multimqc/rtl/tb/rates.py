"""Measures the simulated NIC in clocks, and writes the tables to multimqc/rtl/results/rates.md: with four ports of 10 GbE a new file, with one
of 100 GbE the last part of it.

Push: each port sends without a pause beyond the wire's own. Pull: the same with requests as long as their replies. Latency: one pull
at a time, from the last beat of the request to the first beat of the reply; `busy`: while the other three ports push at full rate, or
between pushes of the same port if there is no other.
"""

import sys
from pathlib import Path

from frames import HEADER_PORT, PULL, PUSH_PORT, Topic, Udp, header
from nic import CLOCK_HZ, GBITS, PORTS, Script, counters

SIZES = [4, 18, 32, 64, 100, 128, 256, 512, 1024, 1472]
RESULTS = Path(__file__).parent / "../results/rates.md"
WIRE_BYTES = 24
LINE_BITS = GBITS * 1e9
BYTES_IN_CLOCK = LINE_BITS / 8 / CLOCK_HZ
CLOCK_NS = 1e9 / CLOCK_HZ
HEADING = "\n## One port of 100 GbE\n"
# From a read's address to its first beat.
DRAM_CLOCKS = 40
# The most that a pull should take without the DRAM's clocks: 40 at 10 GbE, and the same time with a faster clock.
AIM_CLOCKS = 256 * CLOCK_HZ // 1_000_000_000
KINDS = {"Plain": (1, "plain", False), "Plain, busy": (1, "plain", True), "Header form": (1, "header", False),
         "Header form, busy": (1, "header", True), "Level 2": (2, "plain", False)}
# Messages that the other ports push while a pull comes: its frame may wait for one of each of them.
LONG = [32, 512, 1472]


def opened():
    script = Script()
    script.open(0, Topic())
    return script


def wire_rate(frame):
    """Frames per second and port that fit on the wire."""
    return LINE_BITS / 8 / (len(frame) + WIRE_BYTES)


def read_holes(script, topic=0):
    for index in (4, 11):
        for word in (0, 4):
            script.read(0x400000 + 128 * topic + 8 * index + word)


def holes(result):
    """Bytes of topic 0 that are missing in the batches for the host, and in level 2."""
    found = {address & 127: value for address, value in result.registers if 0x400000 <= address < 0x800000}
    return [found[8 * index] | found[8 * index + 4] << 32 for index in (4, 11)]


def push(size, count):
    script = opened()
    frame = Udp(bytes(size), port=PUSH_PORT).frame()
    for _ in range(count):
        for port in range(PORTS):
            script.frame(port, frame)
    script.settle(2000)
    script.read_counters(1)
    read_holes(script)
    result = script.run()
    counts, ports, _ = counters(result)
    # From the first bytes of the first frame to where the next after the last may begin.
    begins = [first for _, first, _ in result.inputs]
    clocks = max(begins) - min(begins) + (len(frame) + WIRE_BYTES) / BYTES_IN_CLOCK
    stored = counts["stored", 0][0]
    lost = sum(value for (event, _), value in ports.items() if event == "overrun")
    assert counts["stored", 0][1] == stored * size
    return frame, stored, lost, clocks, *(f"{missing / (stored * size):.1%}" for missing in holes(result))


def pull(size, count, level=1):
    """Pulls of `size` bytes from a level, in the plain form, padded to that, at places all over the log."""
    script = opened()
    script.write(0x08, level)
    message = bytes(range(256)) * 4
    for _ in range(8):
        script.frame(0, Udp(message).frame(), gap=100)
    script.settle(3000)
    for number in range(PORTS * count):
        start = number * 977 % (8 * len(message) - size)
        request = (start.to_bytes(8, "little") + size.to_bytes(8, "little")).ljust(size, b"\0")
        script.frame(number % PORTS, Udp(request, port=19998).frame())
    script.settle(3000)
    script.read_counters(1)
    result = script.run()
    counts, ports, _ = counters(result)
    assert all(len(reply.data) == max(60, 42 + size) for reply in result.network)
    begins = [reply.first for reply in result.network]
    lost = sum(value for (event, _), value in ports.items() if event in ("overrun", "tx_dropped"))
    lost += counts.get(("busy", 0), (0, 0))[0]
    assert lost + len(result.network) == PORTS * count
    clocks = max(begins) - min(begins) + (len(result.network[0].data) + WIRE_BYTES) / BYTES_IN_CLOCK
    return result.network[0].data, len(result.network), lost, clocks


def pull_level2(size, count):
    return pull(size, count, 2)


def latencies(size, busy, form, level=1, pushed=32):
    script = opened()
    script.write(0x08, level)
    script.dram(DRAM_CLOCKS)
    message = bytes(range(256)) * 4
    for _ in range(8):
        script.frame(0, Udp(message).frame(), gap=100)
    script.settle(3000)
    # To another topic, so that nothing is overwritten.
    script.open(1, Topic(id=8, push=20000, pull=20001))
    other = Udp(bytes(pushed), port=20000).frame()
    asking, pulls = PORTS - 1, []
    for number in range(40):
        if form == "plain":
            request, port = (bytes(8) + size.to_bytes(8, "little")).ljust(size, b"\0"), 19998
        else:
            request, port = header(PULL, sequence=number, length=size, body=bytes(size)), HEADER_PORT
        between = (100 + 13 * number) * (PORTS == 1 and busy)
        for _ in range(between):
            script.frame(0, other)
        pulls.append(between + (pulls[-1] + 1 if pulls else 8 * (PORTS == 1)))
        script.frame(asking, Udp(request, port=port).frame(), gap=0 if between else 300 + 13 * number)
    for _ in range((600 if pushed < 100 else 150) * busy):
        for port in range(asking):
            script.frame(port, other)
    result = script.run()
    asked = [last for port, _, last in result.inputs if port == asking]
    asked = [asked[at] for at in pulls]
    assert len(result.network) == len(asked) == 40
    found = [reply.first - last for reply, last in zip(result.network, asked)]
    return min(found), sorted(found)[len(found) // 2], max(found)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def rate_rows(measure, packets):
    rows, good = [], True
    for size in SIZES if measure is push else [size for size in SIZES if size >= 16]:
        frame, done, lost, clocks, *more = measure(size, packets)
        rate = done / clocks * CLOCK_HZ
        share = rate / PORTS / wire_rate(frame)
        good = good and lost == 0 and share > 0.99
        rows.append([f"{size:,}", len(frame), f"{done:,}", lost, f"{clocks / done:.2f}", f"{rate / 1e6:.2f}",
                     f"{rate * size * 8 / 1e9:.2f}", f"{share:.1%}", *more])
    return rows, good


def latency_rows():
    """A row of each reply's length; the slowest pull from level 1 when nothing else comes; what is beyond the aim."""
    rows, slowest, beyond = [], 0, []
    for size in [16, 32, 128, 512, 1440]:
        row = [f"{size:,}"]
        for kind, (level, form, busy) in KINDS.items():
            least, middle, most = latencies(size, busy, form, level)
            if level == 1 and not busy:
                slowest = max(slowest, most)
            if most > AIM_CLOCKS + (DRAM_CLOCKS if level == 2 else 0):
                beyond.append(f"{kind.lower()} with {size:,} bytes ({most})")
            row.append(f"{least} / {middle} / {most}" + ("" if GBITS == 10 else f" ({middle * CLOCK_NS:.0f} ns)"))
        rows.append(row)
    return rows, slowest, beyond


def waiting_rows():
    """Pulls while other ports push messages of a length: how much longer they take than alone."""
    rows = []
    for pushed in LONG:
        row = [f"{pushed:,}", (PORTS - 1) * -(-(pushed + 42) // 64)]
        for size in (16, 1440):
            alone, (least, middle, most) = latencies(size, False, "plain")[2], latencies(size, True, "plain", pushed=pushed)
            row += [f"{least} / {middle} / {most}", most - alone]
        rows.append(row)
    return table(["Pushed B", "Beats of 3 frames", "Reply of 16 B", "Longer by", "Reply of 1,440 B", "Longer by"], rows)


HEAD = """# Rates and latencies of the NIC level, in simulation

Written by `scripts/nic rates` (multimqc/rtl/tb/rates.py): clocks that the Verilator model counts. First four ports of 10 GbE at 156.25 MHz, then
one of 100 GbE. Four ports of 25 GbE are the same logic with a clock of 390.625 MHz: as many clocks, and 2.5 times the rates, but of the
DRAM, whose time does not become shorter with the clock.

All ports at once, {packets:,} frames each. A frame occupies the wire for 24 bytes more (preamble, checksum, pause).
"""

HEAD_100 = """
Clock: 322.265625 MHz, in which the wire moves 38.8 bytes and a port a beat of 64. {packets:,} frames.
"""

TEXT = """
{mark} Pushes

*Missing* are bytes that level 1 has overwritten before they were in a batch for the host, or in level 2.

{pushes}
{mark} Pulls from level 1

Requests are as long as their replies, so both directions of each port are full.

{pulls}
{mark} Pulls from level 2

The same with level 1 taken out. The DRAM of the bench answers {dram} clocks after an address, then a beat of 64 bytes in each
clock. Its pages and refreshes are not in this model.

{pulls2}
{mark} Latency of a pull

Clocks of {clock:.1f} ns from the last beat of the request to the first beat of the reply: least / median / most of 40{unit}. Busy: {busy}
push 32 bytes at the rate of the wire; then a pull may wait for the frames before it. Batches and level 2 do not hold it up, since it
interrupts them. Level 2: plain, with a DRAM of {dram} clocks.
{picture}
{rows}
The aim is {aim} clocks at most, and {aim2} for level 2. Beyond it:
{beyond}.
"""

FOOT = """
The UDP checksum stands before what it covers. Level 1 knows the sum of a range after two beats, so a reply of any size begins at once; a
read of level 2 waits for all beats of the DRAM, which are summed up as they come.

## Waiting for other ports

A pull's frame waits for the frames of other ports before it, one of each at most. The same pulls while three ports push longer messages,
with the beats of three such frames:

{waiting}"""


def main():
    packets = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    wide = GBITS == 100
    if wide:
        packets *= 4
    head = ["Payload B", "Frame B", "Frames", "Lost", "Clocks per frame", "M/s", "Gbit/s of payload", "Of the wire"]
    pushes, pushes_good = rate_rows(push, packets)
    pulls, pulls_good = rate_rows(pull, packets)
    pulls2, _ = rate_rows(pull_level2, packets)
    rows, slowest, beyond = latency_rows()
    text = TEXT.format(
        mark="###" if wide else "##", pushes=table(head + ["Missing in batches", "Missing in level 2"], pushes), pulls=table(head, pulls),
        pulls2=table(head, pulls2), dram=DRAM_CLOCKS, clock=CLOCK_NS, unit=" (the median in ns)" if wide else "",
        busy="frames of the same port, before and behind it," if wide else "three other ports",
        picture="" if wide else "\n![Latencies](latency.svg)\n", rows=table(["Reply B", *KINDS], rows), aim=AIM_CLOCKS,
        aim2=AIM_CLOCKS + DRAM_CLOCKS, beyond="; ".join(beyond) or "none")
    before = RESULTS.read_text().split(HEADING)[0] + HEADING if wide else ""
    head_text = HEAD_100 if wide else HEAD + "\n![Rates](rates.svg)\n"
    RESULTS.write_text(before + head_text.format(packets=packets) + text + ("" if wide else FOOT.format(waiting=waiting_rows())))
    print(text)
    if not (pushes_good and pulls_good):
        sys.exit("a rate is below 99 % of the wire, or a frame was lost")
    if slowest > AIM_CLOCKS:
        sys.exit(f"a pull from level 1 took {slowest} clocks")


if __name__ == "__main__":
    main()
