//! Workers that sleep, and threads that leave work to a worker or do the work of a sleeping worker.

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

/// Every command is taken by a worker that sleeps whenever its mailbox is empty.
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
        assert!(taken.iter().filter(|command| **command < 3).eq(&[1, 2]), "{taken:?} are not in order");
        for sender in senders {
            sender.join().unwrap();
        }
    });
}

/// While a worker closes its mailbox, a command is refused, taken, or returned by `close`: exactly one of the three.
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

/// A publisher marks a slot that is marked already, while the worker drains the set. Either the worker sees the value, or
/// the slot is marked again.
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

/// Every delivered value is seen, either by the worker or by the delivering thread that does the work of the sleeping
/// worker. A worker that must see a value is awake.
#[test]
fn a_delivering_thread_that_sends_loses_no_value() {
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
                        // The model's worker ends with the last value. A real worker would sleep on.
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
            assert!(work.token.woken(), "another thread took the token");
        }
        delivering.join().unwrap();
    });
}

/// Published values, and the token that a thread needs to look at them. At most one thread looks at a time.
struct Work {
    token: ReactorToken,
    set: PendingSet,
    published: AtomicU64,
    seen: AtomicU64,
    inside: AtomicU64,
}

impl Work {
    fn new() -> Work {
        Work {
            token: ReactorToken::new().unwrap(),
            set: PendingSet::new(1),
            published: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            inside: AtomicU64::new(0),
        }
    }

    fn look(&self) {
        assert_eq!(self.inside.swap(1, Ordering::Relaxed), 0, "two threads hold the token");
        self.set.drain(|_| self.seen.store(self.published.load(Ordering::Acquire), Ordering::Relaxed));
        self.inside.store(0, Ordering::Relaxed);
    }
}

/// Every published value is seen by the thread that has the token, or by the worker's own thread if no other thread has
/// it. This holds while another thread takes the token and leaves it. Timeouts never end in a model, so no step may depend
/// on one.
#[test]
fn a_token_that_changes_hands_loses_no_value() {
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
                    // The model's own thread ends with the last value. A real worker would sleep on.
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

/// A value that is published while the worker's own thread has released the token is seen, also if no other thread takes
/// the token.
#[test]
fn a_released_token_loses_no_value() {
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
