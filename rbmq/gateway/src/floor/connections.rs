//! The connections of a gateway and what they have to send.
//!
//! A connection whose client reads slowly has ranges of the log of frames in its outbox. Before the log overwrites them they are copied. Beyond
//! `max_lag_bytes` its policy acts, and where the queues, replies and incomplete commands of all clients, and what waits in TLS, together exceed twice the
//! size of the log, the client that has most is disconnected.

mod delays;
mod ending;
mod outlets;
mod room;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use peers::{LogLimiter, Place};
use rustix::event::epoll::{self, EventFlags};
use slab::Slab;

use super::frames::Frames;
use super::metering::Metering;
use super::outbox::Outbox;
use super::socket::Socket;
use crate::protocol::ConnId;

/// What a protocol adds to the largest message at most: names, properties, the words around them.
pub(crate) const MAX_FRAMING_BYTES: usize = 256 << 10;

/// Replies that a client does not read, at most, before nothing more is read from it.
const MAX_REPLY_BYTES: usize = 1 << 20;

/// The most pieces of an outbox: a piece costs 24 bytes.
const MAX_PIECES: usize = 64 << 10;

/// How long commands of a client that has left wait for a bus without room, or for a disk.
const LEFT: Duration = Duration::from_secs(30);

/// What waits for a client is much from here on: the protocol learns when it is sent.
const DEEP_BYTES: u64 = 128 << 10;

/// What happens to a client that reads too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slow {
    /// Its connection is closed.
    Disconnect,
    /// It loses messages.
    Drop,
}

/// Limits of the connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// The size of the log of frames, in bytes.
    pub(crate) frames_bytes: usize,
    /// The most bytes that wait for one client.
    pub(crate) max_lag_bytes: u64,
    /// What happens beyond.
    pub(crate) slow: Slow,
}

/// How long connections may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SweepLimits {
    /// A client that has not said anything of use.
    pub(crate) stranger: Duration,
    /// A closed connection whose client does not read what is queued.
    pub(crate) closing: Duration,
}

/// What was counted since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ConnectionCounts {
    /// Bytes that were sent.
    pub(crate) sent_bytes: u64,
    /// Messages that slow clients lost.
    pub(crate) dropped: u64,
    /// Slow clients that were disconnected.
    pub(crate) slow_closed: u64,
    /// Messages that were queued for clients, each client counted.
    pub(crate) messages: u64,
    /// Clients for which there was no place, and those that never said anything of use.
    pub(crate) turned_away: u64,
    /// Clients that broke the protocol.
    pub(crate) faults: u64,
}

/// How long nothing is read from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The next command cannot be executed yet.
    Resumed,
    /// What is queued is to be sent first.
    Sent,
    /// There is news for the client, which may leave before.
    News,
}

/// A connection.
pub(crate) struct Conn {
    id: ConnId,
    pub(crate) socket: Socket,
    pub(crate) address: SocketAddr,
    pub(crate) place: Place,
    pub(crate) since: Instant,
    /// The protocol knows of it.
    is_open: bool,
    /// Bytes that the protocol has not used yet.
    pub(crate) input: Vec<u8>,
    outbox: Outbox,
    blocked: Option<Until>,
    /// Since when it is known that the client has left, whose commands wait.
    left: Option<Instant>,
    /// The client sends nothing more.
    has_ended: bool,
    /// Everything is sent, and the client knows that nothing follows. What it has sent is thrown away until it leaves: a socket that is closed
    /// with bytes that nobody has read takes back what it has sent.
    lingers: bool,
    /// Why the connection ends, after what is queued, and since when.
    closing: Option<(Instant, String)>,
    /// Something is queued.
    is_pending: bool,
    /// The socket took less than was there.
    is_full: bool,
    is_dirty: bool,
    /// Much has waited since the outbox was last empty.
    is_deep: bool,
    /// The memory that was counted for it.
    charge: usize,
    /// What the kernel watches.
    interest: EventFlags,
    /// What limits its bytes per second.
    metering: Option<Box<Metering>>,
}

impl Conn {
    /// Whether the connection has just been made: true once, with TLS after the handshake.
    pub(crate) fn is_made(&mut self) -> bool {
        !self.is_open && self.socket.is_made() && !std::mem::replace(&mut self.is_open, true)
    }

    fn sends_since(&self) -> Option<Instant> {
        self.metering.as_deref().and_then(Metering::sends_since)
    }

    /// Whether the connection is to be closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether bytes of the client are wanted now.
    pub(crate) fn wants_input(&self) -> bool {
        self.blocked.is_none()
            && !self.is_closing()
            && self.outbox.reply_bytes() < MAX_REPLY_BYTES
            && self.metering.as_ref().is_none_or(|metering| metering.receives())
    }

    /// Whether what the client has sent cannot be executed now.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    fn is_slow(&self, limits: &ConnectionLimits, more: u64) -> bool {
        let bytes = self.outbox.bytes();
        // A single message may be larger than the limit.
        (bytes > 0 && bytes + more > limits.max_lag_bytes) || self.outbox.pieces() >= MAX_PIECES
    }
}

/// All connections. See the module.
pub(crate) struct Connections {
    epoll: OwnedFd,
    conns: Slab<Conn>,
    /// The number of the next connection, in the upper half of its id.
    next: u32,
    frames: Frames,
    limits: ConnectionLimits,
    /// No connection needs a byte of the log of frames below this position.
    oldest: u64,
    /// The number of connections with something queued.
    pending: usize,
    /// The memory of all outboxes and of what clients have sent and no protocol has used.
    memory: usize,
    /// Ranges that were queued so far.
    pushes: u64,
    dirty: Vec<ConnId>,
    resumed: Vec<ConnId>,
    /// How often connections that wait for room were asked for.
    turn: usize,
    drained: Vec<ConnId>,
    ended: Vec<ConnId>,
    /// When connections may go on that a limit on their bytes per second delays.
    delayed: BTreeSet<(Instant, ConnId)>,
    /// A connection was closed since the last sweep.
    has_closed: bool,
    lines: LogLimiter,
    counts: ConnectionCounts,
}

impl Connections {
    /// No connections. `epoll` gets an event with the id of a connection as its data.
    pub(crate) fn new(epoll: OwnedFd, limits: ConnectionLimits) -> Self {
        Self {
            epoll,
            conns: Slab::new(),
            next: 0,
            frames: Frames::new(limits.frames_bytes),
            limits,
            oldest: 0,
            pending: 0,
            memory: 0,
            pushes: 0,
            dirty: Vec::new(),
            resumed: Vec::new(),
            turn: 0,
            drained: Vec::new(),
            ended: Vec::new(),
            delayed: BTreeSet::new(),
            has_closed: false,
            lines: LogLimiter::default(),
            counts: ConnectionCounts::default(),
        }
    }

    /// What the kernel is asked with.
    pub(crate) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    /// The number of connections.
    pub(crate) fn len(&self) -> usize {
        self.conns.len()
    }

    /// The number of ranges that were queued so far.
    pub(crate) fn pushes(&self) -> u64 {
        self.pushes
    }

    /// The number of bytes that were framed so far.
    pub(crate) fn framed_bytes(&self) -> u64 {
        self.frames.head()
    }

    /// The largest frame.
    pub(crate) fn max_frame(&self) -> usize {
        self.frames.max_frame()
    }

    /// What was counted since the last call.
    pub(crate) fn take_counts(&mut self) -> ConnectionCounts {
        std::mem::take(&mut self.counts)
    }

    /// A client found no place.
    pub(crate) fn count_turned_away(&mut self) {
        self.counts.turned_away += 1;
    }

    /// Takes a connection in.
    ///
    /// # Errors
    /// The kernel does not watch it.
    pub(crate) fn add(
        &mut self,
        socket: Socket,
        address: SocketAddr,
        place: Place,
        now: Instant,
    ) -> io::Result<ConnId> {
        let entry = self.conns.vacant_entry();
        let index = u32::try_from(entry.key()).map_err(io::Error::other)?;
        let id = ConnId(u64::from(self.next) << 32 | u64::from(index));
        self.next = self.next.wrapping_add(1);
        let interest = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.epoll, socket.stream(), epoll::EventData::new_u64(id.0), interest)?;
        entry.insert(Conn {
            id,
            socket,
            address,
            place,
            since: now,
            is_open: false,
            input: Vec::new(),
            outbox: Outbox::default(),
            blocked: None,
            left: None,
            has_ended: false,
            lingers: false,
            closing: None,
            is_pending: false,
            is_full: false,
            is_dirty: false,
            is_deep: false,
            charge: 0,
            interest,
            metering: None,
        });
        Ok(id)
    }

    /// A connection, if it is still there.
    pub(crate) fn get(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(index(id)).filter(|conn| conn.id == id)
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(index(id)).filter(|conn| conn.id == id)
    }

    /// The ids of all connections.
    pub(crate) fn ids(&self) -> Vec<ConnId> {
        self.conns.iter().map(|(_, conn)| conn.id).collect()
    }

    /// The ids of the connections that wait until the bus has room, or for an answer. Each time another one is the first, since those behind may find no
    /// room any more.
    pub(crate) fn blocked(&mut self) -> Vec<ConnId> {
        let is_blocked = |conn: &Conn| conn.blocked == Some(Until::Resumed);
        let blocked = self.conns.iter().filter(|(_, conn)| is_blocked(conn));
        let mut blocked: Vec<_> = blocked.map(|(_, conn)| conn.id).collect();
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn.checked_rem(blocked.len()).unwrap_or(0);
        blocked.rotate_left(first);
        blocked
    }

    /// Whether a connection waits for news.
    pub(crate) fn waits_for_news(&self, id: ConnId) -> bool {
        self.get(id).is_some_and(|conn| conn.blocked == Some(Until::News))
    }

    /// Reads nothing more from a connection for some time.
    pub(crate) fn block(&mut self, id: ConnId, until: Until) {
        if let Some(conn) = self.get_mut(id) {
            conn.blocked = Some(until);
            self.mark(id);
        }
    }

    /// Whether a connection was closed since the last call, which a sweep may have to end.
    pub(crate) fn take_has_closed(&mut self) -> bool {
        std::mem::take(&mut self.has_closed)
    }

    /// The number of connections that do not only wait for their client to leave.
    pub(crate) fn busy(&self) -> usize {
        self.conns.iter().filter(|(_, conn)| !conn.lingers).count()
    }

    /// Whether connections are to be read again.
    pub(crate) fn has_resumed(&self) -> bool {
        !self.resumed.is_empty()
    }

    /// The connections that are to be read again.
    pub(crate) fn take_resumed(&mut self) -> Vec<ConnId> {
        std::mem::take(&mut self.resumed)
    }

    /// Whether there are connections that were full and have sent everything.
    pub(crate) fn has_drained(&self) -> bool {
        !self.drained.is_empty()
    }

    /// The connections that were full and have sent everything.
    pub(crate) fn take_drained(&mut self) -> Vec<ConnId> {
        std::mem::take(&mut self.drained)
    }

    /// The connections that have ended.
    pub(crate) fn take_ended(&mut self) -> Vec<ConnId> {
        std::mem::take(&mut self.ended)
    }
}

fn index(id: ConnId) -> usize {
    usize::try_from(id.0 & u64::from(u32::MAX)).expect("an index of 32 bits")
}
