"""Measures the simulated NIC in clocks, and writes the tables to rtl/results/rates.md.

Push: each port sends without a pause beyond the wire's own. Pull: the same with requests as long as their replies. Latency: one pull
at a time, from the last beat of the request to the first beat of the reply; `busy`: while the other three ports push at full rate.
"""

import sys
from pathlib import Path

from frames import HEADER_PORT, PULL, PUSH_PORT, Topic, Udp, header
from nic import CLOCK_HZ, Script, counters

SIZES = [4, 18, 32, 64, 100, 128, 256, 512, 1024, 1472]
RESULTS = Path(__file__).parent / "../results/rates.md"
WIRE_BYTES = 24
LINE_BITS = 10e9
# From a read's address to its first beat.
DRAM_CLOCKS = 40
# The most that a pull should take without the DRAM's clocks.
AIM_CLOCKS = 40
KINDS = {"Plain": (1, "plain", False), "Plain, busy": (1, "plain", True), "Header form": (1, "header", False),
         "Header form, busy": (1, "header", True), "Level 2": (2, "plain", False)}


def opened():
    script = Script()
    script.open(0, Topic())
    return script


def wire_rate(frame):
    """Frames per second and port that fit on the wire."""
    return LINE_BITS / 8 / (len(frame) + WIRE_BYTES)


def push(size, count):
    script = opened()
    frame = Udp(bytes(size), port=PUSH_PORT).frame()
    for _ in range(count):
        for port in range(4):
            script.frame(port, frame)
    script.settle(2000)
    script.read_counters(1)
    result = script.run()
    counts, ports, _ = counters(result)
    clocks = max(last for _, _, last in result.inputs) - min(first for _, first, _ in result.inputs) + 1 + WIRE_BYTES // 8
    stored = counts["stored", 0][0]
    lost = sum(value for (event, _), value in ports.items() if event == "overrun")
    assert counts["stored", 0][1] == stored * size
    return frame, stored, lost, clocks


def pull(size, count, level=1):
    """Pulls of `size` bytes from a level, in the plain form, padded to that, at places all over the log."""
    script = opened()
    script.write(0x08, level)
    message = bytes(range(256)) * 4
    for _ in range(8):
        script.frame(0, Udp(message).frame(), gap=100)
    script.settle(3000)
    for number in range(4 * count):
        start = number * 977 % (8 * len(message) - size)
        request = (start.to_bytes(8, "little") + size.to_bytes(8, "little")).ljust(size, b"\0")
        script.frame(number % 4, Udp(request, port=19998).frame())
    script.settle(3000)
    script.read_counters(1)
    result = script.run()
    counts, ports, _ = counters(result)
    assert all(len(reply.data) == max(60, 42 + size) for reply in result.network)
    first, last = min(reply.first for reply in result.network), max(reply.last for reply in result.network)
    lost = sum(value for (event, _), value in ports.items() if event in ("overrun", "tx_dropped"))
    assert lost + len(result.network) == 4 * count
    return result.network[0].data, len(result.network), lost, last - first + 1 + WIRE_BYTES // 8


def pull_level2(size, count):
    return pull(size, count, 2)


def latencies(size, busy, form, level=1):
    script = opened()
    script.write(0x08, level)
    script.dram(DRAM_CLOCKS)
    message = bytes(range(256)) * 4
    for _ in range(8):
        script.frame(0, Udp(message).frame(), gap=100)
    script.settle(3000)
    for number in range(40):
        if form == "plain":
            request, port = (bytes(8) + size.to_bytes(8, "little")).ljust(size, b"\0"), 19998
        else:
            request, port = header(PULL, sequence=number, length=size, body=bytes(size)), HEADER_PORT
        script.frame(3, Udp(request, port=port).frame(), gap=300 + 13 * number)
    if busy:
        # To another topic, so that nothing is overwritten.
        script.open(1, Topic(id=8, push=20000, pull=20001))
        for port in range(3):
            for _ in range(600):
                script.frame(port, Udp(bytes(32), port=20000).frame())
    result = script.run()
    asked = [last for port, _, last in result.inputs if port == 3]
    assert len(result.network) == len(asked) == 40
    found = [reply.first - last for reply, last in zip(result.network, asked)]
    return min(found), sorted(found)[len(found) // 2], max(found)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---:|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def rate_rows(measure, packets):
    rows, good = [], True
    for size in SIZES if measure is push else [size for size in SIZES if size >= 16]:
        frame, done, lost, clocks = measure(size, packets)
        rate = done / clocks * CLOCK_HZ
        share = rate / 4 / wire_rate(frame)
        good = good and lost == 0 and share > 0.99
        rows.append([f"{size:,}", len(frame), f"{done:,}", lost, f"{clocks / done:.2f}", f"{rate / 1e6:.2f}",
                     f"{rate * size * 8 / 1e9:.2f}", f"{share:.1%}"])
    return rows, good


def main():
    packets = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    head = ["Payload B", "Frame B", "Frames", "Lost", "Clocks per frame", "M/s", "Gbit/s of payload", "Of the wire"]
    pushes, pushes_good = rate_rows(push, packets)
    pulls, pulls_good = rate_rows(pull, packets)
    pulls2, _ = rate_rows(pull_level2, packets)
    rows, slowest, beyond = [], 0, []
    for size in [16, 32, 128, 512, 1440]:
        row = [f"{size:,}"]
        for kind, (level, form, busy) in KINDS.items():
            least, middle, most = latencies(size, busy, form, level)
            if level == 1 and not busy:
                slowest = max(slowest, most)
            if most > AIM_CLOCKS + (DRAM_CLOCKS if level == 2 else 0):
                beyond.append(f"{kind.lower()} with {size:,} bytes ({most})")
            row.append(f"{least} / {middle} / {most}")
        rows.append(row)
    text = f"""# Rates and latencies of the NIC level, in simulation

Written by `scripts/nic rates` (rtl/tb/rates.py): clocks that the Verilator model counts, at 156.25 MHz. Four ports of 10 GbE at once,
{packets:,} frames each. A frame occupies the wire for 24 bytes more (preamble, checksum, pause).

![Rates](rates.svg)

## Pushes

{table(head, pushes)}
## Pulls from level 1

Requests are as long as their replies, so both directions of each port are full.

{table(head, pulls)}
## Pulls from level 2

The same with level 1 taken out. The DRAM of the bench answers {DRAM_CLOCKS} clocks after an address, then a beat of 64 bytes in each
clock. Its pages and refreshes are not in this model.

{table(head, pulls2)}
## Latency of a pull

Clocks of 6.4 ns from the last beat of the request to the first beat of the reply: least / median / most of 40. Busy: three other
ports push 32 bytes at the rate of the wire; then a pull may wait for the frames before it. Batches and level 2 do not hold it up, since
it interrupts them. Level 2: plain, with a DRAM of {DRAM_CLOCKS} clocks.

![Latencies](latency.svg)

{table(["Reply B", *KINDS], rows)}
The aim is {AIM_CLOCKS} clocks at most, and {AIM_CLOCKS + DRAM_CLOCKS} for level 2. Beyond it:
{"; ".join(beyond) or "none"}.

The UDP checksum stands before what it covers, so a reply of 1,440 bytes waits for 23 beats of the store, and a read of level 2 for all
beats of the DRAM before that.
"""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text)
    print(text)
    if not (pushes_good and pulls_good):
        sys.exit("a rate is below 99 % of the wire, or a frame was lost")
    if slowest > AIM_CLOCKS:
        sys.exit(f"a pull from level 1 took {slowest} clocks")


if __name__ == "__main__":
    main()
