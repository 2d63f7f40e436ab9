//! Streams whose segments a receiver has refused for lack of room, in the order in which they get room.

use std::collections::{HashMap, HashSet, VecDeque};

/// The name of a stream of a link that a receiver knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct StreamId {
    /// The slot of the link.
    pub slot: u32,
    /// The integer of the key.
    pub mailbox: u32,
}

/// The streams that wait, each with the run that was refused.
pub(crate) struct Postponed {
    order: VecDeque<StreamId>,
    runs: HashMap<StreamId, u32>,
    limit: usize,
}

impl Postponed {
    /// For at most this many streams. Further streams are not remembered: their senders ask again.
    pub fn new(limit: usize) -> Postponed {
        Postponed { order: VecDeque::new(), runs: HashMap::new(), limit }
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// The run of a stream that waits.
    pub fn run(&self, stream: StreamId) -> Option<u32> {
        self.runs.get(&stream).copied()
    }

    /// Adds a stream at the end, or keeps its place.
    pub fn insert(&mut self, stream: StreamId, run: u32) {
        if let Some(known) = self.runs.get_mut(&stream) {
            *known = run;
        } else if self.runs.len() < self.limit {
            self.runs.insert(stream, run);
            self.order.push_back(stream);
            // The order also has streams that were removed, and has some twice, which were refused again.
            if self.order.len() > 2 * self.runs.len() + 16 {
                let (runs, mut seen) = (&self.runs, HashSet::new());
                self.order.retain(|&stream| runs.contains_key(&stream) && seen.insert(stream));
            }
        }
    }

    pub fn remove(&mut self, stream: StreamId) {
        self.runs.remove(&stream);
    }

    /// Takes the stream that has waited longest.
    pub fn pop(&mut self) -> Option<(StreamId, u32)> {
        while let Some(stream) = self.order.pop_front() {
            if let Some(run) = self.runs.remove(&stream) {
                return Some((stream, run));
            }
        }
        None
    }

    /// Forgets the streams of a link.
    pub fn forget(&mut self, slot: u32) {
        self.runs.retain(|stream, _| stream.slot != slot);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A list is the oracle. A stream that was removed and comes again may have an earlier place.
        #[test]
        fn streams_leave_in_order(operations in prop::collection::vec((0..3, 0_u32..9), 0..300)) {
            let (mut postponed, mut model) = (Postponed::new(6), Vec::<StreamId>::new());
            for (operation, number) in operations {
                let stream = StreamId { slot: number / 3, mailbox: number % 3 };
                match operation {
                    0 => {
                        postponed.insert(stream, number);
                        if !model.contains(&stream) && model.len() < 6 {
                            model.push(stream);
                        }
                    }
                    1 => {
                        postponed.remove(stream);
                        model.retain(|other| *other != stream);
                    }
                    _ => {
                        let popped = postponed.pop();
                        prop_assert_eq!(popped.is_none(), model.is_empty());
                        if let Some((stream, run)) = popped {
                            prop_assert_eq!(run, stream.slot * 3 + stream.mailbox);
                            prop_assert!(model.contains(&stream));
                            model.retain(|other| *other != stream);
                        }
                    }
                }
                prop_assert_eq!(postponed.len(), model.len());
                prop_assert!(postponed.order.len() <= 2 * 6 + 17);
            }
            postponed.forget(1);
            model.retain(|stream| stream.slot != 1);
            prop_assert_eq!(postponed.len(), model.len());
        }
    }
}
