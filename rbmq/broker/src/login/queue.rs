//! A queue that is fair to the sources of its items.
//!
//! ```text
//!   source A   a1 a2 a3 a4 ─┐
//!   source B   b1           ├─▶ a1 b1 c1 a2 c2 a3 a4
//!   source C   c1 c2       ─┘
//! ```
//!
//! The sources take turns. When the queue is full, the newest item of the source with the most items gives way, unless that is
//! the source of the new item. So a source with thousands of items delays the others by one item each turn.

use std::collections::{HashMap, VecDeque};

use access::Source;

/// The most items of one source.
const MAX_OF_SOURCE: usize = 16;

/// Items by their source.
pub(super) struct FairQueue<T> {
    of: HashMap<Source, VecDeque<T>>,
    /// The sources with items, in the order of their turns.
    turns: VecDeque<Source>,
    len: usize,
    max: usize,
}

impl<T> FairQueue<T> {
    /// An empty queue for at most `max` items.
    pub(super) fn new(max: usize) -> Self {
        Self { of: HashMap::new(), turns: VecDeque::new(), len: 0, max }
    }

    /// Allows another number of items. Items beyond it stay.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Adds an item. Returns an item that has no place: this one, or one that gives way.
    pub(super) fn push(&mut self, source: Source, item: T) -> Option<T> {
        let own = self.of.get(&source).map_or(0, VecDeque::len);
        if own >= MAX_OF_SOURCE {
            return Some(item);
        }
        let mut gives_way = None;
        if self.len >= self.max {
            let longest =
                self.of.iter().max_by_key(|(_, items)| items.len()).map(|(of, items)| (*of, items.len()));
            match longest {
                Some((of, len)) if len > own + 1 => gives_way = self.take_newest(of),
                _ => return Some(item),
            }
        }
        let items = self.of.entry(source).or_default();
        if items.is_empty() {
            self.turns.push_back(source);
        }
        items.push_back(item);
        self.len += 1;
        gives_way
    }

    /// The next item: the oldest of the source whose turn it is.
    pub(super) fn pop(&mut self) -> Option<T> {
        let source = self.turns.pop_front()?;
        let items = self.of.get_mut(&source)?;
        let item = items.pop_front();
        self.len -= 1;
        if items.is_empty() {
            self.of.remove(&source);
        } else {
            self.turns.push_back(source);
        }
        item
    }

    fn take_newest(&mut self, source: Source) -> Option<T> {
        let items = self.of.get_mut(&source)?;
        let item = items.pop_back();
        self.len -= 1;
        if items.is_empty() {
            self.of.remove(&source);
            self.turns.retain(|of| *of != source);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(n: u32) -> Source {
        Source::Unix(n)
    }

    #[test]
    fn sources_take_turns() {
        let mut queue = FairQueue::new(100);
        for (source, item) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1"), (3, "c2")] {
            assert_eq!(queue.push(of(source), item), None);
        }
        let order: Vec<&str> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["a1", "b1", "c1", "a2", "c2", "a3"]);
    }

    #[test]
    fn a_flood_of_one_source_gives_way_to_others() {
        let mut queue = FairQueue::new(4);
        for n in 0..4 {
            assert_eq!(queue.push(of(1), n), None);
        }
        assert_eq!(queue.push(of(1), 4), Some(4), "the source of the flood gets no more");
        assert_eq!(queue.push(of(2), 10), Some(3), "another source takes the place of its newest");
        assert_eq!(queue.push(of(3), 20), Some(2));
        assert_eq!(queue.push(of(4), 30), Some(1));
        assert_eq!(queue.push(of(5), 40), Some(40), "all sources have one");
        assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), [0, 10, 20, 30]);
    }

    proptest! {
        /// Nothing is lost or invented, the queue is never too long, and no source waits for more than a turn of the others.
        #[test]
        fn every_item_comes_out_once(steps in proptest::collection::vec(prop::option::of(0_u32..5), 1..200), max in 1_usize..20) {
            let (mut queue, mut waiting) = (FairQueue::new(max), Vec::new());
            for (n, step) in steps.into_iter().enumerate() {
                match step {
                    Some(source) => {
                        waiting.push((source, n));
                        if let Some(out) = queue.push(of(source), n) {
                            waiting.retain(|(_, item)| *item != out);
                        }
                    }
                    None => {
                        let item = queue.pop();
                        prop_assert_eq!(item.is_none(), waiting.is_empty());
                        let Some(item) = item else { continue };
                        let (source, _) = *waiting.iter().find(|(_, of)| *of == item).expect("it was waiting");
                        let oldest = waiting.iter().find(|(of, _)| *of == source).expect("it was waiting").1;
                        prop_assert_eq!(item, oldest);
                        waiting.retain(|(_, of)| *of != item);
                    }
                }
                prop_assert_eq!(queue.len, waiting.len());
                prop_assert!(queue.len <= max && queue.turns.len() == queue.of.len());
            }
        }
    }
}
