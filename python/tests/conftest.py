"""What the tests share: a broker in this process, and clients of it."""

import pytest

from rocketbufs import rbmq

WAIT = 20.0


@pytest.fixture
def broker():
    """A broker on a free port of this machine."""
    with rbmq.Broker("127.0.0.1:0") as broker:
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
