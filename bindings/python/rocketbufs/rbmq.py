"""RBMQ: publish and subscribe to topics of a broker, in memory.

    from rocketbufs import rbmq

    with rbmq.Publisher("127.0.0.1:7411") as publisher, publisher.topic("news") as news:
        news.publish(b"hello")

    with rbmq.Subscriber("127.0.0.1:7411") as subscriber:
        subscriber.subscribe("news")
        for message in subscriber:
            print(message.topic, bytes(message))

    with rbmq.GroupWorker("127.0.0.1:7411", "orders", "billing") as worker:
        for message in worker:
            with message:                                   # acknowledges it
                print(message.attempt, bytes(message))
"""

from ._rocketbufs import (
    Batch,
    Broker,
    Confirmation,
    Confirmed,
    DeferredBatch,
    GroupMessage,
    GroupWorker,
    Groups,
    Message,
    MessageSegment,
    Observer,
    Publisher,
    SlowPolicy,
    SpaceWriter,
    Subscriber,
    TopicWriter,
)

__all__ = [
    "Batch",
    "Broker",
    "Confirmation",
    "Confirmed",
    "DeferredBatch",
    "GroupMessage",
    "GroupWorker",
    "Groups",
    "Message",
    "MessageSegment",
    "Observer",
    "Publisher",
    "SlowPolicy",
    "SpaceWriter",
    "Subscriber",
    "TopicWriter",
]
