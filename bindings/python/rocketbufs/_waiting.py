"""The item that is taken from an object when its descriptor is readable."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _rocketbufs as rust

if TYPE_CHECKING:
    from ._rocketbufs import _Source

_T = TypeVar("_T")

_TAKES = {
    rust.RIn: "recv",
    rust.ROut: "recv_event",
    rust.Conn: "recv_event",
    rust.Listener: "accept",
    rust.Publisher: "next_event",
    rust.Subscriber: "recv_batch",
}


def take_of(source: "_Source[_T]") -> Callable[[], _T | None]:
    """A function that takes the next item of the object without waiting, and returns None if there is none."""
    if isinstance(source, (rust.Cmq, rust.Mailbox)):
        queue: Any = source
        return lambda: queue.cw_pop()
    name = _TAKES.get(type(source))
    if name is None:
        raise TypeError(f"{type(source).__name__} has no descriptor to wait for")
    method: Callable[[float], _T | None] = getattr(source, name)
    return lambda: method(0)
