//! Input and output functions: the examples of multimqc/bpf/examples, in the place of the programs' own.

use multimqc::wire::{PULL_PORT, PUSH_PORT, PullRequest};
use multimqc::{Epoch, TopicId};
use multimqc_kernel::{Config, Kernel, KernelError, Mode, Ports, Topic};

use crate::common;
use crate::common::packet::Packet;

fn object(name: &str) -> Option<Vec<u8>> {
    let path = format!("{}/../bpf/objects/{name}.bpf.o", env!("CARGO_MANIFEST_DIR"));
    Some(std::fs::read(path).expect("an object"))
}

fn open(config: Config) -> Option<(Kernel, Topic)> {
    let kernel = common::kernel(config.ring_bytes(1 << 16).batch_bytes(4096))?;
    let topic = kernel.open(TopicId(4), Ports::default(), 0, Epoch(1)).expect("a topic");
    Some((kernel, topic))
}

/// A record whose first four bytes are a reading, and whose bytes 8 to 11 are its number.
fn record(reading: u32, number: u32) -> Vec<u8> {
    let mut record = vec![0xaa; 32];
    record[..4].copy_from_slice(&reading.to_le_bytes());
    record[8..12].copy_from_slice(&number.to_le_bytes());
    record
}

fn pull(start: u64, length: u64) -> Vec<u8> {
    let mut payload = Vec::new();
    PullRequest { start, length }.encode_padded(length as usize, &mut payload);
    Packet::new(PULL_PORT, &payload).frame()
}

/// Readings in [100, 200] are dropped. TCX's verdict for that is 2, and XDP's is 1.
fn readings_are_dropped(mode: Mode, dropped: u32) {
    let config = Config::default().mode(mode).input_function(object("drop_range"));
    let Some((kernel, topic)) = open(config) else { return };
    let mut expected = Vec::new();
    for (number, reading) in [99, 100, 150, 200, 201, 7, u32::MAX].into_iter().enumerate() {
        let record = record(reading, number as u32);
        let run = kernel.run(&Packet::new(PUSH_PORT, &record).frame(), 1).expect("it runs");
        assert_eq!(run.verdict, dropped, "stored or not, the message was taken");
        if !(100..=200).contains(&reading) {
            expected.extend(record);
        }
    }
    let short = kernel.run(&Packet::new(PUSH_PORT, &[1, 2, 3]).frame(), 1).expect("it runs");
    assert_eq!(short.verdict, dropped);
    let mut log = vec![0; expected.len()];
    assert_eq!(topic.read(0, &mut log).bytes, expected.len());
    assert_eq!(log, expected);
    let counters = topic.counters();
    assert_eq!((counters.stored, counters.dropped), (4, 4));
}

#[test]
fn an_input_function_drops_a_range_of_readings() {
    readings_are_dropped(Mode::Auto, common::DROP);
}

#[test]
fn an_input_function_in_tcx() {
    readings_are_dropped(Mode::Tcx, 2);
}

#[test]
fn a_ring_wraps_with_an_input_function() {
    let config = Config::default().input_function(object("drop_range"));
    let Some((kernel, topic)) = open(config) else { return };
    let mut log = Vec::new();
    for round in 0..200_u32 {
        let mut message = record(1000 + round, round);
        message.resize(4 + (round as usize * 71) % 2043, round as u8);
        kernel.run(&Packet::new(PUSH_PORT, &message).frame(), 1).expect("it runs");
        log.extend(message);
    }
    let window = topic.window();
    assert_eq!(window.head, log.len() as u64);
    let mut bytes = vec![0; window.bytes() as usize];
    assert_eq!(topic.read(window.first, &mut bytes).bytes, bytes.len());
    assert_eq!(bytes, log[window.first as usize..]);
}

#[test]
fn an_output_function_extracts_a_field() {
    let Some((kernel, topic)) = open(Config::default().output_function(object("extract_field"))) else {
        return;
    };
    for number in 0..100 {
        kernel.run(&Packet::new(PUSH_PORT, &record(5, number)).frame(), 1).expect("it runs");
    }
    let run = kernel.run(&pull(64, 320), 1).expect("it runs");
    assert_eq!(run.verdict, common::TX);
    let fields: Vec<u8> = (2..12_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(run.packet[42..], fields, "ten fields, and nothing of the request behind them");
    // The reply is a whole datagram with right checksums.
    let payload = Packet { payload: fields, ..Packet::new(0, b"") };
    assert_eq!(run.packet.len(), payload.frame().len());
    let mut zeroed = run.packet.clone();
    zeroed[40..42].copy_from_slice(&[0, 0]);
    assert_eq!(common::packet::udp_sum(&zeroed, 48).to_be_bytes(), run.packet[40..42]);
    // A part of a record is for the next level.
    assert_eq!(kernel.run(&pull(65, 320), 1).expect("it runs").verdict, common::PASS);
    assert_eq!(kernel.run(&pull(64, 33), 1).expect("it runs").verdict, common::PASS);
    assert_eq!(topic.counters().hits, 1);
}

#[test]
fn what_is_no_function_is_refused() {
    let refused = |object: Vec<u8>| Kernel::new(Config::default().input_function(Some(object)));
    if common::kernel(Config::default().input_function(object("drop_range"))).is_none() {
        return;
    }
    for bytes in [Vec::new(), b"no object".to_vec(), object("drop_range").expect("an object")[..200].to_vec()]
    {
        assert!(matches!(refused(bytes), Err(KernelError::Object(_))));
    }
    let other = refused(object("xdp").expect("an object")).expect_err("another kind of program");
    assert!(matches!(other, KernelError::Object(_) | KernelError::Verifier { .. }), "{other}");
}
