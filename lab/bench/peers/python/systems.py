"""The systems that are compared, each through its own Python client: how it is started, published to and received from.

A system is a class with a server (a context manager that gives an address), `publish(address, stream)` and `receive(address, sink)`.
Both run in a process of their own. `stream` gives lists of messages; `sink.one` takes one message, and `sink.many` a list.
"""

import asyncio
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "testkit"))
from own_port import own_port  # noqa: E402

TOPIC = "bench"


def wait_for(port):
    for _ in range(200):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError("the server does not listen")


@contextlib.contextmanager
def server(program, arguments, port):
    """Runs a server of another system while the block runs."""
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        raise FileNotFoundError(f"there is no {program} here (scripts/bench-peers installs it)")
    process = subprocess.Popen([found, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port)
        yield port
    finally:
        process.terminate()
        process.wait(10)


class Rbmq:
    """One call per message published, and one item per message received."""

    name = "RBMQ, one item at a time"
    size_of_list = 64

    @contextlib.contextmanager
    def server(self):
        program = os.environ.get("RBMQ")
        port = own_port()
        if program:
            with server(program, ["serve", "--listen", f"127.0.0.1:{port}"], port):
                yield f"127.0.0.1:{port}"
            return
        from rocketbufs import rbmq

        with rbmq.Broker(f"127.0.0.1:{port}"):
            yield f"127.0.0.1:{port}"

    def topic(self, address):
        from rocketbufs import rbmq

        publisher = rbmq.Publisher(address)
        topic = publisher.topic(TOPIC)
        topic.wait_subscribers(1, 30)
        return topic

    def publish(self, address, stream):
        publish = self.topic(address).publish
        for messages in stream:
            for message in messages:
                publish(message)

    def subscriber(self, address):
        from rocketbufs import rbmq

        subscriber = rbmq.Subscriber(address)
        subscriber.subscribe(TOPIC)
        return subscriber

    def receive(self, address, sink):
        sink = sink.one
        for message in self.subscriber(address).iter_bytes():
            sink(message)


class RbmqBatch(Rbmq):
    """Many messages per call, on both sides."""

    name = "RBMQ, in batches"

    def publish(self, address, stream):
        topic = self.topic(address)
        for messages in stream:
            topic.publish_many(messages)

    def receive(self, address, sink):
        subscriber = self.subscriber(address)
        while True:
            with subscriber.recv_batch() as batch:
                messages = batch.to_list()
            sink.many(messages)


class Redis:
    name = "redis-py with hiredis"
    size_of_list = 64

    @contextlib.contextmanager
    def server(self):
        port = own_port()
        # Without a limit of its output buffer: the window limits what is under way.
        limits = ["--client-output-buffer-limit", "pubsub 0 0 0"]
        arguments = ["--port", str(port), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", *limits]
        with server("redis-server", arguments, port):
            yield port

    def client(self, port):
        import redis

        client = redis.Redis(port=port)
        while client.pubsub_numsub(TOPIC)[0][1] == 0:
            time.sleep(0.02)
        return client

    def publish(self, port, stream):
        client = self.client(port)
        for messages in stream:
            for message in messages:
                client.publish(TOPIC, message)

    def receive(self, port, sink):
        import redis

        pubsub = redis.Redis(port=port).pubsub(ignore_subscribe_messages=True)
        pubsub.subscribe(TOPIC)
        sink = sink.one
        for message in pubsub.listen():
            sink(message["data"])


class RedisPipelined(Redis):
    name = "redis-py with hiredis, pipelined by 64"

    def publish(self, port, stream):
        pipeline = self.client(port).pipeline(transaction=False)
        for messages in stream:
            for message in messages:
                pipeline.publish(TOPIC, message)
            pipeline.execute()


class Nats:
    name = "nats-py"
    size_of_list = 64

    @contextlib.contextmanager
    def server(self):
        port = own_port()
        with server("nats-server", ["-a", "127.0.0.1", "-p", str(port)], port):
            yield port

    def publish(self, port, stream):
        async def main():
            import nats

            client = await nats.connect(f"nats://127.0.0.1:{port}")
            for messages in stream:
                for message in messages:
                    await client.publish(TOPIC, message)
                await asyncio.sleep(0)

        asyncio.run(main())

    def receive(self, port, sink):
        async def main():
            import nats

            client = await nats.connect(f"nats://127.0.0.1:{port}", pending_size=1 << 26)
            subscription = await client.subscribe(TOPIC, pending_msgs_limit=0, pending_bytes_limit=0)
            await client.flush()
            async for message in subscription.messages:
                sink.one(message.data)

        asyncio.run(main())


class Zmq:
    """Through a proxy in a process of its own, as the others have a server."""

    name = "pyzmq, through a proxy"
    size_of_list = 64

    @contextlib.contextmanager
    def server(self):
        import multiprocessing

        ports = own_port(), own_port()
        process = multiprocessing.Process(target=self.proxy, args=(ports,), daemon=True)
        process.start()
        try:
            wait_for(ports[1])
            yield ports
        finally:
            process.terminate()
            process.join(10)

    def proxy(self, ports):
        import zmq

        context = zmq.Context()
        front, back = context.socket(zmq.XSUB), context.socket(zmq.XPUB)
        front.rcvhwm = front.sndhwm = back.rcvhwm = back.sndhwm = 0
        front.bind(f"tcp://127.0.0.1:{ports[0]}")
        back.bind(f"tcp://127.0.0.1:{ports[1]}")
        zmq.proxy(front, back)

    def publish(self, ports, stream):
        import zmq

        socket = zmq.Context().socket(zmq.XPUB)
        socket.sndhwm = 0
        socket.connect(f"tcp://127.0.0.1:{ports[0]}")
        socket.recv()  # The subscription.
        for messages in stream:
            for message in messages:
                socket.send(message)

    def receive(self, ports, sink):
        import zmq

        socket = zmq.Context().socket(zmq.SUB)
        socket.rcvhwm = 0
        socket.subscribe(b"")
        socket.connect(f"tcp://127.0.0.1:{ports[1]}")
        sink = sink.one
        while True:
            sink(socket.recv())


class Paho:
    name = "paho-mqtt"
    size_of_list = 16

    @contextlib.contextmanager
    def server(self):
        port = own_port()
        # Without a limit of its queue: the window limits what is under way.
        text = f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 0\n"
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
            config.write(text)
            config.flush()
            # The server gives up root's rights before it reads the file.
            os.chmod(config.name, 0o644)
            with server("mosquitto", ["-c", config.name], port):
                yield port

    def client(self, port):
        import paho.mqtt.client as mqtt

        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        client.max_queued_messages_set(0)
        client.connect("127.0.0.1", port)
        return client

    def publish(self, port, stream):
        client = self.client(port)
        client.loop_start()
        for messages in stream:
            for message in messages:
                client.publish(TOPIC, message)

    def receive(self, port, sink):
        client = self.client(port)
        client.on_message = lambda _client, _data, message: sink.one(message.payload)
        client.subscribe(TOPIC)
        client.loop_forever()


ALL = {
    "rbmq": Rbmq,
    "rbmq-batch": RbmqBatch,
    "redis": Redis,
    "redis-pipelined": RedisPipelined,
    "nats": Nats,
    "zmq": Zmq,
    "paho": Paho,
}
