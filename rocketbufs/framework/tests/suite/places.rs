//! Durable subscriptions: each has a slot from its beginning, and a subscriber without a slot learns so.

use std::time::Duration;

use rocketbufs::config::TransportKind;
use rocketbufs::{
    Bid, Config, Context, InEvent, InView, Listener, Policy, ProgressLevel, RIn, ROut, Start,
    SubscribeOptions,
};

use crate::ends::{self, WAIT, pattern, receiver, sender, subscribe, take, until};

const RING_BYTES: u64 = 64 << 10;

struct Sender {
    ctx: Context,
    out: ROut,
    listener: Listener,
}

/// A sender of buffers 1 to 3, of which so many places may be taken.
fn served(places: usize) -> Sender {
    let mut config = Config::default();
    config.limits.max_held_subscriptions = places;
    let ctx = Context::new(config).unwrap();
    let (out, listener) = sender(&ctx);
    (1..=3).for_each(|bid| drop(out.create_buffer(bid, RING_BYTES).unwrap()));
    Sender { ctx, out, listener }
}

impl Sender {
    /// Subscribes over a new connection. Returns whether the subscription has a slot.
    fn named(&self, bid: Bid, name: &str) -> (RIn, bool) {
        let input = receiver(&self.ctx, &self.listener);
        let durable = self.subscribe(&input, bid, name);
        (input, durable)
    }

    fn subscribe(&self, input: &RIn, bid: Bid, name: &str) -> bool {
        input.subscribe_with(bid, options(name)).unwrap();
        assert!(matches!(event(input), InEvent::Subscribed { .. }));
        self.out.buffer(bid).unwrap().writer().unwrap().append(&[b"x"]).unwrap();
        match event(input) {
            InEvent::Data(view) => {
                view.consume();
                true
            }
            InEvent::NotDurable { bid: of } => {
                assert_eq!(of, bid);
                false
            }
            other => panic!("{other:?}"),
        }
    }

    fn until_gone(&self, bid: Bid) {
        until("the subscriber is gone", || self.out.buffer(bid).unwrap().subscriber_count() == 0);
    }
}

fn options(name: &str) -> SubscribeOptions {
    SubscribeOptions::new()
        .size_bytes(RING_BYTES)
        .durable(name, if name.is_empty() { Duration::ZERO } else { WAIT })
}

fn event(input: &RIn) -> InEvent {
    input.recv(Some(WAIT)).unwrap().expect("an event")
}

#[test]
fn a_missing_durable_slot_is_reported_at_the_subscription() {
    let sender = served(1);
    let (_without, no_name) = sender.named(1, "");
    let (_first, durable) = sender.named(1, "first");
    assert!(no_name && durable);
    let (second, durable) = sender.named(2, "second");
    assert!(!durable);
    second.conn().close("away");
    sender.until_gone(2);
    assert!(sender.out.buffer(2).unwrap().durable_cursors().is_empty());
}

#[test]
fn a_durable_subscriber_that_returns_has_its_own_slot() {
    let sender = served(1);
    let (first, durable) = sender.named(1, "me");
    assert!(durable);
    // While the old connection is still there, and after it has gone.
    let (again, durable) = sender.named(1, "me");
    assert!(durable);
    again.conn().close("away");
    sender.until_gone(1);
    assert_eq!(sender.out.buffer(1).unwrap().durable_cursors().len(), 1);
    assert!(!sender.named(2, "other").1, "a kept cursor occupies a slot");
    let (back, durable) = sender.named(1, "me");
    assert!(durable && sender.out.buffer(1).unwrap().durable_cursors().is_empty());
    drop((first, back));
}

#[test]
fn durable_slots_of_unsubscribed_names_are_free() {
    let sender = served(1);
    for _ in 0..3 {
        let (input, durable) = sender.named(1, "me");
        assert!(durable);
        input.unsubscribe(1);
        sender.until_gone(1);
    }
    // A subscription without a slot gets a slot that is free when its connection ends.
    let (one, durable) = sender.named(1, "one");
    let (two, second) = sender.named(2, "two");
    assert!(durable && !second);
    one.unsubscribe(1);
    sender.until_gone(1);
    two.conn().close("away");
    sender.until_gone(2);
    assert_eq!(sender.out.buffer(2).unwrap().durable_cursors().len(), 1);
}

#[test]
fn a_durable_slot_of_a_removed_buffer_is_free() {
    let (source, sender) = (served(1), served(1));
    let up = receiver(&sender.ctx, &source.listener);
    up.subscribe(1, 64 << 10).unwrap();
    sender.out.splice_as(&up, 1, 9).unwrap();
    source.out.buffer(1).unwrap().writer().unwrap().append(&[b"x"]).unwrap();
    let input = receiver(&sender.ctx, &sender.listener);
    input.subscribe_with(9, options("me")).unwrap();
    assert!(matches!(event(&input), InEvent::Subscribed { .. }));
    assert!(!sender.named(2, "other").1);
    sender.out.destroy_buffer(9).unwrap();
    input.conn().close("away");
    until("there is a place", || {
        let (other, durable) = sender.named(3, "other");
        other.unsubscribe(3);
        sender.until_gone(3);
        durable
    });
}

/// The index does not have all ends of small deliveries, but it has the end at which a durable cursor is.
#[test]
fn a_durable_subscriber_that_had_everything_is_sent_nothing_twice() {
    let sender = served(1);
    let mut writer = sender.out.buffer(1).unwrap().writer().unwrap();
    let input = receiver(&sender.ctx, &sender.listener);
    input.subscribe_with(1, options("named")).unwrap();
    assert!(matches!(event(&input), InEvent::Subscribed { .. }));
    let had = (0..5).map(|_| writer.append(&[b"delivery"]).unwrap()).last().unwrap();
    sender.out.buffer(1).unwrap().wait(ProgressLevel::Landed, had, Some(WAIT)).unwrap();
    input.conn().close("the test");
    until("its place is kept", || !sender.out.buffer(1).unwrap().durable_cursors().is_empty());
    for _ in 0..5 {
        writer.append(&[b"delivery"]).unwrap();
    }
    let input = receiver(&sender.ctx, &sender.listener);
    input.subscribe_with(1, options("named")).unwrap();
    assert!(matches!(event(&input), InEvent::Subscribed { start, .. } if start == had));
}

/// A subscriber with the policy `drop` or `disconnect` holds no writer, also while its connection is gone. After its return it
/// gets the bytes of the history, and LOST for the others.
#[test]
fn durable_subscribers_that_do_not_block_hold_no_writer_while_away() {
    for policy in [Policy::Drop, Policy::Disconnect] {
        let sender = served(1);
        let mut writer = sender.out.buffer(1).unwrap().writer().unwrap();
        let wishes = || options("me").policy(policy).start(Start::Oldest);
        let away = receiver(&sender.ctx, &sender.listener);
        assert_eq!(subscribe(&away, 1, wishes()), 0);
        writer.append(&[&pattern(0, 1000)]).unwrap();
        assert_eq!(take(&away, 0, 1000), 0);
        away.conn().close("away");
        sender.until_gone(1);
        let kept = sender.out.buffer(1).unwrap().durable_cursors();
        assert!(kept.len() == 1 && kept[0].retains_from.is_none(), "{kept:?}");

        let head = 10 * RING_BYTES;
        (1000..head).step_by(1000).for_each(|at| {
            let size = 1000.min(head - at) as usize;
            writer
                .append(&[&pattern(at, size)])
                .unwrap_or_else(|error| panic!("{policy:?} at {at}: {error}"));
        });
        sender
            .out
            .buffer(1)
            .unwrap()
            .wait(ProgressLevel::Delivered, head, Some(Duration::ZERO))
            .expect("no subscriber holds the writer");

        let back = receiver(&sender.ctx, &sender.listener);
        assert_eq!(subscribe(&back, 1, wishes()), 1000);
        let lost = take(&back, 1000, head);
        // The index may not have the first boundary of the history.
        assert!(lost > 0 && lost <= head - 1000 - RING_BYTES / 2 + 2000, "{policy:?}: {lost} bytes");
        writer.append(&[&pattern(head, 1000)]).unwrap();
        assert_eq!(take(&back, head, head + 1000), 0);
    }
}

/// The time for which a position is held here. No test lasts so long.
const LONG: Duration = Duration::from_secs(600);

/// A reader of buffer 1 that got CLOSED, and has not released the data.
struct Told {
    ctx: Context,
    input: RIn,
    view: Option<InView>,
}

impl Told {
    /// Subscribes, and takes everything up to the end of the log, which `write` makes.
    fn new(transport: TransportKind, listener: &Listener, write: impl FnOnce()) -> Self {
        let ctx = ends::context(transport);
        let input = receiver(&ctx, listener);
        subscribe(&input, 1, options("reader").durable("reader", LONG));
        write();
        let InEvent::Data(view) = event(&input) else { panic!("data comes first") };
        assert!(matches!(event(&input), InEvent::Closed { .. }));
        Self { ctx, input, view: Some(view) }
    }

    fn release(&mut self) {
        self.view.take().into_iter().for_each(InView::consume);
    }
}

/// Ends the connection of an rIn.
fn cut(input: &RIn) {
    input.conn().close("cut");
    input.conn().wait_down(Some(WAIT)).expect("the connection is down");
}

#[test]
fn a_closed_log_is_confirmed_after_its_connection_was_lost() {
    for transport in [TransportKind::Tcp, TransportKind::Shm] {
        for released_before in [true, false] {
            let ctx = ends::context(transport);
            let (out, listener) = sender(&ctx);
            let buffer = out.create_buffer(1, RING_BYTES).unwrap();
            let mut reader = Told::new(transport, &listener, || {
                buffer.writer().unwrap().append(&[b"x"]).unwrap();
                out.destroy_buffer(1).unwrap();
            });
            cut(&reader.input);
            until("the position is held", || buffer.durable_cursors().len() == 1);
            assert_eq!(buffer.confirmed().consumed, 0);
            if released_before {
                reader.release();
            }
            reader.input.resume(&ends::connect(&reader.ctx, &listener));
            reader.release();
            until("the buffer is gone", || out.buffer(1).is_none());
            assert!(buffer.durable_cursors().is_empty());
        }
    }
}

#[test]
fn a_broker_confirms_a_closed_log_after_its_connection_was_lost() {
    for transport in [TransportKind::Tcp, TransportKind::Shm] {
        let (ctx, broker) = (ends::context(transport), ends::context(transport));
        let (out, listener) = sender(&ctx);
        let buffer = out.create_buffer(1, RING_BYTES).unwrap();
        let (handed_on, behind) = sender(&broker);
        let up = receiver(&broker, &listener);
        handed_on.splice_with(&up, 1, 1, options("broker").durable("broker", LONG)).unwrap();
        let mut reader = Told::new(transport, &behind, || {
            buffer.writer().unwrap().append(&[b"x"]).unwrap();
            out.destroy_buffer(1).unwrap();
        });
        until("the broker gets CLOSED", || {
            matches!(up.recv(Some(WAIT)).unwrap(), Some(InEvent::Closed { .. }))
        });
        cut(&up);
        until("the position is held", || buffer.durable_cursors().len() == 1);
        reader.release();
        up.resume(&ends::connect(&broker, &listener));
        until("the buffer is gone", || out.buffer(1).is_none());
    }
}
