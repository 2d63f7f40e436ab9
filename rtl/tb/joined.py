"""The simulated NIC in front of a running server, as root: `joined.py NIC_TAP MULTIMQC [BROKER...]`.

Two network namespaces and two TAP devices. Pushes and pulls come from outside through the NIC's port 0; its batches fill the levels of
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
WIRE, CARD = f"nw{os.getpid()}", f"nh{os.getpid()}"
SERVER, CLIENT, NIC = "10.77.0.1", "10.77.0.2", "10.77.0.3"
TOPIC = 7


def run(*command, inside=None, **more):
    prefix = ["ip", "netns", "exec", inside] if inside else []
    return subprocess.run([*prefix, *map(str, command)], check=True, capture_output=True, **more).stdout


class Nic:
    """The process of the simulation."""

    def __init__(self, program):
        self.process = subprocess.Popen([program, WIRE, CARD, NIC, SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "devices\n"

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def counts(self):
        words = self.ask("count").split()
        return dict(zip(words[::2], map(int, words[1::2])))

    def stop(self):
        self.process.stdin.close()
        self.process.wait(30)


def give(device, namespace, address):
    run("ip", "link", "set", device, "netns", namespace)
    run("ip", "addr", "add", f"{address}/24", "dev", device, inside=namespace)
    # Nothing but the test's own frames.
    run("sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=1", inside=namespace)
    run("ip", "link", "set", device, "up", inside=namespace)


CONFIG = f"""
accept_batches = true
batch_bytes = 16384
expected_bytes_per_second = 1000000
expected_latency_ms = 10
[kernel]
ring_bytes = 131072
[user]
capacity_bytes = 524288
[[topics]]
id = {TOPIC}
push_port = 19999
pull_port = 19998
"""


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


class Server:
    def __init__(self, program, folder, broker):
        last = ["kernel,user,kafka", "--brokers", broker.address] if broker else ["kernel,user,disk", "--directory", folder / "disk"]
        self.program, self.control = program, folder / "control"
        (folder / "config.toml").write_text(CONFIG)
        self.log = open(folder / "log", "w")
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", HOST, program, "serve", "--config", folder / "config.toml", "--interface", CARD, "--address", SERVER,
             "--control", self.control, "--levels", *last], stdout=self.log, stderr=self.log)

    def stat(self):
        return json.loads(run(self.program, "stat", "--control", self.control, "--json"))

    def wait(self):
        for _ in range(100):
            try:
                return self.stat()
            except subprocess.CalledProcessError:
                assert self.process.poll() is None, Path(self.log.name).read_text()
                time.sleep(0.1)
        raise AssertionError("the server does not start")

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def hits(server):
    """Pulls that each level of the server has answered."""
    return {level["level"]: level["hits"] for level in server.stat()["topics"][0]["levels"]}


def joined(nic, server, program, last):
    epoch = server.wait()["topics"][0]["epoch"]
    mac = run("cat", f"/sys/class/net/{CARD}/address", inside=HOST, text=True).strip()
    assert nic.ask(f"open {mac} {TOPIC} {epoch}") == "opened"
    lines = b"".join(b"reading %07d" % number + b" and so on" * 8 + b"\n" for number in range(8000))
    print(f"push: 8,000 lines, {len(lines):,} bytes, from outside")
    # No faster than the simulation.
    subprocess.run(["ip", "netns", "exec", NETWORK, program, "push", "--server", f"{SERVER}:19997", "--topic", str(TOPIC),
                    "--rate", "1000"], input=lines, check=True)
    for _ in range(100):
        stat = server.stat()["topics"][0]
        if all(level["head"] == len(lines) for level in stat["levels"]):
            break
        time.sleep(0.1)
    print("NIC:", nic.counts())
    print("heads:", {level["level"]: level["head"] for level in stat["levels"]})
    assert all(level["head"] == len(lines) for level in stat["levels"]), "a level lacks bytes"

    stored = next(level["head"] for level in stat["levels"] if level["level"] == last)
    print(f"{last} has {stored:,} bytes")

    def pull(start, length=1000):
        return run(program, "pull", "--server", f"{SERVER}:19997", "--topic", TOPIC, "--from", start, "--length", length, inside=NETWORK)

    end = len(lines) - 1000
    for name, levels, start, who in [
        ("level 1, block RAM", 3, end, "level1"), ("level 2, DRAM", 3, 1000, "level2"),
        ("level 2, level 1 taken out", 2, end, "level2"), ("the kernel, both taken out", 0, end, "kernel"),
        ("memory, below the kernel's ring", 0, end - 200_000, "user"), (f"{last}, below that", 0, 1000, last),
    ]:
        nic.ask(f"levels {levels}")
        before = {**nic.counts(), **hits(server)}
        assert pull(start) == lines[start:start + 1000], name
        after = {**nic.counts(), **hits(server)}
        answered = [who for who in ("level1", "level2", "kernel", "user", last) if after[who] > before[who]]
        print(f"pull of 1,000 bytes at {start:,}: {name}: answered by {', '.join(answered)}")
        assert answered == [who], f"{name}: {answered}"


def main():
    tap, program = map(os.path.abspath, sys.argv[1:3])
    nic = broker = None
    try:
        for namespace in (NETWORK, HOST):
            run("ip", "netns", "add", namespace)
        nic = Nic(tap)
        give(WIRE, NETWORK, CLIENT)
        give(CARD, HOST, SERVER)
        with tempfile.TemporaryDirectory() as folder:
            if sys.argv[3:]:
                broker = Broker(sys.argv[3:])
            server = Server(program, Path(folder), broker)
            try:
                joined(nic, server, program, "kafka" if broker else "disk")
            finally:
                server.stop()
    finally:
        if broker:
            broker.stop()
        if nic:
            nic.stop()
        for namespace in (NETWORK, HOST):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


if __name__ == "__main__":
    main()
