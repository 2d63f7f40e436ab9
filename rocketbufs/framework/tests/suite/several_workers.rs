//! A subscription that moves from one worker to another with its connection.

use std::time::Duration;

use rocketbufs::{Config, InEvent, RIn, ROut, SubscribeOptions};

use crate::driven::{Driven, MILLISECOND};

const BID: u32 = 7;

fn events(input: &RIn) -> Vec<InEvent> {
    std::iter::from_fn(|| input.recv(Some(Duration::ZERO)).unwrap()).collect()
}

fn is_gone(events: &[InEvent]) -> bool {
    events.iter().any(|event| matches!(event, InEvent::Gone { bid: BID, .. }))
}

/// The first worker's timer runs out while the second one waits for the writer.
#[test]
fn each_lost_connection_of_a_writer_starts_its_linger_anew() {
    let mut world = Driven::new(1);
    let source = world.context("source", 1, Config::default());
    let mut config = Config::default();
    config.session.linger_ms = 1_000;
    let broker = world.context("broker", 2, config);
    let (out, _listener) = world.sender(&source, "source:1");
    out.create_buffer(BID, 1 << 16).unwrap();
    let relay = ROut::new(&broker);
    let input = world.receiver(&broker, "source:1");
    let options = SubscribeOptions::new().size_bytes(1 << 16);
    relay.splice_with(&input, BID, BID, options).unwrap();
    world.settle();
    assert!(matches!(events(&input)[..], [InEvent::Subscribed { bid: BID, .. }]));

    world.cut(1);
    world.pass(600 * MILLISECOND);
    let next = world.connect(&broker, "source:1");
    input.resume(&next);
    world.settle();
    assert!(next.is_up());
    world.cut(2);
    world.pass(600 * MILLISECOND);
    let told = events(&input);
    assert!(!is_gone(&told), "the writer is away for 600 of 1,000 ms: {told:?}");
    world.pass(600 * MILLISECOND);
    let told = events(&input);
    assert!(is_gone(&told), "the writer is away for 1,200 of 1,000 ms: {told:?}");
}
