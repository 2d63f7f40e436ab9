"""Makes rtl/results/coverage.md of the lines that the tests of the whole NIC reach: `coverage.py LINES.info`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Files whose tests are of their own (rtl/store/tests).
OWN = ("rtl/store/",)


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
    own = [count for name, lines in files.items() if not name.startswith(OWN) for count in lines.values()]
    text = "\n".join([
        "# Lines that the tests of the whole NIC reach", "",
        "Written by `scripts/nic coverage`: the blocks of code that Verilator counts, in `rtl/tb/test_nic.py` alone. The tests of the",
        "modules with cocotb, and those of the store, come on top.", "",
        f"Front end: {sum(count > 0 for count in own)} of {len(own)}.", "",
        "| File | Counted | Reached | |", "|---|---:|---:|---:|", *rows, "", "## Not reached, front end", "", *(missed or ["- nothing"]), ""])
    (ROOT / "rtl/results").mkdir(exist_ok=True)
    (ROOT / "rtl/results/coverage.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
