"""Signals, forks, threads, and the end of the interpreter: each in a process of its own where it needs one."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import WAIT, own_addr

import rocketbufs
from rocketbufs import _errors, cmq, rbmq

BEGIN = """
import os, signal, sys, threading, time
import rocketbufs
from rocketbufs import rbmq
broker = rbmq.Broker("127.0.0.1:0")
publisher, subscriber = rbmq.Publisher(broker.addr), rbmq.Subscriber(broker.addr)
writer = publisher.topic("t")
subscriber.subscribe("t")
writer.wait_subscribers(1, 20)
"""


def run(program, *, code=0):
    """Runs a program, which must end by itself, and returns its output."""
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", "-c", BEGIN + program, own_addr()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.parametrize("threads", ["cmq.Cmq('127.0.0.1:0')", "rocketbufs.Dispatcher()"])
def test_a_signal_waits_for_the_thread_that_takes_it(threads):
    """SIGTERM, blocked and taken by sigwait, would end the process on a thread of the library."""
    program = f"""
from rocketbufs import cmq
has_threads = {threads}
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM}})
os.kill(os.getpid(), signal.SIGTERM)
print(signal.sigwait({{signal.SIGTERM}}).name)
"""
    assert run(program) == "SIGTERM\n"


WAITS = {
    "recv": "subscriber.recv()",
    "recv_batch": "subscriber.recv_batch()",
    "iteration": "next(subscriber)",
    "next_event": "[subscriber.next_event() for _ in range(100)]",
    "publish": "[writer.publish(bytes(100_000)) for _ in range(100)]",
    "publish_many": "writer.publish_many([bytes(60_000)] * 100)",
    "segment": "[writer.segment(100_000).publish() for _ in range(100)]",
    "confirm": "writer.publish(b'x'); batch = subscriber.recv_batch(); writer.confirm(level='consumed')",
    "confirmation": "writer.publish(b'x'); batch = subscriber.recv_batch(); writer.confirmation(None, 'consumed').wait()",
    "wait_subscribers": "writer.wait_subscribers(2)",
    "publisher events": "[publisher.next_event() for _ in range(10)]",
    "flush": "broker.stop(); writer.publish(b'x'); writer.flush()",
    "recv beside others": "[threading.Thread(target=subscriber.recv, daemon=True).start() for _ in range(2)]; subscriber.recv()",
}


@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c_ends_a_call_that_waits(name):
    program = f"""
if {name == "confirm" or name == "confirmation"}:
    subscriber.close()
    subscriber = rbmq.Subscriber(broker.addr, confirm_consumed=True)
    subscriber.subscribe("t")
    while writer.subscribers != 1 or subscriber.next_event(20).kind != "Joined":
        pass
main = threading.main_thread().ident
try:
    threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    {WAITS[name]}
    print("returned")
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run(program) == "interrupted\n"


def test_other_threads_run_while_a_call_waits(joined):
    writer, subscriber = joined()
    done = []
    thread = threading.Thread(target=lambda: done.append(subscriber.recv(WAIT)))
    thread.start()
    turns = 0
    until = time.monotonic() + 0.3
    while turns < 1000 or time.monotonic() < until:
        turns += 1
    assert not done
    writer.publish(b"now")
    thread.join(WAIT)
    assert done == [b"now"]


def test_threads_share_a_writer_and_a_subscriber(broker):
    publisher = rbmq.Publisher(broker.addr)
    writer = publisher.topic("t")
    subscriber = rbmq.Subscriber(broker.addr, until_ended=True)
    subscriber.subscribe("t")
    writer.wait_subscribers(1, WAIT)
    received, lock = [], threading.Lock()

    def publish(number):
        for n in range(500):
            writer.publish(b"%d-%d" % (number, n))

    def receive():
        while (message := subscriber.recv(WAIT)) is not None:
            with lock:
                received.append(bytes(message))

    readers = [threading.Thread(target=receive) for _ in range(2)]
    writers = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    writer.close()
    for thread in readers:
        thread.join(WAIT)
    assert sorted(received) == sorted(b"%d-%d" % (number, n) for number in range(4) for n in range(500))


def test_calls_of_other_threads_go_between_the_steps_of_a_wait(joined):
    writer, subscriber = joined()
    thread = threading.Thread(target=subscriber.recv, args=(WAIT,))
    thread.start()
    for n in range(5):
        subscriber.subscribe(f"other/{n}")
        assert not subscriber.ended
    writer.publish(b"end")
    thread.join(WAIT)
    assert not thread.is_alive()


def test_a_call_that_waits_beside_others_looks_at_its_time_limit(joined, broker):
    """It has its turn among many, which all still wait afterwards."""
    writer, subscriber = joined()
    received = []
    receivers = [threading.Thread(target=lambda: received.append(bytes(subscriber.recv(WAIT)))) for _ in range(30)]
    waiters = [threading.Thread(target=writer.wait_subscribers, args=(3, WAIT)) for _ in range(30)]
    for thread in receivers + waiters:
        thread.start()
    for _ in range(5):
        assert subscriber.recv(0.3) is None
        with pytest.raises(rocketbufs.PublisherWaitError, match="1 of 2"):
            writer.wait_subscribers(2, 0.3)
        assert received == [] and all(thread.is_alive() for thread in receivers + waiters)
    messages = [b"%02d" % n for n in range(30)]
    writer.publish_many(messages)
    with rbmq.Subscriber(broker.addr) as second, rbmq.Subscriber(broker.addr) as third:
        second.subscribe("t")
        third.subscribe("t")
        for thread in receivers + waiters:
            thread.join(WAIT)
    assert sorted(received) == messages


def test_a_handler_forks_while_calls_wait():
    program = """
threading.Thread(target=subscriber.recv, daemon=True).start()
forked = []
signal.signal(signal.SIGUSR1, lambda *_: forked.append(os.fork()))
main = threading.main_thread().ident
threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGUSR1)).start()
try:
    while not forked:
        assert subscriber.recv(1) is None
    assert forked[0] != 0
except rocketbufs.Forked:
    os._exit(7)
_, status = os.waitpid(forked[0], 0)
print(os.waitstatus_to_exitcode(status))
"""
    assert run(program) == "7\n"


def test_a_child_cannot_use_what_was_made_before_the_fork():
    program = """
writer.publish(b"before")
batch = subscriber.recv_batch(20)
message = next(iter(batch))
segment = writer.segment(5)
child = os.fork()
if child == 0:
    wrong = 0
    for call in (
        lambda: writer.publish(b"x"), lambda: writer.segment(1), lambda: subscriber.recv(0), lambda: batch.release(),
        lambda: bytes(message), lambda: memoryview(batch), lambda: segment.publish(), lambda: broker.stop(),
        lambda: publisher.topic("u"), lambda: writer.close(), lambda: subscriber.close(), lambda: writer.confirm(),
    ):
        try:
            call()
            wrong += 1
        except rocketbufs.Forked as error:
            assert "before a fork" in str(error)
    # New objects work, and destroying the old ones does nothing.
    del batch, message, segment, subscriber
    with rbmq.Subscriber(broker.addr) as own:
        own.subscribe("child")
        with rbmq.Publisher(broker.addr) as other, other.topic("child") as topic:
            topic.wait_subscribers(1, 20)
            topic.publish(b"hello")
            wrong += own.recv(20) != b"hello"
    sys.exit(wrong)
_, status = os.waitpid(child, 0)
segment.cancel()
batch.release()
writer.publish(b"after")
assert subscriber.recv(20) == b"after"
print(os.waitstatus_to_exitcode(status))
"""
    assert run(program) == "0\n"


def test_multiprocessing_with_fork():
    program = """
import multiprocessing
def work(addr, queue):
    with rbmq.Publisher(addr) as publisher, publisher.topic("t") as topic:
        topic.publish(b"from a child")
    queue.put("done")
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=work, args=(broker.addr, queue))
child.start()
print(bytes(subscriber.recv(20)).decode(), queue.get(timeout=20))
child.join()
print(child.exitcode)
"""
    assert run(program) == "from a child done\n0\n"


def test_a_child_reconnects_although_its_parent_has_clients():
    program = """
import subprocess
SERVE = "import sys; from rocketbufs import rbmq; b = rbmq.Broker(sys.argv[1]); print(b.addr, flush=True); sys.stdin.read()"
def serve(addr):
    command = [sys.executable, "-c", SERVE, addr]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return server, server.stdout.readline().strip()
server, addr = serve(sys.argv[1])
parent = rbmq.Publisher(addr)
ready, go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    own = rbmq.Subscriber(addr)
    own.subscribe("child")
    os.write(ready[1], b"1")
    os.read(go[0], 1)
    end = time.monotonic() + 40
    while time.monotonic() < end:
        event = own.next_event(1)
        if event is not None and event.kind == "Reconnected":
            os._exit(0)
    os._exit(1)
os.read(ready[0], 1)
server.kill()
server.wait()
server, _ = serve(addr)
os.write(go[1], b"1")
_, status = os.waitpid(child, 0)
server.kill()
print(os.waitstatus_to_exitcode(status))
"""
    assert run(program) == "0\n"


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(0)",
        "batch = subscriber.recv_batch(20); view = memoryview(batch)",
        "segment = writer.segment(10); view = segment.view",
        "threading.Thread(target=subscriber.recv, daemon=True).start(); time.sleep(0.2)",
        "iterator = iter(subscriber); next(iterator)",
        "import gc; gc.freeze()",
    ],
)
def test_the_interpreter_ends_with_live_clients(end):
    run("writer.publish(b'x')\n" + end)


def test_a_thread_that_waits_does_not_keep_the_interpreter():
    run("threading.Thread(target=subscriber.recv, args=(0.5,)).start()\nprint(1)")


def test_signals_of_other_kinds_run_their_handlers(joined):
    writer, subscriber = joined()
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    sender = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        sender.start()
        while not seen:
            assert subscriber.recv(0.5) is None
    finally:
        # A signal that comes after its handler has gone ends the process.
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert seen == [1]


FRAMEWORK = """
import queue
context = rocketbufs.Context()
out = rocketbufs.ROut(context)
buffer = out.create_buffer(7, 1 << 20)
listener = rocketbufs.Listener(context, "127.0.0.1:0")
listener.set_conn_cb(out.add_conn)
conn = rocketbufs.Conn(context, listener.local_addr)
rin = rocketbufs.RIn(conn)
"""


FRAMEWORK_WAITS = {
    "recv": "rin.recv()",
    "recv of a subscription": "subscription = rin.subscribe(7); [subscription.recv() for _ in range(9)]",
    "rout events": "[out.recv_event() for _ in range(9)]",
    "conn events": "[conn.recv_event() for _ in range(9)]",
    "wait_down": "conn.wait_down()",
    "accept": "listener.unset_conn_cb(); listener.accept()",
    "wait": "buffer.wait('consumed', 5)",
    "append": "rin.subscribe(7); out.recv_event(); [buffer.append(bytes(100_000)) for _ in range(99)]",
    "drain": "rin.subscribe(7); out.recv_event(); buffer.append(b'x'); conn.close(); time.sleep(.2); buffer.destroy(); "
    "rin2 = rocketbufs.RIn(rocketbufs.Conn.start(context, listener.local_addr)); rin2.recv()",
}


@pytest.mark.parametrize("name", FRAMEWORK_WAITS)
def test_ctrl_c_ends_a_call_of_the_framework(name):
    program = f"""
main = threading.main_thread().ident
try:
    threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    {FRAMEWORK_WAITS[name]}
    print("returned")
except KeyboardInterrupt:
    print("interrupted")
"""
    assert run(FRAMEWORK + program) == "interrupted\n"


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "threading.Thread(target=rin.recv, daemon=True).start()", "del context, rin"])
def test_the_interpreter_ends_while_callbacks_run(end):
    """Callbacks run all the time on several workers, and slow ones are in the middle of a call."""
    program = """
count = 0
def on_data(bid, seg):
    global count
    count += 1
    rin.data_consumed(bid, len(seg))
    sum(range(2000))
    time.sleep(0.001)
rin.set_data_in_cb(on_data)
out.set_event_cb(lambda event: time.sleep(0.01))
out.set_subscriber_progress_cb(lambda event: None)
rin.subscribe(7, 1 << 20)
while not buffer.subscribers():
    time.sleep(0.01)
def write():
    try:
        while True:
            buffer.append(bytes(1000), 1)
    except rocketbufs.Error:
        pass
threading.Thread(target=write, daemon=True).start()
while count < 20:
    time.sleep(0.01)
"""
    for _ in range(3):
        run(FRAMEWORK + program + end)


def test_a_child_cannot_use_the_framework_of_its_parent():
    program = """
rin.subscribe(7)
rin.recv(20)
buffer.append(b"x")
view = rin.recv(20)
segment = buffer.segment(5)
child = os.fork()
if child == 0:
    wrong = 0
    for call in (
        lambda: buffer.append(b"x"), lambda: rin.recv(0), lambda: out.recv_event(0), lambda: conn.is_up,
        lambda: listener.accept(0), lambda: context.memory_in_use, lambda: bytes(view), lambda: segment.deliver(),
        lambda: view.consume(), lambda: rocketbufs.ROut(context), lambda: conn.close(),
    ):
        try:
            call()
            wrong += 1
        except rocketbufs.Forked:
            pass
    del context, out, buffer, rin, view, segment, conn, listener
    own = rocketbufs.Context()
    rocketbufs.ROut(own).create_buffer(1).append(b"x")
    own.shutdown()
    sys.exit(wrong)
_, status = os.waitpid(child, 0)
segment.deliver()
view.consume()
print(os.waitstatus_to_exitcode(status))
"""
    assert run(FRAMEWORK + program) == "0\n"


def test_objects_die_in_any_order(broker):
    publisher = rbmq.Publisher(broker.addr)
    writer = publisher.topic("t")
    subscriber = rbmq.Subscriber(broker.addr)
    subscriber.subscribe("t")
    writer.wait_subscribers(1, WAIT)
    writer.publish(b"x")
    batch = subscriber.recv_batch(WAIT)
    confirmation = writer.confirmation(None, "consumed")
    del publisher, subscriber
    assert batch.to_list() == [b"x"]
    writer.publish(b"y")
    segment = writer.segment(3)
    del writer
    with pytest.raises(rocketbufs.Error):
        segment.publish(4)
    segment.publish()
    del segment, confirmation, batch


CALLBACKS = """
import rocketbufs
context = rocketbufs.Context()
out = rocketbufs.ROut(context)
buffer = out.create_buffer(7, 1 << 20)
listener = rocketbufs.Listener(context, "127.0.0.1:0")
listener.set_conn_cb(out.add_conn)
rin = rocketbufs.RIn(rocketbufs.Conn(context, listener.local_addr))
got = threading.Semaphore(0)
rin.set_data_in_cb(lambda bid, seg: got.release())
rin.subscribe(7)
while not buffer.subscribers():
    time.sleep(0.01)
"""
IN_SUB_INTERPRETER = """
try:
    import rocketbufs
except ImportError as error:
    assert "main interpreter" in str(error), error
else:
    raise AssertionError("imported")
"""
MAIN_INTERPRETER = """
import threading, time
try:
    import _xxsubinterpreters as interpreters
    other, run = interpreters.create(isolated=False), interpreters.run_string
except ImportError:
    import _interpreters as interpreters
    other, run = interpreters.create("legacy"), interpreters.exec
BEFORE
failed = run(other, PROGRAM)
assert not failed, failed
interpreters.destroy(other)
AFTER
print("end")
"""


@pytest.mark.parametrize(("before", "after"), [("", ""), (CALLBACKS, "buffer.append(b'x')\nassert got.acquire(timeout=20)")])
def test_a_sub_interpreter_is_refused_and_ends_nothing(before, after):
    """Its end would end the callbacks of all, and hang on 3.11."""
    program = MAIN_INTERPRETER.replace("BEFORE", before).replace("AFTER", after).replace("PROGRAM", repr(IN_SUB_INTERPRETER))
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_an_exception_is_made_outside_of_locks(joined, monkeypatch):
    """Python code makes it, and meanwhile the handler of a signal may use the object that the call was made on."""
    writer, subscriber = joined(slow=rbmq.SlowPolicy.drop(100_000))
    for _ in range(100):
        writer.publish(bytes(50_000), WAIT)
    writer.flush(WAIT)
    queue = cmq.new_rq("127.0.0.1:0")
    queue.close()
    class_of, used = _errors._class_of, []

    def in_the_middle(name, kind):
        used.extend([subscriber.closed, queue.closed])
        return class_of(name, kind)

    def until_lost():
        with pytest.raises(rocketbufs.ReceiveError):
            while True:
                subscriber.recv(0)

    def closed():
        for call in (lambda: subscriber.recv(0), lambda: queue.cw_push(("127.0.0.1", 9), b"x"), queue.pop):
            with pytest.raises(rocketbufs.Closed):
                call()

    monkeypatch.setattr(_errors, "_class_of", in_the_middle)
    for work in (until_lost, lambda: subscriber.close(1), closed):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(WAIT)
        assert not thread.is_alive()
    assert used
