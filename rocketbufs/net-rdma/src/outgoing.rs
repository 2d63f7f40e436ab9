//! The sending half of a connection: the queue, and the requests that the adapter has not completed.
//!
//! ```text
//!   queue                                     flight
//!   range │ frame │ copied │ range ── post ─▶ 17 │ 18 │ … │ 32 (signalled) ─────▶ room, the outbox's place
//!            room at the peer: `Receives`       at most `send_depth`
//! ```
//!
//! * A range is written in place to the same position of the peer's ring, with its id as immediate data: one request, or two if
//!   the range crosses the end of the peer's ring.
//! * A ring without flow control has no grants: `Ahead` keeps the unhandled bytes within the capacity of the peer's ring, in
//!   pieces of a quarter of it.
//! * A request is signalled if it is the last that is queued, or the sixteenth, or a quarter of the ring's bytes have
//!   gone unsignalled. Where posting stops for another reason, an empty write without immediate data is signalled.
//! * Ranges of rings that another process writes (they must be checked before they are sent), that cannot be registered or that
//!   were detached are copied to the outbox and sent in pieces.

mod posting;

use std::collections::{HashMap, VecDeque};

use rocketnet::wire::CONTROL_WIRE;
use rocketnet::{NotWritten, QueueFull, SourceRange, WireId};
use rocketring::{Position, Ring};

use crate::ahead::Ahead;
use crate::config::{MAX_QUEUED_ITEMS, RdmaConfig};
use crate::frame::{self, Key, Record};
use crate::outbox::{Outbox, Part};
use crate::send_stats::SendStats;
use crate::sys::RingRegion;

/// The target of empty writes.
const NOWHERE: Key = Key { key: 0, address: 0, capacity: 1 };
/// A control message is cut only if this much of it fits before the cut.
const LEAST_PART: usize = 64;

enum Item {
    Range {
        wire: WireId,
        ring: Ring,
        from: Position,
        to: Position,
        more: bool,
    },
    /// The bytes from `from` on, of which `done` were posted.
    Copied {
        wire: WireId,
        bytes: Vec<u8>,
        from: Position,
        done: usize,
        more: bool,
        /// Of a ring without flow control.
        laps: bool,
    },
    Frame(Vec<u8>),
}

/// A request that has not completed.
struct Flight {
    number: u64,
    wire: WireId,
    /// The adapter reads the bytes in the ring behind `wire`.
    reads_ring: bool,
    bytes: u64,
    part: Option<Part>,
}

/// A source ring, registered if it can be.
struct Origin {
    ring: Ring,
    region: Option<RingRegion>,
}

/// The send queue of one connection, and its requests in flight.
pub(crate) struct Outgoing {
    queue: VecDeque<Item>,
    flight: VecDeque<Flight>,
    outbox: Outbox,
    origins: HashMap<WireId, Origin>,
    keys: HashMap<WireId, Key>,
    max_keys: usize,
    /// The id whose key was requested: the id of the first range.
    wanted: Option<WireId>,
    ahead: Ahead,
    range_bytes: u64,
    control_bytes: usize,
    max_range_bytes: u64,
    max_control_bytes: usize,
    depth: u32,
    unsignalled: u32,
    unsignalled_bytes: u64,
    full: bool,
    dead: bool,
    pub stats: SendStats,
}

impl Outgoing {
    pub fn new(config: &RdmaConfig) -> Self {
        Self {
            queue: VecDeque::new(),
            flight: VecDeque::new(),
            outbox: Outbox::new(config.outbox_bytes),
            origins: HashMap::new(),
            keys: HashMap::new(),
            max_keys: config.max_keys,
            wanted: None,
            ahead: Ahead::default(),
            range_bytes: 0,
            control_bytes: 0,
            max_range_bytes: config.tx_queue_bytes.into(),
            max_control_bytes: config.tx_control_bytes,
            depth: config.send_depth,
            unsignalled: 0,
            unsignalled_bytes: 0,
            full: false,
            dead: false,
            stats: SendStats::default(),
        }
    }

    pub fn room(&self) -> u64 {
        if self.dead || self.queue.len() >= MAX_QUEUED_ITEMS {
            return 0;
        }
        self.max_range_bytes.saturating_sub(self.range_bytes)
    }

    /// Everything was sent and acknowledged.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.flight.is_empty()
    }

    pub fn write(&mut self, wire: WireId, source: SourceRange, more: bool) -> Result<(), NotWritten> {
        let SourceRange { ring, from, to, .. } = source;
        let (size, room) = (to.saturating_sub(from), self.room());
        debug_assert!(from <= to && wire < CONTROL_WIRE && size <= ring.capacity());
        if room == 0 || size > room {
            self.full = true;
            return Err(NotWritten::QueueFull);
        }
        if ring.is_peer_written() && size > 0 {
            // The writing process may break its promise. Bytes that were copied before the check are intact.
            let mut bytes = vec![0; size as usize];
            ring.view(from, to).copy_to(0, &mut bytes).map_err(|_lapped| NotWritten::Overwritten)?;
            let laps = !ring.flow_control();
            self.queue.push_back(Item::Copied { wire, bytes, from, done: 0, more, laps });
        } else {
            self.queue.push_back(Item::Range { wire, ring, from, to, more });
        }
        self.range_bytes += size;
        self.full |= self.room() == 0;
        Ok(())
    }

    /// Queues a control message, in as many parts as it takes.
    pub fn control(&mut self, message: &[u8], limit: usize) -> Result<(), QueueFull> {
        let cost = message.len() + frame::FRAME_HEAD;
        if self.dead || message.len() > limit || self.control_bytes + cost > self.max_control_bytes {
            return Err(QueueFull);
        }
        let mut rest = message;
        loop {
            // A part at least, so that a message is not cut without need.
            let open = match self.queue.back() {
                Some(Item::Frame(open)) => frame::control_room(open.len()),
                _ => 0,
            };
            if open < rest.len().min(LEAST_PART) || open == 0 {
                self.queue.push_back(Item::Frame(frame::empty()));
                self.control_bytes += frame::FRAME_HEAD;
                continue;
            }
            let (part, left) = rest.split_at(open.min(rest.len()));
            rest = left;
            self.say(Record::Control { part, more: !rest.is_empty() });
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Queues a record, in order with everything else.
    pub fn say(&mut self, record: Record<'_>) {
        if self.dead {
            return;
        }
        let fits = match self.queue.back_mut() {
            Some(Item::Frame(open)) => {
                let before = open.len();
                let fits = frame::push(open, record);
                self.control_bytes += open.len() - before;
                fits
            }
            _ => false,
        };
        if !fits {
            let mut frame = frame::empty();
            let pushed = frame::push(&mut frame, record);
            debug_assert!(pushed, "an empty frame has room for any record");
            self.control_bytes += frame.len();
            self.queue.push_back(Item::Frame(frame));
        }
    }

    /// The peer sent its key for ranges of this id. The error ends the connection.
    pub fn set_key(&mut self, wire: WireId, key: Key) -> Result<(), String> {
        if self.keys.len() >= self.max_keys && !self.keys.contains_key(&wire) {
            return Err(format!("keys for more than {} ids at once", self.max_keys));
        }
        self.wanted.take_if(|wanted| *wanted == wire);
        self.keys.insert(wire, key);
        Ok(())
    }

    /// The peer revoked its key for this id.
    pub fn revoke(&mut self, wire: WireId) {
        self.wanted.take_if(|wanted| *wanted == wire);
        self.keys.remove(&wire);
    }

    fn key(&self, wire: WireId) -> Key {
        self.keys.get(&wire).copied().unwrap_or(NOWHERE)
    }

    /// All requests up to this number have completed.
    pub fn completed(&mut self, number: u64) {
        while self.flight.front().is_some_and(|flight| flight.number <= number) {
            let Some(flight) = self.flight.pop_front() else { return };
            self.range_bytes -= flight.bytes;
            if let Some(part) = flight.part {
                self.outbox.give(part.cost);
            }
        }
    }

    /// Copies queued ranges of this id. Returns how many bytes.
    pub fn detach(&mut self, wire: WireId) -> u64 {
        let mut copied = 0;
        for item in &mut self.queue {
            match item {
                Item::Range { wire: own, ring, from, to, more } if *own == wire => {
                    let mut bytes = vec![0; (*to - *from) as usize];
                    let _lapped = ring.view(*from, *to).copy_to(0, &mut bytes);
                    copied += *to - *from;
                    let (from, more, laps) = (*from, *more, !ring.flow_control());
                    *item = Item::Copied { wire, bytes, from, done: 0, more, laps };
                }
                _ => {}
            }
        }
        copied
    }

    /// Whether the adapter may still read the ring behind this id.
    pub fn reads(&self, wire: WireId) -> bool {
        self.flight.iter().any(|flight| flight.reads_ring && flight.wire == wire)
    }

    /// Releases the ring behind this id.
    pub fn release(&mut self, wire: WireId) {
        self.origins.remove(&wire);
        for flight in &mut self.flight {
            if flight.wire == wire {
                flight.reads_ring = false;
            }
        }
    }

    /// Whether [`Event::Writable`](rocketnet::Event::Writable) is due, for the caller that reports it.
    pub fn take_writable(&mut self) -> bool {
        let writable = self.full && self.room() > 0;
        self.full &= !writable;
        writable
    }

    /// Nothing can be sent any more: releases all rings.
    pub fn kill(&mut self) {
        self.dead = true;
        self.queue = VecDeque::new();
        self.flight = VecDeque::new();
        self.origins = HashMap::new();
        self.range_bytes = 0;
        self.control_bytes = 0;
    }
}

impl Flight {
    fn nothing() -> Self {
        Self { number: 0, wire: CONTROL_WIRE, reads_ring: false, bytes: 0, part: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_gives_keys_for_so_many_ids_at_once_and_no_more() {
        let config = RdmaConfig { max_keys: 2, ..RdmaConfig::default() };
        let mut out = Outgoing::new(&config);
        let mut give = |wire| out.set_key(wire, NOWHERE);
        assert_eq!((give(1), give(2), give(1)), (Ok(()), Ok(()), Ok(())));
        assert!(give(3).is_err_and(|why| why.contains("more than 2 ids")));
        out.revoke(1);
        assert_eq!(out.set_key(3, NOWHERE), Ok(()));
    }
}
