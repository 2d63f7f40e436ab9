//! Sleepers and pending sets, against a plain set, with threads, and down to the descriptor.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use rocketring::{PendingSet, Waker};
use rustix::event::{PollFd, PollFlags, poll};

/// Whether the descriptor becomes readable within `millis` milliseconds. A negative `millis` is no limit.
fn readable(waker: &Waker, millis: i64) -> bool {
    let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: millis.max(0) * 1_000_000 };
    let mut fds = [PollFd::from_borrowed_fd(waker.fd(), PollFlags::IN)];
    poll(&mut fds, (millis >= 0).then_some(&timeout)).unwrap() == 1
}

proptest! {
    #[test]
    fn a_pending_set_is_a_set(
        slots in 1..10_000usize,
        steps in prop::collection::vec((0..10_u8, any::<u32>()), 0..200),
    ) {
        let (set, mut plain) = (PendingSet::new(slots), BTreeSet::new());
        // After slots were cleared one by one, `is_empty` may be false until the next drain.
        let mut cleared = false;
        for (step, choice) in steps {
            let slot = choice % slots as u32;
            match step {
                0 => {
                    let mut drained = Vec::new();
                    set.drain(|slot| drained.push(slot));
                    prop_assert!(drained.iter().copied().eq(std::mem::take(&mut plain)));
                    cleared = false;
                }
                1 => {
                    set.clear(slot);
                    cleared |= plain.remove(&slot);
                }
                _ => prop_assert_eq!(set.mark(slot), plain.insert(slot)),
            }
            prop_assert!(set.is_empty() == plain.is_empty() || (cleared && plain.is_empty()));
        }
    }
}

#[test]
fn only_a_sleeper_costs_a_system_call() {
    let waker = Waker::new().unwrap();
    waker.wake();
    assert!(!readable(&waker, 0), "the worker is awake");
    waker.prepare();
    waker.wake();
    waker.wake();
    assert!(readable(&waker, 0));
    waker.woken();
    assert!(!readable(&waker, 0), "the event was not emptied");
    waker.prepare();
    waker.woken();
    waker.wake();
    assert!(!readable(&waker, 0), "awake again without having been woken");
}

#[test]
fn every_mark_is_seen() {
    const SLOTS: usize = 300;
    const ROUNDS: u64 = 3000;
    let (set, waker) = (PendingSet::new(SLOTS), Waker::new().unwrap());
    let published: Vec<AtomicU64> = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for producer in 0..3usize {
            let (set, waker, published) = (&set, &waker, &published);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let slot = (round as usize * 7) % (SLOTS / 3) * 3 + producer;
                    published[slot].store(round, Ordering::Release);
                    if set.mark(slot as u32) {
                        waker.wake();
                    }
                }
            });
        }
        let mut seen = vec![0; SLOTS];
        // The last rounds visit every slot, and each slot must be seen at its last value.
        while seen.iter().any(|&round| round <= ROUNDS - SLOTS as u64 / 3) {
            set.drain(|slot| seen[slot as usize] = published[slot as usize].load(Ordering::Acquire));
            waker.prepare();
            if set.is_empty() && seen.iter().any(|&round| round <= ROUNDS - SLOTS as u64 / 3) {
                assert!(readable(&waker, -1));
            }
            waker.woken();
        }
    });
}
