"""The whole NIC: the vectors of docs/multimqc-vectors.json, each rule of the classifier, random traffic on all ports.

A failing random test names its seed; SEED=n repeats it.
"""

import json
import os
import random
from pathlib import Path

import pytest

from frames import (BATCH, DATA, END, HEADER_PORT, PULL, PULL_PORT, PUSH, PUSH_PORT, REPLY, Model, Topic, Udp, header, pull)
from nic import CLOCK_HZ, GBITS, PORTS, Script, counters

VECTORS = json.loads((Path(__file__).parent / "../../../docs/multimqc-vectors.json").read_text())
BATCH_HEADERS = 74
# Bytes below the head that a level answers for: its ring without what is kept clear of readers. More than a test pushes.
LEVEL1_WINDOW = 32768 - 64 * 16
LEVEL2_WINDOW = 2**30


def opened(*topics, **speed):
    script = Script()
    script.speed(**speed)
    for index, topic in enumerate(topics):
        script.open(index, topic)
    return script


def body(payload):
    return bytes.fromhex(payload)


def batches(result):
    """The body of each batch to the host, by topic: {topic id: [(offset, bytes)]}."""
    found = {}
    for frame in result.host:
        if frame.where & 16:
            data = frame.data
            assert data[42:44] == b"MQ" and data[45] == BATCH
            topic = int.from_bytes(data[46:48], "little")
            offset, length = int.from_bytes(data[58:66], "little"), int.from_bytes(data[66:70], "little")
            found.setdefault(topic, []).append((offset, data[BATCH_HEADERS:BATCH_HEADERS + length]))
    return found


def logs(result):
    """The logs that the batches make, which must follow each other without a gap."""
    found = {}
    for topic, parts in batches(result).items():
        log = b""
        for offset, data in parts:
            assert offset == len(log), f"topic {topic}: a batch at {offset}, the log ends at {len(log)}"
            log += data
        found[topic] = log
    return found


def others(result):
    return [frame.data for frame in result.host if not frame.where & 16]


@pytest.mark.parametrize("trusted", [False, True])
def test_the_exchange_gives_the_same_replies(trusted):
    exchange = VECTORS["exchange"]
    topic = Topic(exchange["topic"], epoch=exchange["epoch"])
    script = opened(topic)
    if trusted:
        script.write(0x18, 0)
        script.write(0x1C, 0)
    for message in exchange["pushes"]:
        script.frame(0, Udp(body(message)).frame())
    script.settle()
    asked = [(PULL_PORT, vector) for vector in exchange["plain"]] + [(HEADER_PORT, vector) for vector in exchange["header"]]
    asked = [(port, vector) for port, vector in asked if vector["trusted"] == trusted]
    for port, vector in asked:
        script.frame(1, Udp(body(vector["request"]), port=port).frame())
    result = script.run()
    # The NIC does not answer pulls for nothing, of another epoch, of another topic.
    for_host = [Udp(body(vector["request"]), port=port).frame() for port, vector in asked
                if any(word in vector["name"] for word in ("no bytes", "another"))]
    expected = [Udp(body(vector["reply"]), port=40000, source_port=port, source=bytes([10, 1, 2, 1]),
                    destination=bytes([10, 1, 2, 3]), ident=0, to_mac=Udp.from_mac, from_mac=Udp.to_mac).frame()
                for port, vector in asked if not any(word in vector["name"] for word in ("no bytes", "another"))]
    assert [frame.data for frame in result.network] == expected
    assert others(result) == for_host
    assert len(expected) == (2 if trusted else 11)


def test_registers_say_what_the_nic_is():
    script = Script()
    for address in (0x00, 0x04, 0x24, 0x2C):
        script.read(address)
    magic, shape, age, clock = (value for _, value in script.run().registers)
    assert magic == int.from_bytes(b"MQN1", "big")
    assert shape == 4 | PORTS << 16 | (64 if GBITS == 100 else 8) << 24
    # A batch waits for a millisecond.
    assert age == clock == -(-CLOCK_HZ // 1000)


def run_in_order(frames, topics, levels=3, **speed):
    """Sends frames one after the other through port 0 and compares everything with the model."""
    script, model = opened(*topics, **speed), Model(topics, window=LEVEL1_WINDOW if levels == 1 else LEVEL2_WINDOW)
    script.write(0x08, levels)
    for frame in frames:
        script.frame(0, frame, gap=200)
    script.settle(3000)
    script.write(0x28, 1)
    script.settle(3000)
    script.read_counters(len(topics))
    result = script.run()
    outcomes = [model.frame(frame) for frame in frames]
    assert others(result) == [outcome[1] for outcome in outcomes if outcome[0] == "host"]
    assert [frame.data for frame in result.network] == [outcome[1] for outcome in outcomes if outcome[0] == "reply"]
    counts, ports, dropped = counters(result)
    assert counts == model.counts
    assert ports["received", 0] == len(frames) and ports["overrun", 0] == 0 and dropped == 0
    assert logs(result) == {topic.id: bytes(topic.log) for topic in topics if topic.log}
    return outcomes


def test_good_and_bad_datagrams_have_the_outcome_of_the_model():
    frames = []
    for form, name, port in [("header", "good", HEADER_PORT), ("header", "refused", HEADER_PORT), ("plain", "pulls", PULL_PORT),
                             ("plain", "refused", PULL_PORT)]:
        for vector in VECTORS[form][name]:
            frames += [Udp(body(vector["hex"]), port=port, v6=v6).frame() for v6 in (False, True)]
    run_in_order(frames, [Topic()])


def test_each_rule_of_the_classifier():
    message = bytes(range(100))
    asked = header(PULL, length=8, body=bytes(8))
    frames = [Udp(message).frame()]
    for change in [
        {"to_mac": bytes.fromhex("ffffffffffff")}, {"to_mac": bytes.fromhex("01005e000001")}, {"ethertype": 0x8100},
        {"ethertype": 0x0806}, {"first": 0x46}, {"first": 0x55}, {"protocol": 6}, {"fragment": 0x2000}, {"fragment": 0x0001},
        {"fragment": 0x2001}, {"destination": bytes([224, 0, 0, 1])}, {"destination": bytes([255] * 4)}, {"port": 53},
        {"port": 0}, {"udp_length": 107}, {"udp_length": 109}, {"udp_length": 7}, {"udp_length": 0}, {"ip_length": 127},
        {"ip_length": 129}, {"ip_length": 19}, {"check": 0}, {"check": 1}, {"ip_check": 0}, {"trailer": bytes(30)},
        {"udp_length": 200, "ip_length": 220}, {"tos": 255}, {"ttl": 1}, {"ident": 0}, {"source_port": 0},
    ]:
        frames += [Udp(message, **change).frame(), Udp(asked, **{"port": HEADER_PORT, **change}).frame()]
    for change in [
        {"to_mac": bytes.fromhex("333300000001")}, {"protocol": 0}, {"destination": bytes([0xFF] + [0] * 15)}, {"check": 0},
        {"check": 7}, {"udp_length": 107}, {"ip_length": 107}, {"ip_length": 109}, {"udp_length": 200, "ip_length": 200},
        {"trailer": bytes(9)}, {},
    ]:
        frames += [Udp(message, v6=True, **change).frame(), Udp(asked, **{"port": HEADER_PORT, "v6": True, **change}).frame()]
    for port in (PUSH_PORT, PULL_PORT, HEADER_PORT, 20001, 20002):
        frames.append(Udp(asked, port=HEADER_PORT, source_port=port).frame())
    # Whatever its length: nothing but the frame itself goes anywhere.
    frames += [Udp(message[:n], pad=False).frame() for n in range(0, 24)] + [message[:n] for n in range(1, 60)]
    frames += [Udp(message[:n], v6=True, pad=False).frame() for n in range(0, 24)]
    frames.append(Udp(bytes(2000)).frame())
    topics = [Topic(), Topic(id=300, push=20001, pull=20002, epoch=9)]
    outcomes = run_in_order(frames, topics)
    assert {outcome[0] for outcome in outcomes} == {"host", "stored", "reply"}


def random_frame(rng, topics, head):
    """A frame of any kind; most are pushes and pulls that are right."""
    topic, v6 = rng.choice(topics), rng.random() < 0.3
    size = rng.choice([1, 4, 22, 23, 32, 86, 87, rng.randrange(1, 300), rng.randrange(1, 1400)])
    start = rng.choice([0, max(0, head[topic.id] - rng.randrange(1, 3000)), rng.randrange(0, head[topic.id] + 50), 2**63 - 1])
    room = rng.choice([16, 40, 64, rng.randrange(16, 1440)])
    kind = rng.randrange(10)
    options = {"v6": v6, "source_port": rng.choice([40000, 1, 65535, 40001])}
    if kind < 4:
        head[topic.id] += size
        data, port = rng.randbytes(size), topic.push
        if kind % 2:
            data, port = header(PUSH, topic.id, cookie=1, sequence=rng.randrange(2**32), length=size, body=data), HEADER_PORT
    elif kind < 6:
        data, port = pull(start, rng.randrange(1, 1500), room), topic.pull
    elif kind < 8:
        data = header(PULL, topic.id, cookie=rng.randrange(2**32), sequence=rng.randrange(2**32), offset=start,
                      length=rng.randrange(1, 1500), epoch=rng.choice([0, topic.epoch, 77]), body=bytes(room))
        port = HEADER_PORT
    else:
        data, port = rng.randbytes(rng.randrange(0, 1400)), rng.choice([53, PUSH_PORT, PULL_PORT, HEADER_PORT])
        options["check"] = rng.choice([None, rng.randrange(1, 2**16)])
    frame = Udp(data, port=port, **options).frame()
    if rng.random() < 0.05:
        at = rng.randrange(len(frame))
        frame = frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1:]
    return frame


SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else range(1, 1 + int(os.environ.get("SEEDS", "3")))


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_frames_one_after_the_other(seed, levels):
    rng = random.Random(seed)
    topics = [Topic(), Topic(id=300, push=20001, pull=20002, epoch=9)]
    head = {topic.id: 0 for topic in topics}
    frames = []
    # The rings go round.
    while max(head.values()) < 50_000:
        frames.append(random_frame(rng, topics, head))
    run_in_order(frames, topics, levels, seed=seed, host=rng.choice([255, 200, 100]), port=rng.choice([255, 200, 100]))


def message(port, number, size):
    """A message that says which it is, as far as its size allows."""
    words = b"".join((port << 28 | number << 8 | i & 255).to_bytes(4, "big") for i in range(size // 4 + 1))
    return words[:size]


def check_interleaving(log, pushed):
    """The log must be the messages of all ports, each whole and once, each port's in its order."""
    at, nexts = 0, {port: 0 for port in pushed}
    while at < len(log):
        for port, number in nexts.items():
            if number < len(pushed[port]) and log.startswith(pushed[port][number], at):
                at += len(pushed[port][number])
                nexts[port] += 1
                break
        else:
            raise AssertionError(f"no port has pushed what is at {at}")
    assert nexts == {port: len(messages) for port, messages in pushed.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_all_ports_at_once_at_the_rate_of_the_wire(seed):
    """Pushes, pulls and other frames on all ports, without pause; all that goes in comes out once and in order."""
    rng = random.Random(seed)
    topic = Topic()
    script = opened(topic, seed=seed)
    script.write(0x24, 500)
    prefix = message(15, 0, 4000)
    for at in range(0, 4000, 1000):
        script.frame(0, Udp(prefix[at:at + 1000]).frame(), gap=300)
    script.settle()
    pushed = {port: [] for port in range(PORTS)}
    replies = {port: [] for port in range(PORTS)}
    passed = {port: [] for port in range(PORTS)}
    from_host = {port: [] for port in range(PORTS)}
    size = rng.choice([4, 32, 100, 500, 1472])
    for number in range(1000 // PORTS):
        for port in range(PORTS):
            kind, v6 = rng.randrange(4), rng.random() < 0.3
            n = rng.choice([size, rng.randrange(4, 200)])
            if kind < 2:
                pushed[port].append(message(port, number, n))
                data, to = pushed[port][-1], PUSH_PORT
                if rng.random() < 0.5 and n <= 1440:
                    data, to = header(PUSH, length=n, body=data), HEADER_PORT
                script.frame(port, Udp(data, port=to, v6=v6 and n < 1440).frame())
            elif kind == 2:
                start = rng.randrange(0, 2500)
                # A reply as long as its request: what the wire out can take.
                asked = header(PULL, cookie=port, sequence=number, offset=start, length=n, body=bytes(min(n, 1440)))
                script.frame(port, Udp(asked, port=HEADER_PORT).frame())
                n = min(n, 1440)
                replies[port].append(header(REPLY, cookie=port, sequence=number, offset=start, length=n, epoch=5,
                                            body=prefix[start:start + n]))
            else:
                frame = Udp(message(port, number, n), port=53).frame()
                passed[port].append(frame)
                script.frame(port, frame)
    script.settle(2000)
    script.read_counters(1)
    for number in range(60):
        frame = Udp(message(number % PORTS, number, rng.randrange(1, 1400)), port=99).frame()
        from_host[number % PORTS].append(frame)
        script.from_host(number % PORTS, frame)
    script.settle(3000)
    result = script.run()
    counts, ports, dropped = counters(result)
    assert dropped == 0 and not [key for key, value in ports.items() if value and key[0] in ("overrun", "tx_dropped")]
    log = logs(result)[topic.id]
    # A pull whose bytes were overwritten meanwhile goes to the host; each pull is answered by one of both.
    assert log[:4000] == prefix
    check_interleaving(log[4000:], pushed)
    for port in range(PORTS):
        others_of = [frame.data for frame in result.host if frame.where == port]
        missed = [data for data in others_of if data[36:38] != b"\x00\x35"]
        assert [data for data in others_of if data[36:38] == b"\x00\x35"] == passed[port]
        sent = [frame.data for frame in result.network if frame.where == port]
        assert [data for data in sent if data[36:38] == b"\x00\x63"] == from_host[port]
        got = {}
        for data in sent:
            if data[36:38] != b"\x00\x63":
                got[int.from_bytes(data[54:58], "little")] = data
        for reply in replies[port]:
            number = int.from_bytes(reply[12:16], "little")
            if number in got:
                assert got[number][42:42 + len(reply)] == reply
        assert len(got) + len(missed) == len(replies[port])
