//! A map that finds the entry of the last look-up without hashing its key.
//!
//! Messages to one key follow each other, and a hash that a peer cannot predict costs more than the rest of such a push.

use std::collections::HashMap;
use std::hash::Hash;

use slab::Slab;

/// The map.
pub(crate) struct RecentMap<K, V> {
    by_key: HashMap<K, usize>,
    entries: Slab<(K, V)>,
    /// The entry of the last look-up, if it is still there.
    recent: usize,
}

impl<K: Copy + Eq + Hash, V> RecentMap<K, V> {
    /// An empty map.
    pub fn new() -> Self {
        Self { by_key: HashMap::new(), entries: Slab::new(), recent: 0 }
    }

    fn at(&self, key: K) -> Option<usize> {
        match self.entries.get(self.recent) {
            Some((recent, _)) if *recent == key => Some(self.recent),
            _ => self.by_key.get(&key).copied(),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: K) -> Option<&V> {
        Some(&self.entries[self.at(key)?].1)
    }

    /// The value of a key. The next look-up of this key is cheap.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.recent = self.at(key)?;
        Some(&mut self.entries[self.recent].1)
    }

    /// Adds a key, which must be new.
    pub fn insert(&mut self, key: K, value: V) {
        let before = self.by_key.insert(key, self.entries.vacant_key());
        debug_assert!(before.is_none(), "the key is new");
        self.entries.insert((key, value));
    }

    /// Removes a key.
    pub fn remove(&mut self, key: K) -> Option<V> {
        Some(self.entries.remove(self.by_key.remove(&key)?).1)
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.entries.iter().map(|(_, (key, value))| (*key, value))
    }

    /// The keys and values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.entries.iter_mut().map(|(_, (key, value))| (*key, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever was looked up last, each key has its own value.
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0..4u8, 0..6u8), 0..80)) {
            let (mut map, mut model) = (RecentMap::new(), HashMap::new());
            for (number, (step, key)) in steps.into_iter().enumerate() {
                match step {
                    0 => prop_assert_eq!(map.remove(key), model.remove(&key)),
                    1 if !model.contains_key(&key) => {
                        map.insert(key, number);
                        model.insert(key, number);
                    }
                    2 => prop_assert_eq!(map.get(key), model.get(&key)),
                    _ => {
                        let (own, other) = (map.get_mut(key), model.get_mut(&key));
                        prop_assert_eq!(&own, &other);
                        own.into_iter().chain(other).for_each(|value| *value += 1);
                    }
                }
                let mut all: Vec<_> = map.iter().map(|(key, value)| (key, *value)).collect();
                let mut wanted: Vec<_> = model.iter().map(|(key, value)| (*key, *value)).collect();
                all.sort_unstable();
                wanted.sort_unstable();
                prop_assert_eq!((map.len(), all), (model.len(), wanted));
            }
        }
    }
}
