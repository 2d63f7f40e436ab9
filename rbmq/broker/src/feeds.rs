//! The feeds of the broker: their buffers, and a list of their counters.

use std::sync::Arc;
use std::time::Instant;

use locks::Mutex;
use rbmq_wire::{Framing, Space};
use rocketbufs::error::BufferError;
use rocketbufs::{BufferOptions, Epoch};
use tracing::{info, warn};

use super::effects::{Effect, Effects};
use super::feed::{Feed, FeedCounters, FeedError, FeedOptions, FeedValues};
use super::limits::{Refused, no_buffer, ring_bytes};
use super::session_key::SourceBuffer;
use super::tables::Tables;
use super::topics::{Buffer, Stage};

/// The largest delivery of a feed, in bytes. The largest datagram fits, and a subscriber's ring must have twice its size.
const MAX_DELIVERY_BYTES: u64 = 256 << 10;

/// The smallest ring of a feed, in bytes: a delivery has at most a quarter.
const MIN_RING_BYTES: u64 = 4 * MAX_DELIVERY_BYTES;

/// All feeds. Clones share the list.
#[derive(Debug, Clone, Default)]
pub(super) struct Feeds(Arc<Mutex<Vec<Arc<FeedCounters>>>>);

impl Feeds {
    /// Makes the topic of a feed, and its buffer for subscribers.
    pub(super) fn open(
        &self,
        tables: &mut Tables,
        options: FeedOptions,
        fx: &mut Effects,
    ) -> Result<Feed, FeedError> {
        let FeedOptions { topic, start, kept, .. } = &options;
        let refused = |refused: Refused| FeedError::Refused { topic: topic.clone(), reason: refused.reason };
        if Space::is_reserved(topic) {
            let reason = "names that begin with $space are those of the logs of spaces".to_owned();
            return Err(FeedError::Refused { topic: topic.clone(), reason });
        }
        let rule = tables.settings.topics.of(topic);
        let wanted = rule.ring_bytes.unwrap_or(options.ring_bytes).max(MIN_RING_BYTES);
        let size_bytes = ring_bytes(wanted, MAX_DELIVERY_BYTES, &tables.settings).map_err(refused)?;
        let buffer_options = BufferOptions::new()
            .size_bytes(size_bytes)
            .retain_bytes(Some(tables.retained_bytes(rule, size_bytes)))
            .max_delivery_bytes(Some(MAX_DELIVERY_BYTES))
            .start(*start)
            .epoch(kept.map(|kept| Epoch(kept.epoch)));
        let limits = rule.limits();
        let buffer =
            Buffer::opening(topic.clone(), SourceBuffer::BROKER, Framing::Records, MAX_DELIVERY_BYTES);
        let out_bid = tables.add_buffer(Buffer { stage: Stage::Live, ..buffer }).map_err(refused)?;
        let made = tables.out.create_buffer_with(out_bid, buffer_options).and_then(|made| {
            made.set_limits(limits);
            let hold =
                kept.map(|kept| Ok::<_, BufferError>((made.hold_from(*start)?, Instant::now() + kept.hold)));
            Ok((hold.transpose()?, made.writer()?))
        });
        let (hold, writer) = made.map_err(|error| {
            fx.push(Effect::Remove(out_bid));
            refused(no_buffer(error))
        })?;
        let epoch = tables.info(out_bid).map(|info| info.epoch);
        if let Some(buffer) = tables.topics.get_mut(out_bid) {
            buffer.epoch = epoch;
        }
        info!("topic '{topic}': buffer {out_bid} is a feed of the broker");
        if tables.settings.topics.of(topic).keep {
            warn!("topic '{topic}' is not kept on disk: only topics of publishers are");
        }
        fx.push(Effect::AnnounceNew(out_bid));
        let counters = Arc::new(FeedCounters::new(topic.clone()));
        self.0.lock().push(counters.clone());
        Ok(Feed::new(writer, counters, hold))
    }

    /// The values of all feeds.
    pub(super) fn values(&self) -> Vec<FeedValues> {
        self.0.lock().iter().map(|counters| counters.values()).collect()
    }
}
