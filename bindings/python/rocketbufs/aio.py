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
use a thread of the loop's executor for that time. A worker of a group has a thread of its own.
"""

import asyncio
import functools
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, ParamSpec, Self, TypeVar

from . import _rocketbufs as rust
from ._errors import Closed, PublisherWaitError, PublishError, closed
from ._waiting import take_of

if TYPE_CHECKING:
    from typing_extensions import Buffer, Unpack

    from ._rocketbufs import _GroupOptions, _Key, _Level, _OfSpace, _PublisherOptions, _SetAttributes, _SetContent, _SpaceOptions, _Start
    from ._rocketbufs import _Source as _Has
    from ._rocketbufs import _SubscriberOptions, _TopicOptions

_T = TypeVar("_T")
_U = TypeVar("_U")
_P = ParamSpec("_P")
_Q = TypeVar("_Q", rust.Cmq, rust.Mailbox)
_W = TypeVar("_W", rust.TopicWriter, rust.SpaceWriter)
_Waiter = asyncio.Future[None]

__all__ = ["GroupWorker", "Publisher", "Queue", "SpaceWriter", "Subscriber", "TopicWriter", "iterate", "receive"]

# How many messages are handed out in a row before the loop runs other tasks.
_TURN = 256
# The most messages that one try of `publish_many` looks at.
_MANY = 4096
# How often a wait looks for what no descriptor reports.
_LOOK = 0.25


# Who waits for a descriptor in a loop, which watches it only meanwhile. A loop has one callback for a descriptor, and tasks share it.
_waiting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, list[_Waiter]]] = weakref.WeakKeyDictionary()


def _wake(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    if (waiters := _waiting[loop].pop(descriptor, None)) is not None:
        loop.remove_reader(descriptor)
        for waiter in waiters:
            _finish(waiter)


class _Readable:
    """Waits until a descriptor is readable. It is of an object that lives as long as the wait."""

    def __init__(self, descriptor: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor

    async def wait(self, timeout: float | None = None) -> None:
        """Returns when the descriptor is readable, or after `timeout` seconds."""
        waiter = self._loop.create_future()
        watched = _waiting.setdefault(self._loop, {})
        if self._descriptor not in watched:
            self._loop.add_reader(self._descriptor, _wake, self._loop, self._descriptor)
        waiters = watched.setdefault(self._descriptor, [])
        waiters.append(waiter)
        timer = None if timeout is None else self._loop.call_later(timeout, _finish, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if watched.get(self._descriptor) is waiters:
                waiters.remove(waiter)
                if not waiters:
                    _wake(self._loop, self._descriptor)

    def close(self) -> None:
        """Wakes whoever waits: the next look says that the object is closed."""
        _waiting.setdefault(self._loop, {})
        _wake(self._loop, self._descriptor)


def _finish(waiter: _Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def _in_executor(call: Callable[_P, _T], *arguments: _P.args, **keywords: _P.kwargs) -> _T:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, functools.partial(call, *arguments, **keywords))


async def _in_steps(wait: Callable[[float], bool], timeout: float | None) -> bool:
    """A wait that says whether it is over, in steps of the executor: a cancelled one frees its thread soon."""
    loop = asyncio.get_running_loop()
    until = None if timeout is None else loop.time() + timeout
    while True:
        left = _LOOK if until is None else max(0.0, min(_LOOK, until - loop.time()))
        if await _in_executor(wait, left):
            return True
        if until is not None and loop.time() >= until:
            return False


class _Source(Generic[_T]):
    """An object whose items are awaited."""

    def __init__(self, take: Callable[[], _T | None], descriptor: int, *, ended: Callable[[], bool] | None = None) -> None:
        self._take = take
        self._ended = ended
        self._readable = _Readable(descriptor)
        self._closed = False
        self._in_a_row = 0

    async def next(self) -> _T | None:
        """The next item; None if the source has ended."""
        return await self.next_of(self._take)

    async def next_of(self, take: Callable[[], _U | None]) -> _U | None:
        """As `next`, for another way to take an item."""
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

    async def item(self) -> _T:
        """The next item of a source that never ends."""
        while (item := await self.next()) is None:
            pass
        return item

    def close(self) -> None:
        """Ends the waits: the descriptor is not to be watched any more."""
        self._closed = True
        self._readable.close()


class Subscriber:
    """A subscriber of a broker, for one loop. `subscribe` and `unsubscribe` do not wait."""

    def __init__(self, subscriber: rust.Subscriber, *, until_ended: bool = False) -> None:
        self.sync = subscriber
        ended = (lambda: subscriber.ended) if until_ended else None
        self._source = _Source(functools.partial(subscriber.recv, 0), subscriber.fileno(), ended=ended)
        self._batch = functools.partial(subscriber.recv_batch, 0)
        self._event = functools.partial(subscriber.next_event, 0)

    @classmethod
    async def connect(cls, addr: str, **options: "Unpack[_SubscriberOptions]") -> Self:
        """Connects to a broker, with the options of `rbmq.Subscriber`."""
        subscriber = await _in_executor(rust.Subscriber, addr, **options)
        return cls(subscriber, until_ended=options.get("until_ended", False))

    def subscribe(self, topics: str, start: "_Start | None" = None) -> None:
        """As `rbmq.Subscriber.subscribe`."""
        self.sync.subscribe(topics, start)

    def unsubscribe(self, topics: str) -> None:
        """As `rbmq.Subscriber.unsubscribe`."""
        self.sync.unsubscribe(topics)

    async def recv(self) -> rust.Message | None:
        """A copy of the next message; None if every topic has ended (`until_ended`)."""
        return await self._source.next()

    async def recv_batch(self) -> rust.Batch | None:
        """The next messages in the memory where they landed; None as for `recv`."""
        return await self._source.next_of(self._batch)

    async def next_event(self) -> rust.Batch | rust.Event | None:
        """The next batch or event."""
        return await self._source.next_of(self._event)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> rust.Message:
        message = await self._source.next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def batches(self) -> AsyncIterator[rust.Batch]:
        """The batches, as an iterator. Each is released when the next one is taken, unless it was before."""
        while (batch := await self.recv_batch()) is not None:
            with batch:
                yield batch

    async def close(self, timeout: float | None = 10.0) -> None:
        """As `rbmq.Subscriber.close`. Tasks that wait for a message get `Closed`."""
        self._source.close()
        await _in_executor(self.sync.close, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


class GroupWorker:
    """A worker of a group, for one loop, which waits in a thread of its own. `ack`, `nack`, `extend` and `release` of a message do not wait."""

    def __init__(self, worker: rust.GroupWorker) -> None:
        self.sync = worker
        self._executor = ThreadPoolExecutor(1, "rocketbufs-group")
        # A call in the thread; its message is that of the next `recv`, if the task that began the call was cancelled.
        self._coming: asyncio.Future[rust.GroupMessage | None] | None = None
        self._turn = asyncio.Lock()
        self._closed = False
        self._in_a_row = 0
        # The number of calls of other threads that hold the worker, perhaps while it connects. The loop does not wait for the worker then.
        self._held = 0
        self._found = (worker.is_joined, worker.ack_time)

    @classmethod
    async def join(cls, addr: str, topic: str, group: str, **options: "Unpack[_GroupOptions]") -> Self:
        """Joins a group, with the options of `rbmq.GroupWorker`."""
        return cls(await _in_executor(rust.GroupWorker, addr, topic, group, **options))

    async def recv(self) -> rust.GroupMessage:
        """The next message. A broker that is away is waited for."""
        async with self._turn:
            self._in_a_row += 1
            if self._in_a_row >= _TURN:
                self._in_a_row = 0
                await asyncio.sleep(0)
            while not self._closed:
                # Messages that are here already need no thread. A worker without a connection would connect, which may take long.
                if self._is_free() and self.sync.is_joined and (message := self.sync.recv(0)) is not None:
                    return message
                self._in_a_row = 0
                if (message := await self._received()) is not None:
                    return message
            raise closed("worker")

    async def _received(self) -> rust.GroupMessage | None:
        """What the thread gets within a moment."""
        if self._coming is None:
            loop = asyncio.get_running_loop()
            self._coming = loop.run_in_executor(self._executor, self._look)
        await asyncio.wait([self._coming])
        coming, self._coming = self._coming, None
        return coming.result()

    def _look(self) -> rust.GroupMessage | None:
        message = self.sync.recv(_LOOK)
        self._found = (self.sync.is_joined, self.sync.ack_time)
        return message

    def _is_free(self) -> bool:
        return self._coming is None and self._held == 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> rust.GroupMessage:
        return await self.recv()

    async def flush(self, timeout: float | None = None) -> None:
        """As `rbmq.GroupWorker.flush`."""
        self._held += 1
        flushing = asyncio.get_running_loop().run_in_executor(None, self.sync.flush, timeout)
        flushing.add_done_callback(self._let_go)
        # The thread of a task that is cancelled has the worker still.
        await asyncio.shield(flushing)

    def _let_go(self, flushed: "asyncio.Future[None]") -> None:
        self._held -= 1
        # Read, in case that nobody waits for it any more.
        _ = flushed.cancelled() or flushed.exception()

    def _state(self) -> tuple[bool, float]:
        if self._is_free():
            self._found = (self.sync.is_joined, self.sync.ack_time)
        return self._found

    @property
    def ack_time(self) -> float:
        """As `rbmq.GroupWorker.ack_time`. While another task receives or flushes: the value of a moment before."""
        return self._state()[1]

    @property
    def is_joined(self) -> bool:
        """As `rbmq.GroupWorker.is_joined`. While another task receives or flushes: the value of a moment before."""
        return self._state()[0]

    async def close(self) -> None:
        """As `rbmq.GroupWorker.close`. Tasks that wait for a message get `Closed`. A message that came for a task that was cancelled goes
        back, which is no failed attempt."""
        self._closed = True
        async with self._turn:
            if (coming := self._coming) is not None:
                await asyncio.wait([coming])
                self._coming = None
                if coming.exception() is None and (message := coming.result()) is not None:
                    message.release()
            self._executor.shutdown(wait=False)
        await _in_executor(self.sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


class Publisher:
    """A publisher, for one loop, which reads its events."""

    def __init__(self, publisher: rust.Publisher, *, on_event: Callable[[rust.Event], object] | None = None) -> None:
        self.sync = publisher
        self._loop = asyncio.get_running_loop()
        self._on_event = on_event
        self._waiters: dict[str, list[_Waiter]] = {}
        self._notifier = rust.Notifier()
        self._pending: dict[asyncio.Future[rust.Confirmed], rust.Confirmation] = {}
        self._descriptors: tuple[int, ...] = (publisher.fileno(), self._notifier.fileno())
        self._loop.add_reader(self._descriptors[0], self._read_events)
        self._loop.add_reader(self._descriptors[1], self._read_confirmations)

    @classmethod
    async def connect(
        cls, addr: str, *, on_event: Callable[[rust.Event], object] | None = None, **options: "Unpack[_PublisherOptions]"
    ) -> Self:
        """Connects to a broker, with the options of `rbmq.Publisher`. `on_event(event)` is called in the loop for every event."""
        return cls(await _in_executor(rust.Publisher, addr, **options), on_event=on_event)

    async def topic(self, name: str, **options: "Unpack[_TopicOptions]") -> "TopicWriter":
        """Opens a topic, with the options of `rbmq.Publisher.topic`."""
        return TopicWriter(await _in_executor(self.sync.topic, name, **options), self)

    async def space(self, pattern: str, **options: "Unpack[_SpaceOptions]") -> "SpaceWriter":
        """Opens a space, with the options of `rbmq.Publisher.space`."""
        return SpaceWriter(await _in_executor(self.sync.space, pattern, **options), self)

    def _read_events(self) -> None:
        while (event := self._next_event()) is not None:
            if event.kind in ("Room", "Subscribers", "TopicRefused"):
                self._wake(event.topic)
            else:
                # Events may be missing, or the broker was away: everybody looks.
                for topic in list(self._waiters):
                    self._wake(topic)
            if self._on_event is not None:
                self._on_event(event)

    def _next_event(self) -> rust.Event | None:
        try:
            return self.sync.next_event(0)
        except Closed:
            # `sync` was closed.
            self._end()
            return None

    def _wake(self, topic: str) -> None:
        for waiter in self._waiters.pop(topic, ()):
            _finish(waiter)

    async def _changed(self, topic: str) -> None:
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

    def _read_confirmations(self) -> None:
        self._notifier.drain()
        for waiter, confirmation in list(self._pending.items()):
            if waiter.done():
                continue
            try:
                if (result := confirmation.poll()) is not None:
                    waiter.set_result(result)
            except Exception as error:
                waiter.set_exception(error)

    async def _confirmed(self, writer: rust.TopicWriter | rust.SpaceWriter, position: int | None, level: "_Level") -> rust.Confirmed:
        confirmation = writer.confirmation(position, level, notify=self._notifier)
        if (result := confirmation.poll()) is not None:
            return result
        if not self._descriptors:
            raise closed("publisher")
        waiter: asyncio.Future[rust.Confirmed] = self._loop.create_future()
        self._pending[waiter] = confirmation
        try:
            return await waiter
        finally:
            del self._pending[waiter]

    def _end(self) -> None:
        """Ends the waits: nothing more is to be learned."""
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
        self._descriptors = ()
        for topic in list(self._waiters):
            self._wake(topic)
        for waiter in self._pending:
            if not waiter.done():
                waiter.set_exception(closed("publisher"))

    async def close(self, timeout: float | None = 10.0) -> None:
        """As `rbmq.Publisher.close`. Close the topics before."""
        self._end()
        await _in_executor(self.sync.close, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


class _Writer(Generic[_W]):
    """What topics and spaces have in common. Events of the publisher have `name`."""

    def __init__(self, writer: _W, publisher: Publisher, name: str) -> None:
        self.sync: _W = writer
        self._publisher = publisher
        self._name = name
        self._in_a_row = 0

    async def _trying(self, attempt: Callable[[], _T]) -> _T:
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
            await self._publisher._changed(self._name)

    async def _trying_many(self, publish: Callable[[list[_T], float], int], messages: Iterable[_T]) -> int:
        """Publishes many messages: after each try those that are left, and a part of them at a time, as each try looks at what it is given."""
        every, begin = list(messages), 0

        def attempt() -> int:
            nonlocal begin
            while True:
                part = every[begin : begin + _MANY]
                try:
                    position = publish(part, 0)
                except PublishError as error:
                    begin += error.published
                    raise
                begin += len(part)
                if begin >= len(every):
                    return position

        return await self._trying(attempt)

    async def confirm(self, position: int | None = None, level: "_Level" = "delivered") -> rust.Confirmed:
        """Waits until everything below `position` (None: everything that was published) is confirmed at a level."""
        return await self._publisher._confirmed(self.sync, position, level)

    async def wait_subscribers(self, count: int) -> None:
        """Waits until the topic, or the log of the space, has `count` subscribers."""
        while True:
            try:
                return self.sync.wait_subscribers(count, 0)
            except PublisherWaitError as error:
                if error.kind != "TooFewSubscribers":
                    raise
            await self._publisher._changed(self._name)

    @property
    def position(self) -> int:
        """The position behind the last published message."""
        return self.sync.position

    async def flush(self, timeout: float | None = None) -> None:
        """As `rbmq.TopicWriter.flush`."""
        await _in_executor(self.sync.flush, timeout)

    async def close(self, timeout: float | None = 10.0) -> None:
        """As `rbmq.TopicWriter.close`."""
        await _in_executor(self.sync.close, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


class TopicWriter(_Writer[rust.TopicWriter]):
    """A topic that is published to."""

    def __init__(self, writer: rust.TopicWriter, publisher: Publisher) -> None:
        super().__init__(writer, publisher, writer.topic)

    async def publish(self, data: "Buffer", **attributes: "Unpack[_SetAttributes]") -> int:
        """Publishes one message, and waits while the ring is full. Returns the position behind it. `attributes` are those of
        `rbmq.TopicWriter.publish`."""
        return await self._trying(functools.partial(self.sync.publish, data, 0, **attributes))

    def publish_nowait(self, data: "Buffer", **attributes: "Unpack[_SetAttributes]") -> int:
        """Publishes one message; raises `TimedOut` while the ring is full."""
        return self.sync.publish(data, 0, **attributes)

    async def publish_many(self, messages: "Iterable[Buffer]") -> int:
        """Publishes many messages in few deliveries. Returns the position behind the last one. After a cancellation or
        an error some of them may have been published."""
        return await self._trying_many(self.sync.publish_many, messages)

    async def segment(self, size: int, **attributes: "Unpack[_SetAttributes]") -> rust.MessageSegment:
        """Room for one message in the memory that it is sent from, as `rbmq.TopicWriter.segment`."""
        return await self._trying(functools.partial(self.sync.segment, size, 0, **attributes))


class SpaceWriter(_Writer[rust.SpaceWriter]):
    """A space that is published to: each message says its topic."""

    def __init__(self, writer: rust.SpaceWriter, publisher: Publisher) -> None:
        super().__init__(writer, publisher, writer.log)

    async def publish_to(self, topic: str, data: "Buffer", **attributes: "Unpack[_SetContent]") -> int:
        """Publishes one message to a topic of the space, and waits while the ring is full. Returns the position behind it."""
        return await self._trying(functools.partial(self.sync.publish_to, topic, data, 0, **attributes))

    def publish_to_nowait(self, topic: str, data: "Buffer", **attributes: "Unpack[_SetContent]") -> int:
        """Publishes one message; raises `TimedOut` while the ring is full."""
        return self.sync.publish_to(topic, data, 0, **attributes)

    async def publish_many(self, messages: "Iterable[_OfSpace]") -> int:
        """As `rbmq.SpaceWriter.publish_many`. After a cancellation or an error some messages may have been published."""
        return await self._trying_many(self.sync.publish_many, messages)


class Queue(Generic[_Q]):
    """A queue or a mailbox of CMQ, for one loop. Pushing never waits: `queue.sync.cw_push`, `queue.sync.push_reliable`."""

    def __init__(self, queue: _Q) -> None:
        self.sync: _Q = queue
        self._source: _Source[tuple[bytes, rust.Key]] = _Source(queue.cw_pop, queue.fileno())

    async def pop(self) -> tuple[bytes, rust.Key]:
        """The next message with the key of its sender."""
        return await self._source.item()

    async def wait_confirmed(self: "Queue[rust.Cmq]", key: "_Key", number: int, timeout: float | None = None) -> bool:
        """As `cmq.Cmq.wait_confirmed`."""
        return await _in_steps(functools.partial(self.sync.wait_confirmed, key, number), timeout)

    async def wait_all_confirmed(self: "Queue[rust.Cmq]", timeout: float | None = None) -> bool:
        """As `cmq.Cmq.wait_all_confirmed`."""
        return await _in_steps(self.sync.wait_all_confirmed, timeout)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[bytes, rust.Key]:
        return await self._source.item()


async def receive(source: "_Has[_T]", timeout: float | None = None) -> _T | None:
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


async def iterate(source: "_Has[_T]") -> AsyncIterator[_T]:
    """The items of an object of the framework, without an end: `async for item in aio.iterate(rin)`."""
    items = _Source(take_of(source), source.fileno())
    while True:
        yield await items.item()
