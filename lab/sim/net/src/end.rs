//! An end of a connection: the state at its host.

use std::collections::{BTreeMap, VecDeque};

use rocketring::{Position, RingReceiver};

use rocketnet::contract::{ConnId, Down, Event, WireId};

/// A direction of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Direction {
    /// The connection.
    pub(crate) no: u64,
    /// The end that sends.
    pub(crate) side: usize,
    /// Nothing crosses any more.
    pub(crate) cut: bool,
}

impl Direction {
    /// The sender's id of the connection.
    pub(crate) fn id(self) -> ConnId {
        end_id(self.no, self.side)
    }
}

/// The id by which one end knows a connection.
pub(crate) fn end_id(no: u64, side: usize) -> ConnId {
    ConnId(no * 2 + side as u64)
}

/// The phase of an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Requested, not answered.
    Connecting,
    /// Reported as Incoming, not adopted yet.
    Pending,
    /// Both directions work.
    Up,
    /// Closed at this end for this reason. The queue is still sent.
    Closing(String),
    /// Down was reported, or the next poll reports it.
    Down,
    /// Forgotten, or its host is dead.
    Gone,
}

/// A ring receiver, bound to a wire id.
pub(crate) struct Bound {
    pub(crate) receiver: RingReceiver,
    /// Changes when bytes that one-sided writes have put ahead of the head are no longer in the right place.
    pub(crate) era: u64,
}

/// An end of a connection.
pub(crate) struct End {
    pub(crate) host: u32,
    pub(crate) owner: Option<u64>,
    pub(crate) phase: Phase,
    pub(crate) paused: bool,
    pub(crate) receivers: BTreeMap<WireId, Bound>,
    /// Events that do not come from arriving bytes. At most one Landed per wire.
    pub(crate) events: VecDeque<Event>,
    /// The connection broke. Arrived bytes may still be read.
    pub(crate) breaking: bool,
    eras: u64,
}

impl End {
    pub(crate) fn new(host: u32, owner: Option<u64>, phase: Phase) -> Self {
        Self {
            host,
            owner,
            phase,
            paused: false,
            receivers: BTreeMap::new(),
            events: VecDeque::new(),
            breaking: false,
            eras: 0,
        }
    }

    pub(crate) fn next_era(&mut self) -> u64 {
        self.eras += 1;
        self.eras
    }

    pub(crate) fn over(&self) -> bool {
        matches!(self.phase, Phase::Down | Phase::Gone)
    }

    pub(crate) fn may_send(&self) -> bool {
        matches!(self.phase, Phase::Up | Phase::Closing(_))
    }

    /// Landed is cumulative: a queued event is updated instead of adding another.
    pub(crate) fn report_landed(&mut self, id: ConnId, wire: WireId, to: Position) {
        if self.phase != Phase::Up {
            return;
        }
        for event in &mut self.events {
            if let Event::Landed(_, w, queued) = event
                && *w == wire
            {
                *queued = to.max(*queued);
                return;
            }
        }
        self.events.push_back(Event::Landed(id, wire, to));
    }
}

/// The results of one poll of one connection.
pub(crate) struct Reading<'e> {
    pub(crate) id: ConnId,
    pub(crate) max_control: usize,
    pub(crate) arrived: Vec<WireId>,
    pub(crate) events: &'e mut Vec<Event>,
}

impl Reading<'_> {
    /// Reports [`Event::Arrived`], once for each wire.
    pub(crate) fn arrived(&mut self, wire: WireId) {
        if !self.arrived.contains(&wire) {
            self.arrived.push(wire);
            self.events.push(Event::Arrived(self.id, wire));
        }
    }
}

/// Refuses a write past the ring's grant: the peer's fault. Without flow control there is no grant.
pub(crate) fn check_room(receiver: &RingReceiver, wire: WireId, size: u64) -> Result<(), Down> {
    let room = receiver.room();
    if receiver.ring().flow_control() && size > room {
        return Err(Down::Overrun { wire, at: receiver.ring().head(), size, over: size - room });
    }
    Ok(())
}

/// Copies everything to the ring receiver's head: without flow control in chunks, each announced before it is written.
pub(crate) fn copy_in(receiver: &mut RingReceiver, wire: WireId, bytes: &[u8]) -> Result<(), Down> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let n = receiver.copy_in(rest);
        if n == 0 {
            let (at, size) = (receiver.ring().head(), rest.len() as u64);
            return Err(Down::Overrun { wire, at, size, over: size });
        }
        rest = &rest[n..];
    }
    Ok(())
}
