//! The rate limits of a connection, and the counts of its subscriptions: the state for [`super::rate_limit`].

use crate::ground::types::{Nanos, Position, WireId};
use crate::state::RateLimits;

/// The limits of a connection, and what waits because of them.
pub(super) struct Limiting {
    pub(super) limits: RateLimits,
    /// Bytes that are reserved for sending, and when they may go.
    pub(super) reserved: u64,
    pub(super) send_at: Nanos,
    /// Subscriptions of this end whose credit waits, and when to look at them.
    pub(super) waiting: Vec<WireId>,
    pub(super) look_at: Option<Nanos>,
    /// Nothing is read, because a sender without flow control needs no credit.
    pub(super) paused: bool,
}

/// The part of a subscription of this end that limits need.
#[derive(Default)]
pub(super) struct Metered {
    /// Everything below was charged.
    pub(super) charged: Position,
    /// Its credit waits.
    pub(super) waits: bool,
    /// No CREDIT was sent over this connection yet.
    pub(super) owes_credit: bool,
}

impl Metered {
    /// The subscription receives from this position on.
    pub(super) fn begin(&mut self, at: Position) {
        *self = Self { charged: at, waits: self.waits, owes_credit: true };
    }

    /// The ring's head went from one position to another without bytes.
    pub(super) fn skipped(&mut self, from: Position, to: Position) {
        self.charged += to.saturating_sub(from);
    }

    /// Records the first CREDIT.
    pub(super) fn credited(&mut self) {
        self.owes_credit = false;
    }
}

impl Limiting {
    /// Returns whether reserved bytes have to wait.
    pub(super) fn delays_sending(&self, now: Nanos) -> bool {
        self.reserved > 0 && self.send_at > now
    }

    /// Returns whether arriving bytes are limited.
    pub(super) fn limits_arrivals(&self) -> bool {
        !self.limits.received.is_empty()
    }

    /// Returns whether sent bytes are limited.
    pub(super) fn limits_sending(&self) -> bool {
        !self.limits.sent.is_empty()
    }

    /// Returns when the connection is to be looked at.
    pub(super) fn times(&self) -> impl Iterator<Item = Nanos> + use<> {
        let sends = (self.reserved > 0).then_some(self.send_at);
        sends.into_iter().chain(self.look_at)
    }

    /// Returns the most bytes in flight to a subscription of this end.
    pub(super) fn window(&self) -> u64 {
        let bursts = self.limits.received.iter().filter(|limit| limit.bytes_per_second() > 0);
        bursts.map(|limit| limit.burst_bytes()).min().unwrap_or(u64::MAX)
    }
}

impl Drop for Limiting {
    fn drop(&mut self) {
        self.limits.settle(self.reserved, 0, 0);
    }
}
