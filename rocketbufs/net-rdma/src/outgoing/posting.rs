//! Posting the queue to the adapter: in order, as far as there is room, and asking the peer where there is none.

use rocketnet::WireId;
use rocketnet::wire::MORE_BIT;
use rocketring::{Position, Ring};

use super::{Flight, Item, NOWHERE, Origin, Outgoing};
use crate::frame::{self, Key, Record};
use crate::receives::Receives;
use crate::sys::{QueuePair, Source, Verb};

/// The most requests from one signalled request to the next.
const SIGNAL_EVERY: u32 = 16;
/// The largest piece of a copy.
const PIECE_BYTES: u64 = 64 << 10;

/// Whether the next range can be written.
enum Way {
    Open,
    /// After the peer was asked about this id.
    Ask(WireId),
    /// The peer was asked, and has not answered.
    Shut,
}

/// A piece of a range, as one request writes it.
#[derive(Clone, Copy)]
struct Piece {
    wire: WireId,
    /// The peer's ring.
    key: Key,
    at: Position,
    len: u64,
    /// The peer is asked before it is written over what it may not have read.
    laps: bool,
    /// The delivery goes on behind this piece.
    more: bool,
}

impl Outgoing {
    /// Whether a request can be posted, and one more that is signalled.
    fn has_room(&self) -> bool {
        self.flight.len() as u32 + 1 < self.depth
    }

    /// Posts the items that there is room for. True if everything was posted. The error ends the connection.
    pub fn flush(&mut self, queue_pair: &mut QueuePair, receives: &mut Receives) -> Result<bool, String> {
        self.ahead.handled(receives.handled());
        while self.has_room() && receives.sendable() > 0 {
            let Some(item) = self.queue.front() else { break };
            let posted = match (item, self.way(item)) {
                (Item::Frame(_), _) => self.post_frame(queue_pair, receives)?,
                (_, Way::Shut) => false,
                (_, Way::Ask(wire)) => self.ask(wire),
                (Item::Range { .. }, Way::Open) => self.post_range(queue_pair, receives)?,
                (Item::Copied { .. }, Way::Open) => self.post_copied(queue_pair, receives)?,
            };
            if !posted {
                break;
            }
        }
        if receives.should_report() && self.has_room() {
            self.queue.push_front(Item::Frame(frame::empty()));
            self.control_bytes += frame::FRAME_HEAD;
            if !self.post_frame(queue_pair, receives)? {
                self.control_bytes -= frame::FRAME_HEAD;
                self.queue.pop_front();
            }
        }
        if self.unsignalled > 0 && (self.flight.len() as u32) < self.depth {
            let nothing = Verb::Write { address: 0, key: 0, tell: None };
            self.post(queue_pair, nothing, &Source::Outbox(0, 0), true, Flight::nothing())?;
        }
        Ok(self.queue.is_empty())
    }

    /// Whether the first item of the queue can be written. An empty range only reports where a delivery ends, and needs no
    /// memory.
    fn way(&self, item: &Item) -> Way {
        let (wire, at, left, laps) = match item {
            Item::Frame(_) => return Way::Open,
            Item::Range { wire, ring, from, to, .. } => (*wire, *from, to - from, !ring.flow_control()),
            Item::Copied { wire, bytes, from, done, laps, .. } => {
                (*wire, from + *done as u64, (bytes.len() - done) as u64, *laps)
            }
        };
        let Some(key) = self.keys.get(&wire) else {
            return match (left, self.wanted) {
                (0, _) => Way::Open,
                (_, None) => Way::Ask(wire),
                (_, Some(_)) => Way::Shut,
            };
        };
        if key.capacity == 0 || !laps || self.ahead.fits(wire, at + key.piece(at, left, laps), key.capacity) {
            Way::Open
        } else if self.ahead.is_asked(wire) {
            Way::Shut
        } else {
            Way::Ask(wire)
        }
    }

    /// Asks the peer for its key of this id, or how far it is. True: there is an item to post.
    fn ask(&mut self, wire: WireId) -> bool {
        if self.keys.contains_key(&wire) {
            self.ahead.asked(wire);
        } else {
            self.wanted = Some(wire);
        }
        let mut frame = frame::empty();
        frame::push(&mut frame, Record::Want(wire));
        self.control_bytes += frame.len();
        self.queue.push_front(Item::Frame(frame));
        true
    }

    /// Posts one request, and records it.
    fn post(
        &mut self,
        queue_pair: &mut QueuePair,
        verb: Verb,
        source: &Source<'_>,
        signalled: bool,
        flight: Flight,
    ) -> Result<(), String> {
        let length = match source {
            Source::Ring(.., length) | Source::Outbox(_, length) => *length,
        };
        self.unsignalled += 1;
        self.unsignalled_bytes += u64::from(length);
        let signalled = signalled || self.unsignalled >= SIGNAL_EVERY;
        if signalled {
            (self.unsignalled, self.unsignalled_bytes) = (0, 0);
        }
        let number = queue_pair
            .post(verb, source, signalled)
            .map_err(|error| format!("the adapter takes no request: {error}"))?;
        self.stats.requests += 1;
        self.stats.signalled += u64::from(signalled);
        self.stats.inline += u64::from(length <= queue_pair.inline_bytes());
        self.flight.push_back(Flight { number, ..flight });
        Ok(())
    }

    fn post_frame(&mut self, queue_pair: &mut QueuePair, receives: &mut Receives) -> Result<bool, String> {
        let Some(Item::Frame(frame)) = self.queue.front_mut() else { return Ok(false) };
        let Some(part) = self.outbox.take(frame.len()) else { return Ok(false) };
        receives.take();
        frame::set_posted(frame, receives.report());
        let len = frame.len();
        queue_pair.outbox(part.at, len).copy_from_slice(frame);
        self.queue.pop_front();
        self.control_bytes -= len;
        self.stats.frames += 1;
        let last = self.queue.is_empty();
        let flight = Flight { part: Some(part), ..Flight::nothing() };
        self.post(queue_pair, Verb::Send, &Source::Outbox(part.at, len as u32), last, flight)?;
        Ok(true)
    }

    /// Posts the next piece of a range.
    fn post_range(&mut self, queue_pair: &mut QueuePair, receives: &mut Receives) -> Result<bool, String> {
        let Some(Item::Range { wire, ring, from, to, more }) = self.queue.pop_front() else {
            return Ok(false);
        };
        let (key, laps) = (self.key(wire), !ring.flow_control());
        if key.capacity == 0 {
            // The peer discards ranges of this id.
            self.range_bytes -= to - from;
            return Ok(true);
        }
        let len = key.piece(from, to - from, laps);
        if len > u64::from(queue_pair.inline_bytes()) && !self.register(queue_pair, wire, &ring) {
            let mut bytes = vec![0; (to - from) as usize];
            // Lapped bytes are sent as they are, as the adapter would have read them.
            let _lapped = ring.view(from, to).copy_to(0, &mut bytes);
            self.queue.push_front(Item::Copied { wire, bytes, from, done: 0, more, laps });
            return Ok(true);
        }
        let at = from + len;
        let last = at == to;
        if !last {
            self.queue.push_front(Item::Range { wire, ring: ring.clone(), from: at, to, more });
        }
        self.stats.ranges += u64::from(last);
        self.stats.bytes += len;
        let signalled = self.queue.is_empty() || self.unsignalled_bytes + len >= ring.capacity() / 4;
        let flight = Flight { wire, reads_ring: true, bytes: len, ..Flight::nothing() };
        let verb = self.verb(receives, Piece { wire, key, at: from, len, laps, more: more || !last });
        let origins = std::mem::take(&mut self.origins);
        let region = origins.get(&wire).and_then(|origin| origin.region.as_ref());
        // At most `tx_queue_bytes`, which is a u32.
        let outcome =
            self.post(queue_pair, verb, &Source::Ring(&ring, region, from, len as u32), signalled, flight);
        self.origins = origins;
        outcome.map(|()| true)
    }

    /// Posts the next piece of a copy.
    fn post_copied(&mut self, queue_pair: &mut QueuePair, receives: &mut Receives) -> Result<bool, String> {
        let Some(Item::Copied { wire, bytes, from, done, more, laps }) = self.queue.front_mut() else {
            return Ok(false);
        };
        let (wire, at, laps) = (*wire, *from + *done as u64, *laps);
        let key = self.keys.get(&wire).copied().unwrap_or(NOWHERE);
        let left = (bytes.len() - *done) as u64;
        if key.capacity == 0 {
            self.queue.pop_front();
            self.range_bytes -= left;
            return Ok(true);
        }
        let len = key.piece(at, left, laps).min(PIECE_BYTES) as usize;
        let Some(part) = self.outbox.take(len) else { return Ok(false) };
        queue_pair.outbox(part.at, len).copy_from_slice(&bytes[*done..*done + len]);
        *done += len;
        let last = *done == bytes.len();
        let more = *more || !last;
        if last {
            self.queue.pop_front();
            self.stats.ranges += 1;
        }
        self.stats.bytes += len as u64;
        self.stats.copied += len as u64;
        let verb = self.verb(receives, Piece { wire, key, at, len: len as u64, laps, more });
        let flight = Flight { wire, bytes: len as u64, part: Some(part), ..Flight::nothing() };
        let signal = self.queue.is_empty();
        self.post(queue_pair, verb, &Source::Outbox(part.at, len as u32), signal, flight)?;
        Ok(true)
    }

    /// The write of a piece, which takes a receive.
    fn verb(&mut self, receives: &mut Receives, piece: Piece) -> Verb {
        let Piece { wire, key, at, len, laps, more } = piece;
        let used = receives.take();
        if laps && len > 0 {
            self.ahead.posted(wire, used, at);
            if self.ahead.should_ask(wire, at + len, key.capacity) {
                self.ask(wire);
            }
        }
        let tell = Some(wire | if more { MORE_BIT } else { 0 });
        Verb::Write { address: key.address + (at & (key.capacity - 1)), key: key.key, tell }
    }

    /// Registers a ring, if it is not yet. False if it cannot be registered.
    fn register(&mut self, queue_pair: &QueuePair, wire: WireId, ring: &Ring) -> bool {
        match self.origins.get(&wire) {
            Some(origin) if origin.ring.ptr_eq(ring) => origin.region.is_some(),
            _ => {
                let region = queue_pair.source(ring);
                if let Err(error) = &region {
                    tracing::debug!(wire, error, "a ring cannot be registered; its ranges are copied");
                }
                let origin = Origin { ring: ring.clone(), region: region.ok() };
                let is_registered = origin.region.is_some();
                self.origins.insert(wire, origin);
                is_registered
            }
        }
    }
}
