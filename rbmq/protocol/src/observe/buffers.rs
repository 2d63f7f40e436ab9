//! Rows for observers: buffers, and why their publishers wait.

use rocketbufs::Epoch;
use rocketbufs::fields::Reader;
use serde::{Serialize, Serializer};

use super::fields::{Row, get_bits, get_name, optional, put_bits, put_name, put_u32s, put_u64s};
use crate::{DecodeError, Framing};

/// The reason why a buffer's publisher waits, if it is not a slow subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[repr(u8)]
pub enum BlockReason {
    /// The buffer has fewer subscribers than `min_subscribers`, or fewer of them have the retained records.
    TooFewSubscribers = 1,
    /// The table of a merged topic is full: too many runs are not consumed by every subscriber (`broker.merge_table_entries`).
    MergeTableFull = 2,
    /// The disk of a kept topic has no room or fails.
    Disk = 3,
}

/// The stage of a buffer's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum BufferStage {
    /// The broker has requested the buffer, and the publisher has not answered.
    #[default]
    Opening = 0,
    /// The log may grow.
    Live = 1,
    /// The publisher closed the topic. The buffer is still readable.
    Closed = 2,
    /// The publisher was offline for too long. Complete deliveries are still readable.
    Gone = 3,
}

/// A buffer of a topic: the log of one publisher, or of a merged topic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct BufferStats {
    /// The broker's id.
    pub bid: u32,
    /// The random name of the log.
    #[serde(serialize_with = "as_epoch")]
    pub epoch: u128,
    /// The publisher's name; may be empty. For a merged topic: the number of publishers, and the first names.
    pub publisher: String,
    /// The publisher's address.
    pub address: String,
    /// Whether the publisher is connected.
    pub connected: bool,
    /// The framing of its bytes.
    #[serde(serialize_with = "as_text")]
    pub framing: Framing,
    /// The stage of its life.
    pub stage: BufferStage,
    /// How long an ended buffer is still readable.
    pub expires_in_ms: u64,
    /// The first position of the log in this ring.
    pub start: u64,
    /// The oldest position in the ring.
    pub tail: u64,
    /// End of the last complete delivery.
    pub boundary: u64,
    /// The end of the received bytes.
    pub head: u64,
    /// How far the publisher may write.
    pub horizon: u64,
    /// The size of the ring; 0 while the buffer is opening.
    pub capacity_bytes: u64,
    /// The bytes of history that the ring keeps for later subscribers.
    pub retain_bytes: u64,
    /// The largest delivery in bytes.
    pub max_delivery_bytes: u64,
    /// Bytes that it received.
    pub received_bytes: u64,
    /// Bytes that its subscribers got.
    pub delivered_bytes: u64,
    /// Bytes that its subscribers lost.
    pub dropped_bytes: u64,
    /// Subscriptions.
    pub subscribers: u32,
    /// Durable subscriptions that are offline.
    pub offline: u32,
    /// The least number of subscribers that the publisher requires; 0: none.
    pub min_subscribers: u32,
    /// The subscribers that count for `min_subscribers`, at the ends of all chains, including offline durable ones.
    pub receivers: u32,
    /// The first position that fewer than `min_subscribers` have. The ring retains everything from there on; none without that
    /// requirement.
    pub retained_from: Option<u64>,
    /// For a merged topic: the number of runs that not every subscriber has consumed.
    pub table_entries: u32,
    /// The number of runs at which the publishers of a merged topic wait (`broker.merge_table_entries`); 0 for other topics.
    pub max_table_entries: u32,
}

impl BufferStats {
    /// Whether the log has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, BufferStage::Closed | BufferStage::Gone)
    }

    /// The reason why its publisher waits, now or soon, if it is not a slow subscriber.
    pub fn blocked_by(&self) -> Option<BlockReason> {
        let history = self.head.saturating_sub(self.retain_bytes);
        let retained = self.retained_from.is_some_and(|at| at < history);
        if self.has_ended() {
            None
        } else if self.max_table_entries > 0 && self.table_entries >= self.max_table_entries {
            Some(BlockReason::MergeTableFull)
        } else {
            (retained || self.receivers < self.min_subscribers).then_some(BlockReason::TooFewSubscribers)
        }
    }
}

fn as_epoch<S: Serializer>(epoch: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Epoch(*epoch))
}

fn as_text<S: Serializer>(value: &impl std::fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl BlockReason {
    pub(super) fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = r.u8()?;
        let known = [Self::TooFewSubscribers, Self::MergeTableFull, Self::Disk];
        known.into_iter().find(|known| *known as u8 == code).ok_or(DecodeError::value("reason to wait", code))
    }
}

impl BufferStage {
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = r.u8()?;
        [Self::Opening, Self::Live, Self::Closed, Self::Gone]
            .into_iter()
            .find(|known| *known as u8 == code)
            .ok_or(DecodeError::value("stage", code))
    }
}

impl Row for BufferStats {
    fn put(&self, b: &mut Vec<u8>) {
        put_u32s(b, [self.bid]);
        b.extend_from_slice(&self.epoch.to_le_bytes());
        put_name(b, &self.publisher);
        put_name(b, &self.address);
        put_bits(b, [self.connected, self.retained_from.is_some()]);
        b.extend_from_slice(&[self.framing.code(), self.stage as u8]);
        put_u64s(b, [self.expires_in_ms, self.start, self.tail, self.boundary, self.head, self.horizon]);
        put_u64s(b, [self.capacity_bytes, self.retain_bytes, self.max_delivery_bytes]);
        put_u64s(b, [self.received_bytes, self.delivered_bytes, self.dropped_bytes]);
        put_u32s(b, [self.subscribers, self.offline, self.min_subscribers, self.receivers]);
        self.retained_from.iter().for_each(|at| put_u64s(b, [*at]));
        put_u32s(b, [self.table_entries, self.max_table_entries]);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (bid, epoch, publisher, address) = (r.u32()?, r.u128()?, get_name(r)?, get_name(r)?);
        let [connected, retained_from] = get_bits(r)?;
        Ok(Self {
            bid,
            epoch,
            publisher,
            address,
            connected,
            framing: Framing::from_code(r.u8()?)?,
            stage: BufferStage::get(r)?,
            expires_in_ms: r.u64()?,
            start: r.u64()?,
            tail: r.u64()?,
            boundary: r.u64()?,
            head: r.u64()?,
            horizon: r.u64()?,
            capacity_bytes: r.u64()?,
            retain_bytes: r.u64()?,
            max_delivery_bytes: r.u64()?,
            received_bytes: r.u64()?,
            delivered_bytes: r.u64()?,
            dropped_bytes: r.u64()?,
            subscribers: r.u32()?,
            offline: r.u32()?,
            min_subscribers: r.u32()?,
            receivers: r.u32()?,
            retained_from: optional(retained_from, || Ok(r.u64()?))?,
            table_entries: r.u32()?,
            max_table_entries: r.u32()?,
        })
    }
}
