//! Entries in the order of their age: the deadlines of batches, gaps and incomplete messages.
//!
//! The paper keeps a priority search queue over creation times. A deadline is a creation time plus one
//! `timeout` that all entries share, and a new entry is always the newest. New entries are therefore
//! appended, and the first entry has the earliest deadline. A doubly linked list through the entries replaces
//! the priority search queue: each operation takes O(1) instead of O(log n), and allocates nothing.
//!
//! ```text
//!   earliest                                             latest
//!   ┌────┐      ┌────┐      ┌────┐      ┌────┐
//!   │ 17 │ ◀──▶ │  3 │ ◀──▶ │ 99 │ ◀──▶ │  8 │ ◀── push_back(slot, now)
//!   └────┘      └────┘      └────┘      └────┘
//!     │            └── remove(3): its batch reached qthresh
//!     └── first(): the next deadline
//! ```

use std::time::Instant;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
    since: Option<Instant>,
}

/// Slots of a table, in the order in which they were appended.
pub(crate) struct Timeline {
    links: Vec<Link>,
    first: u32,
    last: u32,
}

impl Timeline {
    pub fn new() -> Timeline {
        Timeline { links: Vec::new(), first: NONE, last: NONE }
    }

    /// The oldest slot.
    #[inline]
    pub fn first(&self) -> Option<(u32, Instant)> {
        let since = self.links.get(self.first as usize)?.since?;
        Some((self.first, since))
    }

    /// True if the slot is in the list.
    pub fn contains(&self, slot: u32) -> bool {
        self.links.get(slot as usize).is_some_and(|link| link.since.is_some())
    }

    /// When the slot was appended, if it is in the list.
    pub fn since(&self, slot: u32) -> Option<Instant> {
        self.links.get(slot as usize)?.since
    }

    /// Appends a slot that is not in the list. Times never go back: a `since` before the newest entry becomes
    /// the time of that entry.
    pub fn push_back(&mut self, slot: u32, since: Instant) {
        debug_assert!(!self.contains(slot));
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, Link { before: NONE, after: NONE, since: None });
        }
        let since = self
            .links
            .get(self.last as usize)
            .and_then(|link| link.since)
            .map_or(since, |last| last.max(since));
        self.links[slot as usize] = Link { before: self.last, after: NONE, since: Some(since) };
        match self.last {
            NONE => self.first = slot,
            last => self.links[last as usize].after = slot,
        }
        self.last = slot;
    }

    /// Removes a slot, if it is in the list.
    pub fn remove(&mut self, slot: u32) {
        if !self.contains(slot) {
            return;
        }
        let Link { before, after, .. } = self.links[slot as usize];
        self.links[slot as usize].since = None;
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].before = before,
        }
    }

    /// Moves a slot to the end, or appends it. Its time is now, also if it was at the end already.
    #[inline]
    pub fn touch(&mut self, slot: u32, now: Instant) {
        match self.links.get_mut(slot as usize) {
            Some(Link { since: Some(since), .. }) if self.last == slot => *since = now.max(*since),
            _ => {
                self.remove(slot);
                self.push_back(slot, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The list behaves like a plain vector that is searched.
        #[test]
        fn behaves_as_a_list_in_order(steps in prop::collection::vec((0_u32..12, 0_u8..3), 1..200)) {
            let began = Instant::now();
            let mut timeline = Timeline::new();
            let mut model: Vec<u32> = Vec::new();
            let mut times = [began; 12];
            for (at, (slot, what)) in steps.into_iter().enumerate() {
                let now = began + Duration::from_millis(at as u64);
                times[slot as usize] = now;
                match what {
                    0 if !model.contains(&slot) => { timeline.push_back(slot, now); model.push(slot); }
                    1 => { timeline.remove(slot); model.retain(|&s| s != slot); }
                    _ => {
                        timeline.touch(slot, now);
                        model.retain(|&s| s != slot);
                        model.push(slot);
                    }
                }
                prop_assert_eq!(timeline.first().map(|(slot, _)| slot), model.first().copied());
                for slot in 0..12 {
                    let since = model.contains(&slot).then_some(times[slot as usize]);
                    prop_assert_eq!((timeline.contains(slot), timeline.since(slot)), (since.is_some(), since));
                }
            }
            let mut last = began;
            while let Some((slot, since)) = timeline.first() {
                prop_assert!(since >= last);
                last = since;
                prop_assert_eq!(slot, model.remove(0));
                timeline.remove(slot);
            }
            prop_assert!(model.is_empty());
        }
    }
}
