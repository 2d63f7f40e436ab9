"""Shared by the tests: a broker in this process, and clients of it."""

import pathlib
import sys

import pytest

from rocketbufs import Conn, Context, Listener, RIn, ROut, rbmq

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "lab/testkit"))
from own_port import own_port  # noqa: E402

WAIT = 60.0


def own_addr():
    """An address with a port that no other test gets, where one broker can follow another."""
    return f"127.0.0.1:{own_port()}"


@pytest.fixture
def broker():
    """A broker at an address of its own."""
    with rbmq.Broker(own_addr()) as broker:
        yield broker


@pytest.fixture
def joined(broker):
    """A function that opens a topic with a subscriber that has its place: (writer, subscriber)."""
    opened = []

    def join(topic="t", *, topic_options=None, **subscriber_options):
        publisher = rbmq.Publisher(broker.addr)
        writer = publisher.topic(topic, **(topic_options or {}))
        subscriber = rbmq.Subscriber(broker.addr, **subscriber_options)
        opened.extend([subscriber, publisher])
        subscriber.subscribe(topic)
        writer.wait_subscribers(1, WAIT)
        return writer, subscriber

    yield join
    for client in opened:
        client.close(1.0)


class Ends:
    """A writer and a reader in one process, over a connection."""

    def __init__(self, config=None, **buffer_options):
        self.context = Context(config)
        self.out = ROut(self.context)
        self.buffer = self.out.create_buffer(7, 1 << 20, **buffer_options)
        self.listener = Listener(self.context, "127.0.0.1:0")
        self.listener.set_conn_cb(self.out.add_conn)
        self.conn = Conn(self.context, self.listener.local_addr, b"subscriber")
        self.input = RIn(self.conn)

    def subscribe(self, **options):
        subscription = self.input.subscribe(7, 1 << 20, **options)
        event = self.input.recv(WAIT)
        assert event.kind == "Subscribed", event
        return subscription


@pytest.fixture
def ends():
    made = []

    def make(config=None, **options):
        made.append(Ends(config, **options))
        return made[-1]

    yield make
    for ends in made:
        ends.listener.unset_conn_cb()
        ends.listener.close()
        ends.context.shutdown(0)
