"""The simulated NIC in front of a running server, as root: `joined.py NIC_TAP NIC_SIM MULTIMQC [BROKER...]`.

`nic-sim` in a network namespace. Pushes and pulls come from another one through the NIC's port 0; its batches fill the levels of
`multimqc serve` in the kernel, in memory and on disk. With a command that starts a Kafka broker and prints its address at the end of a
line with "listening", Kafka is the last level in place of the disk. Pulls of old and of new bytes are then answered by each of the five levels, the
lower ones taken out in turn, with the same bytes.

     network namespace      ┌───────────────┐      host's namespace
     multimqc push ── TAP ──┤ simulated NIC ├── TAP ── multimqc serve --levels kernel,user,disk
     multimqc pull          └───────────────┘
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NETWORK, HOST = f"nic-net-{os.getpid()}", f"nic-host-{os.getpid()}"
SERVER, CLIENT, NIC = "10.77.0.1", "10.77.0.2", "10.77.0.3"
TOPIC = 7


def run(*command, inside=None, **more):
    prefix = ["ip", "netns", "exec", inside] if inside else []
    return subprocess.run([*prefix, *map(str, command)], check=True, capture_output=True, **more).stdout


class Broker:
    """A Kafka broker in the host's namespace."""

    def __init__(self, command):
        run("ip", "link", "set", "lo", "up", inside=HOST)
        self.process = subprocess.Popen(["ip", "netns", "exec", HOST, *command], stdout=subprocess.PIPE, text=True)
        line = next((line for line in self.process.stdout if "listening" in line), None)
        assert line, "the broker does not start"
        self.address = line.split()[-1]

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class Nic:
    """The simulated NIC, and the server behind it."""

    def __init__(self, simulator, nic_sim, program, folder, broker):
        last = ["kernel,user,kafka", "--brokers", broker.address] if broker else ["kernel,user,disk", "--directory", folder / "disk"]
        self.program, self.control, self.log = program, folder / "control", open(folder / "log", "w+")
        command = ["ip", "netns", "exec", HOST, nic_sim, "--multimqc", program, "--simulator", simulator, "--namespace", NETWORK, "--address", SERVER,
                   "--outside", CLIENT, "--nic", NIC, "--topic", TOPIC, "--control", self.control, "--json", "--", "--levels", *last]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def order(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def counts(self):
        self.order("stat")
        line = self.process.stdout.readline()
        assert line, Path(self.log.name).read_text()
        return json.loads(line)

    def stat(self):
        return json.loads(run(self.program, "stat", "--control", self.control, "--json"))

    def stop(self):
        self.process.terminate()
        assert self.process.wait(30) == 0, Path(self.log.name).read_text()


def hits(nic):
    """Pulls that each level of the server has answered."""
    return {level["level"]: level["hits"] for level in nic.stat()["topics"][0]["levels"]}


def joined(nic, program, last):
    # The first answer comes when the server is there.
    nic.counts()

    def push(what, rate):
        subprocess.run(["ip", "netns", "exec", NETWORK, program, "push", "--server", f"{SERVER}:19997", "--topic", str(TOPIC),
                        "--rate", str(rate)], input=what, check=True)

    def wait_for(length):
        for _ in range(100):
            stat = nic.stat()["topics"][0]
            if all(level["head"] == length for level in stat["levels"]):
                break
            time.sleep(0.1)
        return stat

    lines = b"".join(b"reading %07d" % number + b" and so on" * 8 + b"\n" for number in range(8000))
    print(f"push: 8,000 lines, {len(lines):,} bytes, from outside")
    # No faster than the simulation.
    push(lines, 1000)
    stat = wait_for(len(lines))
    print("NIC:", nic.counts())
    print("heads:", {level["level"]: level["head"] for level in stat["levels"]})
    assert all(level["head"] == len(lines) for level in stat["levels"]), "a level lacks bytes"

    stored = next(level["head"] for level in stat["levels"] if level["level"] == last)
    print(f"{last} has {stored:,} bytes")

    def pull(start, length=1000):
        return run(program, "pull", "--server", f"{SERVER}:19997", "--topic", TOPIC, "--from", start, "--length", length, inside=NETWORK)

    end = len(lines) - 1000
    for name, levels, start, who in [
        ("level 1, block RAM", "level1,level2", end, "level1"), ("level 2, DRAM", "level1,level2", 1000, "level2"),
        ("level 2, level 1 taken out", "level2", end, "level2"), ("the kernel, both taken out", "none", end, "kernel"),
        ("memory, below the kernel's ring", "none", end - 200_000, "user"), (f"{last}, below that", "none", 1000, last),
    ]:
        nic.order(f"levels {levels}")
        before = {**nic.counts(), **hits(nic)}
        assert pull(start) == lines[start:start + 1000], name
        after = {**nic.counts(), **hits(nic)}
        answered = [who for who in ("level1", "level2", "kernel", "user", last) if after[who] > before[who]]
        print(f"pull of 1,000 bytes at {start:,}: {name}: answered by {', '.join(answered)}")
        assert answered == [who], f"{name}: {answered}"

    # The NIC is out for a while, and goes on behind what was pushed meanwhile.
    for levels, more in [("none", b"pushed past the NIC\n"), ("level1,level2", b"pushed into it again\n")]:
        nic.order(f"levels {levels}")
        nic.counts()
        push(more, 1000)
        lines += more
        wait_for(len(lines))
    before = nic.counts()["level1"]
    assert pull(len(lines) - 21, 21) == b"pushed into it again\n" and nic.counts()["level1"] > before
    assert pull(len(lines) - 41, 41) == lines[-41:], "the bytes before the NIC's own"
    print("the NIC is taken out and returns: no byte is lost")


def main():
    simulator, nic_sim, program = map(os.path.abspath, sys.argv[1:4])
    nic = broker = None
    try:
        for namespace in (NETWORK, HOST):
            run("ip", "netns", "add", namespace)
        with tempfile.TemporaryDirectory() as folder:
            if sys.argv[4:]:
                broker = Broker(sys.argv[4:])
            nic = Nic(simulator, nic_sim, program, Path(folder), broker)
            try:
                joined(nic, program, "kafka" if broker else "disk")
            finally:
                nic.stop()
    finally:
        if broker:
            broker.stop()
        for namespace in (NETWORK, HOST):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


if __name__ == "__main__":
    main()
