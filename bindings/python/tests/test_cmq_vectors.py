"""The datagrams of docs/cmq-vectors.json, sent to a queue of the package and by one."""

import hmac
import itertools
import json
import pathlib
import socket
import time

import pytest
from conftest import WAIT

from rocketbufs import cmq

VECTORS = json.loads((pathlib.Path(__file__).parents[3] / "docs" / "cmq-vectors.json").read_text())
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
    # The bytes that follow in a vector are padding.
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


SECURED, RELIABLE = VECTORS["secured"], VECTORS["reliable"]
INITIATOR, RESPONDER, SHARED = (cmq.SecretKey(bytes([n]) * 32) for n in (1, 2, 5))
# The first bytes of every datagram of a kind.
KIND = slice(0, 4)


def answer(queue, datagram):
    """The answer of a queue to a datagram."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.settimeout(WAIT)
        plain.connect(queue.local_addr)
        plain.send(datagram)
        return plain.recv(65536)


@pytest.fixture
def responder():
    with cmq.new_rq("127.0.0.1:0", security=cmq.Security(RESPONDER, shared_secret=SHARED), reliable=True) as queue:
        yield queue


def counted(queue, name):
    """Waits for a count of the encryption, and returns all of them."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        queue.pop(0.01)
        if getattr(queue.stats().security, name):
            return queue.stats()
    raise AssertionError(f"no {name}")


def test_the_public_keys():
    assert str(INITIATOR.public) == SECURED["initiator_public"]
    assert str(RESPONDER.public) == SECURED["responder_public"]


def test_a_hello_is_answered(responder):
    hello, expected = (bytes.fromhex(SECURED[name]) for name in ("hello", "welcome"))
    welcome = answer(responder, hello)
    # The rest of the welcome depends on a random key.
    assert len(welcome) == len(expected) and welcome[:16] == expected[:16]
    damaged = bytearray(hello)
    damaged[40] ^= 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.connect(responder.local_addr)
        plain.send(damaged)
        assert counted(responder, "forged").security.handshakes == 0


def test_a_hello_is_sent(target):
    expected = bytes.fromhex(SECURED["hello"])
    security = cmq.Security(INITIATOR, default_peer=RESPONDER.public, shared_secret=SHARED)
    with cmq.new_rq("127.0.0.1:0", preset="immediate", security=security) as sender:
        sender.cw_push(target.getsockname(), b"ping")
        hello = target.recv(65536)
    assert len(hello) == len(expected) and hello[KIND] == expected[KIND] and hello[8:16] == bytes(8)
    # The check sum is known without a secret: HMAC of everything before it, with a key from the public key of the responder.
    key = hmac.digest(b"CMQ 2 hello", bytes(RESPONDER.public), "sha256")
    for datagram in (hello, expected):
        assert datagram[112:128] == hmac.digest(key, datagram[:112], "sha256")[:16] and not any(datagram[128:])


def test_plain_datagrams_are_refused_by_a_queue_with_a_key(responder):
    required = answer(responder, bytes.fromhex(DATAGRAMS["one message of four bytes"]["hex"]))
    assert required == bytes.fromhex("c525") + bytes(14)
    assert counted(responder, "plain").received == 0


@pytest.mark.parametrize("vector", SECURED["refused"], ids=lambda v: v["name"])
def test_a_refused_datagram_of_a_session(responder, vector):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.connect(responder.local_addr)
        plain.send(bytes.fromhex(vector["hex"]))
        # A version that is not known is none that encrypts.
        name = "plain" if vector["hex"].startswith("c530") else "malformed"
        assert counted(responder, name).security.sessions == 0


@pytest.fixture
def reliable():
    with cmq.new_rq("127.0.0.1:0", preset="immediate", reliable=True) as queue:
        yield queue


def segment(vector, *, receiver=0, run=1, offset=0, number=0):
    """The vector's segment with other numbers."""
    numbers = receiver.to_bytes(8, "little") + run.to_bytes(4, "little") + offset.to_bytes(8, "little")
    header = bytes.fromhex(vector["hex"])[:16] + number.to_bytes(8, "little") + vector["mailbox"].to_bytes(4, "little")
    return (header + numbers + bytes.fromhex(vector["bytes"])).ljust(60, b"\0")


def test_a_segment_of_an_earlier_run_is_answered_with_a_reset(reliable):
    vector = RELIABLE["segment"]
    reset = answer(reliable, bytes.fromhex(vector["hex"]))
    header = bytes.fromhex(vector["hex"])[4:16]
    assert reset[:4] == bytes.fromhex("c5140100") and reset[4:16] == header and reset[24:28] == b"\1\0\0\0"
    assert int.from_bytes(reset[16:24], "little") == vector["number"]
    assert int.from_bytes(reset[28:36], "little") == reliable.epoch and reset[36:] == bytes([0, 0, 0, 0, 1, 0, 0, 0])
    assert reliable.cw_pop() is None and reliable.stats().reliable.strange == 1


def test_a_segment_is_popped_and_acknowledged(reliable):
    vector = RELIABLE["segment"]
    ack = answer(reliable, segment(vector))
    message, key = reliable.pop(WAIT)
    assert (message, key.id) == (b"ping", vector["mailbox"])
    assert ack[:4] == bytes.fromhex("c5140100") and ack[4:16] == bytes.fromhex(vector["hex"])[4:16]
    assert int.from_bytes(ack[28:36], "little") == reliable.epoch and ack[24:28] == bytes(4)
    mailbox, run, limit = (int.from_bytes(ack[a:b], "little") for a, b in ((44, 48), (48, 52), (52, 60)))
    assert (mailbox, run, limit) == (vector["mailbox"], 1, 6 + (1 << 20)) and len(ack) == 60


def test_a_segment_is_sent(reliable, target):
    vector = RELIABLE["segment"]
    number = reliable.push_reliable((*target.getsockname(), vector["mailbox"]), b"ping")
    sent, sender = target.recvfrom(65536)
    expected = bytearray(segment(vector))
    expected[4:16] = sent[4:16]
    assert sent == bytes(expected) and int.from_bytes(sent[EPOCH], "little") == reliable.epoch
    # An acknowledgement as the vector's, of the one segment that was sent.
    ack = bytearray.fromhex(RELIABLE["ack"]["hex"])
    ack[2:4], ack[4:16], ack[16:24] = b"\1\0", sent[4:16], bytes(8)
    ack[36:52] = bytes([0, 0, 0, 0, 1, 0, 0, 0])
    key = (*target.getsockname(), vector["mailbox"])
    assert reliable.fate(key, number).kind == "Pending"
    target.sendto(ack, sender)
    assert reliable.wait_confirmed(key, number, WAIT)


@pytest.mark.parametrize("vector", RELIABLE["refused"], ids=lambda v: v["name"])
def test_a_refused_datagram_of_the_reliable_mode(reliable, wire, vector):
    wire.connect(reliable.local_addr)
    wire.send(bytes.fromhex(vector["hex"]))
    assert event_of(reliable, "Malformed").reason == "Broken"
    assert (reliable.stats().malformed, reliable.stats().reliable.links) == (1, 0)
