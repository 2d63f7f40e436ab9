//! Rings that grow for larger deliveries, and the ends that do not take them.

use std::sync::{Arc, Mutex};

use rocketbufs::config::TransportKind;
use rocketbufs::error::RefusedError;
use rocketbufs::proto::{Message, RefuseCode, Subscribe};
use rocketbufs::{
    Budget, BufferOptions, Config, Context, GrowError, GrowthCheck, InEvent, OutWriter, Policy, RIn, ROut,
    SubscribeOptions,
};

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

/// A ring that is made for deliveries that have become larger leaves room for others, as one that grows.
#[test]
fn rings_made_for_grown_logs_leave_room_for_others() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, RING).unwrap();
    out.create_buffer(2, RING).unwrap();
    write_large(&out, 1);
    let mut config = Config::default();
    config.buffers.max_ring_bytes = 1 << 20;
    let small = Context::new(config).unwrap();
    let input = receiver(&small, &listener);
    input.subscribe_with(1, ring_of(RING).max_size_bytes(1 << 20)).unwrap();
    assert!(matches!(refusal(&input), RefusedError::TooManyBytes { .. }));
    // One that is so large at first.
    subscribe(&input, 2, ring_of(1 << 20));
}

/// The application is asked for all that a ring has, before it has it.
#[test]
fn the_application_says_how_much_a_ring_may_take() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let check = || {
        let asked = asked.clone();
        GrowthCheck::new(move |bytes| {
            asked.lock().unwrap().push(bytes);
            if bytes <= 2 << 20 { Ok(()) } else { Err("more than 2 MiB".into()) }
        })
    };
    let options = || ring_of(RING).max_size_bytes(1 << 30).growth_check(Some(check()));
    let input = receiver(&ctx, &listener);
    out.create_buffer(1, RING).unwrap();
    subscribe(&input, 1, options());
    let end = write_large(&out, 1);
    assert_eq!(take(&input, 0, end), 0);
    assert_eq!(*asked.lock().unwrap(), [RING + (1 << 20); 2], "before and after");
    // Made anew, it has nothing of before.
    let late = receiver(&ctx, &listener);
    asked.lock().unwrap().clear();
    subscribe(&late, 1, options());
    assert_eq!(*asked.lock().unwrap(), [1 << 20]);
    let mut writer = grown(&out, 1, 1 << 20);
    writer.append_blocking(&[&pattern(end, 1 << 20)], Some(WAIT)).unwrap();
    let error = refusal(&input);
    assert_eq!(error, RefusedError::NotAllowed("more than 2 MiB".into()));
    assert_eq!(take(&late, end, end), 0);
}

#[test]
fn a_receiver_of_before_is_refused_and_stays_connected() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, RING).unwrap();
    let mut raw = Raw::up(&listener.local_addr());
    raw.say(&Message::Subscribe(Subscribe { capacity: 4 * RING, ..raw::subscribe(5, 1) }));
    let start = raw.subscribed().start;
    raw.say(&credit(5, [start; 3], start + 4 * RING));
    write_large(&out, 1);
    let (code, needed) = raw.until("REFUSED", |frame| match frame {
        Frame::Control(Message::Grown { .. }) => panic!("GROWN without the capability"),
        Frame::Control(Message::Refused { code, b, .. }) => Some((code, b)),
        _ => None,
    });
    assert!(code == RefuseCode::RingTooSmall && needed >= 2 * LARGE, "{code:?} {needed}");
    raw.ping(7);
}

/// A writer whose ring has grown for deliveries of this size.
fn grown(out: &ROut, bid: u32, max_delivery: u64) -> OutWriter {
    let mut writer = out.buffer(bid).unwrap().writer().unwrap();
    writer.grow(max_delivery).unwrap();
    writer
}

#[test]
fn a_receiver_with_room_for_what_is_written_is_not_refused() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, RING).unwrap();
    let input = receiver(&ctx, &listener);
    subscribe(&input, 1, ring_of(RING).max_size_bytes(4 * RING));
    let mut end = 0;
    for size in [20_000, 24_000, 32_000] {
        let mut writer = grown(&out, 1, size);
        let to = writer.append_blocking(&[&pattern(end, size as usize)], Some(WAIT)).unwrap();
        drop(writer);
        assert_eq!(take(&input, end, to), 0, "{size}");
        end = to;
    }
}

#[test]
fn what_was_written_before_a_large_delivery_comes_before_the_refusal() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, 16 * RING).unwrap();
    let input = receiver(&ctx, &listener);
    // It has room for a part of the small ones, and takes none.
    subscribe(&input, 1, ring_of(8 * RING).max_size_bytes(8 * RING));
    crate::ends::write(&out, 1, 10 * RING, 1000);
    let small = 10 * RING;
    let mut writer = grown(&out, 1, LARGE);
    writer.append_blocking(&[&pattern(small, LARGE as usize)], Some(WAIT)).unwrap();
    assert_eq!(take(&input, 0, small), 0);
    let error = refusal(&input);
    assert!(matches!(error, RefusedError::Peer { code: RefuseCode::RingTooSmall, .. }), "{error}");
}

/// Refuses the large delivery, and then goes on under the same name with more room.
fn goes_on(of: &Config, options: SubscribeOptions) {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, RING).unwrap();
    let small = Context::new(of.clone()).unwrap();
    let input = receiver(&small, &listener);
    subscribe(&input, 1, options.durable("me", WAIT));
    let end = write_large(&out, 1);
    refusal(&input);
    crate::ends::until("the subscription has ended", || out.buffer(1).unwrap().subscriber_count() == 0);
    assert_eq!(out.buffer(1).unwrap().durable_cursors().len(), 1, "its place is kept");
    let again = receiver(&ctx, &listener);
    subscribe(&again, 1, ring_of(RING).max_size_bytes(1 << 20).durable("me", WAIT));
    // The small delivery comes again if its confirmation did not arrive.
    let first = loop {
        match again.recv(Some(WAIT)).unwrap() {
            Some(InEvent::Data(view)) => break view,
            Some(InEvent::Subscribed { .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    let (from, to) = (first.position(), first.position() + first.len() as u64);
    assert!(from == 0 || from == 100, "{from}");
    first.consume();
    assert_eq!(take(&again, to, end), 0);
}

#[test]
fn an_outgrown_durable_subscriber_keeps_its_place() {
    goes_on(&Config::default(), ring_of(RING).max_size_bytes(4 * RING));
}

#[test]
fn a_durable_subscriber_without_memory_keeps_its_place() {
    let mut config = Config::default();
    (config.buffers.size_bytes, config.buffers.max_ring_bytes) = (RING, 16 * RING);
    goes_on(&config, ring_of(RING).max_size_bytes(1 << 20));
}

#[test]
fn the_lag_limit_grows_with_the_ring() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, RING).unwrap();
    let input = receiver(&ctx, &listener);
    let options = ring_of(RING).max_size_bytes(4 << 20).policy(Policy::Disconnect);
    subscribe(&input, 1, options.max_lag_bytes(Some(64 << 20)));
    let mut writer = grown(&out, 1, LARGE);
    for n in 0..2 {
        writer.append_blocking(&[&pattern(n * LARGE, LARGE as usize)], Some(WAIT)).unwrap();
    }
    assert_eq!(take(&input, 0, 2 * LARGE), 0);
}

#[test]
fn a_ring_grows_without_memory_as_far_as_it_has_room() {
    let mut config = Config::default();
    (config.buffers.size_bytes, config.buffers.max_ring_bytes) = (RING, 16 * RING);
    let ctx = Context::new(config).unwrap();
    let out = ROut::new(&ctx);
    (1..=4).for_each(|bid| drop(out.create_buffer(bid, 4 * RING).unwrap()));
    grown(&out, 1, 30_000).append(&[&[7; 30_000]]).unwrap();
    let mut writer = out.buffer(2).unwrap().writer().unwrap();
    assert!(matches!(writer.grow(LARGE), Err(GrowError::Pool(_))));
}

/// A receiver of before that has room for what comes, although its ring does not grow.
#[test]
fn a_receiver_of_before_gets_what_fits() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, listener) = sender(&ctx);
    out.create_buffer(1, RING).unwrap();
    let mut writer = out.buffer(1).unwrap().writer().unwrap();
    let mut raw = Raw::up(&listener.local_addr());
    raw.say(&Message::Subscribe(Subscribe { capacity: 1 << 20, ..raw::subscribe(5, 1) }));
    let start = raw.subscribed().start;
    raw.say(&credit(5, [start; 3], start + (1 << 20)));
    writer.grow(LARGE).unwrap();
    let end = writer.append_blocking(&[&pattern(start, LARGE as usize)], Some(WAIT)).unwrap();
    let mut at = start;
    while at < end {
        at += raw.until("data", |frame| match frame {
            Frame::Control(Message::Grown { .. } | Message::Refused { .. }) => panic!("{frame:?}"),
            Frame::Data { bytes, .. } => Some(bytes.len() as u64),
            _ => None,
        });
    }
    // Another one that comes later has as much room as it is told.
    let largest = out.buffer(1).unwrap().info().unwrap().max_delivery_bytes;
    let mut late = Raw::up(&listener.local_addr());
    late.say(&Message::Subscribe(Subscribe { capacity: 2 * largest, ..raw::subscribe(5, 1) }));
    late.subscribed();
    // Beyond its ring it is refused.
    writer.grow(1 << 20).unwrap();
    writer.append_blocking(&[&pattern(end, 1 << 20)], Some(WAIT)).unwrap();
    let code = raw.until("REFUSED", |frame| match frame {
        Frame::Control(Message::Refused { code, .. }) => Some(code),
        _ => None,
    });
    assert_eq!(code, RefuseCode::RingTooSmall);
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
