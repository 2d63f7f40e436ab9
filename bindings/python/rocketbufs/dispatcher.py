"""Callbacks for objects that have a descriptor: one thread waits for all of them.

    with Dispatcher() as dispatcher:
        dispatcher.add(subscriber, on_batch)
        dispatcher.add(queue, on_message)
        ...

The framework's own callbacks (`RIn.set_data_in_cb` and others) need no dispatcher: they run on its worker threads.
"""

import os
import selectors
import signal
import threading

from ._errors import Closed, Error, closed
from ._waiting import take_of

# How many items of one object are taken before the others have their turn.
_TURN = 64
# The signals that the thread takes, as all threads of the package: what a thread causes by itself, and that of profilers.
_OPEN = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGPROF}


class Dispatcher:
    """A thread that calls back when something comes. Any number of objects share it.

    `add(source, callback)` calls `callback(item)` on the thread: a `Batch` of a `Subscriber`, an `Event` of a `Publisher`, `ROut` or
    `Conn`, an `InView` or `Event` of an `RIn`, a `Conn` of a `Listener`, `(bytes, Key)` of a queue or mailbox. `on_error(error)` is
    called with the errors of the source, such as lost messages; without it they go to `threading.excepthook`, as do exceptions of
    callbacks. An object that is closed leaves the dispatcher.
    """

    def __init__(self):
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._sources = {}
        self._changes = []
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="rocketbufs-dispatcher", daemon=True)
        # A thread begins with the mask of the one that starts it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OPEN)
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def add(self, source, callback, *, on_error=None):
        """Calls `callback` with every item of the source from now on."""
        take, descriptor = take_of(source), source.fileno()
        with self._lock:
            if self._closed:
                raise closed("dispatcher")
            if id(source) in self._sources:
                raise ValueError("the object is in the dispatcher already")
            # The source is kept alive: its descriptor is its own.
            self._sources[id(source)] = source
            self._changes.append((descriptor, (source, take, callback, on_error)))
        self._notify()

    def remove(self, source):
        """Ends the callbacks of a source. When this has returned, none runs, unless it is called inside of one."""
        done = threading.Event()
        with self._lock:
            if self._closed or self._sources.pop(id(source), None) is None:
                return
            self._changes.append((None, (source, done)))
        self._notify()
        if threading.current_thread() is not self._thread:
            done.wait()

    def close(self):
        """Ends the thread and all callbacks. The objects stay open. A second call does nothing."""
        with self._lock:
            self._closed = True
        self._notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def _notify(self):
        try:
            os.eventfd_write(self._wake, 1)
        except OSError:
            pass  # Closed meanwhile.

    def _run(self):
        try:
            while self._apply():
                for key, _ in self._selector.select():
                    if key.data is None:
                        os.eventfd_read(self._wake)
                    elif key.fd in self._selector.get_map():
                        self._turn(key.fd, *key.data)
        finally:
            for _, change in self._changes:
                if len(change) == 2:
                    change[1].set()
            self._selector.close()
            os.close(self._wake)

    def _apply(self):
        with self._lock:
            changes, self._changes = self._changes, []
            closed = self._closed
        for descriptor, change in changes:
            if descriptor is not None:
                self._selector.register(descriptor, selectors.EVENT_READ, change)
                continue
            source, done = change
            for fd, key in list(self._selector.get_map().items()):
                if key.data is not None and key.data[0] is source:
                    self._selector.unregister(fd)
            done.set()
        return not closed

    def _turn(self, descriptor, source, take, callback, on_error):
        for _ in range(_TURN):
            if self._closed or id(source) not in self._sources:
                return
            try:
                item = take()
            except Closed:
                self._selector.unregister(descriptor)
                with self._lock:
                    self._sources.pop(id(source), None)
                return
            except Error as error:
                if on_error is None:
                    self._report(error)
                else:
                    self._call(on_error, error)
                continue
            if item is None:
                return
            self._call(callback, item)

    def _call(self, callback, item):
        try:
            callback(item)
        except Exception as error:
            self._report(error)

    def _report(self, error):
        arguments = (type(error), error, error.__traceback__, self._thread)
        threading.excepthook(threading.ExceptHookArgs(arguments))
