//! The handshake itself, with its barriers and without.

use std::time::Duration;

use loom::thread;
use rocketring::barrier::{self, Barrier};
use rocketring::sync::{Arc, AtomicU64, Ordering};
use rocketring::{Armed, EventCount, NotifyFlag};

use crate::{Side, model};

/// Either the asking thread sees the published value, or the publisher sees the request.
fn one_sees_the_other<B: Barrier + 'static>(publish: fn() -> B, left_out: Option<Side>) {
    model(move || {
        let shared = Arc::new((NotifyFlag::<B>::new(false), AtomicU64::new(0)));
        let theirs = Arc::clone(&shared);
        let publisher = thread::spawn(move || {
            let (flag, published) = &*theirs;
            published.store(1, Ordering::Relaxed);
            flag.take(Side::Publishes.barriers(left_out, publish))
        });
        let (flag, published) = &*shared;
        Side::Asks.barriers(left_out, || flag.arm());
        let seen = published.load(Ordering::Relaxed) == 1;
        let notified = publisher.join().unwrap();
        assert!(seen || notified, "lost");
        assert_eq!(flag.disarm(), if notified { Armed::Taken } else { Armed::Yes });
    });
}

#[test]
fn a_notification_is_not_lost() {
    one_sees_the_other(barrier::full, None);
    one_sees_the_other(barrier::light, None);
}

#[test]
#[should_panic = "lost"]
fn asking_needs_a_barrier() {
    one_sees_the_other(barrier::full, Some(Side::Asks));
}

#[test]
#[should_panic = "lost"]
fn publishing_needs_a_barrier() {
    one_sees_the_other(barrier::full, Some(Side::Publishes));
}

/// Exactly one of two publishers takes a request, and sees what the asking thread wrote before the request. `disarm` tells
/// the asking thread whether a publisher took the request; if so, the asking thread sees what that publisher wrote.
#[test]
fn a_request_is_taken_once() {
    model(|| {
        let shared =
            Arc::new((NotifyFlag::<barrier::Full>::new(false), AtomicU64::new(0), AtomicU64::new(0)));
        let publisher = || {
            let theirs = Arc::clone(&shared);
            thread::spawn(move || {
                let (flag, wanted, told) = &*theirs;
                told.fetch_add(1, Ordering::Relaxed);
                let takes = flag.take(barrier::full());
                assert!(
                    !takes || wanted.load(Ordering::Relaxed) == 7,
                    "the request is visible with its flag"
                );
                u32::from(takes)
            })
        };
        let publishers = [publisher(), publisher()];
        let (flag, wanted, told) = &*shared;
        wanted.store(7, Ordering::Relaxed);
        flag.arm();
        let armed = flag.disarm();
        assert!(armed != Armed::Taken || told.load(Ordering::Relaxed) > 0);
        let taken: u32 = publishers.into_iter().map(|publisher| publisher.join().unwrap()).sum();
        assert_eq!(taken, u32::from(armed == Armed::Taken));
    });
}

/// A thread that sleeps until a value is confirmed is woken by the thread that confirms the value.
fn a_sleeper_is_woken(left_out: Option<Side>) {
    model(move || {
        let shared = Arc::new((EventCount::default(), AtomicU64::new(0)));
        let theirs = Arc::clone(&shared);
        let publisher = thread::spawn(move || {
            for value in 1..=2 {
                theirs.1.store(value, Ordering::Relaxed);
                theirs.0.notify_all(Side::Publishes.barriers(left_out, barrier::full));
            }
        });
        let (progressed, confirmed) = &*shared;
        let waits = || progressed.wait_until(Duration::MAX, || confirmed.load(Ordering::Relaxed) == 2);
        assert!(Side::Asks.barriers(left_out, waits));
        publisher.join().unwrap();
    });
}

#[test]
fn a_waiter_for_a_confirmation_is_woken() {
    a_sleeper_is_woken(None);
}

#[test]
#[should_panic = "deadlock"]
fn waiting_for_a_confirmation_needs_a_barrier() {
    a_sleeper_is_woken(Some(Side::Asks));
}

#[test]
#[should_panic = "deadlock"]
fn confirming_needs_a_barrier() {
    a_sleeper_is_woken(Some(Side::Publishes));
}
