//! The stream of one key at its sender: chunks of bytes, until they are acknowledged.
//!
//! ```text
//!   acknowledged │ chunk (on its way) │ chunk (lost) │ chunk (not sent) │ chunk that is filled │ end
//!                └ base                              └ unsent
//! ```
//!
//! A chunk fills one segment. Messages follow each other without regard to chunks.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use crate::event::Undelivered;
use crate::wire::reliable::LONG;

/// The most ranges of failed messages that are remembered for each key.
const MAX_FAILED: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unsent,
    /// In the segment with this number.
    Sent(u64),
    Lost,
    Done,
}

struct Chunk {
    offset: u64,
    bytes: Vec<u8>,
    state: State,
}

/// The memory of confirmed chunks, for reuse.
#[derive(Default)]
pub(crate) struct Spares(Vec<Vec<u8>>);

impl Spares {
    /// The most chunks, and the most bytes of one.
    const MOST: usize = 256;
    const MAX_BYTES: usize = 2048;

    fn take(&mut self, size: usize) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| Vec::with_capacity(size.min(Self::MAX_BYTES)))
    }

    fn put(&mut self, mut bytes: Vec<u8>) {
        if self.0.len() < Self::MOST && bytes.capacity() <= Self::MAX_BYTES {
            bytes.clear();
            self.0.push(bytes);
        }
    }
}

/// The fate of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// The message is on its way.
    Pending,
    /// The receiving queue has the message, and all earlier ones of its key.
    Confirmed,
    /// The message was not confirmed in time. The message may have arrived all the same.
    Failed(Undelivered),
}

pub(crate) struct OutStream {
    pub run: u32,
    chunks: VecDeque<Chunk>,
    /// The index of the first chunk that was not sent.
    unsent: usize,
    end: u64,
    /// Chunks before this offset may be sent: a batch is sent as a whole, with few calls of the system.
    flushed: u64,
    lost: BTreeSet<u64>,
    /// The offset up to which the receiver accepts bytes. It goes back if the receiver refused bytes for lack of memory, which then wait
    /// for a later credit.
    pub credit: u64,
    /// The end offset of each unconfirmed message, and the number of the first of them.
    messages: VecDeque<u64>,
    first: u64,
    failed: VecDeque<(u64, u64, Undelivered)>,
    /// The time of the last confirmation, or of the push of the first message after it.
    pub progress: Instant,
    /// When the oldest message that was not flushed was pushed.
    pub waits_since: Option<Instant>,
    /// Messages that were pushed since the last flush.
    pub waiting: usize,
    /// True while the stream is in its link's queue.
    pub queued: bool,
}

impl OutStream {
    pub fn new(now: Instant, run: u32, credit: u64) -> OutStream {
        OutStream {
            run,
            chunks: VecDeque::new(),
            unsent: 0,
            end: 0,
            flushed: 0,
            lost: BTreeSet::new(),
            credit,
            messages: VecDeque::new(),
            first: 0,
            failed: VecDeque::new(),
            progress: now,
            waits_since: None,
            waiting: 0,
            queued: false,
        }
    }

    /// Adds a message, in chunks of at most `size` bytes. Returns its number.
    pub fn push(&mut self, now: Instant, message: &[u8], size: usize, spares: &mut Spares) -> u64 {
        if self.messages.is_empty() {
            self.progress = now;
        }
        match u16::try_from(message.len()) {
            Ok(length) if length != LONG => self.append(&length.to_le_bytes(), size, spares),
            _ => {
                self.append(&LONG.to_le_bytes(), size, spares);
                self.append(&(message.len() as u32).to_le_bytes(), size, spares);
            }
        }
        self.append(message, size, spares);
        self.messages.push_back(self.end);
        self.waits_since.get_or_insert(now);
        self.waiting += 1;
        self.first + self.messages.len() as u64 - 1
    }

    fn append(&mut self, mut bytes: &[u8], size: usize, spares: &mut Spares) {
        while !bytes.is_empty() {
            let open = self.chunks.back_mut().filter(|c| c.state == State::Unsent && c.bytes.len() < size);
            let Some(chunk) = open else {
                self.chunks.push_back(Chunk {
                    offset: self.end,
                    bytes: spares.take(size),
                    state: State::Unsent,
                });
                continue;
            };
            let (now, later) = bytes.split_at(bytes.len().min(size - chunk.bytes.len()));
            chunk.bytes.extend_from_slice(now);
            self.end += now.len() as u64;
            bytes = later;
        }
    }

    /// Allows all pushed messages to be sent.
    pub fn flush(&mut self) {
        (self.flushed, self.waits_since, self.waiting) = (self.end, None, 0);
    }

    /// Bytes that were pushed since the last flush.
    pub fn unflushed(&self) -> usize {
        (self.end - self.flushed) as usize
    }

    /// Bytes that are not acknowledged.
    pub fn buffered(&self) -> usize {
        (self.end - self.base()) as usize
    }

    fn base(&self) -> u64 {
        self.chunks.front().map_or(self.end, |chunk| chunk.offset)
    }

    /// True if messages are not confirmed.
    pub fn has_unconfirmed(&self) -> bool {
        !self.messages.is_empty()
    }

    /// True if the next chunk waits only for the receiver's credit.
    pub fn is_blocked(&self) -> bool {
        self.sendable().is_some_and(|chunk| !self.is_allowed(chunk))
    }

    /// The next chunk to send: a lost one, or one that was not sent, if it was flushed.
    fn sendable(&self) -> Option<&Chunk> {
        let lost = self.lost.first().and_then(|&offset| self.find(offset)).map(|at| &self.chunks[at]);
        lost.or_else(|| self.chunks.get(self.unsent).filter(|chunk| chunk.offset < self.flushed))
    }

    fn is_allowed(&self, chunk: &Chunk) -> bool {
        chunk.offset + chunk.bytes.len() as u64 <= self.credit
    }

    /// True if [`OutStream::next`] has a chunk.
    pub fn is_ready(&self) -> bool {
        self.sendable().is_some_and(|chunk| self.is_allowed(chunk))
    }

    /// The next chunk to send, with `number`: a lost one first. A chunk larger than `size` is cut, because the path has become smaller.
    /// Returns the offset, the bytes, and whether they are sent again.
    pub fn next(&mut self, number: u64, size: usize) -> Option<(u64, &[u8], bool)> {
        if !self.is_ready() {
            return None;
        }
        let again = self.lost.pop_first();
        let at = match again {
            Some(offset) => self.find(offset)?,
            None => self.unsent,
        };
        if self.chunks[at].bytes.len() > size {
            self.cut(at, size);
        }
        if again.is_none() {
            self.unsent = at + 1;
        }
        let chunk = &mut self.chunks[at];
        chunk.state = State::Sent(number);
        Some((chunk.offset, &chunk.bytes, again.is_some()))
    }

    fn cut(&mut self, at: usize, size: usize) {
        let chunk = &mut self.chunks[at];
        let (offset, state) = (chunk.offset + size as u64, chunk.state);
        let bytes = chunk.bytes.split_off(size);
        self.chunks.insert(at + 1, Chunk { offset, bytes, state });
        if state == State::Lost {
            self.lost.insert(offset);
            self.unsent += 1;
        }
    }

    /// The index of the chunk that begins at this offset.
    fn find(&self, offset: u64) -> Option<usize> {
        self.chunks.binary_search_by_key(&offset, |chunk| chunk.offset).ok()
    }

    /// A part has arrived. Returns the number of messages that are confirmed by it.
    pub fn arrived(&mut self, now: Instant, offset: u64, length: usize, spares: &mut Spares) -> u64 {
        let end = offset + length as u64;
        let begin = self.chunks.partition_point(|chunk| chunk.offset < offset);
        for chunk in self.chunks.range_mut(begin..) {
            if chunk.offset + chunk.bytes.len() as u64 > end {
                break;
            }
            if chunk.state == State::Lost {
                self.lost.remove(&chunk.offset);
            }
            if chunk.state != State::Unsent {
                chunk.state = State::Done;
            }
        }
        while let Some(chunk) = self.chunks.pop_front_if(|chunk| chunk.state == State::Done) {
            spares.put(chunk.bytes);
            self.unsent -= 1;
        }
        let base = self.base();
        let confirmed = self.messages.partition_point(|&end| end <= base);
        if confirmed > 0 {
            self.messages.drain(..confirmed);
            self.first += confirmed as u64;
            self.progress = now;
        }
        confirmed as u64
    }

    /// Handles the loss of a part in the segment with this number. The part is sent again, unless a later segment has it.
    /// Returns whether it is sent again.
    pub fn lost(&mut self, number: u64, offset: u64, length: usize) -> bool {
        let before = self.lost.len();
        let end = offset + length as u64;
        let begin = self.chunks.partition_point(|chunk| chunk.offset < offset);
        for chunk in self.chunks.range_mut(begin..) {
            if chunk.offset >= end {
                break;
            }
            if chunk.state == State::Sent(number) {
                chunk.state = State::Lost;
                self.lost.insert(chunk.offset);
            }
        }
        self.lost.len() > before
    }

    /// Gives up all messages that are not confirmed. Returns the number of the first one, how many there are, and their bytes. The
    /// stream begins again as another run.
    pub fn fail(&mut self, now: Instant, why: Undelivered, run: u32, credit: u64) -> (u64, u64, usize) {
        let (first, count, bytes) = (self.first, self.messages.len() as u64, self.buffered());
        let (queued, mut failed) = (self.queued, std::mem::take(&mut self.failed));
        failed.push_back((first, count, why));
        if failed.len() > MAX_FAILED {
            failed.pop_front();
        }
        *self = OutStream { first: first + count, failed, queued, ..OutStream::new(now, run, credit) };
        (first, count, bytes)
    }

    /// Begins another run, while nothing is unconfirmed.
    pub fn renew(&mut self, now: Instant, run: u32, credit: u64) {
        let failed = std::mem::take(&mut self.failed);
        *self = OutStream { first: self.first, failed, ..OutStream::new(now, run, credit) };
    }

    /// The fate of a message, if it was pushed.
    pub fn fate(&self, number: u64) -> Option<Fate> {
        if number >= self.first {
            return (number < self.first + self.messages.len() as u64).then_some(Fate::Pending);
        }
        let failed = self.failed.iter().find(|(first, count, _)| (*first..first + count).contains(&number));
        Some(failed.map_or(Fate::Confirmed, |&(.., why)| Fate::Failed(why)))
    }
}
