"""CMQ's encryption and reliable mode."""

import asyncio
import threading
import time

import pytest
from conftest import WAIT

import rocketbufs
from rocketbufs import aio, cmq


@pytest.fixture
def queues():
    opened = []

    def queue(**settings):
        opened.append(cmq.new_rq("127.0.0.1:0", preset="immediate", **settings))
        return opened[-1]

    yield queue
    for queue in opened:
        queue.close()


@pytest.fixture
def secure(queues):
    """A sender and a receiver that knows its key."""
    one, other = cmq.SecretKey.generate(), cmq.SecretKey.generate()
    sending = cmq.Security(one, default_peer=other.public)
    receiving = cmq.Security(other, allowed=[one.public])
    return queues(security=sending, reliable=True), queues(security=receiving, reliable=True), one.public, other.public


def event_of(queue, kind):
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        while (event := queue.next_event()) is not None:
            if event.kind == kind:
                return event
        time.sleep(0.001)
    raise AssertionError(f"no event {kind}")


def deliver(sender, receiver):
    key = (*receiver.local_addr, 7)
    messages = [b"%d" % n for n in range(300)]
    assert [sender.push_reliable(key, message) for message in messages] == list(range(300))
    assert sender.wait_confirmed(key, 299, WAIT) and sender.wait_all_confirmed(WAIT)
    # Each confirmed message is there.
    assert [receiver.cw_pop() for _ in messages] == [(m, cmq.Key(*sender.local_addr, 7)) for m in messages]
    assert sender.fate(key, 299).kind == "Confirmed" and sender.fate(key, 300) is None
    with pytest.raises(ValueError, match="no message with this number"):
        sender.wait_confirmed(key, 300, 0)
    counts = sender.stats().reliable
    assert (counts.pushed, counts.confirmed, counts.failed, counts.unconfirmed_bytes) == (300, 300, 0, 0)
    counts = receiver.stats().reliable
    assert (counts.received, counts.links) == (300, 1) and counts.acks > 0
    (link,) = receiver.senders()
    assert (link.reliable, link.closed, link.received) == (True, False, 300)
    sender.finish()
    assert event_of(receiver, "Closed").sent == 300 and receiver.senders()[0].closed


def test_messages_are_confirmed(queues):
    deliver(queues(reliable=True), queues(reliable=cmq.Reliable(window=1 << 17)))


def test_encrypted_messages_are_confirmed(secure):
    sender, receiver, of_sender, of_receiver = secure
    assert receiver.peer_key(sender.local_addr) is None
    deliver(sender, receiver)
    assert (receiver.peer_key(sender.local_addr), sender.peer_key(receiver.local_addr)) == (of_sender, of_receiver)
    secured = event_of(sender, "Secured")
    assert (secured.key, secured.peer, secured.renewed) == (of_receiver, receiver.local_addr, False)
    assert receiver.stats().security.handshakes == sender.stats().security.sessions == 1
    # Plain messages are encrypted too.
    sender.cw_push(receiver.local_addr, b"plain")
    assert receiver.pop(WAIT)[0] == b"plain"


def test_messages_are_given_up(queues):
    patient, sender = queues(reliable=True), queues(reliable=cmq.Reliable(give_up=0.2, idle=3.0))
    off = queues()
    key = off.local_addr
    number = patient.push_reliable(key, b"x")
    assert patient.fate(key, number).kind == "Pending"
    assert patient.wait_confirmed(key, number, 0) is False and patient.wait_all_confirmed(0) is False
    number = sender.push_reliable(key, b"x")
    with pytest.raises(rocketbufs.UndeliveredError, match="reliable mode off") as error:
        sender.wait_confirmed(key, number, WAIT)
    assert error.value.kind == "NoAnswer" and sender.wait_all_confirmed(WAIT)
    fate, event = sender.fate(key, number), event_of(sender, "Undelivered")
    assert (fate.kind, fate.reason) == ("Failed", "NoAnswer")
    assert (event.to, event.first, event.count, event.reason) == (cmq.Key(*key), number, 1, "NoAnswer")
    assert sender.stats().reliable.failed == 1
    with pytest.raises(rocketbufs.PushError, match="turn it on"):
        off.push_reliable(key, b"x")


def test_a_full_queue_refuses(queues):
    sender = queues(reliable=cmq.Reliable(send_bytes=1000))
    with pytest.raises(rocketbufs.Full):
        for _ in range(20):
            sender.push_reliable(("127.0.0.1", 9), bytes(100))


def test_asyncio_waits_for_confirmations(secure):
    sender, receiver, *_ = secure

    async def main():
        queue, key = aio.Queue(sender), (*receiver.local_addr, 3)
        number = sender.push_reliable(key, b"hello")
        assert await queue.wait_confirmed(key, number, WAIT) and await queue.wait_all_confirmed()
        assert (await aio.Queue(receiver).pop())[0] == b"hello"
        # Nobody answers at the address: a wait ends in time, or is cancelled.
        silent = cmq.new_rq("127.0.0.1:0")
        number = sender.push_reliable(silent.local_addr, b"x")
        assert await queue.wait_confirmed(silent.local_addr, number, 0.02) is False
        waiting = asyncio.create_task(queue.wait_all_confirmed())
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        silent.close()

    asyncio.run(main())


def test_other_threads_run_while_one_waits(queues):
    sender, silent = queues(reliable=True), queues()
    number = sender.push_reliable(silent.local_addr, b"x")
    # The other thread ends the wait, long before the message is given up.
    threading.Timer(0.1, sender.close).start()
    with pytest.raises(rocketbufs.Closed):
        sender.wait_confirmed(silent.local_addr, number)


def test_strangers_are_refused(secure, queues):
    _, receiver, _, of_receiver = secure
    plain = queues()
    plain.cw_push(receiver.local_addr, b"x")
    assert event_of(receiver, "Refused").reason == "Plain"
    assert event_of(plain, "EncryptionRequired").peer == receiver.local_addr
    key = cmq.SecretKey.generate()
    stranger = queues(security=cmq.Security(key, peers={receiver.local_addr: of_receiver}, handshake_timeout=0.3))
    stranger.cw_push(receiver.local_addr, b"x")
    refused, failed = event_of(receiver, "Refused"), event_of(stranger, "HandshakeFailed")
    assert (refused.reason, refused.key) == ("Stranger", key.public)
    assert (failed.to, failed.messages, failed.reason) == (receiver.local_addr, 1, "NoAnswer")
    stranger.cw_push(("127.0.0.1", 9), b"x")
    assert event_of(stranger, "HandshakeFailed").reason == "NoKey"
    counts = receiver.stats().security
    assert counts.plain >= 1 and counts.strangers >= 1 and receiver.stats().received == 0


def test_a_shared_secret_is_needed(queues):
    one, other, shared = (cmq.SecretKey.generate() for _ in range(3))
    receiver = queues(security=cmq.Security(other, shared_secret=shared))
    for secret, arrives in ((shared, True), (None, False)):
        # Only a handshake that must fail ends soon.
        limit = WAIT if arrives else 0.3
        security = cmq.Security(one, default_peer=other.public, shared_secret=secret, handshake_timeout=limit)
        sender = queues(security=security)
        sender.cw_push(receiver.local_addr, b"x")
        if arrives:
            assert receiver.pop(WAIT)[0] == b"x"
        else:
            assert event_of(sender, "HandshakeFailed").reason == "NoAnswer" and receiver.cw_pop() is None


def test_keys(tmp_path):
    secret, path = cmq.SecretKey.generate(), tmp_path / "key"
    secret.write_new(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert bytes(cmq.SecretKey.read(path)) == bytes(secret) == bytes(cmq.SecretKey(bytes(secret)))
    public = secret.public
    assert cmq.PublicKey(str(public)) == cmq.PublicKey(bytes(public)) == public and len(str(public)) == 64
    assert hash(cmq.PublicKey(str(public))) == hash(public) and public < cmq.PublicKey(b"\xff" * 32)
    (tmp_path / "key.pub").write_text(f"{public}\n")
    assert cmq.PublicKey.read(tmp_path / "key.pub") == public
    # No output shows a secret key.
    shown = repr(secret) + str(secret) + repr(cmq.Security(path)) + repr(public)
    assert bytes(secret).hex() not in shown and str(public) in repr(secret)


@pytest.mark.parametrize(
    "call, exception, text",
    [
        (lambda p: cmq.SecretKey.read(p / "nothing"), rocketbufs.CmqKeyError, "nothing: "),
        (lambda p: cmq.Security(p / "nothing"), rocketbufs.CmqKeyError, "nothing: "),
        (lambda p: cmq.PublicKey.read(p / "nothing"), rocketbufs.CmqKeyError, "nothing: "),
        (lambda p: cmq.SecretKey.read(p / "open"), rocketbufs.CmqKeyError, "chmod 600"),
        (lambda p: cmq.PublicKey("0123"), rocketbufs.CmqKeyError, "64 hexadecimal digits"),
        (lambda p: cmq.PublicKey("x" * 64), ValueError, "64 hexadecimal digits"),
        (lambda p: cmq.PublicKey(b"short"), TypeError, "32 bytes"),
        (lambda p: cmq.SecretKey("0" * 64), TypeError, "32 bytes"),
        (lambda p: cmq.SecretKey.generate().write_new(p / "open"), rocketbufs.CmqKeyError, "open: "),
        (lambda p: cmq.Security(7), TypeError, "SecretKey or the path"),
        (lambda p: cmq.Security(cmq.SecretKey.generate(), default_peer="no key"), TypeError, "PublicKey"),
        (lambda p: cmq.Security(cmq.SecretKey.generate(), alowed=[]), TypeError, "alowed"),
        (lambda p: cmq.Reliable(widow=5), TypeError, "widow"),
        (lambda p: cmq.Reliable(give_up=-1), ValueError, "0 or more"),
        (lambda p: cmq.new_rq(reliable=cmq.Reliable(window=5)), rocketbufs.OpenError, "window"),
        (lambda p: cmq.new_rq(reliable=5), TypeError, "True, False, None or a Reliable"),
        (lambda p: cmq.new_rq(security=True), TypeError, "Security or None"),
        (lambda p: cmq.new_rq(security=cmq.Security(cmq.SecretKey.generate(), rekey_after=0.0)), rocketbufs.OpenError, "rekey"),
    ],
)
def test_wrong_calls_are_exceptions(tmp_path, call, exception, text):
    (tmp_path / "open").write_text("0" * 64)
    (tmp_path / "open").chmod(0o644)
    with pytest.raises(exception) as raised:
        call(tmp_path)
    assert text in str(raised.value)


def test_a_closed_queue_says_so(queues):
    queue = queues(reliable=True)
    queue.close()
    key = ("127.0.0.1", 5)
    for call in (
        lambda: queue.push_reliable(key, b"x"),
        lambda: queue.fate(key, 0),
        lambda: queue.wait_confirmed(key, 0),
        queue.wait_all_confirmed,
        lambda: queue.peer_key(key),
    ):
        with pytest.raises(rocketbufs.Closed):
            call()
