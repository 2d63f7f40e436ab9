//! The streams of a sender: one for each address, with the number of its next message.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Instant;

use super::Slots;
use super::timeline::Timeline;

/// What is remembered of one address.
pub(crate) struct Destination {
    pub to: SocketAddr,
    /// Its number, never used again for another one.
    pub stream: u32,
    /// The number of the next message.
    pub next: u64,
    /// The largest datagram on the path to it, once it was asked for.
    pub limit: Option<usize>,
}

/// All of them, the one not used for longest given up first.
pub(crate) struct Destinations {
    slots: Slots<Destination>,
    by_addr: HashMap<SocketAddr, u32>,
    used: Timeline,
    last: Option<(SocketAddr, u32)>,
    streams: u32,
    limit: usize,
}

impl Destinations {
    pub fn new(limit: usize) -> Destinations {
        Destinations {
            slots: Slots::new(),
            by_addr: HashMap::new(),
            used: Timeline::new(),
            last: None,
            streams: 0,
            limit,
        }
    }

    /// The stream to this address, if it is remembered.
    pub fn find(&mut self, to: SocketAddr) -> Option<&mut Destination> {
        let slot = match self.last {
            Some((addr, slot)) if addr == to => slot,
            _ => *self.by_addr.get(&to)?,
        };
        self.last = Some((to, slot));
        self.slots.get_mut(slot)
    }

    /// The stream to this address, which begins if there is none; and the one that was given up for it.
    pub fn get(&mut self, to: SocketAddr, now: Instant) -> (&mut Destination, Option<Destination>) {
        let mut given_up = None;
        let slot = match self.last {
            Some((addr, slot)) if addr == to => slot,
            _ => match self.by_addr.get(&to) {
                Some(&slot) => slot,
                None => {
                    if self.slots.len() >= self.limit {
                        given_up = self.give_up();
                    }
                    self.begin(to)
                }
            },
        };
        self.last = Some((to, slot));
        self.used.touch(slot, now);
        (self.slots.get_mut(slot).expect("it was found"), given_up)
    }

    fn begin(&mut self, to: SocketAddr) -> u32 {
        let stream = self.streams;
        self.streams = self.streams.wrapping_add(1);
        let slot = self.slots.insert(Destination { to, stream, next: 0, limit: None });
        self.by_addr.insert(to, slot);
        slot
    }

    fn give_up(&mut self) -> Option<Destination> {
        let (slot, _) = self.used.first()?;
        self.used.remove(slot);
        self.last = None;
        let gone = self.slots.remove(slot)?;
        self.by_addr.remove(&gone.to);
        Some(gone)
    }

    /// Ends all streams.
    pub fn drain(&mut self) -> Vec<Destination> {
        std::iter::from_fn(|| self.give_up()).collect()
    }
}
