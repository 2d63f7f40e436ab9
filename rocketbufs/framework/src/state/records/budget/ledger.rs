//! The shares of a budget: the members that have one, wait for one, or could return one.
//!
//! ```text
//!              take                    drained                   called
//!   nothing ──────────▶ busy ◀───────────────────▶ idle ────────────────▶ called ──▶ returned, or busy again
//!      │                                busy
//!      └── no room: waiting, first come, first served
//! ```
//!
//! A waiting member has no share, and a member with a share can finish with it. So there is no deadlock as
//! long as each member takes at once what a whole delivery needs. Idle shares are recalled one by one, the
//! longest idle first, and only as many as the first waiting member needs. A recalled member that finds no
//! waiting member does nothing: as soon as no member waits, all recalled members are idle again, as if they
//! had not been recalled.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::proto::{Need, Share};

/// The key of a member, which is a subscription.
pub(super) type Key = u64;

/// The most shares at a time: each is a ring, and a ring is two of the process's mappings.
const MAX_SHARES: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemberState {
    Waiting,
    Busy,
    Idle(u64),
    Called(u64),
}

#[derive(Debug, Clone, Copy)]
struct Member {
    /// The cost of its share, or, while it waits, of the share that it needs.
    bytes: u64,
    state: MemberState,
}

/// The accounts of a budget, see [the module](self).
#[derive(Debug)]
pub(super) struct Ledger {
    bytes: u64,
    /// The least cost of a share, in bytes.
    unit: u64,
    used: u64,
    /// The part of `used` that was recalled and has not come back.
    called_bytes: u64,
    members: HashMap<Key, Member>,
    waiting: VecDeque<Key>,
    /// Whether the first waiting member was told that there is room.
    told: bool,
    /// In the order in which members became idle, as the number in their state says.
    idle: BTreeMap<u64, Key>,
    called: BTreeMap<u64, Key>,
    next_idle: u64,
}

impl Ledger {
    /// Creates a ledger. `page`: the bytes of the smallest ring.
    pub(super) fn new(bytes: u64, page: u64) -> Self {
        Self {
            bytes,
            unit: (bytes / MAX_SHARES).max(page),
            used: 0,
            called_bytes: 0,
            members: HashMap::new(),
            waiting: VecDeque::new(),
            told: false,
            idle: BTreeMap::new(),
            called: BTreeMap::new(),
            next_idle: 0,
        }
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the cost of a share of so many bytes. A smaller ring takes as many mappings, so there is a
    /// minimum.
    fn cost(&self, bytes: u64) -> u64 {
        bytes.max(self.unit)
    }

    /// Returns whether half of the budget stays free after so many bytes more.
    pub(super) fn is_plenty(&self, bytes: u64) -> bool {
        self.waiting.is_empty() && self.used + bytes <= self.bytes / 2
    }

    /// Takes a share for a member without one; `None` if it must wait.
    pub(super) fn take(&mut self, key: Key, need: Need) -> Option<Share> {
        let most = need.full.max(need.least);
        let small =
            need.bytes.max(self.unit).checked_next_power_of_two().map_or(most, |bytes| bytes.min(most));
        let ahead = need.full >= need.least && self.is_plenty(self.cost(need.full));
        let share = Share { bytes: if ahead { need.full } else { small }, ahead };
        let bytes = self.cost(share.bytes);
        let first = self.waiting.front().is_none_or(|first| *first == key);
        if !first || self.used + bytes > self.bytes {
            let waits = Member { bytes: self.cost(small), state: MemberState::Waiting };
            let waits = self.members.insert(key, waits);
            if waits.is_none() {
                self.waiting.push_back(key);
            }
            self.told &= !first;
            return None;
        }
        if self.waiting.pop_front_if(|first| *first == key).is_some() {
            self.told = false;
        }
        self.used += bytes;
        self.members.insert(key, Member { bytes, state: MemberState::Busy });
        self.call_off();
        Some(share)
    }

    /// Returns a member's share, or ends its wait.
    pub(super) fn leave(&mut self, key: Key) {
        let Some(member) = self.members.remove(&key) else { return };
        match member.state {
            MemberState::Waiting => {
                self.told &= self.waiting.front() != Some(&key);
                self.waiting.retain(|other| *other != key);
                self.call_off();
                return;
            }
            MemberState::Busy => {}
            MemberState::Idle(at) => drop(self.idle.remove(&at)),
            MemberState::Called(at) => self.answered(at, member.bytes),
        }
        self.used -= member.bytes;
    }

    fn answered(&mut self, at: u64, bytes: u64) {
        self.called.remove(&at);
        self.called_bytes -= bytes;
    }

    /// Cancels unanswered recalls once no member waits.
    fn call_off(&mut self) {
        if self.waiting.is_empty() {
            self.called_bytes = 0;
            for (at, key) in std::mem::take(&mut self.called) {
                if let Some(member) = self.members.get_mut(&key) {
                    member.state = MemberState::Idle(at);
                    self.idle.insert(at, key);
                }
            }
        }
    }

    /// Records that a member's ring is empty, so that its share can be recalled.
    pub(super) fn idle(&mut self, key: Key) {
        if let Some(member) = self.members.get_mut(&key)
            && member.state == MemberState::Busy
        {
            member.state = MemberState::Idle(self.next_idle);
            self.idle.insert(self.next_idle, key);
            self.next_idle += 1;
        }
    }

    /// Records that a recalled member cannot return its share now.
    pub(super) fn busy(&mut self, key: Key) {
        let Some(&Member { bytes, state }) = self.members.get(&key) else { return };
        match state {
            MemberState::Called(at) => self.answered(at, bytes),
            MemberState::Idle(at) => drop(self.idle.remove(&at)),
            MemberState::Waiting | MemberState::Busy => return,
        }
        self.members.insert(key, Member { bytes, state: MemberState::Busy });
    }

    /// Returns the next member to call: one whose share is recalled, or the first waiting one if there is
    /// room for it now.
    pub(super) fn next_to_call(&mut self) -> Option<Key> {
        let first = *self.waiting.front()?;
        let (need, free) = (self.members.get(&first)?.bytes, self.bytes - self.used);
        if need <= free {
            return (!std::mem::replace(&mut self.told, true)).then_some(first);
        }
        if need <= free + self.called_bytes {
            return None;
        }
        let (at, key) = self.idle.pop_first()?;
        let member = self.members.get_mut(&key)?;
        member.state = MemberState::Called(at);
        self.called.insert(at, key);
        self.called_bytes += member.bytes;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: u64 = 64 << 10;
    const KEYS: u64 = 12;

    #[derive(Debug, Clone)]
    enum Step {
        /// Data for a member that has no share and does not wait.
        Want(Key, u64),
        Drained(Key),
        Refilled(Key),
        Gone(Key),
        /// A recalled member answers: it returns its share, or (refilled meanwhile) does not.
        Answer(usize, bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = || 0..KEYS;
        prop_oneof![
            6 => (key(), 1..20_000_u64).prop_map(|(key, bytes)| Step::Want(key, bytes)),
            4 => key().prop_map(Step::Drained),
            2 => key().prop_map(Step::Refilled),
            1 => key().prop_map(Step::Gone),
            4 => (any::<usize>(), any::<bool>()).prop_map(|(at, gives)| Step::Answer(at, gives)),
        ]
    }

    fn need(bytes: u64) -> Need {
        Need { bytes, least: 8 << 10, full: 16 << 10 }
    }

    /// A plain list of the members' shares and states, and the order of arrival.
    #[derive(Default)]
    struct Model {
        shares: BTreeMap<Key, u64>,
        drained: Vec<Key>,
        called: Vec<Key>,
        queue: Vec<(Key, u64)>,
    }

    impl Model {
        fn used(&self) -> u64 {
            self.shares.values().sum()
        }

        fn take_off(&mut self, key: Key) {
            self.shares.remove(&key);
            self.drained.retain(|other| *other != key);
            self.called.retain(|other| *other != key);
            self.queue.retain(|(other, _)| *other != key);
        }

        fn took(&mut self, key: Key, bytes: u64, share: Option<Share>) -> Result<(), TestCaseError> {
            let Some(share) = share else {
                match self.queue.iter_mut().find(|(other, _)| *other == key) {
                    // The sender has more by now.
                    Some((_, before)) => *before = bytes,
                    None => self.queue.push((key, bytes)),
                }
                return Ok(());
            };
            prop_assert!(self.queue.first().is_none_or(|(first, _)| *first == key), "out of turn");
            prop_assert!(share.bytes.is_power_of_two() && share.bytes >= bytes.min(16 << 10));
            prop_assert!(!share.ahead || self.used() + share.bytes <= BYTES / 2, "ahead of its data");
            self.queue.retain(|(other, _)| *other != key);
            self.shares.insert(key, share.bytes);
            Ok(())
        }
    }

    fn settle(ledger: &mut Ledger, model: &mut Model) -> Result<(), TestCaseError> {
        while let Some(key) = ledger.next_to_call() {
            if let Some(at) = model.drained.iter().position(|other| *other == key) {
                prop_assert_eq!(at, 0, "the longest idle first");
                model.drained.remove(at);
                model.called.push(key);
                continue;
            }
            let (first, bytes) = model.queue[0];
            prop_assert_eq!(key, first);
            let share = ledger.take(key, need(bytes));
            prop_assert!(share.is_some(), "it was told that there is room");
            model.took(key, bytes, share)?;
        }
        prop_assert_eq!((ledger.used(), ledger.waiting()), (model.used(), model.queue.len()));
        prop_assert!(model.used() <= BYTES);
        // No member waits while there is room, or while another could make room and was not called.
        if !model.queue.is_empty() {
            let called: u64 = model.called.iter().map(|key| model.shares[key]).sum();
            let needed = ledger.members[&model.queue[0].0].bytes;
            prop_assert!(BYTES - model.used() < needed);
            prop_assert!(BYTES - model.used() + called >= needed || model.drained.is_empty());
        } else {
            // A recalled member that finds no waiting member any more keeps its share. The member may be recalled again.
            model.drained.splice(0..0, model.called.drain(..));
        }
        Ok(())
    }

    #[test]
    fn there_are_no_more_rings_than_mappings_for_them() {
        let mut ledger = Ledger::new(64 << 20, 4096);
        let tiny = Need { bytes: 100, least: 4096, full: 4096 };
        let shares = (0..3 * MAX_SHARES).filter(|key| ledger.take(*key, tiny).is_some()).count();
        assert_eq!(shares as u64, MAX_SHARES);
    }

    proptest! {
        #[test]
        fn shares_are_what_a_plain_list_says(steps in proptest::collection::vec(step(), 1..200)) {
            let (mut ledger, mut model) = (Ledger::new(BYTES, 4096), Model::default());
            for step in steps {
                match step {
                    Step::Want(key, bytes) if !model.shares.contains_key(&key) => {
                        let share = ledger.take(key, need(bytes));
                        model.took(key, bytes, share)?;
                    }
                    Step::Drained(key) if model.shares.contains_key(&key) => {
                        ledger.idle(key);
                        if !model.called.contains(&key) && !model.drained.contains(&key) {
                            model.drained.push(key);
                        }
                    }
                    Step::Refilled(key) => {
                        ledger.busy(key);
                        model.drained.retain(|other| *other != key);
                        model.called.retain(|other| *other != key);
                    }
                    Step::Answer(at, gives) if !model.called.is_empty() => {
                        let key = model.called.remove(at % model.called.len());
                        if gives {
                            ledger.leave(key);
                            model.take_off(key);
                        } else {
                            ledger.busy(key);
                        }
                    }
                    Step::Gone(key) => {
                        ledger.leave(key);
                        model.take_off(key);
                    }
                    _ => {}
                }
                settle(&mut ledger, &mut model)?;
            }
            // Every share is returned in the end; then every waiting member gets one.
            while !model.queue.is_empty() {
                let Some(key) = model.shares.keys().next().copied() else { panic!("they wait for nobody") };
                ledger.leave(key);
                model.take_off(key);
                settle(&mut ledger, &mut model)?;
            }
        }
    }
}
