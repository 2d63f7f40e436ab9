"""Workers of groups: each message goes to one of them, until it is acknowledged."""

import asyncio
import gc
import threading

import pytest
from conftest import WAIT, own_addr

import rocketbufs
from rocketbufs import aio, rbmq

# No time passes because the machine is slow.
HOUR = 3600.0


@pytest.fixture
def kept(tmp_path):
    """A broker that keeps the topics below k/."""
    config = tmp_path / "rbmq.toml"
    config.write_text(f"[broker]\nkeep_dir = '{tmp_path}/kept'\n[[broker.topics]]\npattern = 'k/#'\nkeep = true\n")
    with rbmq.Broker(own_addr(), config_file=config) as broker:
        yield broker


def publish(broker, topic, *messages):
    """The messages are in the broker's file. The key of each is its first byte."""
    with rbmq.Publisher(broker.addr) as publisher, publisher.topic(topic, ring_bytes=1 << 16) as writer:
        for message in messages:
            writer.publish(message, WAIT, key=message[:1])
        if messages:
            writer.confirm(None, "stored", WAIT)


def take(worker):
    message = worker.recv(WAIT)
    assert message is not None
    return message


def group_of(broker, topic="k/a"):
    with rbmq.Groups(broker.addr) as groups:
        (row,) = [row for row in groups.list() if row["topic"] == topic]
    return row


def test_the_words_of_a_worker(kept):
    publish(kept, "k/dead", b"x")
    publish(kept, "k/a", b"a", b"b")
    with rbmq.GroupWorker(kept.addr, "k/a", "g", ack_time=HOUR, max_attempts=2, dead_letters="k/dead", name="p") as worker:
        assert worker.ack_time == HOUR and worker.is_joined and not worker.closed
        assert repr(worker) == f"GroupWorker('{kept.addr}', 'k/a', 'g')"
        message = take(worker)
        assert bytes(message) == message.data == message.view == memoryview(message) == b"a" and len(message) == 1
        assert (message.attempt, message.key, message.properties) == (1, b"a", []) and message.position >= 0
        assert message.attributes == {"key": b"a"} and message.settled is False
        assert repr(message) == f"GroupMessage(position={message.position}, attempt=1, 1 bytes)"
        message.extend(2 * HOUR)
        message.ack()
        assert message.settled and message.data == b"a"
        for word in (message.ack, message.nack, message.release, lambda: message.extend(1)):
            with pytest.raises(rocketbufs.GroupError, match="before") as error:
                word()
            assert error.value.kind == "Settled"
        # Given back it is the first attempt again; failed twice it is a dead letter.
        message = take(worker)
        assert (message.data, message.attempt) == (b"b", 1)
        message.release()
        message = take(worker)
        assert (message.data, message.attempt) == (b"b", 1)
        for wrong in (-1, float("nan")):
            with pytest.raises(ValueError):
                message.nack(wrong)
        message.nack(0.01)
        message = take(worker)
        assert (message.data, message.attempt) == (b"b", 2)
        message.nack()
        worker.flush(WAIT)
        assert worker.recv(0) is None and worker.recv(0.01) is None
        with rbmq.GroupWorker(kept.addr, "k/dead", "g") as dead:
            with take(dead) as first:
                assert first.data == b"x"
            with take(dead) as letter:
                says = {"rbmq-topic": "k/a", "rbmq-group": "g", "rbmq-position": str(message.position), "rbmq-attempts": "2"}
                assert letter.data == b"b" and letter.key == b"b" and dict(letter.properties) == says
            dead.flush(WAIT)
    assert worker.closed
    with pytest.raises(rocketbufs.Closed):
        worker.recv(0)
    row = group_of(kept)
    assert (row["acked"], row["dead"], row["pending"], row["lag_bytes"], row["unread_bytes"]) == (1, 1, 0, 0, 0)


def test_what_a_worker_had_comes_again(kept):
    """As a failed attempt what it had received, and only that."""
    publish(kept, "k/a", b"a", b"b", b"c")
    worker = rbmq.GroupWorker(kept.addr, "k/a", "g", ack_time=HOUR)
    take(worker).ack()
    held = take(worker)
    worker.close()
    worker.close()
    with rbmq.GroupWorker(kept.addr, "k/a", "g") as following:
        assert following.ack_time == HOUR
        again = [take(following), take(following)]
        assert {message.data: message.attempt for message in again} == {b"b": 2, b"c": 1}
        # The message of a closed worker is still there; its word has no way to the broker.
        assert held.data == b"b" and not held.settled
        del held
        for message in again:
            message.ack()
        following.flush(WAIT)
    assert group_of(kept)["acked"] == 3


def test_the_end_of_a_block_acknowledges(kept):
    publish(kept, "k/a", b"a", b"b")
    with rbmq.GroupWorker(kept.addr, "k/a", "g", ack_time=HOUR) as worker:
        with take(worker) as message:
            assert message.data == b"a" and not message.settled
        assert message.settled
        # A word of the program stays the only one.
        with take(worker) as message:
            message.nack(HOUR)
        worker.flush(WAIT)
    row = group_of(kept)
    assert (row["acked"], row["failed"], row["pending"]) == (1, 1, 1)


def test_a_message_comes_again_after_an_exception(kept):
    """When the time of the group is over."""
    publish(kept, "k/a", b"a")
    with rbmq.GroupWorker(kept.addr, "k/a", "g", ack_time=0.05, credit=1) as worker:
        with pytest.raises(ZeroDivisionError):
            with take(worker) as message:
                1 / 0
        assert message.settled
        with take(worker) as message:
            assert message.attempt >= 2
        worker.flush(WAIT)
    assert group_of(kept)["acked"] == 1


def test_a_message_that_is_forgotten_comes_again(kept):
    publish(kept, "k/a", b"a")
    with rbmq.GroupWorker(kept.addr, "k/a", "g", ack_time=0.05, credit=1) as worker:
        attempts = 0
        for message in worker:
            assert message.attempt > attempts
            attempts = message.attempt
            if attempts >= 3:
                message.ack()
                break
            del message
            gc.collect()
        worker.flush(WAIT)
    assert group_of(kept)["acked"] == 1


def test_keys_are_in_order(kept):
    publish(kept, "k/a", b"a1", b"a2", b"b1")
    with rbmq.GroupWorker(kept.addr, "k/a", "g", ack_time=HOUR, ordered=True) as worker:
        first, other = take(worker), take(worker)
        assert (first.data, other.data) == (b"a1", b"b1")
        other.ack()
        # The broker has the word, and still nothing more of the key a comes.
        worker.flush(WAIT)
        assert worker.recv(0) is None
        first.nack()
        for data, attempt in ((b"a1", 2), (b"a2", 1)):
            with take(worker) as message:
                assert (message.data, message.attempt) == (data, attempt)


def test_each_message_goes_to_one_worker(kept):
    messages = [b"%d" % n for n in range(200)]
    publish(kept, "k/a", *messages)
    lock, got = threading.Lock(), []

    def work():
        with rbmq.GroupWorker(kept.addr, "k/a", "g", ack_time=HOUR, credit=3) as worker:
            for message in worker:
                with message, lock:
                    got.append(message.data)
                    if len(got) >= len(messages):
                        done.set()
                if done.is_set():
                    return

    done = threading.Event()
    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert done.wait(WAIT)
    # The others wait for a message: one for each ends them.
    publish(kept, "k/a", b"end", b"end", b"end")
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert sorted(message for message in got if message != b"end") == sorted(messages)


def test_closing_ends_the_wait_of_another_thread(kept):
    publish(kept, "k/a", b"a")
    worker = rbmq.GroupWorker(kept.addr, "k/a", "g", ack_time=HOUR)
    take(worker).ack()
    raised = []

    def wait():
        try:
            worker.recv()
        except rocketbufs.Closed as error:
            raised.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    worker.close()
    thread.join(WAIT)
    assert len(raised) == 1


def test_a_worker_goes_on_at_the_next_broker(tmp_path):
    config, addr = tmp_path / "rbmq.toml", own_addr()
    config.write_text(f"[broker]\nkeep_dir = '{tmp_path}/kept'\n[[broker.topics]]\npattern = 'k/#'\nkeep = true\n")
    with rbmq.Broker(addr, config_file=config) as broker:
        publish(broker, "k/a", b"a", b"b")
        worker = rbmq.GroupWorker(addr, "k/a", "g", ack_time=HOUR, credit=1)
        take(worker).ack()
        worker.flush(WAIT)
        held = take(worker)
    # Told to the next broker, as the flush says there.
    held.ack()
    with pytest.raises(rocketbufs.TimedOut) as late:
        worker.flush(0.01)
    assert isinstance(late.value, rocketbufs.GroupError)
    with rbmq.Broker(addr, config_file=config) as broker:
        worker.flush(WAIT)
        assert worker.is_joined and group_of(broker)["lag_bytes"] == 0
        worker.close()


def test_those_who_look_after_groups(kept):
    publish(kept, "k/a", b"a", b"b")
    with rbmq.Groups(kept.addr, name="admin") as groups:
        assert groups.list() == []
        worker = rbmq.GroupWorker(kept.addr, "k/a", "g", ack_time=HOUR, credit=1)
        before = take(worker)
        row = groups.list()[0]
        assert (row["topic"], row["group"], row["workers"], row["held"], row["ack_ms"]) == ("k/a", "g", 1, 1, 3_600_000)
        groups.reset("k/a", "g", "oldest")
        before.ack()
        with pytest.raises(rocketbufs.GroupError, match="1 acknowledgements do not count") as error:
            worker.flush(WAIT)
        assert error.value.kind == "InVain"
        worker.flush(WAIT)
        message = take(worker)
        assert (message.data, message.attempt) == (b"a", 1)
        worker.close()
        for start in ("newest", 0):
            groups.reset("k/a", "g", start)
        for wrong in ("middle", -1, None):
            with pytest.raises(ValueError, match="is no start of a group"):
                groups.reset("k/a", "g", wrong)
        groups.delete("k/a", "g")
        with pytest.raises(rocketbufs.GroupError) as error:
            groups.delete("k/a", "g")
        assert error.value.kind == "Refused"


def test_what_is_refused(kept):
    publish(kept, "k/a", b"a")
    for topic, group, kind in (("k/a", "a group", "Name"), ("k/#", "g", "Topic"), ("k/none", "g", "Refused"), ("other", "g", "Refused")):
        with pytest.raises(rocketbufs.GroupError) as error:
            rbmq.GroupWorker(kept.addr, topic, group)
        assert error.value.kind == kind, topic
    with pytest.raises(rocketbufs.ConnectError):
        rbmq.GroupWorker("127.0.0.1:1", "k/a", "g")
    for wrong in ({"max_attempts": 1}, {"dead_letters": "k/a"}, {"max_attempts": 0, "dead_letters": "k/a"}, {"ack_time": -1.0}, {"user": "u"}):
        with pytest.raises(ValueError):
            rbmq.GroupWorker(kept.addr, "k/a", "g", **wrong)
    worker = rbmq.GroupWorker(kept.addr, "k/a", "g", context=rocketbufs.Context())
    take(worker).ack()
    worker.flush(WAIT)
    with rbmq.Groups(kept.addr) as groups:
        groups.delete("k/a", "g")
    for _ in range(2):
        with pytest.raises(rocketbufs.GroupError) as error:
            worker.recv(WAIT)
        assert error.value.kind == "Refused"
    worker.close()


def run(main):
    asyncio.run(asyncio.wait_for(main(), WAIT))


def test_tasks(kept):
    """Each message goes to one task, and what came for a cancelled one goes to the next."""
    messages = [b"%d" % n for n in range(600)]

    async def main():
        got = []
        async with await aio.GroupWorker.join(kept.addr, "k/a", "g", ack_time=HOUR) as worker:
            assert worker.is_joined and worker.ack_time == HOUR
            # The group is empty: the tasks wait, and two of three are cancelled.
            waiting = [asyncio.ensure_future(worker.recv()) for _ in range(3)]
            await asyncio.sleep(0)
            for task in waiting[:2]:
                task.cancel()
            await asyncio.get_running_loop().run_in_executor(None, publish, kept, "k/a", *messages)
            with await waiting[2] as message:
                got.append(message.data)
            async for message in worker:
                with message:
                    got.append(message.data)
                if len(got) == len(messages):
                    break
            await worker.flush(WAIT)
            assert sorted(got) == sorted(messages) and all(task.cancelled() for task in waiting[:2])
        with pytest.raises(rocketbufs.Closed):
            await worker.recv()

    publish(kept, "k/a")
    run(main)
    assert group_of(kept)["acked"] == len(messages)


def test_closing_wakes_a_task(kept):
    """A message that came for a cancelled task goes back, which is no failed attempt."""

    async def main():
        worker = await aio.GroupWorker.join(kept.addr, "k/a", "g", ack_time=HOUR)
        waiting = asyncio.ensure_future(worker.recv())
        cancelled = asyncio.ensure_future(worker.recv())
        await asyncio.sleep(0)
        cancelled.cancel()
        await worker.close()
        with pytest.raises(rocketbufs.Closed):
            await waiting
        await worker.close()

        worker = await aio.GroupWorker.join(kept.addr, "k/a", "g")
        gone = asyncio.ensure_future(worker.recv())
        while worker._coming is None:
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.get_running_loop().run_in_executor(None, publish, kept, "k/a", b"a")
        await asyncio.wait([gone])
        await worker.close()
        async with await aio.GroupWorker.join(kept.addr, "k/a", "g") as worker:
            message = await worker.recv()
            assert (message.data, message.attempt) == (b"a", 1)
            message.ack()

    publish(kept, "k/a")
    run(main)


def test_a_task_sees_that_a_worker_has_ended(kept):
    async def main():
        worker = await aio.GroupWorker.join(kept.addr, "k/a", "g")
        waiting = asyncio.ensure_future(worker.recv())
        with rbmq.Groups(kept.addr) as groups:
            groups.delete("k/a", "g")
        with pytest.raises(rocketbufs.GroupError) as error:
            await waiting
        assert error.value.kind == "Refused"
        await worker.close()

    publish(kept, "k/a")
    run(main)
