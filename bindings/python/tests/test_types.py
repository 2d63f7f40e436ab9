"""The types of the package: checkers accept it and the programs of the guide, and object to what is wrong."""

import importlib.util
import subprocess
import sys

import pytest
from test_docs import programs

import rocketbufs

VERSIONS = ("3.11", "3.12", "3.13")
# What the shorter programs of the guide take for granted.
GIVEN = """
import rocketbufs as rocketbufs
from rocketbufs import rbmq
news: rbmq.TopicWriter
publisher: rbmq.Publisher
subscriber: rbmq.Subscriber
password: str
total: int
"""
# Each line with the comment is an error, and no other one is.
WRONG = '''
import asyncio
import rocketbufs
from rocketbufs import aio, cmq, rbmq

def bytes_like(topic: rbmq.TopicWriter, queue: cmq.Cmq) -> None:
    topic.publish(memoryview(b"x"))
    topic.publish(5)  # wrong
    topic.publish("text")  # wrong
    topic.publish_many([1])  # wrong
    topic.publish(b"x", 1.0, reply_to="answers", properties={"a": "b"}, key=b"k", time_ms=1, retain=True)
    topic.publish(b"x", properties=[("a", "b"), ("a", "c")], qos=None)
    topic.publish(b"x", reply_too="answers")  # wrong
    topic.publish(b"x", key="text")  # wrong
    topic.segment(5, key=b"k")

def of_a_space(space: rbmq.SpaceWriter) -> None:
    space.publish_to("d/1", b"x", 1.0, reply_to="answers")
    space.publish_to("d/1", "text")  # wrong
    space.publish_to("d/1", b"x", reply_too="answers")  # wrong
    space.publish_many([("d/1", b"x"), ("d/2", memoryview(b"y"), {"key": b"k"})])
    space.publish_many([b"x"])  # wrong

def of_a_group(worker: rbmq.GroupWorker, groups: rbmq.Groups) -> None:
    for job in worker:
        with job:
            print(job.data.decode(), job.attempt + 1, (job.key or b"").hex())
        job.nack("1")  # wrong
        job.no_such_thing()  # wrong
    worker.recv().ack()  # wrong
    rbmq.GroupWorker("127.0.0.1:7411", "t", "g", credit=1, ordred=True)  # wrong
    print([row["lag_bytes"] for row in groups.list()])
    groups.reset("t", "g", 5)
    groups.reset("t", "g", "middle")  # wrong

def attributes_of(message: rbmq.Message) -> None:
    print((message.reply_to or "").upper(), (message.key or b"").hex(), [key + value for key, value in message.properties])
    print(message.attributes.get("time_ms", 0) + 1, message.attributes["no_such_thing"])  # wrong
    message.reply_to.upper()  # wrong
    rbmq.Message("t", b"", attributes=message.attributes)
    rbmq.Message("t", b"", attributes={"content_type": "text/plain"})
    queue.cw_push(("127.0.0.1", 1), 5)  # wrong

def callbacks(dispatcher: rocketbufs.Dispatcher, subscriber: rbmq.Subscriber, queue: cmq.Cmq, rin: rocketbufs.RIn) -> None:
    dispatcher.add(subscriber, lambda batch: batch.to_list())
    dispatcher.add(subscriber, lambda batch: batch.no_such_thing())  # wrong
    dispatcher.add(queue, lambda item: item[0].decode())
    dispatcher.add(queue, lambda item: item.decode())  # wrong
    dispatcher.add(rin, print, on_error=lambda error: error.kind)
    dispatcher.add(5, print)  # wrong
    dispatcher.remove(5)  # wrong

async def tasks(listener: rocketbufs.Listener) -> None:
    async with await aio.Subscriber.connect("127.0.0.1:7411", until_ended=True) as subscriber:
        async for message in subscriber:
            print(message[0] + 1, message[1:].decode(), b"x" in message)
            message.no_such_thing()  # wrong
        async for batch in subscriber.batches():
            batch.no_such_thing()  # wrong
    await aio.Subscriber.connect("127.0.0.1:7411", until_endd=True)  # wrong
    async with await aio.GroupWorker.join("127.0.0.1:7411", "t", "g", credit=1) as worker:
        async for job in worker:
            job.ack()
            job.no_such_thing()  # wrong
        (await worker.recv()).ack()
    await aio.GroupWorker.join("127.0.0.1:7411", "t", "g", ordred=True)  # wrong
    publisher = await aio.Publisher.connect("127.0.0.1:7411", on_event=lambda event: event.kind)
    topic = await publisher.topic("t", framing="raw")
    await publisher.topic("t", framing="row")  # wrong
    await topic.publish(5)  # wrong
    await topic.publish(b"x", reply_to="answers")
    await topic.publish(b"x", reply_to=b"answers")  # wrong
    await topic.confirm(level="somehow")  # wrong
    space = await publisher.space("d/#", ring_bytes=65536)
    await publisher.space("d/#", framing="raw")  # wrong
    await space.publish_to("d/1", b"x", key=b"k")
    await space.publish_to("d/1", 5)  # wrong
    async for conn in aio.iterate(listener):
        conn.close("why")
        conn.no_such_thing()  # wrong
    if other := await aio.receive(listener, 1):
        other.no_such_thing()  # wrong
    with cmq.new_rq() as queue:
        await aio.Queue(queue).wait_all_confirmed()
        content, key = await aio.Queue(queue.mailbox(5)).pop()
        await aio.Queue(queue.mailbox(5)).wait_all_confirmed()  # wrong

def values(batch: rbmq.Batch, subscriber: rbmq.Subscriber, queue: cmq.Cmq) -> None:
    first, last = batch.offsets.tolist()[0]
    content, key = queue.pop()
    content, key = queue.pop(5)  # wrong
    for message in subscriber:
        message.topic.upper()
    subscriber.recv().topic  # wrong
    rocketbufs.make("Closed", "Closed", "")  # wrong

asyncio.run(tasks(rocketbufs.Listener(rocketbufs.Context(), "127.0.0.1:0")))
'''

MYPY = ["-m", "mypy", "--strict", "--python-version"]
PYRIGHT = ["-m", "pyright", "--pythonpath", sys.executable, "--pythonversion"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The programs, in a folder with the cache of the checker."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "wrong.py").write_text(WRONG)
    (folder / "given.pyi").write_text(GIVEN)
    for number, program in enumerate(programs("docs/PYTHON.md") + programs("README.md")):
        (folder / f"guide_{number}.py").write_text("from given import *\n" + program)
    return folder


def check(command, version, what, folder):
    """What a checker prints."""
    if importlib.util.find_spec(command[1]) is None:
        pytest.skip(f"{command[1]} is not installed")
    arguments = [sys.executable, *command, version, *map(str, what)]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode < 2 and not done.stderr, done.stdout + done.stderr
    return done.stdout


def found(printed):
    """The wrong lines that a checker found, and its other errors."""
    errors = [line for line in printed.splitlines() if ": error: " in line or " - error: " in line]
    places = {int(line.split("wrong.py:")[1].split(":")[0]) for line in errors if "wrong.py:" in line}
    return places, [line for line in errors if "wrong.py:" not in line]


ALL_WRONG = {number for number, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")}


@pytest.mark.parametrize("version", VERSIONS)
def test_mypy(version, folder):
    # Of what it finds by itself it reports no errors.
    assert found(check(MYPY, version, ["-p", "rocketbufs"], folder)) == (set(), [])
    assert found(check(MYPY, version, folder.glob("*.py"), folder)) == (ALL_WRONG, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_pyright(version, folder):
    assert found(check(PYRIGHT, version, [*folder.glob("*.py"), *rocketbufs.__path__], folder)) == (ALL_WRONG, [])
