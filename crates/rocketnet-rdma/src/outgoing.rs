//! The sending half of a connection: what is queued, and what the adapter has not finished.
//!
//! ```text
//!   queue                                     flight                              told
//!   range │ frame │ copied │ range ── post ─▶ 17 │ 18 │ … │ 32 (signalled) ─────▶ Sent, the outbox's place
//!            place at the peer: `Receives`      at most `send_depth`
//! ```
//!
//! * A range is written from where it lies into the peer's ring at the same position, and the word that tells it is its id:
//!   one request, two where it goes over the end of the peer's ring.
//! * A request is signalled if it is the last that is queued, or the sixteenth, or a quarter of the ring's bytes have
//!   gone unsignalled. Where posting stops for another reason, an empty write that nobody is told of is signalled.
//! * What another process writes (it must be looked at before it leaves), what cannot be registered and what was
//!   detached is copied to the outbox and goes in pieces.

use std::collections::{HashMap, HashSet, VecDeque};

use rocketnet::wire::{CONTROL_WIRE, MORE_BIT};
use rocketnet::{ConnId, Event, NotWritten, QueueFull, SourceRange, WireId};
use rocketring::{Position, Ring};

use crate::config::{MAX_QUEUED_ITEMS, RdmaConfig};
use crate::counts::Counts;
use crate::frame::{self, Key, Record};
use crate::outbox::{Outbox, Part};
use crate::receives::Receives;
use crate::sys::{Link, RingRegion, Source, Verb};

/// Requests between two that are signalled, one of the two counted.
const SIGNAL_EVERY: u32 = 16;
/// The largest piece of a copy.
const PIECE_BYTES: u64 = 64 << 10;
/// Where what is empty is written.
const NOWHERE: Key = Key { key: 0, address: 0, capacity: 1 };
/// A range can take two requests.
const REQUESTS: u32 = 2;

enum Item {
    Range {
        wire: WireId,
        ring: Ring,
        from: Position,
        to: Position,
        more: bool,
    },
    /// The bytes from `from` on, of which `done` have gone.
    Copied {
        wire: WireId,
        bytes: Vec<u8>,
        from: Position,
        done: usize,
        more: bool,
        /// Whether it is told when it was sent: not after `detach`.
        tells: bool,
    },
    Frame(Vec<u8>),
}

/// A request that has not completed.
struct Flight {
    number: u64,
    told: Option<(WireId, Position)>,
    wire: WireId,
    bytes: u64,
    part: Option<Part>,
}

/// A ring that is sent from, registered if it can be.
struct Origin {
    ring: Ring,
    region: Option<RingRegion>,
}

/// What waits to be sent on one connection, and what is under way.
pub(crate) struct Outgoing {
    queue: VecDeque<Item>,
    flight: VecDeque<Flight>,
    outbox: Outbox,
    origins: HashMap<WireId, Origin>,
    keys: HashMap<WireId, Key>,
    wanted: HashSet<WireId>,
    range_bytes: u64,
    control_bytes: usize,
    max_range_bytes: u64,
    max_control_bytes: usize,
    depth: u32,
    unsignalled: u32,
    unsignalled_bytes: u64,
    sent: HashMap<WireId, Position>,
    full: bool,
    dead: bool,
    pub counts: Counts,
}

impl Outgoing {
    pub fn new(config: &RdmaConfig) -> Self {
        Self {
            queue: VecDeque::new(),
            flight: VecDeque::new(),
            outbox: Outbox::new(config.outbox_bytes),
            origins: HashMap::new(),
            keys: HashMap::new(),
            wanted: HashSet::new(),
            range_bytes: 0,
            control_bytes: 0,
            max_range_bytes: config.tx_queue_bytes.into(),
            max_control_bytes: config.tx_control_bytes,
            depth: config.send_depth,
            unsignalled: 0,
            unsignalled_bytes: 0,
            sent: HashMap::new(),
            full: false,
            dead: false,
            counts: Counts::default(),
        }
    }

    pub fn room(&self) -> u64 {
        if self.dead || self.queue.len() >= MAX_QUEUED_ITEMS {
            return 0;
        }
        self.max_range_bytes.saturating_sub(self.range_bytes)
    }

    /// Everything has left and was acknowledged.
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
        if ring.is_peers() && size > 0 {
            // Whoever writes there may not keep what it promised. What was copied before the check is what it was.
            let mut bytes = vec![0; size as usize];
            ring.view(from, to).copy_to(0, &mut bytes).map_err(|_lapped| NotWritten::Overwritten)?;
            self.queue.push_back(Item::Copied { wire, bytes, from, done: 0, more, tells: true });
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
            if open < rest.len().min(64) || open == 0 {
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
            debug_assert!(pushed, "an empty frame has place for any record");
            self.control_bytes += frame.len();
            self.queue.push_back(Item::Frame(frame));
        }
    }

    /// The peer said where ranges of this id are to be written; None: nowhere any more.
    pub fn set_key(&mut self, wire: WireId, key: Option<Key>) {
        self.wanted.remove(&wire);
        match key {
            Some(key) => self.keys.insert(wire, key),
            None => self.keys.remove(&wire),
        };
    }

    fn key(&self, wire: WireId) -> Key {
        self.keys.get(&wire).copied().unwrap_or(NOWHERE)
    }

    /// Posts what there is place for. True if everything left. The error ends the connection.
    pub fn flush(&mut self, link: &mut Link, receives: &mut Receives) -> Result<bool, String> {
        while self.flight.len() as u32 + REQUESTS < self.depth && receives.sendable() >= REQUESTS {
            let posted = match self.queue.front() {
                None => break,
                Some(Item::Frame(_)) => self.post_frame(link, receives)?,
                Some(item) if let Some(wire) = item.lacks_key(&self.keys) => {
                    if !self.wanted.insert(wire) {
                        break;
                    }
                    let mut frame = frame::empty();
                    frame::push(&mut frame, Record::Want(wire));
                    self.control_bytes += frame.len();
                    self.queue.push_front(Item::Frame(frame));
                    true
                }
                Some(Item::Range { .. }) => self.post_range(link, receives)?,
                Some(Item::Copied { .. }) => self.post_piece(link, receives)?,
            };
            if !posted {
                break;
            }
        }
        if receives.should_tell() && (self.flight.len() as u32) < self.depth {
            self.queue.push_front(Item::Frame(frame::empty()));
            self.control_bytes += frame::FRAME_HEAD;
            if !self.post_frame(link, receives)? {
                self.control_bytes -= frame::FRAME_HEAD;
                self.queue.pop_front();
            }
        }
        if self.unsignalled > 0 && (self.flight.len() as u32) < self.depth {
            let nothing = Verb::Write { address: 0, key: 0, tell: None };
            self.post(link, nothing, &Source::Outbox(0, 0), true, Flight::nothing())?;
        }
        Ok(self.queue.is_empty())
    }

    /// Posts one request, and notes it.
    fn post(
        &mut self,
        link: &mut Link,
        verb: Verb,
        source: &Source<'_>,
        told: bool,
        flight: Flight,
    ) -> Result<(), String> {
        let length = match source {
            Source::Ring(.., length) | Source::Outbox(_, length) => *length,
        };
        self.unsignalled += 1;
        self.unsignalled_bytes += u64::from(length);
        let told = told || self.unsignalled >= SIGNAL_EVERY;
        if told {
            (self.unsignalled, self.unsignalled_bytes) = (0, 0);
        }
        let number = link
            .post(verb, source, told)
            .map_err(|error| format!("the adapter takes no request: {error}"))?;
        self.counts.requests += 1;
        self.counts.signalled += u64::from(told);
        self.counts.inline += u64::from(length <= link.inline_bytes());
        self.flight.push_back(Flight { number, ..flight });
        Ok(())
    }

    fn post_frame(&mut self, link: &mut Link, receives: &mut Receives) -> Result<bool, String> {
        let Some(Item::Frame(frame)) = self.queue.front_mut() else { return Ok(false) };
        let Some(part) = self.outbox.take(frame.len()) else { return Ok(false) };
        receives.take();
        frame::set_posted(frame, receives.tell());
        let len = frame.len();
        link.outbox(part.at, len).copy_from_slice(frame);
        self.queue.pop_front();
        self.control_bytes -= len;
        self.counts.frames += 1;
        let last = self.queue.is_empty();
        let flight = Flight { part: Some(part), ..Flight::nothing() };
        self.post(link, Verb::Send, &Source::Outbox(part.at, len as u32), last, flight)?;
        Ok(true)
    }

    fn post_range(&mut self, link: &mut Link, receives: &mut Receives) -> Result<bool, String> {
        let Some(Item::Range { wire, ring, from, to, more }) = self.queue.pop_front() else {
            return Ok(false);
        };
        let (size, key) = (to - from, self.key(wire));
        if key.capacity == 0 {
            self.throw_away(wire, size, Some(to));
            return Ok(true);
        }
        if size > key.capacity {
            return Err(format!(
                "a range of {size} bytes for a ring of {} (wire id {wire:#x})",
                key.capacity
            ));
        }
        let origin =
            if size > u64::from(link.inline_bytes()) { self.register(link, wire, &ring) } else { true };
        if !origin {
            let mut bytes = vec![0; size as usize];
            // Lapped bytes are sent as they are, as the adapter would have read them.
            let _lapped = ring.view(from, to).copy_to(0, &mut bytes);
            self.queue.push_front(Item::Copied { wire, bytes, from, done: 0, more, tells: true });
            return Ok(true);
        }
        self.counts.ranges += 1;
        self.counts.bytes += size;
        let offset = from & (key.capacity - 1);
        let first = size.min(key.capacity - offset);
        let origins = std::mem::take(&mut self.origins);
        let region = origins.get(&wire).and_then(|origin| origin.region.as_ref());
        let mut outcome = Ok(());
        let pieces = [(from, offset, first, first == size), (from + first, 0, size - first, true)];
        for &(at, offset, len, last) in &pieces[..if first == size { 1 } else { 2 }] {
            let told = last && (self.queue.is_empty() || self.unsignalled_bytes + len >= ring.capacity() / 4);
            receives.take();
            let tell = Some(wire | if more || !last { MORE_BIT } else { 0 });
            let verb = Verb::Write { address: key.address + offset, key: key.key, tell };
            let flight = Flight { told: Some((wire, at + len)), wire, bytes: len, ..Flight::nothing() };
            // At most `tx_queue_bytes`, which is a u32.
            outcome = self.post(link, verb, &Source::Ring(&ring, region, at, len as u32), told, flight);
            if outcome.is_err() {
                break;
            }
        }
        self.origins = origins;
        outcome.map(|()| true)
    }

    /// Posts the next piece of a copy.
    fn post_piece(&mut self, link: &mut Link, receives: &mut Receives) -> Result<bool, String> {
        let Some(Item::Copied { wire, bytes, from, done, more, tells }) = self.queue.front_mut() else {
            return Ok(false);
        };
        let (wire, at, key) = (*wire, *from + *done as u64, self.keys.get(wire).copied().unwrap_or(NOWHERE));
        let left = (bytes.len() - *done) as u64;
        if key.capacity == 0 {
            let to = tells.then_some(at + left);
            self.queue.pop_front();
            self.throw_away(wire, left, to);
            return Ok(true);
        }
        let offset = at & (key.capacity - 1);
        let len = left.min(PIECE_BYTES).min(key.capacity - offset) as usize;
        let Some(part) = self.outbox.take(len) else { return Ok(false) };
        link.outbox(part.at, len).copy_from_slice(&bytes[*done..*done + len]);
        *done += len;
        let last = *done == bytes.len();
        let tell = Some(wire | if *more || !last { MORE_BIT } else { 0 });
        let told_at = tells.then_some((wire, at + len as u64));
        if last {
            self.queue.pop_front();
            self.counts.ranges += 1;
        }
        self.counts.bytes += len as u64;
        self.counts.copied += len as u64;
        receives.take();
        let verb = Verb::Write { address: key.address + offset, key: key.key, tell };
        let flight = Flight { told: told_at, wire, bytes: len as u64, part: Some(part), number: 0 };
        let signal = self.queue.is_empty();
        self.post(link, verb, &Source::Outbox(part.at, len as u32), signal, flight)?;
        Ok(true)
    }

    /// The peer wants nothing of this id any more.
    fn throw_away(&mut self, wire: WireId, bytes: u64, told: Option<Position>) {
        self.range_bytes -= bytes;
        if let Some(to) = told {
            self.sent.insert(wire, to);
        }
    }

    /// Makes sure that a ring is registered. False if it cannot be.
    fn register(&mut self, link: &Link, wire: WireId, ring: &Ring) -> bool {
        match self.origins.get(&wire) {
            Some(origin) if origin.ring.ptr_eq(ring) => origin.region.is_some(),
            _ => {
                let region = link.source(ring);
                if let Err(error) = &region {
                    tracing::debug!(wire, error, "a ring cannot be registered; what is sent of it is copied");
                }
                let origin = Origin { ring: ring.clone(), region: region.ok() };
                let is_registered = origin.region.is_some();
                self.origins.insert(wire, origin);
                is_registered
            }
        }
    }

    /// Everything up to this request has completed.
    pub fn completed(&mut self, number: u64) {
        while self.flight.front().is_some_and(|flight| flight.number <= number) {
            let Some(flight) = self.flight.pop_front() else { return };
            self.range_bytes -= flight.bytes;
            if let Some(part) = flight.part {
                self.outbox.give(part.cost);
            }
            if let Some((wire, to)) = flight.told {
                self.sent.insert(wire, to);
            }
        }
    }

    /// Copies what is queued of this id. Returns how many bytes.
    pub fn detach(&mut self, wire: WireId) -> u64 {
        let mut copied = 0;
        for item in &mut self.queue {
            match item {
                Item::Range { wire: own, ring, from, to, more } if *own == wire => {
                    let mut bytes = vec![0; (*to - *from) as usize];
                    let _lapped = ring.view(*from, *to).copy_to(0, &mut bytes);
                    copied += *to - *from;
                    let (from, more) = (*from, *more);
                    *item = Item::Copied { wire, bytes, from, done: 0, more, tells: false };
                }
                Item::Copied { wire: own, tells, .. } if *own == wire => *tells = false,
                _ => {}
            }
        }
        copied
    }

    /// Whether the adapter may still read of the ring behind this id.
    pub fn reads(&self, wire: WireId) -> bool {
        self.flight.iter().any(|flight| flight.told.is_some() && flight.wire == wire && flight.part.is_none())
    }

    /// Nothing is told of this id any more, and its ring is let go of.
    pub fn let_go(&mut self, wire: WireId) {
        self.origins.remove(&wire);
        self.sent.remove(&wire);
        for flight in &mut self.flight {
            if flight.wire == wire {
                flight.told = None;
            }
        }
    }

    /// Tells what the adapter has finished since the last call, each id once, and whether there is place again.
    pub fn tell(&mut self, conn: ConnId, events: &mut Vec<Event>) {
        for (wire, to) in self.sent.drain() {
            events.push(Event::Sent(conn, wire, to));
        }
        if self.full && self.room() > 0 {
            self.full = false;
            events.push(Event::Writable(conn));
        }
    }

    /// Nothing can be sent any more: lets go of all rings.
    pub fn kill(&mut self) {
        self.dead = true;
        self.queue = VecDeque::new();
        self.flight = VecDeque::new();
        self.origins = HashMap::new();
        self.range_bytes = 0;
        self.control_bytes = 0;
    }
}

impl Item {
    /// The id whose key must be known before this can be posted. An empty range says only where a delivery ends, and is
    /// written nowhere.
    fn lacks_key(&self, keys: &HashMap<WireId, Key>) -> Option<WireId> {
        let (wire, bytes) = match self {
            Item::Range { wire, from, to, .. } => (*wire, to - from),
            Item::Copied { wire, bytes, .. } => (*wire, bytes.len() as u64),
            Item::Frame(_) => return None,
        };
        (bytes > 0 && !keys.contains_key(&wire)).then_some(wire)
    }
}

impl Flight {
    fn nothing() -> Self {
        Self { number: 0, told: None, wire: CONTROL_WIRE, bytes: 0, part: None }
    }
}
