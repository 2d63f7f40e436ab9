//! The receiving end of a ring: a transport writes arriving bytes here, or reports that another process has written them.
//!
//! ```text
//!      boundary      head      spare            horizon
//!   ──────┬────────────┬─────────┬─────────────────┬──▶
//!         │ MORE…      │ n bytes │                 │    land(n): the head moves
//!         │ part of a  │ arrive  │                 │    end():   the boundary follows, a delivery is complete
//!         │ delivery   │ here    │                 │    skip(to): [boundary, to) never arrived
//! ```

use crate::Position;
use crate::control::Gap;
use crate::planted;
use crate::ring::Ring;
use crate::shared::Shared;
use crate::sync::{Ordering, lock};

/// The one receiving end of a ring that a transport fills. Bytes *land* when the head moves over them. Where another process
/// writes the ring, readers may land its bytes too ([`Ring::follow`]).
#[derive(Debug)]
pub struct RingReceiver {
    ring: Ring,
    landing: Landing,
    #[cfg(not(loom))]
    notifier: crate::watch::Notifier,
}

/// The positions of the receiving end, as the landing thread knows them.
#[derive(Debug)]
pub(crate) struct Landing {
    head: Position,
    boundary: Position,
    /// The horizon as last seen.
    pub(crate) horizon: Position,
    /// Where the last landed piece began, for a planted bug.
    before_last: planted::Memo<Position>,
}

impl RingReceiver {
    fn new(ring: Ring) -> RingReceiver {
        let landing = Landing::of(ring.shared());
        RingReceiver {
            ring,
            landing,
            #[cfg(not(loom))]
            notifier: crate::watch::Notifier::default(),
        }
    }

    /// The ring that is filled.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// How many bytes may land now. With flow control: the granted bytes. Without: an eighth of the capacity, again and
    /// again; where another process writes, the capacity.
    pub fn room(&self) -> u64 {
        self.ring.shared().room(self.ring.head())
    }

    /// Runs a change of the positions. Where readers land too, one thread at a time runs its change, on the current positions.
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut Landing, &Shared) -> R) -> R {
        let shared = self.ring.shared();
        if shared.origin().is_peer_written() {
            shared.follow(change)
        } else {
            change(&mut self.landing, shared)
        }
    }

    /// Wakes sleeping readers in other processes.
    fn wake_watchers(&mut self) {
        #[cfg(not(loom))]
        self.notifier.notify(&self.ring.shared().watchers);
    }

    /// The address of the next bytes, and their number: at most `max` and [`RingReceiver::room`], in one piece. Writing
    /// there needs `unsafe`. The bytes belong to this receiver alone until they land, and the pointer is valid until the ring
    /// is dropped. The number is 0 where another process writes the ring. Without flow control this announces that the
    /// previous content is overwritten.
    pub fn spare(&mut self, max: usize) -> (*mut u8, usize) {
        let room = self.reserve(max);
        (self.ring.shared().memory().at(self.landing.head), room)
    }

    /// Announces that up to `max` bytes at the head may be overwritten, and returns how many. 0 where another process
    /// writes.
    fn reserve(&mut self, max: usize) -> usize {
        if self.ring.is_peer_written() {
            0
        } else {
            self.landing.announce(self.ring.shared(), max as u64) as usize
        }
    }

    /// Copies as many of `bytes` as there is room for to the head, lands them, and returns how many.
    pub fn copy_in(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let n = self.reserve(bytes.len() - done);
            if n == 0 {
                break;
            }
            self.write(&bytes[done..done + n]);
            self.land(n);
            done += n;
        }
        done
    }

    fn write(&self, bytes: &[u8]) {
        let (memory, head) = (self.ring.shared().memory(), self.landing.head);
        // SAFETY: `[head, horizon)` is the receiver's alone, as for `Writer::fill`, and `reserve` found room.
        unsafe { memory.write(head, bytes) };
        let crosses_the_end = || {
            let capacity = self.ring.capacity();
            (head & (capacity - 1)) + bytes.len() as u64 > capacity
        };
        if planted::is(4) && crosses_the_end() {
            let last = !bytes[bytes.len() - 1];
            // SAFETY: the last of the bytes written above.
            unsafe { memory.write(head + bytes.len() as u64 - 1, &[last]) };
        }
    }

    /// Moves the head over the next `n` bytes, which were written at [`RingReceiver::spare`], or by a peer to which they
    /// were granted.
    ///
    /// # Panics
    /// With flow control, if `n` is more than [`RingReceiver::room`]. A length from a peer must be checked first.
    pub fn land(&mut self, n: usize) {
        self.change(|landing, shared| landing.land(shared, n as u64));
    }

    /// Lands the bytes below `to`, which the process that owns this ring has written and announced. `ends`: they end with a
    /// complete delivery. Bytes that have landed already stay as they are.
    ///
    /// # Errors
    /// By how many bytes the range exceeds the room. Nothing has landed then.
    pub fn land_announced(&mut self, to: Position, ends: bool) -> Result<(), u64> {
        self.change(|landing, shared| {
            let (size, room) = (to.saturating_sub(landing.head), shared.room(landing.head));
            if size > room {
                return Err(size - room);
            }
            if size > 0 {
                landing.land(shared, size);
            }
            if ends && to == landing.head && landing.boundary < to {
                landing.end(shared);
            }
            Ok(())
        })?;
        self.wake_watchers();
        Ok(())
    }

    /// In a ring of a process that has ended: lands the whole deliveries that it had written, announced or not. True if there
    /// were any. The head page is trusted up to the granted bytes, and not at all across a hole that was not announced.
    pub fn land_remaining(&mut self) -> bool {
        let landed = self.change(|landing, shared| {
            let end = shared.peer_boundary(landing.head);
            landing.land_up_to(shared, end.filter(|end| end - landing.head <= shared.room(landing.head)))
        });
        self.wake_watchers();
        landed
    }

    /// Lands the bytes that a live process has written without an announcement. In a relayed ring ([`Ring::set_relayed`])
    /// only in small steps, as ends of deliveries within a step are not known.
    pub fn follow(&mut self) -> bool {
        // Most calls find nothing.
        let landed = self.has_new_data() && self.ring.follow();
        if landed {
            self.wake_watchers();
        }
        landed
    }

    /// Whether [`RingReceiver::follow`] would land bytes.
    pub fn has_new_data(&self) -> bool {
        self.ring.has_new_data()
    }

    /// Completes a delivery: the boundary moves to the head.
    pub fn end(&mut self) {
        self.change(Landing::end);
        self.wake_watchers();
    }

    /// Drops the landed part of an incomplete delivery: the log continues at the boundary. To be called only where no reader
    /// reads beyond the boundary, as readers that wait for whole deliveries do not.
    pub fn drop_partial(&mut self) {
        self.change(|landing, shared| {
            landing.head = landing.boundary;
            shared.publish_head(landing.head);
        });
    }

    /// The positions from the boundary to `to` will never arrive. The landed part of an incomplete delivery is dropped. Head
    /// and boundary continue at `to` (or at the head, if that is further). The horizon moves as far and not further: held
    /// bytes are not overwritten before their holds have moved.
    ///
    /// Returns the hole as readers find it with [`Ring::gap_after`]. The hole begins earlier where it touches the
    /// previous one, or where 64 holes are remembered already: then the bytes between are given up too.
    pub fn skip(&mut self, to: Position) -> Gap {
        self.change(|landing, shared| landing.skip(shared, to))
    }
}

impl Ring {
    /// The writing end for a transport, once. `None` if the receiver or the writer was handed out before.
    pub fn receiver(&self) -> Option<RingReceiver> {
        self.take_end().then(|| RingReceiver::new(self.clone()))
    }

    /// Declares that landing bytes are sent on to others. [`RingReceiver::follow`] then lands at most the largest delivery at
    /// a time, so that ends of deliveries are known at least that often.
    pub fn set_relayed(&self) {
        self.shared().relayed.store(true, Ordering::Relaxed);
    }

    /// As [`RingReceiver::follow`], for a reader that does not wait for the owner of the receiver. From any thread, as long as
    /// readers may continue with this ring. Readers in other processes are not woken.
    pub fn follow(&self) -> bool {
        self.is_peer_written()
            && self.shared().follow(|landing, shared| {
                let end = shared.next_step(landing.head);
                landing.land_up_to(shared, end)
            })
    }

    /// As [`Ring::follow`], for a reader that has read everything up to `read` and takes the next deliveries itself. Lands
    /// nothing where bytes beyond `read` have landed already. Returns the boundary.
    #[inline]
    pub fn follow_from(&self, read: Position) -> Option<Position> {
        if !self.is_peer_written() {
            return None;
        }
        self.shared().follow(|landing, shared| {
            let end =
                shared.next_step(landing.head).filter(|_| landing.head == read && landing.boundary == read);
            landing.land_up_to(shared, end).then_some(landing.boundary)
        })
    }

    /// Stops following, also if the other process keeps writing: unannounced bytes no longer land, neither now nor after
    /// that process has ended. Returns the boundary, which only announced bytes move from then on.
    pub fn stop_following(&self) -> Position {
        self.shared().follow(|landing, shared| {
            shared.stopped.store(true, Ordering::Relaxed);
            landing.boundary
        })
    }

    /// Undoes [`Ring::stop_following`].
    pub fn resume_following(&self) {
        self.shared().follow(|_, shared| shared.stopped.store(false, Ordering::Relaxed));
    }

    /// Whether [`Ring::follow`] would land bytes.
    #[inline]
    pub fn has_new_data(&self) -> bool {
        self.shared().next_step(self.head()).is_some()
    }
}

impl Shared {
    /// How many bytes may land behind this head.
    fn room(&self, head: Position) -> u64 {
        if self.flow_control() {
            self.horizon.load(Ordering::Acquire) - head
        } else if self.origin().is_peer_written() {
            self.first_shape().capacity
        } else {
            self.first_shape().chunk()
        }
    }

    /// How far a follower of another process's ring can land without an announcement.
    #[inline]
    fn next_step(&self, head: Position) -> Option<Position> {
        let (end, room) = (self.peer_boundary(head)?, self.room(head));
        let relayed = self.relayed.load(Ordering::Relaxed);
        let most = if relayed { room.min(self.max_delivery()) } else { room };
        (end - head <= most).then_some(end)
    }

    /// Runs a change of the positions of another process's ring, one at a time.
    fn follow<R>(&self, change: impl FnOnce(&mut Landing, &Shared) -> R) -> R {
        let _alone = lock(&self.landing);
        change(&mut Landing::of(self), self)
    }
}

impl Landing {
    fn of(shared: &Shared) -> Landing {
        let head = shared.published.head.load(Ordering::Acquire);
        Landing {
            head,
            boundary: shared.published.boundary.load(Ordering::Acquire),
            horizon: shared.horizon.load(Ordering::Acquire),
            before_last: planted::Memo::empty(),
        }
    }

    /// Announces that up to `max` bytes at the head are, or were, overwritten. Returns how many may be.
    fn announce(&mut self, shared: &Shared, max: u64) -> u64 {
        if shared.flow_control() {
            if max > self.horizon - self.head {
                self.horizon = shared.horizon.load(Ordering::Acquire);
            }
            return (self.horizon - self.head).min(max);
        }
        // Another process has written its bytes already, however many.
        let most = if shared.origin().is_peer_written() {
            shared.first_shape().capacity
        } else {
            shared.first_shape().chunk()
        };
        let n = most.min(max).min(u64::MAX - self.head);
        if self.head + n > self.horizon {
            self.horizon = shared.ahead(self.head, self.head + n);
            shared.announce(self.horizon);
        }
        n
    }

    fn land(&mut self, shared: &Shared, n: u64) {
        if n > self.horizon - self.head {
            let room = self.announce(shared, n);
            let granted = !shared.flow_control() || n <= room;
            assert!(granted, "{n} bytes landed where there was room for {room}");
        }
        self.before_last.set(self.head);
        self.head += n;
        shared.publish_head(self.head);
    }

    fn land_up_to(&mut self, shared: &Shared, end: Option<Position>) -> bool {
        let Some(end) = end else { return false };
        self.land(shared, end - self.head);
        self.end(shared);
        true
    }

    fn end(&mut self, shared: &Shared) {
        let from = self.boundary;
        self.boundary = self.end_of_delivery();
        shared.index().record(self.boundary);
        shared.publish_boundary(self.boundary);
        if from < self.boundary {
            shared.publish_last(from);
        }
    }

    fn end_of_delivery(&self) -> Position {
        let before_last = self.before_last.get().filter(|_| planted::is(3));
        before_last.map_or(self.head, |at| at.max(self.boundary))
    }

    fn skip(&mut self, shared: &Shared, to: Position) -> Gap {
        let to = to.max(self.head);
        let gap = Gap { from: self.boundary, to };
        if gap.from == to {
            return gap;
        }
        // The hole first: a reader that sees the new boundary must find it.
        let gap = shared.add_gap(gap);
        shared.index().record(to);
        self.head = to;
        shared.publish_head(to);
        if !planted::is(5) {
            self.boundary = to;
            shared.publish_boundary(to);
        }
        // A delivery that begins in the hole is given up.
        if shared.last() >= gap.from {
            shared.publish_last(to);
        }
        self.horizon = shared.horizon.load(Ordering::Acquire);
        gap
    }
}
