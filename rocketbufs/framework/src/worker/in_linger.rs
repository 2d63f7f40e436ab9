//! How subscriptions of this end learn that their logs have ended: from their senders, or because a spliced subscription is
//! without a connection for too long.
//!
//! A spliced buffer waits `linger` for its writer to come back. After that its subscribers get GONE.

use std::sync::{Arc, Weak};

use rocketring::Ring;

use crate::ground::limits::millis;
use crate::ground::lock::lock;
use crate::ground::planted;
use crate::ground::types::Nanos;
use crate::proto::{End, Ending};
use crate::state::SubscriptionShared;

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
    pub(super) fn begin(&mut self, subscription: &Arc<SubscriptionShared>, now: Nanos) -> Option<Nanos> {
        let linger =
            subscription.options.linger.map_or(self.usual, |own| Nanos::from(millis(own)) * 1_000_000);
        let gone_at = now + linger;
        if !subscription.is_spliced() || !lock(&subscription.state).sub.begin_linger(gone_at) {
            return None;
        }
        self.all.push((Arc::downgrade(subscription), gone_at));
        Some(gone_at)
    }

    /// Stops waiting: the subscription resumes, or is left.
    pub(super) fn forget(&mut self, subscription: &Arc<SubscriptionShared>) {
        self.all.retain(|(other, _)| other.as_ptr() != Arc::as_ptr(subscription));
    }

    /// Ends the subscriptions whose writer was away for the linger time. Returns when the next one ends.
    pub(super) fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        let (over, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.all).into_iter().partition(|(_, at)| *at <= now);
        self.all = wait;
        for (subscription, gone_at) in over {
            let Some(subscription) = subscription.upgrade() else { continue };
            let state = lock(&subscription.state);
            let end_of = |ring: &Ring| match planted::is(planted::GONE_AT_HEAD) {
                true => ring.head(),
                false => ring.boundary(),
            };
            let (away, at) = (state.sub.is_gone(gone_at), state.ring().map_or(0, end_of));
            drop(state);
            if away {
                end_subscription(&subscription, Ending::End(End::Gone(at)));
            }
        }
        self.all.iter().map(|(_, at)| *at).min()
    }
}

/// Ends a subscription. The application and the subscribers downstream learn of the end after the data.
pub(super) fn end_subscription(subscription: &Arc<SubscriptionShared>, ending: Ending) {
    let mut state = lock(&subscription.state);
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
        if let Some(rin) = subscription.rin.upgrade() {
            rin.on_news(subscription);
        }
    };
    match subscription.spliced_to() {
        Some(buffer) => buffer.end_with(end, tell),
        None => tell(),
    }
}
