//! Who comes late may begin with the last delivery.

mod ends;

use std::time::Duration;

use ends::{receiver, sender};
use rocketbufs::{Config, Context, Listener, Position, RIn, ROut, Received, Start, SubscribeOptions};

const WAIT: Duration = Duration::from_secs(20);
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
        let options = SubscribeOptions {
            size_bytes: 64 << 10,
            start: Start::Last,
            name: name.to_vec(),
            hold: if name.is_empty() { Duration::ZERO } else { WAIT },
            ..SubscribeOptions::default()
        };
        input.subscribe_with(BID, options).unwrap();
        match input.recv(Some(WAIT)).unwrap() {
            Some(Received::Subscribed { start, .. }) => (input, start),
            other => panic!("{other:?}"),
        }
    }
}

fn received(input: &RIn) -> Vec<u8> {
    match input.recv(Some(WAIT)).unwrap() {
        Some(Received::Data(view)) => {
            let bytes = view.to_vec().unwrap();
            view.consume();
            bytes
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_late_joiner_gets_the_last_delivery_and_what_follows() {
    let sender = served();
    let mut writer = sender.out.writer(BID).unwrap();
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
    sender.out.writer(BID).unwrap().append(&[b"first"]).unwrap();
    assert_eq!(received(&input), b"first");
}

#[test]
fn a_place_that_is_kept_counts_more() {
    let sender = served();
    let mut writer = sender.out.writer(BID).unwrap();
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
