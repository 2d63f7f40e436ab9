"""redis-py with a gateway: RESP2 and RESP3, with and without asyncio. The argument is the port."""

import asyncio
import sys

import redis
import redis.asyncio

PORT = int(sys.argv[1])


def subscribe_and_publish(protocol):
    client = redis.Redis(port=PORT, protocol=protocol)
    assert client.ping()
    assert client.info()["loading"] == 0
    assert client.dbsize() == 0
    assert client.pubsub_numpat() == 0
    with client.pubsub() as pubsub:
        pubsub.subscribe("foo", "bar")
        pubsub.psubscribe("f*")
        kinds = [pubsub.get_message(timeout=60) for _ in range(3)]
        assert [kind["type"] for kind in kinds] == ["subscribe", "subscribe", "psubscribe"], kinds
        assert kinds[-1]["data"] == 3
        assert client.pubsub_channels() in ([b"bar", b"foo"], [b"foo", b"bar"])
        assert client.pubsub_numsub("foo", "x") == [(b"foo", 1), (b"x", 0)]
        assert client.publish("foo", b"\x00\xff") == 2
        got = [pubsub.get_message(timeout=60) for _ in range(2)]
        assert [(one["type"], one["pattern"], one["channel"], one["data"]) for one in got] == [
            ("message", None, b"foo", b"\x00\xff"),
            ("pmessage", b"f*", b"foo", b"\x00\xff"),
        ], got
        pubsub.ping("hello")
        assert pubsub.get_message(timeout=60)["data"] == b"hello"
        # The default of pipelines is a transaction.
        with client.pipeline() as pipeline:
            for number in range(100):
                pipeline.publish("bar", number)
            assert pipeline.execute() == [1] * 100
        assert [int(pubsub.get_message(timeout=60)["data"]) for _ in range(100)] == list(range(100))
        pubsub.unsubscribe()
        pubsub.punsubscribe()
    try:
        client.get("foo")
        raise AssertionError("there is no store")
    except redis.ResponseError as error:
        assert "key-value store" in str(error), error


async def subscribe_and_publish_async(protocol):
    client = redis.asyncio.Redis(port=PORT, protocol=protocol)
    async with client.pubsub() as pubsub:
        await pubsub.subscribe("async")
        assert (await pubsub.get_message(timeout=60))["type"] == "subscribe"
        assert await client.publish("async", "hello") == 1
        assert (await pubsub.get_message(timeout=60))["data"] == b"hello"
    await client.aclose()


for version in (2, 3):
    subscribe_and_publish(version)
    asyncio.run(subscribe_and_publish_async(version))
