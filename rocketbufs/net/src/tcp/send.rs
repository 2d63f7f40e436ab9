//! The sending half of a connection: a queue of pieces that leave in order.
//!
//! ```text
//!   front                                                    back
//!  ┌────────┬──────────────┬──────────┬────────┬─────────────┐
//!  │ header │ range of ring│ control  │ header │ range, ...  │   one sendmsg, up to 1024 parts
//!  └────────┴──────────────┴──────────┴────────┴─────────────┘
//!     └ `front_done` bytes of the front piece were sent
//! ```
//!
//! A range is sent in place and holds a handle of its ring. Control messages, detached ranges ([`Outgoing::detach`]), and ranges
//! of rings that another process writes are copies.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rocketring::{Position, Ring};
use rustix::io::Errno;

use super::config::{MAX_QUEUED_PIECES, TcpConfig};
use super::local;
use super::spares::Spares;
use super::sys::{self, Part};
use crate::contract::{NotWritten, QueueFull, SourceRange, WireId};
use crate::wire::{CONTROL_WIRE, HEADER_BYTES, Header, LOCAL_BYTES, LOCAL_OFFER, LOCAL_RANGE, local_message};

/// Control messages share a buffer up to this size, so that a stream of small ones is one part.
const CONTROL_MERGE_BYTES: usize = 16 << 10;
/// The bytes that a queued descriptor counts for besides its message: a process has few descriptors.
const FILE_COUNTS: usize = 1 << 10;
/// The most bytes that the messages about one reader count for: its doorbell (a page and a pipe), and that it must be woken.
const READER_BYTES: usize = 3 * LOCAL_BYTES + 2 * FILE_COUNTS;

enum Piece {
    Range {
        header: [u8; HEADER_BYTES],
        wire: WireId,
        ring: Ring,
        from: Position,
        to: Position,
    },
    /// Control messages with their headers.
    Control(Vec<u8>),
    /// A range of a ring that the peer maps.
    Mapped {
        message: [u8; LOCAL_BYTES],
        size: u64,
    },
    /// A ring for the peer to map: its descriptor goes with the first byte.
    Offer {
        message: [u8; LOCAL_BYTES],
        ring: Ring,
    },
    /// Another descriptor, which goes with the first byte.
    File {
        message: [u8; LOCAL_BYTES],
        file: OwnedFd,
    },
    /// Any other message to a transport on this machine.
    Local([u8; LOCAL_BYTES]),
    /// A copy of a range or of its unsent rest, with the header: the first `len` of these bytes. `counted` in the limit of
    /// ranges.
    Copied {
        bytes: Vec<u8>,
        len: usize,
        counted: u64,
    },
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Range { from, to, .. } => HEADER_BYTES + (to - from) as usize,
            Piece::Control(bytes) => bytes.len(),
            Piece::Copied { len, .. } => *len,
            Piece::Mapped { .. } | Piece::Offer { .. } | Piece::File { .. } | Piece::Local(_) => LOCAL_BYTES,
        }
    }

    /// The parts to send after the first `done` bytes.
    fn parts(&self, done: usize) -> impl Iterator<Item = Part<'_>> {
        let (bytes, range) = match self {
            Piece::Range { header, ring, from, to, .. } => {
                let skip = done.saturating_sub(HEADER_BYTES);
                let len = (to - from) as usize - skip;
                let range = Part::Range { ring, from: from + skip as u64, len };
                (&header[done.min(HEADER_BYTES)..], (len > 0).then_some(range))
            }
            Piece::Control(bytes) => (&bytes[done..], None),
            Piece::Copied { bytes, len, .. } => (&bytes[done..*len], None),
            Piece::Mapped { message, .. }
            | Piece::Offer { message, .. }
            | Piece::File { message, .. }
            | Piece::Local(message) => (&message[done..], None),
        };
        let bytes = (!bytes.is_empty()).then_some(Part::Bytes(bytes));
        bytes.into_iter().chain(range)
    }

    /// The bytes that the piece counts for in the limit of control messages.
    fn control_bytes(&self) -> usize {
        match self {
            Piece::Control(bytes) => bytes.len(),
            Piece::Local(_) => LOCAL_BYTES,
            Piece::File { .. } => LOCAL_BYTES + FILE_COUNTS,
            Piece::Range { .. } | Piece::Copied { .. } | Piece::Mapped { .. } | Piece::Offer { .. } => 0,
        }
    }

    /// The descriptor that goes with the first byte.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        match self {
            Piece::Offer { ring, .. } => ring.descriptor(),
            Piece::File { file, .. } => Some(file.as_fd()),
            _ => None,
        }
    }
}

/// The send queue of one connection.
pub(super) struct Outgoing {
    queue: VecDeque<Piece>,
    front_done: usize,
    range_bytes: u64,
    control_bytes: usize,
    max_range_bytes: u64,
    max_control_bytes: usize,
    /// The kernel took less than it was passed and has not reported since that it takes more.
    blocked: bool,
    /// The kernel took no descriptor, as too many are in flight. The kernel does not report when it takes descriptors
    /// again.
    starved: bool,
    /// `room` was 0 or a write was refused, and `Writable` was not reported since.
    full: bool,
    /// Nothing can be sent any more.
    dead: bool,
}

impl Outgoing {
    pub fn new(config: &TcpConfig) -> Self {
        Self {
            queue: VecDeque::new(),
            front_done: 0,
            range_bytes: 0,
            control_bytes: 0,
            max_range_bytes: config.tx_queue_bytes.into(),
            max_control_bytes: config.tx_control_bytes,
            blocked: false,
            starved: false,
            full: false,
            dead: false,
        }
    }

    pub fn room(&self) -> u64 {
        if self.blocked || self.dead || self.queue.len() >= MAX_QUEUED_PIECES {
            return 0;
        }
        self.max_range_bytes.saturating_sub(self.range_bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn is_blocked(&self) -> bool {
        self.blocked && !self.dead
    }

    /// Whether to try again after a while.
    pub fn is_starved(&self) -> bool {
        self.starved && self.is_blocked()
    }

    pub fn is_dead(&self) -> bool {
        self.dead
    }

    pub fn write(
        &mut self,
        wire: WireId,
        source: SourceRange,
        more: bool,
        spares: &mut Spares,
    ) -> Result<(), NotWritten> {
        let SourceRange { ring, from, to, mapped } = source;
        let size = to.saturating_sub(from);
        let room = self.room();
        debug_assert!(from <= to && wire < CONTROL_WIRE && size <= ring.capacity());
        if room == 0 || size > room {
            self.full = true;
            return Err(NotWritten::QueueFull);
        }
        // `room` is at most `tx_queue_bytes`, which is a u32.
        let header = Header { wire, more, size: size as u32 };
        if mapped {
            self.queue.push_back(Piece::Mapped { message: range_message(wire, to, more), size });
        } else if ring.is_peer_written() && size > 0 {
            // The writing process may break its promise. Bytes that were copied before the check are intact.
            let (mut bytes, len) = (spares.take(size as usize), HEADER_BYTES + size as usize);
            bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
            if ring.view(from, to).copy_to(0, &mut bytes[HEADER_BYTES..len]).is_err() {
                spares.give(bytes);
                return Err(NotWritten::Overwritten);
            }
            self.queue.push_back(Piece::Copied { bytes, len, counted: size });
        } else {
            let header = header.encode();
            self.queue.push_back(Piece::Range { header, wire, ring, from, to: from + size });
        }
        self.range_bytes += size;
        self.full |= self.room() == 0;
        Ok(())
    }

    pub fn control(&mut self, message: &[u8]) -> Result<(), QueueFull> {
        let size = HEADER_BYTES + message.len();
        if self.dead || self.control_bytes + size > self.max_control_bytes {
            self.full = true;
            return Err(QueueFull);
        }
        // `tx_control_bytes` is checked to be at most 1 GiB.
        let header = Header { wire: CONTROL_WIRE, more: false, size: message.len() as u32 }.encode();
        match self.queue.back_mut() {
            Some(Piece::Control(last)) if last.len() + size <= CONTROL_MERGE_BYTES => {
                last.extend_from_slice(&header);
                last.extend_from_slice(message);
            }
            _ => self.queue.push_back(Piece::Control([&header, message].concat())),
        }
        self.control_bytes += size;
        Ok(())
    }

    /// Queues a ring for the peer to map: its ranges may go without their bytes from now on. False if nothing can be sent or
    /// the ring cannot be mapped. Costs a descriptor only while the kernel has it.
    pub fn offer(&mut self, wire: WireId, ring: &Ring, behind: u64) -> bool {
        if self.dead || ring.descriptor().is_none() {
            return false;
        }
        // A smaller number is safe.
        let size = u32::try_from(behind).unwrap_or(u32::MAX);
        let header = Header { wire, more: false, size };
        self.queue
            .push_back(Piece::Offer { message: local_message(LOCAL_OFFER, header), ring: ring.clone() });
        true
    }

    /// Queues a local message with its descriptor. False if nothing can be sent, or too much is queued already.
    pub fn local(&mut self, kind: u32, about: Header, file: Option<OwnedFd>) -> bool {
        let message = local_message(kind, about);
        let piece = match file {
            Some(file) => Piece::File { message, file },
            None => Piece::Local(message),
        };
        let size = piece.control_bytes();
        if self.dead || self.control_bytes + size > self.max_control_bytes {
            self.full = true;
            return false;
        }
        self.queue.push_back(piece);
        self.control_bytes += size;
        true
    }

    /// Whether there is room for all messages about one reader.
    pub fn takes_reader(&self) -> bool {
        self.control_bytes + READER_BYTES <= self.max_control_bytes
    }

    /// Copies the unsent parts of ranges of `wire`. Returns how many bytes of payload it copied.
    pub fn detach(&mut self, wire: WireId) -> u64 {
        let mut copied = 0;
        for (i, piece) in self.queue.iter_mut().enumerate() {
            let Piece::Range { header, wire: own, ring, from, to } = piece else { continue };
            if *own != wire {
                continue;
            }
            let done = if i == 0 { std::mem::take(&mut self.front_done) } else { 0 };
            let mut bytes = header[done.min(HEADER_BYTES)..].to_vec();
            let start = bytes.len();
            let from = *from + done.saturating_sub(HEADER_BYTES) as u64;
            bytes.resize(start + (*to - from) as usize, 0);
            // Lapped bytes are sent as they are, as the kernel would have read them: without flow control the receiver
            // verifies deliveries.
            let _lapped = ring.view(from, *to).copy_to(0, &mut bytes[start..]);
            copied += *to - from;
            let counted = (header_size(header)).into();
            *piece = Piece::Copied { len: bytes.len(), bytes, counted };
        }
        copied
    }

    /// Sends until nothing is left or the kernel takes no more. True if nothing is left.
    pub fn flush(&mut self, fd: BorrowedFd<'_>, spares: &mut Spares) -> io::Result<bool> {
        self.starved = false;
        while !self.queue.is_empty() {
            let done = self.front_done;
            let sent = match self.queue.front() {
                Some(piece @ (Piece::Offer { message, .. } | Piece::File { message, .. })) if done == 0 => {
                    let taken = local::send_with(fd, message, piece.file());
                    taken.map(|taken| (taken, LOCAL_BYTES)).map_err(io::Error::from)
                }
                _ => sys::send_parts(fd, self.parts()),
            };
            match sent {
                Ok((taken, offered)) => {
                    self.took(taken, spares);
                    if taken < offered {
                        self.block();
                        return Ok(false);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.block();
                    return Ok(false);
                }
                Err(e) if Errno::from_io_error(&e) == Some(Errno::TOOMANYREFS) => {
                    self.starved = true;
                    self.block();
                    return Ok(false);
                }
                Err(e) => return Err(e),
            }
        }
        self.unblock();
        Ok(true)
    }

    /// The kernel takes no more now.
    pub fn block(&mut self) {
        self.blocked = true;
        self.full = true;
    }

    /// The kernel took everything.
    pub fn unblock(&mut self) {
        self.blocked = false;
    }

    /// The first `taken` bytes were sent.
    // Part of `flush`, which nearly every transfer calls.
    #[inline(always)]
    pub fn took(&mut self, taken: usize, spares: &mut Spares) {
        self.front_done += taken;
        while let Some(front) = self.queue.front() {
            let len = front.len();
            if self.front_done < len {
                break;
            }
            self.front_done -= len;
            self.control_bytes -= front.control_bytes();
            match self.queue.pop_front() {
                Some(Piece::Range { from, to, .. }) => self.range_bytes -= to - from,
                Some(Piece::Mapped { size, .. }) => self.range_bytes -= size,
                Some(Piece::Copied { bytes, counted, .. }) => {
                    self.range_bytes -= counted;
                    spares.give(bytes);
                }
                Some(Piece::Offer { .. } | Piece::File { .. } | Piece::Local(_) | Piece::Control(_))
                | None => {}
            }
        }
    }

    /// The parts that are left to send, in order, up to a descriptor.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let done = self.front_done;
        // A descriptor goes with the first byte of a call.
        let files = |(i, piece): &(usize, &Piece)| *i > 0 && piece.file().is_some();
        let pieces = self.queue.iter().enumerate().take_while(move |piece| !files(piece));
        pieces.flat_map(move |(i, piece)| piece.parts(if i == 0 { done } else { 0 }))
    }

    /// Whether [`Event::Writable`](crate::Event::Writable) is due.
    pub fn is_writable_again(&self) -> bool {
        self.full && self.room() > 0
    }

    /// As [`Outgoing::is_writable_again`], for the caller that reports the event.
    pub fn take_writable(&mut self) -> bool {
        let writable = self.is_writable_again();
        self.full &= !writable;
        writable
    }

    /// Nothing can be sent any more: releases all rings.
    pub fn kill(&mut self) {
        self.dead = true;
        self.queue = VecDeque::new();
        self.front_done = 0;
        self.range_bytes = 0;
        self.control_bytes = 0;
    }
}

/// The message for a range of a mapped ring up to `to`. The low 32 bits of the position are enough: rings are smaller.
fn range_message(wire: WireId, to: Position, more: bool) -> [u8; LOCAL_BYTES] {
    local_message(LOCAL_RANGE, Header { wire, more, size: to as u32 })
}

fn header_size(header: &[u8; HEADER_BYTES]) -> u32 {
    Header::decode(*header).size
}
