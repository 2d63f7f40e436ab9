//! Workers that sleep, and those who leave them work or do it.

use loom::thread;
use rocketring::sync::{Arc, AtomicU64, Mutex, Ordering};
use rocketring::{Mailbox, PendingSet, ReactorToken, Waker, barrier};

use crate::{Side, model};

/// Every value published before a mark is seen by a worker that sleeps whenever it finds nothing.
#[test]
fn no_wake_up_is_lost() {
    model(|| {
        let shared =
            Arc::new((PendingSet::new(2), Waker::new().unwrap(), [AtomicU64::new(0), AtomicU64::new(0)]));
        let producer = |slot: usize, times: u64| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (set, waker, published) = &*shared;
                for value in 1..=times {
                    published[slot].store(value, Ordering::Release);
                    if set.mark(slot as u32) {
                        waker.wake();
                    }
                }
            })
        };
        let producers = [producer(0, 2), producer(1, 1)];
        let (set, waker, published) = &*shared;
        let mut seen = [0, 0];
        loop {
            set.drain(|slot| seen[slot as usize] = published[slot as usize].load(Ordering::Acquire));
            if seen == [2, 1] {
                break;
            }
            waker.prepare();
            if set.is_empty() {
                waker.sleep();
            }
            waker.woken();
        }
        for producer in producers {
            producer.join().unwrap();
        }
    });
}

/// A command that is left is taken, by a worker that sleeps whenever it finds none.
#[test]
fn no_command_is_left_behind() {
    model(|| {
        let shared = Arc::new((Mailbox::default(), Waker::new().unwrap()));
        let sender = |commands: &'static [u32]| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for command in commands {
                    shared.0.push(*command).unwrap();
                    shared.1.wake();
                }
            })
        };
        let senders = [sender(&[1, 2]), sender(&[3])];
        let (mailbox, waker) = &*shared;
        let mut taken = Vec::new();
        loop {
            taken.extend(mailbox.take());
            if taken.len() == 3 {
                break;
            }
            waker.prepare();
            if !mailbox.has_mail() {
                waker.sleep();
            }
            waker.woken();
        }
        assert!(taken.iter().filter(|command| **command < 3).eq(&[1, 2]), "{taken:?} are in order");
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// A command comes back, or is taken, or is among those that are left, also if the worker ends meanwhile.
#[test]
fn a_mailbox_that_closes_loses_nothing() {
    model(|| {
        let mailbox = Arc::new(Mailbox::default());
        let theirs = Arc::clone(&mailbox);
        let sender = thread::spawn(move || u32::from(theirs.push(1).is_err()));
        let taken = mailbox.take().len() + mailbox.close().len();
        assert_eq!(taken as u32 + sender.join().unwrap(), 1);
    });
}

/// What is published is seen by a worker that clears the mark at the same moment, or marked anew.
fn a_mark_that_is_there_already(left_out: Option<Side>) {
    model(move || {
        let shared = Arc::new((PendingSet::new(1), AtomicU64::new(0)));
        shared.0.mark(0);
        let theirs = Arc::clone(&shared);
        let publisher = thread::spawn(move || {
            let (set, published) = &*theirs;
            published.store(1, Ordering::Relaxed);
            set.mark_fenced(0, Side::Publishes.barriers(left_out, barrier::full))
        });
        let (set, published) = &*shared;
        let mut seen = 0;
        Side::Asks.barriers(left_out, || set.drain(|_| seen = published.load(Ordering::Relaxed)));
        assert!(publisher.join().unwrap() || seen == 1, "lost");
    });
}

#[test]
fn a_mark_is_not_lost() {
    a_mark_that_is_there_already(None);
}

#[test]
#[should_panic = "lost"]
fn marking_needs_a_barrier() {
    a_mark_that_is_there_already(Some(Side::Publishes));
}

#[test]
#[should_panic = "lost"]
fn draining_needs_a_barrier() {
    a_mark_that_is_there_already(Some(Side::Asks));
}

/// What is delivered is seen by the worker, or by the thread that delivered it and did the worker's work while that slept;
/// and whoever is to see it is awake.
#[test]
fn a_thread_that_sends_by_itself_leaves_nothing_behind() {
    const LAST: u64 = 2;
    model(|| {
        let work = Arc::new((Work::new(), Mutex::new(0)));
        let delivering = {
            let work = Arc::clone(&work);
            thread::spawn(move || {
                let (work, seen) = &*work;
                for value in 1..=LAST {
                    work.published.store(value, Ordering::Release);
                    if !work.set.mark_fenced(0, barrier::light().full()) {
                        continue;
                    }
                    work.token.run_or_wake(seen, |seen| {
                        work.set.clear(0);
                        *seen = work.published.load(Ordering::Acquire);
                        // The model's worker ends with the last; a real one would sleep on.
                        *seen < LAST
                    });
                }
            })
        };
        let (work, seen) = &*work;
        loop {
            let mut seen_now = seen.lock().unwrap();
            work.set.drain(|_| *seen_now = work.published.load(Ordering::Acquire));
            if *seen_now == LAST {
                break;
            }
            work.token.sleep(seen_now, || !work.set.is_empty(), || work.token.waker().sleep());
            assert!(work.token.woken(), "nobody takes the token");
        }
        delivering.join().unwrap();
    });
}

/// What there is to see, and who sees it: one at a time, whoever has the token.
struct Work {
    token: ReactorToken,
    set: PendingSet,
    published: AtomicU64,
    seen: AtomicU64,
    in_it: AtomicU64,
}

impl Work {
    fn new() -> Work {
        Work {
            token: ReactorToken::new().unwrap(),
            set: PendingSet::new(1),
            published: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            in_it: AtomicU64::new(0),
        }
    }

    fn look(&self) {
        assert_eq!(self.in_it.swap(1, Ordering::Relaxed), 0, "two are in one token");
        self.set.drain(|_| self.seen.store(self.published.load(Ordering::Acquire), Ordering::Relaxed));
        self.in_it.store(0, Ordering::Relaxed);
    }
}

/// What is published is seen by whoever has the token, or by the own thread when nobody has it: also while another thread
/// takes the token and leaves it. Timeouts never end in a model, so that nothing may depend on them.
#[test]
fn a_seat_that_changes_hands_leaves_nothing_behind() {
    const LAST: u64 = 2;
    model(|| {
        let work = Arc::new(Work::new());
        let publishing = {
            let work = Arc::clone(&work);
            thread::spawn(move || {
                for value in 1..=LAST {
                    work.published.store(value, Ordering::Release);
                    if work.set.mark(0) {
                        work.token.wake();
                    }
                }
            })
        };
        let waiting = {
            let work = Arc::clone(&work);
            thread::spawn(move || {
                if work.token.take() {
                    work.look();
                    // The model's own thread ends with the last; a real one would sleep on.
                    let last = work.seen.load(Ordering::Relaxed) == LAST;
                    work.token.leave(|| last || !work.set.is_empty());
                }
            })
        };
        loop {
            work.look();
            if work.seen.load(Ordering::Relaxed) == LAST {
                break;
            }
            work.token.sleep((), || !work.set.is_empty(), || work.token.waker().sleep());
            if !work.token.woken() {
                work.token.park(std::time::Duration::from_millis(1));
            }
        }
        publishing.join().unwrap();
        waiting.join().unwrap();
    });
}

/// What is published while the own thread lets others have the token is seen, also if nobody takes it.
#[test]
fn a_seat_that_is_let_go_leaves_nothing_behind() {
    model(|| {
        let work = Arc::new(Work::new());
        let publishing = {
            let work = Arc::clone(&work);
            thread::spawn(move || {
                work.published.store(1, Ordering::Release);
                if work.set.mark(0) {
                    work.token.wake();
                }
            })
        };
        let waiting = {
            let work = Arc::clone(&work);
            thread::spawn(move || {
                if work.token.take() {
                    work.look();
                    let last = work.seen.load(Ordering::Relaxed) == 1;
                    work.token.leave(|| last || !work.set.is_empty());
                }
            })
        };
        loop {
            work.look();
            if work.seen.load(Ordering::Relaxed) == 1 {
                break;
            }
            work.token.release(|| !work.set.is_empty());
            work.token.park(std::time::Duration::from_millis(1));
        }
        publishing.join().unwrap();
        waiting.join().unwrap();
    });
}
