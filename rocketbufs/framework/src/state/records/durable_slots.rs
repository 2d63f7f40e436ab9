//! The durable slots that named subscriptions take, over all buffers of an rOut.
//!
//! A subscription with a name and a hold time takes its slot when it begins, not when it goes. A subscription
//! without a slot is told so while the application can still react. A subscription that resumes takes over
//! the slot of its name.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rocketnet::LogLimiter;

use crate::ground::lock::lock;

/// The durable slots of an rOut, see the module.
pub(crate) struct DurableSlots {
    max: usize,
    /// Slots of connected and of offline subscriptions.
    taken: AtomicUsize,
    /// Slots of offline subscriptions.
    offline: AtomicUsize,
    /// Limits the log lines about subscriptions without a slot.
    full: Mutex<LogLimiter>,
}

impl DurableSlots {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, taken: AtomicUsize::new(0), offline: AtomicUsize::new(0), full: Mutex::default() }
    }

    /// Takes a slot, if one is free.
    pub(crate) fn take(&self) -> bool {
        let more = |taken: usize| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    pub(crate) fn give_back(&self, slots: usize) {
        self.taken.fetch_sub(slots, Ordering::AcqRel);
    }

    /// Counts a subscription with a slot as offline.
    pub(crate) fn leaves(&self) {
        self.offline.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts so many offline subscriptions as back.
    pub(crate) fn are_back(&self, slots: usize) {
        self.offline.fetch_sub(slots, Ordering::AcqRel);
    }

    /// Frees the slots of so many subscriptions whose hold time is over.
    pub(crate) fn expired(&self, slots: usize) {
        self.are_back(slots);
        self.give_back(slots);
    }

    /// Returns whether any subscription with a slot is offline.
    pub(crate) fn any_offline(&self) -> bool {
        self.offline.load(Ordering::Acquire) > 0
    }

    /// Logs that a subscription got no slot.
    pub(crate) fn log_full(&self, name: &str) {
        if let Some(more) = lock(&self.full).allow(Instant::now()) {
            let limit = self.max;
            tracing::warn!(
                more,
                "subscription '{name}' gets no durable slot: all {limit} are taken (limits.max_held_subscriptions)"
            );
        }
    }
}
