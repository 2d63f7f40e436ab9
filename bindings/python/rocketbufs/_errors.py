"""The exceptions of all modules: one hierarchy under `Error`.

Each operation has a class, as each has an enum in Rust. `kind` is the name of the variant, and the text is the same as in Rust.
A kind that several operations share (`TimedOut`, `Full`, `CalledFromWorker`) is a base class besides: `except TimedOut` catches
the time-outs of all operations.
"""

from typing import Any

__all__ = [
    "Error",
    "TimedOut",
    "Full",
    "Closed",
    "Released",
    "Forked",
    "CalledFromWorker",
    "ConfigError",
    "ContextError",
    "ConnError",
    "ListenError",
    "ControlError",
    "OutBufferError",
    "SegmentError",
    "DeliverError",
    "WaitError",
    "SubscribeError",
    "RecvError",
    "LappedError",
    "ConnectError",
    "TopicOpenError",
    "PublishError",
    "PublisherWaitError",
    "ConfirmError",
    "SubscribeTopicError",
    "ReceiveError",
    "GroupError",
    "ObserveError",
    "BrokerError",
    "OpenError",
    "PushError",
    "CmqKeyError",
    "UndeliveredError",
]


class Error(Exception):
    """The base of all exceptions of this package. `kind` names the variant of the Rust error."""

    kind: str = ""

    def __reduce__(self) -> str | tuple[Any, ...]:
        # The classes that `make` has made have no name that others find.
        made = _made.get(type(self))
        return super().__reduce__() if made is None else (make, (*made, str(self)), self.__dict__)


class TimedOut(Error, TimeoutError):
    """Something did not happen in time."""


class Full(Error):
    """The room is used up for now. The same call may succeed later."""


class Closed(Error):
    """The object was closed, or what it stands for has ended."""


class Released(Error):
    """The bytes were released: other bytes may be there by now."""


class Forked(Error):
    """The object belongs to the process before a fork."""


class CalledFromWorker(Error):
    """A call that waits was made from a callback, which runs on the thread that it would wait for."""


class ConfigError(Error, ValueError):
    """A setting that does not exist, or a value that it cannot have."""


class ContextError(Error):
    """A context could not be made."""


class ConnError(Error):
    """A connection could not be made or used."""


class ListenError(Error):
    """A listener cannot use its address."""


class ControlError(Error):
    """A control message was not sent."""


class OutBufferError(Error):
    """A buffer could not be made, found or spliced."""


class SegmentError(Error):
    """A segment of a buffer cannot be had now, or ever. After `append_many`, `published` counts the deliveries that were made."""

    published: int = 0


class DeliverError(Error):
    """A segment was not delivered."""


class WaitError(Error):
    """Waiting for subscribers ended without what was waited for."""


class SubscribeError(Error):
    """A subscription could not be begun."""


class RecvError(Error):
    """Receiving failed."""


class LappedError(Error):
    """The writer of an overwritable buffer was faster than the reader."""


class ConnectError(Error):
    """A client could not connect to a broker."""


class TopicOpenError(Error):
    """A topic could not be opened for publishing."""


class PublishError(Error):
    """A message was not published. After `publish_many`, `published` counts the messages that were."""

    published: int = 0


class PublisherWaitError(Error):
    """A publisher waited in vain for subscribers or for its broker."""


class ConfirmError(Error):
    """Messages were not confirmed. Everything below `confirmed` is."""

    confirmed: "int | None" = None


class SubscribeTopicError(Error, ValueError):
    """The text is neither the name of a topic nor a filter."""


class ReceiveError(Error):
    """Receiving failed, or messages are missing. Unless `is_final`, the next call continues."""

    is_final: bool = False


class GroupError(Error):
    """A group or a worker cannot do something, or acknowledgements do not count (the kind "InVain"): their messages come again."""


class ObserveError(Error):
    """A broker could not be observed."""


class BrokerError(Error):
    """A broker could not be started."""


class OpenError(Error):
    """A message queue could not be opened."""


class PushError(Error):
    """A message was not pushed."""


class CmqKeyError(Error, ValueError):
    """A text or a file is no key of a message queue, or a file with a secret key can be read by others."""


class UndeliveredError(Error):
    """A message of the reliable mode was given up. The message may have arrived all the same."""


# The base classes that several operations share.
_SHARED: dict[str, type[Error]] = {"TimedOut": TimedOut, "Full": Full, "Closed": Closed, "CalledFromWorker": CalledFromWorker}
_classes: dict[tuple[str, str], type[Error]] = {}
# The arguments of `_class_of` for the classes that it has made.
_made: dict[type[Error], tuple[str, str]] = {}


def _class_of(name: str, kind: str) -> type[Error]:
    base: type[Error] = globals()[name]
    shared = _SHARED.get(kind)
    if shared is None or issubclass(base, shared):
        return base
    known = _classes.get((name, kind))
    if known is None:
        # For example PublishTimedOut: a PublishError and a TimedOut.
        attributes = {"__doc__": f"{base.__doc__} {shared.__doc__}", "__module__": base.__module__}
        known = _classes[name, kind] = type(name.removesuffix("Error") + kind, (base, shared), attributes)
        _made[known] = name, kind
    return known


def make(name: str, kind: str, text: str) -> Error:
    """The exception of a Rust error."""
    error = _class_of(name, kind)(text)
    error.kind = kind
    return error


def closed(what: str) -> Error:
    """The exception of a call on something that was closed in Python."""
    return make("Closed", "Closed", f"the {what} is closed")


for _name in __all__:
    globals()[_name].__module__ = "rocketbufs"
