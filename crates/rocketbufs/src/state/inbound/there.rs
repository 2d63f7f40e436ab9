//! Where a subscription goes on when its connection is made again: which buffer it is at the other end.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::InboundShared;
use crate::state::Command;
use crate::types::Bid;

/// The id that the other end has for a subscription's buffer.
pub(crate) struct There {
    bid: AtomicU32,
    /// The other end is another process than the one that had this id, and nobody has said which one it has.
    unknown: AtomicBool,
}

impl There {
    pub(super) fn new(bid: Bid) -> Self {
        Self { bid: AtomicU32::new(bid), unknown: AtomicBool::new(false) }
    }

    /// The id; none while it is not known.
    pub(crate) fn bid(&self) -> Option<Bid> {
        // Acquire pairs with the release of `is`: the id is the one that was said.
        (!self.unknown.load(Ordering::Acquire)).then(|| self.bid.load(Ordering::Relaxed))
    }

    /// From now on the id is not known.
    pub(crate) fn forget(&self) {
        self.unknown.store(true, Ordering::Release);
    }

    /// From now on this is the id.
    pub(crate) fn is(&self, bid: Bid) {
        self.bid.store(bid, Ordering::Relaxed);
        self.unknown.store(false, Ordering::Release);
    }
}

impl InboundShared {
    /// The subscription goes on over this connection: everything that it waited for was given back.
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
