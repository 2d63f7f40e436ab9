//! How many places named subscriptions take, over all buffers of an rOut.
//!
//! A subscription with a name and a hold takes its place when it begins, not when it goes: whoever cannot have one is told
//! so while that can still be mended. Who goes on under a name takes over the place of that name.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rocketnet::LogLimiter;

use crate::lock::lock;

/// See the module.
pub(crate) struct DurableSlots {
    max: usize,
    /// Of subscriptions that are there, and of those that are away.
    taken: AtomicUsize,
    /// Of those that are away.
    away: AtomicUsize,
    /// Tells of those that got none.
    full: Mutex<LogLimiter>,
}

impl DurableSlots {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, taken: AtomicUsize::new(0), away: AtomicUsize::new(0), full: Mutex::default() }
    }

    /// Takes a place, if there is one.
    pub(crate) fn take(&self) -> bool {
        let more = |taken: usize| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    pub(crate) fn give_back(&self, places: usize) {
        self.taken.fetch_sub(places, Ordering::AcqRel);
    }

    /// Who has a place leaves, and it is kept.
    pub(crate) fn leaves(&self) {
        self.away.fetch_add(1, Ordering::AcqRel);
    }

    /// So many places are not kept any more: somebody is back in them.
    pub(crate) fn are_back(&self, places: usize) {
        self.away.fetch_sub(places, Ordering::AcqRel);
    }

    /// So many places were kept for long enough.
    pub(crate) fn expired(&self, places: usize) {
        self.are_back(places);
        self.give_back(places);
    }

    /// Whether a place is kept for anybody.
    pub(crate) fn any_away(&self) -> bool {
        self.away.load(Ordering::Acquire) > 0
    }

    /// Tells that a subscription got none.
    pub(crate) fn tell_full(&self, name: &str) {
        if let Some(more) = lock(&self.full).allow(Instant::now()) {
            let limit = self.max;
            tracing::warn!(
                more,
                "no place can be kept for subscription '{name}' while it is away: {limit} of those that are there or \
                 away have one, and so many may (limits.max_held_subscriptions)"
            );
        }
    }
}
