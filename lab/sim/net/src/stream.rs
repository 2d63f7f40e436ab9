//! TCP's twin: one direction of ordered bytes in a bounded window, cut anywhere.
//!
//! ```text
//!  outbox ──take──▶ [ flight: pieces with arrival times ] ──arrive──▶ [ inbox ] ──read──▶ parser ──▶ ring receiver
//!          cut      └──────────────── window_bytes together ─────────────────┘   cut
//! ```
//!
//! The bytes of a range are read from its ring when the window takes them.

use std::collections::VecDeque;

use crate::clock::{Clock, Kind};
use crate::config::planted;
use crate::end::{Direction, End, Reading, check_room, copy_in, end_id};
use crate::outbox::Outbox;
use rocketnet::contract::{Down, Event, WireId};
use rocketnet::wire::{CONTROL_WIRE, HEADER_BYTES, Header};

/// An arrival of bytes.
enum Piece {
    Bytes(Vec<u8>),
    Fin,
}

/// The lane's state.
#[derive(Default)]
pub(crate) struct Stream {
    flight: VecDeque<Piece>,
    flight_bytes: usize,
    last_arrival: u64,
    inbox: VecDeque<u8>,
    parser: Parser,
}

impl Stream {
    pub(crate) fn is_read(&self) -> bool {
        self.inbox.is_empty()
    }

    /// The stream stopped inside a header or a range.
    pub(crate) fn is_inside(&self) -> bool {
        self.parser.have > 0 || self.parser.body.is_some()
    }

    pub(crate) fn clear_flight(&mut self) {
        self.flight.clear();
    }

    pub(crate) fn send_fin(&mut self, clock: &mut Clock, conn: u64, side: usize) {
        self.send(clock, conn, side, Piece::Fin);
    }

    fn send(&mut self, clock: &mut Clock, conn: u64, side: usize, piece: Piece) {
        self.last_arrival = self.last_arrival.max(clock.now.saturating_add(clock.delay()));
        self.flight.push_back(piece);
        clock.at(self.last_arrival, Kind::Arrive { conn, side });
    }
}

impl Stream {
    /// Moves flushed bytes into the window, as many as the seed says. True if there may be more to move.
    pub(crate) fn take(&mut self, clock: &mut Clock, out: &mut Outbox, direction: Direction) -> bool {
        let free = clock.config.window_bytes.saturating_sub(self.flight_bytes + self.inbox.len());
        let most = free.min(out.ready_bytes() as usize);
        if most == 0 {
            return false; // the reader makes room and pumps
        }
        if !clock.rng.one_in(16) {
            let size = clock.rng.cut(most);
            let bytes = out.take(size);
            clock.note("take", direction.id().0, 0, bytes.len() as u64, free as u64);
            self.flight_bytes += bytes.len();
            // On a cut connection the window fills up and is never emptied.
            if !direction.cut {
                self.send(clock, direction.no, direction.side, Piece::Bytes(bytes));
            }
        }
        true
    }

    /// A piece reaches the receiver's machine. True if it is the end of the stream. `over`: the receiving end is down, and
    /// the bytes are lost as on a closed socket.
    pub(crate) fn arrive(&mut self, clock: &mut Clock, direction: Direction, over: bool) -> bool {
        match self.flight.pop_front() {
            Some(Piece::Bytes(bytes)) => {
                clock.note("arrive", direction.id().0, 0, bytes.len() as u64, 0);
                self.flight_bytes -= bytes.len();
                if !over {
                    self.inbox.extend(bytes);
                }
                false
            }
            Some(Piece::Fin) => true,
            None => false,
        }
    }

    /// Reads arrived bytes at the receiving end: a few pieces cut by the seed, and more until there is an event. True: there may
    /// be room in the window again.
    pub(crate) fn read(
        &mut self,
        clock: &mut Clock,
        end: &mut End,
        direction: Direction,
        events: &mut Vec<Event>,
    ) -> Result<bool, Down> {
        let id = end_id(direction.no, 1 - direction.side);
        let before = events.len();
        let mut pieces = clock.rng.between(1, 4);
        let mut reading =
            Reading { id, max_control: clock.config.max_control_bytes, arrived: Vec::new(), events };
        while !self.inbox.is_empty() && (pieces > 0 || reading.events.len() == before) {
            pieces = pieces.saturating_sub(1);
            let size = clock.rng.cut(self.inbox.len());
            let bytes = &self.inbox.make_contiguous()[..size];
            let (used, control) = self.parser.feed(end, &mut reading, bytes)?;
            clock.note("read", id.0, 0, used as u64, u64::from(control));
            self.inbox.drain(..used);
            if control {
                break;
            }
        }
        Ok(true)
    }
}

/// The item that is being received.
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
    late: Option<crate::memory::Late>,
}

impl Parser {
    /// Takes bytes until they end or a control message is complete: bytes after a control message wait for the
    /// next poll, because the session may bind or unbind in between. Returns the number of bytes, and whether it stopped.
    fn feed(
        &mut self,
        end: &mut End,
        reading: &mut Reading<'_>,
        bytes: &[u8],
    ) -> Result<(usize, bool), Down> {
        if let Some(late) = self.late.take() {
            late.write();
        }
        let mut used = usize::from(self.have > 0 && planted(8));
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
                if body.left > 0 && planted(10) {
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

    /// Takes the available bytes of a header, and returns how many.
    fn take_header(&mut self, bytes: &[u8]) -> usize {
        let n = (HEADER_BYTES - self.have).min(bytes.len());
        self.header[self.have..self.have + n].copy_from_slice(&bytes[..n]);
        self.have += n;
        n
    }
}

/// Checks a header before its body is received.
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

fn land(end: &mut End, body: &Body, piece: &[u8]) -> Result<(), Down> {
    // The session may have unbound the id since the header came.
    let bound = end.receivers.get_mut(&body.wire).ok_or(Down::UnknownWire(body.wire))?;
    copy_in(&mut bound.receiver, body.wire, piece)
}

/// Planted bug 10: the last byte is announced, and written only when the next piece comes.
fn land_early(end: &mut End, body: &Body, piece: &[u8]) -> Result<Option<crate::memory::Late>, Down> {
    let bound = end.receivers.get_mut(&body.wire).ok_or(Down::UnknownWire(body.wire))?;
    let late = crate::memory::Late::land(&mut bound.receiver, piece);
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
