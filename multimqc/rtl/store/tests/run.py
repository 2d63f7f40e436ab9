"""Builds the store with Verilator and runs its tests with cocotb.

`run.py [--seeds N] [--config NAME] [--test NAME] [--jobs N]` runs tests; `run.py --planted [--test NAME]` shows that each planted bug is caught.
"""

import argparse
import ast
import concurrent.futures
import copy
import os
import pathlib
import shutil
import sys
import warnings
import xml.etree.ElementTree

warnings.simplefilter("ignore")
from cocotb.runner import get_runner  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
STORE = HERE.parent
RTL = STORE.parent
OUT = RTL.parents[1] / "target" / "rtl" / "store"

# Parameters of the builds.
CONFIGS = {
    "level2": {"TOPICS": 4, "LEVEL1_BYTES": 16384, "LEVEL2_BYTES": 32768, "STALL": 2},
    "rings": {"TOPICS": 4, "LEVEL1_BYTES": 16384, "LEVEL2_BYTES": 32768, "STALL": 2, "RINGS": 2},
    "level1": {"TOPICS": 4, "LEVEL1_BYTES": 8192, "LEVEL2_BYTES": 0},
    "functions": {},
    "one": {"TOPICS": 1, "LEVEL1_BYTES": 4096, "LEVEL2_BYTES": 0},
}
# A test, besides others, that catches the bug.
PLANTED = {
    "BUG_LATER": "random_traffic",
    "BUG_COMMIT": "random_traffic",
    "BUG_SHIFT": "latency",
    "BUG_ODD": "random_traffic",
    "BUG_NOTE": "random_traffic",
    "BUG_HALVES": "level_2_has_what_level_1_has_lost",
    "BUG_AGE": "a_batch_ends_by_age",
    "BUG_HOLE": "a_slow_host_gets_holes",
    "BUG_EARLY": "level_2_is_read_as_it_is_written",
    "BUG_SPLIT": "level_2_has_what_level_1_has_lost",
    "BUG_FILLING": "a_sequential_reader_is_foreseen",
    "BUG_GUARD": "the_guard_is_kept",
    "BUG_STARVE": "a_pull_waits_for_a_while_only",
    "BUG_WAIT": "a_pull_interrupts_batches",
    "BUG_RESUME": "a_pull_interrupts_batches",
    "BUG_TORN": "what_is_overwritten_meanwhile_is_not_answered",
    "BUG_STROBE": "the_oldest_bytes_of_level_2_stay_whole",
    "BUG_COPY": "level_2_has_what_level_1_has_lost",
}
# The configuration that has the bug, if it is not level2.
PLANTED_IN = {"BUG_COPY": "rings"}


def sources():
    """All synthesizable files that the store needs, the package first."""
    files = [RTL / "pkg" / "multimqc_pkg.sv"]
    for folder in (RTL / "lib", STORE, STORE / "functions"):
        files += sorted(folder.glob("*.sv"))
    return [str(file) for file in files]


def build(name):
    """Builds a configuration, with the planted bugs, which stay off without their plusargs. Returns its runner. The tests spend their
    time in Python, so a short build is worth more than a fast model, and a compiler cache is used if there is one: the files of
    Verilator itself are always the same."""
    os.environ["MAKEFLAGS"] = "-j12 OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O0"
    if shutil.which("ccache"):
        os.environ.update(OBJCACHE="ccache", CCACHE_NOHASHDIR="1")
    folder, top = OUT / name, "functions_tb" if name == "functions" else "store_tb"
    arguments = ["-DPLANTED", "-Wno-fatal", "-Wno-WIDTH", "-Wno-UNUSED", "--timescale", "1ns/1ps"]
    # Many small files are compiled at the same time.
    arguments += ["--output-split", "8000", "--output-split-cfuncs", "2000"]
    runner = get_runner("verilator")
    files = sources() + [str(STORE / "sim" / "ddr4_model.sv"), str(HERE / f"{top}.sv")]
    runner.build(verilog_sources=files, hdl_toplevel=top, parameters=CONFIGS[name], build_args=arguments, build_dir=str(folder),
                 always=True)
    return runner


def tests_of(name):
    """The modules of a configuration's tests, and the names of the tests."""
    modules = ["test_store"] + ["test_level2"] * bool(CONFIGS[name].get("LEVEL2_BYTES"))
    if name == "functions":
        modules = ["test_functions"]
    found = []
    for module in modules:
        tree = ast.parse((HERE / f"{module}.py").read_text())
        found += [(module, node.name) for node in tree.body if isinstance(node, ast.AsyncFunctionDef) and node.decorator_list]
    return found


def run(runner, module, test, seed, plusargs=()):
    """Runs a test with a seed. Returns whether it passed, and its output."""
    place = runner.build_dir / "-".join([test, str(seed), *plusargs])
    place.mkdir(exist_ok=True)
    results, log = place / "results.xml", place / "log"
    results.unlink(missing_ok=True)
    try:
        copy.copy(runner).test(
            hdl_toplevel=runner.hdl_toplevel, test_module=module, testcase=test, build_dir=str(runner.build_dir), test_dir=str(place),
            extra_env={"SEED": str(seed), "PYTHONPATH": str(HERE)}, plusargs=[f"+{name}" for name in plusargs],
            results_xml=str(results), log_file=str(log))
    except (SystemExit, RuntimeError):
        pass
    passed = False
    if results.exists():
        cases = list(xml.etree.ElementTree.parse(results).iter("testcase"))
        ran = [case for case in cases if case.find("skipped") is None]
        passed = bool(ran) and all(case.find("failure") is None and case.find("error") is None for case in ran)
    return passed, log.read_text() if log.exists() else ""


def run_tests(options):
    """Runs all tests that are asked for. Returns the failures."""
    failed = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name in options.config or CONFIGS:
            runner = build(name)
            todo = {}
            for seed in range(options.seed, options.seed + options.seeds):
                for module, test in tests_of(name):
                    if not options.test or test in options.test:
                        todo[pool.submit(run, runner, module, test, seed)] = f"{name}, seed {seed}: {test}"
            for done in concurrent.futures.as_completed(todo):
                passed, log = done.result()
                print("passed" if passed else "FAILED", todo[done], flush=True)
                if not passed:
                    failed.append(todo[done])
                    print("\n".join(log.splitlines()[-60:]), flush=True)
                else:
                    print("".join(f"    {line.split('_tb ', 1)[1].strip()}\n" for line in log.splitlines() if "_tb  " in line),
                          end="")
    return failed


def run_planted(options):
    """Runs the tests against each planted bug. Returns the bugs that are not caught."""
    module_of = {test: module for module, test in tests_of("level2")}
    chosen = {bug: (test, PLANTED_IN.get(bug, "level2")) for bug, test in PLANTED.items() if not options.test or test in options.test}
    runners = {name: build(name) for name in sorted({name for _, name in chosen.values()})}
    failed = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        todo = {pool.submit(run, runners[name], module_of[test], test, options.seed, [bug]): (bug, test)
                for bug, (test, name) in chosen.items()}
        for done in concurrent.futures.as_completed(todo):
            passed, log = done.result()
            bug, test = todo[done]
            why = next((line.strip() for line in log.splitlines() if "AssertionError:" in line or "%Error" in line or "fatal" in line), "")
            print(f"{bug}: {'NOT caught' if passed or not log else 'caught'} by {test}: {why[:120]}", flush=True)
            if passed or not log:
                failed.append(f"{bug} is not caught")
    return failed


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--config", choices=CONFIGS, action="append")
    arguments.add_argument("--test", action="append")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("--planted", action="store_true", help="show that each planted bug is caught")
    options = arguments.parse_args()
    failed = run_planted(options) if options.planted else run_tests(options)
    print("\n".join(["FAILED:"] + failed) if failed else "all passed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
