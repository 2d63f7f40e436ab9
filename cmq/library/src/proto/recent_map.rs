//! A map that finds the entry of the last look-up without hashing its key.
//!
//! Messages to one key follow each other, and a hash that a peer cannot predict costs more than the rest of such a push.

use std::collections::HashMap;
use std::hash::Hash;

use super::SlotTable;

/// The map. An entry keeps its slot, which finds it without its key.
pub(crate) struct RecentMap<K, V> {
    by_key: HashMap<K, u32>,
    entries: SlotTable<(K, V)>,
    /// The slot of the last look-up, if its entry is still there.
    recent: u32,
}

impl<K: Copy + Eq + Hash, V> RecentMap<K, V> {
    /// An empty map.
    pub fn new() -> Self {
        Self { by_key: HashMap::new(), entries: SlotTable::new(), recent: 0 }
    }

    /// The slot of a key.
    #[inline]
    pub fn slot(&self, key: K) -> Option<u32> {
        match self.entries.get(self.recent) {
            Some((recent, _)) if *recent == key => Some(self.recent),
            _ => self.hashed(key),
        }
    }

    /// The same, outside of the path that is inlined.
    #[inline(never)]
    fn hashed(&self, key: K) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    /// The slot of a key. The next look-up of this key is cheap.
    #[inline]
    pub fn find(&mut self, key: K) -> Option<u32> {
        self.recent = self.slot(key)?;
        Some(self.recent)
    }

    /// The value of a key.
    pub fn get(&self, key: K) -> Option<&V> {
        self.entry(self.slot(key)?).map(|(_, value)| value)
    }

    /// The value of a key. The next look-up of this key is cheap.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let slot = self.find(key)?;
        self.at(slot).map(|(_, value)| value)
    }

    /// The key and the value in a slot, if it is in use.
    #[inline]
    pub fn at(&mut self, slot: u32) -> Option<(K, &mut V)> {
        self.entries.get_mut(slot).map(|(key, value)| (*key, value))
    }

    /// The key and the value in a slot, if it is in use.
    pub fn entry(&self, slot: u32) -> Option<(K, &V)> {
        self.entries.get(slot).map(|(key, value)| (*key, value))
    }

    /// Adds a key, which must be new. Returns its slot. The next look-up of this key is cheap.
    pub fn insert(&mut self, key: K, value: V) -> u32 {
        let slot = self.entries.insert((key, value));
        let before = self.by_key.insert(key, slot);
        debug_assert!(before.is_none(), "the key is new");
        self.recent = slot;
        slot
    }

    /// Removes a key.
    pub fn remove(&mut self, key: K) -> Option<V> {
        self.remove_at(*self.by_key.get(&key)?).map(|(_, value)| value)
    }

    /// Removes the key in a slot.
    pub fn remove_at(&mut self, slot: u32) -> Option<(K, V)> {
        let (key, value) = self.entries.remove(slot)?;
        self.by_key.remove(&key);
        Some((key, value))
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.entries.iter().map(|(key, value)| (*key, value))
    }

    /// The keys and values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (*key, value))
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
                        let slot = map.insert(key, number);
                        model.insert(key, number);
                        prop_assert_eq!(map.at(slot), Some((key, &mut number.clone())));
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
