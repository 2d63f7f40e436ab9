"""Objects that threads share: each call is one of all, and none hangs, whether the interpreter has a lock or not."""

import collections
import threading

import pytest
from conftest import WAIT

import rocketbufs
from rocketbufs import cmq


def together(count, work):
    """Runs `work(n)` on threads that begin at once; the results. An exception of one is raised."""
    barrier, results = threading.Barrier(count), [None] * count

    def run(n):
        barrier.wait(WAIT)
        try:
            results[n] = work(n)
        except BaseException as error:
            results[n] = error

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def test_threads_share_a_batch(joined):
    writer, subscriber = joined()
    messages = [b"%04d" % n for n in range(500)]
    for _ in range(10):
        writer.publish_many(messages)
        seen = 0
        while seen < len(messages):
            batch = subscriber.recv_batch(WAIT)
            expected = messages[seen : seen + len(batch)]
            seen += len(expected)

            def use(n):
                try:
                    for _ in range(20):
                        assert batch.to_list() == expected
                        assert [bytes(message) for message in batch] == expected
                        with memoryview(batch) as view:
                            assert len(view) == batch.nbytes
                        if n == 0 and _ == 10:
                            batch.release()
                except (rocketbufs.Released, BufferError):
                    pass

            together(4, use)
            batch.release()
            assert batch.released


def test_threads_share_an_iterator(joined):
    writer, subscriber = joined()
    messages = [b"%04d" % n for n in range(2000)]
    writer.publish_many(messages)
    found, batches = [], []
    while len(found) < len(messages):
        batches.append(subscriber.recv_batch(WAIT))
        iterator = iter(batches[-1])
        for part in together(4, lambda n: [bytes(message) for message in iterator]):
            found += part
    assert sorted(found) == messages


def test_threads_share_a_topic_and_a_subscriber(joined):
    writer, subscriber = joined()
    per_thread, count = 500, 4

    def work(n):
        if n < count:
            for m in range(per_thread):
                writer.publish(bytes([n]) + m.to_bytes(2, "little"), WAIT)
            return []
        received = []
        while len(received) < per_thread:
            received.append(subscriber.recv_bytes(WAIT))
        return received

    received = [message for part in together(2 * count, work) for message in part]
    expected = [bytes([n]) + m.to_bytes(2, "little") for n in range(count) for m in range(per_thread)]
    assert collections.Counter(received) == collections.Counter(expected)


def test_threads_share_a_segment(ends):
    e = ends()
    e.subscribe()
    writer = e.buffer.writer()
    for _ in range(50):
        segment = writer.segment(64)

        def use(n):
            try:
                if n == 0:
                    segment.deliver()
                else:
                    with memoryview(segment) as view:
                        view[n] = n
            except (rocketbufs.Released, BufferError):
                pass

        together(4, use)
        if not segment.released:
            segment.deliver()
        with e.input.recv(WAIT) as view:
            assert len(view) == 64


def test_threads_share_a_queue():
    with cmq.new_rq("127.0.0.1:0") as receiver, cmq.new_rq("127.0.0.1:0") as sender:

        def work(n):
            if n < 2:
                for m in range(500):
                    sender.cw_push(receiver.local_addr, bytes([n]) + m.to_bytes(2, "little"))
                sender.flush()
                return []
            found = []
            while len(found) < 250:
                found.append(receiver.pop(WAIT)[0])
            return found

        received = [message for part in together(6, work) for message in part]
        assert len(set(received)) == 1000


def test_closing_ends_the_calls_of_other_threads(joined):
    _, subscriber = joined()

    def work(n):
        if n == 0:
            subscriber.close(1)
            return
        with pytest.raises(rocketbufs.Closed):
            while True:
                subscriber.recv(WAIT)

    together(4, work)
