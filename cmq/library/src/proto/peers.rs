//! What is known of other queues, within a limit: a table with one rule of eviction.
//!
//! ```text
//!   name ──▶ slot ──▶ state of the peer             heard: the longest silent one first
//!                       └ its host ── fair share: a host with more than its share loses its own entries,
//!                                                 and otherwise the longest silent entry of all makes room
//! ```
//!
//! A datagram of the peer that was heard last costs no hash. Handshakes whose addresses are not verified are not here: nothing that a
//! forged address begins may evict a peer (`secure::table`).

use std::hash::Hash;
use std::net::SocketAddr;
use std::time::Instant;

use super::fair_share::FairShare;
use super::recent_map::RecentMap;
use super::timeline::Timeline;

/// The name of a peer's state.
pub(crate) trait PeerName: Copy + Eq + Hash {
    /// The address of the peer.
    fn addr(&self) -> SocketAddr;
}

struct Peer<V> {
    /// The index among the entries of its host.
    at_host: usize,
    value: V,
}

/// The table.
pub(crate) struct Peers<K, V> {
    entries: RecentMap<K, Peer<V>>,
    hosts: FairShare,
    /// The slots in the order in which their peers were last heard.
    heard: Timeline,
    limit: usize,
}

impl<K: PeerName, V> Peers<K, V> {
    /// An empty table for this many entries.
    pub fn new(limit: usize) -> Peers<K, V> {
        Peers { entries: RecentMap::new(), hosts: FairShare::new(), heard: Timeline::new(), limit }
    }

    /// The slot of a name. The next look-up of this name is cheap.
    #[inline]
    pub fn find(&mut self, name: K) -> Option<u32> {
        self.entries.find(name)
    }

    /// The entry in a slot, if it is in use.
    #[inline]
    pub fn get(&mut self, slot: u32) -> Option<(K, &mut V)> {
        self.entries.at(slot).map(|(name, peer)| (name, &mut peer.value))
    }

    /// The entry in a slot.
    ///
    /// # Panics
    /// If the slot is not in use.
    #[inline]
    pub fn at(&mut self, slot: u32) -> (K, &mut V) {
        self.get(slot).expect("the caller has found the slot")
    }

    /// The slot that must be removed before a new name is inserted. `None`: there is room.
    pub fn victim(&self, of: K) -> Option<u32> {
        if self.entries.len() < self.limit {
            return None;
        }
        let silent = self.heard.first().map(|(slot, _)| slot);
        self.hosts.victim(of.addr(), self.limit, silent, |slot| {
            let (name, _) = self.entries.entry(slot).expect("a counted slot is in use");
            (self.heard.since(slot), name.addr())
        })
    }

    /// Adds a name, which must be new, and whose peer was heard now. Returns its slot.
    pub fn insert(&mut self, name: K, value: V, now: Instant) -> u32 {
        let slot = self.entries.insert(name, Peer { at_host: 0, value });
        let at_host = self.hosts.add(name.addr(), slot);
        self.entries.at(slot).expect("the entry was just inserted").1.at_host = at_host;
        self.heard.push_back(slot, now);
        slot
    }

    /// Removes the entry in a slot.
    pub fn remove(&mut self, slot: u32) -> Option<(K, V)> {
        let (name, Peer { at_host, value }) = self.entries.remove_at(slot)?;
        self.heard.remove(slot);
        let moved = self.hosts.remove(name.addr(), at_host);
        if let Some((_, moved)) = moved.and_then(|moved| self.entries.at(moved)) {
            moved.at_host = at_host;
        }
        Some((name, value))
    }

    /// The peer was heard now.
    #[inline]
    pub fn touch(&mut self, slot: u32, now: Instant) {
        self.heard.touch(slot, now);
    }

    /// The entry whose peer was silent longest, and since when.
    pub fn silent(&self) -> Option<(u32, Instant)> {
        self.heard.first()
    }

    /// The entries of an address.
    pub fn of(&self, addr: SocketAddr) -> impl Iterator<Item = (K, &V)> {
        let slots = self.hosts.slots(addr).iter().filter_map(|&slot| self.entries.entry(slot));
        slots.filter(move |(name, _)| name.addr() == addr).map(|(name, peer)| (name, &peer.value))
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.entries.iter().map(|(name, peer)| (name, &peer.value))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// An address and one of its streams.
    type Name = (SocketAddr, u8);

    impl PeerName for Name {
        fn addr(&self) -> SocketAddr {
            self.0
        }
    }

    proptest! {
        /// A list is the oracle: it has the names, the silent ones first, and says which victims are fair.
        #[test]
        fn the_victim_is_greedy_or_silent(steps in prop::collection::vec((0_u8..5, 1_u16..3, 0_u8..4, 0_u8..8), 1..300)) {
            let limit = 8;
            let (mut peers, mut model, mut now) = (Peers::new(limit), Vec::<Name>::new(), Instant::now());
            for (host, port, stream, what) in steps {
                now += Duration::from_millis(1);
                let name: Name = (SocketAddr::from(([10, 0, 0, host], port)), stream);
                let known = model.iter().position(|known| *known == name);
                prop_assert_eq!(peers.find(name).is_some(), known.is_some());
                if let Some(slot) = peers.find(name) {
                    model.remove(known.expect("both have the name"));
                    if what == 0 {
                        prop_assert_eq!(peers.remove(slot), Some((name, name)));
                        continue;
                    }
                    peers.touch(slot, now);
                } else {
                    let victim = peers.victim(name);
                    prop_assert_eq!(victim.is_some(), model.len() >= limit);
                    if let Some((victim, _)) = victim.and_then(|victim| peers.remove(victim)) {
                        let of = |other: &Name| model.iter().filter(|name| name.0.ip() == other.0.ip()).count();
                        let mut hosts: Vec<_> = model.iter().chain([&name]).map(|name| name.0.ip()).collect();
                        hosts.sort_unstable();
                        hosts.dedup();
                        let share = limit / hosts.len();
                        if of(&name) >= share {
                            prop_assert_eq!(victim.0.ip(), name.0.ip(), "a greedy host evicts its own");
                        } else {
                            prop_assert!(of(&victim) > share || model[0] == victim);
                        }
                        model.retain(|known| *known != victim);
                    }
                    peers.insert(name, name, now);
                }
                model.push(name);
                prop_assert_eq!(peers.len(), model.len());
                let silent = peers.silent().and_then(|(slot, _)| peers.get(slot)).map(|(name, _)| name);
                prop_assert_eq!(silent.as_ref(), model.first());
                let mut own: Vec<Name> = peers.of(name.0).map(|(name, _)| name).collect();
                let mut wanted: Vec<Name> = model.iter().filter(|known| known.0 == name.0).copied().collect();
                own.sort_unstable();
                wanted.sort_unstable();
                prop_assert_eq!(own, wanted);
            }
        }
    }
}
