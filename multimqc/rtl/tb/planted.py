"""Plants bugs into the NIC's front end and its functions, one at a time, and runs the tests: each must be found. `planted.py FOLDER [NAME...]`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TESTS = ("test_nic.py", "test_load.py", "test_functions.py")

# Name: the file, what is there, and what it becomes.
BUGS = {
    "sum-one-byte-more": ("front/multimqc_parser.sv", "LANE_W'(i) < stop", "LANE_W'(i) <= stop"),
    "group-addresses-taken": ("front/multimqc_parser.sv", "head[30*8+5 +: 3] != 3'b111", "head[30*8+5 +: 3] != 3'b110"),
    "any-epoch": ("front/multimqc_classifier.sv", "epoch == cfg_epoch[topic*32 +: 32]", "epoch != 32'd0"),
    "reply-longer-than-request": ("front/multimqc_classifier.sv", "room > 16'd32 ? room - 16'd32", "room > 16'd32 ? room"),
    "reflections-answered": ("front/multimqc_classifier.sv", "n_pull == 16'd0 || ours1", "n_pull == 16'd0"),
    "broken-frames-stay": ("front/multimqc_rx.sv", "if (drop2) written <= begun;", "if (lost) written <= begun;"),
    "frames-in-frames": ("core/multimqc_arbiter.sv", "midway  <= !s_last[chosen];", "midway  <= 1'b0;"),
    "beat-too-late": ("core/multimqc_push.sv", "needs_next = left > LENGTH_W'(64)", "needs_next = left >= LENGTH_W'(64)"),
    "checksum-zero": ("core/multimqc_framer.sv", "udp_check_raw == 16'd0 ? 16'hffff", "udp_check_raw == 16'd1 ? 16'hffff"),
    "first-sum-kept": ("core/multimqc_framer.sv", "first1 ? with_headers : sum2", "first1 ? with_headers + 28'd1 : sum2"),
    "miss-cut-short": ("core/multimqc_pull.sv", "frame_take && m_miss_tlast", "frame_take"),
    "range-without-its-end": ("store/functions/input_drop_range.sv", "value <= high", "value < high"),
    "function-changes-inside": ("store/functions/multimqc_input_slot.sv", "first ? cfg_function[2*topic+:2] : kept", "cfg_function[2*topic+:2]"),
    "functions-overtake": ("store/functions/multimqc_output_slot.sv", "under_way[W*(1-i)+:W] == '0;", "1'b1;"),
}


def find(folder, name):
    """Whether the tests find a bug."""
    path, old, new = BUGS[name]
    tree = folder / name
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT / "multimqc/rtl", tree / "multimqc/rtl")
    (tree / "docs").mkdir()
    shutil.copy(ROOT / "docs/multimqc-vectors.json", tree / "docs")
    source = tree / "multimqc/rtl" / path
    text = source.read_text()
    if text.count(old) != 1:
        sys.exit(f"{name}: {path} does not have the text once")
    source.write_text(text.replace(old, new))
    environment = {**os.environ, "SEEDS": "2", "NIC_BENCH": str(tree / "build/nic_bench")}
    parts = ("pkg", "lib", "front", "core", "store", "store/functions", "top")
    files = [str(file) for part in parts for file in sorted((tree / "multimqc/rtl" / part).glob("*.sv"))]
    subprocess.run(
        ["verilator", "--cc", "--exe", "--build", "-j", "2", "-O3", "--x-initial", "unique", "-Wno-fatal", "-Wno-WIDTH",
         "--top-module", "multimqc_nic", "-GFUNCTIONS=1", "-CFLAGS", "-O1 -std=c++17", "--Mdir", str(tree / "build"), "-o", "nic_bench", *files,
         str(tree / "multimqc/rtl/tb/nic_bench.cpp")], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(str(tree / "multimqc/rtl/tb" / test) for test in TESTS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    found = next((line for line in done.stdout.splitlines() if line.startswith("FAILED")), "")
    shutil.rmtree(tree)
    return found[len("FAILED "):].split(" - ")[0].split("/")[-1]


def main():
    folder = Path(sys.argv[1])
    names = sys.argv[2:] or list(BUGS)
    missed = []
    for name in names:
        by = find(folder, name)
        print(f"| {name} | `{BUGS[name][0]}` | {f'`{by}`' if by else 'NOT FOUND'} |", flush=True)
        if not by:
            missed.append(name)
    if missed:
        sys.exit(f"not found: {', '.join(missed)}")


if __name__ == "__main__":
    main()
