//! Received data, shown where it lies. The one place of this crate with `unsafe`: a plain slice of a ring's bytes is
//! given out only while something keeps them from being overwritten, which the types here see to.

#![allow(unsafe_code)]

use std::io::IoSlice;
use std::sync::Arc;

use rocketring::{Lapped, Ring, View};

use crate::state::InboundShared;
use crate::types::{Bid, Epoch, Position};

/// A piece of a buffer as a callback sees it (paper 1, Listing 1). It ends with the callback.
pub struct BufSeg<'a> {
    view: &'a InView,
    /// None for an overwritable buffer, and in memory that others write: bytes that may change at any time.
    slice: Option<[IoSlice<'a>; 1]>,
}

impl<'a> BufSeg<'a> {
    pub(crate) fn of(view: &'a InView) -> Self {
        Self { view, slice: view.as_slice().map(|bytes| [IoSlice::new(bytes)]) }
    }

    /// The pieces of memory, one or two. Rings are mapped twice, so it is one here; none if the buffer is
    /// overwritable, or in memory that others write (transport `shm`, without `shm.trust_writers`; transport `rdma`).
    pub fn vecs(&self) -> &[IoSlice<'a>] {
        self.slice.as_ref().map_or(&[], |slice| slice.as_slice())
    }

    /// How many pieces there are.
    pub fn vec_count(&self) -> usize {
        self.vecs().len()
    }

    /// All bytes; none if the buffer is overwritable, or in memory that others write (transport `shm`, without
    /// `shm.trust_writers`; transport `rdma`): then use [`BufSeg::copy_to`], or subscribe with
    /// [`own_memory`](crate::SubscribeOptions::own_memory).
    pub fn as_slice(&self) -> Option<&[u8]> {
        self.slice.as_ref().map(|[slice]| &**slice)
    }

    /// All bytes, also in memory that others write.
    ///
    /// # Safety
    /// As [`InView::trusting`].
    pub unsafe fn trusting(&self) -> Option<&[u8]> {
        // SAFETY: by the caller's promise.
        unsafe { self.view.trusting() }
    }

    /// Copies bytes from `offset` on.
    ///
    /// # Errors
    /// [`Lapped`]: the writer of an overwritable buffer was faster; what was copied is worthless.
    pub fn copy_to(&self, offset: usize, dst: &mut [u8]) -> Result<(), Lapped> {
        self.view.copy_to(offset, dst)
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Position of the first byte in the writer's log.
    pub fn position(&self) -> Position {
        self.view.position()
    }

    /// One past the position of the last byte.
    pub fn end(&self) -> Position {
        self.view.end()
    }

    /// The writer's log.
    pub fn epoch(&self) -> Epoch {
        self.view.epoch()
    }
}

/// Received data, borrowed from the ring: while it lives, its bytes are not overwritten. Dropping it gives nothing
/// back; [`InView::consume`] does.
pub struct InView {
    view: View,
    inbound: Arc<InboundShared>,
    epoch: Epoch,
    kept: Kept,
    /// What is given back with it: for an overwritable buffer also the marker behind the payload.
    end: Position,
}

/// What keeps the bytes of a view from being overwritten.
#[derive(Clone, Copy)]
enum Kept {
    /// Nothing can: it is of an overwritable buffer.
    No,
    /// Its start is pinned.
    PinGuard(Position),
    /// The reader that hands it out has given nothing of it back.
    ByReader,
}

impl InView {
    /// A view of which the caller made sure that its bytes stay: `pin`, its start, is pinned in `inbound` (or, where a
    /// splice makes others hold, it lives only while the thread that grants the writer more is busy with it).
    pub(crate) fn new(
        view: View,
        inbound: Arc<InboundShared>,
        epoch: Epoch,
        pin: Option<Position>,
        end: Position,
    ) -> Self {
        let kept = pin.map_or(Kept::No, Kept::PinGuard);
        Self { view, inbound, epoch, kept, end }
    }

    /// A view of nothing yet, of whoever reads `inbound` alone, gives back only what it has shown, and shows nothing else.
    pub(crate) fn of_reader(view: View, inbound: Arc<InboundShared>, epoch: Epoch) -> Self {
        let end = view.to();
        Self { view, inbound, epoch, kept: Kept::ByReader, end }
    }

    /// Of a reader: goes on to what comes next, up to `to`.
    #[inline]
    pub(crate) fn go_on(&mut self, to: Position) {
        self.view.move_to(self.end, to);
        self.end = to;
    }

    /// What it shows a part of.
    pub(crate) fn ring(&self) -> &Ring {
        self.view.ring()
    }

    /// The buffer.
    pub fn bid(&self) -> Bid {
        self.inbound.bid
    }

    /// The writer's log.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Position of the first byte.
    pub fn position(&self) -> Position {
        self.view.from()
    }

    /// One past the position of the last byte.
    pub fn end(&self) -> Position {
        self.view.to()
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes where they lie; none if the buffer is overwritable, or in memory that others write: another process of this
    /// machine (transport `shm`) whose word is not taken for it (`shm.trust_writers`), or a peer over RDMA. Then use
    /// [`InView::copy_to`], or subscribe with [`own_memory`](crate::SubscribeOptions::own_memory).
    pub fn as_slice(&self) -> Option<&[u8]> {
        let trusted = self.inbound.inner.config.shm.trust_writers;
        let kept = !matches!(self.kept, Kept::No) && is_kept(self.view.ring(), trusted);
        // SAFETY: the pin (or what the reader has not given back) keeps the ring's hold at or below the first byte for as long as `self` lives, and a
        // private flow-controlled ring is written only above the horizon that the hold allows; it stays private, see
        // `is_kept`. Of one that another process of this machine writes, whoever set `trust_writers` promised the same.
        kept.then(|| unsafe { self.view.as_slice() })
    }

    /// The bytes where they lie, also in memory that others write; none if the buffer is overwritable.
    ///
    /// # Safety
    /// Who writes the memory keeps its word: it overwrites nothing that is held. That is so if it is this
    /// library with an honest program, and if the subscription's policy is `block`. Over shared memory a broker in between
    /// changes nothing: the memory is the publisher's. Over RDMA it is whoever this end is connected to.
    pub unsafe fn trusting(&self) -> Option<&[u8]> {
        let kept = !matches!(self.kept, Kept::No);
        // SAFETY: the range is held, as in `as_slice`, and whoever else could write it does not, by the caller's promise.
        kept.then(|| unsafe { self.view.as_slice() })
    }

    /// Copies bytes from `offset` on.
    ///
    /// # Errors
    /// [`Lapped`]: the writer of an overwritable buffer was faster; what was copied is worthless.
    pub fn copy_to(&self, offset: usize, dst: &mut [u8]) -> Result<(), Lapped> {
        self.view.copy_to(offset, dst)
    }

    /// A copy of all bytes.
    ///
    /// # Errors
    /// As [`InView::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Lapped> {
        self.view.to_vec()
    }

    /// Gives back what this view shows below `position`, which it shows no longer.
    pub fn consume_part(&mut self, position: Position) {
        let position = position.clamp(self.position(), self.end());
        match &mut self.kept {
            Kept::PinGuard(pin) => self.inbound.unpin_part(std::mem::replace(pin, position), position),
            Kept::No | Kept::ByReader => self.inbound.consume_to(position),
        }
        self.view.move_to(position, self.view.to());
    }

    /// Gives back everything up to the end of this view: the writer may use the space again.
    pub fn consume(self) {
        let end = self.end;
        self.consume_up_to(end);
    }

    /// Gives back everything below `position`, of what this view shows: not what lies behind it, which a named subscription
    /// that goes on later gets again.
    pub fn consume_up_to(mut self, position: Position) {
        let end = position.clamp(self.position(), self.end);
        match std::mem::replace(&mut self.kept, Kept::No) {
            Kept::PinGuard(pin) => self.inbound.unpin(pin, Some(end)),
            Kept::No | Kept::ByReader => self.inbound.consume_to(end),
        }
    }
}

/// Whether bytes of this ring that are held stay as they are, from here on. `trusted`: the word of this machine's other
/// processes is taken for it. It is not a word of peers that write by themselves, from wherever they are.
fn is_kept(ring: &Ring, trusted: bool) -> bool {
    if ring.is_peer_written() { trusted && !ring.is_exposed() } else { ring.ensure_plain() }
}

impl Drop for InView {
    fn drop(&mut self) {
        if let Kept::PinGuard(pin) = self.kept {
            self.inbound.unpin(pin, None);
        }
    }
}

impl std::fmt::Debug for InView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = self.position()..self.end();
        f.debug_struct("InView").field("bid", &self.bid()).field("range", &range).finish()
    }
}

#[cfg(test)]
mod tests {
    use rocketring::{Pool, PoolConfig, RingConfig};

    use super::is_kept;

    #[test]
    fn what_a_peer_writes_by_itself_is_not_kept_whoever_is_trusted() {
        let pool = Pool::new(PoolConfig { max_bytes: 1 << 20, ..PoolConfig::default() }).expect("a pool");
        for trusted in [false, true] {
            let ring =
                || pool.ring(RingConfig { capacity_bytes: 4096, ..RingConfig::default() }).expect("a ring");
            let (own, exposed) = (ring(), ring());
            assert!(is_kept(&own, trusted) && own.pin_exposed().is_none());
            drop(exposed.pin_exposed());
            assert!(!is_kept(&exposed, trusted));
        }
    }
}
