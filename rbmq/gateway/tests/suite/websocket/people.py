"""paho-mqtt over WebSocket with a gateway: MQTT 3.1.1 and 5. The argument is the port."""

import queue
import sys

import paho.mqtt.client as mqtt

PORT = int(sys.argv[1])
COUNT = 300


def subscribe_and_publish(version):
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, transport="websockets", protocol=version)
    subscribed, arrived = queue.Queue(), queue.Queue()
    client.on_subscribe = lambda *_: subscribed.put(True)
    client.on_message = lambda _client, _data, message: arrived.put((message.topic, message.payload))
    client.connect("127.0.0.1", PORT)
    client.loop_start()
    client.subscribe("paho/#", qos=2)
    assert subscribed.get(timeout=60)
    payloads = [b"%d" % number * (1 + number * 50) for number in range(COUNT)]
    for number, payload in enumerate(payloads):
        client.publish(f"paho/{number % 7}", payload, qos=number % 3)
    got = [arrived.get(timeout=60) for _ in range(COUNT)]
    expected = [(f"paho/{number % 7}", payload) for number, payload in enumerate(payloads)]
    # Messages of QoS 2 may be behind others that came after them.
    assert sorted(got) == sorted(expected)
    client.disconnect()
    client.loop_stop()


subscribe_and_publish(mqtt.MQTTv311)
subscribe_and_publish(mqtt.MQTTv5)
