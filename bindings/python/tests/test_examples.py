"""The examples, each in a process of its own, as a user runs them."""

import pathlib
import re
import select
import struct
import subprocess
import sys

import pytest

from rocketbufs import cmq, rbmq

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples" / "python"
LIMIT = 60


def begin(name, *arguments, **options):
    return python(str(EXAMPLES / f"{name}.py"), *map(str, arguments), **options)


def python(*arguments, **options):
    """Starts Python, whose output comes at once, and which a test reads and writes at once."""
    options.setdefault("stdin", subprocess.DEVNULL)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-u", *arguments], stdout=pipe, stderr=pipe, bufsize=0, **options)


def run(name, *arguments, given=b""):
    process = begin(name, *arguments, stdin=subprocess.PIPE)
    out, errors = process.communicate(given, LIMIT)
    assert process.returncode == 0, (out, errors)
    return out, errors


@pytest.fixture
def broker():
    process = begin("broker", "127.0.0.1:0")
    line = process.stdout.readline().decode()
    address = re.fullmatch(r"a broker on (\S+); Ctrl-C ends it\n", line)
    assert address, line
    yield address[1]
    process.send_signal(2)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0 and not errors, errors


def first_byte(subscriber):
    """The first byte that a subscriber prints: the topic is there, and the subscriber has it."""
    assert select.select([subscriber.stdout], [], [], LIMIT)[0], "nothing comes"
    return subscriber.stdout.read(1)


def published_and_received(broker, name, given):
    """Publishes lines, the first of them before all others. The buffer ends when the subscriber has it."""
    subscriber = begin("subscribe", 7, broker)
    publisher = begin(name, 7, "numbers", broker, stdin=subprocess.PIPE)
    first, rest = given.split(b"\n", 1)
    publisher.stdin.write(first + b"\n")
    out = first_byte(subscriber)
    _, errors = publisher.communicate(rest, LIMIT)
    out += subscriber.communicate(timeout=LIMIT)[0]
    assert (publisher.returncode, subscriber.returncode) == (0, 0), errors
    return out, errors.decode()


def test_publish_and_subscribe_through_the_broker(broker):
    given = b"".join(b"%d\n" % n for n in range(50_000))
    assert published_and_received(broker, "publish", given)[0] == given


def test_publish_with_confirmation(broker):
    given = b"".join(b"%d\n" % n for n in range(200))
    out, errors = published_and_received(broker, "publish_confirmed", given)
    assert out == given and errors == "200 deliveries consumed\n"


def test_fill_in_place(broker):
    subscriber = begin("subscribe", 7, broker)
    # The buffer of the publisher does not end before the subscriber has it.
    held = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
import publish
finish = publish.finish
publish.finish = lambda *given: (sys.stdin.read(), finish(*given))
runpy.run_path(sys.path[0] + "/fill.py", run_name="__main__")
"""
    publisher = python("-c", held, str(EXAMPLES), "7", "numbers", "50", broker, stdin=subprocess.PIPE)
    out = first_byte(subscriber)
    _, errors = publisher.communicate(b"", LIMIT)
    out += subscriber.communicate(timeout=LIMIT)[0]
    assert (publisher.returncode, subscriber.returncode) == (0, 0), errors
    assert out == struct.pack("<50000Q", *range(50_000))


def test_a_topic_that_is_taken_is_refused(broker):
    first = begin("publish", 7, "a", broker, stdin=subprocess.PIPE)
    first.stdin.write(b"x\n")
    subscriber = begin("subscribe", 7, broker)
    assert first_byte(subscriber) == b"x"
    second = begin("publish", 7, "b", broker)
    _, errors = second.communicate(timeout=LIMIT)
    assert second.returncode == 1 and b"exists already" in errors
    first.communicate(b"", LIMIT)
    assert first.returncode == 0 and subscriber.communicate(timeout=LIMIT)[0] == b"\n"


def test_rbmq():
    with rbmq.Broker("127.0.0.1:0") as broker:
        subscriber = begin("rbmq_subscribe", "numbers", broker.addr)
        given = b"".join(b"%d\n" % n for n in range(10_000))
        printed, _ = run("rbmq_publish", "numbers", broker.addr, given=given)
        out, _ = subscriber.communicate(timeout=LIMIT)
        assert printed == b"10000 records, consumed by 1 subscribers\n" and out == given and subscriber.returncode == 0


def test_a_space(tmp_path):
    (tmp_path / "rbmq.toml").write_text("[[broker.topics]]\npattern = 'devices/#'\nspace = true\n")
    with rbmq.Broker("127.0.0.1:0", config_file=tmp_path / "rbmq.toml") as broker, rbmq.Subscriber(broker.addr) as subscriber:
        subscriber.subscribe("devices/+/temp")
        printed, _ = run("rbmq_space", "devices/#", broker.addr, given=b"devices/1/temp 21.5 C\ndevices/1/door open\n")
        assert printed == b"2 records, delivered to 1 subscribers\n"
        message = subscriber.recv(LIMIT)
        assert (message.topic, message, message.attributes["payload_is_utf8"]) == ("devices/1/temp", b"21.5 C", True)


def test_workers_of_a_group(tmp_path):
    (tmp_path / "rbmq.toml").write_text(f"[broker]\nkeep_dir = '{tmp_path}/kept'\n[[broker.topics]]\npattern = '#'\nkeep = true\n")
    with rbmq.Broker("127.0.0.1:0", config_file=tmp_path / "rbmq.toml") as broker, rbmq.Publisher(broker.addr) as publisher:
        jobs = publisher.topic("jobs", ring_bytes=1 << 16)
        workers = [begin("rbmq_worker", "jobs", "g", 50, broker.addr) for _ in range(2)]
        jobs.publish_many(b"%d" % n for n in range(100))
        printed = [worker.communicate(timeout=LIMIT) for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0] and not any(errors for _, errors in printed), printed
        got = [out.split() for out, _ in printed]
        assert [len(lines) for lines in got] == [50, 50] and sorted(map(int, got[0] + got[1])) == list(range(100))


def test_cmq():
    receiver = begin("cmq_receive", "127.0.0.1:0")
    address = receiver.stderr.readline().decode().removeprefix("receiving at ").strip()
    run("cmq_send", address)
    out, _ = receiver.communicate(timeout=LIMIT)
    counts = re.fullmatch(r"127\.0\.0\.1:\d+ sent 10000: (\d+) received, (\d+) lost\n", out.decode())
    assert counts and int(counts[1]) + int(counts[2]) == 10_000


def test_cmq_reliable(tmp_path):
    secret = cmq.SecretKey.generate()
    (tmp_path / "server.key.pub").write_text(str(secret.public))
    with cmq.new_rq("127.0.0.1:0", security=cmq.Security(secret), reliable=True) as receiver:
        given = b"".join(b"%d\n" % n for n in range(1000))
        printed, _ = run("cmq_send_reliable", str(tmp_path / "server.key.pub"), "%s:%d" % receiver.local_addr, given=given)
        assert printed == b"1000 confirmed, 0 given up\n"
        assert b"".join(receiver.cw_pop()[0] + b"\n" for _ in range(1000)) == given


def test_usage():
    for name in ("publish", "subscribe", "publish_confirmed", "fill", "rbmq_publish", "rbmq_space", "rbmq_subscribe", "rbmq_worker"):
        process = begin(name)
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 2 and errors.startswith(b"usage: "), name
