"""Makes multimqc/rtl/results/coverage.md of what the tests of the whole NIC reach: `coverage.py LINES.info POINTS SEEDS`."""

import sys
from collections import Counter
from pathlib import Path

from nic import POINTS

ROOT = Path(__file__).resolve().parents[3]
# Files whose tests are of their own (multimqc/rtl/store/tests).
OWN = ("multimqc/rtl/store/",)


def main():
    files, name = {}, None
    for line in Path(sys.argv[1]).read_text().splitlines():
        if line.startswith("SF:"):
            name = str(Path(line[3:]).resolve().relative_to(ROOT)) if Path(line[3:]).is_absolute() else line[3:]
        elif line.startswith("DA:"):
            number, count = line[3:].split(",")[:2]
            lines = files.setdefault(name, {})
            lines[int(number)] = max(lines.get(int(number), 0), int(count))
    rows, missed = [], []
    for name, lines in sorted(files.items()):
        reached = sum(count > 0 for count in lines.values())
        rows.append(f"| `{name}` | {len(lines)} | {reached} | {reached / len(lines):.0%} |")
        if not name.startswith(OWN):
            source = (ROOT / name).read_text().splitlines()
            missed += [f"- `{name}:{number}`: `{source[number - 1].strip()}`" for number, count in sorted(lines.items()) if not count]
    runs = Counter(Path(sys.argv[2]).read_text().splitlines())
    own = [count for name, lines in files.items() if not name.startswith(OWN) for count in lines.values()]
    text = "\n".join([
        "# Coverage by the tests of the whole NIC", "",
        f"Written by `scripts/nic coverage`: {runs['from port 0']} simulations, with seeds 1 to {sys.argv[3]} of the random tests.", "",
        "## Functional points", "",
        f"{sum(runs[point] > 0 for point in POINTS)} of {len(POINTS)} reached.", "",
        "| Point | Simulations |", "|---|---:|", *(f"| {point} | {runs[point]} |" for point in POINTS), "",
        "## Lines", "",
        "The blocks of code that Verilator counts. The tests of the modules with cocotb, and those of the store, come on top.", "",
        f"Front end: {sum(count > 0 for count in own)} of {len(own)}.", "",
        "| File | Counted | Reached | |", "|---|---:|---:|---:|", *rows, "", "## Lines that are not reached, front end", "", *(missed or ["- nothing"]), ""])
    (ROOT / "multimqc/rtl/results").mkdir(exist_ok=True)
    (ROOT / "multimqc/rtl/results/coverage.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
