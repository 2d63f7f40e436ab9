"""The forms for asyncio."""

import asyncio
import threading

import pytest
from conftest import WAIT

import rocketbufs
from rocketbufs import aio, cmq, rbmq


def run(main):
    return asyncio.run(asyncio.wait_for(main, WAIT))


async def joined(broker, topic="t", **options):
    publisher = await aio.Publisher.connect(broker.addr)
    subscriber = await aio.Subscriber.connect(broker.addr, **options)
    writer = await publisher.topic(topic)
    subscriber.subscribe(topic)
    await writer.wait_subscribers(1)
    return publisher, writer, subscriber


def test_messages_arrive_in_order(broker):
    async def main():
        publisher, writer, subscriber = await joined(broker, until_ended=True)

        async def publish():
            for n in range(2000):
                await writer.publish(b"%d" % n)
            await writer.close()

        publishing = asyncio.create_task(publish())
        received = [int(bytes(message)) async for message in subscriber]
        await publishing
        assert received == list(range(2000))
        assert await subscriber.recv() is None
        await subscriber.close()
        await publisher.close()

    run(main())


def test_each_try_of_many_messages_looks_at_a_part_of_them():
    class Full:
        async def _changed(self, _name):
            pass

    class NoRoom(rocketbufs.PublishError):
        kind = "TimedOut"
        published = 1000

    looked_at, published = 0, []

    def publish(messages, _timeout):
        nonlocal looked_at
        looked_at += len(messages)
        published.extend(messages[:1000])
        if len(messages) > 1000:
            raise NoRoom
        return len(published)

    writer = aio._Writer(None, Full(), "t")
    assert run(writer._trying_many(publish, range(100_000))) == 100_000
    assert published == list(range(100_000)) and looked_at < 500_000
    assert run(writer._trying_many(publish, [])) == 100_000


def test_a_space_is_published_to(tmp_path):
    (tmp_path / "rbmq.toml").write_text("[[broker.topics]]\npattern = 'd/#'\nspace = true\n")

    async def main(broker):
        async with await aio.Publisher.connect(broker.addr) as publisher, await aio.Subscriber.connect(broker.addr) as subscriber:
            async with await publisher.space("d/#", ring_bytes=65536) as space:
                subscriber.subscribe("d/+")
                await space.wait_subscribers(1)
                assert space.publish_to_nowait("d/x", b"first") < await space.publish_to("d/y", b"second", reply_to="d/z")
                messages = [(f"d/{n % 5}", n.to_bytes(4) * 2000) for n in range(2000)]
                publishing = asyncio.create_task(space.publish_many(messages))
                assert (await subscriber.recv()).topic == "d/x"
                second = await subscriber.recv()
                assert (second.topic, second.reply_to) == ("d/y", "d/z")
                for topic, data in messages:
                    message = await subscriber.recv()
                    assert (message.topic, message) == (topic, data)
                assert await publishing == space.position
                assert (await space.confirm()).subscribers == 1
                await space.flush(WAIT)

    with rbmq.Broker("127.0.0.1:0", config_file=tmp_path / "rbmq.toml") as broker:
        run(main(broker))


def test_publishing_waits_for_room_and_the_loop_runs(broker):
    async def main():
        publisher, writer, subscriber = await joined(broker)
        published = []

        async def publish():
            for n in range(100):
                published.append(await writer.publish(bytes([n]) * 100_000))

        publishing = asyncio.create_task(publish())
        while not published:
            await asyncio.sleep(0.01)
        with pytest.raises(rocketbufs.TimedOut):
            while True:
                writer.publish_nowait(bytes(200_000))
                await asyncio.sleep(0.01)
        assert len(published) < 100, "the ring is full, and the loop runs"
        for n in range(100):
            while len(message := await subscriber.recv()) == 200_000:
                pass
            assert message[0] == n and len(message) == 100_000
        await publishing
        assert published[-1] == writer.position
        await subscriber.close()
        await publisher.close()

    run(main())


def test_batches_segments_and_many(broker):
    async def main():
        publisher, writer, subscriber = await joined(broker)
        messages = [b"%d" % n * 100 for n in range(20_000)]
        publishing = asyncio.create_task(writer.publish_many(messages))
        received = []
        async for batch in subscriber.batches():
            received += batch.to_list()
            if len(received) == len(messages):
                break
        assert received == messages
        await publishing
        with await writer.segment(5) as segment:
            segment.view[:] = b"place"
        event = await subscriber.next_event()
        assert isinstance(event, rbmq.Batch) and event.to_list() == [b"place"]
        await subscriber.close()
        await publisher.close()

    run(main())


def test_confirmations(broker):
    async def main():
        publisher, writer, subscriber = await joined(broker, confirm_consumed=True)
        ends = [await writer.publish(b"%d" % n) for n in range(50)]
        waiting = asyncio.gather(*(writer.confirm(end, "consumed") for end in ends))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        async for batch in subscriber.batches():
            if batch.end == ends[-1]:
                break
        batch.release()
        confirmed = await waiting
        assert [result.position >= end for result, end in zip(confirmed, ends)] == [True] * 50
        with pytest.raises(rocketbufs.ConfirmError) as error:
            await writer.confirm(writer.position + 1)
        assert error.value.kind == "NotPublished"
        await writer.flush(WAIT)
        await subscriber.close()
        await publisher.close()

    run(main())


def test_a_cancelled_receive_loses_nothing(broker):
    async def main():
        publisher, writer, subscriber = await joined(broker)
        received, sent = [], 0
        for n in range(200):
            task = asyncio.create_task(subscriber.recv())
            await asyncio.sleep(0)
            await writer.publish(b"%d" % sent)
            sent += 1
            if n % 2:
                await asyncio.sleep(0.001 * (n % 3))
            task.cancel()
            try:
                received.append(int(bytes(await task)))
            except asyncio.CancelledError:
                pass
        while len(received) < sent:
            received.append(int(bytes(await subscriber.recv())))
        assert received == list(range(sent))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(subscriber.recv(), 0.05)
        await subscriber.close()
        await publisher.close()

    run(main())


def test_a_cancelled_publish_publishes_nothing(broker):
    async def main():
        publisher, writer, subscriber = await joined(broker)
        with pytest.raises(asyncio.TimeoutError):
            while True:
                before = writer.position
                await asyncio.wait_for(writer.publish(bytes(200_000)), 0.1)
        assert writer.position == before
        await subscriber.close()
        await publisher.close()

    run(main())


def test_many_subscribers_need_no_threads_of_python(broker):
    async def main():
        publisher = await aio.Publisher.connect(broker.addr)
        writer = await publisher.topic("t")
        config = {"tcp.tcp_num_threads": 1}
        subscribers = [await aio.Subscriber.connect(broker.addr, config=config) for _ in range(20)]
        for subscriber in subscribers:
            subscriber.subscribe("t")
        await writer.wait_subscribers(20)
        tasks = [asyncio.create_task(subscriber.recv()) for subscriber in subscribers]
        await asyncio.sleep(0.05)
        threads = [thread for thread in threading.enumerate() if not thread.name.startswith("asyncio")]
        assert threads == [threading.main_thread()]
        await writer.publish(b"to all")
        assert [bytes(message) for message in await asyncio.gather(*tasks)] == [b"to all"] * 20
        for client in [*subscribers, publisher]:
            await client.close()

    run(main())


def test_close_ends_a_receive(broker):
    async def main():
        async with await aio.Subscriber.connect(broker.addr) as subscriber:
            subscriber.subscribe("t")
            task = asyncio.create_task(subscriber.recv())
            await asyncio.sleep(0.05)
            await subscriber.close()
            with pytest.raises(rocketbufs.Closed):
                await task
            with pytest.raises(rocketbufs.Closed):
                await subscriber.recv()
        publisher = await aio.Publisher.connect(broker.addr)
        writer = await publisher.topic("t")
        tasks = [asyncio.create_task(writer.wait_subscribers(1))]
        async with await aio.Subscriber.connect(broker.addr, confirm_consumed=True) as subscriber:
            subscriber.subscribe("u")
            other = await publisher.topic("u")
            await other.wait_subscribers(1)
            await other.publish(b"x")
            tasks.append(asyncio.create_task(other.confirm(level="consumed")))
            await asyncio.sleep(0.05)
            await publisher.close()
            for task in tasks:
                with pytest.raises(rocketbufs.Closed):
                    await task

    run(main())


def test_events_of_a_publisher(broker):
    async def main():
        seen = []
        publisher = await aio.Publisher.connect(broker.addr, on_event=seen.append)
        writer = await publisher.topic("t")
        subscriber = await aio.Subscriber.connect(broker.addr)
        subscriber.subscribe("t")
        await writer.wait_subscribers(1)
        # Events come by a thread of their own, maybe a moment later.
        while not any(event.kind == "Subscribers" and event.count == 1 for event in seen):
            await asyncio.sleep(0.01)
        with pytest.raises(rocketbufs.PublishError):
            await writer.publish(bytes((64 << 20) + 1))
        with pytest.raises(TypeError):
            await writer.publish("text")
        await subscriber.close()
        await publisher.close()

    run(main())


def test_an_error_of_on_event_does_not_end_the_publisher(broker):
    """`Closed` may be of another object that the program uses in its callback."""
    errors = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
        gone = await aio.Subscriber.connect(broker.addr)
        await gone.close()
        publisher = await aio.Publisher.connect(broker.addr, on_event=lambda event: gone.sync.recv(0))
        writer = await publisher.topic("t")
        subscriber = await aio.Subscriber.connect(broker.addr)
        subscriber.subscribe("t")
        await writer.wait_subscribers(1)
        while not errors:
            await asyncio.sleep(0.01)
        assert (await writer.confirm(await writer.publish(b"x"))).subscribers == 1
        await subscriber.close()
        await publisher.close()

    run(main())
    assert all(isinstance(error, rocketbufs.Closed) for error in errors)


def test_queues():
    async def main():
        with cmq.new_rq("127.0.0.1:0") as receiver, cmq.new_rq("127.0.0.1:0", preset="immediate") as sender:
            queue = aio.Queue(receiver)
            task = asyncio.create_task(queue.pop())
            await asyncio.sleep(0.05)
            sender.cw_push(receiver.local_addr, b"one")
            message, key = await task
            assert message == b"one" and key == cmq.Key(*sender.local_addr)
            for n in range(100):
                sender.cw_push(receiver.local_addr, b"%d" % n)
            received = []
            async for message, _ in queue:
                received.append(message)
                if len(received) == 100:
                    break
            assert received == [b"%d" % n for n in range(100)]

    run(main())


def test_the_framework():
    async def main():
        with rocketbufs.Context() as context:
            out = rocketbufs.ROut(context)
            buffer = out.create_buffer(7)
            with rocketbufs.Listener(context, "127.0.0.1:0") as listener:
                conn = rocketbufs.Conn.start(context, listener.local_addr)
                out.add_conn(await aio.receive(listener))
                assert (await aio.receive(conn)).kind == "Up"
                rin = rocketbufs.RIn(conn)
                rin.subscribe(7)
                assert (await aio.receive(rin)).kind == "Subscribed"
                assert (await aio.receive(out)).kind == "Subscribed"
                assert await aio.receive(rin, 0.01) is None
                buffer.append(b"hello")
                async for item in aio.iterate(rin):
                    with item:
                        assert bytes(item) == b"hello"
                    break
        with pytest.raises(TypeError, match="no descriptor"):
            await aio.receive(buffer)

    run(main())


def test_tasks_share_a_descriptor():
    """A loop has one callback for it."""

    async def main():
        with rocketbufs.Context() as context, cmq.new_rq("127.0.0.1:0") as receiver, cmq.new_rq("127.0.0.1:0") as sender:
            listener = rocketbufs.Listener(context, "127.0.0.1:0")
            for source, make in (
                (listener, lambda: rocketbufs.Conn.start(context, listener.local_addr)),
                (receiver, lambda: sender.cw_push(receiver.local_addr, b"x")),
            ):
                waiting = [asyncio.create_task(aio.receive(source)) for _ in range(5)]
                waiting.append(asyncio.create_task(anext(aio.iterate(source))))
                await asyncio.sleep(0.05)
                waiting.pop(0).cancel()
                made = [make() for _ in waiting]
                sender.flush()
                assert len([item for item in await asyncio.gather(*waiting) if item is not None]) == len(made)

    run(main())


def test_what_is_closed_below_ends_its_waits(broker):
    """By `sync`, in another thread, and while nothing comes."""

    async def main():
        subscriber, other = [await aio.Subscriber.connect(broker.addr, until_ended=n == 1) for n in range(2)]
        queue = cmq.new_rq("127.0.0.1:0")
        publisher = await aio.Publisher.connect(broker.addr)
        writer = await publisher.topic("t")
        listener = rocketbufs.Listener(rocketbufs.Context(), "127.0.0.1:0")
        subscriber.subscribe("t")
        other.subscribe("u")
        tasks = [subscriber.recv(), other.recv_batch(), aio.Queue(queue).pop(), aio.receive(listener), writer.wait_subscribers(9)]
        tasks = [asyncio.create_task(task) for task in tasks]
        await asyncio.sleep(0.05)
        for source in (subscriber.sync, other.sync, queue, listener, publisher.sync):
            await asyncio.to_thread(source.close)
        for task in tasks:
            with pytest.raises(rocketbufs.Closed):
                await task
        # The loop watches none of them: it would turn for ever.
        assert not aio._waiting[asyncio.get_running_loop()] and not publisher._descriptors
        for client in (subscriber, other, publisher):
            await client.close()

    run(main())


def test_a_cancelled_confirmation_is_forgotten(broker):
    async def main():
        publisher, writer, subscriber = await joined(broker, confirm_consumed=True)
        end = await writer.publish(b"x")
        tasks = [asyncio.create_task(writer.confirm(end, "consumed")) for _ in range(50)]
        await asyncio.sleep(0.05)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks[1:], return_exceptions=True)
        assert len(publisher._pending) == 1
        (await subscriber.recv_batch()).release()
        assert (await tasks[0]).position >= end
        assert not publisher._pending
        await publisher.close()
        with pytest.raises(rocketbufs.Error):
            await writer.confirm(await writer.publish(b"y"), "consumed")
        await subscriber.close()

    run(main())
