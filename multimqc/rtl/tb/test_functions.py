"""Input and output functions in the whole NIC: what is stored and what is sent is what the functions make of it."""

import random

from frames import HEADER_PORT, PULL, PULL_PORT, Topic, Udp, header, pull
from nic import counters
from test_nic import logs, opened, others

# The parameters of multimqc_nic.
RECORD, NUMBER_AT, FIELD_AT, FIELD, LOW, HIGH = 32, 0, 8, 4, 100, 200
TOPICS = [Topic(), Topic(id=300, push=20001, pull=20002, epoch=9), Topic(id=301, push=20003, pull=20004, epoch=9)]


def in_range(data):
    return LOW <= int.from_bytes(data[NUMBER_AT:NUMBER_AT + 4], "little") <= HIGH


def field(data):
    return data[FIELD_AT:FIELD_AT + FIELD]


def some_message(rng, size):
    return (rng.choice([99, 100, 150, 200, 201, rng.randrange(2**32)]).to_bytes(4, "little") + rng.randbytes(size))[:size]


def test_input_functions_see_each_message():
    """Messages of all lengths to three topics, with a function each, on four ports: dropped by range, one field, and as they are."""
    rng = random.Random(11)
    script, stored, counts = opened(*TOPICS), {}, {}
    for index in range(3):
        script.functions(index, into=(1, 2, 3)[index])
    script.write(0x24, 500)
    for number in range(300):
        index = rng.randrange(3)
        message = some_message(rng, rng.choice([1, 3, 4, 11, 12, 18, 64, 65, 200, 1400]))
        if index == 0:
            kept = b"" if len(message) >= 4 and in_range(message) else message
        else:
            kept = (field(message) if len(message) >= FIELD_AT + FIELD else b"") if index == 1 else message
        stored[TOPICS[index].id] = stored.get(TOPICS[index].id, b"") + kept
        times, size = counts.get(("stored" if kept else "dropped", index), (0, 0))
        counts["stored" if kept else "dropped", index] = times + 1, size + len(kept)
        script.frame(number % 4, Udp(message, port=TOPICS[index].push).frame(), gap=40)
        # A frame of another kind close to it: both are counted.
        script.frame((number + 1) % 4, Udp(b"other", port=53).frame())
        script.settle(40)
    script.settle(3000)
    script.read_counters(3)
    result = script.run()
    assert logs(result) == stored
    found = counters(result)[0]
    assert found.pop(("passed", 0)) == (300, 0)
    assert found == counts


def made(index, data):
    """The result of a topic's output function for a range; none: the range is for the host."""
    if index == 2:
        return data
    if len(data) % RECORD:
        return b""
    records = [data[at:at + RECORD] for at in range(0, len(data), RECORD)]
    return b"".join(record for record in records if not in_range(record)) if index == 0 else b"".join(map(field, records))


def test_output_functions_see_each_record():
    """Pulls of three topics with a function each, one behind the other: replies keep their order, and have what the function leaves."""
    rng = random.Random(12)
    script, log = opened(*TOPICS), {}
    for index, topic in enumerate(TOPICS):
        log[index] = b"".join(some_message(rng, RECORD) for _ in range(120)) + bytes(100).join([b"", (150).to_bytes(4, "little") * 240])
        for at in range(0, len(log[index]), 960):
            script.frame(index, Udp(log[index][at:at + 960], port=topic.push).frame(), gap=200)
        script.functions(index, out=(1, 2, 0)[index])
    script.settle()
    sent, for_host = [], []
    for _ in range(400):
        index = rng.randrange(3)
        start = rng.randrange(0, 150) * RECORD + (rng.random() < 0.1)
        n = rng.choice([1, 2, 3, 20, 40]) * RECORD - (rng.random() < 0.1)
        room = rng.choice([n, n + 32])
        if rng.random() < 0.5:
            frame = Udp(pull(start, n, n), port=TOPICS[index].pull).frame()
        else:
            frame = Udp(header(PULL, TOPICS[index].id, offset=start, length=n, body=bytes(room)), port=HEADER_PORT).frame()
        data = log[index][start:start + n]
        reply = b"" if start % RECORD and index != 2 else made(index, data)
        if reply or not data:
            sent.append((start, reply))
        else:
            for_host.append(frame)
        script.frame(3, frame)
    script.settle(3000)
    result = script.run()
    got = [frame.data for frame in result.network]
    assert len(got) == len(sent)
    for frame, (start, reply) in zip(got, sent):
        plain = int.from_bytes(frame[34:36], "big") != HEADER_PORT
        body = frame[42:] if plain else frame[74:]
        assert body[:len(reply)] == reply and len(frame) == max(60, len(frame) - len(body) + len(reply)), start
        if not plain and reply:
            assert int.from_bytes(frame[58:66], "little") == start and int.from_bytes(frame[66:70], "little") == len(reply)
    assert others(result) == for_host
    assert len(sent) > 100 and len(for_host) > 30


def test_a_function_is_changed_while_messages_come():
    """A message that is under way keeps its function: each is stored whole, as its field, or not at all."""
    script, message = opened(TOPICS[0]), (150).to_bytes(4, "little") + bytes(range(200)) * 6
    for number in range(60):
        # A message is at the function a few clocks after its frame's last beat, for 20 clocks.
        script.frame(0, Udp(message).frame())
        script.settle(number // 2)
        script.functions(0, into=number % 3)
        script.settle(100)
    script.settle(3000)
    script.write(0x28, 1)
    script.settle(3000)
    log = logs(script.run())[7]
    at = whole = fields = 0
    while at < len(log):
        if log.startswith(message, at):
            at, whole = at + len(message), whole + 1
        else:
            assert log[at:at + FIELD] == field(message), at
            at, fields = at + FIELD, fields + 1
    assert whole > 5 and fields > 5 and whole + fields < 60
