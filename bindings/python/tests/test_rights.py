"""The right to write a buffer alone, and the right to read an rIn alone."""

import threading
import time

import pytest
from conftest import WAIT

import rocketbufs
from rocketbufs import Event


def received(reader, count):
    """The bytes that the reader receives, as one, until there are so many."""
    got = b""
    while len(got) < count:
        bid, data = reader.recv(WAIT)
        assert bid == 7 and isinstance(data, bytes)
        got += data
    return got


def test_a_writer_writes_alone(ends):
    e = ends()
    e.subscribe()
    with e.buffer.writer() as writer:
        assert writer.bid == 7 and not writer.closed and writer.free_bytes > 0
        for taken in (lambda: e.buffer.append(b"x"), lambda: e.out.get_output_segment(7, 1, False)):
            with pytest.raises(rocketbufs.SegmentError):
                taken()
        with pytest.raises(rocketbufs.OutBufferError) as error:
            e.buffer.writer()
        assert error.value.kind == "WriterTaken"
        assert writer.append(b"one") == 3
        assert writer.append_parts([b"t", bytearray(b"w"), memoryview(b"o")]) == 6
        assert writer.append_many([b"th", b"re", b"e"]) == 11 == writer.head
        with writer.segment(4) as segment:
            segment.view[:] = b"four"
        assert writer.deliver(segment := writer.segment(9), 4) == 19 and segment.released
        writer.note_time()
    assert writer.closed and e.buffer.append(b"x") == 20
    view = b""
    while len(view) < 20:
        with e.input.recv(WAIT) as part:
            view += bytes(part)
    assert view == b"onetwothreefour\0\0\0\0x"


def test_a_closed_writer(ends):
    e = ends()
    writer = e.buffer.writer()
    segment, other = writer.segment(3), writer.segment(3)
    writer.close()
    writer.close()
    for call in (lambda: writer.append(b"x"), lambda: writer.segment(1), lambda: writer.append_many([b"x"]), lambda: writer.head):
        with pytest.raises(rocketbufs.Closed, match="writer"):
            call()
    # Its segments are the buffer's.
    with pytest.raises(rocketbufs.Closed):
        writer.deliver(other)
    segment.view[:] = b"abc"
    other.deliver(0)
    assert segment.deliver() == 3 and "OutWriter(7)" == repr(writer)
    e.buffer.destroy()
    with pytest.raises(rocketbufs.OutBufferError):
        e.buffer.writer()


def test_a_writer_waits_for_room(ends):
    e = ends()
    e.subscribe()
    writer = e.buffer.writer()
    with pytest.raises(rocketbufs.Full):
        while True:
            writer.append(bytes(200_000), 0)
    with pytest.raises(rocketbufs.TimedOut):
        while True:
            writer.append(bytes(200_000), 0.2)
    # Messages that the reader takes meanwhile make room, until it has no more room itself.
    published = 1
    while published:
        with pytest.raises(rocketbufs.SegmentError) as error:
            writer.append_many([bytes(200_000)] * 9, 0.05)
        assert isinstance(error.value, rocketbufs.TimedOut)
        published = error.value.published
    with pytest.raises(rocketbufs.TimedOut):
        while True:
            writer.segment(200_000, 0.05).deliver()
    with pytest.raises(rocketbufs.SegmentError) as error:
        writer.append(bytes(1 << 21))
    assert error.value.kind == "TooLarge"
    with pytest.raises(ValueError):
        writer.append(b"", -1)

    done = threading.Event()

    def consume():
        time.sleep(0.1)
        while not done.is_set():
            if isinstance(view := e.input.recv(0.1), rocketbufs.InView):
                view.consume()

    thread = threading.Thread(target=consume)
    thread.start()
    before = writer.head
    assert writer.append_many([bytes(200_000)] * 20, WAIT) == before + 4_000_000
    writer.segment(200_000, WAIT).deliver(0)
    done.set()
    thread.join()


def test_a_reader_reads_alone(ends):
    e = ends()
    subscription = e.subscribe()
    with e.input.reader() as reader:
        for taken in (lambda: e.input.recv(0), lambda: subscription.recv(0), e.input.reader):
            with pytest.raises(rocketbufs.RecvError) as error:
                taken()
            assert error.value.kind == "ReaderTaken"
        assert reader.recv(0) is None and reader.recv(0.01) is None
        for n in range(100):
            e.buffer.append(b"%03d" % n)
        assert received(reader, 300) == b"".join(b"%03d" % n for n in range(100))
        # Received data is released.
        e.buffer.wait("consumed", 300, WAIT)
        e.buffer.destroy()
        event = reader.recv(WAIT)
        assert (event.kind, event.bid, event.end) == ("Closed", 7, 300)
    assert reader.closed
    with pytest.raises(rocketbufs.Closed, match="reader"):
        reader.recv(0)
    assert e.input.recv(0) is None


def test_a_reader_of_shared_memory(ends):
    e = ends({"transport": "shm", "shm": {"busy_poll_us": 20}})
    e.subscribe()
    with e.buffer.writer() as writer, e.input.reader() as reader:
        for n in range(2000):
            writer.append(n.to_bytes(4, "little"))
            assert received(reader, 4) == n.to_bytes(4, "little")


def test_a_wait_of_a_reader_ends_with_close(ends):
    e = ends()
    e.subscribe()
    reader = e.input.reader()
    closer = threading.Timer(0.1, reader.close)
    closer.start()
    with pytest.raises(rocketbufs.Closed):
        reader.recv()
    closer.join()


def test_connections_of_others_are_reported(ends):
    import socket

    e = ends()
    foreign = []
    e.listener.set_foreign_conn_cb(foreign.append)
    host, port = e.listener.local_addr.split(":")
    with socket.create_connection((host, int(port))) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
        deadline = time.monotonic() + WAIT
        while not foreign and time.monotonic() < deadline:
            time.sleep(0.01)
        (event,) = foreign
        assert isinstance(event, Event) and event.kind == "Foreign" and event.reason == "Protocol"
        assert event.peer == "%s:%d" % plain.getsockname() and event.why
    e.listener.unset_foreign_conn_cb()


def test_durable_cursors_are_listed(ends):
    e = ends()
    e.subscribe(name="keeper", hold=60)
    assert e.buffer.subscriber_count == 1 and e.buffer.durable_cursors() == []
    e.conn.close("away")
    deadline = time.monotonic() + WAIT
    while not (cursors := e.buffer.durable_cursors()) and time.monotonic() < deadline:
        time.sleep(0.01)
    (cursor,) = cursors
    assert cursor.name == b"keeper" and 0 < cursor.expires_in <= 60 and e.buffer.subscriber_count == 0
