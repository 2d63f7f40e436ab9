//! What the one writing end of a ring tells about it: to the threads of this process, and through the head page to other
//! processes.

use crate::Position;
use crate::ring::{Ring, Shared};
use crate::sync::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) head: AtomicU64,
    pub(crate) boundary: AtomicU64,
    /// Where the last complete delivery begins; the boundary if there was none.
    pub(crate) last: AtomicU64,
}

impl Shared {
    /// Publishes that the log was written up to `head`, all of it whole deliveries, the last of which begins at
    /// `last`. The index must have them.
    #[inline]
    pub(crate) fn publish(&self, last: Position, head: Position) {
        // Head first: who reads the boundary and then the head never sees the boundary above it.
        self.publish_head(head);
        self.publish_boundary(head);
        self.publish_last(last);
    }

    /// To be called after the boundary is published, which is never below it then.
    #[inline]
    pub(crate) fn publish_last(&self, last: Position) {
        // Pairs with the Acquire in `Ring::last_delivery`.
        self.ends.last.store(last, Ordering::Release);
    }

    /// Where the last complete delivery begins, as the one writing end knows it.
    pub(crate) fn last(&self) -> Position {
        self.ends.last.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn publish_head(&self, head: Position) {
        // Pairs with the Acquire in `Ring::head`: the bytes below were written before.
        self.ends.head.store(head, Ordering::Release);
        #[cfg(not(loom))]
        if let Some(region) = self.memory.own_region() {
            region.publish_head(head);
        }
    }

    #[inline]
    pub(crate) fn publish_boundary(&self, boundary: Position) {
        // Pairs with the Acquire in `Ring::boundary`: head, index and holes were written before.
        self.ends.boundary.store(boundary, Ordering::Release);
        #[cfg(not(loom))]
        if let Some(region) = self.memory.own_region() {
            region.publish_boundary(boundary);
        }
    }

    /// To be called before the delivery that ends at `to`, `parts`, is published: other processes find it beside the head.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn publish_small_payload(&self, to: Position, parts: &[&[u8]]) {
        if let Some(region) = self.memory.own_region() {
            region.publish_small_payload(to, parts);
        }
    }

    /// Copies the range of another process's ring that ends at `to`, if that is one small delivery which lies beside the
    /// head.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn read_small_payload(&self, to: Position, dst: &mut [u8]) -> bool {
        let peers = self.memory.region().filter(|_| self.memory.is_peer_written());
        peers.is_some_and(|region| region.read_small_payload(to, dst))
    }

    #[cfg(loom)]
    pub(crate) fn read_small_payload(&self, _to: Position, _dst: &mut [u8]) -> bool {
        false
    }

    /// Tells other processes, if any can see the ring, what is about to be overwritten.
    #[cfg(not(loom))]
    pub(crate) fn publish_horizon(&self, horizon: Position) -> bool {
        let region = self.memory.own_region();
        region.inspect(|region| region.publish_horizon(horizon)).is_some()
    }

    #[cfg(loom)]
    pub(crate) fn publish_horizon(&self, _horizon: Position) -> bool {
        false
    }

    /// Tells other processes, if any can see the ring, that its log has a hole.
    #[cfg(not(loom))]
    pub(crate) fn publish_gap(&self, to: Position) {
        if let Some(region) = self.memory.own_region() {
            region.publish_gap(to);
        }
    }

    #[cfg(loom)]
    pub(crate) fn publish_gap(&self, _to: Position) {}

    /// Of a ring that another process writes: up to where whole deliveries lie that a reader at `head` was not told of,
    /// if the page says so and no hole comes before.
    #[cfg(not(loom))]
    pub(crate) fn peers_rest(&self, head: Position) -> Option<Position> {
        let region = self.memory.region().filter(|_| self.memory.is_peer_written())?;
        let (boundary, _) = region.ends();
        let goes_on = boundary > head && region.last_gap() <= head && !self.over.load(Ordering::Relaxed);
        goes_on.then_some(boundary)
    }

    #[cfg(loom)]
    pub(crate) fn peers_rest(&self, _head: Position) -> Option<Position> {
        None
    }

    /// Below this another process, which writes the ring, says that it overwrites. 0 if there is none.
    #[cfg(not(loom))]
    pub(crate) fn peers_tail(&self) -> Position {
        match self.memory.region() {
            Some(region) if self.memory.is_peer_written() => {
                region.horizon().saturating_sub(self.shape.capacity)
            }
            _ => 0,
        }
    }

    #[cfg(loom)]
    pub(crate) fn peers_tail(&self) -> Position {
        0
    }
}

impl Ring {
    /// What lands here from now on is sent on to others: [`RingReceiver::follow`](crate::RingReceiver::follow) lands no more at a time than the largest delivery,
    /// so that ends of deliveries are known at least as often as that.
    pub fn set_relayed(&self) {
        self.shared().handed_on.store(true, Ordering::Relaxed);
    }
}
