"""RocketBufs: buffers in memory that move between processes, over TCP, RDMA or shared memory.

    import rocketbufs

    context = rocketbufs.Context()
    out = rocketbufs.ROut(context)
    buffer = out.create_buffer(7, 1 << 20)
    listener = rocketbufs.Listener(context, "127.0.0.1:7400")
    listener.set_conn_cb(out.add_conn)
    buffer.append(b"hello")

`rocketbufs.rbmq` publishes to topics of a broker and subscribes to them, `rocketbufs.cmq` is a message queue over UDP, and
`rocketbufs.aio` has the forms for asyncio. `docs/PYTHON.md` is the guide.
"""

from . import _errors
from ._errors import *  # noqa: F403
from ._rocketbufs import (
    Admitted,
    BufSeg,
    Budget,
    Config,
    Conn,
    Context,
    Event,
    InReader,
    InView,
    Listener,
    Notifier,
    OutBuffer,
    OutSegment,
    OutWriter,
    RateLimit,
    RIn,
    ROut,
    Subscription,
)

from .dispatcher import Dispatcher

# The names of paper 1.
rIn = RIn
rOut = ROut

__all__ = [
    "Admitted",
    "BufSeg",
    "Budget",
    "Config",
    "Conn",
    "Context",
    "Dispatcher",
    "Event",
    "InReader",
    "InView",
    "Listener",
    "Notifier",
    "OutBuffer",
    "OutSegment",
    "OutWriter",
    "RateLimit",
    "RIn",
    "ROut",
    "Subscription",
    "rIn",
    "rOut",
]
__all__ += _errors.__all__
