"""The item that is taken from an object when its descriptor is readable."""

from . import _rocketbufs as rust

_TAKES = {
    rust.RIn: "recv",
    rust.ROut: "recv_event",
    rust.Conn: "recv_event",
    rust.Listener: "accept",
    rust.Publisher: "next_event",
    rust.Subscriber: "recv_batch",
}


def take_of(source):
    """A function that takes the next item of the object without waiting, and returns None if there is none."""
    if isinstance(source, (rust.Cmq, rust.Mailbox)):
        return source.cw_pop
    name = _TAKES.get(type(source))
    if name is None:
        raise TypeError(f"{type(source).__name__} has no descriptor to wait for")
    method = getattr(source, name)
    return lambda: method(0)
