//! What an observer is told of a buffer, and of what keeps its publisher from going on.

use rocketbufs::Epoch;
use rocketbufs::fields::Reader;
use serde::{Serialize, Serializer};

use super::fields::{Row, get_bits, get_name, optional, put_bits, put_name, put_u32s, put_u64s};
use crate::{DecodeError, Framing};

/// What keeps a buffer's publisher from going on, if it is no subscriber that is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[repr(u8)]
pub enum Holds {
    /// Fewer subscribers are there than its publisher wants at least (`min_subscribers`), or have what is kept for them.
    TooFewSubscribers = 1,
    /// So many runs of a merged topic are not given back by every subscriber as its table has place for
    /// (`broker.merge_table_entries`).
    TableFull = 2,
}

/// How far a buffer's life has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum BufferStage {
    /// Asked for at the publisher, which has not answered.
    #[default]
    Opening = 0,
    /// Its log may grow.
    Live = 1,
    /// Its publisher closed it; it is still readable.
    Closed = 2,
    /// Its publisher was away for too long; what is complete is still readable.
    Gone = 3,
}

/// A buffer of a topic: one publisher's log, or the one of a merged topic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct BufferStats {
    /// The broker's id.
    pub bid: u32,
    /// Random name of the log.
    #[serde(serialize_with = "as_epoch")]
    pub epoch: u128,
    /// Its publisher's name; empty without one. Of a merged topic how many there are, and the names of the first.
    pub publisher: String,
    /// Its publisher's address.
    pub address: String,
    /// Its publisher is connected.
    pub connected: bool,
    /// How its bytes are to be read.
    #[serde(serialize_with = "as_text")]
    pub framing: Framing,
    /// How far its life has come.
    pub stage: BufferStage,
    /// How long a buffer that ended is still readable.
    pub expires_ms: u64,
    /// Where this ring's part of the log begins.
    pub start: u64,
    /// First position that is still there.
    pub tail: u64,
    /// End of the last complete delivery.
    pub boundary: u64,
    /// End of what arrived.
    pub head: u64,
    /// How far the publisher may write.
    pub horizon: u64,
    /// Bytes of the ring; 0 while it is opening.
    pub capacity_bytes: u64,
    /// Bytes of history that are kept although nobody holds them.
    pub retain_bytes: u64,
    /// Bytes of the largest delivery.
    pub max_delivery_bytes: u64,
    /// Bytes that it received.
    pub received_bytes: u64,
    /// Bytes that its subscribers got.
    pub delivered_bytes: u64,
    /// Bytes that its subscribers lost.
    pub dropped_bytes: u64,
    /// Subscriptions.
    pub subscribers: u32,
    /// Places that are kept for named subscribers that are away.
    pub absent: u32,
    /// So many subscribers its publisher wants at least; 0: it is content with none.
    pub min_subscribers: u32,
    /// Subscribers at the ends of all ways that count for that, those who are away and whose place is kept included.
    pub receivers: u32,
    /// Where that begins which `min_subscribers` do not have yet, and which is kept for them; none without a least.
    pub kept_for_least: Option<u64>,
    /// Of a merged topic: runs that not every subscriber has given back.
    pub table_entries: u32,
    /// At so many of them the publishers of a merged topic wait (`broker.merge_table_entries`); 0 of any other.
    pub max_table_entries: u32,
}

impl BufferStats {
    /// Whether nothing more comes of it.
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, BufferStage::Closed | BufferStage::Gone)
    }

    /// What else than a subscriber that is behind keeps its publisher from going on, now or soon.
    pub fn holds(&self) -> Option<Holds> {
        let history = self.head.saturating_sub(self.retain_bytes);
        let kept = self.kept_for_least.is_some_and(|at| at < history);
        if self.has_ended() {
            None
        } else if self.max_table_entries > 0 && self.table_entries >= self.max_table_entries {
            Some(Holds::TableFull)
        } else {
            (kept || self.receivers < self.min_subscribers).then_some(Holds::TooFewSubscribers)
        }
    }
}

fn as_epoch<S: Serializer>(epoch: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Epoch(*epoch))
}

fn as_text<S: Serializer>(value: &impl std::fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl Holds {
    pub(super) fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = r.u8()?;
        let known = [Self::TooFewSubscribers, Self::TableFull];
        known.into_iter().find(|known| *known as u8 == code).ok_or(DecodeError::value("reason to hold", code))
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
        put_bits(b, [self.connected, self.kept_for_least.is_some()]);
        b.extend_from_slice(&[self.framing.code(), self.stage as u8]);
        put_u64s(b, [self.expires_ms, self.start, self.tail, self.boundary, self.head, self.horizon]);
        put_u64s(b, [self.capacity_bytes, self.retain_bytes, self.max_delivery_bytes]);
        put_u64s(b, [self.received_bytes, self.delivered_bytes, self.dropped_bytes]);
        put_u32s(b, [self.subscribers, self.absent, self.min_subscribers, self.receivers]);
        self.kept_for_least.iter().for_each(|at| put_u64s(b, [*at]));
        put_u32s(b, [self.table_entries, self.max_table_entries]);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (bid, epoch, publisher, address) = (r.u32()?, r.u128()?, get_name(r)?, get_name(r)?);
        let [connected, kept_for_least] = get_bits(r)?;
        Ok(Self {
            bid,
            epoch,
            publisher,
            address,
            connected,
            framing: Framing::from_code(r.u8()?)?,
            stage: BufferStage::get(r)?,
            expires_ms: r.u64()?,
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
            absent: r.u32()?,
            min_subscribers: r.u32()?,
            receivers: r.u32()?,
            kept_for_least: optional(kept_for_least, || Ok(r.u64()?))?,
            table_entries: r.u32()?,
            max_table_entries: r.u32()?,
        })
    }
}
