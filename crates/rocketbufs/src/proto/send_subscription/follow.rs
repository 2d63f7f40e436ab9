//! The sender's state of a peer that follows the ring of its subscription: a reader that maps the ring sees
//! new data by itself.

use crate::proto::credit::Credit;

/// The number of the peer's own doorbell. Other numbers belong to readers downstream of the peer.
const OWN_DOORBELL: u32 = 0;

/// A peer that follows, see the module.
#[derive(Debug, Default)]
pub(super) struct FollowState {
    /// Readers whose doorbells ring when there is new data, by their numbers on this connection.
    watchers: Vec<u32>,
    /// A CREDIT that speaks of data that this end has not seen yet.
    early: Option<Credit>,
    /// Whether there may be news that was not reported to the peer.
    unreported: bool,
}

impl FollowState {
    /// Returns whether the peer itself is woken when there is new data.
    pub(super) fn is_active(&self) -> bool {
        self.watchers.contains(&OWN_DOORBELL)
    }

    pub(super) fn watchers(&self) -> &[u32] {
        &self.watchers
    }

    pub(super) fn add(&mut self, number: u32) {
        if !self.watchers.contains(&number) {
            self.watchers.push(number);
        }
    }

    /// Returns whether there was such a reader.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        let at = self.watchers.iter().position(|known| *known == number);
        at.map(|at| self.watchers.swap_remove(at)).is_some()
    }

    /// Keeps a CREDIT until this end sees the data that it speaks of.
    pub(super) fn defer(&mut self, credit: Option<Credit>) {
        self.early = credit;
    }

    pub(super) fn take_deferred(&mut self) -> Option<Credit> {
        self.early.take()
    }

    /// Records unreported news. Returns whether it is the first since the last report.
    pub(super) fn begin_unreported(&mut self) -> bool {
        !std::mem::replace(&mut self.unreported, true)
    }

    pub(super) fn end_unreported(&mut self) {
        self.unreported = false;
    }

    pub(super) fn is_unreported(&self) -> bool {
        self.unreported
    }
}
