//! A copy of a small delivery beside the head: a reader that loads the head has it in the same cache line.
//!
//! ```text
//!   writer                                 reader, which has seen a boundary at or above `to`
//!   tag = 0                                tag names the delivery? no: its bytes are in the ring
//!   ── Release fence ──                    read the bytes
//!   the bytes                              ── Acquire fence ──
//!   tag = the delivery (Release)           tag still the same? the bytes are valid
//!   publish head and boundary
//! ```
//!
//! Between two spinning cores a cache line takes a good part of a message's time, and without the copy there would be two of
//! them, one after the other. This is a sequence lock whose tags never repeat, as positions only grow. In a stream a reader takes
//! many deliveries at a time out of the ring, and the copy would only cost the writer time (`Pace`).
//!
//! ```
//! use rocketring::small_payload::{SMALL_PAYLOAD_WORDS, read, write};
//! use rocketring::sync::AtomicU64;
//!
//! let words: [AtomicU64; SMALL_PAYLOAD_WORDS] = Default::default();
//! write(&words, 105, &[b"he", b"llo"]);
//! let mut bytes = [0; 5];
//! assert!(read(&words, 105, &mut bytes) && bytes == *b"hello");
//! assert!(!read(&words, 104, &mut bytes), "another delivery, or part of one: its bytes are in the ring");
//! ```

#[cfg(not(loom))]
use std::time::{Duration, Instant};

use crate::Position;
use crate::sync::{AtomicU64, Ordering, fence};

/// The largest delivery that is copied: with its tag, the head and the boundary it fills a line of 64 bytes.
pub const SMALL_PAYLOAD_BYTES: usize = 40;
/// The tag and the bytes.
pub const SMALL_PAYLOAD_WORDS: usize = 1 + SMALL_PAYLOAD_BYTES / WORD;

const WORD: usize = size_of::<u64>();

/// The bits of a tag that hold the length.
const LEN_BITS: u32 = 6;

/// Identifies a delivery by its end and its length; 0 for none. Two deliveries with one tag lie 2⁵⁸ bytes apart.
fn tag(to: Position, len: usize) -> u64 {
    to << LEN_BITS | len as u64
}

/// Whether deliveries are made one by one, as where each waits for an answer, or in a stream.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct Pace {
    single: bool,
    /// Deliveries until the clock is read again: reading it for each would cost as much as the copy.
    left: u32,
    since: Instant,
}

/// This many deliveries are a stream if they took no longer than this.
#[cfg(not(loom))]
const STREAM: (u32, Duration) = (64, Duration::from_micros(10));

#[cfg(not(loom))]
impl Pace {
    pub(crate) fn new() -> Pace {
        Pace { single: true, left: STREAM.0, since: Instant::now() }
    }

    /// Whether deliveries are made one by one. To be called once for each delivery.
    #[inline]
    pub(crate) fn is_single(&mut self) -> bool {
        self.left -= 1;
        if self.left == 0 {
            self.measure(Instant::now());
        }
        self.single
    }

    fn measure(&mut self, now: Instant) {
        self.single = now.duration_since(self.since) > STREAM.1;
        (self.left, self.since) = (STREAM.0, now);
    }
}

/// Writes the delivery that ends at `to`: `parts`, one after the other, if it is small enough. By the writing end alone, before it
/// publishes that delivery.
#[inline]
pub fn write(words: &[AtomicU64; SMALL_PAYLOAD_WORDS], to: Position, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    if len == 0 || len > SMALL_PAYLOAD_BYTES {
        return;
    }
    let [tag_word, content @ ..] = words;
    tag_word.store(0, Ordering::Relaxed);
    // Pairs with the fence in `read`: a reader of one of the bytes sees that the tag has changed.
    fence(Ordering::Release);
    let mut packed = Packed { words: content.iter(), last: 0, bits: 0 };
    for part in parts {
        let (whole, rest) = part.as_chunks::<WORD>();
        whole.iter().for_each(|bytes| packed.push(u64::from_le_bytes(*bytes), u64::BITS));
        packed.push(short(rest), 8 * rest.len() as u32);
    }
    packed.end();
    // Pairs with the Acquire in `read`: a reader that loads this tag loads its bytes.
    tag_word.store(tag(to, len), Ordering::Release);
}

/// Packs bytes into words, in registers: a word that is stored in pieces and loaded whole waits for all stores before it, and
/// these are to memory that another core has.
struct Packed<'a> {
    words: std::slice::Iter<'a, AtomicU64>,
    last: u64,
    /// The number of valid bits of `last`: less than 64.
    bits: u32,
}

impl Packed<'_> {
    /// The lowest `bits` of `bytes`, the first byte lowest, and zeros above them.
    #[inline]
    fn push(&mut self, bytes: u64, bits: u32) {
        let total = self.bits + bits;
        self.last |= bytes << self.bits;
        if total < u64::BITS {
            self.bits = total;
            return;
        }
        self.end();
        self.last = bytes.checked_shr(u64::BITS - self.bits).unwrap_or(0);
        self.bits = total - u64::BITS;
    }

    #[inline]
    fn end(&mut self) {
        if let Some(word) = self.words.next() {
            // In memory order.
            word.store(self.last.to_le(), Ordering::Relaxed);
        }
    }
}

/// Fewer than eight bytes as a number, the first byte lowest.
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

/// Copies the delivery that ends at `to` and has `dst.len()` bytes, if it is the last written one. False otherwise.
#[inline]
pub fn read(words: &[AtomicU64; SMALL_PAYLOAD_WORDS], to: Position, dst: &mut [u8]) -> bool {
    let [tag_word, content @ ..] = words;
    let wanted = tag(to, dst.len());
    if dst.is_empty() || dst.len() > SMALL_PAYLOAD_BYTES || tag_word.load(Ordering::Acquire) != wanted {
        return false;
    }
    for (bytes, word) in dst.chunks_mut(WORD).zip(content) {
        let word = word.load(Ordering::Relaxed).to_ne_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
    fence(Ordering::Acquire);
    tag_word.load(Ordering::Relaxed) == wanted
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn fast_deliveries_are_a_stream_until_they_slow_down() {
        let mut pace = Pace::new();
        let mut now = pace.since;
        for (apart, single) in [(500, true), (30, false), (100, false), (300, true)] {
            for _ in 0..STREAM.0 - 1 {
                pace.is_single();
            }
            now += STREAM.0 * Duration::from_nanos(apart);
            pace.measure(now);
            assert_eq!(pace.single, single, "{apart} ns apart");
        }
    }
}
