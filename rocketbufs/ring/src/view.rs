//! Reading ranges of a ring, also while they are being overwritten.

use std::ops::Range;

use crate::Position;
use crate::hold::Hold;
use crate::ring::Ring;

/// A range of a ring's log. Keeps the ring's memory alive, but does not hold the range: bytes that must stay need a hold
/// ([`Ring::hold`]), which only rings with flow control have.
#[derive(Clone, Debug)]
pub struct View {
    ring: Ring,
    from: Position,
    to: Position,
}

/// The bytes were, or were about to be, overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reader was lapped by {by} bytes: it reads too slowly or the ring is too small")]
pub struct Lapped {
    /// How many bytes the first one read lies below the tail.
    pub by: u64,
}

impl Ring {
    /// The range `[from, to)`, to be read. Nothing is copied or checked yet.
    ///
    /// # Panics
    /// If `to` is below `from`, or the range is longer than the ring. Where the writer does not wait, that happens by
    /// itself: a reader that was lapped, or that read the tail before the head, must check first.
    pub fn view(&self, from: Position, to: Position) -> View {
        let mut view = View { ring: self.clone(), from, to: from };
        view.move_to(from, to);
        view
    }
}

impl View {
    /// Changes to another range of the same ring.
    ///
    /// # Panics
    /// If the range ends before it begins, or is larger than the ring.
    #[inline]
    pub fn move_to(&mut self, from: Position, to: Position) {
        assert!(
            from <= to && self.ring.shared().has_capacity(to - from),
            "no range of this ring: from {from} to {to}"
        );
        (self.from, self.to) = (from, to);
    }

    /// The first position.
    pub fn from(&self) -> Position {
        self.from
    }

    /// The position after the last.
    pub fn to(&self) -> Position {
        self.to
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        (self.to - self.from) as usize
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// The part `range` of this view, in bytes from its beginning.
    ///
    /// # Panics
    /// If the range is not within the view.
    pub fn sub(&self, range: Range<usize>) -> View {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of a view of {}", self.len());
        View {
            ring: self.ring.clone(),
            from: self.from + range.start as u64,
            to: self.from + range.end as u64,
        }
    }

    /// Copies `dst.len()` bytes from `offset` on, and then checks that they were not overwritten during the copy.
    ///
    /// # Errors
    /// [`Lapped`]: the bytes were being overwritten. The content of `dst` is then meaningless.
    ///
    /// # Panics
    /// If the bytes are not within the view.
    pub fn copy_to(&self, offset: usize, dst: &mut [u8]) -> Result<(), Lapped> {
        assert!(offset <= self.len() && dst.len() <= self.len() - offset, "beyond the end of the view");
        let from = self.from + offset as u64;
        let shared = self.ring.shared();
        if !shared.read_small_payload(from + dst.len() as u64, dst) {
            shared.memory().read(from, dst);
        }
        shared.lapped_by(from).map_or(Ok(()), |by| Err(Lapped { by }))
    }

    /// Continues the CRC-32C `before` with `len` bytes from `offset` on, in place, and then checks that they were not overwritten
    /// meanwhile.
    pub(crate) fn checksum(&self, before: u32, offset: usize, len: usize) -> Result<u32, Lapped> {
        assert!(offset <= self.len() && len <= self.len() - offset, "beyond the end of the view");
        let from = self.from + offset as u64;
        let shared = self.ring.shared();
        let checksum = shared.memory().checksum(before, from, len);
        shared.lapped_by(from).map_or(Ok(checksum), |by| Err(Lapped { by }))
    }

    /// The bytes, copied.
    ///
    /// # Errors
    /// As for [`View::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Lapped> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes)?;
        Ok(bytes)
    }

    /// The bytes in place.
    ///
    /// # Safety
    /// The range lies below the head of a flow-controlled ring that no peer can write ([`Ring::ensure_plain`]), and some
    /// [`Hold`] at or below [`View::from`] neither moves above it nor is dropped for as long as the slice lives.
    pub unsafe fn as_slice(&self) -> &[u8] {
        let at = self.ring.shared().memory().at(self.from).cast_const();
        // SAFETY: the range is mapped in one piece for as long as the ring lives, and by the caller's promise it is not
        // written meanwhile.
        unsafe { std::slice::from_raw_parts(at, self.len()) }
    }

    /// The bytes in place, if `hold` holds them at this moment and the whole range was written.
    ///
    /// # Safety
    /// The ring's memory cannot be written by others ([`Ring::ensure_plain`]), and `hold` is not advanced above [`View::from`]
    /// for as long as the slice lives. (That it is not dropped is checked by the borrow.)
    pub unsafe fn held<'h>(&self, hold: &'h Hold) -> Option<&'h [u8]> {
        let held = self.ring.flow_control()
            && self.ring.ptr_eq(hold.ring())
            && hold.position() <= self.from
            && self.to <= self.ring.head();
        let at = self.ring.shared().memory().at(self.from).cast_const();
        // SAFETY: checked here and promised by the caller as for `as_slice`; the borrowed hold keeps the memory.
        held.then(|| unsafe { std::slice::from_raw_parts(at, self.len()) })
    }
}
