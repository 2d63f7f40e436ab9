//! A publisher's questions about the broker's disk, on their way to the broker.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rocketbufs::error::ControlError;
use rocketbufs::{Bid, Conn, Position};

use crate::connection::lock;
use crate::wire::Control;

/// The buffers whose questions found the queue of the connection full. The broker answers everything that is in the queue, so each of
/// its messages is a moment to try again.
#[derive(Debug, Default)]
pub(crate) struct DiskAsks {
    unsent: Mutex<BTreeMap<(u64, Bid), Conn>>,
    /// Whether there are any.
    any: AtomicBool,
}

impl DiskAsks {
    /// Asks for the positions to be stored, to be synced and to be archived; 0: none. The questions of a connection that is down are sent over the next
    /// one, when the broker has taken the topic.
    pub(crate) fn send(&self, conn: &Conn, bid: Bid, [position, synced, archived]: [Position; 3]) {
        let ask = Control::AskStored { bid, position, synced, archived };
        if let Err(ControlError::Full { .. }) = conn.send_control(&ask.encode()) {
            lock(&self.unsent).insert((conn.id(), bid), conn.clone());
            self.any.store(true, Ordering::Release);
        }
    }

    /// Sends the questions that were not sent. `wanted` has the present positions of a buffer; none if nothing is to be
    /// asked any more.
    pub(crate) fn send_again(&self, conn: &Conn, wanted: impl Fn(Bid) -> Option<[Position; 3]>) {
        // Only while questions are unsent, there is more to do than this look.
        if !self.any.load(Ordering::Acquire) || !self.any.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut unsent = lock(&self.unsent);
        let of_conn: Vec<Bid> =
            unsent.range((conn.id(), Bid::MIN)..=(conn.id(), Bid::MAX)).map(|((_, bid), _)| *bid).collect();
        unsent.retain(|(of, _), other| *of != conn.id() && other.is_up());
        self.any.fetch_or(!unsent.is_empty(), Ordering::AcqRel);
        drop(unsent);
        for bid in of_conn {
            wanted(bid).into_iter().for_each(|wanted| self.send(conn, bid, wanted));
        }
    }
}
