"""Callbacks for objects that have a descriptor: one thread waits for all of them.

    with Dispatcher() as dispatcher:
        dispatcher.add(subscriber, on_batch)
        dispatcher.add(queue, on_message)
        ...

The framework's own callbacks (`RIn.set_data_in_cb` and others) need no dispatcher: they run on its worker threads.
"""

import contextlib
import os
import select
import signal
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ._errors import Closed, Error, LappedError, ReceiveError, closed, make
from ._waiting import take_of

if TYPE_CHECKING:
    from ._rocketbufs import _Source

_T = TypeVar("_T")

# How many items of one object are taken before the others have their turn.
_TURN = 64
# The signals that the thread takes, as all threads of the package: what a thread causes by itself, and that of profilers.
_OPEN = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGPROF}

# Counts the forks between the first process and this one.
_forks = 0


def _in_child() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_in_child)


def _goes_on(error: BaseException) -> bool:
    """Whether the next call of the object continues after the error."""
    return isinstance(error, LappedError) or (isinstance(error, ReceiveError) and not error.is_final)


class _Entry:
    """An object in a dispatcher. The object is kept alive, and with it its descriptor."""

    __slots__ = ("callback", "descriptor", "on_error", "source", "take")

    def __init__(
        self,
        source: "_Source[_T]",
        callback: Callable[[_T], object],
        on_error: Callable[[Error], object] | None,
    ) -> None:
        self.source: object = source
        self.take: Callable[[], Any] = take_of(source)
        self.descriptor = source.fileno()
        self.callback: Callable[[Any], object] = callback
        self.on_error = on_error


class Dispatcher:
    """A thread that calls back when something comes. Any number of objects share it.

    `add(source, callback)` calls `callback(item)` on the thread: a `Batch` of a `Subscriber`, an `Event` of a `Publisher`, `ROut` or
    `Conn`, an `InView` or `Event` of an `RIn`, a `Conn` of a `Listener`, `(bytes, Key)` of a queue or mailbox. `on_error(error)` is
    called with the errors of the source, such as lost messages; without it they go to `threading.excepthook`, as do exceptions of
    callbacks. An object that is closed, or has failed for good, leaves the dispatcher.
    """

    def __init__(self) -> None:
        self._forks = _forks
        self._epoll = select.epoll()
        # Readable when the dispatcher is closed, or an object has come.
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        # Guards what follows, and is notified at the end of a turn.
        self._changed = threading.Condition(threading.Lock())
        self._by_descriptor: dict[int, _Entry] = {}
        self._by_source: dict[int, _Entry] = {}
        self._turn_of: _Entry | None = None
        self._come: list[int] = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="rocketbufs-dispatcher", daemon=True)
        # A thread begins with the mask of the one that starts it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OPEN)
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def add(
        self,
        source: "_Source[_T]",
        callback: Callable[[_T], object],
        *,
        on_error: Callable[[Error], object] | None = None,
    ) -> None:
        """Calls `callback` with every item of the source from now on."""
        self._check_process()
        entry = _Entry(source, callback, on_error)
        with self._changed:
            if self._closed:
                raise closed("dispatcher")
            if id(source) in self._by_source:
                raise ValueError("the object is in the dispatcher already")
            # Before the thread can have an event of it.
            self._by_source[id(source)] = self._by_descriptor[entry.descriptor] = entry
            try:
                self._epoll.register(entry.descriptor, select.EPOLLIN)
            except OSError:
                self._leave(entry)
                raise
            # What a subscriber has from a batch of which messages were taken makes no descriptor readable.
            self._come.append(entry.descriptor)
            os.eventfd_write(self._wake, 1)

    def remove(self, source: "_Source[Any]") -> None:
        """Ends the callbacks of a source. When this has returned, none runs, unless it is called inside of one."""
        self._check_process()
        with self._changed:
            entry = self._by_source.get(id(source), self._turn_of)
            if entry is None or entry.source is not source:
                return
            self._leave(entry)
            if threading.current_thread() is not self._thread:
                self._changed.wait_for(lambda: self._turn_of is not entry)

    def close(self) -> None:
        """Ends the thread and all callbacks. The objects stay open. A second call does nothing."""
        self._check_process()
        with self._changed:
            if not self._closed:
                self._closed = True
                os.eventfd_write(self._wake, 1)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _is_in_child(self) -> bool:
        """Whether this is a child, perhaps of a callback that has forked: the objects, what the epoll instance watches, and perhaps the
        owner of the lock are the parent's."""
        return self._forks != _forks

    def _check_process(self) -> None:
        if self._is_in_child():
            text = "this dispatcher was made before a fork, and its thread is in the parent process; make a new one in the child"
            raise make("Forked", "Forked", text)

    def _leave(self, entry: _Entry) -> None:
        """Takes an object out. Called under the lock."""
        if self._by_source.get(id(entry.source)) is entry:
            del self._by_source[id(entry.source)], self._by_descriptor[entry.descriptor]
            with contextlib.suppress(OSError):
                self._epoll.unregister(entry.descriptor)

    def _run(self) -> None:
        try:
            while not self._closed and not self._is_in_child():
                for descriptor, _ in self._epoll.poll():
                    for come in self._take_come() if descriptor == self._wake else (descriptor,):
                        if not self._is_in_child():
                            self._turn(come)
        finally:
            if not self._is_in_child():
                with self._changed:
                    self._closed = True
                    self._by_source.clear()
                    self._by_descriptor.clear()
                    self._epoll.close()
                    os.close(self._wake)

    def _take_come(self) -> list[int]:
        """The objects that have come. None in a child, whose descriptor is the parent's too."""
        if self._is_in_child():
            return []
        os.eventfd_read(self._wake)
        with self._changed:
            come, self._come = self._come, []
        return come

    def _turn(self, descriptor: int) -> None:
        with self._changed:
            entry = self._turn_of = self._by_descriptor.get(descriptor)
        if entry is None:
            return
        try:
            for _ in range(_TURN):
                if self._closed or self._is_in_child() or self._by_descriptor.get(descriptor) is not entry:
                    return
                if not self._step(entry):
                    return
        finally:
            if not self._is_in_child():
                with self._changed:
                    self._turn_of = None
                    self._changed.notify_all()

    def _step(self, entry: _Entry) -> bool:
        """Takes an item, and calls back. Whether there may be another one."""
        try:
            item = entry.take()
        except BaseException as error:
            if not _goes_on(error):
                with self._changed:
                    self._leave(entry)
            # An object that was closed here is none to speak of.
            if type(error) is not Closed:
                if isinstance(error, Error) and entry.on_error is not None:
                    self._call(entry.on_error, error)
                else:
                    self._report(error)
            return True
        if item is not None:
            self._call(entry.callback, item)
        return item is not None

    def _call(self, callback: Callable[[Any], object], item: object) -> None:
        # One object's callback ends neither the thread nor the callbacks of others.
        try:
            callback(item)
        except BaseException as error:
            self._report(error)

    def _report(self, error: BaseException) -> None:
        try:
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, self._thread)))
        except BaseException:
            with contextlib.suppress(BaseException):
                traceback.print_exc()
