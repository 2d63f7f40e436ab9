//! A late subscriber can begin with the last delivery, or at the first position, and then learns which bytes are gone.

use std::time::Duration;

use rocketbufs::{
    BufferOptions, Config, Context, InEvent, Listener, Policy, Position, RIn, ROut, Start, SubscribeOptions,
};

use crate::driven::{Driven, SECOND};
use crate::ends::{self, receiver, sender};

const WAIT: Duration = Duration::from_secs(60);
const BID: u32 = 7;

struct Sender {
    ctx: Context,
    out: ROut,
    listener: Listener,
}

fn served() -> Sender {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(BID, 64 << 10).unwrap();
    Sender { ctx, out, listener }
}

impl Sender {
    /// A subscriber that begins at the last delivery, and where that is.
    fn late(&self, name: &[u8]) -> (RIn, Position) {
        let input = receiver(&self.ctx, &self.listener);
        let options = SubscribeOptions::new()
            .size_bytes(64 << 10)
            .start(Start::Last)
            .durable(name.to_vec(), if name.is_empty() { Duration::ZERO } else { WAIT });
        input.subscribe_with(BID, options).unwrap();
        match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Subscribed { start, .. }) => (input, start),
            other => panic!("{other:?}"),
        }
    }
}

fn received(input: &RIn) -> Vec<u8> {
    match input.recv(Some(WAIT)).unwrap() {
        Some(InEvent::Data(view)) => {
            let bytes = view.to_vec().unwrap();
            view.consume();
            bytes
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_late_subscriber_gets_the_last_delivery_and_later_ones() {
    let sender = served();
    let mut writer = sender.out.buffer(BID).unwrap().writer().unwrap();
    let before = (0..100_u32).map(|n| writer.append(&[&n.to_le_bytes(), &[7; 20]]).unwrap()).next_back();
    writer.append(&[b"the last"]).unwrap();
    let (input, start) = sender.late(b"");
    assert_eq!(Some(start), before);
    assert_eq!(received(&input), b"the last");
    writer.append(&[b"what follows"]).unwrap();
    assert_eq!(received(&input), b"what follows");
}

#[test]
fn without_any_delivery_it_is_as_newest() {
    let sender = served();
    let (input, start) = sender.late(b"");
    assert_eq!(start, 0);
    sender.out.buffer(BID).unwrap().writer().unwrap().append(&[b"first"]).unwrap();
    assert_eq!(received(&input), b"first");
}

#[test]
fn a_place_that_is_kept_counts_more() {
    let sender = served();
    let mut writer = sender.out.buffer(BID).unwrap().writer().unwrap();
    writer.append(&[b"old"]).unwrap();
    let (input, _) = sender.late(b"me");
    assert_eq!(received(&input), b"old");
    drop(input);
    writer.append(&[b"one"]).unwrap();
    writer.append(&[b"two"]).unwrap();
    let (input, start) = sender.late(b"me");
    assert!(start <= 3, "{start}");
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"onetwo") {
        bytes.extend(received(&input));
    }
}

/// The range of LOST, which must be the first event.
fn lost(input: &RIn) -> (Position, Position) {
    match input.recv(Some(WAIT)).unwrap() {
        Some(InEvent::Lost { from, to, .. }) => (from, to),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_start_at_the_first_byte_reports_gone_bytes() {
    let sender = served();
    let mut writer = sender.out.buffer(BID).unwrap().writer().unwrap();
    let begin = || {
        let input = receiver(&sender.ctx, &sender.listener);
        let options = ends::ring_of(64 << 10).start(Start::First);
        assert_eq!(ends::subscribe(&input, BID, options), 0);
        input
    };
    writer.append(&[b"first"]).unwrap();
    let input = begin();
    assert_eq!(received(&input), b"first");
    input.conn().close("away");
    while sender.out.buffer(BID).unwrap().subscriber_count() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    for n in 0..200_u32 {
        writer.append(&[&n.to_le_bytes(), &[0; 996]]).unwrap();
    }
    let input = begin();
    let (from, to) = lost(&input);
    let bytes = received(&input);
    let first = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    assert_eq!((from, to), (0, 5 + u64::from(first) * 1000));
}

#[test]
fn a_return_to_an_overwritten_position_reports_the_loss() {
    let sender = served();
    let options = BufferOptions::new().size_bytes(64 << 10).flow_control(false);
    sender.out.create_buffer_with(BID + 1, options).unwrap();
    let mut writer = sender.out.buffer(BID + 1).unwrap().writer().unwrap();
    let begin = || {
        let input = receiver(&sender.ctx, &sender.listener);
        let (name, hold) = (b"me".to_vec(), WAIT);
        let options = ends::ring_of(64 << 10).policy(Policy::Overwrite).durable(name, hold);
        let start = ends::subscribe(&input, BID + 1, options);
        (input, start)
    };
    let (input, _) = begin();
    let had = writer.append(&[b"seen"]).unwrap();
    assert_eq!(received(&input), b"seen");
    input.conn().close("away");
    while sender.out.buffer(BID + 1).unwrap().durable_cursors().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for n in 0..200_u32 {
        writer.append(&[&n.to_le_bytes(), &[0; 996]]).unwrap();
    }
    let (input, start) = begin();
    assert!(start <= had);
    let (from, to) = lost(&input);
    assert!(from == start && to > had, "{from} to {to}");
}

/// An age counts from the call: a request that waits for another connection, or is sent again, asks for the same moment.
#[test]
fn an_age_grows_while_its_request_waits() {
    for is_cut_first in [true, false] {
        let mut world = Driven::new(1);
        let (source, sink) =
            (world.context("source", 1, Config::default()), world.context("sink", 1, Config::default()));
        let (out, _listener) = world.sender(&source, "source:1");
        out.create_buffer(BID, 1 << 16).unwrap();
        let input = world.receiver(&sink, "source:1");
        // Workers note the time of deliveries that they send.
        let other = world.receiver(&sink, "source:1");
        other.subscribe(BID, 1 << 16).unwrap();
        world.settle();
        let mut writer = out.buffer(BID).unwrap().writer().unwrap();
        let mut deliver = |world: &mut Driven| {
            writer.append(&[&[7; 20]]).unwrap();
            world.pass(SECOND);
        };
        (0..4).for_each(|_| deliver(&mut world));

        let options = SubscribeOptions::new().size_bytes(1 << 16).start(Start::Ago(500));
        if is_cut_first {
            world.cut(1);
        }
        input.subscribe_with(BID, options).unwrap();
        if !is_cut_first {
            world.cut(1);
        }
        world.settle();
        let events = || std::iter::from_fn(|| input.recv(Some(Duration::ZERO)).unwrap());
        let begun = |event| match event {
            InEvent::Subscribed { start, .. } => Some(start),
            _ => None,
        };
        assert_eq!(events().find_map(begun), None, "nobody has answered");
        (0..4).for_each(|_| deliver(&mut world));
        input.resume(&world.connect(&sink, "source:1"));
        world.settle();
        // The fourth delivery is a second old at the call.
        assert_eq!(events().find_map(begun), Some(4 * 20), "cut first: {is_cut_first}");
    }
}
