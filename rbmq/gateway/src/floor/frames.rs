//! The log of frames: a ring of bytes that many connections send from.
//!
//! ```text
//!      tail = head − capacity                             head
//!        │  frames that connections may still send         │
//!   ─────┴──────────────────────────────────────────────────┴──────▶ positions
//! ```
//!
//! A frame is one piece of memory: one that does not fit before the end of the ring begins at its start, and the positions between are
//! skipped. While clients keep up, only the beginning of the ring is in use, which the caches of the processor hold.

use crate::protocol::Range;

/// From here on the ring begins anew as soon as nobody needs it.
const HOT_BYTES: usize = 256 << 10;

/// The ring. See the module.
#[derive(Debug)]
pub(crate) struct Frames {
    bytes: Box<[u8]>,
    head: u64,
}

impl Frames {
    /// A ring of so many bytes. Memory is in use from its first frame on.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { bytes: vec![0; capacity].into_boxed_slice(), head: 0 }
    }

    /// The position behind the last frame.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    /// The largest frame: a quarter of the ring, so that connections have time to send it.
    pub(crate) fn max_frame(&self) -> usize {
        self.bytes.len() / 4
    }

    /// The positions below this one are gone, once a frame of `len` bytes is appended.
    pub(crate) fn tail_after(&self, len: usize) -> u64 {
        (self.start_of(len) + len as u64).saturating_sub(self.bytes.len() as u64)
    }

    /// Appends a frame that is made of pieces.
    ///
    /// # Panics
    /// If it is larger than [`Frames::max_frame`].
    pub(crate) fn append(&mut self, pieces: &[&[u8]]) -> Range {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        assert!(len <= self.max_frame(), "a frame of {len} bytes in a log of {}", self.bytes.len());
        let position = self.start_of(len);
        let mut at = self.place(position);
        for piece in pieces {
            self.bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        self.head = position + len as u64;
        let len = u32::try_from(len).expect("a frame is smaller than the ring");
        Range { position, len }
    }

    /// Nobody needs the frames that there are: the next one is at the start of the ring, if it has gone far from there.
    pub(crate) fn rewind(&mut self) {
        let at = self.place(self.head);
        if at >= HOT_BYTES {
            self.head += (self.bytes.len() - at) as u64;
        }
    }

    /// Whether a range is still in the ring.
    pub(crate) fn has(&self, range: Range) -> bool {
        range.position >= self.head.saturating_sub(self.bytes.len() as u64)
    }

    /// The bytes of a range that is in the ring.
    pub(crate) fn get(&self, range: Range) -> &[u8] {
        debug_assert!(self.has(range));
        let at = self.place(range.position);
        &self.bytes[at..at + range.len as usize]
    }

    /// Whether one range of the ring's memory follows another one.
    pub(crate) fn are_adjacent(&self, first: Range, second: Range) -> bool {
        first.position + u64::from(first.len) == second.position && self.place(second.position) != 0
    }

    fn start_of(&self, len: usize) -> u64 {
        let at = self.place(self.head);
        if at + len <= self.bytes.len() { self.head } else { self.head + (self.bytes.len() - at) as u64 }
    }

    fn place(&self, position: u64) -> usize {
        usize::try_from(position % self.bytes.len() as u64).expect("below the size of the ring")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_needs_is_overwritten_first() {
        let mut frames = Frames::new(4 * HOT_BYTES);
        let first = frames.append(&[&[1; 100]]);
        frames.rewind();
        let second = frames.append(&[&vec![2; HOT_BYTES]]);
        assert_eq!((second.position, frames.get(first)), (100, &[1; 100][..]));
        frames.rewind();
        let third = frames.append(&[&[3; 200]]);
        assert_eq!((third.position, frames.get(third)), (4 * HOT_BYTES as u64, &[3; 200][..]));
        assert!(!frames.has(first) && !frames.are_adjacent(second, third));
    }

    #[test]
    fn frames_are_whole_and_stay_until_the_ring_has_gone_round() {
        let mut frames = Frames::new(100);
        let mut kept: Vec<(Range, Vec<u8>)> = Vec::new();
        for n in 0..1000_usize {
            let frame: Vec<u8> = (0..n % 26).map(|at| (n + at) as u8).collect();
            let tail = frames.tail_after(frame.len());
            kept.retain(|(range, _)| range.position >= tail);
            let (a, b) = frame.split_at(frame.len() / 2);
            let range = frames.append(&[a, b]);
            if let Some((last, _)) = kept.last()
                && frames.are_adjacent(*last, range)
            {
                let both = Range { position: last.position, len: last.len + range.len };
                assert!(frames.get(both).ends_with(&frame));
            }
            kept.push((range, frame));
            kept.iter().for_each(|(range, bytes)| assert_eq!(frames.get(*range), bytes));
        }
    }
}
