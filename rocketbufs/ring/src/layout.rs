//! The memory of a ring and what follows from its size, and the larger memory that replaces it when the ring grows.
//!
//! ```text
//!   first ──next──▶ larger ──next──▶ newest         positions, holds and the horizon belong to no layout and go on
//! ```
//!
//! A larger layout has the same bytes from its *floor* on, copied by the only thread that may write the ring. The former
//! memory stays mapped until the ring is dropped: slices and transports that have an address in it read the same bytes there.

use crate::Position;
use crate::backing::Memory;
use crate::index::BoundaryIndex;
use crate::shape::Shape;
use crate::sync::OnceLock;

/// The memory of a ring for as long as it has one size.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
    pub(crate) memory: Memory,
    pub(crate) index: BoundaryIndex,
    /// The bytes below are not in this memory.
    floor: Position,
    /// Set once, when the ring grows. A thread that loads a position which was published after that sees it.
    next: OnceLock<Box<Layout>>,
}

impl Layout {
    pub(crate) fn new(memory: Memory, shape: Shape, floor: Position) -> Layout {
        let index = BoundaryIndex::new(shape.capacity.max(1), shape.max_delivery);
        Layout { shape, memory, index, floor, next: OnceLock::new() }
    }

    /// The layout that is in use: of most rings the first one.
    #[inline]
    pub(crate) fn newest(&self) -> &Layout {
        match self.next.get() {
            None => self,
            Some(next) => next.newest_of_grown(),
        }
    }

    /// Whether a larger one is in the place of this one.
    pub(crate) fn has_grown(&self) -> bool {
        self.next.get().is_some()
    }

    #[cold]
    fn newest_of_grown(&self) -> &Layout {
        let mut newest = self;
        while let Some(next) = newest.next.get() {
            newest = next;
        }
        newest
    }

    /// The lowest stable position under this horizon.
    #[inline]
    pub(crate) fn tail_of(&self, horizon: Position) -> Position {
        horizon.saturating_sub(self.shape.capacity).max(self.floor)
    }

    /// Bytes of this layout and of all that came after it. Two of the same size have the same memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let (mut layout, mut bytes) = (self, self.shape.capacity);
        while let Some(next) = layout.next.get() {
            if next.shape.capacity != layout.shape.capacity {
                bytes += next.shape.capacity;
            }
            layout = next;
        }
        bytes
    }

    /// Puts a larger layout in the place of this one, which is the newest. The control lock is held.
    pub(crate) fn replace(&self, larger: Layout) {
        let replaced = self.next.set(Box::new(larger));
        debug_assert!(replaced.is_ok(), "a layout was replaced twice");
    }
}
