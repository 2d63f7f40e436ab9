"""Wrong calls: each is an exception with a text that helps, and never a crash."""

import threading

import pytest
from conftest import WAIT

import rocketbufs
from rocketbufs import rbmq

# A call with a publisher `p`, a topic `w`, a raw topic `r` and a subscriber `s`; the exception; a part of its text.
WRONG = {
    "publish text": (lambda c: c.w.publish("text"), TypeError, "bytes-like"),
    "publish None": (lambda c: c.w.publish(None), TypeError, "bytes-like"),
    "publish a number": (lambda c: c.w.publish(5), TypeError, "bytes-like"),
    "publish nothing": (lambda c: c.w.publish(), TypeError, "data"),
    "publish every other byte": (lambda c: c.w.publish(memoryview(b"abcd")[::2]), BufferError, "contiguous"),
    "publish too much": (lambda c: c.w.publish(bytes((64 << 20) + 1)), rocketbufs.PublishError, "too large"),
    "publish with a negative time-out": (lambda c: c.w.publish(b"", -1), ValueError, "0 or more"),
    "publish with no number": (lambda c: c.w.publish(b"", "soon"), TypeError, "str"),
    "wait for nan": (lambda c: c.s.recv(float("nan")), ValueError, "time-out"),
    "wait a negative time": (lambda c: c.s.recv(-0.5), ValueError, "0 or more"),
    "publish_many of no iterable": (lambda c: c.w.publish_many(5), TypeError, "iter"),
    "publish_many of texts": (lambda c: c.w.publish_many(["a"]), TypeError, "bytes-like"),
    "publish_many of a generator that fails": (lambda c: c.w.publish_many(1 // n for n in [1, 0]), Exception, ""),
    "an empty segment of a raw topic": (lambda c: c.r.segment(0), rocketbufs.PublishError, "no bytes"),
    "a segment too large": (lambda c: c.w.segment(1 << 40), rocketbufs.PublishError, "too large"),
    "a segment of a negative size": (lambda c: c.w.segment(-1), OverflowError, ""),
    "a segment beyond all numbers": (lambda c: c.w.segment(1 << 70), OverflowError, ""),
    "resize a view": (lambda c: c.w.segment(4).view.__setitem__(slice(0, 4), b"12345"), ValueError, ""),
    "an empty topic": (lambda c: c.p.topic(""), rocketbufs.TopicOpenError, "topic"),
    "a topic with a pattern": (lambda c: c.p.topic("a/#"), rocketbufs.TopicOpenError, "#"),
    "a topic of bytes": (lambda c: c.p.topic(b"t"), TypeError, "str"),
    "an unknown framing": (lambda c: c.p.topic("x", framing="json"), ValueError, "'records' or 'raw'"),
    "an unknown option": (lambda c: c.p.topic("x", frame="raw"), TypeError, "frame"),
    "a ring of no size": (lambda c: c.p.topic("x", ring_bytes=1 << 60), rocketbufs.TopicOpenError, "buffer"),
    "an unknown level": (lambda c: c.w.confirm(level="read"), ValueError, "'consumed'"),
    "confirm the future": (lambda c: c.w.confirm(1 << 40), rocketbufs.ConfirmError, "not published"),
    "a wrong filter": (lambda c: c.s.subscribe("a/#/b"), rocketbufs.SubscribeTopicError, "#"),
    "an unknown start": (lambda c: c.s.subscribe("t", "first"), ValueError, "'oldest'"),
    "a start of the wrong type": (lambda c: c.s.subscribe("t", 1.5), TypeError, "start"),
    "a negative start": (lambda c: c.s.subscribe("t", -1), TypeError, "start"),
    "positions without epochs": (lambda c: c.s.subscribe("t", {"a": 1}), TypeError, ""),
    "unsubscribe a wrong filter": (lambda c: c.s.unsubscribe(""), rocketbufs.SubscribeTopicError, "topic"),
    "an unknown policy": (lambda c: rbmq.Subscriber(c.addr, slow="wait"), ValueError, "'drop'"),
    "a policy of the wrong type": (lambda c: rbmq.Subscriber(c.addr, slow=5), ValueError, "policy"),
    "a durable subscriber without a name": (
        lambda c: rbmq.Subscriber(c.addr, hold=5),
        rocketbufs.ConnectError,
        "1 to 255 bytes",
    ),
    "no broker": (lambda c: rbmq.Publisher("127.0.0.1:1"), rocketbufs.ConnectError, "127.0.0.1:1"),
    "no address": (lambda c: rbmq.Publisher("nowhere"), rocketbufs.ConnectError, "nowhere"),
    "an address of the wrong type": (lambda c: rbmq.Publisher(("127.0.0.1", 7411)), TypeError, "str"),
    "an unknown setting": (lambda c: rocketbufs.Config({"tcp.nodely": 1}), rocketbufs.ConfigError, "tcp.nodelay"),
    "a wrong value": (lambda c: rocketbufs.Config({"tcp": {"nodelay": "maybe"}}), rocketbufs.ConfigError, "nodelay"),
    "settings of the wrong type": (lambda c: rbmq.Publisher(c.addr, config=5), TypeError, "config"),
    "a file that is not there": (
        lambda c: rbmq.Publisher(c.addr, config="/nowhere.toml"),
        rocketbufs.ConfigError,
        "nowhere.toml",
    ),
    "no TOML": (lambda c: rocketbufs.Config.from_toml("= 1"), rocketbufs.ConfigError, ""),
    "set an unknown setting": (lambda c: c.config.__setitem__("a", 1), rocketbufs.ConfigError, "a"),
    "an address in use": (lambda c: rbmq.Broker(c.addr), rocketbufs.BrokerError, "in use"),
    "make a batch": (lambda c: rbmq.Batch(), TypeError, "Batch"),
    "make a message": (lambda c: rbmq.Message(b"x"), TypeError, "Message"),
    "hash a message": (lambda c: hash(c.message), TypeError, "hashable"),
    "index a message too far": (lambda c: c.message[5], IndexError, "range"),
    "write into a message": (lambda c: memoryview(c.message).__setitem__(0, 1), TypeError, "read-only"),
    "change an attribute": (lambda c: setattr(c.w, "topic", "x"), AttributeError, "topic"),
    "wait for subscribers that do not come": (
        lambda c: c.w.wait_subscribers(5, 0.05),
        rocketbufs.PublisherWaitError,
        "1 of 5 subscribers after 50ms",
    ),
}


class Clients:
    pass


@pytest.fixture(scope="module")
def clients():
    with rbmq.Broker("127.0.0.1:0") as broker:
        c = Clients()
        c.addr, c.config = broker.addr, rocketbufs.Config()
        c.p, c.s = rbmq.Publisher(c.addr), rbmq.Subscriber(c.addr)
        c.w, c.r = c.p.topic("t"), c.p.topic("raw", framing="raw")
        c.s.subscribe("t")
        c.w.wait_subscribers(1, WAIT)
        c.w.publish(b"one")
        c.message = c.s.recv(WAIT)
        yield c
        c.s.close()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_an_exception(clients, name):
    call, exception, text = WRONG[name]
    with pytest.raises(exception) as raised:
        call(clients)
    assert text in str(raised.value), str(raised.value)
    # The clients work as before.
    clients.w.publish(b"again")
    assert clients.s.recv(WAIT) == b"again"


def test_there_are_enough_wrong_calls():
    assert len(WRONG) >= 30


def test_every_call_on_a_closed_object_says_so(broker):
    publisher, subscriber = rbmq.Publisher(broker.addr), rbmq.Subscriber(broker.addr)
    writer = publisher.topic("t")
    confirmation = writer.confirmation(writer.publish(b"x"), "consumed")
    for thing in (writer, publisher, subscriber):
        assert not thing.closed
        thing.close()
        thing.close()
        assert thing.closed
    for call in (
        lambda: writer.publish(b"x"),
        lambda: writer.publish_many([b"x"]),
        lambda: writer.segment(1),
        lambda: writer.flush(),
        lambda: writer.confirm(timeout=1),
        lambda: writer.confirmation(),
        lambda: writer.wait_subscribers(1),
        lambda: writer.position,
        lambda: writer.subscribers,
        lambda: publisher.topic("u"),
        lambda: publisher.next_event(0),
        lambda: publisher.fileno(),
        lambda: publisher.is_connected,
        lambda: subscriber.recv(0),
        lambda: subscriber.recv_batch(0),
        lambda: subscriber.next_event(0),
        lambda: next(subscriber),
        lambda: subscriber.subscribe("u"),
        lambda: subscriber.fileno(),
        lambda: subscriber.ended,
    ):
        with pytest.raises(rocketbufs.Closed, match="is closed"):
            call()
    assert confirmation.wait(WAIT).subscribers == 0


def test_close_ends_what_another_thread_waits_for(joined):
    writer, subscriber = joined()
    ended = []

    def receive():
        try:
            subscriber.recv()
        except rocketbufs.Closed as error:
            ended.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    subscriber.close()
    thread.join(WAIT)
    assert len(ended) == 1


def test_exceptions_are_one_hierarchy():
    classes = [value for value in vars(rocketbufs).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(classes) > 25
    for value in classes:
        assert issubclass(value, rocketbufs.Error) and value.__doc__ and value.__module__ == "rocketbufs"
    assert issubclass(rocketbufs.TimedOut, TimeoutError)
