//! Rings that grow for larger deliveries, and the ends that do not take them.

use rocketbufs::config::TransportKind;
use rocketbufs::error::RefusedError;
use rocketbufs::proto::{Message, RefuseCode};
use rocketbufs::{Budget, BufferOptions, Config, Context, GrowError, InEvent, RIn, ROut};

use crate::ends::{WAIT, context, pattern, receiver, ring_of, sender, subscribe, take};
use crate::raw::{self, Frame, Raw, credit};

const RING: u64 = 16 << 10;
const LARGE: u64 = 300_000;

/// Writes a small delivery, and a large one after growing. Returns where they end.
fn write_large(out: &ROut, bid: u32) -> u64 {
    let mut writer = out.buffer(bid).unwrap().writer().unwrap();
    let at = writer.append(&[&pattern(writer.head(), 100)]).unwrap();
    writer.grow(LARGE).unwrap();
    writer.append_blocking(&[&pattern(at, LARGE as usize)], Some(WAIT)).unwrap()
}

fn refusal(input: &RIn) -> RefusedError {
    loop {
        match input.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Refused { error, .. }) => return error,
            Some(InEvent::Data(view)) => view.consume(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_receiver_gets_what_it_takes_and_a_refusal_beyond() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, RING).unwrap();
    let (large, small) = (receiver(&ctx, &listener), receiver(&ctx, &listener));
    subscribe(&large, 1, ring_of(RING).max_size_bytes(1 << 20));
    subscribe(&small, 1, ring_of(RING).max_size_bytes(4 * RING));
    let end = write_large(&out, 1);
    assert_eq!(take(&large, 0, end), 0);
    let error = refusal(&small);
    assert!(matches!(error, RefusedError::Peer { code: RefuseCode::RingTooSmall, .. }), "{error}");
    assert!(error.to_string().contains("max_size_bytes"), "{error}");
    // One that comes later has the larger ring from the beginning.
    let late = receiver(&ctx, &listener);
    subscribe(&late, 1, ring_of(RING).max_size_bytes(1 << 20));
    let mut writer = out.buffer(1).unwrap().writer().unwrap();
    let then = writer.append_blocking(&[&pattern(end, LARGE as usize)], Some(WAIT)).unwrap();
    assert_eq!((take(&large, end, then), take(&late, end, then)), (0, 0));
}

#[test]
fn a_receiver_of_before_is_refused_and_stays_connected() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, RING).unwrap();
    let mut raw = Raw::up(&listener.local_addr());
    raw.say(&Message::Subscribe(raw::subscribe(5, 1)));
    let start = raw.subscribed().start;
    raw.say(&credit(5, [start; 3], start + (1 << 20)));
    write_large(&out, 1);
    let (code, needed) = raw.until("REFUSED", |frame| match frame {
        Frame::Control(Message::Grown { .. }) => panic!("GROWN without the capability"),
        Frame::Control(Message::Refused { code, b, .. }) => Some((code, b)),
        _ => None,
    });
    assert!(code == RefuseCode::RingTooSmall && needed >= 2 * LARGE, "{code:?} {needed}");
    raw.ping(7);
}

#[test]
fn a_subscription_leaves_its_budget_when_its_ring_grows() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    let budget = Budget::new(4 * RING);
    let input = receiver(&ctx, &listener);
    for bid in [1, 2] {
        out.create_buffer_with(bid, BufferOptions::new().size_bytes(RING)).unwrap();
        let options = ring_of(RING).budget(Some(budget.clone())).max_size_bytes(1 << 20);
        subscribe(&input, bid, options);
    }
    // With a ring and without one.
    crate::ends::write(&out, 1, 1000, 500);
    assert_eq!(take(&input, 0, 1000), 0);
    for bid in [1, 2] {
        let from = out.buffer(bid).unwrap().info().unwrap().head;
        let end = write_large(&out, bid);
        assert_eq!(take(&input, from, end), 0);
    }
    // What came after the budget was left comes without it.
    let at = out.buffer(2).unwrap().info().unwrap().head;
    crate::ends::write(&out, 2, 4000, 1000);
    assert_eq!(take(&input, at, at + 4000), 0);
    crate::ends::until("the budget is free", || budget.in_use_bytes() == 0);
}

#[test]
fn a_ring_that_others_map_stays_as_it_is() {
    let ctx = context(TransportKind::Shm);
    let out = ROut::new(&ctx);
    out.create_buffer(1, RING).unwrap();
    let mut writer = out.buffer(1).unwrap().writer().unwrap();
    assert!(matches!(writer.grow(LARGE), Err(GrowError::Fixed)));
    writer.append(&[&[1; 100]]).unwrap();
}
