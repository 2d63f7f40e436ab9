"""The whole NIC under more than it can pass on, and with frames that are no frames."""

import random

from frames import PULL_PORT, Model, Topic, Udp, ones_sum, pull
from nic import PORTS, Script, counters


def opened(*topics, **speed):
    script = Script()
    script.speed(**speed)
    for index, topic in enumerate(topics):
        script.open(index, topic)
    return script


def test_a_slow_host_loses_frames_but_no_push():
    """The host takes a beat in 50 clocks: whole frames for it are dropped and counted, and all pushes are stored."""
    rng = random.Random(3)
    script, passed, pushes = opened(Topic(), seed=3, host=5), [], 0
    for number in range(1600 // PORTS):
        for port in range(PORTS):
            if number % 2:
                script.frame(port, Udp(bytes(32)).frame())
                pushes += 1
            else:
                frame = Udp(number.to_bytes(4, "big") + rng.randbytes(rng.randrange(10, 1400)), port=53).frame()
                passed.append(frame)
                script.frame(port, frame)
    script.settle(20_000)
    script.read_counters(1)
    result = script.run()
    counts, ports, dropped = counters(result)
    assert counts["stored", 0] == (pushes, 32 * pushes)
    assert not [key for key, value in ports.items() if value and key[0] == "overrun"]
    got = [frame.data for frame in result.host if not frame.where & 16]
    assert dropped > 100 and len(got) + dropped == len(passed)
    assert len(set(got)) == len(got) and set(got) <= set(passed)


def test_batches_and_level_2_have_all_bytes_at_the_rate_of_the_wire():
    """Long messages on all ports without a pause: level 1 overwrites nothing that is not in a batch and in level 2."""
    script = opened(Topic())
    for number in range(400):
        script.frame(number % PORTS, Udp(number.to_bytes(4, "big") * 368).frame())
    script.settle(3000)
    script.write(0x28, 1)
    script.settle(3000)
    script.read_counters(1)
    # Of the store's counters: holes in batches, and in level 2.
    for index in (3, 10):
        script.read(0x400000 + 8 * index)
    result = script.run()
    assert counters(result)[0]["stored", 0] == (400, 400 * 1472)
    assert [value for address, value in result.registers if 0x400000 <= address < 0x800000] == [0, 0]
    log = b"".join(frame.data[74:] for frame in result.host if frame.where & 16)
    assert sorted(log[at:at + 1472] for at in range(0, len(log), 1472)) == [number.to_bytes(4, "big") * 368 for number in range(400)]


def test_more_replies_than_the_wire_takes():
    """Short requests of a trusted network for long replies: pulls go to the host or replies are dropped, all are counted, and no
    push is lost."""
    script, log = opened(Topic()), bytes(range(250)) * 8
    script.write(0x18, 0)
    script.write(0x1C, 0)
    for at in range(0, 2000, 500):
        script.frame(0, Udp(log[at:at + 500]).frame(), gap=200)
    script.settle()
    for number in range(300):
        script.frame(1, Udp(pull(number % 100, 1400), port=PULL_PORT).frame())
        script.frame(2, Udp(bytes(8)).frame())
        script.frame(3, Udp(pull(number % 100, 18, 18), port=PULL_PORT).frame())
    script.settle(3000)
    script.read_counters(1)
    result = script.run()
    counts, ports, _ = counters(result)
    assert counts["stored", 0][0] == 304
    assert counts["hits", 0][0] + counts["busy", 0][0] == 600
    sent = [frame.data for frame in result.network]
    for_host = [frame.where for frame in result.host if not frame.where & 16]
    lost = sum(ports["tx_dropped", port] for port in range(PORTS))
    assert lost > 50 and len(sent) + lost + len(for_host) == 600
    assert all(len(data) in (60, 1442) and log.index(data[42:]) < 100 for data in sent)
    # Other ports are not held up.
    answered = [frame for frame in result.network if frame.where == 3]
    assert PORTS == 1 or len(answered) + for_host.count(3) == 300
    assert not [key for key, value in ports.items() if value and key[0] == "overrun"]


def test_a_port_that_does_not_send_holds_up_no_other():
    """No port takes a beat but now and then; what is lost is counted, and what comes is whole."""
    script, log = opened(Topic(), seed=9, port=10), bytes(range(250)) * 4
    script.frame(0, Udp(log).frame())
    script.settle()
    for number in range(800 // PORTS):
        for port in range(PORTS):
            script.frame(port, Udp(pull(number, 200, 200), port=PULL_PORT).frame())
    for number in range(40):
        script.from_host(number % PORTS, Udp(number.to_bytes(4, "big") * 100, port=99).frame())
    script.settle(20_000)
    script.read_counters(1)
    result = script.run()
    counts, ports, _ = counters(result)
    assert counts["hits", 0][0] == 800
    replies = [frame.data for frame in result.network if frame.data[36:38] != b"\x00\x63"]
    assert len(replies) + sum(ports["tx_dropped", port] for port in range(PORTS)) == 800
    assert all(data[42:242] in log for data in replies)
    assert len(result.network) - len(replies) == 40


def test_broken_and_giant_frames_leave_nothing_behind():
    """Frames that the MAC calls broken, and frames of more than 2,048 bytes, between frames that are right."""
    rng = random.Random(5)
    script, topics, sent, bad = opened(Topic()), [Topic()], [], 0
    for number in range(200):
        kind = rng.randrange(4)
        message = rng.randbytes(rng.randrange(1, 1400))
        if kind == 0:
            script.frame(0, Udp(message).frame(), broken=True)
            bad += 1
        elif kind == 1:
            script.frame(0, rng.randbytes(rng.randrange(2049, 20_000)))
        else:
            sent.append(Udp(message, port=rng.choice([19999, 53])).frame())
            script.frame(0, sent[-1], tight=bool(number % 3))
    script.settle(2000)
    script.write(0x28, 1)
    script.settle(2000)
    script.read_counters(1)
    result = script.run()
    model = Model(topics)
    expected = [outcome[1] for outcome in map(model.frame, sent) if outcome[0] == "host"]
    assert [frame.data for frame in result.host if not frame.where & 16] == expected
    counts, ports, _ = counters(result)
    assert counts == model.counts
    assert ports["broken", 0] == bad and ports["received", 0] == len(sent)
    assert ports["overrun", 0] == 200 - bad - len(sent)


def test_a_checksum_of_zero_is_sent_as_ones():
    """A reply whose checksum comes to 0, which would say that there is none."""
    script = opened(Topic())
    # The sum of the reply with two bytes 0 says which two make it all ones.
    reply = Udp(bytes(18), port=40000, source_port=PULL_PORT, source=bytes([10, 1, 2, 1]), destination=bytes([10, 1, 2, 3]))
    checksum = int.from_bytes(reply.frame()[40:42], "big")
    message = checksum.to_bytes(2, "big") + bytes(16)
    script.frame(0, Udp(message).frame())
    script.settle()
    script.frame(0, Udp(pull(0, 18, 18), port=PULL_PORT).frame())
    result = script.run()
    data = result.network[0].data
    assert data[42:60] == message and data[40:42] == b"\xff\xff"
    assert ones_sum(data[26:34] + b"\x00\x11\x00\x1a" + data[34:60]) == 0xFFFF


def test_levels_are_taken_out_and_put_in():
    """Without levels, all goes to the host; with level 2 alone, older bytes are answered as before."""
    script, log = opened(Topic()), bytes(range(200)) * 5
    asked = Udp(pull(100, 300, 300), port=PULL_PORT).frame()
    for at in range(0, 1000, 100):
        script.frame(0, Udp(log[at:at + 100]).frame())
    script.settle(4000)
    for levels in (1, 2, 3, 0):
        script.write(0x08, levels)
        script.frame(0, asked)
        script.settle(1000)
    pushed = Udp(b"not stored").frame()
    script.frame(0, pushed)
    script.settle()
    script.write(0x08, 3)
    script.frame(0, Udp(pull(900, 300, 300), port=PULL_PORT).frame())
    script.settle()
    result = script.run()
    assert [frame.data[42:] for frame in result.network] == [log[100:400]] * 3 + [log[900:]]
    assert [frame.data for frame in result.host if not frame.where & 16] == [asked, pushed]


def test_a_log_goes_on_where_the_host_says():
    """A topic that is opened at an offset: batches and replies have it."""
    script, start = Script(), 2**40 + 12345
    script.open(0, Topic(), start)
    script.frame(0, Udp(b"after a restart").frame())
    script.settle()
    script.frame(0, Udp(pull(start + 6, 100, 100), port=PULL_PORT).frame())
    script.frame(0, Udp(pull(start - 1, 100, 100), port=PULL_PORT).frame())
    script.write(0x28, 1)
    script.settle(3000)
    result = script.run()
    assert result.network[0].data[42:60].rstrip(b"\0") == b"a restart"
    batch = next(frame.data for frame in result.host if frame.where & 16)
    assert int.from_bytes(batch[58:66], "little") == start and batch[74:] == b"after a restart"
    assert len(result.network) == 1
