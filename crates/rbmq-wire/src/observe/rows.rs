//! What an observer is told: rows of tables, field by field.

use rocketbufs::Policy;
use rocketbufs::fields::Reader;
use serde::Serialize;

use super::buffers::Holds;
use super::fields::{Row, get_bits, get_name, get_policy, optional, put_bits, put_name, put_u32s, put_u64s};
use crate::{DecodeError, TopicName};

/// A broker as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct BrokerSummary {
    /// How long it has been running, in milliseconds.
    pub uptime_ms: u64,
    /// Its version.
    pub version: String,
    /// Publishers: connected, or away for less than the linger time.
    pub publishers: u32,
    /// Subscribers that are connected.
    pub subscribers: u32,
    /// Observers that are connected, whoever asked included.
    pub observers: u32,
    /// Topics that have a buffer.
    pub topics: u32,
    /// Buffers of all topics.
    pub buffers: u32,
    /// Bytes of rings that exist (memory is backed on first use).
    pub ring_bytes: u64,
    /// Bytes of rings that may exist (`buffers.max_ring_bytes`).
    pub max_ring_bytes: u64,
    /// Bytes that publishers sent since the start.
    pub received_bytes: u64,
    /// Bytes that subscribers got since the start.
    pub delivered_bytes: u64,
    /// Bytes that slow subscribers lost since the start.
    pub dropped_bytes: u64,
}

/// A topic as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicStats {
    /// Its name.
    pub topic: TopicName,
    /// Buffers whose publishers have not ended them.
    pub publishers: u32,
    /// Buffers that have ended and are still readable.
    pub ended: u32,
    /// Subscriptions of all its buffers.
    pub subscribers: u32,
    /// Places that are kept for named subscribers that are away.
    pub absent: u32,
    /// Other brokers by which its buffers go on if the way by which they come now is lost.
    pub spare_ways: u32,
    /// Bytes of its rings.
    pub ring_bytes: u64,
    /// End of the last complete delivery, if the topic has exactly one buffer.
    pub boundary: Option<u64>,
    /// Sum of the positions of its buffers' heads.
    pub head_bytes: u64,
    /// Bytes that its buffers received: two readings give a rate.
    pub received_bytes: u64,
    /// Bytes that its subscribers got, of all that there were: two readings give a rate.
    pub delivered_bytes: u64,
    /// Bytes that its subscribers lost by their policies.
    pub dropped_bytes: u64,
    /// How far its slowest subscriber is behind, in bytes.
    pub max_lag_bytes: u64,
    /// The subscriber that is furthest behind, if any is.
    pub slowest: Option<Slowest>,
    /// What else than a subscriber that is behind keeps publishers of it from going on.
    pub holds: Option<Holds>,
}

impl TopicStats {
    /// A topic of which nothing is known yet.
    pub fn new(topic: TopicName) -> Self {
        Self {
            topic,
            publishers: 0,
            ended: 0,
            subscribers: 0,
            absent: 0,
            spare_ways: 0,
            ring_bytes: 0,
            boundary: None,
            head_bytes: 0,
            received_bytes: 0,
            delivered_bytes: 0,
            dropped_bytes: 0,
            max_lag_bytes: 0,
            slowest: None,
            holds: None,
        }
    }
}

/// The subscriber of a topic that is furthest behind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Slowest {
    /// Its name; without one, its address.
    pub name: String,
    /// What happens when it is slow.
    pub policy: Policy,
    /// Its connection is gone; its place is kept.
    pub absent: bool,
    /// It is what keeps the buffer's writer from going on, now or soon.
    pub holds: bool,
    /// How long it has given nothing back.
    pub idle_ms: u64,
    /// Bytes of the ring in which it is behind.
    pub ring_bytes: u64,
}

/// A subscription of a buffer, or a place that is kept for one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SubscriptionStats {
    /// Its connection at the broker; 0 of one that is away.
    pub conn: u64,
    /// Its number on that connection.
    pub wire: u32,
    /// The client's name; empty without one.
    pub client: String,
    /// The client's address; empty of one that is away.
    pub address: String,
    /// Name under which its place is kept; empty without one.
    pub name: String,
    /// What happens when it is slow.
    pub policy: Policy,
    /// Its connection is gone; its place is kept for `left_ms` more.
    pub absent: bool,
    /// Where it began.
    pub start: u64,
    /// Everything below was handed to the transport.
    pub sent: u64,
    /// Everything below is in its memory.
    pub landed: u64,
    /// Everything below was given back by its application.
    pub consumed: u64,
    /// What it holds of the ring begins here; none if it holds nothing.
    pub holds: Option<u64>,
    /// Bytes that it lost by its policy.
    pub dropped_bytes: u64,
    /// How long it has given nothing back.
    pub idle_ms: u64,
    /// How long the place of one that is away is still kept.
    pub left_ms: u64,
}

impl SubscriptionStats {
    /// How far it is behind: what was written and is not in its memory.
    pub fn lag_bytes(&self, head: u64) -> u64 {
        head.saturating_sub(self.landed)
    }

    /// What people call it: its client's name, the name of its place, or its address.
    pub fn title(&self) -> &str {
        [&self.client, &self.name, &self.address].into_iter().find(|text| !text.is_empty()).map_or("", |t| t)
    }

    /// Its place in a list, the slowest first.
    pub fn place(&self) -> Place {
        Place { landed: self.landed, conn: self.conn, wire: self.wire, name: self.name.clone() }
    }
}

/// Where a page of subscriptions ended. They are listed by what landed, so one that moves on meanwhile may be listed
/// twice and is never left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// What has landed.
    pub landed: u64,
    /// The connection.
    pub conn: u64,
    /// The number on it.
    pub wire: u32,
    /// The name, of one that is away.
    pub name: String,
}

impl Row for BrokerSummary {
    fn put(&self, b: &mut Vec<u8>) {
        put_u64s(b, [self.uptime_ms]);
        put_name(b, &self.version);
        put_u32s(b, [self.publishers, self.subscribers, self.observers, self.topics, self.buffers]);
        put_u64s(b, [self.ring_bytes, self.max_ring_bytes]);
        put_u64s(b, [self.received_bytes, self.delivered_bytes, self.dropped_bytes]);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            uptime_ms: r.u64()?,
            version: get_name(r)?,
            publishers: r.u32()?,
            subscribers: r.u32()?,
            observers: r.u32()?,
            topics: r.u32()?,
            buffers: r.u32()?,
            ring_bytes: r.u64()?,
            max_ring_bytes: r.u64()?,
            received_bytes: r.u64()?,
            delivered_bytes: r.u64()?,
            dropped_bytes: r.u64()?,
        })
    }
}

impl Row for TopicStats {
    fn put(&self, b: &mut Vec<u8>) {
        put_name(b, self.topic.as_str());
        put_u32s(b, [self.publishers, self.ended, self.subscribers, self.absent, self.spare_ways]);
        put_u64s(b, [self.ring_bytes, self.head_bytes, self.received_bytes]);
        put_u64s(b, [self.delivered_bytes, self.dropped_bytes, self.max_lag_bytes]);
        put_bits(b, [self.boundary.is_some(), self.slowest.is_some(), self.holds.is_some()]);
        self.boundary.iter().for_each(|boundary| put_u64s(b, [*boundary]));
        self.slowest.iter().for_each(|slowest| slowest.put(b));
        self.holds.iter().for_each(|holds| b.push(*holds as u8));
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut topic = Self::new(get_name(r)?.parse::<TopicName>()?);
        topic.publishers = r.u32()?;
        topic.ended = r.u32()?;
        topic.subscribers = r.u32()?;
        topic.absent = r.u32()?;
        topic.spare_ways = r.u32()?;
        topic.ring_bytes = r.u64()?;
        topic.head_bytes = r.u64()?;
        topic.received_bytes = r.u64()?;
        topic.delivered_bytes = r.u64()?;
        topic.dropped_bytes = r.u64()?;
        topic.max_lag_bytes = r.u64()?;
        let [boundary, slowest, holds] = get_bits(r)?;
        topic.boundary = optional(boundary, || Ok(r.u64()?))?;
        topic.slowest = optional(slowest, || Slowest::get(r))?;
        topic.holds = optional(holds, || Holds::get(r))?;
        Ok(topic)
    }
}

impl Row for Slowest {
    fn put(&self, b: &mut Vec<u8>) {
        put_name(b, &self.name);
        b.push(self.policy as u8);
        put_bits(b, [self.absent, self.holds]);
        put_u64s(b, [self.idle_ms, self.ring_bytes]);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (name, policy) = (get_name(r)?, get_policy(r)?);
        let [absent, holds] = get_bits(r)?;
        Ok(Self { name, policy, absent, holds, idle_ms: r.u64()?, ring_bytes: r.u64()? })
    }
}

impl Row for SubscriptionStats {
    fn put(&self, b: &mut Vec<u8>) {
        put_u64s(b, [self.conn]);
        put_u32s(b, [self.wire]);
        [&self.client, &self.address, &self.name].into_iter().for_each(|text| put_name(b, text));
        b.push(self.policy as u8);
        put_bits(b, [self.absent, self.holds.is_some()]);
        put_u64s(b, [self.start, self.sent, self.landed, self.consumed]);
        self.holds.iter().for_each(|holds| put_u64s(b, [*holds]));
        put_u64s(b, [self.dropped_bytes, self.idle_ms, self.left_ms]);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (conn, wire) = (r.u64()?, r.u32()?);
        let (client, address, name) = (get_name(r)?, get_name(r)?, get_name(r)?);
        let policy = get_policy(r)?;
        let [absent, holds] = get_bits(r)?;
        Ok(Self {
            conn,
            wire,
            client,
            address,
            name,
            policy,
            absent,
            start: r.u64()?,
            sent: r.u64()?,
            landed: r.u64()?,
            consumed: r.u64()?,
            holds: optional(holds, || Ok(r.u64()?))?,
            dropped_bytes: r.u64()?,
            idle_ms: r.u64()?,
            left_ms: r.u64()?,
        })
    }
}

impl Row for Place {
    fn put(&self, b: &mut Vec<u8>) {
        put_u64s(b, [self.landed, self.conn]);
        put_u32s(b, [self.wire]);
        put_name(b, &self.name);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { landed: r.u64()?, conn: r.u64()?, wire: r.u32()?, name: get_name(r)? })
    }
}
