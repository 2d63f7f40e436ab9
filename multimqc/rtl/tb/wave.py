"""Draws the signals of one push and one pull, clock by clock, into multimqc/rtl/results/push.svg and pull.svg. The bench is built with a trace."""

import os
import tempfile
from pathlib import Path

from frames import PULL_PORT, Topic, Udp, pull
from nic import Script

RESULTS = Path(__file__).parent / "../results"
STEP, ROW, LEFT = 22, 30, 250
# Name, and the signals that are all high: what goes with a beat means nothing where none is valid.
PUSH_ROWS = [
    ("port 0: beats of the frame", "s_port_tvalid", 0), ("its last beat", "s_port_tvalid s_port_tlast", 0),
    ("parser: fields of the frame", "gen_rx[0].rx.f_valid"), ("classifier: it is a push", "gen_rx[0].rx.c_valid"),
    ("whole frame, 64 bytes a beat", "gen_rx[0].rx.m_tvalid"), ("chosen among the ports", "in_valid"),
    ("split: to be stored", "push_valid"), ("message without headers", "push_tvalid"),
]
PULL_ROWS = PUSH_ROWS[:3] + [
    ("classifier: it is a pull", "gen_rx[0].rx.c_valid"), *PUSH_ROWS[4:6],
    ("split: to be answered", "pull_valid"), ("request to the store", "read_valid"),
    ("store: bytes of level 1", "response_tvalid"), ("reply with its checksums", "reply_tvalid"),
    ("port 0: beats of the reply", "m_port_tvalid", 0), ("its last beat", "m_port_tvalid m_port_tlast", 0),
]


class Trace:
    """Signals of `multimqc_nic` in a VCD file, by their paths."""

    def __init__(self, path):
        self.ids, self.changes, scope, time = {}, {}, [], 0
        for line in Path(path).read_text().splitlines():
            words = line.split()
            if not words:
                continue
            if words[0] == "$scope":
                scope.append(words[2])
            elif words[0] == "$upscope":
                scope.pop()
            elif words[0] == "$var":
                # TOP and the module itself lead each path.
                self.ids.setdefault(".".join([*scope[2:], words[4]]), words[3])
            elif line[0] == "#":
                time = int(line[1:])
            elif line[0] in "01":
                self.changes.setdefault(line[1:], []).append((time, int(line[0])))
            elif line[0] == "b":
                self.changes.setdefault(words[1], []).append((time, int(words[0][1:].replace("x", "0"), 2)))

    def values(self, path, clocks, bit=0):
        changes, found, value, at = self.changes[self.ids[path]], [], 0, 0
        for clock in clocks:
            while at < len(changes) and changes[at][0] <= clock:
                value = changes[at][1]
                at += 1
            found.append(value >> bit & 1)
        return found


def draw(title, rows, trace, first, last):
    clocks = range(first - 1, last + 3)
    width, height = LEFT + STEP * len(clocks) + 20, 60 + ROW * len(rows)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
             f'<rect width="{width}" height="{height}" fill="white"/>', f'<text x="10" y="20" font-weight="bold">{title}</text>']
    for i in range(0, len(clocks)):
        x = LEFT + STEP * i
        parts.append(f'<path d="M{x} 46V{height - 8}" stroke="#e4e4e4"/>')
        if (clocks[i] - first) % 5 == 0:
            parts.append(f'<text x="{x + STEP / 2}" y="42" text-anchor="middle" fill="#666" font-size="11">{clocks[i] - first}</text>')
    for at, (name, path, *bit) in enumerate(rows):
        y = 60 + ROW * at
        parts.append(f'<text x="10" y="{y + 14}">{name}</text>')
        line = f"M{LEFT} {y + 18}"
        signals = [trace.values(signal, clocks, *bit) for signal in path.split()]
        for i, value in enumerate(map(all, zip(*signals))):
            x, level = LEFT + STEP * i, y + (2 if value else 18)
            line += f"V{level}H{x + STEP}"
            if value:
                parts.append(f'<rect x="{x}" y="{level}" width="{STEP}" height="16" fill="#cfe3f7"/>')
        parts.append(f'<path d="{line}" fill="none" stroke="#1f5a94" stroke-width="1.6"/>')
    return "\n".join([*parts, "</svg>", ""])


def main():
    script = Script()
    script.open(0, Topic())
    script.frame(0, Udp(bytes(range(32))).frame(), gap=20)
    script.settle(200)
    script.frame(0, Udp(pull(0, 32, 32), port=PULL_PORT).frame())
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NIC_TRACE"] = str(Path(folder) / "trace.vcd")
        result = script.run()
        trace = Trace(os.environ["NIC_TRACE"])
    (_, push, push_last), (_, asked, asked_last) = result.inputs
    reply = result.network[0]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "push.svg").write_text(draw("A push of 32 bytes: clocks of 6.4 ns", PUSH_ROWS, trace, push, push_last + 10))
    title = f"A pull of 32 bytes from level 1: {reply.first - asked_last} clocks from its last beat to the reply's first"
    (RESULTS / "pull.svg").write_text(draw(title, PULL_ROWS, trace, asked, reply.last))


if __name__ == "__main__":
    main()
