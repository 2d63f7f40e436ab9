//! A poll: handles the kernel's events, each connection in its turn.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventFlags as Flags};

use super::conn::State;
use super::ready::{DOORBELL, LISTENER, ReadyEvents, WAKER};
use super::receive::{Progress, Turn};
use super::{Tcp, local, socket};
use crate::contract::{Accepted, AcceptedHandle, ConnId, Down, Event};

/// Connections accepted from one listener in one poll.
const ACCEPTS_PER_POLL: usize = 64;
/// The most reads from one connection in one poll.
const READS_PER_POLL: usize = 8;
/// The number of polls that serve the ready connections with little data, before the connections with much data. The bytes of
/// the first connections are sent on before the next are read, so that an answer is handled in the same round. With a poll for
/// each connection, a connection to which many publish would need a system call for each of them. Connections with much data
/// are read together: more pending bytes make larger sends.
const PORTIONS: usize = 4;
/// Steps of TLS handshakes in one poll, each about as long as the work for a megabyte of data. The kernel reports the other
/// connections again.
const SHAKES_PER_POLL: usize = 8;
/// At most this many bytes of ranges are little data.
const LITTLE_BYTES: u64 = 8 << 10;
/// How long a connection pauses when too many descriptors of this user are in sockets that are not read.
const OFFER_REST: Duration = Duration::from_millis(20);
/// How long a listener pauses when no descriptor is left for a connection.
const ACCEPT_REST: Duration = Duration::from_millis(100);

impl Tcp {
    pub(super) fn drive(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) {
        self.turn += 1;
        self.shakes_left = SHAKES_PER_POLL;
        self.follows.set_awake();
        let news = self.check_followed(events);
        if self.ready.is_empty() {
            self.take_ready(if news { Some(Duration::ZERO) } else { timeout }, news);
        } else {
            self.epoll.pass();
        }
        events.append(&mut self.backlog);
        let mut again = std::mem::take(&mut self.again);
        for id in again.drain(..) {
            if let Some(conn) = self.conns.get_mut(id) {
                conn.listed = false;
                self.receive(id, events);
            }
        }
        // Connections that were added during this poll are for the next one. The allocation is kept.
        again.append(&mut self.again);
        self.again = again;
        let mut ready = std::mem::take(&mut self.ready);
        let served = if self.little > 0 { self.little.min(self.portion) } else { ready.len() };
        self.little -= served.min(self.little);
        for (token, flags) in ready.drain(ready.len().saturating_sub(served)..).rev() {
            if token == DOORBELL {
                self.follows.clear_doorbell();
            } else if token & LISTENER != 0 {
                self.accept((token & !LISTENER) as usize, events);
            } else {
                self.serve(ConnId(token), flags, events);
            }
        }
        self.ready = ready;
        self.expire(events);
        self.report_writable(events);
    }

    /// Takes the kernel's events, unless new data of followed rings (`landed`) is enough for this poll.
    fn take_ready(&mut self, timeout: Option<Duration>, landed: bool) {
        let mut ready = std::mem::take(&mut self.ready);
        if !self.epoll.take(&mut ready) && !self.follows.is_enough(landed) {
            self.wait(timeout, &mut ready);
            self.follows.set_awake();
        }
        ready.retain(|(token, _)| *token != WAKER);
        // Served from the end.
        ready.reverse();
        ready.sort_by_key(|(token, _)| self.brings_little(*token));
        self.little = ready.iter().rev().take_while(|(token, _)| self.brings_little(*token)).count();
        self.portion = self.little.div_ceil(PORTIONS);
        self.ready = ready;
    }

    /// Judged by the connection's last read.
    fn brings_little(&self, token: u64) -> bool {
        let conn = self.conns.get(ConnId(token));
        conn.is_some_and(|conn| (1..=LITTLE_BYTES).contains(&conn.brought))
    }

    /// How long a thread may sleep before it polls: not at all if there is work already.
    pub(super) fn within(&self) -> Option<Duration> {
        let has_place = |id: &ConnId| self.conns.get(*id).is_some_and(|conn| conn.out.is_writable_again());
        let has_more = !(self.ready.is_empty() && self.again.is_empty() && self.backlog.is_empty());
        if has_more || self.writable.iter().any(has_place) {
            return Some(Duration::ZERO);
        }
        self.deadlines.first().map(|(at, _)| at.saturating_duration_since(Instant::now()))
    }

    /// Waits for the kernel, unless there is work or an event to report already.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut ReadyEvents) {
        let asks = if self.writable.is_empty() { timeout } else { Some(Duration::ZERO) };
        let within = if asks == Some(Duration::ZERO) { asks } else { self.may_sleep() };
        let timeout = match within {
            Some(within) => Some(asks.map_or(within, |asks| asks.min(within))),
            None => asks,
        };
        self.epoll.ask(timeout, ready);
    }

    fn accept(&mut self, key: usize, events: &mut Vec<Event>) {
        for _ in 0..ACCEPTS_PER_POLL {
            let Some(listening) = self.listeners.get_mut(key) else { return };
            match listening.socket.accept() {
                Ok((peer, handle)) => {
                    if let AcceptedHandle::Local(socket) = &handle
                        && let Err(why) = local::check_client(socket.as_fd(), &self.config)
                    {
                        // Every user of the machine can cause it, as often as it likes.
                        if let Some(more) = listening.refusals.allow(Instant::now()) {
                            tracing::warn!(%why, more, "a connection was not accepted");
                        }
                        continue;
                    }
                    let local = listening.addr.clone();
                    events.push(Event::Incoming(Accepted { peer, local, handle }));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // The peer was gone before its connection was accepted.
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
                Err(e) => return self.rest(key, &e),
            }
        }
    }

    /// Stops listening for a moment: the kernel would otherwise report the connection without end.
    fn rest(&mut self, key: usize, error: &io::Error) {
        let Some(listening) = self.listeners.get_mut(key) else { return };
        let now = Instant::now();
        let until = now + ACCEPT_REST;
        if let Some(more) = listening.refusals.allow(now) {
            tracing::warn!(%error, more, "cannot accept connections; trying again soon");
        }
        if epoll::delete(&self.epoll, &listening.socket).is_ok() {
            listening.resting = Some(until);
            self.deadlines.insert((until, LISTENER | key as u64));
        }
    }

    fn serve(&mut self, id: ConnId, flags: Flags, events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        match conn.state {
            State::Down => return,
            _ if conn.is_handshaking() => return self.shake(id, events),
            State::Connecting { .. } => return self.finish_connect(id, events),
            State::Closing { .. } => {
                let dead = flags.contains(Flags::OUT) && conn.finish_sending(&mut self.spares);
                if dead || self.discard(id) {
                    return self.fail(id, Down::PeerClosed, events);
                }
            }
            State::Open => {
                if flags.contains(Flags::OUT) {
                    conn.flush(&mut self.spares);
                }
                if flags.intersects(Flags::IN | Flags::HUP | Flags::ERR) {
                    conn.muted = conn.paused && flags.intersects(Flags::HUP | Flags::ERR);
                    self.receive(id, events);
                }
            }
        }
        self.watch(id);
        self.note_writable(id);
    }

    fn finish_connect(&mut self, id: ConnId, events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let Some(outcome) = conn.socket.as_ref().map(socket::connected) else { return };
        match outcome {
            Ok(()) if self.config.tls.is_some() && !conn.is_local() => self.connect_secure(id, events),
            Ok(()) => self.established(id, events),
            Err(e) => self.connect_failed(id, e.to_string(), events),
        }
    }

    /// The connection is open, with its handshake behind it.
    pub(super) fn established(&mut self, id: ConnId, events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if matches!(conn.state, State::Connecting { .. }) {
            conn.state = State::Open;
            conn.intake.local = conn.is_local();
            events.push(Event::Connected(id));
        }
        if conn.is_open() {
            conn.set_deadline(None, &mut self.deadlines);
            conn.flush(&mut self.spares);
        } else if conn.finish_sending(&mut self.spares) {
            return self.fail(id, Down::PeerClosed, events);
        }
        self.watch(id);
        self.note_writable(id);
    }

    /// Tries the next address of the name, or fails.
    fn connect_failed(&mut self, id: ConnId, mut reason: String, events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let State::Connecting { addr, .. } = &conn.state else { return };
        let addr = addr.clone();
        // Events of the last address's socket do not apply to the next one's.
        if let Some(at) = self.ready.iter().position(|(token, _)| *token == id.0) {
            self.ready.remove(at);
        }
        if conn.try_next_address(&self.config, &self.epoll, &mut reason) {
            self.set_deadline(id, Some(self.config.connect_timeout));
            self.watch(id);
        } else {
            self.fail(id, Down::Refused { addr, reason }, events);
        }
    }

    /// Reads from an open connection that is not paused, up to its share of this poll.
    fn receive(&mut self, id: ConnId, events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !conn.is_open() || conn.paused || conn.is_handshaking() {
            return;
        }
        if std::mem::replace(&mut conn.served, self.turn) == self.turn {
            return;
        }
        let Some(socket) = &conn.socket else { return };
        let max_control_bytes = self.config.max_control_bytes;
        let maps = &self.maps;
        let mut turn = Turn { conn: id, number: self.turn, max_control_bytes, maps, events };
        let before = conn.intake.landed_bytes;
        let mut outcome = if conn.intake.waits() { conn.intake.go_on(&mut turn) } else { Ok(()) };
        let mut budget = self.config.read_bytes;
        for _ in 0..READS_PER_POLL {
            if outcome.is_err() || budget == 0 || conn.intake.must_stop(self.turn) {
                break;
            }
            let fd = socket.fd.as_fd();
            let read = match &mut conn.secure {
                None => conn.intake.read(fd, &mut self.staging, self.config.read_bytes, &mut turn),
                Some(secure) => secure.read(&mut conn.intake, fd, &mut self.staging, &mut turn),
            };
            match read {
                Ok(Progress::Read(bytes)) => budget = budget.saturating_sub(bytes),
                Ok(Progress::Drained) => break,
                Err(down) => outcome = Err(down),
            }
        }
        conn.brought = conn.intake.landed_bytes - before;
        if let Err(down) = outcome {
            // The bytes of the stream come first; its end is read behind them.
            if matches!(down, Down::PeerClosed | Down::Broken(_)) && conn.is_local() {
                conn.intake.land_remaining(&mut Turn {
                    conn: id,
                    number: self.turn,
                    max_control_bytes,
                    maps,
                    events,
                });
            }
            self.fail(id, down, events);
        } else if conn.has_more() && !std::mem::replace(&mut conn.listed, true) {
            self.again.push(id);
        }
    }

    /// Discards the bytes that a closing connection receives, so that the kernel does not reset the connection and cut sent
    /// bytes. True at the end of the stream.
    fn discard(&mut self, id: ConnId) -> bool {
        let Some(socket) = self.conns.get(id).and_then(|conn| conn.socket.as_ref()) else { return true };
        for _ in 0..READS_PER_POLL {
            match rustix::io::read(&socket.fd, &mut *self.staging) {
                Ok(0) => return true,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return e != rustix::io::Errno::AGAIN,
            }
        }
        false
    }

    fn expire(&mut self, events: &mut Vec<Event>) {
        if self.deadlines.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(&(at, token)) = self.deadlines.first() {
            if at > now {
                return;
            }
            self.deadlines.remove(&(at, token));
            if token & LISTENER != 0 {
                self.listen_again((token & !LISTENER) as usize);
                continue;
            }
            let id = ConnId(token);
            let Some(conn) = self.conns.get_mut(id) else { continue };
            conn.deadline = None;
            match conn.state {
                State::Connecting { .. } => {
                    let what = if conn.is_handshaking() { "TLS handshake" } else { "answer" };
                    let reason = format!("no {what} within {:?}", self.config.connect_timeout);
                    self.connect_failed(id, reason, events);
                }
                State::Open if conn.is_handshaking() => {
                    let within = self.config.connect_timeout;
                    self.shake_failed(
                        id,
                        format!("the peer did not complete its handshake within {within:?}"),
                        events,
                    );
                }
                State::Open => {
                    conn.flush(&mut self.spares);
                    self.watch(id);
                    self.note_writable(id);
                }
                State::Closing { .. } | State::Down => self.fail(id, Down::PeerClosed, events),
            }
        }
    }

    fn listen_again(&mut self, key: usize) {
        let Some(listening) = self.listeners.get_mut(key) else { return };
        if listening.resting.take().is_some() {
            let data = epoll::EventData::new_u64(LISTENER | key as u64);
            if let Err(e) = epoll::add(&self.epoll, &listening.socket, data, Flags::IN) {
                tracing::error!(error = %e, "cannot listen again");
            }
        }
    }

    /// Reports the connections whose queue takes ranges again.
    fn report_writable(&mut self, events: &mut Vec<Event>) {
        for id in self.writable.drain(..) {
            if let Some(conn) = self.conns.get_mut(id) {
                conn.listed_writable = false;
                events.extend(conn.out.take_writable().then_some(Event::Writable(id)));
            }
        }
    }

    /// Makes the next poll report [`Event::Writable`], if it is due.
    pub(super) fn note_writable(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let due = !conn.is_down() && conn.out.is_writable_again();
        if due && !std::mem::replace(&mut conn.listed_writable, true) {
            self.writable.push(id);
        }
    }

    pub(super) fn watch(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if let Err(e) = conn.watch(&self.epoll) {
            return self.fail_later(id, Down::Broken(format!("cannot watch the socket: {e}")));
        }
        if conn.is_open() && conn.out.is_starved() && conn.deadline.is_none() {
            self.set_deadline(id, Some(OFFER_REST));
        }
    }

    pub(super) fn set_deadline(&mut self, id: ConnId, after: Option<Duration>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        // A time beyond the clock's range means no deadline.
        let at = after.and_then(|after| Instant::now().checked_add(after));
        conn.set_deadline(at, &mut self.deadlines);
    }

    /// Ends a connection outside of a poll. The next poll reports it.
    pub(super) fn fail_later(&mut self, id: ConnId, down: Down) {
        let mut backlog = std::mem::take(&mut self.backlog);
        self.fail(id, down, &mut backlog);
        self.backlog = backlog;
    }

    /// Ends a connection and reports why. Releases its socket and all source rings. Its ring receivers stay until they are
    /// unbound.
    pub(super) fn fail(&mut self, id: ConnId, seen: Down, events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        if conn.is_down() {
            return;
        }
        let reason = conn.reason(seen);
        tracing::debug!(conn = id.0, %reason, "connection down");
        conn.answer_foreign(&reason);
        self.handshakes -= usize::from(std::mem::take(&mut conn.counted));
        conn.secure = None;
        conn.out.kill();
        conn.state = State::Down;
        conn.set_deadline(None, &mut self.deadlines);
        conn.release(&self.epoll);
        events.push(Event::Down(id, reason));
    }
}
