//! TCP's twin: one direction of ordered bytes in a bounded window, cut anywhere.
//!
//! ```text
//!  outbox ──take──▶ [ flight: pieces with arrival times ] ──arrive──▶ [ inbox ] ──read──▶ parser ──▶ ring receiver
//!          cut      └──────────────── window_bytes together ─────────────────┘   cut
//! ```
//!
//! The bytes of a range are read from its ring when the window takes them.

use std::collections::VecDeque;

use super::clock::{Clock, Kind};
use super::conn::{Conn, End, Phase, Pipe};
use crate::contract::{ConnId, Down, Event, WireId};
use crate::wire::{CONTROL_WIRE, HEADER_BYTES, Header};

/// What one arrival brings.
enum Piece {
    Bytes(Vec<u8>),
    Fin,
}

/// The lane's state.
#[derive(Default)]
pub(super) struct Stream {
    flight: VecDeque<Piece>,
    flight_bytes: usize,
    last_arrival: u64,
    inbox: VecDeque<u8>,
    parser: Parser,
}

impl Stream {
    pub(super) fn is_read(&self) -> bool {
        self.inbox.is_empty()
    }

    /// The stream stopped inside a header or a range.
    pub(super) fn is_inside(&self) -> bool {
        self.parser.have > 0 || self.parser.body.is_some()
    }

    pub(super) fn clear_flight(&mut self) {
        self.flight.clear();
    }

    pub(super) fn send_fin(&mut self, clock: &mut Clock, conn: u64, side: usize) {
        self.send(clock, conn, side, Piece::Fin);
    }

    fn send(&mut self, clock: &mut Clock, conn: u64, side: usize, piece: Piece) {
        self.last_arrival = self.last_arrival.max(clock.now.saturating_add(clock.delay()));
        self.flight.push_back(piece);
        clock.at(self.last_arrival, Kind::Arrive { conn, side });
    }
}

/// Moves flushed bytes into the window, as many as the seed says.
pub(super) fn take(clock: &mut Clock, conn: &mut Conn, side: usize) {
    let (no, id, cut) = (conn.no, conn.id(side), conn.cut);
    let lane = &mut conn.lanes[side];
    let Pipe::Stream(stream) = &mut lane.pipe else { return };
    let free = clock.config.window_bytes.saturating_sub(stream.flight_bytes + stream.inbox.len());
    let most = free.min(lane.out.ready_bytes() as usize);
    if most == 0 {
        return; // the reader makes room and pumps
    }
    if !clock.rng.one_in(16) {
        let size = clock.rng.cut(most);
        let bytes = lane.out.take(size);
        clock.note("take", id.0, 0, bytes.len() as u64, free as u64);
        stream.flight_bytes += bytes.len();
        // On a cut connection the window fills up and nobody ever empties it.
        if !cut {
            stream.send(clock, no, side, Piece::Bytes(bytes));
        }
    }
    if most > 0 {
        conn.pump_soon(clock, side);
    }
}

/// A piece reaches the receiver's machine.
pub(super) fn arrive(clock: &mut Clock, conn: &mut Conn, side: usize) {
    let id = conn.id(side);
    let lane = &mut conn.lanes[side];
    let Pipe::Stream(stream) = &mut lane.pipe else { return };
    match stream.flight.pop_front() {
        Some(Piece::Bytes(bytes)) => {
            clock.note("arrive", id.0, 0, bytes.len() as u64, 0);
            stream.flight_bytes -= bytes.len();
            // Nobody reads any more at an end that is down; the bytes are lost as on a closed socket.
            if !conn.ends[1 - side].over() {
                stream.inbox.extend(bytes);
            }
        }
        Some(Piece::Fin) => lane.fin = true,
        None => {}
    }
}

/// Reads at `side` what has arrived: a few pieces cut by the seed, and on until something comes of it.
pub(super) fn read(
    clock: &mut Clock,
    conn: &mut Conn,
    side: usize,
    events: &mut Vec<Event>,
) -> Result<(), Down> {
    let id = conn.id(side);
    let Pipe::Stream(stream) = &mut conn.lanes[1 - side].pipe else { return Ok(()) };
    let before = events.len();
    let mut pieces = clock.rng.between(1, 4);
    let mut reading =
        Reading { id, max_control: clock.config.max_control_bytes, arrived: Vec::new(), events };
    while !stream.inbox.is_empty() && (pieces > 0 || reading.events.len() == before) {
        pieces = pieces.saturating_sub(1);
        let size = clock.rng.cut(stream.inbox.len());
        let bytes = &stream.inbox.make_contiguous()[..size];
        let (used, control) = stream.parser.feed(&mut conn.ends[side], &mut reading, bytes)?;
        clock.note("read", id.0, 0, used as u64, u64::from(control));
        stream.inbox.drain(..used);
        if control {
            break;
        }
    }
    if conn.ends[1 - side].phase != Phase::Gone {
        conn.pump_soon(clock, 1 - side);
    }
    Ok(())
}

/// Where one poll of one connection puts what it finds.
pub(super) struct Reading<'e> {
    pub(super) id: ConnId,
    pub(super) max_control: usize,
    pub(super) arrived: Vec<WireId>,
    pub(super) events: &'e mut Vec<Event>,
}

impl Reading<'_> {
    /// Tells [`Event::Arrived`], once for each wire.
    pub(super) fn arrived(&mut self, wire: WireId) {
        if !self.arrived.contains(&wire) {
            self.arrived.push(wire);
            self.events.push(Event::Arrived(self.id, wire));
        }
    }
}

/// What is being received.
struct Body {
    wire: WireId,
    more: bool,
    left: u64,
    control: Vec<u8>,
}

/// Headers and bodies out of pieces of any size.
#[derive(Default)]
struct Parser {
    header: [u8; HEADER_BYTES],
    have: usize,
    body: Option<Body>,
    #[cfg(feature = "planted-bugs")]
    late: Option<super::memory::Late>,
}

impl Parser {
    /// Takes the bytes until they end or a control message is complete: what follows a control message waits for the
    /// next poll, because the session may bind or unbind in between. Returns how many it took and whether it stopped.
    fn feed(
        &mut self,
        end: &mut End,
        reading: &mut Reading<'_>,
        bytes: &[u8],
    ) -> Result<(usize, bool), Down> {
        #[cfg(feature = "planted-bugs")]
        if let Some(late) = self.late.take() {
            late.write();
        }
        let mut used = usize::from(self.have > 0 && super::planted(8));
        loop {
            if self.body.is_none() {
                used += self.take_header(&bytes[used..]);
                if self.have < HEADER_BYTES {
                    return Ok((used, false));
                }
                self.have = 0;
                self.body = Some(open(end, reading, Header::decode(self.header))?);
            }
            let Some(body) = &mut self.body else { continue };
            let n = (bytes.len() - used).min(usize::try_from(body.left).unwrap_or(usize::MAX));
            let piece = &bytes[used..used + n];
            used += n;
            body.left -= n as u64;
            if body.wire == CONTROL_WIRE {
                body.control.extend_from_slice(piece);
            } else if n > 0 {
                #[cfg(feature = "planted-bugs")]
                if body.left > 0 && super::planted(10) {
                    self.late = land_early(end, body, piece)?;
                    reading.arrived(body.wire);
                    return Ok((used, false));
                }
                land(end, body, piece)?;
                reading.arrived(body.wire);
            }
            if body.left > 0 {
                return Ok((used, false));
            }
            let Some(body) = self.body.take() else { continue };
            if body.wire == CONTROL_WIRE {
                reading.events.push(Event::Control(reading.id, body.control));
                return Ok((used, true));
            }
            close(end, reading, &body)?;
        }
    }

    /// Takes what is there of a header; returns how many bytes that was.
    fn take_header(&mut self, bytes: &[u8]) -> usize {
        let n = (HEADER_BYTES - self.have).min(bytes.len());
        self.header[self.have..self.have + n].copy_from_slice(&bytes[..n]);
        self.have += n;
        n
    }
}

/// A header came: may what follows it come in?
fn open(end: &mut End, reading: &Reading<'_>, header: Header) -> Result<Body, Down> {
    let Header { wire, more, size } = header;
    let left = u64::from(size);
    let mut control = Vec::new();
    if wire == CONTROL_WIRE {
        if left > reading.max_control as u64 {
            return Err(Down::ControlTooLarge { size: left, max: reading.max_control as u64 });
        }
        control.reserve_exact(size as usize);
    } else {
        let bound = end.receivers.get(&wire).ok_or(Down::UnknownWire(wire))?;
        check_room(&bound.receiver, wire, left)?;
    }
    Ok(Body { wire, more, left, control })
}

/// A write past what the ring has granted is the peer's fault. Without flow control nothing is granted.
pub(super) fn check_room(receiver: &rocketring::RingReceiver, wire: WireId, size: u64) -> Result<(), Down> {
    let room = receiver.room();
    if receiver.ring().flow_control() && size > room {
        return Err(Down::Overrun { wire, at: receiver.ring().head(), size, over: size - room });
    }
    Ok(())
}

/// Copies everything to the ring receiver's head: without flow control in chunks, each announced before it is written.
pub(super) fn copy_in(
    receiver: &mut rocketring::RingReceiver,
    wire: WireId,
    bytes: &[u8],
) -> Result<(), Down> {
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

fn land(end: &mut End, body: &Body, piece: &[u8]) -> Result<(), Down> {
    // The session may have unbound it since the header came.
    let bound = end.receivers.get_mut(&body.wire).ok_or(Down::UnknownWire(body.wire))?;
    copy_in(&mut bound.receiver, body.wire, piece)
}

/// Planted bug 10: the last byte is announced, and written only when the next piece comes.
#[cfg(feature = "planted-bugs")]
fn land_early(end: &mut End, body: &Body, piece: &[u8]) -> Result<Option<super::memory::Late>, Down> {
    let bound = end.receivers.get_mut(&body.wire).ok_or(Down::UnknownWire(body.wire))?;
    let late = super::memory::Late::land(&mut bound.receiver, piece);
    if late.is_none() {
        copy_in(&mut bound.receiver, body.wire, piece)?;
    }
    Ok(late)
}

fn close(end: &mut End, reading: &mut Reading<'_>, body: &Body) -> Result<(), Down> {
    let bound = end.receivers.get_mut(&body.wire).ok_or(Down::UnknownWire(body.wire))?;
    if !body.more {
        bound.receiver.end();
    }
    reading.arrived(body.wire);
    Ok(())
}
