//! The receiving half of a connection: cuts the stream into ranges and control messages.
//!
//! ```text
//!            ┌────────── all of it here ─────────┐ ◀── a large range: read straight into its ring
//!  ──┬───────┬───────────────────────────────────┬───────┬──────┬───────┬──────
//!    │ header│ range                             │ header│ range│ header│ control
//!  ──┴───────┴───────────────────────────────────┴───────┴──────┴───────┴──────
//!                              staging buffer ──▶ └──────────────────────────┘  small ones: read together, copied
//! ```
//!
//! A read fills the rest of the current range and, behind it, a staging buffer that all connections of the worker share. After a
//! large range the staging part is small, so that little is copied and most headers still come with the range before them.
//! This part grows again while small ranges fill it.
//!
//! After a control message the layer above may bind, unbind, skip or pause before the next range is handled. Therefore a range
//! that follows a control message waits for the next poll: bytes already read are carried over, and nothing more is read for
//! the connection. Consecutive control messages are reported by one poll.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rocketring::{GrowError, PeerDoorbell, PeerMapper, Pool, RingReceiver, Trimmed};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{local, sys};
use crate::contract::{ConnId, Down, Event, WireId, answers_tls};
use crate::wire::{CONTROL_WIRE, HEADER_BYTES, Header, LOCAL_RANGE};

/// From this size on ranges are read straight into their rings. Ranges of 16 KiB in a row cost a fifth more processor
/// time read one by one than read together and copied; at 64 KiB both cost the same, and less memory is touched.
const LARGE_RANGE: usize = 32 << 10;
/// The bytes read behind a large range: the next headers.
const SMALL_STAGING: usize = 4 << 10;

pub(super) struct Bound {
    pub(super) receiver: RingReceiver,
    /// The poll that reported `Arrived` last.
    arrived: u64,
}

impl Bound {
    /// Whether the peer may write this many bytes.
    pub(super) fn check_room(&self, wire: WireId, size: u64) -> Result<(), Down> {
        let room = self.receiver.room();
        // Without flow control only the size of the memory is a limit.
        let may = !self.receiver.ring().flow_control() && !self.receiver.ring().is_peer_written();
        if may || size <= room {
            return Ok(());
        }
        Err(Down::Overrun { wire, at: self.receiver.ring().head(), size, over: size - room })
    }

    pub(super) fn arrived(&mut self, wire: WireId, turn: &mut Turn<'_>) {
        if self.arrived != turn.number {
            self.arrived = turn.number;
            turn.events.push(Event::Arrived(turn.conn, wire));
        }
    }
}

/// A poll, as one connection sees it.
pub(super) struct Turn<'a> {
    pub conn: ConnId,
    /// Counts polls from 1.
    pub number: u64,
    pub max_control_bytes: usize,
    /// Maps rings of other processes.
    pub maps: &'a PeerMapper,
    pub events: &'a mut Vec<Event>,
}

enum Phase {
    Header {
        bytes: [u8; HEADER_BYTES],
        have: usize,
    },
    Range {
        wire: WireId,
        left: usize,
        more: bool,
    },
    Control {
        message: Vec<u8>,
        size: usize,
    },
    /// A local message: its kind, and the bytes that have arrived.
    Local {
        kind: u32,
        bytes: [u8; HEADER_BYTES],
        have: usize,
    },
    /// Within a discarded range.
    Waste {
        left: usize,
    },
    /// Within a range whose id was unbound: any further byte of it ends the connection.
    Orphan {
        wire: WireId,
    },
}

const START: Phase = Phase::Header { bytes: [0; HEADER_BYTES], have: 0 };

/// The result of one read.
pub(super) enum Progress {
    /// Bytes arrived, and more may be available.
    Read(usize),
    /// Nothing more is available now.
    Drained,
}

/// The receiving state of one connection.
pub(super) struct Intake {
    // This end chooses wire ids: a peer cannot attack the hash.
    pub(super) bound: FxHashMap<WireId, Bound>,
    /// Ids without a receiver: their ranges are discarded.
    pub(super) discarded: FxHashSet<WireId>,
    phase: Phase,
    /// Bytes that were read and not handled, from `carried` on.
    carry: Vec<u8>,
    carried: usize,
    /// How much is read behind the current range: little while ranges are large, more while small ranges fill it.
    ahead: usize,
    /// The poll that reported a control message last.
    pub(super) control_turn: u64,
    /// The peer is on this machine, and may pass descriptors.
    pub local: bool,
    /// Total bytes of ranges that landed.
    pub landed_bytes: u64,
    /// Descriptors that arrived before their messages. None: the process had no room for the descriptor.
    pub(super) files: VecDeque<Option<OwnedFd>>,
    /// The peer's doorbells by number, and the page of a doorbell whose pipe has not arrived.
    pub(super) doorbells: Vec<Option<Arc<PeerDoorbell>>>,
    pub(super) doorbell_page: Option<OwnedFd>,
}

impl Intake {
    pub fn new() -> Self {
        Self {
            local: false,
            landed_bytes: 0,
            files: VecDeque::new(),
            doorbells: Vec::new(),
            doorbell_page: None,
            bound: FxHashMap::default(),
            discarded: FxHashSet::default(),
            phase: START,
            carry: Vec::new(),
            carried: 0,
            ahead: usize::MAX,
            control_turn: 0,
        }
    }

    pub fn bind(&mut self, wire: WireId, receiver: RingReceiver) {
        debug_assert!(wire < CONTROL_WIRE, "a wire id has 31 bits and is not the id of control messages");
        drop(self.unbind(wire));
        self.bound.insert(wire, Bound { receiver, arrived: 0 });
    }

    pub fn discard(&mut self, wire: WireId) {
        self.discarded.insert(wire);
    }

    pub fn unbind(&mut self, wire: WireId) -> Option<RingReceiver> {
        self.discarded.remove(&wire);
        let bound = self.bound.remove(&wire)?;
        if matches!(self.phase, Phase::Range { wire: current, .. } if current == wire) {
            self.phase = Phase::Orphan { wire };
        }
        Some(bound.receiver)
    }

    pub fn skip(&mut self, wire: WireId, to: u64) -> bool {
        let within = matches!(self.phase, Phase::Range { wire: current, .. } if current == wire);
        let Some(bound) = self.bound.get_mut(&wire) else { return false };
        let ring = bound.receiver.ring();
        // Close to the largest position the arithmetic would overflow. No honest log gets there.
        let last = u64::MAX - 2 * ring.capacity();
        if within || to < ring.head() || to > last {
            return false;
        }
        bound.receiver.skip(to);
        true
    }

    /// Landed bytes have moved the head, so that the rest of the current range goes behind them.
    pub fn trim(&mut self, wire: WireId, keep: u64) -> Option<Trimmed> {
        Some(self.bound.get_mut(&wire)?.receiver.trim(keep))
    }

    /// As for `trim`: no address in the ring is kept between two reads.
    pub fn grow(&mut self, wire: WireId, pool: &Pool, max_delivery: u64) -> Option<Result<(), GrowError>> {
        Some(self.bound.get_mut(&wire)?.receiver.grow(pool, max_delivery))
    }

    /// The peer is gone: lands the bytes that it had written and not announced, in rings that it wrote itself.
    pub fn land_remaining(&mut self, turn: &mut Turn<'_>) {
        for (wire, bound) in &mut self.bound {
            if bound.receiver.land_remaining() {
                bound.arrived(*wire, turn);
            }
        }
    }

    /// Whether bytes that were read wait for the next poll.
    pub fn waits(&self) -> bool {
        let whole = matches!(
            self.phase,
            Phase::Header { have: HEADER_BYTES, .. } | Phase::Local { have: HEADER_BYTES, .. }
        );
        whole || !self.carry.is_empty()
    }

    /// Whether reading must wait for the next poll, because of a control message in this one.
    pub fn must_stop(&self, turn: u64) -> bool {
        self.control_turn == turn || self.waits()
    }

    /// Handles bytes that were carried over from earlier polls.
    pub fn go_on(&mut self, turn: &mut Turn<'_>) -> Result<(), Down> {
        let carry = std::mem::take(&mut self.carry);
        let start = std::mem::take(&mut self.carried);
        let end = start + self.digest(&carry[start..], turn)?;
        if end < carry.len() {
            self.carry = carry;
            self.carried = end;
        }
        Ok(())
    }

    /// Handles bytes of the stream that were decrypted, behind those that were carried over.
    #[cfg(feature = "tls")]
    pub fn take(&mut self, bytes: &[u8], turn: &mut Turn<'_>) -> Result<(), Down> {
        let looked_at = if self.carry.is_empty() { self.digest(bytes, turn)? } else { 0 };
        self.carry(&bytes[looked_at..]);
        Ok(())
    }

    /// Keeps bytes of the stream for the next poll, behind those that are kept already.
    #[cfg(feature = "tls")]
    pub fn carry(&mut self, bytes: &[u8]) {
        self.carry.extend_from_slice(bytes);
    }

    /// Reads once from the socket. Only while [`Intake::waits`] is false.
    pub fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        staging: &mut [u8],
        max: usize,
        turn: &mut Turn<'_>,
    ) -> Result<Progress, Down> {
        let wanted = self.ahead.min(staging.len());
        // A read that does not fill it keeps it; a large range makes it small again.
        let grown = (2 * wanted).min(staging.len());
        let staging = &mut staging[..wanted];
        let landed = match &mut self.phase {
            _ if self.local => match local::receive(fd, staging, &mut self.files) {
                // A read ends behind a descriptor, also if more bytes follow.
                Ok(Ok(n)) => {
                    Ok(sys::Landed { in_ring: 0, staged: n, drained: n < wanted && self.files.is_empty() })
                }
                Ok(Err(wrong)) => return Err(Down::Descriptors(wrong)),
                Err(e) => Err(e.into()),
            },
            Phase::Range { wire, left, .. } => {
                let bound = self.bound.get_mut(wire).ok_or(Down::UnknownWire(*wire))?;
                sys::read_to_ring(fd, &mut bound.receiver, *left, max, staging)
            }
            _ => rustix::io::read(fd, &mut *staging)
                .map(|n| sys::Landed { in_ring: 0, staged: n, drained: n < wanted })
                .map_err(io::Error::from),
        };
        let landed = match landed {
            Ok(landed) => landed,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Progress::Read(0)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Progress::Drained),
            Err(e) => return Err(Down::Broken(e.to_string())),
        };
        let total = landed.in_ring + landed.staged;
        if total == 0 {
            return Err(self.end_of_stream());
        }
        if landed.in_ring > 0 {
            self.landed(landed.in_ring, turn)?;
        }
        let staged = &staging[..landed.staged];
        if landed.staged == wanted {
            self.ahead = grown;
        }
        let looked_at = self.digest(staged, turn)?;
        if looked_at < staged.len() {
            self.carry = staged[looked_at..].to_vec();
            self.carried = 0;
        }
        Ok(if landed.drained { Progress::Drained } else { Progress::Read(total) })
    }

    pub(super) fn end_of_stream(&self) -> Down {
        match &self.phase {
            Phase::Header { have: 0, .. } => Down::PeerClosed,
            // An alert of TLS is shorter than a header.
            &Phase::Header { bytes: [a, b, c, d, ..], have: 4.. }
                if answers_tls(u32::from_le_bytes([a, b, c, d])) =>
            {
                Down::UnknownWire(u32::from_le_bytes([a, b, c, d]))
            }
            Phase::Header { .. } => Down::Broken("the peer closed within a header".into()),
            Phase::Control { .. } | Phase::Local { .. } => {
                Down::Broken("the peer closed within a control message".into())
            }
            Phase::Range { .. } | Phase::Waste { .. } | Phase::Orphan { .. } => {
                Down::Broken("the peer closed within a range".into())
            }
        }
    }

    /// `n` bytes of the current range were read to its ring's head.
    fn landed(&mut self, n: usize, turn: &mut Turn<'_>) -> Result<(), Down> {
        let Phase::Range { wire, left, more } = &mut self.phase else { return Ok(()) };
        let bound = self.bound.get_mut(wire).ok_or(Down::UnknownWire(*wire))?;
        bound.receiver.land(n);
        self.landed_bytes += n as u64;
        *left -= n;
        if *left == 0 && !*more {
            bound.receiver.end();
        }
        bound.arrived(*wire, turn);
        if *left == 0 {
            self.phase = START;
        }
        Ok(())
    }

    /// Handles bytes of the stream, and returns how many. Fewer than all only where a range follows a control message.
    fn digest(&mut self, bytes: &[u8], turn: &mut Turn<'_>) -> Result<usize, Down> {
        let mut at = 0;
        loop {
            match &mut self.phase {
                Phase::Header { bytes: header, have } => {
                    at += collect(header, have, &bytes[at..]);
                    if *have < HEADER_BYTES {
                        return Ok(at);
                    }
                    let header = Header::decode(*header);
                    if header.wire != CONTROL_WIRE && self.control_turn == turn.number {
                        return Ok(at);
                    }
                    self.begin(header, turn)?;
                }
                Phase::Range { left, .. } | Phase::Waste { left } => {
                    if at == bytes.len() {
                        return Ok(at);
                    }
                    let end = at + (*left).min(bytes.len() - at);
                    at += self.fill(&bytes[at..end], turn)?;
                }
                Phase::Control { message, size } => {
                    let n = (*size - message.len()).min(bytes.len() - at);
                    message.extend_from_slice(&bytes[at..at + n]);
                    at += n;
                    if message.len() < *size {
                        return Ok(at);
                    }
                    turn.events.push(Event::Control(turn.conn, std::mem::take(message)));
                    self.control_turn = turn.number;
                    self.phase = START;
                }
                Phase::Local { kind, bytes: range, have } => {
                    at += collect(range, have, &bytes[at..]);
                    let (kind, range) = (*kind, Header::decode(*range));
                    if *have < HEADER_BYTES || (kind == LOCAL_RANGE && self.control_turn == turn.number) {
                        return Ok(at);
                    }
                    self.phase = START;
                    self.on_local(kind, range, turn)?;
                }
                Phase::Orphan { wire } => {
                    return if at == bytes.len() { Ok(at) } else { Err(Down::UnknownWire(*wire)) };
                }
            }
        }
    }

    fn begin(&mut self, header: Header, turn: &mut Turn<'_>) -> Result<(), Down> {
        if self.local && header.wire == CONTROL_WIRE && header.more {
            self.phase = Phase::Local { kind: header.size, bytes: [0; HEADER_BYTES], have: 0 };
            Ok(())
        } else if header.wire == CONTROL_WIRE {
            self.begin_control(header, turn)
        } else {
            self.begin_range(header, turn)
        }
    }

    fn begin_control(&mut self, header: Header, turn: &Turn<'_>) -> Result<(), Down> {
        let size = header.size as usize;
        if size > turn.max_control_bytes {
            return Err(Down::ControlTooLarge { size: size as u64, max: turn.max_control_bytes as u64 });
        }
        self.phase = Phase::Control { message: Vec::new(), size };
        Ok(())
    }

    /// Checks a range against this end's ids and grants, before a byte of it lands.
    fn begin_range(&mut self, header: Header, turn: &mut Turn<'_>) -> Result<(), Down> {
        let Header { wire, more, size } = header;
        if self.discarded.contains(&wire) {
            self.phase = if size > 0 { Phase::Waste { left: size as usize } } else { START };
            return Ok(());
        }
        let bound = self.bound.get_mut(&wire).ok_or(Down::UnknownWire(wire))?;
        if size as usize >= LARGE_RANGE {
            self.ahead = SMALL_STAGING;
        }
        bound.check_room(wire, size.into())?;
        if size > 0 {
            self.phase = Phase::Range { wire, left: size as usize, more };
            return Ok(());
        }
        if !more {
            bound.receiver.end();
        }
        bound.arrived(wire, turn);
        self.phase = START;
        Ok(())
    }

    /// Copies staged bytes of the current range to its ring, if it has one, and returns how many.
    fn fill(&mut self, bytes: &[u8], turn: &mut Turn<'_>) -> Result<usize, Down> {
        if let Phase::Waste { left } = &mut self.phase {
            *left -= bytes.len();
            if *left == 0 {
                self.phase = START;
            }
            return Ok(bytes.len());
        }
        let Phase::Range { wire, left, more } = &mut self.phase else { return Ok(0) };
        let wire = *wire;
        let bound = self.bound.get_mut(&wire).ok_or(Down::UnknownWire(wire))?;
        let n = bound.receiver.copy_in(bytes);
        if n == 0 {
            // The check in `begin_range` guarantees the room, since a horizon never goes back.
            let (at, size) = (bound.receiver.ring().head(), *left as u64);
            return Err(Down::Overrun { wire, at, size, over: size });
        }
        self.landed_bytes += n as u64;
        *left -= n;
        if *left == 0 && !*more {
            bound.receiver.end();
        }
        bound.arrived(wire, turn);
        if *left == 0 {
            self.phase = START;
        }
        Ok(n)
    }
}

/// Completes eight bytes that may arrive in pieces, and returns how many it took.
fn collect(whole: &mut [u8; HEADER_BYTES], have: &mut usize, bytes: &[u8]) -> usize {
    let n = (HEADER_BYTES - *have).min(bytes.len());
    whole[*have..*have + n].copy_from_slice(&bytes[..n]);
    *have += n;
    n
}
