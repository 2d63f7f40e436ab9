//! The landing end: where a transport writes what arrives, or says that another process has written it.
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

/// The one landing end of a ring that a transport fills. Where another process writes the ring, readers may land what it
/// has written too ([`Ring::follow`]).
#[derive(Debug)]
pub struct RingReceiver {
    ring: Ring,
    landing: Landing,
    #[cfg(not(loom))]
    caller: crate::watch::Caller,
}

/// What has landed, as whoever lands knows it.
#[derive(Debug)]
pub(crate) struct Landing {
    head: Position,
    boundary: Position,
    /// The horizon as last seen.
    pub(crate) horizon: Position,
    /// Where the last landed piece began, for a planted bug.
    #[cfg(feature = "planted-bugs")]
    before_last: Position,
}

impl RingReceiver {
    fn new(ring: Ring) -> RingReceiver {
        let landing = Landing::of(ring.shared());
        RingReceiver {
            ring,
            landing,
            #[cfg(not(loom))]
            caller: crate::watch::Caller::default(),
        }
    }

    /// The ring that is filled.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// How many bytes may land now. With flow control that is what was granted; without, an eighth of the
    /// capacity, as often as one likes; where another process writes, all of it.
    pub fn room(&self) -> u64 {
        self.ring.shared().room(self.ring.head())
    }

    /// Changes what has landed. Where readers land too, one does it at a time, from where the last one left it.
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut Landing, &Shared) -> R) -> R {
        let shared = self.ring.shared();
        if shared.memory.is_peer_written() {
            shared.follow(change)
        } else {
            change(&mut self.landing, shared)
        }
    }

    /// Wakes readers in other processes.
    fn call(&mut self) {
        #[cfg(not(loom))]
        self.caller.call(&self.ring.shared().watchers);
    }

    /// Where the next bytes go, and how many: at most `max` and [`RingReceiver::room`], in one piece. Writing there
    /// needs `unsafe`; the bytes are this receiver's alone until they land, and the pointer is good until the ring
    /// goes away. None where another process writes the ring. Without flow control this announces that what was there is gone.
    pub fn spare(&mut self, max: usize) -> (*mut u8, usize) {
        let room = self.reserve(max);
        (self.ring.shared().memory.at(self.landing.head), room)
    }

    /// Makes sure that up to `max` bytes at the head may be overwritten, and returns how many: none where another process
    /// is the one that writes.
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
        let (memory, head) = (&self.ring.shared().memory, self.landing.head);
        // SAFETY: `[head, horizon)` is the receiver's alone, as for `Writer::fill`, and `reserve` found room.
        unsafe { memory.write(head, bytes) };
        let capacity = self.ring.capacity();
        if planted::is(4) && (head & (capacity - 1)) + bytes.len() as u64 > capacity {
            let last = !bytes[bytes.len() - 1];
            // SAFETY: the last of the bytes written above.
            unsafe { memory.write(head + bytes.len() as u64 - 1, &[last]) };
        }
    }

    /// The next `n` bytes have been written (at [`RingReceiver::spare`], or by a peer that was granted them): the head
    /// moves.
    ///
    /// # Panics
    /// With flow control, if that is more than [`RingReceiver::room`]. A length that a peer sent must be checked first.
    pub fn land(&mut self, n: usize) {
        self.change(|landing, shared| landing.land(shared, n as u64));
    }

    /// What lies below `to` has been written by the process whose ring this is; `ends`: it ends with a complete delivery.
    /// Nothing where it has landed already.
    ///
    /// # Errors
    /// By how many bytes that is more than there is room for. Nothing has landed then.
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
        self.call();
        Ok(())
    }

    /// In a ring of another process that is gone: lands the whole deliveries that it had written, told or not. True if there
    /// were any. What its head page says is believed no further than what was granted, and where its log has a hole
    /// that was not told, not at all.
    pub fn land_remaining(&mut self) -> bool {
        let landed = self.change(|landing, shared| {
            let end = shared.peer_boundary(landing.head);
            landing.land_up_to(shared, end.filter(|end| end - landing.head <= shared.room(landing.head)))
        });
        self.call();
        landed
    }

    /// The same where that process goes on, as far as it can be done without being told: of a ring that is handed on
    /// ([`Ring::set_relayed`]) only small steps, as the ends of deliveries within one are not known.
    pub fn follow(&mut self) -> bool {
        // Most looks find nothing.
        let landed = self.has_new_data() && self.ring.follow();
        if landed {
            self.call();
        }
        landed
    }

    /// Whether [`RingReceiver::follow`] would land something.
    pub fn has_new_data(&self) -> bool {
        self.ring.has_new_data()
    }

    /// What has landed ends with a complete delivery: the boundary moves to the head.
    pub fn end(&mut self) {
        self.change(Landing::end);
        self.call();
    }

    /// Drops what has come of a delivery that is not complete: the log goes on at the boundary. To be called only where
    /// nobody reads beyond it, as nobody does who waits for whole deliveries.
    pub fn drop_partial(&mut self) {
        self.change(|landing, shared| {
            landing.head = landing.boundary;
            shared.publish_head(landing.head);
        });
    }

    /// The positions from the boundary to `to` will never arrive. What had landed of an incomplete delivery is
    /// dropped; head and boundary go on at `to` (or at the head, if that is further). The horizon moves as far,
    /// not further: what others hold is not overwritten before they have moved.
    ///
    /// Returns the hole as readers will find it with `Ring::gap_after`. It begins earlier where it touches the
    /// one before, or where 64 holes are remembered already: then what lies between is given up too.
    pub fn skip(&mut self, to: Position) -> Gap {
        self.change(|landing, shared| landing.skip(shared, to))
    }
}

impl Ring {
    /// The writing end for a transport, once. `None` if the receiver or the writer was handed out before.
    pub fn receiver(&self) -> Option<RingReceiver> {
        self.take_end().then(|| RingReceiver::new(self.clone()))
    }

    /// What lands here from now on is sent on to others: [`RingReceiver::follow`] lands no more at a time than the largest
    /// delivery, so that ends of deliveries are known at least as often as that.
    pub fn set_relayed(&self) {
        self.shared().relayed.store(true, Ordering::Relaxed);
    }

    /// As [`RingReceiver::follow`], for a reader that would otherwise wait until whoever has the receiver looks. From any thread, as
    /// long as readers may go on with this ring; nobody in other processes is woken.
    pub fn follow(&self) -> bool {
        self.is_peer_written()
            && self.shared().follow(|landing, shared| {
                let end = shared.next_step(landing.head);
                landing.land_up_to(shared, end)
            })
    }

    /// As [`Ring::follow`], for one who has read everything up to `read` and takes what comes next itself: lands nothing where
    /// something has landed already. Returns the boundary.
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

    /// The log is over for this end, also if the process that writes the memory goes on: nothing of that lands any more,
    /// neither followed nor when that process is gone. Returns the boundary, which stays where it is unless more is told.
    /// So too where nobody may look until [`Ring::resume_following`].
    pub fn stop_following(&self) -> Position {
        self.shared().follow(|landing, shared| {
            shared.stopped.store(true, Ordering::Relaxed);
            landing.boundary
        })
    }

    /// The log goes on after all.
    pub fn resume_following(&self) {
        self.shared().follow(|_, shared| shared.stopped.store(false, Ordering::Relaxed));
    }

    /// Whether [`Ring::follow`] would land something.
    #[inline]
    pub fn has_new_data(&self) -> bool {
        self.shared().next_step(self.head()).is_some()
    }
}

impl Shared {
    /// How many bytes may land now behind this head.
    fn room(&self, head: Position) -> u64 {
        if self.shape.flow_control {
            self.horizon.load(Ordering::Acquire) - head
        } else if self.memory.is_peer_written() {
            self.shape.capacity
        } else {
            self.shape.chunk()
        }
    }

    /// Where a reader of another process's ring can go on to, untold.
    #[inline]
    fn next_step(&self, head: Position) -> Option<Position> {
        let (end, room) = (self.peer_boundary(head)?, self.room(head));
        let relayed = self.relayed.load(Ordering::Relaxed);
        let most = if relayed { room.min(self.shape.max_delivery) } else { room };
        (end - head <= most).then_some(end)
    }

    /// Changes what has landed of another process's ring.
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
            #[cfg(feature = "planted-bugs")]
            before_last: head,
        }
    }

    /// Announces that up to `max` bytes at the head are, or were, overwritten, and returns how many may be.
    fn announce(&mut self, shared: &Shared, max: u64) -> u64 {
        if shared.shape.flow_control {
            if max > self.horizon - self.head {
                self.horizon = shared.horizon.load(Ordering::Acquire);
            }
            return (self.horizon - self.head).min(max);
        }
        // What another process has written is written, however much that is.
        let most = if shared.memory.is_peer_written() { shared.shape.capacity } else { shared.shape.chunk() };
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
            let granted = !shared.shape.flow_control || n <= room;
            assert!(granted, "{n} bytes landed where there was room for {room}");
        }
        #[cfg(feature = "planted-bugs")]
        {
            self.before_last = self.head;
        }
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
        shared.index.record(self.boundary);
        shared.publish_boundary(self.boundary);
        if from < self.boundary {
            shared.publish_last(from);
        }
    }

    #[cfg(feature = "planted-bugs")]
    fn end_of_delivery(&self) -> Position {
        if planted::is(3) { self.before_last.max(self.boundary) } else { self.head }
    }

    #[cfg(not(feature = "planted-bugs"))]
    fn end_of_delivery(&self) -> Position {
        self.head
    }

    fn skip(&mut self, shared: &Shared, to: Position) -> Gap {
        let to = to.max(self.head);
        let gap = Gap { from: self.boundary, to };
        if gap.from == to {
            return gap;
        }
        // The hole first: who sees the new boundary must find it.
        let gap = shared.add_gap(gap);
        shared.index.record(to);
        self.head = to;
        shared.publish_head(to);
        if !planted::is(5) {
            self.boundary = to;
            shared.publish_boundary(to);
        }
        // A delivery that was given up with the hole is none.
        if shared.last() >= gap.from {
            shared.publish_last(to);
        }
        self.horizon = shared.horizon.load(Ordering::Acquire);
        gap
    }
}
