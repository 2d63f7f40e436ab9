#!/usr/bin/env python3
"""Messages per second from one publisher to one subscriber, through the Python client of each system, on loopback TCP.

    REPRODUCE="readme python" scripts/reproduce                # all, with the wheel built and the clients installed
    python3 lab/bench/peers/python/bench.py --against rbmq,redis --sizes 256,1024

Publisher, subscriber and server are processes of their own. The subscriber compares every message with the one that it expects: a run
with a message that is missing, wrong or twice is no result. A window of 8 MiB limits what is under way, for all systems alike. The
systems take turns, and each figure is the median of its runs. As root, everything runs in a network namespace of its own with the
congestion control cubic. With --rust, the row of RBMQ's client in Rust comes from `rbmq-bench libraries`.
"""

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import systems

WINDOW_BYTES = 8 << 20
CONGESTION = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")
ALLOWED = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")


class Wrong(Exception):
    """A message is not the expected one."""


def messages_of(size):
    """All messages, each with its number. They repeat after more than what may be under way."""
    count = 1 << max(10, min(16, ((4 * WINDOW_BYTES) // size).bit_length() - 1))
    return [n.to_bytes(4, "little") + bytes(size - 4) for n in range(count)]


def stream_of(size, length, received):
    """Lists of messages without an end, as fast as the window allows."""
    messages = messages_of(size)
    window = min(len(messages) // 2, WINDOW_BYTES // size)
    sent = 0
    while True:
        at = sent % len(messages)
        yield messages[at : at + length]
        sent += length
        while sent - received.value > window:
            time.sleep(0.0002)


def publish(system, address, size, received):
    system.publish(address, stream_of(size, system.size_of_list, received))


class Sink:
    """Takes the messages of a subscriber, and compares them with the expected ones."""

    def __init__(self, size, received, rates, times):
        self.expected, self.next = messages_of(size), 0
        self.received, self.rates, (self.warmup, self.seconds) = received, rates, times
        self.begin, self.at_begin = None, None

    def one(self, message):
        if message != self.expected[self.next % len(self.expected)]:
            raise Wrong(f"message {self.next}")
        self.next += 1
        if self.next % 64 == 0:
            self.progress()

    def many(self, messages):
        done = 0
        while done < len(messages):
            at = self.next % len(self.expected)
            expected = self.expected[at : at + len(messages) - done]
            if messages[done : done + len(expected)] != expected:
                raise Wrong(f"one of the messages {self.next} to {self.next + len(expected)}")
            self.next, done = self.next + len(expected), done + len(expected)
        self.progress()

    def progress(self):
        self.received.value = self.next
        now = time.perf_counter()
        if self.begin is None:
            # From the first message on, and after the warm-up.
            self.begin = now + self.warmup
        elif self.at_begin is None:
            if now >= self.begin:
                self.begin, self.at_begin = now, self.next
        elif now - self.begin >= self.seconds:
            self.rates.put((self.next - self.at_begin) / (now - self.begin))
            time.sleep(3600)


def receive(system, address, size, received, rates, times):
    try:
        system.receive(address, Sink(size, received, rates, times))
    except Wrong as error:
        rates.put(str(error))


def measure(system, size, times):
    """The rate of one run."""
    context = multiprocessing.get_context("spawn")
    received, rates = context.Value("Q", 0, lock=False), context.Queue()
    with system.server() as address:
        subscriber = context.Process(target=receive, args=(system, address, size, received, rates, times), daemon=True)
        publisher = context.Process(target=publish, args=(system, address, size, received), daemon=True)
        try:
            subscriber.start()
            # NATS and MQTT tell a publisher of no subscribers: the subscriber comes first.
            time.sleep(0.7)
            publisher.start()
            rate = rates.get(timeout=sum(times) + 30)
        finally:
            for process in (publisher, subscriber):
                if process.pid is not None:
                    process.kill()
                    process.join()
    if isinstance(rate, str):
        raise Wrong(rate)
    return rate


def version(name):
    package = {"rbmq": "rocketbufs", "redis": "redis", "nats": "nats-py", "zmq": "pyzmq", "paho": "paho-mqtt"}
    try:
        return importlib.metadata.version(package[name.split("-")[0]])
    except importlib.metadata.PackageNotFoundError:
        return None


def short(rate):
    if rate is None:
        return "–"
    for unit, factor in (("M", 1e6), ("k", 1e3)):
        if rate >= factor:
            return f"{rate / factor:.3g} {unit}"
    return f"{rate:.0f}"


def rust(program, sizes, options):
    """The rates of RBMQ's client in Rust, one item at a time, by size."""
    with tempfile.TemporaryDirectory() as out:
        arguments = ["--library", "rbmq", "--loads", "full", "--subscribers", "1", "--sizes", ",".join(map(str, sizes))]
        arguments += ["--seconds", f"{options.seconds}s", "--warmup", f"{options.warmup}s", "--reps", str(options.reps)]
        # The namespace of this program has what is asked for.
        arguments += ["--congestion", CONGESTION.read_text().strip(), "--out", out, "--name", "rust"]
        subprocess.run([program, "libraries", *arguments], check=True, stdout=subprocess.DEVNULL)
        rows = json.loads((pathlib.Path(out) / "rust.json").read_text())
    for row in rows:
        yield {
            "system": "rust",
            "version": row["library_version"],
            "size": row["size_bytes"],
            "rep": row["rep"],
            "rate": round(row["delivered_per_s"]),
        }


def in_a_namespace():
    """Runs this program again in a network namespace with cubic, if that is possible and was not done, and ends with it."""
    if os.environ.get("ROCKETBUFS_BENCH_NAMESPACE") or os.geteuid() != 0:
        return
    ready, says_ready = os.pipe()
    setup = f'ip link set lo up && echo cubic >{CONGESTION} && echo ready >&{says_ready} && exec "$@"'
    command = ["unshare", "--net", "sh", "-c", setup, "sh", sys.executable, *sys.argv]
    # A namespace may select only what the first one allows: the list is extended until the selection.
    allowed = ALLOWED.read_text()
    try:
        ALLOWED.write_text(allowed.strip() + " cubic")
        environment = dict(os.environ, ROCKETBUFS_BENCH_NAMESPACE="1")
        inside = subprocess.Popen(command, env=environment, pass_fds=[says_ready])
        os.close(says_ready)
        is_inside = os.read(ready, 8) == b"ready\n"
    except OSError:
        return
    finally:
        ALLOWED.write_text(allowed)
    if is_inside:
        sys.exit(inside.wait())


def options_of():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", default=",".join(systems.ALL), help="systems, separated by commas")
    parser.add_argument("--sizes", default="64,256,1024,8192", help="bytes of a message")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--rust", metavar="PROGRAM", help="rbmq-bench, for a row of RBMQ's client in Rust")
    parser.add_argument("--json", type=pathlib.Path, help="a file for the rows")
    return parser.parse_args()


def run_of(system, name, size, rep, options):
    """The row of one run; None if it has no result."""
    try:
        rate = measure(system, size, (options.warmup, options.seconds))
    except FileNotFoundError:
        raise
    except Exception as error:
        print(f"{name}, {size} bytes: no result: {error!r}", file=sys.stderr)
        return None
    row = {"system": name, "version": version(name), "size": size, "rep": rep, "rate": round(rate)}
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def main():
    options = options_of()
    in_a_namespace()
    names, sizes = options.against.split(","), [int(size) for size in options.sizes.split(",")]
    chosen = {name: systems.ALL[name]() for name in names if version(name)}
    rows = list(rust(options.rust, sizes, options)) if options.rust else []
    for size in sizes:
        for rep in range(options.reps):
            for name in list(chosen):
                try:
                    row = run_of(chosen[name], name, size, rep, options)
                except FileNotFoundError as missing:
                    print(f"{name}: left out: {missing}", file=sys.stderr)
                    del chosen[name]
                    continue
                rows += [row] if row else []
    labels = {name: f"{system.name} {version(name)}" for name, system in chosen.items()}
    if options.rust:
        labels = {"rust": "RBMQ's client in Rust, one item at a time", **labels}
    table = report(labels, sizes, rows)
    print(table)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def report(labels, sizes, rows):
    """The medians as a table."""
    lines = [
        f"Messages per second, Python {platform.python_version()}, one publisher and one subscriber, each message checked",
        f"({os.cpu_count()} cores, loopback TCP with {CONGESTION.read_text().strip()}, medians of the runs):",
        "",
    ]
    lines.append("| | " + " | ".join(f"{size} B" for size in sizes) + " |")
    lines.append("|---|" + "---:|" * len(sizes))
    for name, label in labels.items():
        cells = []
        for size in sizes:
            rates = [row["rate"] for row in rows if row["system"] == name and row["size"] == size]
            cells.append(short(statistics.median(rates) if rates else None))
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
