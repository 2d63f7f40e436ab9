"""Values: what may be copied, compared, referred to weakly and published."""

import copy
import gc
import pickle
import weakref

import pytest
from conftest import WAIT

import rocketbufs
from rocketbufs import cmq, rbmq


def copies(value):
    return [copy.copy(value), copy.deepcopy(value), *(pickle.loads(pickle.dumps(value, n)) for n in range(2, 6))]


def test_a_message_may_be_copied(joined):
    """One that was copied as one that is in its batch, and whose copies outlive the batch."""
    writer, subscriber = joined()
    says = {"reply_to": "answers", "properties": [("k", "1"), ("k", "2")]}
    writer.publish(b"hello", **says)
    batch = subscriber.recv_batch(WAIT)
    (held,) = batch
    writer.publish(b"world")
    batch_copies = copies(held)
    batch.release()
    single = subscriber.recv(WAIT)
    for message, content, said, others in ((held, b"hello", says, batch_copies), (single, b"world", {}, copies(single))):
        for other in others:
            assert other == content and other.data == content and other.attributes == said
            assert (other.topic, other.epoch, other.end, other.publisher) == (
                message.topic, message.epoch, message.end, message.publisher,
            )  # fmt: skip
    with pytest.raises(rocketbufs.Released):
        pickle.dumps(held)


def test_other_values_may_be_copied():
    key, secret = cmq.Key("127.0.0.1", 5, 6), cmq.SecretKey.generate()
    event = rocketbufs.Event("Lost", topic="t", start=3)
    for value in (key, cmq.Key("::1", 5), secret.public, event):
        assert copies(value) == [value] * 6
    # A secret goes nowhere by accident.
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_exceptions_keep_their_class_and_kind(broker):
    with pytest.raises(rocketbufs.PublisherWaitError) as few:
        rbmq.Publisher(broker.addr).topic("t").wait_subscribers(1, 0)
    with pytest.raises(rocketbufs.TimedOut) as slow:
        rocketbufs.ROut(rocketbufs.Context()).create_buffer(7).wait("consumed", 5, 0)
    for error in (few.value, slow.value):
        for other in copies(error):
            assert type(other) is type(error) and str(other) == str(error) and vars(other) == vars(error)


def test_what_is_in_a_message():
    message = rbmq.Message("t", b"hello")
    assert b"ell" in message and ord("h") in message and b"elf" not in message and 5 not in message and b"" in message
    assert message[1:3] == b"el" and message[-1] == ord("o") and list(message) == list(b"hello")
    with pytest.raises(TypeError):
        "ell" in message
    with pytest.raises(ValueError):
        256 in message
    for index in (5, -6, 1 << 70):
        with pytest.raises(IndexError):
            message[index]
    with pytest.raises(rocketbufs.TopicOpenError):
        rbmq.Message("", b"x")


def test_handles_may_be_referred_to_weakly(broker):
    context = rocketbufs.Context()
    out = rocketbufs.ROut(context)
    made = [rbmq.Publisher(broker.addr), rbmq.Subscriber(broker.addr), cmq.new_rq("127.0.0.1:0"), out.create_buffer(7)]
    made += [made[0].topic("t"), made[2].mailbox(3), out, context]
    references = [weakref.ref(handle) for handle in made]
    assert all(reference() is handle for reference, handle in zip(references, made))
    del made, out, context
    gc.collect()
    assert not any(reference() for reference in references)


def test_addresses_of_objects_are_no_bytes(joined):
    numpy = pytest.importorskip("numpy")
    writer, subscriber = joined()
    with cmq.new_rq("127.0.0.1:0") as queue:
        for array in (
            numpy.array([object()]),
            memoryview(numpy.array([None, 5], dtype=object)),
            numpy.zeros(2, dtype=[("n", "i4"), ("o", object)]),
        ):
            for call in (writer.publish, lambda data: queue.cw_push(queue.local_addr, data)):
                with pytest.raises(TypeError, match="objects"):
                    call(array)
            with pytest.raises(TypeError, match="objects"):
                writer.publish_many([b"first", array])
    # Everything else in one piece is bytes; also what has no format, and fields with a telling name.
    for array in (
        numpy.arange(6, dtype="f8").reshape(2, 3), numpy.array(["2020-01-01"], dtype="datetime64[D]"),
        numpy.zeros(2, dtype=[("O", "i4"), ("n", "f8")]), numpy.array(5), numpy.array([], dtype="i4"), numpy.array(["text"]),
    ):  # fmt: skip
        writer.publish(array)
        assert subscriber.recv(WAIT) == array.tobytes()
    for array in (numpy.arange(6)[::2], numpy.arange(6)[::-1], numpy.arange(6).reshape(2, 3).T):
        with pytest.raises((BufferError, ValueError)):
            writer.publish(array)


def test_a_connection_is_closed_at_the_end_of_a_with(ends):
    e = ends()
    with rocketbufs.Conn(e.context, e.listener.local_addr) as conn:
        assert conn.is_up
    assert conn.wait_down(WAIT).kind == "Local"
