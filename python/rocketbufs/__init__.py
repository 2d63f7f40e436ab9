"""RocketBufs: buffers in memory that move between processes, over TCP, RDMA or shared memory.

`rocketbufs.rbmq` publishes to topics of a broker and subscribes to them. `docs/PYTHON.md` is the guide.
"""

from . import _errors
from ._errors import *  # noqa: F403
from ._rocketbufs import Config, Event, Notifier

_exceptions = [name for name in vars(_errors) if isinstance(vars(_errors)[name], type) and not name.startswith("_")]

__all__ = ["Config", "Event", "Notifier", *_exceptions]
