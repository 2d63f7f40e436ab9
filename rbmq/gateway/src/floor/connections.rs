//! The connections of a gateway and what they have to send.
//!
//! A connection whose client reads slowly has ranges of the log of frames in its outbox. Before the log overwrites them they are copied. Beyond
//! `max_lag_bytes` its policy acts, and where the queues, replies and incomplete commands of all clients together exceed twice the size of the log, the
//! client that has most is disconnected.

mod delays;
mod outlets;

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use peers::{LogLimiter, Place};
use rustix::event::epoll::{self, EventFlags};
use slab::Slab;
use tracing::{debug, warn};

use super::frames::Frames;
use super::metering::Metering;
use super::outbox::{MAX_SLICES, Outbox};
use super::socket::Socket;
use crate::protocol::{ConnId, Outlets, Range};

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

    /// The client sends nothing more: the connection ends after what is queued. What is blocked is executed first, and then the end is read again.
    pub(crate) fn on_end(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id).filter(|conn| conn.blocked.is_none()) {
            conn.has_ended = true;
            self.close(id, "the client left");
        }
    }

    /// A client that waits for news sends nothing more: its connection ends after the replies to what it has sent before.
    pub(crate) fn leave(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id) {
            conn.blocked = None;
        }
        self.on_end(id);
    }

    /// A client sends nothing more, as the kernel says. Where its commands cannot be executed yet, they have some time. Returns whether they wait.
    pub(crate) fn has_left(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.get_mut(id).filter(|conn| conn.blocked == Some(Until::Resumed)) else {
            return false;
        };
        conn.left.get_or_insert_with(Instant::now);
        true
    }

    /// Ends connections that have waited for too long: strangers that have said nothing of use, those whose client has left while its commands wait,
    /// and those that are closed and whose client reads nothing. Returns whether there are any such connections left.
    pub(crate) fn sweep(&mut self, now: Instant, limits: &SweepLimits) -> bool {
        let (mut over, mut left) = (Vec::new(), false);
        for (_, conn) in &self.conns {
            let since = |at: Instant| now.saturating_duration_since(at);
            match &conn.closing {
                // What the limits of the connection hold back is no fault of its client.
                Some((at, reason))
                    if since(conn.sends_since().map_or(*at, |since| since.max(*at))) >= limits.closing =>
                {
                    over.push((conn.id, reason.clone()));
                }
                _ if conn.place.is_leaving() => {
                    over.push((conn.id, "it made room for another connection".into()))
                }
                None if conn.blocked == Some(Until::Resumed)
                    && conn.left.is_some_and(|at| since(at) >= LEFT) =>
                {
                    over.push((conn.id, "the client left, and what it has sent cannot be executed".into()));
                }
                None if conn.place.is_known() => left |= conn.left.is_some(),
                None if since(conn.since) >= limits.stranger => {
                    over.push((conn.id, format!("it has said nothing of use for {:?}", limits.stranger)));
                }
                _ => left = true,
            }
        }
        for (id, reason) in over {
            let is_turned_away = |conn: &Conn| !conn.is_closing() && conn.left.is_none();
            self.counts.turned_away += u64::from(self.get(id).is_some_and(is_turned_away));
            self.end(id, &reason);
        }
        left
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

    /// Ends a connection at once.
    pub(crate) fn end(&mut self, id: ConnId, reason: &str) {
        let Some(conn) = self.get_mut(id) else { return };
        conn.socket.end();
        let conn = self.conns.remove(index(id));
        self.pending -= usize::from(conn.is_pending);
        self.memory -= conn.charge;
        if !conn.lingers {
            debug!(peer = %conn.address, "disconnected: {reason}");
        }
        if conn.is_open {
            self.ended.push(id);
        }
    }

    /// Something of a connection has changed: [`Connections::flush`] looks at it.
    pub(crate) fn mark(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id)
            && !conn.is_dirty
        {
            conn.is_dirty = true;
            self.dirty.push(id);
        }
    }

    /// Sends what is queued, as far as the sockets take it.
    pub(crate) fn flush(&mut self) {
        while let Some(id) = self.dirty.pop() {
            let Some(conn) = self.conns.get_mut(index(id)).filter(|conn| conn.id == id) else { continue };
            conn.is_dirty = false;
            let sent = send(conn, &self.frames, &mut self.counts);
            // Also if the socket is full of what was taken before.
            if let Some(at) = conn.metering.as_deref().and_then(Metering::send_at) {
                self.delayed.insert((at, id));
            }
            match sent {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => conn.is_full = true,
                Err(error) => {
                    self.end(id, &format!("cannot send: {error}"));
                    continue;
                }
            }
            self.settle(id);
        }
        if self.pending == 0 {
            self.oldest = u64::MAX;
            self.frames.rewind();
        }
    }

    /// Asks the kernel for what the connection waits for, or ends it.
    fn settle(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(index(id)) else { return };
        if std::mem::replace(&mut conn.is_pending, !conn.outbox.is_empty()) && conn.outbox.is_empty() {
            self.pending -= 1;
        }
        let is_empty = conn.outbox.is_empty() && !conn.socket.has_waiting();
        if conn.lingers {
            return self.count_memory(id);
        }
        if is_empty && (conn.is_full || conn.is_deep) {
            (conn.is_full, conn.is_deep) = (false, false);
            self.drained.push(id);
        }
        if is_empty && conn.blocked == Some(Until::Sent) {
            conn.blocked = None;
            self.resumed.push(id);
        }
        if is_empty && let Some((_, reason)) = &conn.closing {
            let reason = reason.clone();
            return if conn.has_ended { self.end(id, &reason) } else { self.linger(id, &reason) };
        }
        self.count_memory(id);
        self.watch(id, true);
    }

    /// While nothing is sent: the kernel tells only what is to be read, or it would tell the rest again and again.
    pub(crate) fn hold(&mut self) {
        for at in 0..self.dirty.len() {
            self.watch(self.dirty[at], false);
        }
    }

    fn watch(&mut self, id: ConnId, sends: bool) {
        let Some(conn) = self.get_mut(id).filter(|conn| !conn.lingers) else { return };
        let is_empty = conn.outbox.is_empty() && !conn.socket.has_waiting();
        let mut interest = EventFlags::RDHUP;
        interest.set(EventFlags::IN, conn.wants_input());
        let sends = sends && conn.metering.as_ref().is_none_or(|metering| metering.sends());
        interest.set(EventFlags::OUT, sends && !is_empty);
        let is_watched = match conn.blocked {
            Some(Until::News) => true,
            Some(Until::Resumed) => conn.left.is_none(),
            // A client that has left is noticed when something is sent to it.
            Some(Until::Sent) | None => conn.wants_input(),
        };
        if !is_watched {
            interest.remove(EventFlags::RDHUP);
        }
        if interest != conn.interest {
            conn.interest = interest;
            let data = epoll::EventData::new_u64(id.0);
            let stream = self.conns[index(id)].socket.stream();
            if let Err(error) = epoll::modify(&self.epoll, stream, data, interest) {
                self.end(id, &format!("cannot be watched: {error}"));
            }
        }
    }

    /// Tells a client that nothing more comes. Its connection stays until it leaves, or the sweep ends it.
    fn linger(&mut self, id: ConnId, reason: &str) {
        let Some(conn) = self.conns.get_mut(index(id)) else { return };
        conn.socket.end();
        debug!(peer = %conn.address, "disconnected: {reason}");
        (conn.lingers, conn.input) = (true, Vec::new());
        if std::mem::take(&mut conn.is_open) {
            self.ended.push(id);
        }
        let (data, interest) = (epoll::EventData::new_u64(id.0), EventFlags::IN | EventFlags::RDHUP);
        if epoll::modify(&self.epoll, conn.socket.stream(), data, interest).is_err() {
            self.end(id, reason);
        }
    }

    /// Throws away what a client has sent whose connection lingers. False: the connection does not.
    pub(crate) fn discard(&mut self, id: ConnId, buffer: &mut [u8]) -> bool {
        let Some(conn) = self.get_mut(id).filter(|conn| conn.lingers) else { return false };
        match conn.socket.read(buffer) {
            Ok(0) => self.end(id, "the client left"),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => self.end(id, "the client left"),
            _ => {}
        }
        true
    }

    /// Counts the memory of a connection, and ends those that have most where all of them have too much.
    pub(crate) fn count_memory(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(index(id)).filter(|conn| conn.id == id) else { return };
        let charge = conn.outbox.memory() + conn.input.len();
        self.memory = self.memory - std::mem::replace(&mut conn.charge, charge) + charge;
        while self.memory > self.limits.frames_bytes * 2 {
            let most =
                self.conns.iter().max_by_key(|(_, conn)| conn.charge).map(|(_, conn)| (conn.id, conn.charge));
            let Some((id, charge)) = most else { return };
            self.counts.slow_closed += 1;
            if let Some(more) = self.lines.allow(Instant::now()) {
                warn!(
                    more,
                    "a client is disconnected: {charge} bytes wait for it, the most of all, and all together have 2 × frames_bytes"
                );
            }
            self.end(id, "what waits for all clients exceeds 2 × frames_bytes, and most is for this one");
        }
    }

    /// Makes room in the log of frames: what connections still need of it is copied.
    fn make_room(&mut self, len: usize) {
        if self.frames.tail_after(len) <= self.oldest {
            return;
        }
        // A step further, so that this is rare.
        let tail = self.frames.tail_after(len) + (self.limits.frames_bytes / 16) as u64;
        let mut oldest = u64::MAX;
        for id in self.ids() {
            let Some(conn) = self.conns.get_mut(index(id)).filter(|conn| conn.id == id) else { continue };
            if conn.outbox.shared_below(tail) > 0 {
                conn.outbox.keep(tail, &self.frames);
                oldest = oldest.min(conn.outbox.oldest().unwrap_or(u64::MAX));
                self.count_memory(id);
            } else {
                oldest = oldest.min(conn.outbox.oldest().unwrap_or(u64::MAX));
            }
        }
        self.oldest = oldest;
    }

    /// Whether a connection takes so many bytes more. Its policy acts if not.
    fn admits(&mut self, id: ConnId, len: u64) -> bool {
        let limits = self.limits;
        let Some(conn) = self.get_mut(id).filter(|conn| !conn.is_closing()) else { return false };
        if !conn.is_slow(&limits, len) {
            return true;
        }
        match limits.slow {
            Slow::Drop => self.counts.dropped += 1,
            Slow::Disconnect => {
                let (waiting, peer) = (conn.outbox.bytes(), conn.address);
                self.counts.slow_closed += 1;
                if let Some(more) = self.lines.allow(Instant::now()) {
                    warn!(%peer, more, "a client reads too slowly and is disconnected: {waiting} bytes wait (max_lag_bytes)");
                }
                self.end(id, &format!("its client reads too slowly: {waiting} bytes wait (max_lag_bytes)"));
            }
        }
        false
    }

    /// Something was queued for a connection.
    fn queued(&mut self, id: ConnId) {
        if let Some(conn) = self.get_mut(id) {
            conn.is_deep |= conn.outbox.bytes() >= DEEP_BYTES;
            if !std::mem::replace(&mut conn.is_pending, true) {
                self.pending += 1;
            }
        }
        self.mark(id);
    }

    fn enqueue(&mut self, id: ConnId, head: &[u8], range: Range) -> bool {
        if !self.frames.has(range) || !self.admits(id, head.len() as u64 + u64::from(range.len)) {
            return false;
        }
        if let Some(conn) = self.conns.get_mut(index(id)) {
            conn.outbox.send(head);
            conn.outbox.push(range, &self.frames);
            self.oldest = self.oldest.min(range.position);
            self.pushes += 1;
        }
        self.queued(id);
        true
    }
}

fn index(id: ConnId) -> usize {
    usize::try_from(id.0 & u64::from(u32::MAX)).expect("an index of 32 bits")
}

/// Sends everything that is queued, or as much as the limits of the connection allow: until then the rest waits.
fn send(conn: &mut Conn, frames: &Frames, counts: &mut ConnectionCounts) -> io::Result<()> {
    conn.socket.flush()?;
    while !conn.outbox.is_empty() {
        let mut most = usize::MAX;
        if let Some(metering) = &mut conn.metering {
            match metering.may_send(conn.outbox.bytes(), Instant::now()) {
                Ok(bytes) => most = bytes,
                Err(_) => break,
            }
        }
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let used = conn.outbox.slices(frames, most, &mut slices);
        match conn.socket.write(&slices[..used]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                conn.outbox.sent(count);
                counts.sent_bytes += count as u64;
                if let Some(metering) = &mut conn.metering {
                    metering.sent(count);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    conn.socket.flush()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use peers::{PlaceLimits, Places};

    use super::super::transport::Transport;
    use super::*;

    /// Connections, and the other ends of so many, which read nothing.
    fn silent(count: usize, limits: ConnectionLimits) -> (Connections, Vec<ConnId>, Vec<TcpStream>) {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
        let (mut connections, now) = (Connections::new(epoll, limits), Instant::now());
        let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
        let places = Places::new(PlaceLimits::new(1000, "max"), |_| ());
        let (mut ids, mut others) = (Vec::new(), Vec::new());
        for _ in 0..count {
            others.push(TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens"));
            let (stream, address) = listener.accept().expect("one has connected");
            stream.set_nonblocking(true).expect("a socket");
            let place = places.enter(address.ip(), now).expect("a place");
            let socket = Socket::new(Transport::new(stream, None), None);
            ids.push(connections.add(socket, address, place, now).expect("it is watched"));
        }
        (connections, ids, others)
    }

    #[test]
    fn what_waits_for_all_clients_together_has_a_limit() {
        let limits = ConnectionLimits { frames_bytes: 1 << 20, max_lag_bytes: 8 << 20, slow: Slow::Drop };
        let (mut connections, ids, _others) = silent(8, limits);
        let frame = vec![b'f'; 64 << 10];
        // The kernel takes some MiB for each.
        for n in 0..1000 {
            let range = connections.frame(&[&frame]);
            for id in &ids {
                // Some get every other frame, and have a piece for each.
                if n % 2 == 0 || id.0 % 2 == 0 {
                    connections.push(*id, range);
                }
            }
            connections.flush();
            assert!(connections.memory <= 2 * limits.frames_bytes, "{}", connections.memory);
        }
        assert!(
            connections.counts.slow_closed > 0 && connections.take_ended().is_empty(),
            "nobody was told of them"
        );
        let charges: usize = connections.conns.iter().map(|(_, conn)| conn.charge).sum();
        assert_eq!(connections.memory, charges);
        connections.ids().into_iter().for_each(|id| connections.end(id, "the end"));
        assert_eq!((connections.memory, connections.pending), (0, 0));
    }

    #[test]
    fn a_client_that_left_while_its_commands_wait_is_noticed() {
        let limits = ConnectionLimits { frames_bytes: 1 << 20, max_lag_bytes: 8 << 20, slow: Slow::Drop };
        let (mut connections, ids, mut others) = silent(3, limits);
        let sweep = SweepLimits { stranger: Duration::from_secs(3600), closing: Duration::from_secs(5) };
        ids.iter().for_each(|id| connections.known(*id));
        ids[..2].iter().for_each(|id| connections.block(*id, Until::Resumed));
        connections.flush();
        others.remove(0);
        let mut events = Vec::with_capacity(8);
        let spare = rustix::buffer::spare_capacity(&mut events);
        epoll::wait(connections.epoll(), spare, None).expect("the client left");
        assert_eq!((events.len(), events[0].data.u64(), events[0].flags), (1, ids[0].0, EventFlags::RDHUP));
        assert!(connections.has_left(ids[0]) && !connections.has_left(ids[2]));
        connections.mark(ids[0]);
        connections.flush();
        events.clear();
        let spare = rustix::buffer::spare_capacity(&mut events);
        let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(epoll::wait(connections.epoll(), spare, Some(&zero)), Ok(0), "it is told once");
        let now = Instant::now();
        assert!(connections.sweep(now, &sweep) && connections.len() == 3);
        assert!(!connections.sweep(now + LEFT, &sweep));
        assert_eq!(connections.ids(), ids[1..]);
        assert_eq!(connections.counts.turned_away, 0);
    }

    #[test]
    fn a_range_that_was_overwritten_is_not_queued() {
        let limits = ConnectionLimits { frames_bytes: 1 << 20, max_lag_bytes: 8 << 20, slow: Slow::Drop };
        let (mut connections, ids, _others) = silent(1, limits);
        let first = connections.frame(&[b"first"]);
        assert!(connections.is_there(first) && connections.push(ids[0], first));
        let (early, frame) = (connections.frame(&[b"early"]), vec![b'f'; 200 << 10]);
        (0..6).for_each(|_| _ = connections.frame(&[&frame]));
        assert!(!connections.is_there(early) && !connections.push(ids[0], early));
        assert_eq!(connections.queued_bytes(ids[0]), 5, "what was queued before was copied");
    }
}
