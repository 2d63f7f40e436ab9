"""CMQ: an asynchronous message queue over UDP, for many processes that send each other small messages.

    from rocketbufs import cmq

    queue = cmq.new_rq("0.0.0.0:4711")
    queue.cw_push(("10.0.0.2", 4711, 7), b"hello")   # to an address and a mailbox; never waits
    message = queue.cw_pop()                          # (bytes, Key) or None; never waits
"""

from ._rocketbufs import Cmq, Key, Mailbox, PublicKey, Reliable, SecretKey, Security

# The name of the paper.
new_rq = Cmq

__all__ = ["Cmq", "Key", "Mailbox", "PublicKey", "Reliable", "SecretKey", "Security", "new_rq"]
