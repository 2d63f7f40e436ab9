"""redis-py with streams of a gateway: RESP2 and RESP3, with and without asyncio. The argument is the port; `events/#` is kept."""

import asyncio
import sys
import threading

import redis
import redis.asyncio

PORT = int(sys.argv[1])


def entries(reply):
    """What XREAD returns, of one stream: its form is another one in RESP3."""
    (_, found) = next(iter(reply.items())) if isinstance(reply, dict) else reply[0]
    return found[0] if len(found) == 1 and isinstance(found[0], list) else found


def streams(protocol):
    client = redis.Redis(port=PORT, protocol=protocol)
    key = f"events/python/{protocol}"
    first = client.xadd(key, {"n": 0, "bytes": b"\x00\xff"})
    ids = [first] + [client.xadd(key, {"n": n}, maxlen=1000, approximate=True) for n in range(1, 20)]
    assert ids == sorted(ids, key=lambda one: [int(part) for part in one.split(b"-")]), ids
    assert client.xlen(key) == 20 and client.exists(key) == 1 and client.type(key) == b"stream"
    assert client.xrange(key, first, first) == [(first, {b"n": b"0", b"bytes": b"\x00\xff"})]
    assert [one for one, _ in client.xrange(key, count=3)] == ids[:3]
    assert [one for one, _ in client.xrevrange(key, count=3)] == ids[:-4:-1]
    assert [one for one, _ in client.xrange(key, "(" + ids[3].decode(), ids[5])] == ids[4:6]
    assert [one for one, _ in entries(client.xread({key: ids[16]}, count=2))] == ids[17:19]
    facts = client.xinfo_stream(key)
    assert facts["length"] == 20 and facts["last-generated-id"] == ids[-1], facts
    assert not client.xread({key: "$"}, block=10)
    with client.pipeline() as pipeline:
        for n in range(50):
            pipeline.xadd(key, {"n": n})
        assert len(set(pipeline.execute())) == 50
    writer = threading.Timer(0.05, lambda: redis.Redis(port=PORT).xadd(key, {"late": 1}))
    writer.start()
    assert [fields for _, fields in entries(client.xread({key: "$"}, block=60000))] == [{b"late": b"1"}]
    writer.join()
    for call in (lambda: client.xadd(key, {"a": 1}, id="1-1"), lambda: client.xadd("elsewhere", {"a": 1}), lambda: client.xdel(key, first)):
        try:
            call()
            raise AssertionError("it is refused")
        except redis.ResponseError:
            pass


def groups(protocol):
    client = redis.Redis(port=PORT, protocol=protocol)
    key = f"events/groups/{protocol}"
    assert client.xgroup_create(key, "my group", "$", mkstream=True)
    try:
        client.xgroup_create(key, "my group", "$", mkstream=True)
        raise AssertionError("it is there")
    except redis.ResponseError as error:
        assert str(error).startswith("BUSYGROUP"), error
    ids = [client.xadd(key, {"n": n}) for n in range(6)]
    got = entries(client.xreadgroup("my group", "anna", {key: ">"}, count=4))
    assert [one for one, _ in got] == ids[:4] and got[0][1] == {b"n": b"0"}, got
    assert client.xack(key, "my group", ids[0], ids[1]) == 2
    assert [one for one, _ in entries(client.xreadgroup("my group", "anna", {key: "0"}))] == ids[2:4]
    assert client.xpending(key, "my group")["pending"] == 2
    (row, _) = client.xpending_range(key, "my group", "-", "+", 10)
    assert (row["message_id"], row["consumer"], row["times_delivered"]) == (ids[2], b"anna", 2), row
    assert [one for one, _ in client.xclaim(key, "my group", "ben", 0, [ids[2]])] == ids[2:3]
    (cursor, claimed, deleted) = client.xautoclaim(key, "my group", "ben", 0)
    assert (cursor, [one for one, _ in claimed], deleted) == (b"0-0", ids[2:4], []), cursor
    writer = threading.Timer(0.05, lambda: redis.Redis(port=PORT).xadd(key, {"late": 1}))
    assert len(entries(client.xreadgroup("my group", "ben", {key: ">"}, block=60000))) == 2
    writer.start()
    late = entries(client.xreadgroup("my group", "ben", {key: ">"}, block=60000))
    assert [fields for _, fields in late] == [{b"late": b"1"}], late
    writer.join()
    (facts,) = client.xinfo_groups(key)
    assert (facts["name"], facts["consumers"], facts["pending"], facts["lag"]) == (b"my group", 2, 5, 0), facts
    assert {one["name"]: one["pending"] for one in client.xinfo_consumers(key, "my group")} == {b"anna": 0, b"ben": 5}
    assert client.xgroup_delconsumer(key, "my group", "ben") == 5 and client.xgroup_destroy(key, "my group") == 1
    try:
        client.xreadgroup("my group", "anna", {key: ">"})
        raise AssertionError("it is gone")
    except redis.ResponseError as error:
        assert str(error).startswith("NOGROUP"), error


async def streams_async(protocol):
    client = redis.asyncio.Redis(port=PORT, protocol=protocol)
    key = f"events/async/{protocol}"
    ids = await asyncio.gather(*(client.xadd(key, {"n": n}) for n in range(20)))
    assert len(set(ids)) == 20 and await client.xlen(key) == 20
    await client.aclose()


for version in (2, 3):
    streams(version)
    groups(version)
    asyncio.run(streams_async(version))
