//! How subscriptions of this end learn that their logs have ended: from their senders, or because a spliced subscription is
//! without a connection for too long.
//!
//! A spliced buffer waits `linger` for its writer to come back. After that its subscribers get GONE.

use std::sync::{Arc, Weak};

use rocketring::Ring;

use crate::limits::millis;
use crate::lock::lock;
use crate::planted;
use crate::proto::{End, Ending};
use crate::state::SubscriptionShared;
use crate::types::Nanos;

/// The subscriptions of a worker that wait for their writers. The references are weak, since another worker
/// may resume a subscription and drop it.
pub(super) struct Lingering {
    /// The linger time of a subscription that has none of its own.
    usual: Nanos,
    all: Vec<(Weak<SubscriptionShared>, Nanos)>,
}

impl Lingering {
    pub(super) fn new(linger_ms: u32) -> Self {
        Self { usual: Nanos::from(linger_ms) * 1_000_000, all: Vec::new() }
    }

    /// Starts the linger time of a spliced subscription that no connection carries and none is about to
    /// carry. This includes a subscription that lost its connection before SUBSCRIBE was sent or before the
    /// splice. Returns when the writer counts as gone.
    pub(super) fn begin(&mut self, inbound: &Arc<SubscriptionShared>, now: Nanos) -> Option<Nanos> {
        let linger = inbound.options.linger.map_or(self.usual, |own| Nanos::from(millis(own)) * 1_000_000);
        let gone_at = now + linger;
        if !inbound.is_spliced() || !lock(&inbound.state).sub.begin_linger(gone_at) {
            return None;
        }
        self.all.push((Arc::downgrade(inbound), gone_at));
        Some(gone_at)
    }

    /// Stops waiting: the subscription resumes, or is left.
    pub(super) fn forget(&mut self, inbound: &Arc<SubscriptionShared>) {
        self.all.retain(|(other, _)| other.as_ptr() != Arc::as_ptr(inbound));
    }

    /// Ends the subscriptions whose writer was away for the linger time. Returns when the next one ends.
    pub(super) fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        let (over, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.all).into_iter().partition(|(_, at)| *at <= now);
        self.all = wait;
        for (inbound, gone_at) in over {
            let Some(inbound) = inbound.upgrade() else { continue };
            let state = lock(&inbound.state);
            let end_of = |ring: &Ring| match planted::is(planted::GONE_AT_HEAD) {
                true => ring.head(),
                false => ring.boundary(),
            };
            let (away, at) = (state.sub.is_gone(gone_at), state.ring().map_or(0, end_of));
            drop(state);
            if away {
                end_subscription(&inbound, Ending::End(End::Gone(at)));
            }
        }
        self.all.iter().map(|(_, at)| *at).min()
    }
}

/// Ends a subscription. The application and the subscribers downstream learn of the end after the data.
pub(super) fn end_subscription(inbound: &Arc<SubscriptionShared>, ending: Ending) {
    let mut state = lock(&inbound.state);
    if state.sub.ending().is_some() {
        return;
    }
    let boundary = state.ring().map_or(0, Ring::stop_following);
    let end = ending.downstream(boundary);
    state.sub.end(ending);
    drop(state);
    // The end is set before any notification: an application that removes the buffer in response cannot end
    // it otherwise.
    let tell = || {
        if let Some(rin) = inbound.rin.upgrade() {
            rin.on_news(inbound);
        }
    };
    match inbound.spliced_to() {
        Some(buffer) => buffer.end_with(end, tell),
        None => tell(),
    }
}
