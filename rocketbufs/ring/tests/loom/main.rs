//! The ring's handshakes under every interleaving (that loom's bounds allow).
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p rocketring --release --test loom`
#![cfg(loom)]

mod grow;
mod handshake;
mod words;
mod worker;

use loom::thread;
use rocketring::sync::{Arc, AtomicU64, Ordering};
use rocketring::{ClaimError, Pool, PoolConfig, Ring, RingConfig, barrier};

/// The limit of involuntary switches. A higher limit finds nothing new in these models, and takes minutes.
const PREEMPTIONS: usize = 3;

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(f);
}

/// A side of a handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Asks,
    Publishes,
}

impl Side {
    /// Runs `f`, the work of this side; without its barriers if `left_out` is this side. The model must fail then.
    fn barriers<R>(self, left_out: Option<Side>, f: impl FnOnce() -> R) -> R {
        if left_out == Some(self) { barrier::left_out(f) } else { f() }
    }
}

/// A ring of 8 bytes whose deliveries can have up to 4.
fn ring(flow_control: bool) -> Ring {
    let pool = Pool::new(PoolConfig { reservation_bytes: 64, max_bytes: 64 }).unwrap();
    let config = RingConfig {
        capacity_bytes: 8,
        retain_bytes: Some(4),
        max_delivery_bytes: Some(4),
        flow_control,
        start: 0,
    };
    pool.ring(config).unwrap()
}

/// A full writer sleeps until the hold has moved far enough. A lost wake-up is a deadlock, which loom reports. Loom also
/// reports a byte that is overwritten during a read.
#[test]
fn a_full_writer_is_woken() {
    model(|| {
        let ring = ring(true);
        let hold = ring.hold(0).unwrap();
        let mut writer = ring.writer().unwrap();
        writer.append(&[&[1; 4]]).unwrap();
        writer.append(&[&[2; 4]]).unwrap();
        let reader = thread::spawn(move || {
            assert_eq!(hold.ring().view(0, 2).to_vec().unwrap(), [1, 1]);
            hold.advance(2);
            assert_eq!(hold.ring().view(2, 4).to_vec().unwrap(), [1, 1]);
            hold.advance(4);
            hold
        });
        while let Err(full) = writer.append(&[&[3; 4]]) {
            assert_eq!(full, ClaimError::Full);
            assert!(ring.wait_grant(12, None));
        }
        let hold = reader.join().unwrap();
        assert_eq!(ring.view(hold.position(), ring.head()).to_vec().unwrap(), [2, 2, 2, 2, 3, 3, 3, 3]);
    });
}

/// A full writer is also woken when the hold is dropped.
#[test]
fn a_full_writer_is_woken_by_a_dropped_hold() {
    model(|| {
        let ring = ring(true);
        let hold = ring.hold(0).unwrap();
        let mut writer = ring.writer().unwrap();
        writer.append(&[&[1; 4]]).unwrap();
        writer.append(&[&[2; 4]]).unwrap();
        let reader = thread::spawn(move || drop(hold));
        while writer.append(&[&[3; 4]]).is_err() {
            assert!(ring.wait_grant(12, None));
        }
        reader.join().unwrap();
    });
}

/// `wake_waiters` wakes a writer that sleeps, and a writer that is about to sleep.
#[test]
fn a_poke_is_not_lost() {
    model(|| {
        let ring = ring(true);
        let _hold = ring.hold(0).unwrap();
        let closed = Arc::new(AtomicU64::new(0));
        let closer = {
            let (ring, closed) = (ring.clone(), Arc::clone(&closed));
            thread::spawn(move || {
                closed.store(1, Ordering::Release);
                ring.wake_waiters();
            })
        };
        while closed.load(Ordering::Acquire) == 0 {
            assert!(!ring.wait_grant(12, None));
        }
        closer.join().unwrap();
    });
}

/// A reader that gets a hold can read the held bytes while the writer continues. A reader that gets none learns the tail.
#[test]
fn a_joining_hold_is_never_overwritten() {
    model(|| {
        let ring = ring(true);
        let mut writer = ring.writer().unwrap();
        writer.append(&[&[1; 4]]).unwrap();
        let joiner = {
            let ring = ring.clone();
            thread::spawn(move || match ring.hold(0) {
                Ok(hold) => {
                    assert_eq!(ring.view(0, 4).to_vec().unwrap(), [1; 4], "held at {}", hold.position())
                }
                Err(gone) => assert_eq!(gone.tail, 4),
            })
        };
        writer.append(&[&[2; 4]]).unwrap();
        match writer.append(&[&[3; 4]]) {
            Ok(end) => assert_eq!(end, 12),
            Err(full) => assert_eq!(full, ClaimError::Full),
        }
        joiner.join().unwrap();
    });
}

/// A reader that gets a hold can read the held bytes although the ring is trimmed at the same moment. A reader that gets
/// none learns the tail.
#[test]
fn a_joining_hold_keeps_its_bytes_from_being_given_back() {
    model(|| {
        let ring = ring(true);
        let mut receiver = ring.receiver().unwrap();
        for part in [1, 2] {
            assert_eq!(receiver.copy_in(&[part; 4]), 4);
            receiver.end();
            ring.grant();
        }
        let joiner = {
            let ring = ring.clone();
            thread::spawn(move || match ring.hold(4) {
                Ok(hold) => {
                    assert_eq!(ring.view(4, 8).to_vec().unwrap(), [2; 4], "held at {}", hold.position());
                    hold.advance(8);
                }
                Err(gone) => assert_eq!(gone.tail, 8),
            })
        };
        let trimmed = receiver.trim(0);
        assert!(trimmed.held || ring.tail() == 8);
        assert_eq!(receiver.copy_in(&[3; 4]), 4);
        joiner.join().unwrap();
    });
}

/// A writer continues while its ring is trimmed: neither new bytes nor held bytes are given back.
#[test]
fn a_writer_goes_on_while_its_ring_is_trimmed() {
    model(|| {
        let ring = ring(true);
        let mut writer = ring.writer().unwrap();
        writer.append(&[&[1; 2]]).unwrap();
        let trimming = {
            let ring = ring.clone();
            thread::spawn(move || {
                assert!(!ring.trim(0).unwrap().held);
                let hold = ring.hold(ring.head()).unwrap();
                (hold.position(), hold)
            })
        };
        let ends = [2, 3].map(|byte| writer.append(&[&[byte; 3]]).unwrap());
        assert_eq!(ends, [5, 8]);
        let (from, hold) = trimming.join().unwrap();
        let written = [1, 1, 2, 2, 2, 3, 3, 3];
        assert_eq!(ring.view(from, 8).to_vec().unwrap(), written[from as usize..]);
        // The writer can use the room that was given back.
        let room = from + 8 - 8;
        let more = vec![4; room.min(3) as usize];
        writer.append(&[&more]).unwrap();
        assert_eq!(ring.view(from, 8).to_vec().unwrap(), written[from as usize..]);
        drop(hold);
    });
}

/// A reader of `head` or `boundary` sees all bytes below it, and the index of their boundaries.
#[test]
fn published_bytes_are_there() {
    model(|| {
        let ring = ring(true);
        let reader_hold = ring.hold(0).unwrap();
        let mut writer = ring.writer().unwrap();
        let reader = thread::spawn(move || {
            let ring = reader_hold.ring();
            let boundary = ring.boundary();
            let head = ring.head();
            assert!(boundary <= head);
            assert_eq!(ring.view(0, head).to_vec().unwrap(), [1, 1, 2, 2][..head as usize]);
            assert_eq!(ring.boundary_at_or_before(boundary), Some(boundary));
            if boundary >= 2 {
                assert!([2, 4].contains(&ring.boundary_at_or_after(1).unwrap()));
            }
        });
        writer.append(&[&[1; 2]]).unwrap();
        writer.append(&[&[2; 2]]).unwrap();
        reader.join().unwrap();
    });
}

/// A reader that sees a boundary behind a hole sees the hole.
#[test]
fn a_hole_is_seen_with_its_boundary() {
    model(|| {
        let ring = ring(true);
        let mut receiver = ring.receiver().unwrap();
        let reader = {
            let ring = ring.clone();
            thread::spawn(move || {
                let boundary = ring.boundary();
                let gap = ring.gap_after(0);
                assert!(boundary <= 1 || gap.is_some_and(|gap| (gap.from, gap.to) == (1, 3)));
            })
        };
        receiver.copy_in(&[1]);
        receiver.end();
        receiver.skip(3);
        reader.join().unwrap();
    });
}

/// Without flow control a torn copy is refused.
#[test]
fn a_torn_copy_is_found() {
    model(|| {
        let ring = ring(false);
        let mut writer = ring.writer().unwrap();
        writer.append(&[&[1; 2]]).unwrap();
        let reader = {
            let ring = ring.clone();
            thread::spawn(move || {
                // Read the head first: between a tail and a head that is read later there may be more than the capacity.
                let head = ring.head();
                let from = ring.tail().min(head);
                let view = ring.view(from, head);
                if let Ok(bytes) = view.to_vec() {
                    let expected = [1, 1, 2, 2, 2, 2, 3, 3, 3, 3];
                    assert_eq!(bytes, expected[from as usize..from as usize + bytes.len()]);
                }
            })
        };
        writer.append(&[&[2; 4]]).unwrap();
        writer.append(&[&[3; 4]]).unwrap();
        reader.join().unwrap();
    });
}
