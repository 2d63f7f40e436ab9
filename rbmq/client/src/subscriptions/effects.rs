//! The effects of the machine, which its driver carries out.

use std::time::SystemTime;

use rocketbufs::{Bid, Policy, Position, Start};

/// What the machine has its driver do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Subscribe to a buffer. A failure is an event (`on_not_subscribed`).
    Subscribe(Subscribe),
    /// End the subscription of a buffer.
    Unsubscribe(Bid),
    /// Ask the broker where to begin in a kept log.
    Ask { bid: Bid, begin: Begin },
    /// Close the connection: the broker is at fault.
    Close(&'static str),
}

/// A subscription of a buffer.
#[derive(Debug)]
pub(crate) struct Subscribe {
    pub(crate) bid: Bid,
    pub(crate) begin: Begin,
    pub(crate) policy: Policy,
    /// The buffer is a replay. No publisher waits for it, and its place is the position that this subscriber knows.
    pub(crate) replay: bool,
    /// The topic was requested by its name.
    pub(crate) named: bool,
    /// Everything from this position to the beginning was received.
    pub(crate) covered_from: Option<Position>,
    pub(crate) max_delivery_bytes: u64,
}

/// Where a subscription begins. The driver has the clock, and turns a time into an age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    At(Start),
    Since(SystemTime),
}

impl Begin {
    /// Whether the ring of a kept log may not have everything from there on.
    pub(super) fn may_need_replay(self) -> bool {
        matches!(self, Self::Since(_) | Self::At(Start::Oldest | Start::First | Start::Position(..)))
    }
}
