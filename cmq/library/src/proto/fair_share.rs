//! Fair shares of a limited table: which slots each host has, so that a host with many entries evicts its
//! own entries and not those of others. A host has all its ports, and an IPv6 client all addresses of its /64.

use std::collections::HashMap;
use std::net::SocketAddr;

use peers::HostAddress;

use crate::key::host;

/// The number of a host's slots that are searched for the longest silent one.
const CANDIDATES: usize = 16;

/// The slots of each host.
pub(crate) struct FairShare {
    by: HashMap<HostAddress, Vec<u32>>,
    /// The host with the most slots, as far as known: the value may lag behind removals.
    largest: Option<HostAddress>,
}

impl FairShare {
    pub fn new() -> FairShare {
        FairShare { by: HashMap::new(), largest: None }
    }

    /// Adds a slot of an address. Returns its index among the slots of the host.
    pub fn add(&mut self, of: SocketAddr, slot: u32) -> usize {
        let own = self.by.entry(host(of)).or_default();
        own.push(slot);
        let many = own.len();
        if self.largest.is_none_or(|largest| many > self.count(largest)) {
            self.largest = Some(host(of));
        }
        many - 1
    }

    /// Removes the slot at this index. Returns the slot that moved to the index.
    pub fn remove(&mut self, of: SocketAddr, at: usize) -> Option<u32> {
        let own = self.by.get_mut(&host(of))?;
        own.swap_remove(at);
        let moved = own.get(at).copied();
        if own.is_empty() {
            self.by.remove(&host(of));
        }
        moved
    }

    /// The slots of the host of an address.
    pub fn slots(&self, of: SocketAddr) -> &[u32] {
        self.by.get(&host(of)).map_or(&[], Vec::as_slice)
    }

    fn count(&self, of: HostAddress) -> usize {
        self.by.get(&of).map_or(0, Vec::len)
    }

    /// The slot to evict for a new entry of this address, in a table of `limit` entries.
    ///
    /// The victim is a slot of a host with more than its fair share, or else the slot that was `silent` longest.
    /// `heard` returns when a slot was last heard, and its address.
    pub fn victim<H: Ord>(
        &self,
        of: SocketAddr,
        limit: usize,
        silent: Option<u32>,
        heard: impl Fn(u32) -> (H, SocketAddr),
    ) -> Option<u32> {
        let (own, have) = (host(of), self.slots(of).len());
        let share = (limit / (self.by.len() + usize::from(have == 0))).max(1);
        let largest = self.largest.filter(|&largest| self.count(largest) > share);
        let Some(too_many) = (if have >= share { Some(own) } else { largest }) else { return silent };
        silent.filter(|&silent| host(heard(silent).1) == too_many).or_else(|| {
            let slots = self.by.get(&too_many)?.iter().take(CANDIDATES);
            slots.copied().min_by_key(|&slot| heard(slot).0)
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
    use crate::proto::shared_buffer::SharedBuffer;
    use crate::proto::sink::{Dropped, Sink};
    use crate::proto::unreliable::receiver::Receiver;
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
