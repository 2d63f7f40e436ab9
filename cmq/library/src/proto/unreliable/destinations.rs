//! The streams that this queue sends: one for each destination address.
//!
//! The application chooses the addresses, so hosts have no shares: the least recently used stream makes room.

use std::net::SocketAddr;
use std::time::Instant;

use crate::proto::recent_map::RecentMap;
use crate::proto::timeline::Timeline;

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
    streams: RecentMap<SocketAddr, Destination>,
    last_used: Timeline,
    next_stream: u32,
    max: usize,
}

impl Destinations {
    pub fn new(max: usize) -> Destinations {
        Destinations { streams: RecentMap::new(), last_used: Timeline::new(), next_stream: 0, max }
    }

    /// The stream to this address, if there is one.
    pub fn find(&mut self, to: SocketAddr) -> Option<&mut Destination> {
        self.streams.get_mut(to)
    }

    /// The stream to this address, begun if there is none, and the stream that was evicted for it.
    pub fn get_or_begin(&mut self, to: SocketAddr, now: Instant) -> (&mut Destination, Option<Destination>) {
        let mut evicted = None;
        let slot = match self.streams.find(to) {
            Some(slot) => slot,
            None => {
                if self.streams.len() >= self.max {
                    evicted = self.evict();
                }
                let stream = self.next_stream;
                self.next_stream = self.next_stream.wrapping_add(1);
                self.streams.insert(to, Destination { to, stream, next_number: 0, datagram_limit: None })
            }
        };
        self.last_used.touch(slot, now);
        (self.streams.at(slot).expect("the slot was just found").1, evicted)
    }

    fn evict(&mut self) -> Option<Destination> {
        let (slot, _) = self.last_used.first()?;
        self.last_used.remove(slot);
        self.streams.remove_at(slot).map(|(_, ended)| ended)
    }

    /// Removes and returns all streams.
    pub fn drain(&mut self) -> Vec<Destination> {
        std::iter::from_fn(|| self.evict()).collect()
    }
}
