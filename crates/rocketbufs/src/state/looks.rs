//! The right to look at the rings that a worker follows, which the worker gives to threads of the application.
//!
//! Where a worker spins (`shm.busy_poll_us`), threads that receive look at the rings themselves between two turns of the
//! worker (`crate::rin`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::{InboundShared, RInShared, WorkerShared};
use crate::lock::lock;
use crate::types::Nanos;

/// Looks between two glances at the clock, and how many of them a delivery counts for.
const LOOKS: u32 = 512;
pub(crate) const TAKEN: u32 = 32;
/// The worker's next turn is due so long after the last.
const TURN_PERIOD: Nanos = 50_000;
/// So many bytes at a time are few, and so long a reader waits for more at most: longer where a long wait brings many, so
/// that a writer is not held up by being looked at, and what comes one by one does not wait. A stream of 64 bytes is a third
/// to three quarters faster than where 4 KiB were many, and 128 pauses the most.
const FEW_BYTES: usize = 16 << 10;
const MOST_PAUSES: u32 = 32;
const STREAM_BYTES: usize = 512;
const MOST_PAUSES_OF_STREAMS: u32 = 512;
/// What brings less for each pause is no stream that is worth a long wait.
const STREAM_BYTES_PER_PAUSE: usize = STREAM_BYTES / MOST_PAUSES as usize;
/// More rings of one rIn are the worker's alone to look at.
pub(crate) const MOST_RINGS: usize = 8;

/// How long others may look at rings that a worker follows.
#[derive(Default)]
pub(crate) struct Looks {
    left: AtomicU32,
    /// In the worker's time.
    until: AtomicU64,
    /// Something came since the worker asked last.
    took: AtomicBool,
    /// How long a reader waits before it looks again, since there was a little each time it did.
    pauses: AtomicU32,
}

impl Looks {
    /// After a turn at `now`: whether others may look until the next.
    pub(crate) fn allow(&self, now: Nanos, allow: bool) {
        self.until.store(if allow { now + TURN_PERIOD } else { 0 }, Ordering::Relaxed);
        self.left.store(if allow { LOOKS } else { 0 }, Ordering::Relaxed);
    }

    /// Whether somebody took anything since the last time.
    pub(crate) fn take_took(&self) -> bool {
        self.took.load(Ordering::Relaxed) && self.took.swap(false, Ordering::Relaxed)
    }

    /// Whether there may be so many more looks. Several threads may count at the same time, and lose some.
    pub(crate) fn spend(&self, looks: u32, now: impl FnOnce() -> Nanos) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left >= looks {
            self.left.store(left - looks, Ordering::Relaxed);
            return true;
        }
        let until = self.until.load(Ordering::Relaxed);
        let again = until > 0 && now() < until;
        if again {
            self.left.store(LOOKS, Ordering::Relaxed);
        }
        again
    }

    /// A reader that is as fast as its writer would take a few bytes each time, and each look takes the line that the writer
    /// is to write next from its cache: it lets more come. `found`: bytes that were there at the first look.
    pub(crate) fn pace(&self, found: Option<usize>) {
        let pauses = self.pauses.load(Ordering::Relaxed);
        let next = match found {
            Some(bytes) if pauses > MOST_PAUSES && bytes < STREAM_BYTES_PER_PAUSE * pauses as usize => {
                pauses / 2
            }
            Some(bytes) if bytes < STREAM_BYTES => (2 * pauses + 1).min(MOST_PAUSES),
            Some(bytes) if bytes < FEW_BYTES => (2 * pauses + 1).min(MOST_PAUSES_OF_STREAMS),
            Some(_) => pauses - pauses / 4,
            None => 0,
        };
        if next != pauses {
            self.pauses.store(next, Ordering::Relaxed);
        }
    }

    pub(crate) fn pauses(&self) -> u32 {
        self.pauses.load(Ordering::Relaxed)
    }

    /// Somebody took something.
    pub(crate) fn took(&self) {
        self.took.store(true, Ordering::Relaxed);
    }

    fn are_allowed(&self) -> bool {
        self.until.load(Ordering::Relaxed) > 0
    }
}

impl WorkerShared {
    /// Whether an application's thread may look at what the worker follows: it does the worker's work otherwise, while the
    /// worker's own thread is parked, and there is none.
    pub(crate) fn may_be_looked_past(&self) -> bool {
        self.looks.are_allowed() && self.token.is_parked() && !self.has_work()
    }
}

/// What of an rIn is looked at so.
#[derive(Clone, Default)]
pub(crate) struct Sights {
    worker: usize,
    inbounds: Arc<[Arc<InboundShared>]>,
}

impl Sights {
    pub(crate) fn is_empty(&self) -> bool {
        self.inbounds.is_empty()
    }

    pub(crate) fn inbounds(&self) -> &[Arc<InboundShared>] {
        &self.inbounds
    }

    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    /// Whether they are the same, and not only alike.
    pub(crate) fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inbounds, &other.inbounds)
    }

    fn without(&self, inbound: &Arc<InboundShared>) -> Vec<Arc<InboundShared>> {
        self.inbounds.iter().filter(|known| !Arc::ptr_eq(known, inbound)).cloned().collect()
    }
}

impl RInShared {
    /// The ring of this subscription is one that a worker follows.
    pub(crate) fn look_at(&self, inbound: &Arc<InboundShared>, worker: usize) {
        let mut queue = lock(&self.queue);
        let mut inbounds = queue.sights.without(inbound);
        if inbounds.len() < MOST_RINGS {
            inbounds.push(inbound.clone());
        }
        queue.sights = Sights { worker, inbounds: inbounds.into() };
    }

    /// It is this rIn's no more.
    pub(crate) fn look_away(&self, inbound: &Arc<InboundShared>) {
        let mut queue = lock(&self.queue);
        if !queue.sights.is_empty() {
            queue.sights.inbounds = queue.sights.without(inbound).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses after so many looks that each found so many bytes.
    fn pauses_after(found: impl IntoIterator<Item = Option<usize>>) -> u32 {
        let looks = Looks::default();
        found.into_iter().for_each(|found| looks.pace(found));
        looks.pauses.load(Ordering::Relaxed)
    }

    #[test]
    fn a_fast_stream_is_waited_for_longer_than_single_messages_and_nothing_not_at_all() {
        let many = |found| std::iter::repeat_n(found, 20);
        assert_eq!(pauses_after(many(Some(68))), MOST_PAUSES);
        let fast = || many(Some(FEW_BYTES - 1));
        assert_eq!(pauses_after(fast()), MOST_PAUSES_OF_STREAMS);
        assert_eq!(pauses_after(fast().chain([None])), 0);
        let enough = pauses_after(fast().chain([Some(FEW_BYTES)]));
        assert!((1..MOST_PAUSES_OF_STREAMS).contains(&enough), "{enough}");
        // A stream that has become slow, and one that never was fast: hardly longer than single messages.
        assert!(pauses_after(fast().chain(many(Some(STREAM_BYTES)))) <= 2 * MOST_PAUSES);
        assert!(pauses_after(many(Some(STREAM_BYTES))) <= 2 * MOST_PAUSES);
    }
}
