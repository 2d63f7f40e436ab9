//! Packets through the program in XDP, beside a plain model: the verdict, the packet afterwards, the ring, and the counters.

use multimqc::wire::{Header, Kind, PullRequest, Status};
use multimqc::{Epoch, Stop, TopicId};
use multimqc_kernel::{Config, Kernel, Ports};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common;
use crate::common::model::{Model, ModelTopic};
use crate::common::packet::{Packet, Sum};

const RING: u64 = 4096;
const EPOCH: Epoch = Epoch(0x5eed);
const START: u64 = 1 << 40;

fn topics() -> [(TopicId, Ports); 2] {
    [
        (TopicId(3), Ports { push: 19_999, pull: 19_998, header: 19_997 }),
        (TopicId(500), Ports { push: 29_999, pull: 29_998, header: 19_997 }),
    ]
}

/// The level with two topics, and its model.
fn level(config: Config) -> Option<(Kernel, Model)> {
    let trusted = config.trusted.is_some();
    let kernel = common::kernel(config.ring_bytes(RING).batch_bytes(512).max_topics(2))?;
    let mut model = Model {
        topics: Vec::new(),
        ring_bytes: RING as usize,
        max_reply: 1472,
        trusted,
        reasons: Default::default(),
    };
    for (id, ports) in topics() {
        kernel.open(id, ports, START, EPOCH).expect("a topic");
        model.topics.push(ModelTopic { id, ports, epoch: EPOCH, start: START, log: Vec::new() });
    }
    Some((kernel, model))
}

/// Sends a frame to both.
fn both(kernel: &Kernel, model: &mut Model, frame: &[u8], what: &str) {
    let expected = model.expect(frame);
    let run = kernel.run(frame, 1).expect("the frame runs");
    assert_eq!(run.verdict, expected.0, "{what}: verdict");
    assert_eq!(run.packet, expected.1, "{what}: packet");
}

/// Compares everything that can be read.
fn compare_rings(kernel: &Kernel, model: &Model) {
    for expected in &model.topics {
        let topic = kernel.topic(expected.id).expect("an open topic");
        let window = topic.window();
        let end = START + expected.log.len() as u64;
        let first = end.saturating_sub(RING).max(START);
        assert_eq!((window.first, window.head, window.epoch), (first, end, EPOCH));
        let mut bytes = vec![0; (end - first) as usize + 1];
        let found = topic.read(first, &mut bytes);
        assert_eq!((found.bytes as u64, found.stop), (end - first, Stop::Head), "all and then the head");
        assert_eq!(bytes[..found.bytes], expected.log[(first - START) as usize..]);
    }
}

fn compare_counters(kernel: &Kernel, model: &Model) {
    let mut counters = kernel.topic(TopicId(3)).expect("open").counters();
    let other = kernel.topic(TopicId(500)).expect("open").counters();
    counters.misses += other.misses;
    counters.overwritten += other.overwritten;
    counters.oversize += other.oversize;
    counters.corrupt += other.corrupt;
    counters.malformed += other.malformed;
    counters.refused += other.refused;
    counters.fragments += other.fragments;
    let reason = |name| model.reasons.get(name).copied().unwrap_or(0);
    assert_eq!(counters.misses, reason("miss"));
    assert_eq!(counters.overwritten, reason("overwritten"));
    assert_eq!(counters.oversize, reason("oversize"));
    assert_eq!(counters.corrupt, reason("corrupt"));
    assert_eq!(counters.malformed, reason("malformed"));
    assert_eq!(counters.refused, reason("refused"));
    assert_eq!(counters.fragments, reason("fragment"));
}

fn pattern(seed: usize, n: usize) -> Vec<u8> {
    (0..n).map(|at| (at * 31 + seed * 7 + at / 251) as u8).collect()
}

fn pull(start: u64, length: u64, padded: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    PullRequest { start, length }.encode_padded(padded, &mut payload);
    payload
}

fn headed(kind: Kind, topic: u16, offset: u64, length: u32, epoch: Epoch, body: &[u8]) -> Vec<u8> {
    let (topic, status) = (TopicId(topic), Status::Data);
    let header = Header { kind, topic, status, cookie: 77, sequence: 5, offset, length, epoch };
    [header.encode().as_slice(), body].concat()
}

/// Good pushes of all sizes, in both forms.
fn good_pushes() -> Vec<(String, Packet)> {
    let sizes =
        [1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 63, 64, 127, 128, 511, 512, 513, 1024, 1471, 1472, 2015, 2047];
    let mut packets = Vec::new();
    for (seed, n) in sizes.into_iter().enumerate() {
        packets.push((format!("push of {n}"), Packet::new(19_999, &pattern(seed, n))));
        packets.push((format!("push of {n}, other topic"), Packet::new(29_999, &pattern(seed, n))));
        let n = n.min(2015);
        let body = pattern(seed + 1, n);
        let payload = headed(Kind::Push, 500, 0, n as u32, Epoch::ANY, &body);
        packets.push((format!("push of {n}, header form"), Packet::new(19_997, &payload)));
    }
    let base = Packet::new(19_999, b"a reading");
    packets.push(("no checksum".into(), Packet { sum: Sum::Unused, ..base.clone() }));
    packets.push(("checksum left to a card".into(), Packet { sum: Sum::Partial, ..base.clone() }));
    packets.push(("padded frame".into(), Packet { trailer: 9, ..base.clone() }));
    packets.push(("fragments allowed".into(), Packet { fragment: 0, ..base }));
    packets
}

/// Frames that go up as they came.
fn bad_frames() -> Vec<(String, Packet)> {
    let base = Packet::new(19_999, b"a reading");
    let n = base.payload.len() as u16;
    let with = |what: &str, packet: Packet| (what.to_owned(), packet);
    let mut packets = vec![
        with("empty push", Packet::new(19_999, b"")),
        with("another port", Packet::new(20_000, b"x")),
        with("port 0", Packet::new(0, b"x")),
        with("oversize", Packet::new(19_999, &[7; 2048])),
        with("IPv6", Packet { ether_type: 0x86dd, ..base.clone() }),
        with("VLAN", Packet { ether_type: 0x8100, ..base.clone() }),
        with("ARP", Packet { ether_type: 0x0806, ..base.clone() }),
        with("IP options", Packet { version: 0x46, ..base.clone() }),
        with("IP version 6 inside", Packet { version: 0x65, ..base.clone() }),
        with("TCP", Packet { protocol: 6, ..base.clone() }),
        with("first fragment", Packet { fragment: 0x2000, ..base.clone() }),
        with("a later fragment", Packet { fragment: 0x2010, ..base.clone() }),
        with("the last fragment", Packet { fragment: 0x0010, ..base.clone() }),
        with("wrong IP checksum", Packet { ip_sum: Some(0x1234), ..base.clone() }),
        with("wrong checksum", Packet { sum: Sum::Value(0x1234), ..base.clone() }),
        with("multicast", Packet { destination: [224, 0, 0, 1].into(), ..base.clone() }),
        with("broadcast", Packet { destination: [255; 4].into(), ..base.clone() }),
        with("group frame", Packet { to: [0xff; 6], ..base.clone() }),
        with(
            "IP says more than there is",
            Packet { total: Some(29 + n), udp_length: Some(9 + n), ..base.clone() },
        ),
        with("UDP says more than IP", Packet { udp_length: Some(9 + n), ..base.clone() }),
        with("UDP says less than IP", Packet { udp_length: Some(7 + n), ..base.clone() }),
        with(
            "UDP says less than its header",
            Packet { udp_length: Some(7), total: Some(27), ..base.clone() },
        ),
        with("pull without room for a range", Packet::new(19_998, &[0; 15])),
        with("empty pull", Packet::new(19_998, b"")),
    ];
    packets.extend(bad_header_forms());
    packets
}

fn bad_header_forms() -> Vec<(String, Packet)> {
    let mut packets = Vec::new();
    for (at, n) in [0_usize, 1, 2, 31].into_iter().enumerate() {
        packets.push((format!("header form of {n} bytes"), Packet::new(19_997, &pattern(at, n))));
    }
    let good = headed(Kind::Push, 3, 0, 4, Epoch::ANY, b"abcd");
    for (at, value) in [(0, b'X'), (1, b'X'), (2, 0), (2, 2), (3, 0), (3, 3), (3, 4), (3, 9), (4, 4), (5, 9)]
    {
        let mut bytes = good.clone();
        bytes[at] = value;
        packets.push((format!("header form, byte {at} is {value}"), Packet::new(19_997, &bytes)));
    }
    for length in [0, 3, 5, u32::MAX] {
        let bytes = headed(Kind::Push, 3, 0, length, Epoch::ANY, b"abcd");
        packets.push((format!("header form, length {length} for 4 bytes"), Packet::new(19_997, &bytes)));
    }
    packets
}

/// Pulls of a log whose window is [first, end).
fn pulls(first: u64, end: u64) -> Vec<(String, Packet)> {
    let ranges = [
        (first, 1),
        (first, 2),
        (first, 3),
        (first, 32),
        (first + 1, 33),
        (first + 5, 511),
        (first, 512),
        (first + 3, 1471),
        (first, 1472),
        (first, 5000),
        (end - 1, 1),
        (end - 1, 2),
        (end - 100, 100),
        (end, 1),
        (end + 5, 10),
        (first, 0),
        (first - 1, 2),
        (0, 4),
        (u64::MAX, 1),
        (u64::MAX - 5, 100),
        (u64::MAX >> 1, 1),
        (first + 2000, 700),
        (end / RING * RING - 10, 100),
        (end / RING * RING - 700, 1400),
    ];
    let mut packets = Vec::new();
    for (start, length) in ranges {
        for padded in [16, 60, 600, 1472] {
            let what = format!("pull of {length} at {start}, request of {padded}");
            packets.push((what.clone(), Packet::new(19_998, &pull(start, length, padded))));
            let body = vec![9; padded - 16];
            for epoch in [Epoch::ANY, EPOCH, Epoch(1)] {
                let bytes = headed(Kind::Pull, 3, start, length as u32, epoch, &body);
                let what = format!("{what}, header form, {epoch:?}");
                packets.push((what, Packet::new(19_997, &bytes)));
            }
        }
    }
    let base = Packet::new(19_998, &pull(first, 32, 64));
    packets.push(("wrong checksum".into(), Packet { sum: Sum::Value(3), ..base.clone() }));
    packets.push(("no checksum".into(), Packet { sum: Sum::Unused, ..base.clone() }));
    packets.push(("from a port of a topic".into(), Packet { source_port: 29_999, ..base.clone() }));
    packets.push(("padded frame".into(), Packet { trailer: 30, ..base }));
    packets
}

#[test]
fn every_fixture_has_the_outcome_of_the_model() {
    let Some((kernel, mut model)) = level(Config::default()) else { return };
    let mut count = 0;
    let mut run = |model: &mut Model, packets: Vec<(String, Packet)>| {
        for (what, packet) in packets {
            both(&kernel, model, &packet.frame(), &what);
            count += 1;
        }
    };
    run(&mut model, good_pushes());
    run(&mut model, bad_frames());
    let end = START + model.topics[0].log.len() as u64;
    run(&mut model, pulls(end - RING, end));
    compare_rings(&kernel, &model);
    compare_counters(&kernel, &model);
    assert!(count >= 200, "{count} fixtures");
}

/// A program reads bytes behind the ring's end in the mirror, which the programs or user space may have written: the
/// message that wraps, and those after it.
#[test]
fn replies_reach_across_the_end_of_the_ring() {
    let Some((kernel, mut model)) = level(Config::default()) else { return };
    for seed in 0..6 {
        both(&kernel, &mut model, &Packet::new(19_999, &pattern(seed, 1000)).frame(), "push");
    }
    for start in (1904..4600).step_by(61) {
        let packet = Packet::new(19_998, &pull(START + start, 1400, 1400));
        both(&kernel, &mut model, &packet.frame(), &format!("1,400 bytes at {start}"));
    }
}

#[test]
fn frames_cut_anywhere_go_up() {
    let Some((kernel, mut model)) = level(Config::default()) else { return };
    let frame = Packet::new(19_999, b"a reading").frame();
    // Shorter ones are no Ethernet frames, which the kernel does not run.
    for n in 14..frame.len() {
        both(&kernel, &mut model, &frame[..n], &format!("{n} bytes"));
    }
    compare_rings(&kernel, &model);
}

/// A frame of one of the kinds above with a few bytes changed.
fn fuzzed() -> impl Strategy<Value = Vec<u8>> {
    let port =
        prop_oneof![Just(19_999_u16), Just(19_998), Just(19_997), Just(29_999), Just(29_998), any::<u16>()];
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..2100),
        (0..6000_u64, 0..2000_u64, 16..1473_usize).prop_map(|(start, length, padded)| pull(
            START + start,
            length,
            padded
        )),
        (1..5_u8, 0..4096_u64, 0..1500_u32, proptest::collection::vec(any::<u8>(), 0..1400)).prop_map(
            |(kind, start, length, body)| {
                let kind = [Kind::Push, Kind::Pull, Kind::Reply, Kind::Batch][usize::from(kind) - 1];
                let length = if kind == Kind::Push { body.len() as u32 } else { length };
                headed(kind, 500, START + start, length, Epoch::ANY, &body)
            }
        ),
    ];
    let changes = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..3);
    (port, payload, changes, any::<bool>(), 0..20_usize).prop_map(|(port, payload, changes, sum, trailer)| {
        let sum = if sum { Sum::Unused } else { Sum::Right };
        let mut frame = Packet { sum, trailer, ..Packet::new(port, &payload) }.frame();
        for (at, value) in changes {
            let at = at.index(frame.len().min(90));
            frame[at] = value;
        }
        frame
    })
}

#[test]
fn fuzzed_frames_have_the_outcome_of_the_model() {
    let Some((kernel, model)) = level(Config::default()) else { return };
    let model = std::cell::RefCell::new(model);
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 5_000, max_shrink_iters: 0, ..Default::default() });
    runner
        .run(&fuzzed(), |frame| {
            both(
                &kernel,
                &mut model.borrow_mut(),
                &frame,
                &format!("{:02x?}", &frame[..frame.len().min(90)]),
            );
            Ok(())
        })
        .unwrap();
    compare_rings(&kernel, &model.borrow());
    compare_counters(&kernel, &model.borrow());
}

#[test]
fn a_trusted_network_gets_longer_replies() {
    let config = Config::default().trusted(Some(([10, 1, 0, 0].into(), 16)));
    let Some((kernel, mut model)) = level(config) else { return };
    for (what, packet) in good_pushes() {
        both(&kernel, &mut model, &packet.frame(), &what);
    }
    let end = START + model.topics[0].log.len() as u64;
    // Test runs leave room behind a packet, as many drivers do.
    let near = Packet::new(19_998, &pull(end - 300, 150, 16));
    both(&kernel, &mut model, &near.frame(), "a longer reply");
    model.trusted = false;
    let stranger = Packet { source: [10, 2, 0, 1].into(), ..near };
    both(&kernel, &mut model, &stranger.frame(), "a stranger's request");
}
