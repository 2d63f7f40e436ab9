//! The table of connections: an id finds its connection without a search, and an old id finds nothing.

use crate::contract::ConnId;

/// The bits of an id that are the slot. The others are a counter, so that no id repeats.
const SLOT_BITS: u32 = 20;
/// How many connections one table can hold.
pub const MAX_SLOTS: usize = 1 << SLOT_BITS;

/// Connections by id.
#[derive(Debug)]
pub struct Slots<T> {
    slab: slab::Slab<(ConnId, T)>,
    serial: u64,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slots<T> {
    /// All ids, in no order.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> {
        self.slab.iter().map(|(_, (id, _))| *id)
    }

    /// An empty table.
    pub fn new() -> Self {
        Self { slab: slab::Slab::new(), serial: 0 }
    }

    /// The number of connections.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Inserts a value. The caller has checked that there are fewer than [`MAX_SLOTS`].
    pub fn insert(&mut self, value: T) -> ConnId {
        let entry = self.slab.vacant_entry();
        self.serial += 1;
        let id = ConnId((self.serial << SLOT_BITS) | entry.key() as u64);
        entry.insert((id, value));
        id
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    fn slot(id: ConnId) -> usize {
        (id.0 & (MAX_SLOTS as u64 - 1)) as usize
    }

    /// The value of this id, if it exists.
    pub fn get(&self, id: ConnId) -> Option<&T> {
        self.slab.get(Self::slot(id)).filter(|(own, _)| *own == id).map(|(_, value)| value)
    }

    /// As [`Slots::get`], mutable.
    pub fn get_mut(&mut self, id: ConnId) -> Option<&mut T> {
        self.slab.get_mut(Self::slot(id)).filter(|(own, _)| *own == id).map(|(_, value)| value)
    }

    /// Removes the value. Its id never repeats.
    pub fn remove(&mut self, id: ConnId) -> Option<T> {
        self.get(id)?;
        Some(self.slab.remove(Self::slot(id)).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_id_finds_nothing_after_its_slot_was_used_again() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_ne!(first, second);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get(second), Some(&'b'));
        assert_eq!(slots.len(), 1);
    }
}
