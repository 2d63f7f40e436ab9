"""The bytes of docs/protocol-vectors.json, between a plain socket and the package: as the sender, and as the receiver."""

import contextlib
import json
import pathlib
import socket

import pytest
from conftest import WAIT

from rocketbufs import Conn, Context, InView, Listener, RIn, ROut

VECTORS = json.loads((pathlib.Path(__file__).parents[3] / "docs" / "protocol-vectors.json").read_text())
MESSAGES = {vector["name"]: vector for vector in VECTORS["messages"]}
CONTROL, MORE = VECTORS["constants"]["control_wire"], VECTORS["constants"]["more_bit"]
# The bytes that an end chooses itself: the name of its process, and the names of its logs.
INSTANCE, EPOCH, WIRE = slice(13, 29), slice(5, 21), slice(1, 5)


def vectors_of(kind):
    return [pytest.param(vector, id=vector["name"]) for vector in VECTORS["messages"] if vector["fields"]["type"] == kind]


def body(vector, wire=None):
    """The bytes of a message, of another wire id."""
    found = bytearray.fromhex(vector["hex"])
    if wire is not None:
        found[WIRE] = wire.to_bytes(4, "little")
    return bytes(found)


def session():
    """The session's steps: who sends, the header's wire id and MORE bit, and the bytes behind the header."""
    for step in VECTORS["session"]:
        sent = bytes.fromhex(step["hex"])
        wire, size = int.from_bytes(sent[:4], "little"), int.from_bytes(sent[4:8], "little")
        assert len(sent) == 8 + size
        yield step["from"], step["fields"]["type"], wire, sent[8:]


def without(found, *parts):
    """The bytes without what an end chooses itself."""
    found = bytearray(found)
    for part in parts:
        found[part] = bytes(part.stop - part.start)
    return bytes(found)


class Wire:
    """A peer that knows the framing."""

    def __init__(self, plain):
        self.plain = plain
        plain.settimeout(WAIT)

    def send(self, body, wire=CONTROL):
        self.plain.sendall(wire.to_bytes(4, "little") + len(body).to_bytes(4, "little") + body)

    def _exactly(self, size):
        found = b""
        while len(found) < size:
            found += (more := self.plain.recv(size - len(found)))
            if not more:
                raise EOFError
        return found

    def receive(self):
        header = self._exactly(8)
        wire, size = int.from_bytes(header[:4], "little"), int.from_bytes(header[4:], "little")
        return wire, self._exactly(size)

    def control(self, kind):
        """The next control message of this type. Heartbeats and credits may come before."""
        while True:
            wire, found = self.receive()
            if wire == CONTROL and found[0] == kind:
                return found


@pytest.fixture
def context():
    context = Context({"transport": "tcp"})
    yield context
    context.shutdown(0)


class Sender:
    """The package as the sender, and a plain socket as the receiver."""

    def __init__(self, context):
        self.out = ROut(context)
        self.listener = Listener(context, "127.0.0.1:0")
        self.foreign = []
        self.listener.set_foreign_conn_cb(self.foreign.append)

    def connect(self):
        host, port = self.listener.local_addr.split(":")
        return Wire(socket.create_connection((host, int(port))))

    def accept(self, hello):
        """Connects with this HELLO; the wire, the connection and the WELCOME."""
        wire = self.connect()
        wire.send(body(hello))
        conn = self.listener.accept(WAIT)
        self.out.add_conn(conn)
        return wire, conn, wire.control(2)


@pytest.fixture
def sender(context):
    sender = Sender(context)
    yield sender
    sender.listener.unset_foreign_conn_cb()
    sender.listener.close()


CODES = {v["fields"]["code"]: name.removeprefix("BYE ") for name, v in MESSAGES.items() if name.startswith("BYE ")}
HELLO = MESSAGES["HELLO with an application's hello"]


@pytest.mark.parametrize("vector", vectors_of("HELLO"))
def test_a_hello_is_read(sender, vector):
    _, conn, welcome = sender.accept(vector)
    fields = vector["fields"]
    assert (conn.peer_hello, conn.peer_instance) == (bytes.fromhex(fields["hello"]), int(fields["instance"], 16))
    assert welcome[:9] == body(MESSAGES["WELCOME"])[:9]


@pytest.mark.parametrize("vector", vectors_of("BYE"))
def test_a_bye_ends_the_connection(sender, vector):
    wire, conn, _ = sender.accept(HELLO)
    wire.send(body(vector))
    reason = conn.wait_down(WAIT)
    assert (reason.kind, reason.code) == ("Peer", CODES[vector["fields"]["code"]])
    assert vector["fields"]["text"] in reason.text


def test_a_ping_is_answered(sender):
    wire, conn, _ = sender.accept(HELLO)
    wire.send(body(MESSAGES["PONG"]))
    wire.send(body(MESSAGES["PING"]))
    assert wire.control(5)[1:] == body(MESSAGES["PING"])[1:] and conn.is_up


@pytest.mark.parametrize("vector", vectors_of("APP"))
def test_a_message_of_the_application_arrives_and_is_sent(sender, vector):
    wire, conn, _ = sender.accept(HELLO)
    wire.send(body(vector))
    event = sender.out.recv_event(WAIT)
    assert event.kind == "Control" and event.message == bytes.fromhex(vector["fields"]["bytes"])
    conn.send_control(event.message)
    assert wire.control(body(vector)[0]) == body(vector)


@pytest.mark.parametrize("vector", vectors_of("SUBSCRIBE"))
def test_a_subscription_is_answered(sender, vector):
    wire, _, _ = sender.accept(HELLO)
    fields = vector["fields"]
    buffer = sender.out.create_buffer(fields["bid"], 1 << 20, flow_control=fields["policy"] != 3)
    wire.send(body(vector))
    answer = wire.control(0x11)
    assert int.from_bytes(answer[WIRE], "little") == fields["wire"]
    (info,) = buffer.subscribers()
    assert info.policy == ("block", "drop", "disconnect", "overwrite")[fields["policy"]]
    assert info.name == bytes.fromhex(fields["name"])


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["name"]) for vector in VECTORS["rejects"]])
def test_a_wrong_message_ends_the_connection(sender, vector):
    if vector["name"].startswith("HELLO"):
        wire = sender.connect()
        wire.send(body(vector))
        assert sender.listener.accept(0.05) is None
    else:
        wire, conn, _ = sender.accept(HELLO)
        sender.out.create_buffer(7, 1 << 20)
        wire.send(body(vector))
        reason = conn.wait_down(WAIT)
        assert reason.kind in ("Local", "Transport") and reason.code in ("Protocol", None)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            wire.receive()
    # The listener goes on.
    _again, conn, _ = sender.accept(HELLO)
    conn.wait_up(WAIT)


def test_the_session_as_its_sender(sender):
    buffer, steps = sender.out.create_buffer(7, 1 << 20, max_delivery_bytes=1 << 18, start=4096), list(session())
    wire = conn = None
    data = b""
    for who, kind, wire_id, sent in steps:
        if who == "receiver":
            if kind == "HELLO":
                wire = sender.connect()
            if kind != "PONG":
                wire.send(sent, wire_id)
            if kind == "HELLO":
                conn = sender.listener.accept(WAIT)
                sender.out.add_conn(conn)
            continue
        if kind == "data":
            data += sent
            continue
        if kind == "ASK":
            assert [buffer.append(b"hello"), buffer.append(b"world")] == [4101, 4106]
            received = b""
            while len(received) < len(data):
                _, found = wire.receive()
                received += found if _ == 1 else b""
            assert received == data == b"helloworld"
            buffer.request_confirm("landed", 4106)
        if kind == "PING":
            continue
        found = wire.control(sent[0])
        if kind == "WELCOME":
            assert found[:13] == sent[:13] and found[29:37] == sent[29:37]
        elif kind == "SUBSCRIBED":
            assert without(found, EPOCH) == without(sent, EPOCH)
        else:
            assert found == sent, kind
    reason = conn.wait_down(WAIT)
    assert (reason.kind, reason.code) == ("Peer", "Normal") and "done" in reason.text


class Receiver:
    """The package as the receiver, and a plain socket as the sender."""

    def __init__(self, context, hello):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(WAIT)
            self.conn = Conn.start(context, "%s:%d" % server.getsockname(), hello)
            self.input = RIn(self.conn)
            self.wire = Wire(server.accept()[0])
        self.hello = self.wire.control(1)
        self.wire.send(body(MESSAGES["WELCOME"]))
        self.conn.wait_up(WAIT)

    def subscribe(self, **options):
        """Subscribes to buffer 7; the wire id."""
        self.input.subscribe(7, 1 << 20, **options)
        return int.from_bytes(self.wire.control(0x10)[WIRE], "little")

    def event(self, kind):
        while (event := self.input.recv(WAIT)).kind != kind:
            pass
        return event


@pytest.fixture
def receiver(context):
    return Receiver(context, b"reader")


def test_the_session_as_its_receiver(receiver):
    wire, pings, views = receiver.wire, [], []
    steps = list(session())
    assert without(receiver.hello, INSTANCE) == without(steps[0][3], INSTANCE)
    wire_id = None
    for who, kind, given, sent in steps[2:]:
        if kind == "SUBSCRIBE":
            receiver.input.subscribe(7, 1 << 20)
            found = wire.control(sent[0])
            wire_id = int.from_bytes(found[WIRE], "little")
            assert without(found, WIRE) == without(sent, WIRE)
        elif who == "sender":
            if given == CONTROL and kind != "PING":
                sent = sent[:1] + wire_id.to_bytes(4, "little") + sent[5:]
            if kind == "ASK":
                while sum(map(len, views)) < 10:
                    event = receiver.input.recv(WAIT)
                    views += [event] if isinstance(event, InView) else []
                views[0].consume_up_to(4101)
            wire.send(sent, given if given == CONTROL else given & MORE | wire_id)
            pings += [sent] if kind == "PING" else []
        elif kind == "UNSUBSCRIBE":
            receiver.input.unsubscribe(7)
            assert without(wire.control(sent[0]), WIRE) == without(sent, WIRE)
        elif kind == "BYE":
            receiver.conn.close("done")
            assert wire.control(sent[0]) == sent
        else:
            found = wire.control(sent[0])
            # The answer to the question may come in two credits.
            while kind == "CREDIT" and without(found, WIRE) != without(sent, WIRE):
                found = wire.control(sent[0])
            assert kind == "CREDIT" or found == sent, kind


@pytest.mark.parametrize("vector", vectors_of("REFUSED"))
def test_a_refusal_is_an_event(receiver, vector):
    receiver.wire.send(body(vector, receiver.subscribe()))
    event = receiver.event("Refused")
    assert event.code == vector["name"].removeprefix("REFUSED ") and event.bid == 7


@pytest.mark.parametrize("vector", vectors_of("SUBSCRIBED"))
def test_a_subscription_is_an_event(receiver, vector):
    receiver.wire.send(body(vector, receiver.subscribe(name="n", hold=60)))
    event, fields = receiver.event("Subscribed"), vector["fields"]
    assert (event.epoch, event.start) == (int(fields["epoch"], 16), int(fields["start"]))
    if fields["without_slot"]:
        assert receiver.event("NotDurable").bid == 7


def subscribed(position, flow_control):
    """A SUBSCRIBED that begins at a position."""
    vector = MESSAGES[f"SUBSCRIBED, flow control {str(flow_control).lower()}, restarted false"]
    start = int(vector["fields"]["start"]).to_bytes(8, "little")
    return {"hex": vector["hex"].replace(start.hex(), position.to_bytes(8, "little").hex(), 1)}


@pytest.mark.parametrize("kind, name", [("CLOSED", "Closed"), ("GONE", "Gone")])
def test_the_end_of_a_log_is_an_event(receiver, kind, name):
    (vector,) = (vector for vector in VECTORS["messages"] if vector["fields"]["type"] == kind)
    end, wire = int(vector["fields"]["end"]), receiver.subscribe()
    receiver.wire.send(body(subscribed(min(end, 1 << 60), True), wire))
    if end > 1 << 60:
        # Not a position that a log can have.
        receiver.wire.send(body(vector, wire))
        assert receiver.conn.wait_down(WAIT).code == "Protocol"
        return
    receiver.wire.send(body(vector, wire))
    event = receiver.event(name)
    assert (event.bid, event.end) == (7, end)


def test_a_loss_is_an_event(receiver):
    vector, wire = MESSAGES["LOST"], receiver.subscribe(policy="drop")
    start, end = (int(vector["fields"][name]) for name in ("from", "to"))
    receiver.wire.send(body(subscribed(start, True), wire))
    receiver.wire.send(body(vector, wire))
    receiver.wire.send(b"after", wire)
    event = receiver.event("Lost")
    assert (event.start, event.end) == (start, end)
    with receiver.input.recv(WAIT) as view:
        assert (view.position, bytes(view)) == (end, b"after")


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["name"]) for vector in VECTORS["marks"]])
def test_marks_are_read(receiver, vector):
    wire = receiver.subscribe(policy="overwrite")
    receiver.wire.send(body(subscribed(int(vector["position"]), False), wire))
    receiver.event("Subscribed")
    receiver.wire.send(bytes.fromhex(vector["hex"]), wire)
    with receiver.input.recv(WAIT) as view:
        assert bytes(view) == bytes.fromhex(vector["payload"])


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["name"]) for vector in VECTORS["mark_rejects"]])
def test_wrong_marks_are_not_handed_out(receiver, vector):
    wire, position = receiver.subscribe(policy="overwrite"), int(vector["position"])
    receiver.wire.send(body(subscribed(position, False), wire))
    receiver.event("Subscribed")
    receiver.wire.send(bytes.fromhex(vector["hex"]), wire)
    event = receiver.input.recv(WAIT)
    assert not isinstance(event, InView) and event.kind in ("Lost", "ConnDown"), event


# Not the empty one: a delivery of no bytes gives its segment back.
@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["name"]) for vector in VECTORS["marks"][1:]])
def test_marks_are_written(sender, vector):
    wire, _, _ = sender.accept(HELLO)
    # The last position is a quarter of the deliveries away that a ring has by default.
    options = {"flow_control": False, "max_delivery_bytes": 4096, "start": int(vector["position"])}
    buffer = sender.out.create_buffer(7, 1 << 20, **options)
    wire.send(body(MESSAGES["SUBSCRIBE, Overwrite"]))
    wire.control(0x11)
    buffer.append(bytes.fromhex(vector["payload"]))
    found, expected = b"", bytes.fromhex(vector["hex"])
    while len(found) < len(expected):
        given, part = wire.receive()
        found += b"" if given == CONTROL else part
    assert found == expected
