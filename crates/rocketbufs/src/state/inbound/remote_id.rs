//! The peer's buffer id with which a subscription resumes after a reconnect.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::InboundShared;
use crate::state::Command;
use crate::types::Bid;

/// The peer's id of a subscription's buffer.
pub(crate) struct RemoteId {
    bid: AtomicU32,
    /// The peer is another process than the one that assigned the id, and its id for the buffer is not known.
    unknown: AtomicBool,
}

impl RemoteId {
    pub(super) fn new(bid: Bid) -> Self {
        Self { bid: AtomicU32::new(bid), unknown: AtomicBool::new(false) }
    }

    /// Returns the id, if it is known.
    pub(crate) fn bid(&self) -> Option<Bid> {
        // Acquire pairs with the release in `is`: the id is the one that was set there.
        (!self.unknown.load(Ordering::Acquire)).then(|| self.bid.load(Ordering::Relaxed))
    }

    /// Marks the id as unknown.
    pub(crate) fn forget(&self) {
        self.unknown.store(true, Ordering::Release);
    }

    /// Sets the id.
    pub(crate) fn is(&self, bid: Bid) {
        self.bid.store(bid, Ordering::Relaxed);
        self.unknown.store(false, Ordering::Release);
    }
}

impl InboundShared {
    /// Resumes the subscription over this connection. Everything that the resume waited for was released.
    #[inline]
    pub(super) fn resume(&self, conn: Option<u64>) {
        if let Some(conn) = conn {
            self.resume_over(conn);
        }
    }

    #[cold]
    fn resume_over(&self, conn: u64) {
        let known = self.rin.upgrade().and_then(|rin| rin.inbound(self.bid));
        if let Some(inbound) = known.filter(|known| std::ptr::eq(&raw const **known, self)) {
            self.inner.workers[self.inner.worker_of(conn)].send(Command::Subscribe { conn, inbound });
        }
    }
}
