"""paho with a gateway: MQTT 3.1.1 and 5. The arguments are the port, and tcp or websockets."""

import queue
import sys

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

PORT = int(sys.argv[1])


class Client:
    def __init__(self, version):
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=version, transport=sys.argv[2])
        self.messages = queue.Queue()
        self.subscribed = queue.Queue()
        self.client.on_message = lambda _client, _data, message: self.messages.put(message)
        self.client.on_subscribe = lambda _client, _data, _mid, codes, _properties: self.subscribed.put(codes)
        self.client.connect("127.0.0.1", PORT)
        self.client.loop_start()

    def subscribe(self, topic, qos):
        self.client.subscribe(topic, qos)
        codes = self.subscribed.get(timeout=60)
        assert [code.value for code in codes] == [qos], codes

    def publish(self, *arguments, **options):
        self.client.publish(*arguments, **options).wait_for_publish(60)

    def end(self):
        self.client.disconnect()
        self.client.loop_stop()


def subscribe_and_publish(version):
    one, other = Client(version), Client(version)
    one.subscribe("paho/+/a", 2)
    for qos in (0, 1, 2):
        payload = b"\x00\xff" * (1 + 1000 * qos)
        other.publish("paho/%d/a" % version, payload, qos=qos)
        message = one.messages.get(timeout=60)
        assert (message.topic, message.payload, message.qos) == ("paho/%d/a" % version, payload, qos)
    if version == mqtt.MQTTv5:
        properties = Properties(PacketTypes.PUBLISH)
        properties.ContentType = "text/plain"
        properties.UserProperty = [("a", "b"), ("a", "c")]
        other.publish("paho/5/a", "text", qos=1, properties=properties)
        got = one.messages.get(timeout=60).properties
        assert (got.ContentType, got.UserProperty) == ("text/plain", [("a", "b"), ("a", "c")])
    other.publish("paho/retained/%d" % version, "kept", qos=1, retain=True)
    other.subscribe("paho/retained/%d" % version, 0)
    message = other.messages.get(timeout=60)
    assert (message.payload, message.retain) == (b"kept", True)
    one.end()
    other.end()


for version in (mqtt.MQTTv311, mqtt.MQTTv5):
    subscribe_and_publish(version)
