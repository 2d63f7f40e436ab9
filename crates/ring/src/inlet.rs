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
use crate::planted;
use crate::ring::{Gap, Ring};
use crate::sync::Ordering;

/// The one landing end of a ring that a transport fills.
#[derive(Debug)]
pub struct Inlet {
    ring: Ring,
    head: Position,
    boundary: Position,
    /// The horizon as last seen.
    pub(crate) horizon: Position,
    #[cfg(not(loom))]
    caller: crate::watch::Caller,
    /// Where the last landed piece began, for a planted bug.
    #[cfg(feature = "planted-bugs")]
    before_last: Position,
}

impl Inlet {
    pub(crate) fn new(ring: Ring) -> Inlet {
        let (head, horizon) = (ring.head(), ring.horizon());
        Inlet {
            ring,
            head,
            boundary: head,
            horizon,
            #[cfg(not(loom))]
            caller: crate::watch::Caller::default(),
            #[cfg(feature = "planted-bugs")]
            before_last: head,
        }
    }

    /// The ring that is filled.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// How many bytes may land now. With flow control that is what was granted; without, an eighth of the
    /// capacity, as often as one likes; where another process writes, all of it.
    pub fn room(&self) -> u64 {
        if self.ring.flow_control() {
            self.ring.horizon() - self.head
        } else if self.ring.is_peers() {
            self.ring.capacity()
        } else {
            self.ring.shared().shape.chunk()
        }
    }

    /// Where the next bytes go, and how many: at most `max` and [`Inlet::room`], in one piece. Writing there
    /// needs `unsafe`; the bytes are this inlet's alone until they land, and the pointer is good until the ring
    /// goes away. None where another process writes the ring. Without flow control this announces that what was there is gone.
    pub fn spare(&mut self, max: usize) -> (*mut u8, usize) {
        let room = self.reserve(max);
        (self.ring.shared().memory.at(self.head), room)
    }

    /// Makes sure that up to `max` bytes at the head may be overwritten, and returns how many: none where another process
    /// is the one that writes.
    fn reserve(&mut self, max: usize) -> usize {
        if self.ring.is_peers() { 0 } else { self.announce(max) as usize }
    }

    /// Announces that up to `max` bytes at the head are, or were, overwritten, and returns how many may be.
    fn announce(&mut self, max: usize) -> u64 {
        let shared = self.ring.shared();
        if shared.shape.flow_control {
            if max as u64 > self.horizon - self.head {
                self.horizon = self.ring.horizon();
            }
            return (self.horizon - self.head).min(max as u64);
        }
        // What another process has written is written, however much that is.
        let most = if self.ring.is_peers() { shared.shape.capacity } else { shared.shape.chunk() };
        let n = most.min(max as u64).min(u64::MAX - self.head);
        if self.head + n > self.horizon {
            self.horizon = shared.ahead(self.head, self.head + n);
            shared.announce(self.horizon);
        }
        n
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
        let memory = &self.ring.shared().memory;
        // SAFETY: `[head, horizon)` is the inlet's alone, as for `Writer::fill`, and `reserve` found room.
        unsafe { memory.write(self.head, bytes) };
        let capacity = self.ring.capacity();
        if planted::is(4) && (self.head & (capacity - 1)) + bytes.len() as u64 > capacity {
            let last = !bytes[bytes.len() - 1];
            // SAFETY: the last of the bytes written above.
            unsafe { memory.write(self.head + bytes.len() as u64 - 1, &[last]) };
        }
    }

    /// The next `n` bytes have been written (at [`Inlet::spare`], or by a peer that was granted them): the head
    /// moves.
    ///
    /// # Panics
    /// With flow control, if that is more than [`Inlet::room`]. A length that a peer sent must be checked first.
    pub fn land(&mut self, n: usize) {
        if n as u64 > self.horizon - self.head {
            let room = self.announce(n);
            let granted = !self.ring.flow_control() || n as u64 <= room;
            assert!(granted, "{n} bytes landed where there was room for {room}");
        }
        #[cfg(feature = "planted-bugs")]
        {
            self.before_last = self.head;
        }
        self.head += n as u64;
        self.ring.shared().publish_head(self.head);
    }

    /// In a ring of another process that is gone: lands the whole deliveries that it had written, told or not. True if there
    /// were any. What its head page says is believed no further than what was granted, and where its log has a hole
    /// that was not told, not at all.
    pub fn land_rest(&mut self) -> bool {
        self.land_up_to(self.rest().filter(|end| end - self.head <= self.room()))
    }

    /// The same where that process goes on, as far as it can be done without being told: of a ring that is handed on
    /// ([`Ring::hand_on`]) only small steps, as the ends of deliveries within one are not known.
    pub fn follow(&mut self) -> bool {
        self.land_up_to(self.next_step())
    }

    /// Whether [`Inlet::follow`] would land something.
    pub fn has_news(&self) -> bool {
        self.next_step().is_some()
    }

    fn rest(&self) -> Option<Position> {
        self.ring.shared().peers_rest(self.head)
    }

    fn next_step(&self) -> Option<Position> {
        let (end, shared) = (self.rest()?, self.ring.shared());
        let handed_on = shared.handed_on.load(Ordering::Relaxed);
        let most = if handed_on { self.room().min(shared.shape.max_delivery) } else { self.room() };
        (end - self.head <= most).then_some(end)
    }

    fn land_up_to(&mut self, end: Option<Position>) -> bool {
        let Some(end) = end else { return false };
        self.land((end - self.head) as usize);
        self.end();
        true
    }

    /// What has landed ends with a complete delivery: the boundary moves to the head.
    pub fn end(&mut self) {
        let from = self.boundary;
        self.boundary = self.end_of_delivery();
        let shared = self.ring.shared();
        shared.index.record(self.boundary);
        shared.publish_boundary(self.boundary);
        if from < self.boundary {
            shared.publish_last(from);
        }
        #[cfg(not(loom))]
        self.caller.call(shared);
    }

    /// Drops what has come of a delivery that is not complete: the log goes on at the boundary. To be called only where
    /// nobody reads beyond it, as nobody does who waits for whole deliveries.
    pub fn drop_partial(&mut self) {
        self.head = self.boundary;
        self.ring.shared().publish_head(self.head);
    }

    #[cfg(feature = "planted-bugs")]
    fn end_of_delivery(&self) -> Position {
        if planted::is(3) { self.before_last.max(self.boundary) } else { self.head }
    }

    #[cfg(not(feature = "planted-bugs"))]
    fn end_of_delivery(&self) -> Position {
        self.head
    }

    /// The positions from the boundary to `to` will never arrive. What had landed of an incomplete delivery is
    /// dropped; head and boundary go on at `to` (or at the head, if that is further). The horizon moves as far,
    /// not further: what others hold is not overwritten before they have moved.
    ///
    /// Returns the hole as readers will find it with `Ring::gap_after`. It begins earlier where it touches the
    /// one before, or where 64 holes are remembered already: then what lies between is given up too.
    pub fn skip(&mut self, to: Position) -> Gap {
        let to = to.max(self.head);
        let gap = Gap { from: self.boundary, to };
        if gap.from == to {
            return gap;
        }
        let shared = self.ring.shared();
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
        self.horizon = self.ring.horizon();
        gap
    }
}
