"""Each public method of Rust is in the Python package, or the reason why not stands here.

    python bindings/python/tests/test_api_table.py        # prints the methods in Rust, Python and C
"""

import pathlib
import re

import pytest

from rocketbufs import _rocketbufs, aio

ROOT = pathlib.Path(__file__).parents[3]
# The crate of a Rust type, the prefix of its functions in C, and its class in Python.
TYPES = {
    "Config": ("rocketbufs/framework", "rb_config_", "Config"),
    "Context": ("rocketbufs/framework", "rb_context_", "Context"),
    "Listener": ("rocketbufs/framework", "rb_listener_", "Listener"),
    "Conn": ("rocketbufs/framework", "rb_conn_", "Conn"),
    "ROut": ("rocketbufs/framework", "rb_rout_", "ROut"),
    "OutBuffer": ("rocketbufs/framework", "rb_buffer_", "OutBuffer"),
    "OutWriter": ("rocketbufs/framework", "rb_writer_", "OutWriter"),
    "OutSegment": ("rocketbufs/framework", "rb_segment_", "OutSegment"),
    "RIn": ("rocketbufs/framework", "rb_rin_", "RIn"),
    "InReader": ("rocketbufs/framework", "rb_reader_", "InReader"),
    "Subscription": ("rocketbufs/framework", "rb_subscription_", "Subscription"),
    "InView": ("rocketbufs/framework", "rb_view_", "InView"),
    "Publisher": ("rbmq/client", "rbmq_publisher_", "Publisher"),
    "TopicWriter": ("rbmq/client", "rbmq_topic_", "TopicWriter"),
    "SpaceWriter": ("rbmq/client", "rbmq_space_", "SpaceWriter"),
    "Confirmation": ("rbmq/client", "rbmq_confirmation_", "Confirmation"),
    "Subscriber": ("rbmq/client", "rbmq_subscriber_", "Subscriber"),
    "OwnedBatch": ("rbmq/client", "rbmq_subscriber_batch_", "Batch"),
    "DeferredBatch": ("rbmq/client", "rbmq_deferred_", "DeferredBatch"),
    "GroupBuilder": ("rbmq/client", "rbmq_group_", "GroupWorker"),
    "GroupWorker": ("rbmq/client", "rbmq_group_worker_", "GroupWorker"),
    "GroupMessage": ("rbmq/client", "rbmq_group_message_", "GroupMessage"),
    "Groups": ("rbmq/client", "rbmq_groups_", "Groups"),
    "Observer": ("rbmq/client", "rbmq_observer_", "Observer"),
    "Cmq": ("cmq/library", "cmq_", "Cmq"),
    "Mailbox": ("cmq/library", "cmq_mailbox_", "Mailbox"),
    "PublicKey": ("cmq/library", "cmq_public_key_", "PublicKey"),
    "SecretKey": ("cmq/library", "cmq_secret_key_", "SecretKey"),
}
# The methods with another name in Python: in all classes, and in one.
PYTHON = {
    "pollable": "fileno", "is_empty": "__len__", "len": "__len__", "iter": "__iter__", "as_slice": "__buffer__",
    "Config.new": "__new__", "Config.set": "__setitem__",
    "Context.new": "__new__", "Listener.bind": "__new__", "Conn.connect": "__new__", "Conn.connect_start": "start",
    "ROut.new": "__new__", "ROut.create_buffer_with": "create_buffer", "ROut.splice_as": "splice",
    "OutWriter.append_blocking": "append", "OutWriter.buffer": "bid", "OutSegment.bytes_mut": "view",
    "RIn.new": "__new__", "RIn.subscribe_with": "subscribe", "InView.copy_to": "__buffer__", "InView.to_vec": "__buffer__",
    "Publisher.connect": "__new__", "Publisher.builder": "__new__", "Publisher.topic_with": "topic",
    "Publisher.space_with": "space", "Publisher.close_timeout": "close",
    "TopicWriter.publish_timeout": "publish", "TopicWriter.publish_raw": "publish", "TopicWriter.batch": "publish_many",
    "TopicWriter.batch_timeout": "publish_many", "TopicWriter.fill_raw": "segment", "TopicWriter.claim": "segment",
    "TopicWriter.claim_with": "segment", "TopicWriter.publish_with": "publish", "TopicWriter.publish_with_timeout": "publish",
    "TopicWriter.publish_segment": "segment", "TopicWriter.close_timeout": "close",
    "SpaceWriter.space": "pattern", "SpaceWriter.publish_to_timeout": "publish_to", "SpaceWriter.batch": "publish_many",
    "SpaceWriter.close_timeout": "close",
    "Confirmation.try_get": "poll",
    "Subscriber.connect": "__new__", "Subscriber.builder": "__new__", "Subscriber.subscribe_from": "subscribe",
    "Subscriber.next_batch": "recv_batch", "Subscriber.recv_ref": "recv_bytes", "Subscriber.close_timeout": "close",
    "OwnedBatch.is_copy": "copied", "OwnedBatch.consume_up_to": "release_up_to",
    "GroupBuilder.join": "__new__", "GroupBuilder.dead_letters": "__new__",
    "Observer.connect": "__new__", "Observer.builder": "__new__",
    "Cmq.pop_timeout": "pop", "Cmq.pop_where_timeout": "pop_where", "Mailbox.pop_where_timeout": "pop_where",
    "Cmq.try_iter": "cw_pop", "Cmq.multicast": "join",
    "Cmq.push_bytes": "cw_push", "Cmq.push_reliable_bytes": "push_reliable", "Mailbox.pop_timeout": "pop",
    "SecretKey.from_bytes": "__new__", "SecretKey.as_bytes": "__bytes__",
}
# The methods that no class has, with the reason.
LEFT_OUT = {
    "Config.from_toml_shared": "settings of the framework in a file of another program: for programs in Rust",
    "Config.load_shared": "as from_toml_shared",
    "Config.from_table": "as from_toml_shared",
    "Config.apply_env": "load does it",
    "Config.validate": "every way to make or change a Config does it",
    "Config.origin": "for messages of the program about its own settings",
    "Context.allow_callbacks_in_calls": "a callback inside of a call would find the object of that call locked",
    "Context.reload_tls": "a program that renews its certificates makes a context anew",
    "OutBuffer.context": "the program has it",
    "ROut.context": "the program has it",
    "OutBuffer.room": "Event Progress, after notify_progress",
    "OutBuffer.segment_async": "as room",
    "OutWriter.append_async": "as room",
    "OutWriter.grow": "for libraries that do not know how large their messages will be, as that of RBMQ, whose topics grow by themselves",
    "Conn.peer_grows": "as OutWriter.grow",
    "OutWriter.bytes_to_grow": "as OutWriter.grow",
    "OutWriter.segment_async": "as room",
    "Listener.bind_locally": "for programs in Rust that have a broker in them",
    "Subscriber.take_refused": "as bind_locally",
    "Subscriber.is_settled": "as bind_locally",
    "Conn.connect_async": "start, and aio.receive",
    "Conn.take_peer_hello": "peer_hello; Python copies bytes, and overwrites none",
    "Observer.gateways": "rbmq top --json has them",
    "Observer.groups": "rbmq top --json has them",
    "Observer.limits": "rbmq top --json has them",
    "InView.range_ref": "what the chunks of RBLive are made of, in Rust",
    "TopicWriter.epoch": "for gateways in the process of the broker, which are written in Rust",
    "TopicWriter.free_bytes": "publish with a time-out of 0",
    "TopicWriter.largest_delivery_bytes": "the error of a message that is too large says it",
    "SpaceWriter.free_bytes": "publish_to with a time-out of 0",
    "TopicWriter.has_ended": "for programs that open topics for others, as gateways do; the events tell of a refused topic",
    "TopicWriter.space": "as TopicWriter.has_ended",
    "SpaceWriter.has_ended": "as TopicWriter.has_ended",
    "Subscriber.context": "a context is shared by making it first",
    "Subscriber.interrupter": "close ends the wait of another thread",
    "Subscriber.into_stream": "aio.Subscriber.__aiter__",
    "Cmq.arrivals": "pop_where waits itself",
    "Cmq.wait_arrival": "pop_where waits itself",
    "Mailbox.arrivals": "pop_where waits itself",
    "Mailbox.wait_arrival": "pop_where waits itself",
    "Cmq.stream": "aio.Queue",
    "Mailbox.stream": "aio.Queue",
}
# The forms for tasks, in rocketbufs.aio.
TASKS = {"Publisher": aio.Publisher, "TopicWriter": aio.TopicWriter, "SpaceWriter": aio.SpaceWriter, "Subscriber": aio.Subscriber}
TASK_NAMES = {
    "topic_with": "topic", "space_with": "space", "publish_raw": "publish", "publish_with": "publish", "batch": "publish_many", "next_batch": "recv_batch", "recv_ref": "recv"
}
# Modules that only other crates of the workspace use, or that no public type comes from.
HIDDEN = {"relay.rs", "ends", "logs", "records", "workers", "proto", "worker", "strategy"}
BLOCK = r"^(#\[doc\(hidden\)\]\n)?impl(?:<[^{]*?>)? %s(?:<[^{]*>)? \{\n(.*?)^\}"
METHOD = re.compile(r"((?:    #\[.*\]\n)*)    pub (?:const )?(?:async )?fn (\w+)")


def methods(name):
    """The public methods of a Rust type, from its source."""
    for file in sorted((ROOT / TYPES[name][0] / "src").rglob("*.rs")):
        if HIDDEN & set(file.parts):
            continue
        for hidden, block in re.findall(BLOCK % name, file.read_text(), re.MULTILINE | re.DOTALL):
            yield from (m for attributes, m in METHOD.findall(block) if not hidden and "hidden" not in attributes)


def in_python(name, method):
    """The method's name in Python; None if Python has no such method."""
    if method.endswith("_async") and name in TASKS:
        found = method.removesuffix("_async")
        found = TASK_NAMES.get(found, found)
        return f"aio.{name}.{found}" if hasattr(TASKS[name], found) else None
    found = PYTHON.get(f"{name}.{method}", PYTHON.get(method, method))
    cls = TYPES[name][2]
    # A buffer of an abi3 module is a slot, which has a name from Python 3.12 on only.
    if found == "__buffer__" or hasattr(getattr(_rocketbufs, cls), found):
        return f"{cls}.{found}"
    return None


@pytest.mark.parametrize("name", TYPES)
def test_python_has_each_method(name):
    found = set(methods(name))
    assert found
    assert {f"{name}.{m}" for m in found if in_python(name, m) is None} == {x for x in LEFT_OUT if x.split(".")[0] == name}


def main():
    header = (ROOT / "bindings" / "include" / "rocketbufs.h").read_text()
    for name, (_, prefix, _) in TYPES.items():
        for method in methods(name):
            c = prefix + {"pollable": "fd"}.get(method, method)
            c = c if re.search(rf"\b{c}\(", header) else "-"
            python = in_python(name, method) or f"- ({LEFT_OUT[f'{name}.{method}']})"
            print(f"{name}::{method:28} {python:36} {c}")


if __name__ == "__main__":
    main()
