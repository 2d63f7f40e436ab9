"""Draws the tables of multimqc/rtl/results/rates.md: rates.svg and latency.svg beside it. `plot.py`."""

import math
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 360, 60, 210, 40, 50
COLOURS = ["#1b6ca8", "#d1495b", "#2e8b57", "#8a5cb8", "#7a7a7a"]
# Bytes of a frame beside the payload of UDP over IPv4, its least without checksum, and what it takes on the wire besides.
HEADERS, LEAST, WIRE = 42, 60, 24


def table(text, heading):
    """The rows of the table below a heading, without its own head."""
    part = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
    return rows[0], rows[2:]


def number(cell):
    return float(cell.replace(",", ""))


def chart(title, y_label, series, top, step):
    """An SVG: `series` has a name and points of (payload, y) each; payloads are on a logarithmic axis."""
    payloads = sorted({x for _, points in series for x, _ in points})
    low, high = math.log2(payloads[0]), math.log2(payloads[-1])

    def x_of(payload):
        return LEFT + (math.log2(payload) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y_of(value):
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', f'<text x="10" y="20" font-weight="bold">{title}</text>']
    for value in range(0, top + 1, step):
        out += [f'<path d="M{LEFT} {y_of(value):.1f}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>',
                f'<text x="{LEFT - 6}" y="{y_of(value) + 4:.1f}" text-anchor="end">{value}</text>']
    last = -99.0
    for payload in payloads:
        out.append(f'<path d="M{x_of(payload):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#f0f0f0"/>')
        if x_of(payload) - last > 40:
            last = x_of(payload)
            out.append(f'<text x="{last:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{payload:,}</text>')
    out += [f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">payload, bytes</text>',
            f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2})">{y_label}</text>']
    for at, (name, points) in enumerate(series):
        colour, dashes = COLOURS[at % len(COLOURS)], ' stroke-dasharray="5 4"' if name.startswith("limit") else ""
        # Lines that lie on each other are seen: the first is the widest.
        width = max(2, 8 - 3 * at)
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>')
        if not dashes:
            out += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="{width / 2 + 1}" fill="{colour}"/>' for x, y in points]
        y = TOP + 10 + 20 * at
        out += [f'<path d="M{WIDTH - RIGHT + 12} {y}h24" stroke="{colour}" stroke-width="{width}"{dashes}/>',
                f'<text x="{WIDTH - RIGHT + 42}" y="{y + 4}">{name}</text>']
    return "\n".join(out + ["</svg>", ""])


def main():
    text = (RESULTS / "rates.md").read_text()
    series = []
    for heading in ("Pushes", "Pulls from level 1", "Pulls from level 2"):
        head, rows = table(text, heading)
        column = head.index("Gbit/s of payload")
        series.append((heading, [(int(number(row[0])), number(row[column])) for row in rows]))
    sizes = [x for x, _ in series[0][1]]
    series.append(("limit of the wire", [(x, 40 * x / (max(x + HEADERS, LEAST) + WIRE)) for x in sizes]))
    (RESULTS / "rates.svg").write_text(chart("Four ports of 10 GbE: payload that is stored, and sent", "Gbit/s", series, 40, 10))

    head, rows = table(text, "Latency of a pull")
    latencies = []
    for name, column, part in [("level 1, median", "Plain", 1), ("level 1, busy, most", "Plain, busy", 2), ("level 2, median", "Level 2", 1)]:
        at = head.index(column)
        latencies.append((name, [(int(number(row[0])), number(row[at].split("/")[part])) for row in rows]))
    sizes = [x for x, _ in latencies[0][1]]
    latencies.append(("limit, level 1", [(sizes[0], 40), (sizes[-1], 40)]))
    (RESULTS / "latency.svg").write_text(
        chart("From the last beat of a request to the first of its reply", "clocks of 6.4 ns", latencies, 120, 20))


if __name__ == "__main__":
    main()
