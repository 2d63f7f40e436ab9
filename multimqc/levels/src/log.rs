//! The logical log: offsets, windows, holes, and batches that carry their offset.
//!
//! ```text
//!   offsets   0 ──────────────────────────────────────────────────────────▶
//!   log       │ b b b b b b │ hole │ b b b b b b b b b b b b │
//!                      first│      │                         │head
//!   a level            └──── window ─────────────────────────┘
//!   a batch                                                  │ offset, bytes │     continues the log
//!                                                            ·  │ offset, bytes │  leaves a hole before it
//!                                                        │ offset, bytes │        repeats its first bytes
//! ```
//!
//! All levels hold parts of the same log, so an offset means the same byte in each of them. A *hole* is a range whose bytes a
//! level never got. A hole keeps its offsets: later bytes are never moved into it.

use std::ops::Range;

use crate::topic::Epoch;

/// The place of a byte in the log of a topic, counted from 0.
pub type Offset = u64;

/// The largest offset of a log. Additions of two lengths below it never overflow.
pub const MAX_OFFSET: Offset = u64::MAX >> 1;

/// A range of a log that a level never got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The first missing byte.
    pub from: Offset,
    /// The first byte after the hole.
    pub to: Offset,
}

impl Hole {
    /// The number of missing bytes.
    pub fn bytes(&self) -> u64 {
        self.to - self.from
    }

    /// Whether the byte at this offset is missing.
    pub fn contains(&self, offset: Offset) -> bool {
        (self.from..self.to).contains(&offset)
    }
}

/// The part of a log that a level holds: the bytes `[first, head)` without the holes among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The oldest byte that can be read. Equal to `head` if there is none.
    pub first: Offset,
    /// The end of the log as far as the level knows it.
    pub head: Offset,
    /// The incarnation of the log.
    pub epoch: Epoch,
}

impl Window {
    /// The number of bytes between both ends.
    pub fn bytes(&self) -> u64 {
        self.head - self.first
    }

    /// The part of a range that lies in the window. Empty if no part does.
    pub fn clip(&self, range: Range<Offset>) -> Range<Offset> {
        let from = range.start.clamp(self.first, self.head);
        from..range.end.clamp(from, self.head)
    }
}

/// Consecutive bytes of a log with their offset. A batch without bytes marks a hole: the log continues at its offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The place of the first byte.
    pub offset: Offset,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// How a batch continues a log. Every level places batches by this rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement<'a> {
    /// The hole between the head of the log and the batch.
    pub hole: Option<Hole>,
    /// The bytes to append behind the hole.
    pub bytes: &'a [u8],
    /// How many bytes of the batch lie below the head of the log. They are dropped: a log is never rewritten, also where it
    /// has a hole.
    pub repeated: u64,
}

impl<'a> Batch<'a> {
    /// The offset after the last byte.
    pub fn end(&self) -> Offset {
        self.offset + self.bytes.len() as u64
    }

    /// How this batch continues a log with this head.
    ///
    /// ```
    /// use multimqc::{Batch, Hole};
    ///
    /// let placed = Batch { offset: 10, bytes: b"abc" }.place(8);
    /// assert_eq!((placed.hole, placed.bytes), (Some(Hole { from: 8, to: 10 }), &b"abc"[..]));
    /// let placed = Batch { offset: 10, bytes: b"abc" }.place(12);
    /// assert_eq!((placed.hole, placed.bytes, placed.repeated), (None, &b"c"[..], 2));
    /// ```
    pub fn place(&self, head: Offset) -> Placement<'a> {
        let hole = (self.offset > head).then_some(Hole { from: head, to: self.offset });
        let repeated = head.saturating_sub(self.offset).min(self.bytes.len() as u64);
        Placement { hole, bytes: &self.bytes[repeated as usize..], repeated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_below_the_head_adds_nothing() {
        let placed = Batch { offset: 3, bytes: b"abc" }.place(9);
        assert_eq!(placed, Placement { hole: None, bytes: b"", repeated: 3 });
    }

    #[test]
    fn a_batch_without_bytes_marks_a_hole() {
        let placed = Batch { offset: 12, bytes: b"" }.place(9);
        assert_eq!(placed, Placement { hole: Some(Hole { from: 9, to: 12 }), bytes: b"", repeated: 0 });
    }

    #[test]
    fn a_range_is_cut_to_the_window() {
        let window = Window { first: 10, head: 20, epoch: Epoch::ANY };
        assert_eq!(window.clip(5..15), 10..15);
        assert_eq!(window.clip(12..30), 12..20);
        assert_eq!(window.clip(30..40), 20..20);
        assert_eq!(window.clip(0..4), 10..10);
    }
}
