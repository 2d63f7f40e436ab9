//! Queues of events for the application's threads, each with a descriptor for an event loop.
//!
//! ```text
//!   worker      push ──▶ [ event | event | … ] ──▶ recv        a thread of the application
//!                 │ first event        last event │
//!                 └──▶ descriptor is readable ────┴──▶ it is not   epoll, libuv, a reactor of the application
//! ```
//!
//! A callback is a layer above: while one is set, events go to the callback and not into the queue. A callback that is set
//! later gets the waiting events first.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::ground::lock::lock;

/// A descriptor that is readable while a queue has something. The descriptor is made when it is first asked for.
#[derive(Debug, Default)]
pub struct Readable {
    descriptor: OnceLock<OwnedFd>,
    /// Changed only under the queue's lock.
    raised: AtomicBool,
}

impl Readable {
    /// The queue has something. Called under the queue's lock.
    pub fn raise(&self) {
        let Some(descriptor) = self.descriptor.get() else { return };
        if !self.raised.swap(true, Ordering::Relaxed) {
            // An eventfd refuses a write only at its maximum, where it is readable anyway.
            let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// The queue is empty. Called under the queue's lock.
    pub fn lower(&self) {
        if let (Some(descriptor), true) = (self.descriptor.get(), self.raised.load(Ordering::Relaxed)) {
            self.raised.store(false, Ordering::Relaxed);
            let _ = rustix::io::read(descriptor, &mut [0_u8; 8]);
        }
    }

    /// The descriptor; `has_something`: whether the queue has something now. Called under the queue's lock.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn descriptor(&self, has_something: bool) -> io::Result<BorrowedFd<'_>> {
        if self.descriptor.get().is_none() {
            let made = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
            let _ = self.descriptor.set(made);
            if has_something {
                self.raise();
            }
        }
        self.descriptor.get().map(AsFd::as_fd).ok_or_else(|| io::Error::other("no descriptor"))
    }
}

/// Events in the order in which they happened.
#[derive(Debug)]
pub struct EventQueue<E> {
    events: Mutex<VecDeque<E>>,
    arrived: Condvar,
    readable: Readable,
    max: usize,
    /// Whether no event comes any more. Changed only under the queue's lock.
    closed: AtomicBool,
    /// The same, where the last event says so itself.
    ended: AtomicBool,
}

impl<E> EventQueue<E> {
    /// A queue of at most `max` events.
    pub fn new(max: usize) -> Self {
        Self {
            events: Mutex::default(),
            arrived: Condvar::new(),
            readable: Readable::default(),
            max: max.max(1),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// No event comes any more: calls that wait return, and the descriptor stays readable.
    pub fn close(&self) {
        let events = lock(&self.events);
        self.closed.store(true, Ordering::Relaxed);
        self.readable.raise();
        drop(events);
        self.arrived.notify_all();
    }

    /// No event comes behind the last one, which says so itself: calls that wait return. The descriptor tells of waiting events alone, so
    /// that an event loop that goes on is not woken for ever.
    pub fn end(&self) {
        let events = lock(&self.events);
        self.ended.store(true, Ordering::Relaxed);
        drop(events);
        self.arrived.notify_all();
    }

    fn is_over(&self) -> bool {
        self.is_closed() || self.ended.load(Ordering::Relaxed)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Adds an event, unless `refused` says under the queue's lock that it belongs elsewhere, or the queue is full: the event
    /// comes back then.
    pub(crate) fn push_unless(&self, event: E, refused: impl FnOnce() -> bool) -> Result<(), NotQueued<E>> {
        let mut events = lock(&self.events);
        if refused() {
            return Err(NotQueued::Refused(event));
        }
        if events.len() >= self.max {
            return Err(NotQueued::Full(event));
        }
        self.add(&mut events, event);
        Ok(())
    }

    /// Adds an event. In a full queue the oldest event makes room: true if one did.
    pub fn push_newest(&self, event: E) -> bool {
        let mut events = lock(&self.events);
        let full = events.len() >= self.max;
        if full {
            events.pop_front();
        }
        self.add(&mut events, event);
        full
    }

    fn add(&self, events: &mut VecDeque<E>, event: E) {
        events.push_back(event);
        self.arrived.notify_one();
        self.readable.raise();
    }

    /// The next event; none if none came within `timeout` (none: no limit), or none comes any more.
    pub fn recv(&self, timeout: Option<Duration>) -> Option<E> {
        let events = lock(&self.events);
        let empty = |events: &mut VecDeque<E>| events.is_empty() && !self.is_over();
        let mut events = match timeout {
            None => self.arrived.wait_while(events, empty).unwrap_or_else(|p| p.into_inner()),
            Some(timeout) => {
                let waited = self.arrived.wait_timeout_while(events, timeout, empty);
                waited.unwrap_or_else(|p| p.into_inner()).0
            }
        };
        let event = events.pop_front();
        if events.is_empty() && !self.is_closed() {
            self.readable.lower();
        }
        event
    }

    /// The descriptor that is readable while an event waits.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pollable(&self) -> io::Result<BorrowedFd<'_>> {
        let events = lock(&self.events);
        self.readable.descriptor(!events.is_empty() || self.is_closed())
    }
}

/// Why an event was not queued.
#[derive(Debug)]
pub(crate) enum NotQueued<E> {
    /// The event belongs elsewhere by now.
    Refused(E),
    /// The queue has no room.
    Full(E),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(queue: &EventQueue<u32>) -> bool {
        let descriptor = queue.pollable().unwrap();
        poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
    }

    proptest! {
        /// Against a plain queue; the descriptor is made at any time.
        #[test]
        fn the_descriptor_is_readable_while_an_event_waits(
            steps in proptest::collection::vec(0_u8..4, 0..60),
            made_after in 0_usize..60,
        ) {
            let (queue, mut model) = (EventQueue::new(4), VecDeque::new());
            for (n, step) in steps.into_iter().enumerate() {
                let event = n as u32;
                match step {
                    0 => {
                        let queued = queue.push_unless(event, || false);
                        prop_assert_eq!(queued.is_ok(), model.len() < 4);
                        if queued.is_ok() {
                            model.push_back(event);
                        }
                    }
                    1 => {
                        let dropped = queue.push_newest(event);
                        prop_assert_eq!(dropped, model.len() == 4);
                        if dropped {
                            model.pop_front();
                        }
                        model.push_back(event);
                    }
                    _ => prop_assert_eq!(queue.recv(Some(Duration::ZERO)), model.pop_front()),
                }
                if n >= made_after {
                    prop_assert_eq!(is_readable(&queue), !model.is_empty());
                }
            }
        }
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_lets_nobody_wait() {
        let queue = Arc::new(EventQueue::new(2));
        let other = queue.clone();
        let waits = std::thread::spawn(move || (other.recv(None), other.recv(None)));
        queue.push_newest(7);
        queue.close();
        assert_eq!(waits.join().unwrap(), (Some(7), None));
        assert!(is_readable(&queue), "an event loop learns of the end");
    }

    #[test]
    fn nobody_waits_behind_the_last_event() {
        let queue = Arc::new(EventQueue::new(2));
        let waits = [queue.clone(), queue.clone()].map(|queue| std::thread::spawn(move || queue.recv(None)));
        queue.push_newest(7);
        queue.end();
        let mut got = waits.map(|waits| waits.join().unwrap());
        got.sort_unstable();
        assert_eq!((got, queue.recv(None)), ([None, Some(7)], None));
        assert!(!is_readable(&queue), "an event loop has had the last event");
    }

    #[test]
    fn a_thread_that_waits_gets_the_event() {
        let queue = Arc::new(EventQueue::new(1));
        let other = queue.clone();
        let waits = std::thread::spawn(move || other.recv(None));
        queue.push_newest(7);
        assert_eq!(waits.join().unwrap(), Some(7));
    }
}
