//! The receiving half of a connection: the memory that the peer writes, and the peer's messages.
//!
//! Completions move to an inbox at once, and are handled in order. Each entry's receive is posted again only then, so that a paused
//! connection, or one with a slow session, stops its peer. A range that follows a control message is handled by a later poll:
//! the session's response (bind, unbind, skip) comes first.

use std::collections::{HashMap, HashSet, VecDeque};

use rocketnet::wire::{CONTROL_WIRE, MORE_BIT};
use rocketnet::{ConnId, Down, Event, WireId};
use rocketring::{Pool, PoolConfig, PoolError, Position, Ring, RingConfig, RingReceiver};

use crate::frame::{self, Key, Record};
use crate::outgoing::Outgoing;
use crate::receives::Receives;
use crate::sys::{Done, QueuePair, RingRegion};

/// The most bytes copied at a time from memory that stands in for a ring.
const SCRATCH_BYTES: u64 = 64 << 10;

/// A ring receiver, and the memory that the peer writes for it.
struct Bound {
    receiver: RingReceiver,
    /// The ring's own memory; or memory that stands in for it, where the ring must not be overwritten before an announcement
    /// or belongs to this process alone; or none, where nothing can land.
    region: Option<RingRegion>,
}

impl Bound {
    fn is_staged(&self) -> bool {
        self.region.as_ref().is_some_and(|region| !region.ring().ptr_eq(self.receiver.ring()))
    }

    /// Registers memory for the peer to write: the ring's own, if readers need no announcement before bytes are overwritten,
    /// and if there are no plain slices of it.
    fn register(&mut self, queue_pair: &QueuePair) -> Result<Option<Key>, String> {
        let ring = self.receiver.ring();
        if ring.capacity() == 0 {
            return Ok(None);
        }
        let own = if ring.flow_control() { ring.pin_exposed() } else { None };
        let exposed = match own {
            Some(pinned) => Some(pinned),
            None => stand_in(ring).map_err(|error| error.to_string())?.pin_exposed(),
        };
        let region = exposed.map(|exposed| queue_pair.target(exposed)).transpose()?;
        let capacity = ring.capacity();
        let key =
            region.as_ref().map(|region| Key { key: region.key(), address: region.address(), capacity });
        self.region = region;
        Ok(key)
    }

    /// Moves the head over the bytes that the peer wrote.
    fn land(&mut self, wire: WireId, bytes: u64, more: bool, scratch: &mut Vec<u8>) -> Result<(), Down> {
        let (at, flow_control) = (self.receiver.ring().head(), self.receiver.ring().flow_control());
        let room = if flow_control { self.receiver.room() } else { self.receiver.ring().capacity() };
        if self.region.is_none() && bytes > 0 || bytes > room {
            return Err(Down::Overrun { wire, at, size: bytes, over: bytes.saturating_sub(room) });
        }
        match &self.region {
            Some(region) if self.is_staged() => {
                let end = at + bytes;
                for from in (at..end).step_by(SCRATCH_BYTES as usize) {
                    let to = end.min(from + SCRATCH_BYTES);
                    scratch.resize((to - from) as usize, 0);
                    let _lapped = region.ring().view(from, to).copy_to(0, scratch);
                    self.receiver.copy_in(scratch);
                }
            }
            _ => self.receiver.land(bytes as usize),
        }
        if !more {
            self.receiver.end();
        }
        Ok(())
    }
}

/// The receiving state of one connection.
pub(crate) struct Intake {
    bound: HashMap<WireId, Bound>,
    /// Ids whose ranges are discarded.
    discarded: HashSet<WireId>,
    inbox: VecDeque<Done>,
    /// The parts of an incomplete control message.
    partial: Vec<u8>,
    scratch: Vec<u8>,
    /// A control message was dropped: the ranges behind it are not for the present bindings.
    deaf: bool,
    max_control_bytes: usize,
}

/// The parts of a connection that handling its inbox needs.
pub(crate) struct Ends<'a> {
    pub id: ConnId,
    pub queue_pair: &'a mut QueuePair,
    pub out: &'a mut Outgoing,
    pub receives: &'a mut Receives,
}

/// The result of handling the inbox.
pub(crate) enum Handled {
    /// Nothing is left.
    All,
    /// The inbox has more, for the next poll.
    More,
}

impl Intake {
    pub fn new(max_control_bytes: usize) -> Self {
        Self {
            bound: HashMap::new(),
            discarded: HashSet::new(),
            inbox: VecDeque::new(),
            partial: Vec::new(),
            scratch: Vec::new(),
            deaf: false,
            max_control_bytes,
        }
    }

    pub fn push(&mut self, done: Done) {
        self.inbox.push_back(done);
    }

    pub fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }

    /// Binds a ring receiver, and returns the message for the peer: a key, or that there is none. The receiver stays bound
    /// after any error.
    pub fn bind(
        &mut self,
        queue_pair: Option<&QueuePair>,
        wire: WireId,
        receiver: RingReceiver,
    ) -> Result<Option<Key>, String> {
        let mut bound = Bound { receiver, region: None };
        let outcome = queue_pair.map_or(Ok(None), |queue_pair| bound.register(queue_pair));
        self.bound.insert(wire, bound);
        outcome
    }

    /// Discards ranges of this id from now on. Returns the key to send to the peer.
    pub fn discard(&mut self, wire: WireId) -> Key {
        self.discarded.insert(wire);
        Key { key: 0, address: 0, capacity: 0 }
    }

    /// Returns the ring receiver: the peer can no longer write to it. And whether the peer must be notified.
    pub fn unbind(&mut self, wire: WireId) -> (Option<RingReceiver>, bool) {
        let discarded = self.discarded.remove(&wire);
        let receiver = self.bound.remove(&wire).map(|bound| bound.receiver);
        let known = discarded || receiver.is_some();
        (receiver, known)
    }

    /// Registers the rings that were bound before there was a queue pair. All receivers stay bound after any error.
    pub fn register_all(&mut self, queue_pair: &QueuePair) -> Result<Vec<(WireId, Key)>, String> {
        let mut keys = Vec::new();
        for (&wire, bound) in &mut self.bound {
            keys.extend(bound.register(queue_pair)?.map(|key| (wire, key)));
        }
        Ok(keys)
    }

    pub fn skip(&mut self, wire: WireId, to: Position) -> bool {
        let Some(bound) = self.bound.get_mut(&wire) else { return false };
        if to < bound.receiver.ring().head() {
            return false;
        }
        bound.receiver.skip(to);
        true
    }

    /// Handles the inbox. The error ends the connection. `quiet`: no events are reported, and everything behind a control
    /// message is dropped; ranges before it land, since the peer may have a report that they did.
    pub fn handle(
        &mut self,
        conn: &mut Ends<'_>,
        quiet: bool,
        events: &mut Vec<Event>,
    ) -> Result<Handled, Down> {
        let mut heard = false;
        let mut arrived: Vec<WireId> = Vec::new();
        while let Some(&next) = self.inbox.front() {
            let slot = match next {
                Done::Told { word, bytes, slot } => {
                    if quiet {
                        self.deaf |= self.deaf || self.land(word, bytes).is_err();
                    } else if heard {
                        return Ok(Handled::More);
                    } else {
                        let landed = self.land(word, bytes)?;
                        if let Some(wire) = landed.filter(|wire| !arrived.contains(wire)) {
                            arrived.push(wire);
                            events.push(Event::Arrived(conn.id, wire));
                        }
                    }
                    slot
                }
                Done::Message { slot, bytes } => {
                    let frame = conn.queue_pair.message(slot, bytes).to_vec();
                    if heard && wants(&frame) {
                        return Ok(Handled::More);
                    }
                    heard |= self.read(conn, &frame, quiet, events)?;
                    slot
                }
                Done::Sent(_) | Done::Failed(_) => unreachable!("only arrivals are in the inbox"),
            };
            self.inbox.pop_front();
            // The completions of a broken queue pair have the reason.
            if conn.queue_pair.receive(slot).is_ok() {
                conn.receives.post();
            }
        }
        Ok(Handled::All)
    }

    fn land(&mut self, word: u32, bytes: u32) -> Result<Option<WireId>, Down> {
        let (wire, more) = (word & !MORE_BIT, word & MORE_BIT != 0);
        if self.discarded.contains(&wire) {
            return Ok(None);
        }
        let bound = self.bound.get_mut(&wire).ok_or(Down::UnknownWire(wire))?;
        bound.land(wire, bytes.into(), more, &mut self.scratch)?;
        Ok(Some(wire))
    }

    /// Handles a frame. True if it had a message for the session.
    fn read(
        &mut self,
        conn: &mut Ends<'_>,
        frame: &[u8],
        quiet: bool,
        events: &mut Vec<Event>,
    ) -> Result<bool, Down> {
        let broken = |what: &str| Down::Broken(format!("the peer says what cannot be: {what}"));
        let (posted, records) = frame::split(frame).map_err(|_| broken("a message without a head"))?;
        if !conn.receives.on_told(posted) {
            return Err(broken("receives that it cannot have"));
        }
        let mut heard = false;
        for record in records {
            match record.map_err(|_| broken("a record of no known form"))? {
                Record::Control { .. } if quiet => self.deaf = true,
                Record::Control { part, more } => heard |= self.hear(conn.id, part, more, events)?,
                Record::Key(wire, _) if wire >= CONTROL_WIRE => return Err(broken("a key for no id")),
                Record::Key(wire, key) => conn.out.set_key(wire, key).map_err(|why| broken(&why))?,
                Record::Revoke(wire) => conn.out.revoke(wire),
                Record::Want(wire) if self.bound.contains_key(&wire) || self.discarded.contains(&wire) => {
                    conn.receives.urge();
                }
                Record::Want(wire) => return Err(Down::UnknownWire(wire)),
                Record::Close => return Err(Down::PeerClosed),
            }
        }
        Ok(heard)
    }

    /// The next part of a control message. True if it was the last.
    fn hear(&mut self, id: ConnId, part: &[u8], more: bool, events: &mut Vec<Event>) -> Result<bool, Down> {
        let size = self.partial.len() + part.len();
        if size > self.max_control_bytes {
            return Err(Down::ControlTooLarge { size: size as u64, max: self.max_control_bytes as u64 });
        }
        self.partial.extend_from_slice(part);
        if !more {
            events.push(Event::Control(id, std::mem::take(&mut self.partial)));
        }
        Ok(!more)
    }

    /// The queue pair is gone: the peer can no longer reach the rings.
    pub fn revoke_all(&mut self) {
        for bound in self.bound.values_mut() {
            bound.region = None;
        }
        self.inbox.clear();
    }
}

/// Memory that stands in for a ring: the peer writes it, and the bytes are copied to the ring.
fn stand_in(ring: &Ring) -> Result<Ring, PoolError> {
    let bytes = ring.capacity();
    let pool = Pool::new(PoolConfig { reservation_bytes: bytes, max_bytes: bytes })?;
    pool.ring(RingConfig { capacity_bytes: bytes, start: ring.head(), ..RingConfig::default() })
}

fn wants(frame: &[u8]) -> bool {
    frame::split(frame)
        .is_ok_and(|(_, mut records)| records.any(|record| matches!(record, Ok(Record::Want(_)))))
}
