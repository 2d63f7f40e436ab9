#!/usr/bin/env python3
"""Messages per second from one publisher to one subscriber, through the Python client of each system, on loopback TCP.

    scripts/bench python                                       # all, with the wheel built and the clients installed
    python3 bench/peers/python/bench.py --against rbmq,redis --sizes 256,1024

Publisher, subscriber and server are processes of their own. Every message has a number, which the subscriber checks: a run with a
message that is missing, wrong or twice is no result. A window of 8 MiB limits what is under way, for all systems alike. The systems
take turns, and each figure is the median of its runs.
"""

import argparse
import importlib.metadata
import json
import multiprocessing
import pathlib
import platform
import statistics
import sys
import time

import systems

# Numbers of messages repeat after this many.
NUMBERS = 1 << 14
WINDOW_BYTES = 8 << 20


class Wrong(Exception):
    """A message is not the expected one."""


def messages_of(size):
    """All messages, each with its number."""
    return [n.to_bytes(4, "little") + bytes(size - 4) for n in range(NUMBERS)]


def stream_of(size, length, received):
    """Lists of messages without an end, as fast as the window allows."""
    messages, window = messages_of(size), max(256, min(1 << 16, WINDOW_BYTES // size))
    sent = 0
    while True:
        at = sent % NUMBERS
        yield messages[at : at + length]
        sent += length
        while sent - received.value > window:
            time.sleep(0.0002)


def publish(system, address, size, received):
    system.publish(address, stream_of(size, system.size_of_list, received))


def receive(system, address, size, received, rates, times):
    warmup, seconds = times
    expected, begin, at_begin = 0, None, 0

    def sink(message):
        nonlocal expected, begin, at_begin
        if int.from_bytes(message[:4], "little") != expected % NUMBERS or len(message) != size:
            raise Wrong(f"message {expected}")
        expected += 1
        if expected % 64:
            return
        received.value = expected
        now = time.perf_counter()
        if begin is None:
            # From the first message on, and after the warm-up.
            begin, at_begin = now + warmup, None
        elif at_begin is None and now >= begin:
            begin, at_begin = now, expected
        elif at_begin is not None and now - begin >= seconds:
            rates.put((expected - at_begin) / (now - begin))
            time.sleep(3600)

    try:
        system.receive(address, sink)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", default=",".join(systems.ALL), help="systems, separated by commas")
    parser.add_argument("--sizes", default="64,256,1024,8192", help="bytes of a message")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, help="a folder for python.jsonl and python.md")
    options = parser.parse_args()
    names, sizes = options.against.split(","), [int(size) for size in options.sizes.split(",")]
    chosen = {name: systems.ALL[name]() for name in names if version(name)}
    rows = []
    for size in sizes:
        for rep in range(options.reps):
            for name in list(chosen):
                try:
                    rate = measure(chosen[name], size, (options.warmup, options.seconds))
                except FileNotFoundError as missing:
                    print(f"{name}: left out: {missing}", file=sys.stderr)
                    del chosen[name]
                    continue
                except Exception as error:
                    print(f"{name}, {size} bytes: no result: {error!r}", file=sys.stderr)
                    continue
                row = {"system": name, "version": version(name), "size": size, "rep": rep, "rate": round(rate)}
                rows.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
    table = report(chosen, sizes, rows)
    print(table)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (options.out / "python.jsonl").write_text(lines)
        (options.out / "python.md").write_text(table + "\n")


def report(chosen, sizes, rows):
    """The medians as a table."""
    lines = [f"Messages per second, Python {platform.python_version()}, one publisher, one subscriber.", ""]
    lines.append("| | " + " | ".join(f"{size} B" for size in sizes) + " |")
    lines.append("|---|" + "---:|" * len(sizes))
    for name, system in chosen.items():
        cells = []
        for size in sizes:
            rates = [row["rate"] for row in rows if row["system"] == name and row["size"] == size]
            cells.append(short(statistics.median(rates) if rates else None))
        lines.append(f"| `{name}`: {system.name} {version(name)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
