"""RocketBufs for asyncio: on the descriptors of the objects, without a thread for each of them.

    publisher = await aio.Publisher.connect("127.0.0.1:7411")
    news = await publisher.topic("news")
    await news.publish(b"hello")                 # waits while the ring is full, and lets the loop run

    async with await aio.Subscriber.connect("127.0.0.1:7411") as subscriber:
        subscriber.subscribe("news")
        async for message in subscriber:
            ...

Every call that is awaited may be cancelled: nothing is taken from an object before the call returns, and nothing was published.
An object belongs to the loop in which it was made. Calls that wait for the broker's answer (`connect`, `topic`, `flush`, `close`)
use a thread of the loop's executor for that time.
"""

import asyncio
import functools

from . import _rocketbufs as rust
from ._errors import PublishError, closed
from ._waiting import take_of

__all__ = ["Publisher", "Queue", "Subscriber", "TopicWriter", "iterate", "receive"]

# How many messages are handed out in a row before the loop runs other tasks.
_TURN = 256
# How often a wait looks for what no descriptor reports.
_LOOK = 0.25


class _Readable:
    """Waits until a descriptor is readable. The loop watches it only meanwhile."""

    def __init__(self, descriptor):
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._waiters = []

    def _wake(self):
        self._loop.remove_reader(self._descriptor)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout=None):
        """Returns when the descriptor is readable, or after `timeout` seconds."""
        waiter = self._loop.create_future()
        if not self._waiters:
            self._loop.add_reader(self._descriptor, self._wake)
        self._waiters.append(waiter)
        timer = None if timeout is None else self._loop.call_later(timeout, _finish, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                if not self._waiters:
                    self._loop.remove_reader(self._descriptor)

    def close(self):
        """Wakes whoever waits: the next look says that the object is closed."""
        if self._waiters:
            self._wake()


def _finish(waiter):
    if not waiter.done():
        waiter.set_result(None)


async def _in_executor(call, *arguments, **keywords):
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, functools.partial(call, *arguments, **keywords))


async def _in_steps(wait, timeout):
    """A wait that says whether it is over, in steps of the executor: a cancelled one frees its thread soon."""
    loop = asyncio.get_running_loop()
    until = None if timeout is None else loop.time() + timeout
    while True:
        left = _LOOK if until is None else max(0.0, min(_LOOK, until - loop.time()))
        if await _in_executor(wait, left):
            return True
        if until is not None and loop.time() >= until:
            return False


class _Source:
    """An object whose items are awaited."""

    def __init__(self, take, descriptor, *, ended=None):
        self._take = take
        self._ended = ended
        self._readable = _Readable(descriptor)
        self._closed = False
        self._in_a_row = 0

    async def next(self, take=None):
        """The next item; None if the source has ended."""
        take = take or self._take
        self._in_a_row += 1
        if self._in_a_row >= _TURN:
            self._in_a_row = 0
            await asyncio.sleep(0)
        while self._closed or (item := take()) is None:
            if self._closed:
                raise closed("subscriber")
            if self._ended is not None and self._ended():
                return None
            self._in_a_row = 0
            await self._readable.wait(None if self._ended is None else _LOOK)
        return item

    def close(self):
        """Ends the waits: the descriptor is not to be watched any more."""
        self._closed = True
        self._readable.close()


class Subscriber:
    """A subscriber of a broker, for one loop. `subscribe` and `unsubscribe` do not wait."""

    def __init__(self, subscriber, *, until_ended=False):
        self.sync = subscriber
        ended = (lambda: subscriber.ended) if until_ended else None
        self._source = _Source(functools.partial(subscriber.recv, 0), subscriber.fileno(), ended=ended)
        self._batch = functools.partial(subscriber.recv_batch, 0)
        self._event = functools.partial(subscriber.next_event, 0)

    @classmethod
    async def connect(cls, addr, **options):
        """Connects to a broker, with the options of `rbmq.Subscriber`."""
        subscriber = await _in_executor(rust.Subscriber, addr, **options)
        return cls(subscriber, until_ended=options.get("until_ended", False))

    def subscribe(self, topics, start=None):
        """As `rbmq.Subscriber.subscribe`."""
        self.sync.subscribe(topics, start)

    def unsubscribe(self, topics):
        """As `rbmq.Subscriber.unsubscribe`."""
        self.sync.unsubscribe(topics)

    async def recv(self):
        """A copy of the next message; None if every topic has ended (`until_ended`)."""
        return await self._source.next()

    async def recv_batch(self):
        """The next messages in the memory where they landed; None as for `recv`."""
        return await self._source.next(self._batch)

    async def next_event(self):
        """The next batch or event."""
        return await self._source.next(self._event)

    def __aiter__(self):
        return self

    async def __anext__(self):
        message = await self._source.next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def batches(self):
        """The batches, as an iterator. Each is released when the next one is taken, unless it was before."""
        while (batch := await self.recv_batch()) is not None:
            with batch:
                yield batch

    async def close(self, timeout=10.0):
        """As `rbmq.Subscriber.close`. Tasks that wait for a message get `Closed`."""
        self._source.close()
        await _in_executor(self.sync.close, timeout)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()


class Publisher:
    """A publisher, for one loop, which reads its events."""

    def __init__(self, publisher, *, on_event=None):
        self.sync = publisher
        self._loop = asyncio.get_running_loop()
        self._on_event = on_event
        self._waiters = {}
        self._notifier = rust.Notifier()
        self._pending = []
        self._descriptors = (publisher.fileno(), self._notifier.fileno())
        self._loop.add_reader(self._descriptors[0], self._read_events)
        self._loop.add_reader(self._descriptors[1], self._read_confirmations)

    @classmethod
    async def connect(cls, addr, *, on_event=None, **options):
        """Connects to a broker, with the options of `rbmq.Publisher`. `on_event(event)` is called in the loop for every event."""
        return cls(await _in_executor(rust.Publisher, addr, **options), on_event=on_event)

    async def topic(self, name, **options):
        """Opens a topic, with the options of `rbmq.Publisher.topic`."""
        return TopicWriter(await _in_executor(self.sync.topic, name, **options), self)

    def _read_events(self):
        while not self.sync.closed and (event := self.sync.next_event(0)) is not None:
            if event.kind in ("Room", "Subscribers", "TopicRefused"):
                self._wake(event.topic)
            else:
                # Events may be missing, or the broker was away: everybody looks.
                for topic in list(self._waiters):
                    self._wake(topic)
            if self._on_event is not None:
                self._on_event(event)

    def _wake(self, topic):
        for waiter in self._waiters.pop(topic, ()):
            _finish(waiter)

    async def _changed(self, topic):
        """Waits until something about the topic has changed, or for a moment."""
        if not self._descriptors:
            raise closed("publisher")
        waiter = self._loop.create_future()
        waiters = self._waiters.setdefault(topic, [])
        waiters.append(waiter)
        timer = self._loop.call_later(_LOOK, _finish, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            if waiter in waiters:
                waiters.remove(waiter)

    def _read_confirmations(self):
        self._notifier.drain()
        still = []
        for confirmation, waiter in self._pending:
            if waiter.done():
                continue
            try:
                result = confirmation.poll()
            except Exception as error:
                waiter.set_exception(error)
                continue
            if result is None:
                still.append((confirmation, waiter))
            else:
                waiter.set_result(result)
        self._pending = still

    async def _confirmed(self, writer, position, level):
        confirmation = writer.confirmation(position, level, notify=self._notifier)
        if (result := confirmation.poll()) is not None:
            return result
        waiter = self._loop.create_future()
        self._pending.append((confirmation, waiter))
        return await waiter

    async def close(self, timeout=10.0):
        """As `rbmq.Publisher.close`. Close the topics before."""
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
        self._descriptors = ()
        for topic in list(self._waiters):
            self._wake(topic)
        for _, waiter in self._pending:
            if not waiter.done():
                waiter.set_exception(closed("publisher"))
        self._pending = []
        await _in_executor(self.sync.close, timeout)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()


class TopicWriter:
    """A topic that is published to."""

    def __init__(self, writer, publisher):
        self.sync = writer
        self._publisher = publisher
        self._in_a_row = 0

    async def _trying(self, attempt):
        """Calls `attempt` until there is room."""
        self._in_a_row += 1
        if self._in_a_row >= _TURN:
            self._in_a_row = 0
            await asyncio.sleep(0)
        while True:
            try:
                return attempt()
            except PublishError as error:
                if error.kind not in ("TimedOut", "TooFewSubscribers"):
                    raise
            await self._publisher._changed(self.sync.topic)

    async def publish(self, data):
        """Publishes one message, and waits while the ring is full. Returns the position behind it."""
        return await self._trying(functools.partial(self.sync.publish, data, 0))

    def publish_nowait(self, data):
        """Publishes one message; raises `TimedOut` while the ring is full."""
        return self.sync.publish(data, 0)

    async def publish_many(self, messages):
        """Publishes many messages in few deliveries. Returns the position behind the last one. After a cancellation some of them
        may have been published."""
        rest = list(messages)

        def attempt():
            nonlocal rest
            try:
                return self.sync.publish_many(rest, 0)
            except PublishError as error:
                rest = rest[error.published :]
                raise

        return await self._trying(attempt)

    async def segment(self, size):
        """Room for one message in the memory that it is sent from, as `rbmq.TopicWriter.segment`."""
        return await self._trying(functools.partial(self.sync.segment, size, 0))

    async def confirm(self, position=None, level="delivered"):
        """Waits until everything below `position` (None: everything that was published) is confirmed at a level."""
        return await self._publisher._confirmed(self.sync, position, level)

    async def wait_subscribers(self, count):
        """Waits until the topic has `count` subscribers."""
        while self.sync.subscribers < count:
            await self._publisher._changed(self.sync.topic)
        self.sync.wait_subscribers(count, 0)

    @property
    def position(self):
        """The position behind the last published message."""
        return self.sync.position

    async def flush(self, timeout=None):
        """As `rbmq.TopicWriter.flush`."""
        await _in_executor(self.sync.flush, timeout)

    async def close(self, timeout=10.0):
        """As `rbmq.TopicWriter.close`."""
        await _in_executor(self.sync.close, timeout)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()


class Queue:
    """A queue or a mailbox of CMQ, for one loop. Pushing never waits: `queue.sync.cw_push`, `queue.sync.push_reliable`."""

    def __init__(self, queue):
        self.sync = queue
        self._source = _Source(queue.cw_pop, queue.fileno())

    async def pop(self):
        """The next message with the key of its sender."""
        return await self._source.next()

    async def wait_confirmed(self, key, number, timeout=None):
        """As `cmq.Cmq.wait_confirmed`."""
        return await _in_steps(functools.partial(self.sync.wait_confirmed, key, number), timeout)

    async def wait_all_confirmed(self, timeout=None):
        """As `cmq.Cmq.wait_all_confirmed`."""
        return await _in_steps(self.sync.wait_all_confirmed, timeout)

    def __aiter__(self):
        return self

    async def __anext__(self):
        return await self._source.next()


async def receive(source, timeout=None):
    """The next item of an object of the framework (`RIn`, `ROut`, `Conn`, `Listener`), or of any other object with a descriptor; None
    after `timeout` seconds."""
    take, readable = take_of(source), _Readable(source.fileno())
    loop = asyncio.get_running_loop()
    until = None if timeout is None else loop.time() + timeout
    while (item := take()) is None:
        left = None if until is None else until - loop.time()
        if left is not None and left <= 0:
            return None
        await readable.wait(left)
    return item


async def iterate(source):
    """The items of an object of the framework, without an end: `async for item in aio.iterate(rin)`."""
    items = _Source(take_of(source), source.fileno())
    while True:
        yield await items.next()
