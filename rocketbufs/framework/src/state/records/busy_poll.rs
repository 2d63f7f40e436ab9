//! The permission to poll the rings that a worker follows, which the worker gives to application threads.
//!
//! While a worker busy-polls (`shm.busy_poll_us`), receiving threads poll the rings themselves between two
//! turns of the worker (`crate::api::rin`).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::ground::types::Nanos;

/// Polls between two reads of the clock, and the polls that one delivery counts for.
const POLLS: u32 = 512;
pub(crate) const POLLS_PER_DELIVERY: u32 = 32;
/// The time between two turns of the worker.
const TURN_PERIOD: Nanos = 50_000;
/// The bytes that count as few, and the most pauses that a reader makes to let more arrive. The pauses are
/// longer where a long wait brings many bytes, so that polling does not hold a writer up, and single
/// deliveries do not wait. A stream of 64 bytes is a third to three quarters faster than with 4 KiB and 128
/// pauses as the limits.
const FEW_BYTES: usize = 16 << 10;
const MOST_PAUSES: u32 = 32;
const STREAM_BYTES: usize = 512;
const MOST_PAUSES_OF_STREAMS: u32 = 512;
/// A stream that brings fewer bytes for each pause is not worth a long wait.
const STREAM_BYTES_PER_PAUSE: usize = STREAM_BYTES / MOST_PAUSES as usize;
/// How long application threads may poll the rings that a worker follows.
#[derive(Default)]
pub(crate) struct BusyPollBudget {
    left: AtomicU32,
    /// In the worker's time.
    until: AtomicU64,
    /// Whether anything was taken since the worker last asked.
    took: AtomicBool,
    /// The pauses of a reader before its next poll, since earlier polls brought little.
    pauses: AtomicU32,
}

impl BusyPollBudget {
    /// Sets, after a turn at `now`, whether application threads may poll until the next.
    pub(crate) fn allow(&self, now: Nanos, allow: bool) {
        self.until.store(if allow { now + TURN_PERIOD } else { 0 }, Ordering::Relaxed);
        self.left.store(if allow { POLLS } else { 0 }, Ordering::Relaxed);
    }

    /// Returns whether anything was taken since the last call.
    pub(crate) fn take_was_busy(&self) -> bool {
        self.took.load(Ordering::Relaxed) && self.took.swap(false, Ordering::Relaxed)
    }

    /// Returns whether so many more polls are allowed. Concurrent threads may lose some counts.
    pub(crate) fn spend(&self, polls: u32, now: impl FnOnce() -> Nanos) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        if left >= polls {
            self.left.store(left - polls, Ordering::Relaxed);
            return true;
        }
        let until = self.until.load(Ordering::Relaxed);
        let again = until > 0 && now() < until;
        if again {
            self.left.store(POLLS, Ordering::Relaxed);
        }
        again
    }

    /// Adapts the pauses of a reader. A reader as fast as its writer would take a few bytes each time, and
    /// each poll takes the cache line that the writer writes next; pauses let more arrive. `found`: the bytes
    /// at the first poll.
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

    /// Records that data was taken.
    pub(crate) fn took(&self) {
        self.took.store(true, Ordering::Relaxed);
    }

    /// Returns whether polls are allowed until the worker's next turn.
    pub(crate) fn are_allowed(&self) -> bool {
        self.until.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pauses after so many polls that each found so many bytes.
    fn pauses_after(found: impl IntoIterator<Item = Option<usize>>) -> u32 {
        let budget = BusyPollBudget::default();
        found.into_iter().for_each(|found| budget.pace(found));
        budget.pauses.load(Ordering::Relaxed)
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
