"""The framework: contexts, connections, buffers, subscriptions, callbacks and splices."""

import datetime
import gc
import selectors
import threading
import time
import weakref

import pytest
from conftest import WAIT

import rocketbufs
from rocketbufs import BufSeg, Conn, Context, Event, InView, Listener, RIn, ROut, cmq, rbmq


def test_a_delivery_arrives(ends):
    e = ends()
    subscription = e.subscribe()
    segment = e.out.get_output_segment(7, 5, False)
    segment.view[:] = b"hello"
    assert (segment.bid, segment.position, len(segment)) == (7, 0, 5)
    assert e.out.deliver(segment) == 5
    view = e.input.recv(WAIT)
    assert isinstance(view, InView) and bytes(view) == b"hello" and not view.copied
    assert (view.bid, view.position, view.end, len(view)) == (7, 0, 5, 5)
    assert memoryview(view).readonly
    view.consume()
    view.consume()
    with pytest.raises(rocketbufs.Released):
        memoryview(view)
    assert subscription.bid == 7 and subscription.position == (view.epoch, 5)
    assert subscription.info().boundary == 5
    e.buffer.wait("consumed", 5, WAIT)
    assert e.buffer.confirmed().consumed == 5
    assert rocketbufs.rIn is RIn and rocketbufs.rOut is ROut


def test_views_pin_and_refuse(ends):
    e = ends()
    e.subscribe()
    e.buffer.append(b"a" * 1000)
    view = e.input.recv(WAIT)
    memory = memoryview(view)
    for use in (view.consume, view.release, lambda: view.consume_up_to(5), lambda: view.consume_part(5)):
        with pytest.raises(BufferError, match="a buffer of the view"):
            use()
    with pytest.raises(rocketbufs.TimedOut):
        while True:
            e.buffer.append(bytes(200_000), 0.2)
    assert memory == b"a" * 1000
    memory.release()
    view.consume_part(400)
    assert len(view) == 600 and view.position == 400
    with view:
        assert bytes(view) == b"a" * 600
    assert view.released


def test_segments(ends):
    numpy = pytest.importorskip("numpy")
    e = ends()
    e.subscribe()
    with e.buffer.segment(80) as segment:
        numpy.frombuffer(segment, dtype="f8")[:] = range(10)
    view = e.input.recv(WAIT)
    assert numpy.frombuffer(view, dtype="f8").tolist() == list(range(10))
    first, second = e.buffer.segment(10), e.buffer.segment(10)
    with pytest.raises(rocketbufs.DeliverError, match="only the newest") as error:
        first.deliver(5)
    assert error.value.kind == "ShortDeliver"
    with pytest.raises(rocketbufs.DeliverError) as error:
        first.deliver(11)
    assert error.value.kind == "TooLong"
    other = e.out.create_buffer(8, 1 << 16)
    with pytest.raises(rocketbufs.DeliverError) as error:
        other.deliver(first)
    assert error.value.kind == "Foreign"
    second.deliver(0)
    e.buffer.deliver(first, 3)
    with pytest.raises(rocketbufs.Released):
        first.deliver()
    e.buffer.segment(10)
    gc.collect()
    assert e.buffer.append(b"x") == 84
    with pytest.raises(rocketbufs.SegmentError) as error:
        e.buffer.segment(0)
    assert error.value.kind == "Empty"


def test_full_is_an_outcome(ends):
    e = ends()
    e.subscribe()
    with pytest.raises(rocketbufs.Full) as error:
        while True:
            e.buffer.append(bytes(100_000), 0)
    assert isinstance(error.value, rocketbufs.SegmentError) and error.value.kind == "Full"
    with pytest.raises(rocketbufs.TimedOut):
        while True:
            e.buffer.append(bytes(100_000), 0.2)
    e.buffer.notify_progress("room")
    while (view := e.input.recv(0.2)) is not None:
        view.consume()
    kinds = set()
    while "Progress" not in kinds:
        kinds.add(e.out.recv_event(WAIT).kind)


def test_events_of_an_rout(ends):
    e = ends()
    e.subscribe(name="a name", hold=1, policy="block")
    event = e.out.recv_event(WAIT)
    assert (event.kind, event.bid, event.name, event.start, event.resumed) == ("Subscribed", 7, b"a name", 0, False)
    e.buffer.append(b"x", context=99)
    (subscriber,) = e.buffer.subscribers()
    assert subscriber.name == b"a name" and subscriber.policy == "block"
    with e.input.recv(WAIT):
        pass
    while True:
        event = e.out.recv_event(WAIT)
        if event.kind == "DataOut":
            break
    assert (event.bid, event.context) == (7, 99)
    e.input.unsubscribe(7)
    while event.kind != "Unsubscribed":
        event = e.out.recv_event(WAIT)
    assert event.reason
    info = e.buffer.info()
    assert (info.head, info.ended, info.received_bytes) == (1, False, 1)
    assert e.out.traffic().received_bytes == 1
    assert e.out.recv_event(0) is None


def test_the_end_of_a_buffer(ends):
    e = ends()
    subscription = e.subscribe()
    e.buffer.append(b"last")
    assert e.buffer.destroy() == 4
    e.out.drain(WAIT)
    with subscription.recv(WAIT) as view:
        assert bytes(view) == b"last"
    event = subscription.recv(WAIT)
    assert (event.kind, event.bid, event.end) == ("Closed", 7, 4)
    with pytest.raises(rocketbufs.RecvError) as error:
        subscription.recv(WAIT)
    assert error.value.kind == "NotSubscribed"
    with pytest.raises(rocketbufs.Closed):
        e.buffer.append(b"x")
    # The id is free when the reader's report has arrived.
    deadline = time.monotonic() + WAIT
    while e.out.buffers and time.monotonic() < deadline:
        time.sleep(0.01)
    assert e.out.buffer(7) is None


def test_control_messages(ends):
    e = ends()
    e.conn.send_control(b"to the rOut")
    event = None
    while event is None or event.kind != "Control":
        event = e.out.recv_event(WAIT)
    assert event.message == b"to the rOut"
    got = []
    e.out.set_control_msg_cb(lambda conn, message: (got.append(message), conn.send_control(b"answer")))
    e.input.send_control(bytearray(b"question"))
    event = e.input.recv(WAIT)
    assert (event.kind, event.message) == ("Control", b"answer") and got == [b"question"]
    e.out.unset_control_msg_cb()
    with pytest.raises(rocketbufs.ControlError) as error:
        e.conn.send_control(bytes(e.conn.max_control_bytes + 1))
    assert error.value.kind == "TooLarge"


def test_data_callbacks(ends):
    e = ends()
    got, kept, late = [], [], []
    done = threading.Event()

    def on_data(bid, seg):
        got.append((bid, bytes(seg), seg.position, seg.end))
        late.append(seg)
        if not kept:
            kept.append(memoryview(seg))
        e.input.data_consumed(bid, len(seg))
        if sum(len(data) for _, data, _, _ in got) == 6:
            done.set()

    e.input.set_data_in_cb(on_data)
    e.input.subscribe(7, 1 << 20)
    while not e.buffer.subscribers():
        time.sleep(0.01)
    e.buffer.append(b"one")
    e.buffer.wait("consumed", 3, WAIT)
    e.buffer.append(b"two")
    assert done.wait(WAIT)
    assert [bid for bid, *_ in got] == [7] * len(got) and b"".join(data for _, data, _, _ in got) == b"onetwo"
    # A memoryview that outlives the callback has its bytes; a segment does not.
    assert kept[0] == b"one"
    e.input.unset_data_in_cb()
    with pytest.raises(rocketbufs.Released):
        memoryview(late[-1])
    assert isinstance(late[-1], BufSeg) and len(late[-1]) == 3
    kept.clear()


def test_an_exception_in_a_callback_closes_its_connection(ends, monkeypatch):
    e = ends()
    seen = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: seen.append(report.exc_type))
    e.input.set_data_in_cb(lambda bid, seg: 1 / 0)
    e.input.subscribe(7, 1 << 20)
    while not e.buffer.subscribers():
        time.sleep(0.01)
    e.buffer.append(b"x")
    assert e.conn.wait_down(WAIT) is not None
    assert seen == [ZeroDivisionError]


def test_a_callback_must_not_wait(ends):
    e = ends()
    seen = []

    def on_data(bid, seg):
        while e.input.recv(0):
            pass
        for call in (
            lambda: e.input.recv(1),
            lambda: e.buffer.wait("consumed", 99, 1),
            lambda: e.conn.wait_down(1),
            lambda: Conn(e.context, e.listener.local_addr),
            lambda: Listener(e.context, "127.0.0.1:0"),
            lambda: e.context.shutdown(),
            lambda: rocketbufs.rbmq.Publisher("127.0.0.1:1"),
        ):
            try:
                call()
                seen.append(None)
            except rocketbufs.CalledFromWorker as error:
                seen.append(type(error))
        done.set()

    import rocketbufs.rbmq

    done = threading.Event()
    e.input.set_data_in_cb(on_data)
    e.input.subscribe(7, 1 << 20)
    while not e.buffer.subscribers():
        time.sleep(0.01)
    e.buffer.append(b"x")
    assert done.wait(WAIT)
    assert len(seen) == 7 and None not in seen
    e.input.unset_data_in_cb()


def test_callbacks_are_freed_when_they_are_unset(ends):
    e = ends()

    class Callback:
        def __call__(self, *arguments):
            pass

    for end, names in (
        (e.out, ["data_out", "subscriber_progress", "control_msg", "event"]),
        (e.input, ["data_in", "control_msg", "event"]),
        (e.listener, ["conn"]),
    ):
        for name in names:
            callback = Callback()
            alive = weakref.ref(callback)
            getattr(end, f"set_{name}_cb")(callback)
            del callback
            getattr(end, f"unset_{name}_cb")()
            gc.collect()
            assert alive() is None, name


def test_event_callbacks(ends):
    e = ends()
    seen, out_seen = [], []
    e.input.set_event_cb(seen.append)
    e.out.set_event_cb(out_seen.append)
    e.out.set_subscriber_progress_cb(out_seen.append)
    e.out.set_data_out_cb(lambda bid, context: out_seen.append((bid, context)))
    e.input.subscribe(7, 1 << 20)
    deadline = time.monotonic() + WAIT
    while not (seen and out_seen) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert seen[0].kind == "Subscribed" and out_seen[0].kind == "Subscribed"
    e.buffer.append(b"x", context=5)
    with e.input.recv(WAIT):
        pass
    e.buffer.wait("consumed", 1, WAIT)
    while (7, 5) not in out_seen and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (7, 5) in out_seen
    assert any(isinstance(event, Event) and event.kind == "SubscriberProgress" for event in out_seen)
    for unset in (e.out.unset_event_cb, e.out.unset_subscriber_progress_cb, e.out.unset_data_out_cb):
        unset()


def test_splices_forward(ends):
    e = ends()
    broker = Context()
    out = ROut(broker)
    listener = Listener(broker, "127.0.0.1:0")
    listener.set_conn_cb(out.add_conn)
    upstream = RIn(Conn(broker, e.listener.local_addr))
    spliced = out.splice_with(upstream, 7, 70, 1 << 20, policy="block")
    assert (spliced.bid, [buffer.bid for buffer in out.buffers]) == (70, [70])
    subscriber = RIn(Conn(broker, listener.local_addr))
    subscriber.subscribe(70, 1 << 20, start="oldest")
    while not e.buffer.subscribers():
        time.sleep(0.01)
    e.buffer.append(b"through")
    while not isinstance(view := subscriber.recv(WAIT), InView):
        assert view.kind == "Subscribed"
    assert bytes(view) == b"through"
    view.consume()
    e.buffer.wait("consumed", 7, WAIT)
    with pytest.raises(rocketbufs.OutBufferError):
        out.splice(upstream, 7)
    with pytest.raises(rocketbufs.SegmentError) as error:
        spliced.append(b"x")
    assert error.value.kind == "Spliced"
    broker.shutdown()


def test_connections(ends):
    e = ends()
    assert e.conn.is_up and e.conn.down_reason is None and e.conn.carrier[0] == "tcp"
    assert e.conn.peer_addr == e.listener.local_addr and e.conn.peer_instance == e.context.instance
    event = e.conn.recv_event(WAIT)
    assert event.kind == "Up" and e.conn.recv_event(0) is None
    e.listener.unset_conn_cb()
    conn = Conn.start(e.context, e.listener.local_addr, b"hello")
    offered = e.listener.accept(WAIT)
    assert offered.peer_hello == b"hello"
    offered.reject("not today")
    with pytest.raises(rocketbufs.ConnError, match="not accepted: not today") as error:
        conn.wait_up(WAIT)
    assert error.value.kind == "Down"
    reason = conn.wait_down(WAIT)
    assert (reason.kind, reason.code) == ("Peer", "NotAccepted") and "not today" in reason.text
    e.conn.close("enough")
    assert e.conn.wait_down(WAIT).kind == "Local"
    while (event := e.input.recv(WAIT)).kind != "ConnDown":
        pass
    assert event.reason.text
    assert e.listener.accept(0.01) is None


def test_an_rin_resumes_over_another_connection(ends):
    e = ends()
    e.subscribe()
    e.buffer.append(b"one")
    e.input.recv(WAIT).consume()
    e.conn.close("moved")
    e.conn.wait_down(WAIT)
    e.buffer.append(b"two")
    e.input.resume(Conn(e.context, e.listener.local_addr))
    while not isinstance(received := e.input.recv(WAIT), InView):
        assert received.kind in ("ConnDown", "Subscribed", "Lost"), received
    assert bytes(received) == b"two"


@pytest.mark.parametrize("start", ["oldest", "first", "last", datetime.timedelta(seconds=60)])
def test_starts(ends, start):
    e = ends()
    e.buffer.append(b"before")
    e.subscribe(start=start)
    assert bytes(e.input.recv(WAIT)) == b"before"


def test_a_position_is_a_start(ends):
    e = ends()
    for data in (b"one", b"two"):
        e.buffer.append(data)
    e.subscribe(start=(e.buffer.info().epoch, 3))
    assert bytes(e.input.recv(WAIT)) == b"two"


def test_overwritable_buffers_report_laps(ends):
    e = ends(flow_control=False)
    e.subscribe(policy="overwrite")
    e.buffer.append(b"first")
    view = e.input.recv(WAIT)
    assert view.copied and bytes(view) == b"first"
    e.buffer.append(b"again")
    view = e.input.recv(WAIT)
    for _ in range(100):
        e.buffer.append(bytes(100_000))
    deadline = time.monotonic() + WAIT
    lost = False
    while not lost and time.monotonic() < deadline:
        received = e.input.recv(1)
        lost = isinstance(received, Event) and received.kind == "Lost"
    assert lost
    with pytest.raises(rocketbufs.LappedError):
        bytes(view)


def test_shared_memory_is_copied_unless_it_is_trusted(ends):
    for trust in (False, True):
        e = ends({"transport": "auto", "shm.trust_writers": trust})
        e.subscribe()
        assert e.conn.carrier[0] == "shm"
        e.buffer.append(b"mapped")
        view = e.input.recv(WAIT)
        assert view.copied is not trust and bytes(view) == b"mapped"
        view.consume()


def test_limits_and_budgets(ends):
    e = ends()
    e.buffer.set_limits(policies=["block"], block_timeout=1.0, max_hold=5)
    e.input.subscribe(7, 1 << 20, policy="drop")
    event = e.input.recv(WAIT)
    assert (event.kind, event.code) == ("Refused", "PolicyNotAllowed") and "block" in event.reason
    budget = rocketbufs.Budget(8 << 20)
    e.input.subscribe(7, 1 << 20, budget=budget, block_timeout=None, linger=1, own_memory=True, confirm="on_consume")
    assert e.input.recv(WAIT).kind == "Subscribed"
    assert budget.bytes == 8 << 20 and budget.in_use_bytes >= 0
    assert [subscription.bid for subscription in e.input.subscriptions] == [7]
    assert e.input.subscription(7).bid == 7 and e.input.subscription(8) is None


def test_descriptors_are_readable_while_there_is_something(ends):
    e = ends()
    e.listener.unset_conn_cb()
    with selectors.DefaultSelector() as selector:
        for end in (e.input, e.out, e.conn, e.listener):
            selector.register(end.fileno(), selectors.EVENT_READ, end)

        def ready(timeout=WAIT):
            return {key.data for key, _ in selector.select(timeout)}

        while e.out.recv_event(0) or e.conn.recv_event(0):
            pass
        assert ready(0.2) == set()
        e.conn.send_control(b"x")
        assert ready() == {e.out}
        while e.out.recv_event(0):
            pass
        other = Conn.start(e.context, e.listener.local_addr)
        assert ready() == {e.listener}
        assert e.listener.accept(0).reject() is None
        other.wait_down(WAIT)
        e.conn.close()
        e.conn.wait_down(WAIT)
        down, deadline = set(), time.monotonic() + WAIT
        while not down >= {e.conn, e.input} and time.monotonic() < deadline:
            down |= ready()
        assert down >= {e.conn, e.input}


WRONG = {
    "no such option": (lambda e: e.input.subscribe(7, frame=1), TypeError, "frame"),
    "no such policy": (lambda e: e.input.subscribe(7, policy="wait"), ValueError, "overwrite"),
    "no such start": (lambda e: e.input.subscribe(7, start="begin"), ValueError, "oldest"),
    "a start of the wrong type": (lambda e: e.input.subscribe(7, start=5), TypeError, "timedelta"),
    "no such mode": (lambda e: e.input.subscribe(7, confirm="late"), ValueError, "on_consume"),
    "a hold without a name": (lambda e: e.input.subscribe(7, hold=5), ValueError, "name"),
    "a name too long": (lambda e: e.input.subscribe(7, name="x" * 300), rocketbufs.SubscribeError, "300 bytes"),
    "a ring too large": (lambda e: e.input.subscribe(7, 1 << 50), rocketbufs.SubscribeError, "max_ring_bytes"),
    "a budget of the wrong type": (lambda e: e.input.subscribe(7, budget=5), TypeError, "Budget"),
    "a negative id": (lambda e: e.input.subscribe(-1), OverflowError, ""),
    "an id too large": (lambda e: e.out.create_buffer(1 << 32), OverflowError, ""),
    "an id that is taken": (lambda e: e.out.create_buffer(7), rocketbufs.OutBufferError, "exists already"),
    "no such buffer": (lambda e: e.out.get_output_segment(9, 5), rocketbufs.SegmentError, "no buffer 9"),
    "destroy no buffer": (lambda e: e.out.destroy_buffer(9), rocketbufs.OutBufferError, "no buffer 9"),
    "splice no subscription": (lambda e: e.out.splice(e.input, 9), rocketbufs.OutBufferError, "no buffer 9"),
    "consume without a subscription": (lambda e: e.input.data_consumed(9, 5), rocketbufs.RecvError, "9"),
    "a view without a subscription": (lambda e: e.input.get_buf_ref(9), rocketbufs.RecvError, "9"),
    "a rOut as a connection": (lambda e: e.out.add_conn(e.out), TypeError, "Conn"),
    "a rOut as a context": (lambda e: ROut(e.out), TypeError, "Context"),
    "a hello that is too long": (lambda e: Conn(e.context, "127.0.0.1:1", bytes(9999)), rocketbufs.ConnError, "hello"),
    "nobody listens": (lambda e: Conn(e.context, "127.0.0.1:1"), rocketbufs.ConnError, ""),
    "no address": (lambda e: Conn(e.context, "nowhere"), rocketbufs.ConnError, "nowhere"),
    "an address in use": (lambda e: Listener(e.context, e.listener.local_addr), rocketbufs.ListenError, "in use"),
    "an unknown level": (lambda e: e.buffer.wait("read", 5), ValueError, "landed"),
    "a position that does not come": (lambda e: e.buffer.wait("landed", 5, 0.01), rocketbufs.TimedOut, "0"),
    "an unknown progress": (lambda e: e.buffer.notify_progress("space"), TypeError, "room"),
    "append text": (lambda e: e.buffer.append("x"), TypeError, "bytes-like"),
    "append nothing": (lambda e: e.buffer.append(b""), rocketbufs.SegmentError, "no bytes"),
    "append too much": (lambda e: e.buffer.append(bytes(1 << 20)), rocketbufs.SegmentError, "at most"),
    "deliver bytes": (lambda e: e.buffer.deliver(b"x"), TypeError, "OutSegment"),
    "an unknown limit": (lambda e: e.buffer.set_limits(policies=["wait"]), ValueError, "wait"),
    "a setting without sense": (lambda e: Context({"tcp.tcp_num_threads": -1}), rocketbufs.ConfigError, "tcp_num_threads"),
    "a callback that is none": (lambda e: e.input.set_data_in_cb(), TypeError, "callback"),
    "make a view": (lambda e: InView(), TypeError, "InView"),
}


def test_wrong_calls_are_exceptions(ends):
    e = ends()
    e.listener.unset_conn_cb()
    for name, (call, exception, text) in WRONG.items():
        with pytest.raises(exception) as raised:
            call(e)
            pytest.fail(name)
        assert text in str(raised.value), (name, str(raised.value))


def test_a_context_that_was_shut_down_refuses():
    context = Context()
    out = ROut(context)
    buffer = out.create_buffer(1, 1 << 16)
    with context:
        pass
    with pytest.raises(rocketbufs.Error):
        Listener(context, "127.0.0.1:0")
    with pytest.raises(rocketbufs.Error):
        Conn(context, "127.0.0.1:1")
    with pytest.raises(rocketbufs.SegmentError) as error:
        buffer.append(b"x")
    assert error.value.kind == "Closed"
    assert context.memory_in_use >= 1 << 16 and context.mapped == (0, 0)


def test_a_callback_closes_nothing_that_would_wait(ends, broker):
    """The call is refused as a whole: what is closed would not be flushed."""
    publisher, subscriber, queue = rbmq.Publisher(broker.addr), rbmq.Subscriber(broker.addr), cmq.new_rq("127.0.0.1:0")
    mailbox = queue.mailbox(1)
    handles = [publisher.topic("t"), publisher, subscriber, mailbox, queue]
    e, done = ends(), []

    def on_data(bid, seg):
        for close in (*(handle.close for handle in handles), broker.stop):
            with pytest.raises(rocketbufs.CalledFromWorker):
                close()
        done.append([handle.closed for handle in handles if handle is not mailbox])

    e.subscribe()
    e.input.set_data_in_cb(on_data)
    e.buffer.append(b"x")
    until = time.monotonic() + WAIT
    while not done:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert done == [[False] * 4]
    for handle in handles:
        handle.close()
