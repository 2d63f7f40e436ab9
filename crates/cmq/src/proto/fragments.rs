//! Messages in pieces, until they are whole: bounded in bytes and in time.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::timeline::Timeline;
use super::{Slots, after};
use crate::config::Config;
use crate::wire::{MIN_PIECE, Piece};

/// What an entry costs beside its bytes, so that many small ones count too.
const OVERHEAD: usize = 128;

/// The most that a message of this size costs while it is incomplete.
pub(crate) const fn most(message: usize) -> usize {
    message + message.div_ceil(MIN_PIECE) * OVERHEAD
}

/// Buffers that are kept for the next messages, and how large they may be.
const SPARE_BUFFERS: usize = 4;
const SPARE_BYTES: usize = 64 << 10;

/// Which message: sender, epoch, stream and number.
pub(crate) type MessageKey = (SocketAddr, u64, u32, u64);

struct Partial {
    key: MessageKey,
    total: u32,
    /// The length of every piece but the last.
    size: u16,
    /// The pieces before `next`, one behind the other.
    bytes: Vec<u8>,
    next: u32,
    /// Pieces that came before their turn.
    early: BTreeMap<u32, Box<[u8]>>,
    charged: usize,
}

/// All incomplete messages.
pub(crate) struct Fragments {
    slots: Slots<Partial>,
    by_key: HashMap<MessageKey, u32>,
    /// Of which message the last piece was.
    last: Option<(MessageKey, u32)>,
    spare: Vec<Vec<u8>>,
    begun: Timeline,
    bytes: usize,
    limit: usize,
    expiry: Duration,
    max_message: usize,
    /// Messages that were given up.
    pub incomplete: u64,
}

/// What a piece was.
pub(crate) enum Added {
    /// More are missing.
    Incomplete,
    /// The last one: here is the message.
    Whole(Vec<u8>),
    /// It does not fit to the others, or is of a message that is too large.
    Refused,
}

impl Fragments {
    pub fn new(config: &Config) -> Fragments {
        Fragments {
            slots: Slots::new(),
            by_key: HashMap::new(),
            last: None,
            spare: Vec::new(),
            begun: Timeline::new(),
            bytes: 0,
            limit: config.fragment_bytes,
            expiry: config.fragment_expiry,
            max_message: config.max_message,
            incomplete: 0,
        }
    }

    /// Takes a piece, of messages whose pieces are `size` bytes.
    pub fn add(&mut self, now: Instant, key: MessageKey, size: u16, piece: Piece<'_>) -> Added {
        if piece.total as usize > self.max_message {
            return Added::Refused;
        }
        let cost = piece.bytes.len() + OVERHEAD;
        while self.bytes + cost > self.limit {
            let Some((oldest, _)) = self.begun.first() else { return Added::Refused };
            self.give_up(oldest);
        }
        let slot = match self.last {
            Some((last, slot)) if last == key => slot,
            _ => match self.by_key.get(&key) {
                Some(&slot) => slot,
                None => self.begin(now, key, size, piece.total),
            },
        };
        self.last = Some((key, slot));
        let partial = self.slots.get_mut(slot).expect("it was found");
        if partial.total != piece.total || partial.size != size {
            return Added::Refused;
        }
        if piece.index < partial.next || partial.early.contains_key(&piece.index) {
            return Added::Incomplete;
        }
        partial.charged += cost;
        self.bytes += cost;
        if piece.index > partial.next {
            partial.early.insert(piece.index, piece.bytes.into());
            return Added::Incomplete;
        }
        partial.bytes.extend_from_slice(piece.bytes);
        partial.next += 1;
        while let Some(bytes) = partial.early.remove(&partial.next) {
            partial.bytes.extend_from_slice(&bytes);
            partial.next += 1;
        }
        if partial.next < piece.pieces {
            return Added::Incomplete;
        }
        self.remove(slot).map_or(Added::Refused, |partial| Added::Whole(partial.bytes))
    }

    fn begin(&mut self, now: Instant, key: MessageKey, size: u16, total: u32) -> u32 {
        let (bytes, early) = (self.spare.pop().unwrap_or_default(), BTreeMap::new());
        let slot = self.slots.insert(Partial { key, total, size, bytes, next: 0, early, charged: 0 });
        self.by_key.insert(key, slot);
        self.begun.push_back(slot, now);
        slot
    }

    fn remove(&mut self, slot: u32) -> Option<Partial> {
        let partial = self.slots.remove(slot)?;
        self.last = None;
        self.by_key.remove(&partial.key);
        self.begun.remove(slot);
        self.bytes -= partial.charged;
        Some(partial)
    }

    fn give_up(&mut self, slot: u32) {
        if self.remove(slot).is_some() {
            self.incomplete += 1;
        }
    }

    /// A message that was whole is done with: the next one takes its room.
    pub fn keep(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS && bytes.capacity() <= SPARE_BYTES {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// Bytes of all pieces, with what remembering them costs.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest one is given up.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.begun.first().map(|(_, since)| after(since, self.expiry))
    }

    /// Gives up what is too old.
    pub fn expire(&mut self, now: Instant) {
        while let Some((slot, since)) = self.begun.first()
            && after(since, self.expiry) <= now
        {
            self.give_up(slot);
        }
    }
}
