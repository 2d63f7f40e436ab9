//! What a sender knows of a peer that follows the ring of its subscription: a reader that maps the ring sees by itself
//! what there is.

use crate::proto::credit::Credit;

/// The number of the peer's own doorbell; other numbers are those of readers behind the peer.
const OWN_DOORBELL: u32 = 0;

/// See [the module](self).
#[derive(Debug, Default)]
pub(super) struct FollowState {
    /// Readers whose doorbells ring when there is new data, by their numbers on this connection.
    watchers: Vec<u32>,
    /// A CREDIT that speaks of data that this end has not seen yet.
    early: Option<Credit>,
    /// There may be news that the peer was not told.
    unreported: bool,
}

impl FollowState {
    /// Whether the peer itself is woken when there is new data.
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

    /// Whether there was such a reader.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        let at = self.watchers.iter().position(|known| *known == number);
        at.map(|at| self.watchers.swap_remove(at)).is_some()
    }

    /// Keeps a CREDIT until what it speaks of is seen here.
    pub(super) fn defer(&mut self, credit: Option<Credit>) {
        self.early = credit;
    }

    pub(super) fn take_deferred(&mut self) -> Option<Credit> {
        self.early.take()
    }

    /// There is news that the peer was not told. Whether this is the first since it was told last.
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
