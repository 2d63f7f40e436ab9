"""Makes multimqc/rtl/results/resources.md of what Yosys counts: `resources.py FOLDER`, with what `scripts/nic synth` left there."""

import json
import re
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "../results/resources.md"
# XC7VX690T, the device of the paper.
DEVICE = {"LUT": 433_200, "FF": 866_400, "RAMB36": 1_470}
# LUTs of a cell, as a SLICEM has them.
LUT_RAM = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4, "RAM256X1S": 4, "SRL16E": 1, "SRLC32E": 1}


def name_of(module):
    """A module's name without what Yosys adds for its parameters."""
    return module.split("\\")[1] if module.startswith("$paramod\\") else module.lstrip("\\").split("\\")[-1]


class Design:
    def __init__(self, modules):
        self.modules = {name.lstrip("\\"): module["num_cells_by_type"] for name, module in modules.items()}

    def resources(self, module):
        """[LUTs of logic, LUTs of memory, flip-flops, RAMB36, RAMB18] of a module and all in it."""
        total = [0, 0, 0, 0, 0]
        for cell, count in self.modules[module].items():
            if cell in self.modules:
                total = [a + count * b for a, b in zip(total, self.resources(cell))]
            elif re.fullmatch("LUT[1-6]", cell):
                total[0] += count
            elif cell in LUT_RAM:
                total[1] += count * LUT_RAM[cell]
            elif cell in ("FDRE", "FDSE", "FDCE", "FDPE"):
                total[2] += count
            elif cell.startswith("RAMB36"):
                total[3] += count
            elif cell.startswith("RAMB18"):
                total[4] += count
        return total


def modules_of(path):
    """The modules of a file of `stat -json`. Yosys 0.23 prints the hierarchy as plain text behind them, which is no JSON."""
    modules, end, _ = path.read_text().partition("\n   },\n")
    return json.loads(modules + "\n   }\n}" if end else modules)["modules"]


def second_ring(design):
    """LUTs, flip-flops and block RAMs of a ring of the store and its reader."""
    parts = [design.resources(name) for name in design.modules if name_of(name) in ("store_ring", "store_read")]
    logic, memory, flops, ram36, ram18 = map(sum, zip(*parts))
    return f"{logic + memory:,} LUT, {flops:,} flip-flops and {ram36 + ram18 / 2:g} block RAMs (RAMB36)"


def port_rows(folder):
    """A row of each module of a port and width: resources, and the cells of the longest path between two registers."""
    rows = []
    for module in ("multimqc_rx", "multimqc_tx"):
        for bits in (64, 512):
            modules = modules_of(folder / f"stat-{module}-{bits}.json")
            name = next(name for name in modules if module in name)
            values = Design(modules).resources(name.lstrip("\\"))
            path = re.search(r"length=(\d+)", (folder / f"path-{module}-{bits}.txt").read_text())[1]
            rows.append(f"| `{module}` | {bits} | {' | '.join(f'{value:,}' for value in values)} | {path} |")
    return rows


def main():
    folder = Path(sys.argv[1])
    design = Design(modules_of(folder / "stat.json"))
    top = "multimqc_nic"
    rows = [("**`multimqc_nic`**, all of it", 1, design.resources(top))]
    for cell, count in sorted(design.modules[top].items(), key=lambda item: name_of(item[0])):
        if cell in design.modules:
            rows.append((f"`{name_of(cell)}`", count, design.resources(cell)))
    lines = [f"| {name} | {count} | {' | '.join(f'{value:,}' for value in values)} |" for name, count, values in rows]
    logic, memory, flops, ram36, ram18 = rows[0][2]
    ram = ram36 + ram18 / 2
    text = f"""# Resources of the NIC level

Written by `scripts/nic synth`: Yosys, `synth_xilinx -family xc7`, with the parameters that `multimqc_nic` has by itself: four ports,
four topics of 32 KiB (131 KB in all, the paper's smallest) in level 1, and of 2 GiB in level 2. Yosys does not place and says no
frequency; the design has to reach 156.25 MHz, and was not tried on a device.

| Module | Count | LUT, logic | LUT, memory | Flip-flops | RAMB36 | RAMB18 |
|---|---:|---:|---:|---:|---:|---:|
{chr(10).join(lines)}

Numbers are of one instance. Where more than 32 bytes come in a clock, as from a port of 100 GbE, level 2 reads a second ring (`RINGS`), which is
not in the table. The first one and its reader have {second_ring(design)}; the second needs about as many.

## A port of 64 bit and one of 512 bit

The same for a port alone, with four topics. The last column is how many cells (LUT, multiplexer, carry chain of four bits) are between two
registers at most: all that Yosys says of time.

| Module | Bits | LUT, logic | LUT, memory | Flip-flops | RAMB36 | RAMB18 | Longest path |
|---|---:|---:|---:|---:|---:|---:|---:|
{chr(10).join(port_rows(folder))}

## Beside the paper's table III

Virtex-7 XC7VX690T. The paper's figures are those of Vivado for the whole of its NetFPGA-SUME design: with the MACs, the DMA engine and
the DRAM controller, which are not in `multimqc_nic`.

| | Capacity of level 1 | LUT | Block RAM |
|---|---:|---:|---:|
| paper | 131 KB | 65,760 (15.18 %) | 346 (23.54 %) |
| `multimqc_nic` | 131 KB | {logic + memory:,} ({(logic + memory) / DEVICE["LUT"]:.2%}) | {ram:g} ({ram / DEVICE["RAMB36"]:.2%}) |
"""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(re.sub(r"(\d)%\)", r"\1 %)", text))
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
