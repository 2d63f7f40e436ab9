"""The datagrams of docs/cmq-vectors.json, sent to a queue of the package and by one."""

import itertools
import json
import pathlib
import socket
import time

import pytest
from conftest import WAIT

from rocketbufs import cmq

VECTORS = json.loads((pathlib.Path(__file__).parents[2] / "docs" / "cmq-vectors.json").read_text())
DATAGRAMS = {vector["name"]: vector for vector in VECTORS["datagrams"]}
BATCHES = [vector for vector in DATAGRAMS.values() if vector["kind"] == "batch"]
# The bytes of a header that a test cannot choose: the sender's epoch.
EPOCH = slice(8, 16)


@pytest.fixture
def queue():
    with cmq.new_rq("127.0.0.1:0", ordered=False) as queue:
        yield queue


@pytest.fixture
def wire(queue):
    """A socket whose datagrams go to the queue."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.settimeout(WAIT)
        plain.bind(("127.0.0.1", 0))
        plain.connect(queue.local_addr)
        yield plain


def event_of(queue, kind):
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        queue.pop(0.01)
        while (event := queue.next_event()) is not None:
            if event.kind == kind:
                return event
    raise AssertionError(f"no event {kind}")


@pytest.mark.parametrize("vector", BATCHES, ids=lambda v: v["name"])
def test_a_batch_is_popped(queue, wire, vector):
    wire.send(bytes.fromhex(vector["hex"]))
    key = cmq.Key(*wire.getsockname(), vector["mailbox"])
    expected = [(bytes.fromhex(message), key) for message in vector["messages"]]
    assert [queue.pop(WAIT) for _ in expected] == expected and queue.pop(0.01) is None
    joined = event_of(queue, "Joined")
    assert (joined.missed, joined.sender) == (vector["first"], wire.getsockname())
    (sender,) = queue.senders()
    assert (str(sender.epoch), sender.stream) == (vector["epoch"], vector["stream"])
    assert (sender.received, queue.stats().malformed) == (len(expected), 0)


def fragments():
    """The fragments of one message, by what they are: its second one, plain and padded, and its parity."""
    second, padded, parity = (v for v in DATAGRAMS.values() if v["kind"] == "fragment")
    size = second["fragment_length"]
    data = bytes.fromhex(second["bytes"])
    # Parity is the exclusive or of both fragments, so it has the first one.
    mixed = zip(bytes.fromhex(parity["bytes"]), data.ljust(size, b"\0"))
    first = bytes(a ^ b for a, b in mixed)
    header = bytes.fromhex(second["hex"])[:32]
    datagrams = {"first": header + (0).to_bytes(4, "little") + first}
    for name, vector in (("second", second), ("padded", padded), ("parity", parity)):
        datagrams[name] = bytes.fromhex(vector["hex"])
    return second, first + data, datagrams


@pytest.mark.parametrize("pair", list(itertools.permutations(["first", "second", "padded", "parity"], 2)), ids="-".join)
def test_any_two_fragments_are_the_message(queue, wire, pair):
    vector, message, datagrams = fragments()
    assert len(message) == vector["total"]
    for name in pair:
        wire.send(datagrams[name])
    if set(pair) == {"second", "padded"}:
        # The same fragment twice.
        assert queue.pop(0.05) is None and queue.stats().malformed == 0
        return
    assert queue.pop(WAIT) == (message, cmq.Key(*wire.getsockname(), vector["mailbox"]))
    assert queue.stats().malformed == 0


def test_a_close_is_reported(queue, wire):
    (vector,) = (v for v in DATAGRAMS.values() if v["kind"] == "close")
    message = DATAGRAMS["one message of four bytes"]
    wire.send(bytes.fromhex(message["hex"]))
    assert queue.pop(WAIT)[0] == bytes.fromhex(message["messages"][0])
    wire.send(bytes.fromhex(vector["hex"]))
    assert event_of(queue, "Lost").count == vector["first"] - 1
    assert event_of(queue, "Closed").sent == vector["first"]
    (sender,) = queue.senders()
    assert sender.closed and sender.received + sender.lost == vector["first"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda v: v["name"])
def test_a_refused_datagram_is_reported(queue, wire, vector):
    wire.send(bytes.fromhex(vector["hex"]))
    event = event_of(queue, "Malformed")
    assert event.sender == wire.getsockname() and event.reason.lower().startswith(vector["why"])
    stats = queue.stats()
    assert (stats.malformed, stats.received, queue.senders()) == (1, 0, [])


@pytest.fixture
def target():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as target:
        target.settimeout(WAIT)
        target.bind(("127.0.0.1", 0))
        yield target


def masked(datagram):
    return datagram[: EPOCH.start] + bytes(8) + datagram[EPOCH.stop :]


@pytest.mark.parametrize("vector", BATCHES, ids=lambda v: v["name"])
def test_a_batch_is_sent(target, vector):
    address = target.getsockname()
    with cmq.new_rq("127.0.0.1:0", timeout=60.0) as sender:
        # A sender numbers its streams: one to each address.
        for _ in range(vector["stream"]):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
                other.bind(("127.0.0.1", 0))
                sender.cw_push(other.getsockname(), b"first")
                sender.flush()
        sender.push_many(address, [b"before"] * vector["first"])
        sender.flush()
        before = 0
        while before < vector["first"]:
            before += int.from_bytes(target.recv(65536)[2:4], "little")
        sender.push_many((*address, vector["mailbox"]), [bytes.fromhex(message) for message in vector["messages"]])
        sender.flush()
        sent, expected = target.recv(65536), bytes.fromhex(vector["hex"])
        assert int.from_bytes(sent[EPOCH], "little") == sender.epoch
    # What follows in a vector is padding.
    assert masked(sent) == masked(expected)[: len(sent)] and not any(expected[len(sent) :])


def test_a_close_is_sent(target):
    (vector,) = (v for v in DATAGRAMS.values() if v["kind"] == "close")
    with cmq.new_rq("127.0.0.1:0") as sender:
        sender.push_many(target.getsockname(), [b"ping"] * vector["first"])
        sender.flush()
        sender.finish()
        while (sent := target.recv(65536))[1] & 15 != 2:
            pass
    assert masked(sent) == masked(bytes.fromhex(vector["hex"]))
