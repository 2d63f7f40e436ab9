//! A small delivery once more, beside the head: who sees the head has it in the same cache line.
//!
//! ```text
//!   writer                                 reader, which has seen a boundary at or above `to`
//!   tag = 0                                tag names the delivery? no: its bytes are in the ring
//!   ── Release fence ──                    read the bytes
//!   the bytes                              ── Acquire fence ──
//!   tag = the delivery (Release)           tag still the same? then they are those
//!   publish head and boundary
//! ```
//!
//! Between two cores that spin a line takes a good part of the time of a message, and without this it would be two of them, one
//! after the other. A sequence lock; its tags never come back, as positions only grow. Of a stream a reader takes many
//! deliveries at a time, which lie in the ring: there it would only cost the writer something (`Single`).
//!
//! ```
//! use rocketring::small_payload::{SMALL_PAYLOAD_WORDS, read, write};
//! use rocketring::sync::AtomicU64;
//!
//! let words: [AtomicU64; SMALL_PAYLOAD_WORDS] = Default::default();
//! write(&words, 105, &[b"he", b"llo"]);
//! let mut bytes = [0; 5];
//! assert!(read(&words, 105, &mut bytes) && bytes == *b"hello");
//! assert!(!read(&words, 104, &mut bytes), "another delivery, or part of one: that is in the ring");
//! ```

#[cfg(not(loom))]
use std::time::{Duration, Instant};

use crate::Position;
use crate::sync::{AtomicU64, Ordering, fence};

/// The largest delivery that is told so: with its tag, the head and the boundary it fills a line of 64 bytes.
pub const SMALL_PAYLOAD_BYTES: usize = 40;
/// The tag and the bytes.
pub const SMALL_PAYLOAD_WORDS: usize = 1 + SMALL_PAYLOAD_BYTES / WORD;

const WORD: usize = size_of::<u64>();

/// The bits of a tag that are the length.
const LEN_BITS: u32 = 6;

/// Of which delivery the bytes are, by its end and its length, or 0. Two of one tag lie 2⁵⁸ bytes apart.
fn tag(to: Position, len: usize) -> u64 {
    to << LEN_BITS | len as u64
}

/// Whether deliveries come one by one, as where each waits for an answer, and not in a stream.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Single {
    are: bool,
    /// Deliveries until the clock is read again: doing that for each would cost as much as what it is about.
    left: u32,
    since: Instant,
}

/// So many deliveries are a stream if they took no longer than this.
#[cfg(not(loom))]
const STREAM: (u32, Duration) = (64, Duration::from_micros(10));

#[cfg(not(loom))]
impl Single {
    pub(crate) fn new() -> Single {
        Single { are: true, left: STREAM.0, since: Instant::now() }
    }

    /// Asked once for each delivery.
    #[inline]
    pub(crate) fn are(&mut self) -> bool {
        self.left -= 1;
        if self.left == 0 {
            self.look(Instant::now());
        }
        self.are
    }

    fn look(&mut self, now: Instant) {
        self.are = now.duration_since(self.since) > STREAM.1;
        (self.left, self.since) = (STREAM.0, now);
    }
}

/// Tells the delivery that ends at `to`: `parts`, one after the other, if that is not too much. By the writing end alone, before
/// it publishes that delivery.
#[inline]
pub fn write(words: &[AtomicU64; SMALL_PAYLOAD_WORDS], to: Position, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    if len == 0 || len > SMALL_PAYLOAD_BYTES {
        return;
    }
    let [of, content @ ..] = words;
    of.store(0, Ordering::Relaxed);
    // Pairs with the fence in `read`: who reads one of the bytes sees that the tag is another, or none.
    fence(Ordering::Release);
    let mut packed = Packed { words: content.iter(), last: 0, bits: 0 };
    for part in parts {
        let (whole, rest) = part.as_chunks::<WORD>();
        whole.iter().for_each(|bytes| packed.push(u64::from_le_bytes(*bytes), u64::BITS));
        packed.push(short(rest), 8 * rest.len() as u32);
    }
    packed.end();
    // Pairs with the Acquire in `read`: who reads this tag reads its bytes.
    of.store(tag(to, len), Ordering::Release);
}

/// Bytes on their way into words. By way of registers: what is stored in pieces and loaded as words waits for all stores before
/// it, and these are to memory that another core has.
struct Packed<'a> {
    words: std::slice::Iter<'a, AtomicU64>,
    last: u64,
    /// Bits of `last` that are there: less than 64.
    bits: u32,
}

impl Packed<'_> {
    /// The lowest `bits` of `bytes`, the first byte lowest, and zeros above them.
    #[inline]
    fn push(&mut self, bytes: u64, bits: u32) {
        let there = self.bits + bits;
        self.last |= bytes << self.bits;
        if there < u64::BITS {
            self.bits = there;
            return;
        }
        self.end();
        self.last = bytes.checked_shr(u64::BITS - self.bits).unwrap_or(0);
        self.bits = there - u64::BITS;
    }

    #[inline]
    fn end(&mut self) {
        if let Some(word) = self.words.next() {
            // As bytes lie in memory.
            word.store(self.last.to_le(), Ordering::Relaxed);
        }
    }
}

/// Less than eight bytes as a number, the first byte lowest.
#[inline]
fn short(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => {
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (len - 4))
        }
        _ => bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

/// Copies the delivery that ends at `to`, all `dst.len()` bytes of it, if it is the one that was told.
#[inline]
pub fn read(words: &[AtomicU64; SMALL_PAYLOAD_WORDS], to: Position, dst: &mut [u8]) -> bool {
    let [of, content @ ..] = words;
    let wanted = tag(to, dst.len());
    if dst.is_empty() || dst.len() > SMALL_PAYLOAD_BYTES || of.load(Ordering::Acquire) != wanted {
        return false;
    }
    for (bytes, word) in dst.chunks_mut(WORD).zip(content) {
        let word = word.load(Ordering::Relaxed).to_ne_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
    fence(Ordering::Acquire);
    of.load(Ordering::Relaxed) == wanted
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_comes_fast_is_a_stream_until_it_does_not() {
        let mut single = Single::new();
        let mut now = single.since;
        for (apart, are) in [(500, true), (30, false), (100, false), (300, true)] {
            for _ in 0..STREAM.0 - 1 {
                single.are();
            }
            now += STREAM.0 * Duration::from_nanos(apart);
            single.look(now);
            assert_eq!(single.are, are, "{apart} ns apart");
        }
    }
}
