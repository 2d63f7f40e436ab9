"""Callbacks by one thread for many objects."""

import os
import select
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


def test_the_rest_of_a_batch_comes_first(joined):
    """A message was taken from it before; nothing else comes."""
    writer, subscriber = joined()
    messages = [b"%d" % n for n in range(100)]
    writer.publish_many(messages)
    received = [bytes(subscriber.recv(WAIT)) for _ in range(3)]
    with Dispatcher() as dispatcher:
        dispatcher.add(subscriber, lambda batch: received.extend(batch.to_list()))
        until(lambda: len(received) == 100)
    assert received == messages


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


def publish_until(writer, condition):
    """Publishes again and again: the place of a subscriber may come later."""

    def published():
        writer.publish(b"x")
        return condition()

    until(published)


def test_a_closed_object_leaves_and_others_go_on(broker):
    """Descriptors of closed objects are given to new ones, in any order."""
    writer = rbmq.Publisher(broker.addr).topic("t")
    steady, seen = rbmq.Subscriber(broker.addr), []
    steady.subscribe("t")
    with Dispatcher() as dispatcher:
        dispatcher.add(steady, lambda batch: (batch.release(), seen.append(1)))
        for _ in range(10):
            short = rbmq.Subscriber(broker.addr)
            dispatcher.add(short, print)
            short.close()
        queue, listener = cmq.new_rq("127.0.0.1:0"), rocketbufs.Listener(rocketbufs.Context(), "127.0.0.1:0")
        others = [rbmq.Publisher(broker.addr), queue.mailbox(5), queue, listener]
        for other in others:
            dispatcher.add(other, print)
        for other in others:
            other.close()
        until(lambda: len(dispatcher._by_source) == 1)
        publish_until(writer, lambda: seen)
        dispatcher.remove(steady)
        assert not dispatcher._by_source


def test_a_descriptor_belongs_to_its_object(broker):
    """Also after `close`, while an event loop may still have the number: nothing else has it, and it is readable."""
    for make in (
        lambda: rbmq.Subscriber(broker.addr),
        lambda: rbmq.Publisher(broker.addr),
        lambda: rocketbufs.Listener(rocketbufs.Context(), "127.0.0.1:0"),
        lambda: cmq.new_rq("127.0.0.1:0"),
        lambda: cmq.new_rq("127.0.0.1:0").mailbox(3),
    ):
        closed = make()
        descriptor = closed.fileno()
        before = os.fstat(descriptor)
        closed.close()
        others = [os.dup(0) for _ in range(20)]
        assert descriptor not in others and os.fstat(descriptor) == before
        assert select.select([descriptor], [], [], WAIT)[0]
        del closed
        for other in others:
            os.close(other)
        with pytest.raises(OSError):
            os.fstat(descriptor)


def test_a_second_close_writes_to_nobody(tmp_path):
    dispatcher = Dispatcher()
    dispatcher.close()
    files = [open(tmp_path / str(n), "w+b", buffering=0) for n in range(5)]
    dispatcher.close()
    for file in files:
        assert os.fstat(file.fileno()).st_size == 0
        file.close()


def test_no_exception_ends_the_callbacks_of_others(joined, monkeypatch):
    writer, subscriber = joined()
    seen, reports = [], []

    def hook(report):
        reports.append(report.exc_type)
        raise RuntimeError("of the hook")

    monkeypatch.setattr(threading, "excepthook", hook)

    def fails(batch):
        batch.release()
        seen.append(1)
        raise (SystemExit, GeneratorExit, KeyboardInterrupt, ZeroDivisionError)[len(seen) % 4]

    with Dispatcher() as dispatcher:
        dispatcher.add(subscriber, fails)
        for n in range(1, 9):
            writer.publish(b"x")
            until(lambda: len(seen) == n)
        dispatcher.remove(subscriber)
        assert len(reports) == 8 and ZeroDivisionError in reports


def test_an_object_that_has_failed_for_good_leaves(ends):
    e = ends()
    reader, errors = e.input.reader(), []
    with Dispatcher() as dispatcher:
        # Its reader alone receives.
        dispatcher.add(e.input, print, on_error=errors.append)
        e.input.subscribe(7)
        until(lambda: errors)
        assert isinstance(errors[0], rocketbufs.RecvError)
        until(lambda: not dispatcher._by_source)
        assert len(errors) == 1
        dispatcher.remove(e.input)
    reader.close()


def test_add_and_remove_from_many_threads(broker):
    writer = rbmq.Publisher(broker.addr).topic("t")
    steady, seen = rbmq.Subscriber(broker.addr), []
    steady.subscribe("t")
    with Dispatcher() as dispatcher:
        dispatcher.add(steady, lambda batch: (batch.release(), seen.append(1)))

        def work(n):
            with cmq.new_rq("127.0.0.1:0") as queue:
                for turn in range(30):
                    dispatcher.add(queue, print)
                    if turn % 3:
                        dispatcher.remove(queue)
                    else:
                        mailbox = queue.mailbox(turn)
                        dispatcher.add(mailbox, print)
                        mailbox.close()
                        dispatcher.remove(queue)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive()
        publish_until(writer, lambda: seen)
        until(lambda: len(dispatcher._by_source) == 1)


def test_close_ends_waits_of_other_threads(broker):
    """Of the calls that several threads may be in at a time, too."""
    queue, reliable = cmq.new_rq("127.0.0.1:0"), cmq.new_rq("127.0.0.1:0", reliable=cmq.Reliable(give_up=60.0))
    mailbox, publisher = queue.mailbox(5), rbmq.Publisher(broker.addr)
    listener = rocketbufs.Listener(rocketbufs.Context(), "127.0.0.1:0")
    number = reliable.push_reliable(("127.0.0.1", 9, 0), b"x")
    waits = [
        (mailbox, mailbox.pop), (mailbox, mailbox.pop_all), (mailbox, lambda: next(mailbox)),
        (queue, queue.pop), (queue, lambda: queue.pop_where(lambda *_: True)),
        (reliable, lambda: reliable.wait_confirmed(("127.0.0.1", 9, 0), number)), (reliable, reliable.wait_all_confirmed),
        (publisher, publisher.next_event), (listener, listener.accept),
    ]  # fmt: skip
    ended = []

    def run(call):
        with pytest.raises(rocketbufs.Closed):
            call()
        ended.append(call)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for _, call in waits]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert not ended
    for source, _ in waits:
        source.close()
    for thread in threads:
        thread.join(WAIT)
    assert len(ended) == len(waits)


def test_a_mailbox_that_is_closed_returns_its_messages_although_a_thread_pops():
    with cmq.new_rq("127.0.0.1:0") as queue, cmq.new_rq("127.0.0.1:0", preset="immediate") as sender:
        mailbox = queue.mailbox(5)
        waits = threading.Thread(target=lambda: pytest.raises(rocketbufs.Closed, mailbox.pop_where, lambda *_: False))
        waits.start()
        sender.cw_push((*queue.local_addr, 5), b"kept")
        until(lambda: mailbox.waiting)
        assert [message for message, _ in mailbox.close()] == [b"kept"]
        waits.join(WAIT)
        assert not waits.is_alive()


def test_a_child_has_no_dispatcher(joined):
    """Neither the one of its parent, nor a copy of the thread that takes the parent's events."""
    writer, subscriber = joined()
    statuses, seen = [], []

    def forks(batch):
        batch.release()
        if not seen:
            child = os.fork()
            if child == 0:
                try:
                    dispatcher.remove(subscriber)
                except rocketbufs.Forked:
                    # The thread ends, and with it the child.
                    return
                os._exit(1)
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        seen.append(1)

    with Dispatcher() as dispatcher:
        dispatcher.add(subscriber, forks)
        writer.publish(b"x")
        until(lambda: seen)
        writer.publish(b"y")
        until(lambda: len(seen) == 2)
        assert statuses == [0]
