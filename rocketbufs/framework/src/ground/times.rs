//! When a buffer's log was how long, roughly and in bounded memory: where a subscription from a moment on begins.
//!
//! ```text
//!   log     ──────b0────b1─────b2──b3───────▶
//!   table      (t0, b0) (t1, b1)  (t3, b3)       at t3 the log's complete deliveries ended at b3, not before
//! ```
//!
//! Bytes that are delivered after a moment lie above the place of every entry that is not newer, so a subscription that
//! begins at the newest of these entries misses nothing; entries that are left out only make it begin earlier. A look that
//! finds nothing to note costs a load.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rocketring::Ring;

use crate::ground::lock::lock;
use crate::ground::types::{Nanos, Position};

/// Entries are at least so far apart.
const APART: Nanos = 100_000_000;

/// A worker's time is taken before it reads arrived messages, and a question takes time to arrive: as much is allowed for.
const LATE: Nanos = 100_000_000;

/// Entries of a table. When it is full every second one of the older half goes: old moments are known less exactly.
const MOST: usize = 64;

#[derive(Default)]
pub(crate) struct Times {
    /// Before this time nothing is noted.
    due: AtomicU64,
    table: Mutex<Vec<(Nanos, Position)>>,
}

impl Times {
    /// Notes where the ring's complete deliveries end at the time `now`, or a little later.
    #[inline]
    pub(crate) fn note(&self, now: Nanos, ring: &Ring) {
        if now < self.due.load(Ordering::Relaxed) {
            return;
        }
        let boundary = ring.boundary();
        // Where nothing was delivered yet there is nothing to tell from the oldest byte.
        if boundary > ring.start() {
            self.add(now, boundary, ring.tail());
        }
    }

    fn add(&self, now: Nanos, boundary: Position, tail: Position) {
        let mut table = lock(&self.table);
        // Another worker may have been here, with a later time.
        let moved = table.last().is_none_or(|&(at, to)| now >= at.saturating_add(APART) && boundary > to);
        if !moved {
            return;
        }
        // A subscription cannot begin at bytes that are gone.
        let gone = table.iter().take_while(|&&(_, at)| at < tail).count();
        table.drain(..gone);
        if table.len() == MOST {
            let mut index = 0;
            table.retain(|_| {
                index += 1;
                index > MOST / 2 || index % 2 == 1
            });
        }
        table.push((now, boundary));
        self.due.store(now.saturating_add(APART), Ordering::Relaxed);
    }

    /// A place above which everything lies that was delivered within the last `ago_ms` milliseconds, if one is known.
    pub(crate) fn ago(&self, now: Nanos, ago_ms: u64) -> Option<Position> {
        let ago = ago_ms.saturating_mul(1_000_000).saturating_add(LATE);
        let moment = now.checked_sub(ago)?;
        let table = lock(&self.table);
        let newer = table.partition_point(|&(at, _)| at <= moment);
        newer.checked_sub(1).map(|newest| table[newest].1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{APART, LATE, MOST, Times};

    proptest! {
        #[test]
        fn nothing_later_is_missed_and_memory_is_bounded(
            looks in proptest::collection::vec((0_u64..400, 0_u64..50, 0_u64..500), 1..300),
            asked in proptest::collection::vec(0_u64..70_000, 1..50),
        ) {
            let (times, mut log) = (Times::default(), vec![(0, 0)]);
            for (after_ms, bytes, kept) in looks {
                let &(now, end) = log.last().unwrap();
                log.push((now + after_ms * 1_000_000, end + bytes));
                let &(now, end) = log.last().unwrap();
                times.add(now, end, end.saturating_sub(kept));
                prop_assert!(times.table.lock().unwrap().len() <= MOST);
            }
            let now = log.last().unwrap().0;
            for ago in asked {
                let Some(moment) = now.checked_sub(ago * 1_000_000 + LATE) else {
                    prop_assert_eq!(times.ago(now, ago), None);
                    continue;
                };
                let end = log.iter().rfind(|&&(at, _)| at <= moment).unwrap().1;
                prop_assert!(times.ago(now, ago).is_none_or(|begin| begin <= end));
            }
        }

        #[test]
        fn moments_far_apart_are_known_exactly(apart in 1_u64..100, ago in 0_u64..6_400) {
            let times = Times::default();
            let step = apart * APART;
            for n in 0..MOST as u64 {
                times.add(n * step, n + 1, 0);
            }
            let now = (MOST as u64 - 1) * step;
            let expected = now.checked_sub(ago * 1_000_000 + LATE).map(|moment| moment / step + 1);
            prop_assert_eq!(times.ago(now, ago), expected);
        }
    }
}
