//! Words that one process writes and another reads.

use loom::thread;
use rocketring::sleep_word::{LastWake, set_asleep, set_awake};
use rocketring::small_payload::{SMALL_PAYLOAD_WORDS, read, write};
use rocketring::sync::{Arc, AtomicU64, Mutex, Ordering};
use rocketring::{LazyCursor, barrier};

use crate::model;

/// A reader in another process follows the boundary, and sleeps only if there is nothing new. A lost ring of the doorbell
/// is a deadlock.
#[test]
fn a_reader_that_sleeps_is_rung_for() {
    model(|| {
        let (boundary, word) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let pipe = Arc::new((Mutex::new(0_u32), loom::sync::Condvar::new()));
        let (theirs, their_word, their_pipe) = (boundary.clone(), word.clone(), pipe.clone());
        let writer = thread::spawn(move || {
            let last_wake = LastWake::default();
            for end in 1..=2 {
                theirs.store(end, Ordering::Release);
                if last_wake.must_wake(&their_word, barrier::light()) {
                    *their_pipe.0.lock().unwrap() += 1;
                    their_pipe.1.notify_all();
                }
            }
        });
        let mut seen = 0;
        while seen < 2 {
            set_asleep(&word);
            if boundary.load(Ordering::Acquire) == seen {
                let mut bytes = pipe.0.lock().unwrap();
                while *bytes == 0 {
                    bytes = pipe.1.wait(bytes).unwrap();
                }
                *bytes = 0;
            }
            set_awake(&word);
            seen = boundary.load(Ordering::Acquire);
        }
        writer.join().unwrap();
    });
}

/// A writer puts small deliveries beside the head while a reader copies them. A copy is a whole delivery, and a reader that
/// has seen the end of the last delivery finds that delivery.
#[test]
fn a_delivery_beside_the_head_is_whole() {
    model(|| {
        let words: Arc<[AtomicU64; SMALL_PAYLOAD_WORDS]> =
            Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let boundary = Arc::new(AtomicU64::new(0));
        let (theirs, their_boundary) = (words.clone(), boundary.clone());
        let writer = thread::spawn(move || {
            for (end, byte) in [(9, 1), (18, 2)] {
                write(&theirs, end, &[&[byte; 2], &[byte; 7]]);
                their_boundary.store(end, Ordering::Release);
            }
        });
        let seen = boundary.load(Ordering::Acquire);
        for (end, byte) in [(9, 1), (18, 2)] {
            let mut bytes = [0; 9];
            let found = read(&words, end, &mut bytes);
            assert!(!found || bytes == [byte; 9], "{bytes:?} are not the delivery up to {end}");
            assert!(found || end > seen || end < 18, "the last delivery is missing");
        }
        writer.join().unwrap();
    });
}

/// A thread requests a notification while the owner moves: either the owner notifies, or the request returns the owner's
/// position.
#[test]
fn a_requester_of_a_lazy_cursor_is_notified_or_sees_the_position() {
    model(|| {
        let cursor = Arc::new(LazyCursor::new(0));
        let told = Arc::new(AtomicU64::new(0));
        let (theirs, their_told) = (cursor.clone(), told.clone());
        let owner = thread::spawn(move || {
            for at in 1..=2 {
                if theirs.advance_to(at) {
                    their_told.store(at, Ordering::Release);
                }
            }
        });
        let seen = cursor.request();
        owner.join().unwrap();
        assert_eq!(seen.max(told.load(Ordering::Acquire)), 2);
    });
}
