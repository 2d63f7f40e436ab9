//! Peers that have connected, and have not shown yet who they are or what they want.
//!
//! ```text
//!   add ──▶ host a  ■ ■ ■ ■ ■ ■   the oldest of the host that has most: pop
//!           host b  ■ ■
//!           host c  ■ ──▶ remove, when it has shown it
//! ```
//!
//! A peer that reaches a listener can open connections and send nothing. So where there is no room for a new connection, a stranger makes room:
//! the oldest one of the host that has most. A host that opens connections without end takes places from itself, and a client of
//! another host has the time that it needs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

/// Strangers by host, each with a value. All calls take a time that grows with the logarithm of the numbers of hosts and strangers.
///
/// ```
/// let mut strangers = peers::Strangers::default();
/// for (host, name) in [("a", 1), ("b", 2), ("b", 3)] {
///     strangers.add(host, name);
/// }
/// assert_eq!(strangers.pop(), Some(("b", 2)));
/// assert_eq!(strangers.pop(), Some(("a", 1)));
/// ```
#[derive(Debug)]
pub struct Strangers<H, V> {
    next: u64,
    all: usize,
    by_host: HashMap<H, BTreeMap<u64, V>>,
    /// The hosts: how many strangers they have, and the number of the oldest.
    by_size: BTreeSet<(usize, Reverse<u64>, H)>,
}

impl<H, V> Default for Strangers<H, V> {
    fn default() -> Self {
        Self { next: 0, all: 0, by_host: HashMap::new(), by_size: BTreeSet::new() }
    }
}

impl<H: Copy + Ord + Hash, V> Strangers<H, V> {
    /// Adds a stranger. Returns its number, which no other one has had.
    pub fn add(&mut self, host: H, value: V) -> u64 {
        let number = self.next;
        self.next += 1;
        self.edit(host, |own| own.insert(number, value));
        number
    }

    /// Removes a stranger: it is none any more, or has left. `None`: it was removed before.
    pub fn remove(&mut self, host: H, number: u64) -> Option<V> {
        self.edit(host, |own| own.remove(&number))
    }

    /// Removes the oldest stranger of the host that has most; of such hosts, of the one with the oldest.
    pub fn pop(&mut self) -> Option<(H, V)> {
        let (.., host) = *self.by_size.last()?;
        self.pop_of(host).map(|value| (host, value))
    }

    /// Removes the oldest stranger of a host.
    pub fn pop_of(&mut self, host: H) -> Option<V> {
        self.edit(host, |own| own.pop_first()).map(|(_, value)| value)
    }

    /// The number of strangers.
    pub fn len(&self) -> usize {
        self.all
    }

    /// Whether there are no strangers.
    pub fn is_empty(&self) -> bool {
        self.all == 0
    }

    fn edit<T>(&mut self, host: H, change: impl FnOnce(&mut BTreeMap<u64, V>) -> T) -> T {
        let rank = |own: &BTreeMap<u64, V>| {
            own.first_key_value().map(|(oldest, _)| (own.len(), Reverse(*oldest), host))
        };
        let own = self.by_host.entry(host).or_default();
        let before = rank(own);
        self.all -= own.len();
        let changed = change(own);
        self.all += own.len();
        let after = rank(own);
        if before != after {
            if let Some(rank) = &before {
                self.by_size.remove(rank);
            }
            self.by_size.extend(after);
        }
        if after.is_none() {
            self.by_host.remove(&host);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a list in order of age.
        #[test]
        fn behaves_like_a_plain_list(steps in prop::collection::vec((0_u8..4, 0_u8..5, any::<prop::sample::Index>()), 0..80)) {
            let (mut strangers, mut model) = (Strangers::default(), Vec::<(u8, u64)>::new());
            for (kind, host, at) in steps {
                let of = |model: &[(u8, u64)], host| model.iter().filter(|own| own.0 == host).count();
                match kind {
                    0 | 1 => {
                        let number = strangers.add(host, ());
                        model.push((host, number));
                    }
                    2 if !model.is_empty() => {
                        let (host, number) = model.remove(at.index(model.len()));
                        prop_assert_eq!(strangers.remove(host, number), Some(()));
                        prop_assert_eq!(strangers.remove(host, number), None);
                    }
                    2 => prop_assert_eq!(strangers.pop_of(host), None),
                    _ => {
                        let most = model.iter().map(|own| of(&model, own.0)).max();
                        let oldest = model.iter().position(|own| Some(of(&model, own.0)) == most);
                        let expected = oldest.map(|at| (model.remove(at).0, ()));
                        prop_assert_eq!(strangers.pop(), expected);
                    }
                }
                prop_assert_eq!((strangers.len(), strangers.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(strangers.by_host.len(), strangers.by_size.len());
            }
        }
    }
}
