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


def test_a_message_is_chosen(queues):
    receiver, sender = queues(), queues(preset="immediate")
    sender.push_many(receiver.local_addr, [b"a1", b"b1", b"a2", b""])
    looked_at = []

    def is_b(message, key):
        assert (key.host, key.port, key.id) == (*sender.local_addr, 0)
        looked_at.append(message)
        return message.startswith(b"b")

    assert receiver.pop_where(is_b, WAIT)[0] == b"b1"
    while receiver.waiting < 3:
        time.sleep(0.01)
    assert receiver.pop_where(is_b, 0) is None and receiver.pop_where(is_b, 0.01) is None
    assert receiver.waiting == 3
    # Once for each message, also of a call that waits; a message that comes meanwhile is chosen.
    looked_at.clear()
    late = threading.Timer(0.05, lambda: sender.cw_push(receiver.local_addr, b"b2"))
    late.start()
    assert receiver.pop_where(is_b, WAIT)[0] == b"b2"
    assert looked_at == [b"a1", b"a2", b"", b"b2"]
    assert [message for message, _ in receiver.pop_all(WAIT)] == [b"a1", b"a2", b""]
    late.join()


def test_a_choice_may_use_the_queue(queues):
    receiver, sender = queues(), queues(preset="immediate")
    sender.push_many(receiver.local_addr, [b"one", b"two", b"three"])
    while receiver.waiting < 3:
        time.sleep(0.01)
    taken = []
    # The choice takes the message that it is asked for, so that the call finds it gone, and looks at the next one.
    chosen = receiver.pop_where(lambda message, _: message == b"three" or taken.append(receiver.cw_pop()) or True, WAIT)
    assert chosen[0] == b"three" and [message for message, _ in taken] == [b"one", b"two"]
    with pytest.raises(ZeroDivisionError):
        sender.cw_push(receiver.local_addr, b"four")
        receiver.pop_where(lambda *_: 1 // 0, WAIT)
    assert receiver.pop(WAIT)[0] == b"four"


def test_threads_choose_their_messages(queues):
    receiver, sender = queues(), queues()
    got = {n: [] for n in range(4)}

    def work(n):
        while len(got[n]) < 250:
            message, _ = receiver.pop_where(lambda message, _: message[0] == n, WAIT)
            got[n].append(int.from_bytes(message[1:], "little"))

    workers = [threading.Thread(target=work, args=(n,)) for n in got]
    for worker in workers:
        worker.start()
    sender.push_many(receiver.local_addr, [bytes([n % 4]) + (n // 4).to_bytes(2, "little") for n in range(1000)])
    sender.flush()
    for worker in workers:
        worker.join()
    assert all(numbers == list(range(250)) for numbers in got.values()) and receiver.waiting == 0


def test_a_mailbox_is_chosen_from(queues):
    receiver, sender = queues(), queues(preset="immediate")
    with receiver.mailbox(5) as mailbox:
        sender.push_many((*receiver.local_addr, 5), [b"a", b"b"])
        assert mailbox.pop_where(lambda message, _: message == b"b", WAIT)[0] == b"b"
        assert mailbox.pop(WAIT)[0] == b"a"
    with pytest.raises(rocketbufs.Closed):
        mailbox.pop_where(lambda *_: True)


def test_the_streams_of_one_sender(queues):
    receiver, senders = queues(), [queues(preset="immediate") for _ in range(2)]
    for sender in senders:
        sender.cw_push(receiver.local_addr, b"x")
    assert all(receiver.pop(WAIT) for _ in senders) and len(receiver.senders()) == 2
    (info,) = receiver.senders_at(senders[1].local_addr)
    assert info.epoch == senders[1].epoch and receiver.senders_at(("127.0.0.1", 1)) == []


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


def test_an_iterable_may_close_the_queue_that_it_is_pushed_to():
    queue = cmq.new_rq("127.0.0.1:0")

    def messages():
        yield b"one"
        queue.close()
        yield b"two"

    with pytest.raises(rocketbufs.Closed):
        queue.push_many(queue.local_addr, messages())
