//! Whose places are taken: which slots of a limited table each address has, so that one that claims to be many drives out
//! nobody else.

use std::collections::HashMap;
use std::hash::Hash;

/// Slots of one address among which the one that was silent longest is looked for.
const LOOKED_AT: usize = 16;

/// The slots of each address.
pub(crate) struct Shares<K> {
    by: HashMap<K, Vec<u32>>,
    /// An address that has many, as far as it is known.
    heaviest: Option<K>,
}

impl<K: Copy + Eq + Hash> Shares<K> {
    pub fn new() -> Shares<K> {
        Shares { by: HashMap::new(), heaviest: None }
    }

    /// An address has one more; where it is among its own.
    pub fn add(&mut self, of: K, slot: u32) -> usize {
        let own = self.by.entry(of).or_default();
        own.push(slot);
        let many = own.len();
        if self.heaviest.is_none_or(|heaviest| many > self.count(&heaviest)) {
            self.heaviest = Some(of);
        }
        many - 1
    }

    /// An address has one less, which was here among its own; the slot that is in its place now.
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

    /// Who is forgotten for one more of this address, where `limit` are all there may be: one of an address that has more
    /// than its share, if there is such a one, and else whoever was `silent` longest. `heard` says when a slot was heard
    /// last, and whose it is.
    pub fn in_the_way<H: Ord>(
        &self,
        of: K,
        limit: usize,
        silent: Option<u32>,
        mut heard: impl FnMut(u32) -> (H, K),
    ) -> Option<u32> {
        let have = self.count(&of);
        let share = (limit / (self.by.len() + usize::from(have == 0))).max(1);
        let heaviest = self.heaviest.filter(|heaviest| self.count(heaviest) > share);
        let Some(too_many) = (if have >= share { Some(of) } else { heaviest }) else { return silent };
        silent.filter(|&silent| heard(silent).1 == too_many).or_else(|| {
            let own = self.by.get(&too_many)?.iter().take(LOOKED_AT);
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
    use crate::proto::lent::Lent;
    use crate::proto::receiver::{Receiver, Sink, Taken};
    use crate::wire::{Header, Kind, Messages};

    struct Nobody;

    impl Sink for Nobody {
        fn deliver(&mut self, _: Key, _: Messages<'_>, _: Option<&Lent>) -> Taken {
            Taken::default()
        }

        fn event(&mut self, _: Event) {}
    }

    fn hear(receiver: &mut Receiver, now: &mut Instant, from: SocketAddr) {
        *now += Duration::from_micros(1);
        let header = Header { kind: Kind::Batch, count: 1, stream: 0, epoch: 1, first: 0, mailbox: 0 };
        let bytes = [&header.encode()[..], &[0; 2]].concat();
        receiver.datagram(*now, from, &bytes, &mut Nobody);
    }

    /// Whoever has one address has all its ports (of IPv6: as many addresses as it likes), but not the others' places.
    #[test]
    fn one_address_drives_nobody_out() {
        let claims: [fn(u16) -> SocketAddr; 2] = [
            |n| SocketAddr::from(([10, 0, 0, 66], n + 1)),
            |n| SocketAddr::from(([0x2001, 0xdb8, 0, 0, n, 1, 1, 1], 7)),
        ];
        for claim in claims {
            let config = Config { max_senders: 16, ..Config::default() };
            let (mut receiver, mut now) = (Receiver::new(&config), Instant::now());
            // Alone it may have every place.
            (0..16).for_each(|n| hear(&mut receiver, &mut now, claim(n)));
            assert_eq!(receiver.senders().len(), 16);
            let others: Vec<SocketAddr> = (1..=7).map(|n| SocketAddr::from(([10, 0, 0, n], 7))).collect();
            others.iter().for_each(|&other| hear(&mut receiver, &mut now, other));
            (0..1000).for_each(|n| hear(&mut receiver, &mut now, claim(n)));
            assert_eq!(receiver.senders().len(), 16);
            let here = others.iter().filter(|&&other| !receiver.sender(other).is_empty());
            assert_eq!(here.count(), others.len(), "they were silent longer than a thousand others");
        }
    }
}
