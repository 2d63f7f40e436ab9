//! Events that wait for the application to read them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lock;
use crate::event::Event;

/// A bounded queue. Events that find no room are counted and dropped.
pub(crate) struct EventQueue {
    waiting: Mutex<VecDeque<Event>>,
    limit: usize,
    dropped: AtomicU64,
}

impl EventQueue {
    pub fn new(limit: usize) -> EventQueue {
        EventQueue { waiting: Mutex::new(VecDeque::new()), limit, dropped: AtomicU64::new(0) }
    }

    pub fn push(&self, event: Event) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() < self.limit {
            waiting.push_back(event);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn pop(&self) -> Option<Event> {
        lock(&self.waiting).pop_front()
    }

    /// Events that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
