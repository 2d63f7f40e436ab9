//! An idle subscription costs nothing: a worker's ticks follow from the heartbeat alone.

use std::time::Duration;

use rocketbufs::{Config, InEvent};

use crate::driven::{Driven, SECOND};

#[test]
fn an_idle_subscription_costs_no_ticks() {
    let mut world = Driven::new(1);
    let source = world.context("out", 1, Config::default());
    let sink = world.context("in", 1, Config::default());
    let (out, _listener) = world.sender(&source, "out:1");
    out.create_buffer(7, 1 << 16).unwrap();
    let input = world.receiver(&sink, "out:1");
    input.subscribe(7, 1 << 16).unwrap();
    world.settle();
    let mut writer = out.buffer(7).unwrap().writer().unwrap();
    writer.append(&[b"the last for a long time"]).unwrap();
    world.settle();
    let now = Some(Duration::ZERO);
    assert!(matches!(input.recv(now).unwrap(), Some(InEvent::Subscribed { .. })));
    assert!(matches!(input.recv(now).unwrap(), Some(InEvent::Data(_))));
    world.pass(SECOND);
    world.ticks.fill(0);
    world.pass(60 * SECOND);
    // Heartbeats are sent every five seconds, and connections are checked a few times in each period.
    assert!(world.ticks.iter().all(|ticks| *ticks <= 75), "{:?} ticks in a minute", world.ticks);
}
