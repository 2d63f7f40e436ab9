"""Callbacks by one thread for many objects."""

import signal
import threading
import time

import pytest
from conftest import WAIT

import rocketbufs
from rocketbufs import Dispatcher, cmq, rbmq


def until(condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def mask():
    """The signals that this thread blocks."""
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_subscribers_publishers_and_queues_share_a_thread(joined, broker):
    writer, subscriber = joined()
    publisher = rbmq.Publisher(broker.addr)
    batches, messages, events, threads = [], [], [], set()
    with Dispatcher() as dispatcher, cmq.new_rq("127.0.0.1:0") as queue:

        def on_batch(batch):
            threads.add(threading.current_thread())
            with batch:
                batches.extend(batch.to_list())

        dispatcher.add(subscriber, on_batch)
        dispatcher.add(queue, messages.append)
        dispatcher.add(publisher, events.append)
        for n in range(1000):
            writer.publish(b"%d" % n)
        with cmq.new_rq("127.0.0.1:0") as sender:
            sender.cw_push(queue.local_addr, b"x")
        topic = publisher.topic("t")
        until(lambda: len(batches) == 1000 and messages and events)
        assert batches == [b"%d" % n for n in range(1000)] and messages[0][0] == b"x"
        assert events[0].kind == "Subscribers" and len(threads) == 1
        topic.close()
        with pytest.raises(ValueError, match="already"):
            dispatcher.add(queue, print)
        dispatcher.remove(queue)
        dispatcher.remove(queue)
        dispatcher.add(queue, messages.append)


def test_the_thread_blocks_signals(joined):
    writer, subscriber = joined()
    before, masks = mask(), []
    with Dispatcher() as dispatcher:
        assert mask() == before
        dispatcher.add(subscriber, lambda batch: (batch.release(), masks.append(mask())))
        writer.publish(b"x")
        until(lambda: masks)
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGRTMIN} <= masks[0]
    assert not {signal.SIGSEGV, signal.SIGBUS, signal.SIGPROF} & masks[0]


def test_no_callback_after_remove(joined):
    writer, subscriber = joined()
    seen = []
    with Dispatcher() as dispatcher:
        dispatcher.add(subscriber, lambda batch: (time.sleep(0.01), batch.release(), seen.append(1)))
        for _ in range(20):
            writer.publish(b"x")
            time.sleep(0.003)
        dispatcher.remove(subscriber)
        count = len(seen)
        writer.publish(b"y")
        time.sleep(0.05)
        assert len(seen) == count


def test_errors_go_to_the_hook_or_the_callback(broker, monkeypatch):
    reports, lost = [], []
    monkeypatch.setattr(threading, "excepthook", lambda report: reports.append(report.exc_type))
    writer = rbmq.Publisher(broker.addr).topic("t")
    subscriber = rbmq.Subscriber(broker.addr, slow=rbmq.SlowPolicy.drop(200_000))
    subscriber.subscribe("t")
    writer.wait_subscribers(1, WAIT)
    for _ in range(100):
        writer.publish(bytes(100_000), WAIT)
    writer.flush(WAIT)

    def fails(batch):
        batch.release()
        raise ZeroDivisionError

    with Dispatcher() as dispatcher:
        dispatcher.add(subscriber, fails, on_error=lost.append)
        until(lambda: lost)
        # Perhaps all was dropped.
        writer.publish(b"one more")
        until(lambda: reports)
        assert lost[0].kind == "Lost" and reports[0] is ZeroDivisionError
        # A closed object leaves, and the others go on.
        subscriber.close()
        other = rbmq.Subscriber(broker.addr)
        other.subscribe("u")
        seen = []
        dispatcher.add(other, seen.append)
        topic = rbmq.Publisher(broker.addr).topic("u")
        topic.wait_subscribers(1, WAIT)
        topic.publish(b"x")
        until(lambda: seen)
        seen[0].release()


def test_a_callback_may_close_the_dispatcher(joined):
    writer, subscriber = joined()
    dispatcher = Dispatcher()
    dispatcher.add(subscriber, lambda batch: (batch.release(), dispatcher.remove(subscriber), dispatcher.close()))
    writer.publish(b"x")
    until(lambda: not dispatcher._thread.is_alive())
    dispatcher.close()
    with pytest.raises(rocketbufs.Closed):
        dispatcher.add(subscriber, print)
    with pytest.raises(TypeError, match="no descriptor"):
        dispatcher.add(writer, print)
