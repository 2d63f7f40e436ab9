//! Messages in pieces, until they are whole: bounded in bytes and in time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::lent::Lent;
use super::queue::xor;
use super::timeline::Timeline;
use super::{Slots, after};
use crate::config::Config;
use crate::wire::{MIN_PIECE, Piece, SPARE_FOR, spares};

/// What an entry costs beside its bytes, so that many small ones count too.
const OVERHEAD: usize = 128;

/// The most that a message of this size costs while it is incomplete: its pieces, and spare ones.
pub(crate) const fn most(message: usize) -> usize {
    let spare_for = SPARE_FOR as usize;
    let pieces = message.div_ceil(MIN_PIECE);
    message + message / spare_for + u16::MAX as usize + (pieces + pieces.div_ceil(spare_for)) * OVERHEAD
}

/// Memory that is kept for the next messages, and how large it may be.
const SPARES: usize = 32;
const SPARE_BYTES: usize = 64 << 10;
/// Of a message that is kept so many times its bytes may be kept from others.
const SLACK: usize = 2;

/// Which message: sender, epoch, stream and number.
pub(crate) type MessageKey = (SocketAddr, u64, u32, u64);

struct Partial {
    key: MessageKey,
    total: u32,
    /// The length of every piece but the last.
    size: u16,
    pieces: u32,
    /// The pieces before `next`, one behind the other.
    bytes: Vec<u8>,
    next: u32,
    /// Pieces that came before their turn, and spare ones.
    early: BTreeMap<u32, Box<[u8]>>,
    charged: usize,
}

impl Partial {
    fn has(&self, index: u32) -> bool {
        index < self.next || self.early.contains_key(&index)
    }

    /// Takes a piece that it does not have.
    fn take(&mut self, index: u32, bytes: &[u8]) {
        if index > self.next {
            self.early.insert(index, bytes.into());
            return;
        }
        self.bytes.extend_from_slice(bytes);
        self.next += 1;
        while self.next < self.pieces
            && let Some(bytes) = self.early.remove(&self.next)
        {
            self.bytes.extend_from_slice(&bytes);
            self.next += 1;
        }
    }

    /// Makes the only piece that is missing of those that share a spare one with this, if the spare one is here.
    fn repair(&mut self, index: u32) {
        let (pieces, spares) = (self.pieces, spares(self.pieces));
        let group = index.checked_sub(pieces).unwrap_or(index % spares);
        if !self.early.contains_key(&(pieces + group)) {
            return;
        }
        let group_of = || (group..pieces).step_by(spares as usize);
        let mut missing = group_of().filter(|&index| !self.has(index));
        let (Some(missing), None) = (missing.next(), missing.next()) else { return };
        let Some(mut bytes) = self.early.remove(&(pieces + group)) else { return };
        let size = usize::from(self.size);
        for index in group_of().filter(|&index| index != missing) {
            let at = index as usize * size;
            let here = self.bytes.get(at..).filter(|_| index < self.next);
            let part = here.or_else(|| self.early.get(&index).map(|bytes| &bytes[..]));
            xor(&mut bytes, part.unwrap_or_default());
        }
        let length = size.min(self.total as usize - missing as usize * size);
        self.take(missing, &bytes[..length]);
    }
}

/// All incomplete messages.
pub(crate) struct Fragments {
    /// The one begun last, and when: pieces mostly come one behind the other, and then it never is among the others.
    newest: Option<(Partial, Instant)>,
    slots: Slots<Partial>,
    by_key: HashMap<MessageKey, u32>,
    /// Of messages that were whole, also while somebody keeps them: the one that has been here longest is first.
    spare: VecDeque<Lent>,
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
    Whole(Lent),
    /// It does not fit to the others, or is of a message that is too large.
    Refused,
}

impl Fragments {
    pub fn new(config: &Config) -> Fragments {
        Fragments {
            newest: None,
            slots: Slots::new(),
            by_key: HashMap::new(),
            spare: VecDeque::new(),
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
            if !self.give_up_oldest() {
                return Added::Refused;
            }
        }
        let at = self.find(now, key, size, piece);
        let partial = self.partial(at);
        if partial.total != piece.total || partial.size != size {
            return Added::Refused;
        }
        if partial.has(piece.index) {
            return Added::Incomplete;
        }
        partial.take(piece.index, piece.bytes);
        partial.charged += cost;
        if !partial.early.is_empty() {
            partial.repair(piece.index);
        }
        let whole = partial.next == piece.pieces;
        self.bytes += cost;
        if !whole {
            return Added::Incomplete;
        }
        self.remove(at).map_or(Added::Refused, |partial| Added::Whole(Lent::new(partial.bytes)))
    }

    /// Where a message is that a piece came of; it begins if it is new.
    fn find(&mut self, now: Instant, key: MessageKey, size: u16, piece: Piece<'_>) -> Option<u32> {
        if self.newest.as_ref().is_some_and(|(newest, _)| newest.key == key) {
            return None;
        }
        if let Some(&slot) = self.by_key.get(&key) {
            return Some(slot);
        }
        if let Some((before, since)) = self.newest.take() {
            let key = before.key;
            let slot = self.slots.insert(before);
            self.by_key.insert(key, slot);
            self.begun.push_back(slot, since);
        }
        let Piece { total, pieces, .. } = piece;
        let (bytes, early) = (self.room(total as usize), BTreeMap::new());
        self.newest = Some((Partial { key, total, size, pieces, bytes, next: 0, early, charged: 0 }, now));
        None
    }

    /// The one that was found.
    fn partial(&mut self, at: Option<u32>) -> &mut Partial {
        let newest = self.newest.as_mut().map(|(newest, _)| newest);
        at.map_or(newest, |slot| self.slots.get_mut(slot)).expect("it was found")
    }

    fn remove(&mut self, at: Option<u32>) -> Option<Partial> {
        let Some(slot) = at else {
            let (partial, _) = self.newest.take()?;
            self.bytes -= partial.charged;
            return Some(partial);
        };
        let partial = self.slots.remove(slot)?;
        self.by_key.remove(&partial.key);
        self.begun.remove(slot);
        self.bytes -= partial.charged;
        Some(partial)
    }

    /// The message is given up: its pieces wait for nothing.
    pub fn forget(&mut self, key: MessageKey) {
        let newest = self.newest.as_ref().is_some_and(|(newest, _)| newest.key == key);
        let at = if newest { None } else { self.by_key.get(&key).copied() };
        if newest || at.is_some() {
            self.incomplete += u64::from(self.remove(at).is_some());
        }
    }

    /// Whether there was one.
    fn give_up_oldest(&mut self) -> bool {
        let oldest = self.begun.first().map(|(slot, _)| slot);
        let given_up = self.remove(oldest).is_some();
        self.incomplete += u64::from(given_up);
        given_up
    }

    /// Where the pieces of a message of so many bytes are put.
    fn room(&mut self, bytes: usize) -> Vec<u8> {
        let fits = |spare: &mut Lent| spare.capacity() <= SLACK * bytes && spare.free().is_some();
        let at = self.spare.iter_mut().position(fits);
        let spare = at.and_then(|at| self.spare.remove(at)).and_then(Lent::into_memory);
        let mut room = spare.unwrap_or_default();
        room.clear();
        room
    }

    /// A message that was whole is delivered: once nobody keeps it, the next one takes its room.
    pub fn keep(&mut self, message: Lent) {
        if message.capacity() <= SPARE_BYTES {
            if self.spare.len() == SPARES {
                self.spare.pop_front();
            }
            self.spare.push_back(message);
        }
    }

    /// Bytes of all pieces, with what remembering them costs.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// When the oldest one is given up.
    pub fn next_deadline(&self) -> Option<Instant> {
        let newest = self.newest.as_ref().map(|&(_, since)| since);
        let oldest = self.begun.first().map(|(_, since)| since);
        oldest.or(newest).map(|since| after(since, self.expiry))
    }

    /// Gives up what is too old.
    pub fn expire(&mut self, now: Instant) {
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.give_up_oldest();
        }
    }
}
