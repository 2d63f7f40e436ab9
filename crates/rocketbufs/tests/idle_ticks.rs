//! A subscription without news is not looked at: time passes in steps of a heartbeat's part, whoever subscribes.

mod driven;

use std::time::Duration;

use driven::{Driven, SECOND};
use rocketbufs::{Config, InEvent};

#[test]
fn a_subscription_without_news_costs_no_looks() {
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
    // Signs of life go out every five seconds; looks at connections a few times in that.
    assert!(world.ticks.iter().all(|ticks| *ticks <= 75), "{:?} looks in a minute", world.ticks);
}
