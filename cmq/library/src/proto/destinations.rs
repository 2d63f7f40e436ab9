//! The streams that this queue sends: one for each destination address.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Instant;

use super::SlotTable;
use super::timeline::Timeline;

/// The stream to one address.
pub(crate) struct Destination {
    pub to: SocketAddr,
    /// The number of the stream, never reused.
    pub stream: u32,
    /// The number of the next message.
    pub next_number: u64,
    /// The largest datagram on the path, once it is known.
    pub datagram_limit: Option<usize>,
}

/// All streams. When there are too many, the least recently used one is evicted.
pub(crate) struct Destinations {
    slots: SlotTable<Destination>,
    by_addr: HashMap<SocketAddr, u32>,
    last_used: Timeline,
    last: Option<(SocketAddr, u32)>,
    next_stream: u32,
    max: usize,
}

impl Destinations {
    pub fn new(max: usize) -> Destinations {
        Destinations {
            slots: SlotTable::new(),
            by_addr: HashMap::new(),
            last_used: Timeline::new(),
            last: None,
            next_stream: 0,
            max,
        }
    }

    /// The stream to this address, if there is one.
    pub fn find(&mut self, to: SocketAddr) -> Option<&mut Destination> {
        let slot = match self.last {
            Some((addr, slot)) if addr == to => slot,
            _ => *self.by_addr.get(&to)?,
        };
        self.last = Some((to, slot));
        self.slots.get_mut(slot)
    }

    /// The stream to this address, begun if there is none, and the stream that was evicted for it.
    pub fn get_or_begin(&mut self, to: SocketAddr, now: Instant) -> (&mut Destination, Option<Destination>) {
        let mut evicted = None;
        let slot = match self.last {
            Some((addr, slot)) if addr == to => slot,
            _ => match self.by_addr.get(&to) {
                Some(&slot) => slot,
                None => {
                    if self.slots.len() >= self.max {
                        evicted = self.evict();
                    }
                    self.begin(to)
                }
            },
        };
        self.last = Some((to, slot));
        self.last_used.touch(slot, now);
        (self.slots.get_mut(slot).expect("the slot was just found"), evicted)
    }

    fn begin(&mut self, to: SocketAddr) -> u32 {
        let stream = self.next_stream;
        self.next_stream = self.next_stream.wrapping_add(1);
        let slot = self.slots.insert(Destination { to, stream, next_number: 0, datagram_limit: None });
        self.by_addr.insert(to, slot);
        slot
    }

    fn evict(&mut self) -> Option<Destination> {
        let (slot, _) = self.last_used.first()?;
        self.last_used.remove(slot);
        self.last = None;
        let ended = self.slots.remove(slot)?;
        self.by_addr.remove(&ended.to);
        Some(ended)
    }

    /// Removes and returns all streams.
    pub fn drain(&mut self) -> Vec<Destination> {
        std::iter::from_fn(|| self.evict()).collect()
    }
}
