//! What outlives the process, and its bytes in the journal.
//!
//! A batch of the journal is `version u8, kind u8` and a [`Saved`] (kind 1) or [`Changes`] (kind 2), little endian. Of a group of named consumers
//! it has the name of the log (`u128`) and the operations that make the group (kind 3), or those that have followed (kind 4).

/// The most pending messages, which a batch of the journal has room for.
pub const MAX_PENDING: usize = 10_000_000;

/// The longest batch of the journal, in bytes.
pub(crate) const MAX_BATCH: u32 = 1 << 30;

/// The bytes of a saved entry, of one that is done and of one with failed attempts.
const ENTRY_DONE_FAILED: u64 = 18 + 8 + 10;

const _: () = assert!(1000 + ENTRY_DONE_FAILED * MAX_PENDING as u64 <= MAX_BATCH as u64);

/// The version of the entries.
pub(crate) const VERSION: u8 = 2;

const SAVED: u8 = 1;
const CHANGES: u8 = 2;
pub(crate) const CONSUMERS: u8 = 3;
pub(crate) const CONSUMER_CHANGES: u8 = 4;

/// How a group works. The one who creates it says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a worker may have a message, in milliseconds, before others get it. At least 1.
    pub ack_ms: u32,
    /// After so many failed attempts a message goes to the dead-letter topic; 0: never.
    pub max_attempts: u16,
    /// The dead-letter topic; empty: none.
    pub dead_letter: String,
    /// Messages with the same key are handed out one after the other.
    pub ordered: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { ack_ms: 30_000, max_attempts: 0, dead_letter: String::new(), ordered: false }
    }
}

/// A group as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Saved {
    /// How the group works.
    pub settings: Settings,
    /// The name of the log that the positions belong to.
    pub epoch: u128,
    /// The group began anew with this: what was said of an earlier generation does not count.
    pub generation: u64,
    /// Everything below is done or pending.
    pub next: u64,
    /// The messages below `next` that are not done.
    pub pending: Vec<SavedEntry>,
    /// What an earlier process knew of messages that are not read again yet.
    pub ahead: Changes,
}

/// A pending message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedEntry {
    /// Where its record begins in the log.
    pub position: u64,
    /// The bytes of its record, with the header.
    pub len: u32,
    /// The key, as a number; 0: none.
    pub key: u32,
    /// Attempts that have failed.
    pub attempts: u16,
}

/// What has happened since the last changes were taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Messages that are done.
    pub done: Vec<u64>,
    /// Messages with another number of failed attempts.
    pub failed: Vec<(u64, u16)>,
}

impl Changes {
    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.failed.is_empty()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, CHANGES];
        self.put(&mut bytes);
        bytes
    }

    fn put(&self, bytes: &mut Vec<u8>) {
        put_u32(bytes, self.done.len());
        self.done.iter().for_each(|position| bytes.extend_from_slice(&position.to_le_bytes()));
        put_u32(bytes, self.failed.len());
        for (position, attempts) in &self.failed {
            bytes.extend_from_slice(&position.to_le_bytes());
            bytes.extend_from_slice(&attempts.to_le_bytes());
        }
    }
}

impl Saved {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, SAVED];
        let Settings { ack_ms, max_attempts, dead_letter, ordered } = &self.settings;
        bytes.extend_from_slice(&ack_ms.to_le_bytes());
        bytes.extend_from_slice(&max_attempts.to_le_bytes());
        bytes.push(u8::from(*ordered));
        let name = &dead_letter.as_bytes()[..dead_letter.floor_char_boundary(255)];
        bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.next.to_le_bytes());
        put_u32(&mut bytes, self.pending.len());
        for SavedEntry { position, len, key, attempts } in &self.pending {
            bytes.extend_from_slice(&position.to_le_bytes());
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(&key.to_le_bytes());
            bytes.extend_from_slice(&attempts.to_le_bytes());
        }
        self.ahead.put(&mut bytes);
        bytes
    }
}

/// A batch of the journal.
pub(crate) enum Batch {
    Saved(Saved),
    Changes(Changes),
    /// The name of the log, and what may be operations.
    Consumers(u128, Vec<u8>),
    ConsumerChanges(Vec<u8>),
}

impl Batch {
    /// None: the bytes are no batch of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Fields(bytes);
        let [version, kind] = r.take::<2>()?;
        let batch = match (version, kind) {
            (VERSION, SAVED) => Self::Saved(r.saved()?),
            (VERSION, CHANGES) => Self::Changes(r.changes()?),
            (VERSION, CONSUMERS) => Self::Consumers(u128::from_le_bytes(r.take()?), r.rest()),
            (VERSION, CONSUMER_CHANGES) => Self::ConsumerChanges(r.rest()),
            _ => return None,
        };
        r.0.is_empty().then_some(batch)
    }
}

pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    /// A number of entries that the bytes have room for.
    fn count(&mut self, each: usize) -> Option<usize> {
        let count = u32::from_le_bytes(self.take()?) as usize;
        (count <= self.0.len() / each).then_some(count)
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }

    fn saved(&mut self) -> Option<Saved> {
        let ack_ms = u32::from_le_bytes(self.take()?);
        let max_attempts = u16::from_le_bytes(self.take()?);
        let [ordered, len] = self.take()?;
        let (name, rest) = self.0.split_at_checked(len.into())?;
        self.0 = rest;
        let dead_letter = std::str::from_utf8(name).ok()?.to_owned();
        let settings = Settings { ack_ms, max_attempts, dead_letter, ordered: ordered != 0 };
        let epoch = u128::from_le_bytes(self.take()?);
        let [generation, next] = [u64::from_le_bytes(self.take()?), u64::from_le_bytes(self.take()?)];
        let pending = (0..self.count(18)?).map(|_| self.entry()).collect::<Option<_>>()?;
        Some(Saved { settings, epoch, generation, next, pending, ahead: self.changes()? })
    }

    fn entry(&mut self) -> Option<SavedEntry> {
        Some(SavedEntry {
            position: u64::from_le_bytes(self.take()?),
            len: u32::from_le_bytes(self.take()?),
            key: u32::from_le_bytes(self.take()?),
            attempts: u16::from_le_bytes(self.take()?),
        })
    }

    fn changes(&mut self) -> Option<Changes> {
        let done = (0..self.count(8)?).map(|_| self.take().map(u64::from_le_bytes)).collect::<Option<_>>()?;
        let failed = |fields: &mut Self| {
            Some((u64::from_le_bytes(fields.take()?), u16::from_le_bytes(fields.take()?)))
        };
        let failed = (0..self.count(10)?).map(|_| failed(self)).collect::<Option<_>>()?;
        Some(Changes { done, failed })
    }
}

fn put_u32(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}
