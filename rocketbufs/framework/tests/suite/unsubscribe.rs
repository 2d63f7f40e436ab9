//! Once a subscription was left, nothing of it is taken for the next one of the same buffer.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use rocketbufs::config::TransportKind;
use rocketbufs::{Epoch, InEvent, RIn, ROut, Start};

use crate::ends::{WAIT, context, receiver, ring_of, sender};

const BID: u32 = 7;

/// The ways in which a spliced subscription ends before the application knows.
#[derive(Debug, Clone, Copy)]
enum Ends {
    Refused,
    Closed,
}

fn is_subscribed(input: &RIn) {
    let next = input.recv(Some(WAIT)).unwrap();
    assert!(matches!(next, Some(InEvent::Subscribed { bid: BID, .. })), "{next:?}");
}

#[test]
fn an_unreported_end_does_not_end_the_next_subscription() {
    for ends in [Ends::Refused, Ends::Closed] {
        let (source, broker) = (context(TransportKind::Tcp), context(TransportKind::Tcp));
        let (out, listener) = sender(&source);
        let relay = ROut::new(&broker);
        let input = receiver(&broker, &listener);
        let splice = || relay.splice_with(&input, BID, BID, ring_of(1 << 16)).unwrap();
        if let Ends::Closed = ends {
            out.create_buffer(BID, 1 << 16).unwrap();
        }
        splice();
        if let Ends::Closed = ends {
            is_subscribed(&input);
            out.destroy_buffer(BID).unwrap();
        }
        // The subscription is over, and at the other end the buffer's id is free again.
        let begin = Instant::now();
        while !input.subscriptions().is_empty() || out.create_buffer(BID, 1 << 16).is_err() {
            assert!(begin.elapsed() < WAIT, "{ends:?}: the subscription does not end");
            std::thread::yield_now();
        }
        input.unsubscribe(BID);
        relay.destroy_buffer(BID).unwrap();
        splice();
        is_subscribed(&input);
    }
}

/// Also where its answer comes at that moment.
#[test]
fn an_ended_subscription_reports_nothing() {
    let (source, ctx) = (context(TransportKind::Tcp), context(TransportKind::Tcp));
    let (out, listener) = sender(&source);
    out.create_buffer(BID, 1 << 16).unwrap();
    let input = receiver(&ctx, &listener);
    for round in 0..300 {
        input.subscribe(BID, 1 << 16).unwrap();
        let until = Instant::now() + Duration::from_micros(20 + round * 7 % 180);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        input.unsubscribe(BID);
        let told = input.recv(Some(Duration::from_millis(1))).unwrap();
        assert!(told.is_none(), "round {round}: {told:?}");
    }
}

/// The callback unsubscribes at the first of several pending events, so the others are not reported.
#[test]
fn an_event_callback_that_unsubscribes_gets_no_more_events() {
    const NEXT: u32 = 8;
    let (source, ctx) = (context(TransportKind::Tcp), context(TransportKind::Tcp));
    let (out, listener) = sender(&source);
    for bid in [BID, NEXT] {
        out.create_buffer(bid, 1 << 16).unwrap();
    }
    let input = receiver(&ctx, &listener);
    let (tells, told) = mpsc::sync_channel(512);
    let leaves = input.clone();
    input.set_event_cb(move |event| {
        if let InEvent::Restarted { bid, .. } = event {
            leaves.unsubscribe(bid);
            leaves.subscribe(NEXT, 1 << 16).unwrap();
        }
        tells.send(event).unwrap();
    });
    let start = Start::Position(Epoch(1), 0);
    input.subscribe_with(BID, ring_of(1 << 16).start(start)).unwrap();
    assert!(matches!(told.recv_timeout(WAIT).unwrap(), InEvent::Restarted { bid: BID, .. }));
    let next = told.recv_timeout(WAIT).unwrap();
    assert!(matches!(next, InEvent::Subscribed { bid: NEXT, .. }), "{next:?}");
}
