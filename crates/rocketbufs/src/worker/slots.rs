//! The users of each slot, the number under which other threads mark a buffer or a subscription as pending.

use rocketnet::ConnId;
use rustc_hash::FxHashMap;

use crate::types::WireId;

/// A subscription on one of the worker's connections.
pub(super) type At = (ConnId, WireId);

/// The users of one slot.
pub(super) enum SlotUse {
    /// The slot of a buffer: the subscriptions of peers that send it.
    Outs(Vec<At>),
    /// The slot of a subscription of this end.
    In(At),
}

/// The users of a worker's slots.
#[derive(Default)]
pub(super) struct Slots(FxHashMap<u32, SlotUse>);

impl Slots {
    pub(super) fn get(&self, slot: u32) -> Option<&SlotUse> {
        self.0.get(&slot)
    }

    /// Returns the subscriptions of peers that send the buffer with this slot.
    pub(super) fn outs(&self, slot: u32) -> &[At] {
        match self.0.get(&slot) {
            Some(SlotUse::Outs(outs)) => outs,
            _ => &[],
        }
    }

    /// Returns the only subscription that sends a buffer, if there is only one.
    pub(super) fn only_out(&self, slot: u32) -> Option<At> {
        match self.outs(slot) {
            [only] => Some(*only),
            _ => None,
        }
    }

    pub(super) fn add_out(&mut self, slot: u32, at: At) {
        match self.0.entry(slot).or_insert_with(|| SlotUse::Outs(Vec::new())) {
            SlotUse::Outs(outs) => outs.push(at),
            stale => *stale = SlotUse::Outs(vec![at]),
        }
    }

    pub(super) fn remove_out(&mut self, slot: u32, at: At) {
        let Some(SlotUse::Outs(outs)) = self.0.get_mut(&slot) else { return };
        // From the end, where a connection that goes with many subscriptions removes them.
        if let Some(index) = outs.iter().rposition(|out| *out == at) {
            outs.remove(index);
        }
        if outs.is_empty() {
            self.0.remove(&slot);
        }
    }

    pub(super) fn set_in(&mut self, slot: u32, at: At) {
        self.0.insert(slot, SlotUse::In(at));
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.0.remove(&slot);
    }
}
