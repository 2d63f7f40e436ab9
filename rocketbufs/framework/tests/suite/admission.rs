//! The application of a sender decides who may subscribe to which buffer, and may change its mind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rocketbufs::config::TransportKind;
use rocketbufs::error::{RefuseCode, RefusedError};
use rocketbufs::{Admitted, InEvent, OutEvent, Policy, PolicySet, RIn, ROut};

use crate::ends::{WAIT, context, receiver, ring_of, sender, subscribe, take, write};

const OPEN: u32 = 1;
const CLOSED: u32 = 2;

fn refusal(input: &RIn, bid: u32) -> RefuseCode {
    match input.recv(Some(WAIT)).unwrap() {
        Some(InEvent::Refused { bid: of, error: RefusedError::Peer { code, .. } }) if of == bid => code,
        other => panic!("expected Refused, got {other:?}"),
    }
}

fn two_buffers(out: &ROut) {
    for bid in [OPEN, CLOSED] {
        out.create_buffer(bid, 1 << 16).unwrap();
    }
}

#[test]
fn a_buffer_that_is_not_allowed_looks_as_if_there_were_none() {
    let (source, ctx) = (context(TransportKind::Tcp), context(TransportKind::Tcp));
    let (out, listener) = sender(&source);
    two_buffers(&out);
    out.set_admission(|asking| match (asking.bid, asking.name) {
        (OPEN, _) => Some([Policy::Drop].into_iter().collect()),
        (CLOSED, b"friend") => Some(PolicySet::ALL),
        _ => None,
    });
    let input = receiver(&ctx, &listener);
    for missing in [CLOSED, 99] {
        input.subscribe(missing, 1 << 16).unwrap();
        assert_eq!(refusal(&input, missing), RefuseCode::NoSuchBuffer);
    }
    // The policy is limited too, and the refusal names the allowed ones.
    input.subscribe(OPEN, 1 << 16).unwrap();
    match input.recv(Some(WAIT)).unwrap() {
        Some(InEvent::Refused { error, .. }) => {
            assert!(error.to_string().ends_with("allowed: drop"), "{error}")
        }
        other => panic!("expected Refused, got {other:?}"),
    }
    subscribe(&input, OPEN, ring_of(1 << 16).policy(Policy::Drop));
    subscribe(&input, CLOSED, ring_of(1 << 16).durable(b"friend".to_vec(), WAIT));
}

#[test]
fn a_right_that_is_lost_ends_its_subscription_and_no_other() {
    for transport in [TransportKind::Tcp, TransportKind::Shm] {
        let (source, ctx) = (context(transport), context(transport));
        let (out, listener) = sender(&source);
        two_buffers(&out);
        let denied = Arc::new(AtomicU32::new(0));
        let (asked, of_all) = (denied.clone(), PolicySet::ALL);
        out.set_admission(move |asking| (asked.load(Ordering::Relaxed) != asking.bid).then_some(of_all));
        let (input, other) = (receiver(&ctx, &listener), receiver(&ctx, &listener));
        let start = subscribe(&input, OPEN, ring_of(1 << 16));
        let closed = subscribe(&input, CLOSED, ring_of(1 << 16));
        subscribe(&other, OPEN, ring_of(1 << 16));
        write(&out, CLOSED, 10_000, 1000);
        assert_eq!(take(&input, closed, closed + 10_000), 0);
        // Nothing has changed.
        out.review_admissions();
        write(&out, OPEN, 10_000, 1000);
        assert_eq!(take(&input, start, start + 10_000), 0);
        denied.store(CLOSED, Ordering::Relaxed);
        out.review_admissions();
        assert_eq!(refusal(&input, CLOSED), RefuseCode::NotAllowed, "{transport:?}");
        // The writer waits for nobody now, and the other subscription gets everything.
        write(&out, CLOSED, 300_000, 1000);
        write(&out, OPEN, 30_000, 1000);
        assert_eq!(take(&input, start + 10_000, start + 40_000), 0);
        assert_eq!(take(&other, start, start + 40_000), 0);
        input.subscribe(CLOSED, 1 << 16).unwrap();
        assert_eq!(refusal(&input, CLOSED), RefuseCode::NoSuchBuffer);
        let ended = std::iter::from_fn(|| out.recv_event(Some(WAIT)).unwrap())
            .find(|event| matches!(event, OutEvent::Unsubscribed { .. }));
        assert!(matches!(ended, Some(OutEvent::Unsubscribed { bid: CLOSED, .. })), "{ended:?}");
    }
}

/// A peer that knows the name of another owner's subscription gets neither its place nor its connection.
#[test]
fn names_of_different_owners_have_nothing_to_do_with_each_other() {
    let (source, ctx) = (context(TransportKind::Tcp), context(TransportKind::Tcp));
    let (out, listener) = sender(&source);
    two_buffers(&out);
    // The first connection is one owner's, the others are another's.
    let first = AtomicU32::new(u32::MAX);
    out.set_admission(move |asking| {
        let conn = asking.conn as u32;
        let owner = match first.compare_exchange(u32::MAX, conn, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => 1,
            Err(known) => 1 + u64::from(known != conn),
        };
        Some(Admitted { policies: PolicySet::ALL, owner })
    });
    let named = || ring_of(1 << 16).durable(b"name".to_vec(), WAIT);
    let (honest, thief) = (receiver(&ctx, &listener), receiver(&ctx, &listener));
    let start = subscribe(&honest, OPEN, named());
    write(&out, OPEN, 10_000, 1000);
    assert_eq!(take(&honest, start, start + 10_000), 0);
    let stolen = subscribe(&thief, OPEN, named());
    assert!(honest.conn().down_reason().is_none());
    // Another connection of the thief's owner takes the thief's place over, as it may.
    let heir = receiver(&ctx, &listener);
    subscribe(&heir, OPEN, named());
    write(&out, OPEN, 10_000, 1000);
    assert_eq!(take(&honest, start + 10_000, start + 20_000), 0);
    assert_eq!(take(&heir, stolen, stolen + 10_000), 0);
    let ended = |event: &InEvent| matches!(event, InEvent::ConnDown { .. });
    assert!(std::iter::from_fn(|| thief.recv(Some(WAIT)).unwrap()).any(|event| ended(&event)));
    assert!(honest.conn().down_reason().is_none());
}

/// A panic of the decision ends the connection that asked and no other; without the decision everything is allowed.
#[test]
fn a_panic_of_the_decision_refuses() {
    let (source, ctx) = (context(TransportKind::Tcp), context(TransportKind::Tcp));
    let (out, listener) = sender(&source);
    two_buffers(&out);
    let dropped = Arc::new(());
    let used = dropped.clone();
    out.set_admission(move |asking| {
        let _used = &used;
        assert_ne!(asking.bid, CLOSED, "no answer");
        Some(PolicySet::ALL)
    });
    let (input, other) = (receiver(&ctx, &listener), receiver(&ctx, &listener));
    let start = subscribe(&other, OPEN, ring_of(1 << 16));
    input.subscribe(CLOSED, 1 << 16).unwrap();
    let down = input.conn().wait_down(Some(WAIT)).unwrap().expect("it goes down");
    assert!(down.to_string().contains("panicked"), "{down}");
    assert_eq!(out.buffer(CLOSED).unwrap().subscriber_count(), 0);
    write(&out, OPEN, 10_000, 1000);
    assert_eq!(take(&other, start, start + 10_000), 0);
    out.unset_admission();
    assert_eq!(Arc::strong_count(&dropped), 1, "nothing of it is left");
    subscribe(&other, CLOSED, ring_of(1 << 16));
}
