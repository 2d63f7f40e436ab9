//! Fair shares of a limited table: which slots each owner has, so that an owner with many entries evicts its
//! own entries and not those of others.

use std::collections::HashMap;
use std::hash::Hash;

/// The number of an owner's slots that are searched for the longest silent one.
const CANDIDATES: usize = 16;

/// The slots of each owner.
pub(crate) struct FairShare<K> {
    by: HashMap<K, Vec<u32>>,
    /// The owner with the most slots, as far as known: the value may lag behind removals.
    largest: Option<K>,
}

impl<K: Copy + Eq + Hash> FairShare<K> {
    pub fn new() -> FairShare<K> {
        FairShare { by: HashMap::new(), largest: None }
    }

    /// Adds a slot of an owner. Returns its index among the owner's slots.
    pub fn add(&mut self, of: K, slot: u32) -> usize {
        let own = self.by.entry(of).or_default();
        own.push(slot);
        let many = own.len();
        if self.largest.is_none_or(|largest| many > self.count(&largest)) {
            self.largest = Some(of);
        }
        many - 1
    }

    /// Removes the slot at this index. Returns the slot that moved to the index.
    pub fn remove(&mut self, of: &K, at: usize) -> Option<u32> {
        let own = self.by.get_mut(of)?;
        own.swap_remove(at);
        let moved = own.get(at).copied();
        if own.is_empty() {
            self.by.remove(of);
        }
        moved
    }

    fn count(&self, of: &K) -> usize {
        self.by.get(of).map_or(0, Vec::len)
    }

    /// The slot to evict for a new entry of this owner, in a table of `limit` entries.
    ///
    /// The victim is a slot of an owner with more than its fair share, or else the slot that was `silent` longest.
    /// `heard` returns when a slot was last heard, and its owner.
    pub fn victim<H: Ord>(
        &self,
        of: K,
        limit: usize,
        silent: Option<u32>,
        mut heard: impl FnMut(u32) -> (H, K),
    ) -> Option<u32> {
        let have = self.count(&of);
        let share = (limit / (self.by.len() + usize::from(have == 0))).max(1);
        let largest = self.largest.filter(|largest| self.count(largest) > share);
        let Some(too_many) = (if have >= share { Some(of) } else { largest }) else { return silent };
        silent.filter(|&silent| heard(silent).1 == too_many).or_else(|| {
            let own = self.by.get(&too_many)?.iter().take(CANDIDATES);
            own.copied().min_by_key(|&slot| heard(slot).0)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::{Duration, Instant};

    use crate::config::Config;
    use crate::event::Event;
    use crate::key::Key;
    use crate::proto::receiver::{Dropped, Receiver, Sink};
    use crate::proto::shared_buffer::SharedBuffer;
    use crate::wire::{Header, Kind, Messages};

    struct NullSink;

    impl Sink for NullSink {
        fn deliver(&mut self, _: Key, _: Messages<'_>, _: Option<&SharedBuffer>) -> Dropped {
            Dropped::default()
        }

        fn event(&mut self, _: Event) {}
    }

    fn hear(receiver: &mut Receiver, now: &mut Instant, from: SocketAddr) {
        *now += Duration::from_micros(1);
        let header = Header { kind: Kind::Batch, count: 1, stream: 0, epoch: 1, first: 0, mailbox: 0 };
        let bytes = [&header.encode()[..], &[0; 2]].concat();
        receiver.datagram(*now, from, &bytes, &mut NullSink);
    }

    /// A host has all its ports, and for IPv6 many addresses. With all of them the host still does not evict the streams of
    /// other hosts.
    #[test]
    fn one_host_evicts_only_its_own_streams() {
        let claims: [fn(u16) -> SocketAddr; 2] = [
            |n| SocketAddr::from(([10, 0, 0, 66], n + 1)),
            |n| SocketAddr::from(([0x2001, 0xdb8, 0, 0, n, 1, 1, 1], 7)),
        ];
        for claim in claims {
            let config = Config { max_senders: 16, ..Config::default() };
            let (mut receiver, mut now) = (Receiver::new(&config), Instant::now());
            // A single host may have every place.
            (0..16).for_each(|n| hear(&mut receiver, &mut now, claim(n)));
            assert_eq!(receiver.senders().len(), 16);
            let others: Vec<SocketAddr> = (1..=7).map(|n| SocketAddr::from(([10, 0, 0, n], 7))).collect();
            others.iter().for_each(|&other| hear(&mut receiver, &mut now, other));
            (0..1000).for_each(|n| hear(&mut receiver, &mut now, claim(n)));
            assert_eq!(receiver.senders().len(), 16);
            let here = others.iter().filter(|&&other| !receiver.sender(other).is_empty());
            assert_eq!(here.count(), others.len(), "the victims were silent longer than a thousand others");
        }
    }
}
