"""Runs the tests with cocotb in modules/, each in a simulation of its module. SEED=n gives other random numbers."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the runner calls itself experimental
    from cocotb.runner import get_runner

TB = Path(__file__).parent
# The runner gives the simulation this path.
sys.path[:0] = [str(TB), str(TB / "modules")]
RTL = TB.parent
BUILD = RTL.parent / "target/rtl/modules"

CASES = [
    ("check_framer", "multimqc_framer", {}),
    ("check_push", "multimqc_push", {}),
    ("check_rx", "multimqc_rx", {"TOPICS": 1, "PORT_BITS": 64}),
    ("check_rx", "multimqc_rx", {"TOPICS": 1, "PORT_BITS": 512}),
    ("check_frame_fifo", "multimqc_frame_fifo", {"USER_W": 4, "BEATS": 64, "FRAMES": 8, "DROP": 0}),
    ("check_frame_fifo", "multimqc_frame_fifo", {"USER_W": 4, "BEATS": 256, "FRAMES": 64, "DROP": 1}),
    ("check_arbiter", "multimqc_arbiter", {"PORTS": 4, "WIDTH": 32}),
]


@pytest.mark.parametrize("check, module, parameters", CASES, ids=[f"{c[1]}-{'-'.join(map(str, c[2].values()))}" for c in CASES])
def test_module(check, module, parameters):
    sources = [RTL / "pkg/multimqc_pkg.sv"] + sorted(
        path for folder in ("lib", "front", "core") for path in (RTL / folder).glob("*.sv"))
    folder = BUILD / "-".join([module, *map(str, parameters.values())])
    runner = get_runner("verilator")
    runner.build(verilog_sources=sources, hdl_toplevel=module, parameters=parameters, build_dir=folder, always=False,
                 build_args=["--timescale", "1ns/1ps", "-Wno-fatal", "-O3", "--x-initial", "unique", "-CFLAGS", "-O1"])
    results = runner.test(hdl_toplevel=module, test_module=check, build_dir=folder, test_dir=folder,
                          extra_env={"SEED": os.environ.get("SEED", "1"), **{name: str(value) for name, value in parameters.items()}})
    failed = Path(results).read_text().count("<failure")
    assert failed == 0, f"{failed} tests of {check} failed: see above"


# The parameters that a module must refuse when it is elaborated, and the names in its message.
REFUSED = [
    ("multimqc_nic", {"LEVEL2_BYTES": -8192}, "LEVEL2_BYTES is not"),
    ("multimqc_nic", {"PORT_BITS": 128}, "PORT_BITS must be"),
    ("multimqc_nic", {"PORTS": 9}, "PORTS must be"),
    ("multimqc_nic", {"PORT_BITS": 512, "PORTS": 2}, "PORTS must be"),
    ("multimqc_nic", {"PORT_BITS": 512, "CLOCK_KHZ": 250_000}, "CLOCK_KHZ must be"),
    ("multimqc_nic", {"LEVEL1_BYTES": 16384, "PORT_BITS": 512}, "equation 1 does not hold"),
    ("multimqc_rx", {"PORT_BITS": 256}, "PORT_BITS must be"),
    ("multimqc_tx", {"PORT_BITS": 256}, "PORT_BITS must be"),
    ("multimqc_store", {"LEVEL2_BYTES": 10000}, "LEVEL2_BYTES is not"),
    ("multimqc_store", {"LEVEL1_BYTES": 12288}, "RING_BYTES is not a power of two"),
    ("multimqc_store", {"RINGS": 3}, "RINGS is not"),
    ("multimqc_store", {"LEVEL1_BYTES": 8192}, "equation 1 does not hold"),
]


@pytest.mark.parametrize("module, parameters, reason", REFUSED, ids=[f"{r[0]}-{'-'.join(map(str, r[1].values()))}" for r in REFUSED])
def test_an_illegal_parameter_is_refused(module, parameters, reason):
    sources = [RTL / "pkg/multimqc_pkg.sv"] + sorted(
        path for folder in ("lib", "front", "core", "store", "store/functions", "top") for path in (RTL / folder).glob("*.sv"))
    done = subprocess.run(["verilator", "--lint-only", "-Wno-WIDTH", "-Wno-SELRANGE", "--top-module", module,
                           *(f"-G{name}={value}" for name, value in parameters.items()), *map(str, sources)], capture_output=True, text=True)
    assert done.returncode != 0 and reason in done.stderr, done.stderr


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", *sys.argv[1:]]))
