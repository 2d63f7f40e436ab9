"""Publishing and subscribing through a broker."""

import array
import datetime
import gc
import subprocess
import sys
import threading
import time

import pytest
from conftest import WAIT, own_addr

import rocketbufs
from rocketbufs import rbmq


def test_a_message_arrives(joined):
    writer, subscriber = joined("news")
    end = writer.publish(b"hello")
    message = subscriber.recv(WAIT)
    assert bytes(message) == b"hello" == message.data
    assert (message.topic, message.end, message.publisher) == ("news", end, None)
    assert message == b"hello" and message[0] == ord("h") and message[-1] == ord("o") and message[1:3] == b"el"
    assert memoryview(message).readonly and len(message) == 5
    assert subscriber.recv(0) is None
    assert subscriber.recv(0.01) is None


def test_messages_of_any_size(joined):
    """Up to what the broker takes, without a setting, and one byte more."""
    writer, subscriber = joined()
    for size in (1, 300_000, 2, 5 << 20, 64 << 20, 3):
        writer.publish(bytes([size % 251]) * size, WAIT)
        message = subscriber.recv(WAIT)
        assert len(message) == size and message.data == bytes([size % 251]) * size
        message = None
    with pytest.raises(rocketbufs.PublishError, match="max_message_bytes") as error:
        writer.publish(bytes((64 << 20) + 1), WAIT)
    assert error.value.kind == "TooLarge"


SAYS = {
    "topic": "room", "reply_to": "answers/ß", "correlation_data": b"\x00\xff", "content_type": "text/plain", "key": b"",
    "properties": [("k", "1"), ("k", "2")], "time_ms": 2**64 - 1, "expiry_ms": 5, "payload_is_utf8": True, "retain": True, "qos": 0,
}  # fmt: skip


def test_messages_say_what_their_publisher_says(joined):
    """In a copy, in a batch, and in what was published in place."""
    writer, subscriber = joined()
    plain = writer.publish(b"plain", reply_to=None, retain=False)
    said = writer.publish(b"said", WAIT, **SAYS)
    # The four bytes of each header, and what it says.
    assert said - plain > 8 + 4 * len(SAYS) and plain == 9
    with writer.segment(10, WAIT, key=bytearray(b"k"), properties={"a": "b"}) as segment:
        segment.view[:] = b"0123456789"
    message = subscriber.recv(WAIT)
    assert (message.attributes, message.reply_to, message.properties, message.key) == ({}, None, [], None)
    message = subscriber.recv(WAIT)
    assert message == b"said" and message.attributes == SAYS
    assert (message.reply_to, message.correlation_data, message.content_type) == ("answers/ß", b"\x00\xff", "text/plain")
    assert message.properties == [("k", "1"), ("k", "2")] and message.key == b""
    message = subscriber.recv(WAIT)
    assert message == b"0123456789" and message.attributes == {"key": b"k", "properties": [("a", "b")]}
    writer.publish(b"again", **message.attributes)
    with subscriber.recv_batch(WAIT) as batch:
        (held,) = batch
        assert held == b"again" and held.attributes == message.attributes and len(held) == 5
        assert batch.to_list() == [b"again"] and [list(row) for row in batch.offsets.tolist()] == [[batch.nbytes - 5, batch.nbytes]]


def test_what_cannot_be_said(joined):
    writer, _subscriber = joined(topic_options={"framing": "raw"})
    with pytest.raises(rocketbufs.PublishError) as raw:
        writer.publish(b"x", key=b"k")
    assert raw.value.kind == "WrongFraming"
    for wrong in ({"no_such_thing": 1}, {"key": "text"}, {"reply_to": b"bytes"}, {"properties": {"k": 1}}):
        with pytest.raises(TypeError):
            writer.publish(b"x", **wrong)
    with pytest.raises(ValueError, match="attribute key has 65536 bytes"):
        writer.publish(b"x", key=bytes(65536))
    with pytest.raises(OverflowError):
        writer.publish(b"x", qos=256)


def test_iteration_ends_with_the_topic(joined):
    writer, subscriber = joined(until_ended=True)
    for n in range(1000):
        writer.publish(b"%d" % n)
    writer.close()
    assert [int(bytes(message)) for message in subscriber] == list(range(1000))
    assert subscriber.ended and subscriber.recv(WAIT) is None


def test_contents_are_received(joined):
    writer, subscriber = joined(until_ended=True)
    assert subscriber.recv_bytes(0) is None and subscriber.recv_bytes(0.01) is None
    writer.publish(b"first")
    assert subscriber.recv_bytes(WAIT) == b"first"
    for n in range(1000):
        writer.publish(b"%d" % n)
    writer.close()
    assert [int(content) for content in subscriber.iter_bytes()] == list(range(1000))
    assert subscriber.recv_bytes(WAIT) is None


@pytest.mark.parametrize(
    "data",
    [
        b"abcd",
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        memoryview(bytearray(b"xabcdx"))[1:5],
        array.array("I", [int.from_bytes(b"abcd", "little")]),
    ],
    ids=lambda data: type(data).__name__,
)
def test_any_buffer_is_published(joined, data):
    writer, subscriber = joined()
    writer.publish(data)
    writer.publish_many([data, b"", data])
    assert [bytes(subscriber.recv(WAIT)) for _ in range(4)] == [b"abcd", b"abcd", b"", b"abcd"]


def test_numpy_arrays_are_published_and_received_without_a_copy(joined):
    numpy = pytest.importorskip("numpy")
    writer, subscriber = joined()
    sent = numpy.arange(1000, dtype="f8")
    writer.publish(sent)
    with subscriber.recv_batch(WAIT) as batch:
        (message,) = batch
        received = numpy.frombuffer(message, dtype="f8")
        assert (received == sent).all() and not received.flags.writeable
        assert received.base is not None
        del received


def test_publish_many_makes_few_deliveries(joined):
    writer, subscriber = joined()
    messages = [b"%d" % n * (n % 50) for n in range(20_000)]
    assert writer.publish_many(iter(messages[:10_000])) == writer.position
    writer.publish_many(messages[10_000:])
    received, batches = [], 0
    while len(received) < len(messages):
        with subscriber.recv_batch(WAIT) as batch:
            received += batch.to_list()
            batches += 1
    assert received == messages
    assert batches < 1000


def test_large_messages_are_published_one_by_one(joined):
    writer, subscriber = joined()
    messages = [bytes([n]) * 200_000 for n in range(10)]
    sender = threading.Thread(target=writer.publish_many, args=(messages,))
    sender.start()
    for message in messages:
        assert subscriber.recv(WAIT) == message
    sender.join()


def test_a_batch_in_place(joined):
    writer, subscriber = joined()
    writer.publish_many([b"one", b"two", b"three"])
    batch = subscriber.recv_batch(WAIT)
    assert len(batch) == 3 and not batch.copied
    assert [bytes(message) for message in batch] == [b"one", b"two", b"three"] == batch.to_list()
    offsets = batch.offsets
    assert offsets.format == "I" and offsets.shape == (3, 2)
    assert [bytes(batch.view[start:end]) for start, end in offsets.tolist()] == batch.to_list()
    assert batch.nbytes == 3 * 4 + 11 == len(batch.view) == batch.end - batch.position
    ends = [message.end for message in batch]
    assert ends[-1] == batch.end == writer.position and ends == sorted(ends)
    batch.release()
    batch.release()
    assert batch.released


def test_a_released_batch_is_an_error_and_never_garbage(joined):
    writer, subscriber = joined()
    writer.publish_many([b"one", b"two"])
    batch = subscriber.recv_batch(WAIT)
    messages = list(batch)
    iterator = iter(batch)
    view = memoryview(messages[1])
    assert view == b"two"
    with pytest.raises(BufferError, match="a buffer of the batch still exist"):
        batch.release()
    assert bytes(messages[0]) == b"one"
    view.release()
    batch.release()
    for use in (
        lambda: bytes(messages[0]),
        lambda: memoryview(messages[0]),
        lambda: messages[0].data,
        lambda: messages[0][0],
        lambda: messages[0] == b"one",
        lambda: batch.view,
        lambda: memoryview(batch),
        lambda: batch.to_list(),
        lambda: batch.offsets,
        lambda: len(batch),
        lambda: next(iterator),
    ):
        with pytest.raises(rocketbufs.Released, match="the batch was released"):
            use()
    # Facts that need no bytes are known.
    assert len(messages[0]) == 3 and messages[0].topic == "t" and "released" in repr(batch)


def test_a_with_block_refuses_to_end_while_a_view_lives(joined):
    writer, subscriber = joined()
    writer.publish(b"kept")
    with pytest.raises(BufferError):
        with subscriber.recv_batch(WAIT) as batch:
            view = batch.view
    assert bytes(view)[4:] == b"kept"
    del view
    batch.release()


def test_views_pin_their_memory(joined):
    """Bytes under a view do not change, whatever is published meanwhile and whatever is closed."""
    writer, subscriber = joined()
    writer.publish(b"x" * 100_000)
    batch = subscriber.recv_batch(WAIT)
    view = memoryview(next(iter(batch)))
    del batch
    gc.collect()
    with pytest.raises(rocketbufs.TimedOut):
        for n in range(100):
            writer.publish(b"y" * 100_000, 0.2)
            subscriber.recv(0)
    assert view == b"x" * 100_000
    subscriber.close()
    assert view == b"x" * 100_000
    del view


def test_the_space_of_a_batch_returns_with_its_release(joined):
    writer, subscriber = joined(confirm_consumed=True)
    end = writer.publish(b"held")
    batch = subscriber.recv_batch(WAIT)
    with pytest.raises(rocketbufs.ConfirmError) as error:
        writer.confirm(end, "consumed", 0.05)
    assert isinstance(error.value, TimeoutError) and error.value.kind == "TimedOut"
    assert error.value.confirmed < end
    batch.release()
    confirmed = writer.confirm(end, "consumed", WAIT)
    assert (confirmed.level, confirmed.position, confirmed.subscribers, confirmed.lost) == ("consumed", end, 1, 0)


def test_a_batch_that_is_dropped_is_released(joined):
    writer, subscriber = joined(confirm_consumed=True)
    end = writer.publish(b"dropped")
    assert subscriber.recv_batch(WAIT).topic == "t"
    writer.confirm(end, "consumed", WAIT)


def test_release_up_to(joined):
    writer, subscriber = joined(confirm_consumed=True)
    writer.publish_many([b"a", b"b", b"c"])
    batch = subscriber.recv_batch(WAIT)
    first = next(iter(batch)).end
    batch.release_up_to(first)
    assert batch.released
    assert writer.confirmation(first, "consumed").wait(WAIT).position == first
    assert writer.confirmation(None, "consumed").poll() is None


def test_confirmations(joined):
    writer, subscriber = joined()
    waiting = [writer.confirmation(writer.publish(b"%d" % n), "delivered") for n in range(100)]
    for confirmation in waiting:
        assert confirmation.wait(WAIT).position >= confirmation.position
    assert waiting[0].poll().level == "delivered" == waiting[0].level
    assert writer.confirmed("accepted") == writer.position
    assert writer.accept_lost() is None
    with pytest.raises(rocketbufs.ConfirmError, match="was not published") as error:
        writer.confirm(writer.position + 1, timeout=WAIT)
    assert error.value.kind == "NotPublished"


def test_a_segment_is_filled_in_place(joined):
    numpy = pytest.importorskip("numpy")
    writer, subscriber = joined()
    with writer.segment(8 * 100) as segment:
        numpy.frombuffer(segment, dtype="f8")[:] = numpy.arange(100)
    assert (numpy.frombuffer(subscriber.recv(WAIT), dtype="f8") == numpy.arange(100)).all()
    segment = writer.segment(10)
    view = segment.view
    view[:3] = b"abc"
    with pytest.raises(BufferError, match="a buffer of the segment"):
        segment.publish(3)
    view.release()
    assert segment.publish(3) == writer.position
    assert subscriber.recv(WAIT) == b"abc"
    for use in (segment.publish, segment.cancel, lambda: segment.view, lambda: memoryview(segment)):
        with pytest.raises(rocketbufs.Released):
            use()


def test_segments_that_are_not_published(joined):
    writer, subscriber = joined()
    with pytest.raises(ZeroDivisionError):
        with writer.segment(10):
            1 / 0
    writer.segment(10).cancel()
    writer.segment(10)
    gc.collect()
    writer.publish(b"only")
    assert subscriber.recv(WAIT) == b"only"


def test_an_older_segment_cannot_be_short(joined):
    writer, subscriber = joined()
    older, newer = writer.segment(3), writer.segment(3)
    with pytest.raises(rocketbufs.PublishError, match="only the newest"):
        older.publish(1)
    with pytest.raises(rocketbufs.PublishError, match="4 bytes were published of a segment that has 3"):
        older.publish(4)
    newer.view[:] = b"new"
    newer.publish()
    older.view[:] = b"old"
    older.publish()
    assert [bytes(subscriber.recv(WAIT)) for _ in range(2)] == [b"old", b"new"]


def test_raw_topics(joined):
    writer, subscriber = joined(topic_options={"framing": "raw"})
    assert writer.framing == "raw"
    sent = bytes(range(256)) * 4096
    sender = threading.Thread(target=writer.publish, args=(bytearray(sent),))
    sender.start()
    received = b""
    while len(received) < len(sent):
        with subscriber.recv_batch(WAIT) as batch:
            assert batch.framing == "raw" and len(batch) == 1
            received += batch.view
    sender.join()
    assert received == sent
    with writer.segment(4) as segment:
        segment.view[:] = b"tail"
    writer.publish_many([b"1", b"2"])
    received = b""
    while len(received) < 6:
        received += subscriber.recv(WAIT).data
    assert received == b"tail12"


def test_starts(broker):
    publisher = rbmq.Publisher(broker.addr)
    writer = publisher.topic("log")
    before = datetime.datetime.now(datetime.timezone.utc)
    ends = [writer.publish(b"%d" % n) for n in range(3)]
    writer.flush(WAIT)

    def first(start):
        with rbmq.Subscriber(broker.addr) as subscriber:
            subscriber.subscribe("log", start)
            message = subscriber.recv(WAIT)
            return bytes(message), message.epoch

    value, epoch = first("oldest")
    assert value == b"0"
    assert first(before)[0] == b"0"
    assert first(ends[0])[0] == b"1"
    assert first({epoch: ends[1]})[0] == b"2"
    assert first("last")[0] in (b"0", b"1", b"2")


def test_patterns_and_events(broker):
    with rbmq.Subscriber(broker.addr, name="all") as subscriber, rbmq.Publisher(broker.addr) as publisher:
        subscriber.subscribe("sensors/+/temp")
        kitchen = publisher.topic("sensors/kitchen/temp")
        publisher.topic("sensors/kitchen/light").publish(b"no")
        kitchen.wait_subscribers(1, WAIT)
        kitchen.publish(b"21")
        kitchen.close()
        seen = []
        while not seen or seen[-1] != "Closed":
            event = subscriber.next_event(WAIT)
            if isinstance(event, rbmq.Batch):
                assert event.to_list() == [b"21"]
                seen.append("Batch")
                continue
            match event:
                case rocketbufs.Event(kind="Joined", topic="sensors/kitchen/temp", start=0):
                    seen.append("Joined")
                case rocketbufs.Event(kind="Closed", end=6):
                    seen.append("Closed")
                case other:
                    raise AssertionError(other)
        assert seen == ["Joined", "Batch", "Closed"]
        with pytest.raises(AttributeError, match="has no attribute 'reason'"):
            event.reason
        assert "Closed" in repr(event) and "topic" in dir(event)
        subscriber.unsubscribe("sensors/+/temp")


def test_a_full_ring_makes_the_publisher_wait(joined):
    writer, subscriber = joined()
    with pytest.raises(rocketbufs.PublishError, match="stayed full") as error:
        for n in range(100):
            writer.publish(bytes(100_000), 0.1)
    assert error.value.kind == "TimedOut" and isinstance(error.value, rocketbufs.TimedOut)
    with pytest.raises(rocketbufs.PublishError) as error:
        writer.publish_many([bytes(50_000)] * 100, 0)
    assert error.value.published < 100
    # Another thread waits with the interpreter free, until there is room.
    sender = threading.Thread(target=writer.publish, args=(b"z" * 200_000,))
    sender.start()
    last = b""
    while last != b"z" * 200_000:
        last = bytes(subscriber.recv(WAIT))
    sender.join()


def test_publisher_events(broker):
    publisher = rbmq.Publisher(broker.addr)
    assert publisher.fileno() >= 0
    assert publisher.next_event(0) is None
    writer = publisher.topic("t")
    with rbmq.Subscriber(broker.addr) as subscriber:
        subscriber.subscribe("t")
        event = publisher.next_event(WAIT)
        assert (event.kind, event.topic, event.count) == ("Subscribers", "t", 1)
        assert writer.subscribers == 1


def test_a_broker_that_dies_is_reported(broker):
    publisher, subscriber = rbmq.Publisher(broker.addr), rbmq.Subscriber(broker.addr)
    assert publisher.is_connected and subscriber.is_connected
    publisher.next_event(0)
    broker.stop()
    assert publisher.next_event(WAIT).kind == "Disconnected"
    deadline = time.monotonic() + WAIT
    while subscriber.next_event(0.1) is None and time.monotonic() < deadline:
        pass
    assert not publisher.is_connected
    with pytest.raises(rocketbufs.ConnectError, match="cannot connect to the broker"):
        rbmq.Subscriber(broker.addr)


def test_the_levels_of_the_disk(tmp_path):
    config = tmp_path / "rbmq.toml"
    config.write_text(f'[broker]\nkeep_dir = "{tmp_path}/kept"\n[[broker.topics]]\npattern = "k/#"\nkeep = true\n')
    with rbmq.Broker("127.0.0.1:0", config_file=config) as broker, rbmq.Publisher(broker.addr) as publisher:
        kept, plain = publisher.topic("k/a", ring_bytes=65536), publisher.topic("plain")
        end = kept.publish(b"kept")
        for level in ("stored", "synced"):
            confirmed = kept.confirm(end, level, WAIT)
            assert (confirmed.level, confirmed.subscribers) == (level, 0)
            assert kept.confirmed(level) >= end
        assert kept.confirmation(None, "synced").wait(WAIT).position >= end
        assert kept.disk_failure is None
        with pytest.raises(rocketbufs.ConfirmError, match="will not be stored.*keep = true") as error:
            plain.confirm(plain.publish(b"memory"), "stored", WAIT)
        assert (error.value.kind, error.value.confirmed) == ("NotStored", 0)


def test_topics_of_a_space_are_topics_as_others(tmp_path):
    config = tmp_path / "rbmq.toml"
    config.write_text("[[broker.topics]]\npattern = 'devices/#'\nspace = true\n")
    with (
        rbmq.Broker("127.0.0.1:0", config_file=config) as broker,
        rbmq.Publisher(broker.addr) as publisher,
        rbmq.Subscriber(broker.addr, confirm_consumed=True) as subscriber,
    ):
        temp, door = publisher.topic("devices/7/temp"), publisher.topic("devices/7/door")
        subscriber.subscribe("devices/+/temp")
        temp.wait_subscribers(1, WAIT)
        door.publish(b"open")
        end = temp.publish(b"21.5", content_type="text/plain")
        message = subscriber.recv(WAIT)
        assert (message, message.topic) == (b"21.5", "devices/7/temp")
        assert message.content_type == "text/plain"
        assert subscriber.recv(0) is None
        assert temp.confirm(end, "consumed", WAIT).subscribers == 1
        # The topics of a publisher share one log, and messages that are not wanted count as consumed.
        assert temp.publish_many([b"%d" % number for number in range(50)]) > end
        last = door.publish(b"closed")
        got = []
        while len(got) < 50:
            with subscriber.recv_batch(WAIT) as batch:
                assert batch.topic == "devices/7/temp"
                got += [bytes(record) for record in batch]
        assert got == [b"%d" % number for number in range(50)]
        door.publish(b"open")
        temp.publish(b"22")
        kept = subscriber.recv_batch(WAIT).defer()
        confirmation = door.confirmation(last, "consumed")
        kept.consume()
        assert confirmation.wait(WAIT).position >= last


@pytest.fixture
def with_spaces(tmp_path):
    """A broker with a space, out of which an earlier rule takes some topics, and one in which they have small rings."""
    config = tmp_path / "rbmq.toml"
    rules = [("devices/secret/#", "")] + [(pattern, "space = true") for pattern in ("devices/#", "small/#")]
    config.write_text("".join(f"[[broker.topics]]\npattern = '{pattern}'\n{rule}\n" for pattern, rule in rules))
    with rbmq.Broker("127.0.0.1:0", config_file=config) as broker:
        yield broker


def test_a_writer_of_a_space_publishes_to_its_topics(with_spaces):
    with (
        rbmq.Publisher(with_spaces.addr) as publisher,
        rbmq.Subscriber(with_spaces.addr, confirm_consumed=True) as subscriber,
        publisher.space("devices/#") as space,
    ):
        assert repr(space) == "SpaceWriter(pattern='devices/#')" and (space.pattern, space.log) == ("devices/#", "$space/devices")
        assert space.contains("devices/7") and not space.contains("devices/secret/7") and not space.contains("news")
        assert space.covers("devices/7/#") and not space.covers("devices/#")
        subscriber.subscribe("devices/+/temp")
        space.wait_subscribers(1, WAIT)
        says = {"reply_to": "answers", "properties": [("unit", "C")], "key": b"\xff"}
        first = space.publish_to("devices/7/temp", bytearray(b"21.5"), **says)
        assert space.publish_to("devices/7/door", b"open", WAIT) > first
        message = subscriber.recv(WAIT)
        assert (message, message.topic, message.reply_to, message.key) == (b"21.5", "devices/7/temp", "answers", b"\xff")
        assert message.attributes == {"topic": "devices/7/temp", **says}
        assert subscriber.recv(0) is None
        many = [(f"devices/{n}/temp", b"%d" % n, {"time_ms": n}) for n in range(100)]
        end = space.publish_many([("devices/7/door", b"shut"), *many])
        assert end == space.position
        # A batch of a space has the messages of one topic.
        for topic, data, attributes in many:
            with subscriber.recv_batch(WAIT) as batch:
                (held,) = batch
                assert (batch.topic, held.topic, bytes(held)) == (topic, topic, data)
                assert held.attributes == {"topic": topic, **attributes}
        assert subscriber.recv(0) is None
        confirmed = space.confirm(level="consumed", timeout=WAIT)
        assert confirmed.subscribers == space.subscribers == 1 and confirmed.position >= end
        assert space.confirmation(end, "consumed").wait(WAIT).position >= end and space.confirmed("consumed") >= end
        assert space.accept_lost("consumed") is None and space.disk_failure is None
        space.flush(WAIT)
        space.close()
        with pytest.raises(rocketbufs.Closed, match="the space is closed"):
            space.publish_to("devices/7/temp", b"")
        assert space.closed


def test_what_a_writer_of_a_space_refuses(with_spaces):
    with rbmq.Publisher(with_spaces.addr) as publisher, publisher.space("devices/#", ring_bytes=65536) as space:
        for topic, error in (("devices/secret/7", rocketbufs.PublishError), ("devices/+", ValueError), ("", ValueError)):
            with pytest.raises(error):
                space.publish_to(topic, b"x")
        with pytest.raises(rocketbufs.PublishError, match="is not in the space 'devices/#'") as error:
            space.publish_many([("devices/1", b"1"), ("devices/2", b"2"), ("news", b"3"), ("devices/4", b"4")])
        assert (error.value.kind, error.value.published) == ("NotInSpace", 2)
        with pytest.raises(rocketbufs.PublishError, match="TooLarge|too large") as error:
            space.publish_many([("devices/1", b"1"), ("devices/2", bytes(65536))])
        assert (error.value.kind, error.value.published) == ("TooLarge", 1)
        for wrong in (b"data", ("devices/1",), ("devices/1", "text"), (b"devices/1", b"x"), ("devices/1", b"x", 5), ("devices/1", b"x", {"no": 1})):
            with pytest.raises(TypeError):
                space.publish_many([wrong])
        with pytest.raises(TypeError):
            space.publish_to("devices/1", b"x", no_such_attribute=1)
        with pytest.raises(rocketbufs.PublishError, match="the call says the topic"):
            space.publish_many([("devices/1", b"x", {"topic": "devices/1"})])
        with pytest.raises(rocketbufs.TopicOpenError):
            publisher.space("devices/7/#")
        with pytest.raises(rocketbufs.TopicOpenError):
            publisher.space("devices/+")


def test_a_writer_of_a_space_waits_for_room(with_spaces):
    """One that is full raises `TimedOut`, and a waiting one goes on when the subscriber has read."""
    with (
        rbmq.Publisher(with_spaces.addr) as publisher,
        rbmq.Subscriber(with_spaces.addr) as subscriber,
        publisher.space("small/#", ring_bytes=65536) as space,
    ):
        subscriber.subscribe("small/#")
        space.wait_subscribers(1, WAIT)
        messages = [(f"small/{n % 7}", n.to_bytes(4) * 2000) for n in range(2000)]
        with pytest.raises(rocketbufs.TimedOut) as error:
            space.publish_many(messages, 0.5)
        done = error.value.published
        assert 0 < done < 2000
        with pytest.raises(rocketbufs.TimedOut):
            while True:
                space.publish_to("small/x", bytes(8000), 0)
        thread = threading.Thread(target=space.publish_many, args=(messages[done:],))
        thread.start()
        for topic, data in messages:
            while (message := subscriber.recv(WAIT)).topic == "small/x":
                pass
            assert (message.topic, message) == (topic, data)
        thread.join()


def test_a_log_that_replaces_a_merged_one_is_reported(tmp_path):
    config = tmp_path / "rbmq.toml"
    config.write_text('[[broker.topics]]\npattern = "#"\ningest = "merge"\n')
    serve = "import sys; from rocketbufs import rbmq; broker = rbmq.Broker(sys.argv[1], config_file=sys.argv[2]); "
    serve += "print(broker.addr, flush=True); sys.stdin.read()"

    def start(addr):
        command = [sys.executable, "-c", serve, addr, str(config)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return process, process.stdout.readline().strip()

    first, addr = start(own_addr())
    with first, rbmq.Publisher(addr) as publisher, rbmq.Subscriber(addr) as subscriber:
        subscriber.subscribe("x", "oldest")
        writer = publisher.topic("x", ring_bytes=65536)
        writer.publish(b"before")
        assert subscriber.recv(WAIT) == b"before"
        first.kill()
        first.wait()
        second, _ = start(addr)
        with second:
            kinds = {}
            while "Joined" not in kinds:
                event = subscriber.next_event(WAIT)
                assert event is not None
                if isinstance(event, rocketbufs.Event):
                    kinds[event.kind] = event
            replaced = kinds["LogReplaced"]
            assert (replaced.topic, replaced.epoch) == ("x", kinds["Joined"].epoch)
            second.kill()


def test_durable_subscribers_continue(broker):
    writer = rbmq.Publisher(broker.addr).topic("t")
    with rbmq.Subscriber(broker.addr, name="durable", hold=60) as subscriber:
        subscriber.subscribe("t")
        writer.wait_subscribers(1, WAIT)
        writer.publish(b"1")
        assert subscriber.recv(WAIT) == b"1"
    writer.publish(b"2")
    with rbmq.Subscriber(broker.addr, name="durable", hold=60) as subscriber:
        subscriber.subscribe("t")
        received = [bytes(subscriber.recv(WAIT))]
        if received == [b"1"]:
            received.append(bytes(subscriber.recv(WAIT)))
        assert received[-1] == b"2"
        with rbmq.Subscriber(broker.addr, name="durable", hold=60) as successor:
            successor.subscribe("t")
            with pytest.raises(rocketbufs.ReceiveError) as error:
                subscriber.recv(WAIT)
            assert error.value.kind == "TakenOver"


def test_slow_policies(broker):
    writer = rbmq.Publisher(broker.addr).topic("t")
    for slow in ("block", rbmq.SlowPolicy.block_for(5), rbmq.SlowPolicy.block_for(None), "disconnect"):
        rbmq.Subscriber(broker.addr, slow=slow).close()
    subscriber = rbmq.Subscriber(broker.addr, slow=rbmq.SlowPolicy.drop(200_000))
    subscriber.subscribe("t")
    writer.wait_subscribers(1, WAIT)
    for _ in range(100):
        writer.publish(bytes(100_000), WAIT)
    writer.flush(WAIT)
    with pytest.raises(rocketbufs.ReceiveError, match="bytes were lost") as error:
        while subscriber.recv(WAIT):
            pass
    assert error.value.kind == "Lost"


def test_an_observer(joined, broker):
    writer, subscriber = joined("seen")
    writer.publish(b"x")
    writer.flush(WAIT)
    with rbmq.Observer(broker.addr) as observer:
        assert observer.summary()["topics"] == 1
        assert [topic["topic"] for topic in observer.topics("#")] == ["seen"]
        detail = observer.topic("seen")
        assert detail["topic"] == "seen" and len(detail["buffers"][0]["subscriptions"]) == 1
    with pytest.raises(rocketbufs.Closed):
        observer.summary()


def test_shared_memory(broker):
    """Memory that another process may write is copied, and says so."""
    config = {"transport": "auto"}
    with rbmq.Publisher(broker.addr, config=config) as publisher:
        writer = publisher.topic("t")
        with rbmq.Subscriber(broker.addr, config=rocketbufs.Config(config)) as subscriber:
            subscriber.subscribe("t")
            writer.wait_subscribers(1, WAIT)
            writer.publish(b"mapped")
            with subscriber.recv_batch(WAIT) as batch:
                assert batch.to_list() == [b"mapped"]
            writer.publish(b"again")
            assert subscriber.recv(WAIT) == b"again"


def test_clients_share_a_context(broker):
    with rocketbufs.Context({"transport": "tcp"}) as context:
        assert "tcp" in repr(context.config).lower() and rocketbufs.Context(context.config).memory_in_use == 0
        with rbmq.Publisher(broker.addr, context=context) as publisher:
            with rbmq.Subscriber(broker.addr, context=context) as subscriber, publisher.topic("t") as topic:
                assert context.memory_in_use > 0
                subscriber.subscribe("t")
                topic.wait_subscribers(1, WAIT)
                topic.publish(b"shared")
                assert subscriber.recv(WAIT) == b"shared"
        # The context remains: the rings of the clients are gone.
        with rbmq.Publisher(broker.addr, context=context) as again:
            again.topic("u").close()
    for client in (rbmq.Publisher, rbmq.Subscriber):
        with pytest.raises(TypeError, match="not both"):
            client(broker.addr, config={}, context=context)
        with pytest.raises(rocketbufs.ConnectError):
            client(broker.addr, context=context)


def test_a_deferred_batch_is_consumed_later(joined):
    writer, subscriber = joined(confirm_consumed=True)
    end = writer.publish_many([b"one", b"two"])
    batch = subscriber.recv_batch(WAIT)
    messages, deferred = batch.to_list(), batch.defer()
    assert messages == [b"one", b"two"] and batch.released and deferred.epoch == batch.epoch
    with pytest.raises(rocketbufs.Released):
        batch.defer()
    writer.flush(WAIT)
    with pytest.raises(rocketbufs.ConfirmError):
        writer.confirm(end, "consumed", 0.1)
    deferred.consume()
    deferred.consume()
    assert writer.confirm(end, "consumed", WAIT).position >= end


def test_a_closed_publisher_takes_nothing(broker):
    publisher = rbmq.Publisher(broker.addr)
    writer = publisher.topic("c")
    writer.publish(b"before")
    writer.flush(WAIT)
    publisher.close()
    with pytest.raises(rocketbufs.PublishError) as error:
        writer.publish(b"after")
    assert error.value.kind == "Closed" and isinstance(error.value, rocketbufs.Closed)
    with pytest.raises(rocketbufs.PublisherWaitError):
        writer.flush()


def _failing(call, ended):
    try:
        call()
    except rocketbufs.Error as error:
        ended.append(error)


def test_a_shutdown_ends_all_waits(broker):
    context = rocketbufs.Context()
    subscriber = rbmq.Subscriber(broker.addr, context=context)
    subscriber.subscribe("nothing")
    writer = rbmq.Publisher(broker.addr, context=context).topic("t")
    ended, failed = [], []
    waits = [
        threading.Thread(target=_failing, args=(call, ended))
        for call in (subscriber.recv, lambda: writer.wait_subscribers(9))
    ]
    with rocketbufs.Dispatcher() as dispatcher:
        dispatcher.add(rbmq.Subscriber(broker.addr, context=context), lambda _: None, on_error=failed.append)
        for wait in waits:
            wait.start()
        context.shutdown()
        for wait in waits:
            wait.join()
        while not failed:
            time.sleep(0.01)
    assert [error.kind for error in ended + failed] == ["ShutDown"] * 3, "each error once"
    with pytest.raises(rocketbufs.PublishError, match="the context was shut down"):
        writer.publish(b"x", timeout=0)
