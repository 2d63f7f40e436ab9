"""Queues over UDP on the loopback interface."""

import selectors
import threading
import time

import pytest
from conftest import WAIT

import rocketbufs
from rocketbufs import cmq


@pytest.fixture
def queues():
    opened = []

    def queue(addr="127.0.0.1:0", **settings):
        opened.append(cmq.new_rq(addr, **settings))
        return opened[-1]

    yield queue
    for queue in opened:
        queue.close()


def test_a_message_and_its_answer(queues):
    receiver, sender = queues(), queues(preset="immediate")
    sender.cw_push((*receiver.local_addr, 7), b"question")
    message, key = receiver.pop(WAIT)
    assert message == b"question"
    assert (key.host, key.port, key.id) == (*sender.local_addr, 7)
    receiver.cw_push(key, bytearray(b"answer"))
    receiver.flush()
    answer, back = sender.pop(WAIT)
    assert answer == b"answer" and back == cmq.Key(*receiver.local_addr, 7) and hash(back) == hash(back)
    assert sender.cw_pop() is None and sender.pop(0.01) is None and sender.pop_all(0) == []
    assert back < cmq.Key("127.0.0.2", 1) and "127.0.0.1" in repr(back)


def test_many_messages_in_order(queues):
    receiver, sender = queues(), queues()
    messages = [b"%d" % n for n in range(2000)]
    assert sender.push_many(receiver.local_addr, messages) == 2000
    sender.flush()
    received = []
    while len(received) < 2000:
        received += [message for message, _ in receiver.pop_all(WAIT)]
    assert received == messages
    sender.finish()
    deadline = time.monotonic() + WAIT
    kinds = []
    while "Closed" not in kinds and time.monotonic() < deadline:
        receiver.pop(0.01)
        while (event := receiver.next_event()) is not None:
            kinds.append(event.kind)
    assert kinds[0] == "Joined" and event is None
    assert receiver.stats().received == 2000 and sender.stats().sent == 2000
    (info,) = receiver.senders()
    assert info.closed and info.received == 2000 and info.sender == sender.local_addr


def test_mailboxes(queues):
    receiver, sender = queues(), queues(preset="immediate")
    with receiver.mailbox(5) as mailbox:
        sender.cw_push(cmq.Key(*receiver.local_addr, 5), b"five")
        sender.cw_push((*receiver.local_addr, 6), b"six")
        assert mailbox.pop(WAIT)[0] == b"five" and mailbox.id == 5
        assert next(receiver)[0] == b"six"
        sender.cw_push((*receiver.local_addr, 5), b"left")
        while not mailbox.waiting:
            time.sleep(0.01)
        assert [message for message, _ in mailbox.close()] == [b"left"]
    assert mailbox.close() == []
    sender.cw_push((*receiver.local_addr, 5), b"now here")
    assert receiver.pop(WAIT)[0] == b"now here"


def test_large_messages_are_fragmented(queues):
    receiver, sender = queues(), queues(preset="immediate")
    message = bytes(range(256)) * 200
    sender.cw_push(receiver.local_addr, message)
    assert receiver.pop(WAIT)[0] == message
    with pytest.raises(rocketbufs.PushError) as error:
        sender.cw_push(receiver.local_addr, bytes(2 << 20))
    assert error.value.kind == "TooLarge"


def test_a_descriptor_for_event_loops(queues):
    receiver, sender = queues(), queues(preset="immediate")
    with selectors.DefaultSelector() as selector:
        selector.register(receiver.fileno(), selectors.EVENT_READ)
        for n in range(100):
            while receiver.cw_pop() is not None:
                pass
            assert not selector.select(0)
            sender.cw_push(receiver.local_addr, b"%d" % n)
            assert selector.select(WAIT)
            assert receiver.cw_pop()[0] == b"%d" % n


def test_a_full_queue_refuses(queues):
    sender = queues(pending_bytes=2000, timeout=60.0, qmessages=None)
    with pytest.raises(rocketbufs.Full) as error:
        sender.push_many(("127.0.0.1", 9), [bytes(100)] * 100)
    assert isinstance(error.value, rocketbufs.PushError) and 0 < error.value.published < 100


def test_another_thread_pushes(queues):
    receiver, sender = queues(), queues(preset="immediate")
    threading.Timer(0.1, sender.cw_push, (receiver.local_addr, b"later")).start()
    assert receiver.pop(WAIT)[0] == b"later"


def test_multicast_settings(queues):
    queue = queues("0.0.0.0:0", reuse_address=True)
    queue.join("239.1.2.3", "127.0.0.1")
    queue.set_multicast("127.0.0.1", ttl=1, loopback=True)
    queue.leave("239.1.2.3", "127.0.0.1")
    with pytest.raises(OSError):
        queue.leave("239.1.2.3", "127.0.0.1")


@pytest.mark.parametrize(
    "call, exception, text",
    [
        (lambda q: q.cw_push("127.0.0.1:5", b"x"), TypeError, "(host, port)"),
        (lambda q: q.cw_push(("127.0.0.1", 70000), b"x"), (TypeError, OverflowError), ""),
        (lambda q: q.cw_push(("127.0.0.1", 0), b"x"), rocketbufs.PushError, "port 0"),
        (lambda q: q.cw_push(("127.0.0.1", 5), "x"), TypeError, "bytes-like"),
        (lambda q: q.push_many(("127.0.0.1", 5), 7), TypeError, "iter"),
        (lambda q: q.pop(-1), ValueError, "0 or more"),
        (lambda q: q.mailbox(-1), OverflowError, ""),
        (lambda q: q.join("nowhere"), ValueError, "group"),
        (lambda q: q.join("10.0.0.1"), OSError, ""),
        (lambda q: cmq.Key("no.such.host.invalid", 5), OSError, ""),
        (lambda q: cmq.new_rq("nowhere"), rocketbufs.OpenError, ""),
        (lambda q: cmq.new_rq("%s:%d" % q.local_addr), rocketbufs.OpenError, "bind"),
        (lambda q: cmq.new_rq(preset="fast"), ValueError, "'paper'"),
        (lambda q: cmq.new_rq(qtresh=5), TypeError, "qtresh"),
        (lambda q: cmq.new_rq(qthresh=0), rocketbufs.OpenError, "qthresh"),
        (lambda q: cmq.new_rq(timeout=float("inf")), ValueError, "limit"),
        (lambda q: cmq.new_rq(overflow="drop"), ValueError, "'drop_oldest'"),
        (lambda q: cmq.new_rq(oversize="drop"), ValueError, "'reject'"),
        (lambda q: cmq.new_rq(reorder_window=5000), rocketbufs.OpenError, "window"),
    ],
)
def test_wrong_calls_are_exceptions(queues, call, exception, text):
    with pytest.raises(exception) as raised:
        call(queues())
    assert text in str(raised.value)


def test_a_closed_queue_says_so(queues):
    queue = queues()
    mailbox = queue.mailbox(1)
    queue.close()
    queue.close()
    assert queue.closed
    for call in (queue.cw_pop, queue.pop, queue.flush, queue.stats, queue.fileno, lambda: queue.cw_push(("::1", 5), b"x")):
        with pytest.raises(rocketbufs.Closed):
            call()
    assert mailbox.cw_pop() is None
