//! A feed: a topic that the broker's own process writes, without a connection. Its messages come from elsewhere, for example from a
//! level of MultiMQC.
//!
//! ```text
//!   elsewhere ──────────────────────────▶ head      messages that the broker has not taken: the lag
//!                             │ next │
//!   ring of the topic ───────▶ position             the same positions, so a hole elsewhere is a hole here
//! ```
//!
//! Subscribers get the messages as those of a publisher, and [`InEvent::Lost`](rocketbufs::InEvent::Lost) for holes. A feed has no
//! end: when the broker stops, its subscribers keep their positions, and continue if the next broker has the same log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rbmq_wire::TopicName;
use rocketbufs::relay::RetentionHold;
use rocketbufs::{OutWriter, SegmentError};

/// The options of a [`Feed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedOptions {
    pub(crate) topic: TopicName,
    pub(crate) ring_bytes: u64,
    pub(crate) start: u64,
    pub(crate) kept: Option<Kept>,
}

/// A log that outlives the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) epoch: u128,
    pub(crate) hold: Duration,
}

impl FeedOptions {
    /// A feed of a topic, with a ring of 16 MiB, whose log begins at position 0.
    pub fn new(topic: TopicName) -> Self {
        Self { topic, ring_bytes: 16 << 20, start: 0, kept: None }
    }

    /// The ring, in bytes, if the rule of the topic has no `ring_bytes`. At least 1 MiB.
    #[must_use]
    pub fn ring_bytes(mut self, bytes: u64) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// The position of the first message.
    #[must_use]
    pub fn start(mut self, position: u64) -> Self {
        self.start = position;
        self
    }

    /// The log outlives the broker under the name `epoch`, which no other log has. Subscribers of an earlier broker continue where
    /// they were; the ring keeps everything from the start on for `hold`, so that they have time to connect again.
    #[must_use]
    pub fn kept(mut self, epoch: u128, hold: Duration) -> Self {
        self.kept = Some(Kept { epoch, hold });
        self
    }
}

/// Why a feed was not made or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The broker has reached a limit or has no memory.
    #[error("topic '{topic}': {reason}")]
    Refused {
        /// The topic.
        topic: TopicName,
        /// The reason.
        reason: String,
    },
    /// The broker has stopped.
    #[error("the broker has stopped")]
    Stopped,
}

/// The result of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batch {
    /// So many bytes are in the topic; 0: the caller had none.
    Taken(usize),
    /// The ring has no room: a subscriber holds its bytes. Nothing was asked of the caller.
    Full,
}

/// The writing end of a topic in the broker's own process.
///
/// ```
/// use rbmq_broker::{Broker, BrokerConfig, FeedOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut config = BrokerConfig::default();
/// # config.broker.listen = "127.0.0.1:0".into();
/// let broker = Broker::start(config)?;
/// let mut feed = broker.feed(FeedOptions::new("sensors/7".parse()?))?;
/// feed.batch(100, |bytes| {
///     bytes[..8].copy_from_slice(b"\x04\0\0\021.5");
///     8
/// })?;
/// assert_eq!(feed.position(), 8);
/// # Ok(())
/// # }
/// ```
pub struct Feed {
    writer: OutWriter,
    counters: Arc<FeedCounters>,
    /// The history that subscribers of an earlier broker may still need, and until when.
    hold: Option<(RetentionHold, Instant)>,
}

impl Feed {
    pub(crate) fn new(
        writer: OutWriter,
        counters: Arc<FeedCounters>,
        hold: Option<(RetentionHold, Instant)>,
    ) -> Self {
        Self { writer, counters, hold }
    }

    /// The end of the log: the position of the next byte.
    pub fn position(&self) -> u64 {
        self.writer.head()
    }

    /// The most bytes of a batch.
    pub fn max_batch_bytes(&self) -> u64 {
        self.writer.buffer().info().map_or(0, |info| info.max_delivery_bytes)
    }

    /// Claims `size` bytes of the ring, lets `fill` write whole records there (each a little-endian `u32` length, then the message)
    /// and makes them one delivery. `fill` returns how many bytes there are, and may return 0. The claimed memory has arbitrary bytes
    /// before.
    ///
    /// # Errors
    /// [`FeedError::Stopped`], and [`FeedError::Refused`] for a size of 0 or more than [`Feed::max_batch_bytes`].
    pub fn batch(&mut self, size: u64, fill: impl FnOnce(&mut [u8]) -> usize) -> Result<Batch, FeedError> {
        self.release_history();
        let mut segment = match self.writer.segment(size, Some(Duration::ZERO)) {
            Ok(segment) => segment,
            Err(SegmentError::Full) => return Ok(Batch::Full),
            Err(error) => return Err(self.failed(&error)),
        };
        let bytes = fill(segment.bytes_mut());
        self.writer.deliver(segment, bytes as u64, None).map_err(|error| self.failed(&error))?;
        Ok(Batch::Taken(bytes))
    }

    /// The bytes up to `to` are lost: a hole, of which subscribers learn. Without effect for a position up to
    /// [`Feed::position`]. False: nothing was done, because a subscriber still holds bytes before the hole.
    ///
    /// # Errors
    /// [`FeedError::Stopped`].
    pub fn skip(&mut self, to: u64) -> Result<bool, FeedError> {
        let from = self.position();
        // A hole ends the history that an earlier broker's subscribers can continue from.
        self.hold = None;
        match self.writer.skip(to) {
            Ok(()) => {
                self.counters.lost(to.saturating_sub(from));
                Ok(true)
            }
            Err(SegmentError::Full) => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Returns the feed's counters, for the broker's metrics.
    pub fn counters(&self) -> &Arc<FeedCounters> {
        &self.counters
    }

    fn release_history(&mut self) {
        if self.hold.as_ref().is_some_and(|(_, until)| *until <= Instant::now()) {
            self.hold = None;
        }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> FeedError {
        if self.writer.buffer().info().is_none_or(|info| info.ended) {
            return FeedError::Stopped;
        }
        FeedError::Refused { topic: self.counters.topic.clone(), reason: error.to_string() }
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("topic", &self.counters.topic).finish_non_exhaustive()
    }
}

/// Counters of a feed. Its writer sets the values, and the broker's metrics show them.
#[derive(Debug)]
pub struct FeedCounters {
    topic: TopicName,
    messages: AtomicU64,
    bytes: AtomicU64,
    holes: AtomicU64,
    lost_bytes: AtomicU64,
    lost_messages: AtomicU64,
    refused: AtomicU64,
    lag_bytes: AtomicU64,
    is_up: AtomicBool,
    is_full: AtomicBool,
}

/// The values of [`FeedCounters`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedValues {
    /// The topic.
    pub topic: TopicName,
    /// Messages that the topic got.
    pub messages: u64,
    /// Bytes that the topic got, with the lengths before the messages.
    pub bytes: u64,
    /// Holes: messages that were overwritten before the broker had room for them.
    pub holes: u64,
    /// Bytes in holes.
    pub lost_bytes: u64,
    /// Messages in holes. Known once the broker has taken everything that follows them, and less until then.
    pub lost_messages: u64,
    /// Messages that the source refused.
    pub refused: u64,
    /// Bytes that have arrived and that the topic has not got yet.
    pub lag_bytes: u64,
    /// Whether messages can arrive.
    pub is_up: bool,
    /// Whether the topic's ring was full at the last batch.
    pub is_full: bool,
}

impl FeedCounters {
    pub(crate) fn new(topic: TopicName) -> Self {
        Self {
            topic,
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            holes: AtomicU64::new(0),
            lost_bytes: AtomicU64::new(0),
            lost_messages: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            lag_bytes: AtomicU64::new(0),
            is_up: AtomicBool::new(true),
            is_full: AtomicBool::new(false),
        }
    }

    /// Counts messages of a batch.
    pub fn add(&self, messages: u64, bytes: u64) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn lost(&self, bytes: u64) {
        if bytes > 0 {
            self.holes.fetch_add(1, Ordering::Relaxed);
            self.lost_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Sets the number of messages in holes. The number never decreases.
    pub fn set_lost_messages(&self, messages: u64) {
        self.lost_messages.fetch_max(messages, Ordering::Relaxed);
    }

    /// Sets the number of messages that the source refused. The number never decreases.
    pub fn set_refused(&self, messages: u64) {
        self.refused.fetch_max(messages, Ordering::Relaxed);
    }

    /// Sets how many bytes have arrived that the topic has not got, and whether its ring is full.
    pub fn set_lag(&self, bytes: u64, is_full: bool) {
        self.lag_bytes.store(bytes, Ordering::Relaxed);
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Sets whether messages can arrive.
    pub fn set_up(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    /// The values now.
    pub fn values(&self) -> FeedValues {
        let get = |value: &AtomicU64| value.load(Ordering::Relaxed);
        FeedValues {
            topic: self.topic.clone(),
            messages: get(&self.messages),
            bytes: get(&self.bytes),
            holes: get(&self.holes),
            lost_bytes: get(&self.lost_bytes),
            lost_messages: get(&self.lost_messages),
            refused: get(&self.refused),
            lag_bytes: get(&self.lag_bytes),
            is_up: self.is_up.load(Ordering::Relaxed),
            is_full: self.is_full.load(Ordering::Relaxed),
        }
    }
}
