//! The ring: its positions, its boundaries, its holes and its memory.

use crate::Position;
use crate::backing::Memory;
use crate::control::{Gap, Growth};
use crate::shape::Shape;
use crate::shared::Shared;
use crate::sync::{Arc, Ordering};
#[cfg(not(loom))]
use crate::{doorbell::PeerDoorbell, watch::WatchKey};

/// Memory that holds the last `capacity` bytes of a log. A handle: clones are the same ring.
#[derive(Clone, Debug)]
pub struct Ring(Arc<Shared>);

impl Ring {
    pub(crate) fn new(memory: Memory, shape: Shape) -> Ring {
        Ring(Arc::new(Shared::new(memory, shape)))
    }

    /// A ring without memory, of a log that begins at `start`: it costs no address space and grants nothing. Its receiver
    /// takes nothing but holes. Such a ring keeps a reader's place in a log while that reader has no memory.
    pub fn unbacked(start: Position) -> Ring {
        Ring::new(Memory::nothing(), Shape::unbacked(start))
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// Bytes of the log that the ring keeps: a power of two, or 0 ([`Ring::unbacked`]).
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.0.shape().capacity
    }

    /// Bytes of history that are kept without a hold.
    pub fn retain(&self) -> u64 {
        self.0.shape().retain
    }

    /// How far the log may go on beyond a hold that keeps all but the history.
    pub fn room_beside_history(&self) -> u64 {
        // Of one size of the ring, which may grow meanwhile.
        let Shape { capacity, retain, .. } = *self.0.shape();
        capacity - retain
    }

    /// The largest delivery, in bytes.
    pub fn max_delivery(&self) -> u64 {
        self.0.max_delivery()
    }

    /// The first place from `at` on with deliveries that may have more than so many bytes. It is below `at` if these have begun
    /// before. `None` if there is none.
    pub fn growth_beyond(&self, max_delivery: u64, at: Position) -> Option<Growth> {
        // A lock only for those who do not know the newest size.
        if max_delivery >= self.max_delivery() {
            return None;
        }
        self.0.control().growth_beyond(max_delivery, at)
    }

    /// Whether holds keep the writer from overwriting.
    pub fn flow_control(&self) -> bool {
        self.0.flow_control()
    }

    /// Where this ring's part of the log begins.
    pub fn start(&self) -> Position {
        self.0.first_shape().start
    }

    /// End of the written bytes.
    #[inline]
    pub fn head(&self) -> Position {
        self.0.published.head.load(Ordering::Acquire)
    }

    /// End of the last complete delivery. Read before [`Ring::head`] it is never above the head.
    #[inline]
    pub fn boundary(&self) -> Position {
        self.0.published.boundary.load(Ordering::Acquire)
    }

    /// Where the last complete delivery begins, if the ring still has it. For a ring that a transport fills, the last
    /// delivery is the last one whose end arrived. A boundary read after this is never below it.
    pub fn last_delivery(&self) -> Option<Position> {
        let last = self.0.published.last.load(Ordering::Acquire);
        (last < self.boundary() && last >= self.tail()).then_some(last)
    }

    /// How far the writer may write without another grant. Never moves back.
    #[inline]
    pub fn horizon(&self) -> Position {
        self.0.horizon.load(Ordering::Acquire)
    }

    /// The lowest position that is still stable: `horizon − capacity`, but not below the start. If head and tail are
    /// needed, read the head first: in the other order the writer may have written in between. The tail can be above the
    /// boundary where a delivery is longer than the ring was made for, and above the head where another process writes.
    pub fn tail(&self) -> Position {
        self.0.tail_of(self.horizon()).max(self.0.peer_tail())
    }

    /// The smallest known boundary at or above both `p` and the tail. The start and the last boundary are always
    /// known, others by an index that keeps one per block (about a sixteenth of the largest delivery). `None` if
    /// `p` is above the last boundary.
    pub fn boundary_at_or_after(&self, p: Position) -> Option<Position> {
        // The positions first: the index of a ring that has grown meanwhile has them too.
        let known = self.0.known();
        self.0.index().at_or_after(p, &known)
    }

    /// The largest known boundary at or below `p` that is not below the tail.
    pub fn boundary_at_or_before(&self, p: Position) -> Option<Position> {
        let known = self.0.known();
        self.0.index().at_or_before(p, &known)
    }

    /// The first hole that ends above `p`. Costs a load where there is none. A reader that has seen a boundary
    /// sees every hole below it.
    pub fn gap_after(&self, p: Position) -> Option<Gap> {
        if self.0.last_gap_to.load(Ordering::Acquire) <= p {
            return None;
        }
        self.0.control().gap_after(p)
    }

    /// Whether the bytes at and above `from` were not being overwritten when they were read. To be asked *after* the bytes
    /// were used: an answer from before says nothing.
    pub fn is_stable(&self, from: Position) -> bool {
        self.0.lapped_by(from).is_none()
    }

    /// Takes the right to make the one writing end.
    pub(crate) fn take_end(&self) -> bool {
        !self.0.end_taken.swap(true, Ordering::AcqRel)
    }

    /// Whether another process writes the bytes, and this one only maps them. If that process is hostile, the bytes may change
    /// at any time, held or not.
    #[inline]
    pub fn is_peer_written(&self) -> bool {
        self.0.origin().is_peer_written()
    }

    /// The ring's file, by which another process maps this ring ([`PeerMapper::map`](crate::PeerMapper::map)). The file
    /// belongs to the ring. A ring that shares its file with others has none. A ring that is itself mapped from another
    /// process has one too, and can be handed on.
    #[cfg(not(loom))]
    pub fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.0.origin().region().map(|region| region.file().as_fd())
    }

    /// Registers `doorbell`: it rings when the writing end publishes while the doorbell's reader sleeps. A delivery at the
    /// same moment may be missed: the caller notifies the reader of earlier deliveries. False if there are
    /// [`MAX_WATCHERS`](crate::MAX_WATCHERS) already.
    #[cfg(not(loom))]
    pub fn watch(&self, key: WatchKey, doorbell: Arc<PeerDoorbell>) -> bool {
        self.0.watchers.add(key, doorbell)
    }

    /// Removes the doorbell with this key. The writing end drops it when it publishes the next time.
    #[cfg(not(loom))]
    pub fn unwatch(&self, key: WatchKey) {
        self.0.watchers.remove(key);
    }

    /// The address of the bytes of `[from, from + len)`, in one piece: for a transport's `writev`. The ring must outlive the use
    /// of the pointer, and the bytes may change at any time unless they are held.
    ///
    /// # Panics
    /// If `len` is more than the capacity.
    pub fn raw(&self, from: Position, len: usize) -> *const u8 {
        assert!(self.0.has_capacity(len as u64), "a range longer than its ring");
        self.0.memory().at(from).cast_const()
    }

    /// Whether both are handles to the same ring.
    pub fn ptr_eq(&self, other: &Ring) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
