//! Views of received data in place. The only file of this crate with `unsafe`: a plain slice of a ring's
//! bytes is given out only while the types here prevent the bytes from being overwritten.

#![allow(unsafe_code)]

use std::io::IoSlice;
use std::sync::Arc;

use rocketring::{Lapped, Ring, View};

use crate::ground::types::{Bid, Epoch, Position};
use crate::state::SubscriptionShared;

/// A range of a buffer that a callback receives (paper 1, Listing 1). The segment is valid until the callback returns.
pub struct BufSeg<'a> {
    view: &'a InView,
    /// `None` for an overwritable buffer, and in memory that other processes write: those bytes may change at
    /// any time.
    slice: Option<[IoSlice<'a>; 1]>,
}

impl<'a> BufSeg<'a> {
    pub(crate) fn of(view: &'a InView) -> Self {
        Self { view, slice: view.as_slice().map(|bytes| [IoSlice::new(bytes)]) }
    }

    /// Returns the pieces of memory. A ring is mapped twice, so a range is one piece. The list is empty if the buffer is
    /// overwritable, or in memory that other processes write (transport `shm` without `shm.trust_writers`; transport
    /// `rdma`).
    pub fn vecs(&self) -> &[IoSlice<'a>] {
        self.slice.as_ref().map_or(&[], |slice| slice.as_slice())
    }

    /// Returns the number of pieces.
    pub fn vec_count(&self) -> usize {
        self.vecs().len()
    }

    /// Returns all bytes. `None` if the buffer is overwritable, or in memory that other processes write
    /// (transport `shm` without `shm.trust_writers`; transport `rdma`): use [`BufSeg::copy_to`] there, or
    /// subscribe with [`own_memory`](crate::SubscribeOptions::own_memory).
    pub fn as_slice(&self) -> Option<&[u8]> {
        self.slice.as_ref().map(|[slice]| &**slice)
    }

    /// Returns all bytes, also in memory that other processes write.
    ///
    /// # Safety
    /// See [`InView::trusting`].
    pub unsafe fn trusting(&self) -> Option<&[u8]> {
        // SAFETY: by the caller's promise.
        unsafe { self.view.trusting() }
    }

    /// Copies bytes from `offset` on.
    ///
    /// # Errors
    /// See [`InView::copy_to`].
    pub fn copy_to(&self, offset: usize, dst: &mut [u8]) -> Result<(), Lapped> {
        self.view.copy_to(offset, dst)
    }

    /// Returns a view of the same bytes that may outlive the callback. The bytes stay in place while the view lives, also
    /// if the application releases them meanwhile. `None` if they cannot be held: the buffer is overwritable or spliced,
    /// the bytes were released already, or there is a hole in the log before them.
    pub fn to_view(&self) -> Option<InView> {
        let subscription = &self.view.subscription;
        let (view, epoch, pin) = subscription.buf_ref()?;
        let mut held = InView::new(view, subscription.clone(), epoch, Some(pin), self.end());
        let is_there = held.position() <= self.position() && self.end() <= held.view.to();
        held.view.move_to(self.position(), self.end());
        is_there.then_some(held)
    }

    /// Returns a reference to the same bytes that may outlive the callback, and that holds nothing.
    pub fn range_ref(&self) -> RangeRef {
        self.view.range_ref()
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the position of the first byte in the writer's log.
    pub fn position(&self) -> Position {
        self.view.position()
    }

    /// Returns one past the position of the last byte.
    pub fn end(&self) -> Position {
        self.view.end()
    }

    /// Returns the epoch of the writer's log.
    pub fn epoch(&self) -> Epoch {
        self.view.epoch()
    }
}

/// Received data, borrowed from the ring: its bytes are not overwritten while the view lives. Dropping a view
/// releases nothing; [`InView::consume`] does.
pub struct InView {
    view: View,
    subscription: Arc<SubscriptionShared>,
    epoch: Epoch,
    guard: ViewGuard,
    /// The end of the bytes that are released with the view: for an overwritable buffer they include the
    /// marker after the payload.
    end: Position,
}

/// The protection of a view's bytes from being overwritten.
#[derive(Clone, Copy)]
enum ViewGuard {
    /// Nothing: the buffer is overwritable.
    None,
    /// The view's start is pinned.
    Pin(Position),
    /// The reader that hands the view out has not released any of it.
    ByReader,
}

impl InView {
    /// Creates a view whose bytes the caller protects: its start `pin` is pinned in `subscription`. (In a spliced
    /// subscription, where others hold the ring, the view lives only while the thread that grants the writer
    /// more is busy with it.)
    pub(crate) fn new(
        view: View,
        subscription: Arc<SubscriptionShared>,
        epoch: Epoch,
        pin: Option<Position>,
        end: Position,
    ) -> Self {
        let guard = pin.map_or(ViewGuard::None, ViewGuard::Pin);
        Self { view, subscription, epoch, guard, end }
    }

    /// Creates an empty view for the exclusive reader of `subscription`. Such a reader releases only bytes that
    /// the view has shown, and shows nothing else.
    pub(crate) fn of_reader(view: View, subscription: Arc<SubscriptionShared>, epoch: Epoch) -> Self {
        let end = view.to();
        Self { view, subscription, epoch, guard: ViewGuard::ByReader, end }
    }

    /// For a reader: moves on to the next bytes, up to `to`.
    #[inline]
    pub(crate) fn go_on(&mut self, to: Position) {
        self.view.move_to(self.end, to);
        self.end = to;
    }

    /// Returns the ring of the view.
    pub(crate) fn ring(&self) -> &Ring {
        self.view.ring()
    }

    /// Returns the buffer's id.
    pub fn bid(&self) -> Bid {
        self.subscription.bid
    }

    /// Returns the epoch of the writer's log.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the position of the first byte.
    #[inline]
    pub fn position(&self) -> Position {
        self.view.from()
    }

    /// Returns one past the position of the last byte.
    pub fn end(&self) -> Position {
        self.view.to()
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes in place. `None` if the buffer is overwritable, or in memory that others write:
    /// another process of this machine (transport `shm`) without `shm.trust_writers`, or a peer over RDMA.
    /// Use [`InView::copy_to`] there, or subscribe with [`own_memory`](crate::SubscribeOptions::own_memory).
    #[inline]
    pub fn as_slice(&self) -> Option<&[u8]> {
        let trusted = self.subscription.inner.config.shm.trust_writers;
        let guarded = !matches!(self.guard, ViewGuard::None) && is_unchanging(self.view.ring(), trusted);
        // SAFETY: the pin (or the unreleased position of the reader) keeps the ring's hold at or below the
        // first byte for as long as `self` lives. A private flow-controlled ring is written only above the
        // horizon that the hold allows, and it stays private, see `is_unchanging`. For a ring that another process
        // of this machine writes, the application that set `trust_writers` promised the same.
        guarded.then(|| unsafe { self.view.as_slice() })
    }

    /// Returns the bytes in place, also in memory that others write. `None` if the buffer is overwritable.
    ///
    /// # Safety
    /// The writer of the memory must not overwrite held bytes. This library in an honest program does not if
    /// the subscription's policy is `block`. Over shared memory the writer is the publisher, also with a
    /// relay in between. Over RDMA the writer is the peer of this connection.
    pub unsafe fn trusting(&self) -> Option<&[u8]> {
        let guarded = !matches!(self.guard, ViewGuard::None);
        // SAFETY: the range is held, as in `as_slice`, and by the caller's promise no other writer overwrites
        // it.
        guarded.then(|| unsafe { self.view.as_slice() })
    }

    /// Copies bytes from `offset` on.
    ///
    /// # Errors
    /// [`Lapped`]: the bytes were overwritten, and the copied bytes are invalid. The writer of an overwritable buffer was
    /// faster; or the buffer is in memory that others write, and while a connection was lost the writer gave up bytes that
    /// this end still held. The application does not get those bytes, and no [`InEvent::Lost`](crate::InEvent::Lost) follows for
    /// this view. They are not confirmed to the writer.
    pub fn copy_to(&self, offset: usize, dst: &mut [u8]) -> Result<(), Lapped> {
        self.view.copy_to(offset, dst).inspect_err(|_| self.lose())
    }

    /// Returns a copy of all bytes.
    ///
    /// # Errors
    /// See [`InView::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Lapped> {
        self.view.to_vec().inspect_err(|_| self.lose())
    }

    /// Records that the application does not get the held bytes.
    fn lose(&self) {
        if !matches!(self.guard, ViewGuard::None) {
            self.subscription.lose(self.end);
        }
    }

    /// Returns a reference to the same bytes that may outlive the view, and that holds nothing.
    pub fn range_ref(&self) -> RangeRef {
        RangeRef { view: self.view.clone(), epoch: self.epoch }
    }

    /// Releases the bytes of this view below `position`. The view no longer shows them.
    pub fn consume_part(&mut self, position: Position) {
        let position = position.clamp(self.position(), self.end());
        match &mut self.guard {
            ViewGuard::Pin(pin) => self.subscription.unpin_part(std::mem::replace(pin, position), position),
            ViewGuard::None | ViewGuard::ByReader => self.subscription.consume_to(position),
        }
        self.view.move_to(position, self.view.to());
    }

    /// Releases everything up to the end of this view, so that the writer may use the space again.
    pub fn consume(self) {
        let end = self.end;
        self.consume_up_to(end);
    }

    /// Releases everything below `position` within this view. Bytes after it are not released: a durable
    /// subscription that resumes gets them again.
    pub fn consume_up_to(mut self, position: Position) {
        let end = position.clamp(self.position(), self.end);
        match std::mem::replace(&mut self.guard, ViewGuard::None) {
            ViewGuard::Pin(pin) => self.subscription.unpin(pin, Some(end)),
            ViewGuard::None | ViewGuard::ByReader => self.subscription.consume_to(end),
        }
    }
}

/// A range of a buffer that nothing holds: its writer overwrites the bytes when it needs their space, and every read finds
/// out whether it has. For buffers without flow control, whose history in the ring is read many times; other buffers
/// overwrite consumed bytes. A reference keeps the memory alive, not its content.
///
/// ```
/// # use std::time::Duration;
/// # use rocketbufs::{BufferOptions, Config, Conn, Context, InEvent, Listener, Policy, RIn, ROut, SubscribeOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let ctx = Context::new(Config::default())?;
/// # let out = ROut::new(&ctx);
/// # let buffer = out.create_buffer_with(7, BufferOptions::new().size_bytes(1 << 16).flow_control(false))?;
/// # let listener = Listener::bind(&ctx, "127.0.0.1:0")?;
/// # listener.set_conn_cb(move |conn| out.add_conn(&conn));
/// # let input = RIn::new(&Conn::connect(&ctx, &listener.local_addr(), b"")?);
/// # input.subscribe_with(7, SubscribeOptions::new().size_bytes(1 << 16).policy(Policy::Overwrite))?;
/// # let wait = Some(Duration::from_secs(5));
/// # assert!(matches!(input.recv(wait)?, Some(InEvent::Subscribed { .. })));
/// # let mut segment = buffer.segment(5, None)?;
/// # segment.bytes_mut().copy_from_slice(b"hello");
/// # buffer.deliver(segment, 5, None)?;
/// let Some(InEvent::Data(view)) = input.recv(wait)? else { panic!("nothing came") };
/// let bytes = view.range_ref();
/// view.consume();
/// assert_eq!(bytes.to_vec()?, b"hello"); // Still in the ring.
/// assert!(bytes.age() < 0.01); // Nothing else was written.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RangeRef {
    view: View,
    epoch: Epoch,
}

impl RangeRef {
    /// Returns the epoch of the writer's log.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the position of the first byte.
    pub fn position(&self) -> Position {
        self.view.from()
    }

    /// Returns one past the position of the last byte.
    pub fn end(&self) -> Position {
        self.view.to()
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the part `range`, in bytes from the beginning.
    ///
    /// # Panics
    /// If the part is not within the range.
    pub fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self { view: self.view.sub(range), epoch: self.epoch }
    }

    /// Returns how much was written from the first byte of the range on, in shares of the ring: about 0 for the newest bytes. The
    /// writer overwrites the range when this reaches 1, or up to one delivery before.
    pub fn age(&self) -> f64 {
        let ring = self.view.ring();
        ring.head().saturating_sub(self.position()) as f64 / ring.capacity() as f64
    }

    /// Checks that the bytes are still there.
    ///
    /// # Errors
    /// [`Lapped`]: bytes were overwritten, or are about to be.
    pub fn check(&self) -> Result<(), Lapped> {
        self.view.copy_to(0, &mut [])
    }

    /// Copies bytes from `offset` on, and then checks that they were not overwritten during the copy.
    ///
    /// # Errors
    /// [`Lapped`]: the copied bytes are invalid.
    ///
    /// # Panics
    /// If the bytes are not within the range.
    pub fn copy_to(&self, offset: usize, dst: &mut [u8]) -> Result<(), Lapped> {
        self.view.copy_to(offset, dst)
    }

    /// Returns a copy of all bytes.
    ///
    /// # Errors
    /// As [`RangeRef::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Lapped> {
        self.view.to_vec()
    }

    /// Lends the bytes in place to `read`, and then checks that they were not overwritten meanwhile. If the bytes are gone
    /// before, `read` is not called.
    ///
    /// # Errors
    /// [`Lapped`]: the result of `read` is dropped. Bytes that it passed on must not be used.
    ///
    /// # Safety
    /// The writer may change the bytes while `read` runs. `read` must therefore give the slice only to code that reads each
    /// byte once and decides nothing by it, such as a system call, a cipher or a checksum, and must not keep it.
    pub unsafe fn lend<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Lapped> {
        self.check()?;
        // SAFETY: the view keeps the memory mapped; that its content may change is the caller's promise to bear.
        let result = read(unsafe { self.view.as_slice() });
        self.check()?;
        Ok(result)
    }
}

/// Returns whether held bytes of this ring do not change from here on. `trusted`: writers in other processes
/// of this machine are trusted. This trust does not cover peers that write the memory remotely.
fn is_unchanging(ring: &Ring, trusted: bool) -> bool {
    if ring.is_peer_written() { trusted && !ring.is_exposed() } else { ring.ensure_plain() }
}

impl Drop for InView {
    fn drop(&mut self) {
        if let ViewGuard::Pin(pin) = self.guard {
            self.subscription.unpin(pin, None);
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

    use super::is_unchanging;

    #[test]
    fn memory_that_a_peer_writes_is_not_kept_even_from_a_trusted_peer() {
        let pool = Pool::new(PoolConfig { max_bytes: 1 << 20, ..PoolConfig::default() }).expect("a pool");
        for trusted in [false, true] {
            let ring =
                || pool.ring(RingConfig { capacity_bytes: 4096, ..RingConfig::default() }).expect("a ring");
            let (own, exposed) = (ring(), ring());
            assert!(is_unchanging(&own, trusted) && own.pin_exposed().is_none());
            drop(exposed.pin_exposed());
            assert!(!is_unchanging(&exposed, trusted));
        }
    }
}
