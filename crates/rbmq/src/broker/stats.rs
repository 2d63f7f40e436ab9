//! What can be seen of a broker from outside.

use rocketbufs::{Bid, ROut};
use serde::Serialize;

use crate::wire::TopicName;

/// A topic as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TopicStats {
    /// Its name.
    pub topic: String,
    /// Buffers whose publishers have not ended them.
    pub publishers: usize,
    /// Buffers that have ended and are still readable.
    pub ended: usize,
    /// Subscriptions of all its buffers.
    pub subscribers: usize,
    /// Sum of the positions of its buffers' heads, in bytes: two readings give a rate.
    pub head_bytes: u64,
    /// Sum of what its subscribers have, in bytes: two readings give a rate.
    pub delivered_bytes: u64,
    /// How far its slowest subscriber is behind, in bytes.
    pub max_lag_bytes: u64,
}

impl TopicStats {
    pub(super) fn collect(out: &ROut, topic: &TopicName, bids: &[Bid]) -> Self {
        let mut stats = Self {
            topic: topic.to_string(),
            publishers: 0,
            ended: 0,
            subscribers: 0,
            head_bytes: 0,
            delivered_bytes: 0,
            max_lag_bytes: 0,
        };
        for bid in bids {
            let Some(info) = out.buffer_info(*bid) else { continue };
            if info.ended {
                stats.ended += 1;
            } else {
                stats.publishers += 1;
            }
            stats.head_bytes = stats.head_bytes.wrapping_add(info.head);
            for subscriber in out.subscribers(*bid) {
                stats.subscribers += 1;
                stats.delivered_bytes = stats.delivered_bytes.wrapping_add(subscriber.landed);
                stats.max_lag_bytes = stats.max_lag_bytes.max(info.head.saturating_sub(subscriber.landed));
            }
        }
        stats
    }
}
