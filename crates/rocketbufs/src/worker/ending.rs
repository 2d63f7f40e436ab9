//! How a subscription of this end learns that its log has ended.

use std::sync::Arc;

use rocketring::Ring;

use crate::lock::lock;
use crate::proto::Ending;
use crate::state::SubscriptionShared;

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
