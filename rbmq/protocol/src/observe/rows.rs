//! Rows for observers: the broker, topics and subscriptions.

use rocketbufs::Policy;
use rocketbufs::fields::Reader;
use serde::Serialize;

use super::buffers::BlockReason;
use super::fields::{Row, get_bits, get_name, get_policy, optional, put_bits, put_name, put_u32s, put_u64s};
use crate::{DecodeError, TopicName};

/// The state of a broker as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct BrokerSummary {
    /// The uptime in milliseconds.
    pub uptime_ms: u64,
    /// The version of the broker.
    pub version: String,
    /// Publishers that are connected, or offline for less than the linger time.
    pub publishers: u32,
    /// Subscribers that are connected.
    pub subscribers: u32,
    /// Connected observers, including the one that sent the request.
    pub observers: u32,
    /// Topics that have a buffer.
    pub topics: u32,
    /// Buffers of all topics.
    pub buffers: u32,
    /// The size of all rings in bytes (memory is allocated on first use).
    pub ring_bytes: u64,
    /// The limit for the size of all rings (`buffers.max_ring_bytes`).
    pub max_ring_bytes: u64,
    /// Bytes that publishers sent since the start.
    pub received_bytes: u64,
    /// Bytes that subscribers got since the start.
    pub delivered_bytes: u64,
    /// Bytes that slow subscribers lost since the start.
    pub dropped_bytes: u64,
}

/// The state of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicStats {
    /// Its name.
    pub topic: TopicName,
    /// Buffers that have not ended.
    pub publishers: u32,
    /// Buffers that have ended and are still readable.
    pub ended: u32,
    /// Subscriptions of all its buffers.
    pub subscribers: u32,
    /// Durable subscriptions that are offline.
    pub offline: u32,
    /// Alternate paths of its buffers, through other upstream brokers.
    pub alternate_paths: u32,
    /// Bytes of its rings.
    pub ring_bytes: u64,
    /// End of the last complete delivery, if the topic has exactly one buffer.
    pub boundary: Option<u64>,
    /// Sum of the positions of its buffers' heads.
    pub head_bytes: u64,
    /// Bytes that its buffers received: two samples give a rate.
    pub received_bytes: u64,
    /// Bytes that all of its subscribers got, including former ones: two samples give a rate.
    pub delivered_bytes: u64,
    /// Bytes that its subscribers lost by their policies.
    pub dropped_bytes: u64,
    /// The lag of its slowest subscriber in bytes.
    pub max_lag_bytes: u64,
    /// The subscriber with the largest lag, if any lags.
    pub slowest: Option<SlowestSubscriber>,
    /// The reason why its publishers wait, if it is not a slow subscriber.
    pub blocked_by: Option<BlockReason>,
}

impl TopicStats {
    /// A topic without buffers.
    pub fn new(topic: TopicName) -> Self {
        Self {
            topic,
            publishers: 0,
            ended: 0,
            subscribers: 0,
            offline: 0,
            alternate_paths: 0,
            ring_bytes: 0,
            boundary: None,
            head_bytes: 0,
            received_bytes: 0,
            delivered_bytes: 0,
            dropped_bytes: 0,
            max_lag_bytes: 0,
            slowest: None,
            blocked_by: None,
        }
    }
}

/// The subscriber of a topic with the largest lag.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SlowestSubscriber {
    /// Its name, or its address if it has no name.
    pub name: String,
    /// Its policy.
    pub policy: Policy,
    /// Whether it is offline. Its position is kept.
    pub offline: bool,
    /// Whether it blocks the publisher, now or soon.
    pub blocks_publisher: bool,
    /// How long it has consumed nothing.
    pub idle_ms: u64,
    /// The size of the ring in which it lags.
    pub ring_bytes: u64,
}

/// A subscription of a buffer, connected or offline.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SubscriptionStats {
    /// Its connection at the broker; 0 if it is offline.
    pub conn: u64,
    /// Its number on that connection.
    pub wire: u32,
    /// The client's name; may be empty.
    pub client: String,
    /// The client's address; empty if it is offline.
    pub address: String,
    /// The durable name; may be empty.
    pub name: String,
    /// Its policy.
    pub policy: Policy,
    /// Whether it is offline. Its position is kept for another `expires_in_ms`.
    pub offline: bool,
    /// Its first position.
    pub start: u64,
    /// Everything below was given to the transport.
    pub sent: u64,
    /// Everything below is in its memory.
    pub landed: u64,
    /// Its application has consumed everything below.
    pub consumed: u64,
    /// The ring retains everything from this position on for it; none if the ring retains nothing for it.
    pub retains_from: Option<u64>,
    /// Bytes that it lost by its policy.
    pub dropped_bytes: u64,
    /// How long it has consumed nothing.
    pub idle_ms: u64,
    /// How long the position of an offline subscription is still kept.
    pub expires_in_ms: u64,
}

impl SubscriptionStats {
    /// Its lag: the bytes that were written and are not in its memory.
    pub fn lag_bytes(&self, head: u64) -> u64 {
        head.saturating_sub(self.landed)
    }

    /// The name for people: the client's name, the durable name, or the address.
    pub fn title(&self) -> &str {
        [&self.client, &self.name, &self.address].into_iter().find(|text| !text.is_empty()).map_or("", |t| t)
    }

    /// Its key in a list, in which the slowest is first.
    pub fn sort_key(&self) -> SubscriptionSortKey {
        SubscriptionSortKey { landed: self.landed, conn: self.conn, wire: self.wire, name: self.name.clone() }
    }
}

/// The key by which a list of subscriptions is sorted, and which the request for the next page repeats. The slowest subscription
/// is first. A subscription that advances between two pages may be listed twice, and is never left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SubscriptionSortKey {
    /// The landed position.
    pub landed: u64,
    /// The connection.
    pub conn: u64,
    /// The number on the connection.
    pub wire: u32,
    /// The durable name of an offline subscription.
    pub name: String,
}

/// A limit of a user or an address of which at least four fifths are in use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct LimitStats {
    /// `user 'anna'` or `address 10.0.0.7`.
    pub who: String,
    /// The limited resource, as in the settings of `[quotas]`: `connections`, `topics`, `subscriptions`, `patterns`, `ring_bytes`,
    /// `in_bytes_per_s`, `out_bytes_per_s`.
    pub resource: String,
    /// How much of it is in use; of bytes per second, over the last second or more.
    pub used: u64,
    /// The limit.
    pub limit: u64,
    /// All of it is in use: more is refused, or delayed.
    pub at_limit: bool,
    /// Bytes per second: how long anything was delayed since the broker knows this user or address.
    pub delayed_ms: u64,
}

impl Row for LimitStats {
    fn put(&self, b: &mut Vec<u8>) {
        put_name(b, &self.who);
        put_name(b, &self.resource);
        put_u64s(b, [self.used, self.limit, self.delayed_ms]);
        put_bits(b, [self.at_limit]);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (who, resource) = (get_name(r)?, get_name(r)?);
        let (used, limit, delayed_ms) = (r.u64()?, r.u64()?, r.u64()?);
        let [at_limit] = get_bits(r)?;
        Ok(Self { who, resource, used, limit, at_limit, delayed_ms })
    }
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
        put_u32s(b, [self.publishers, self.ended, self.subscribers, self.offline, self.alternate_paths]);
        put_u64s(b, [self.ring_bytes, self.head_bytes, self.received_bytes]);
        put_u64s(b, [self.delivered_bytes, self.dropped_bytes, self.max_lag_bytes]);
        put_bits(b, [self.boundary.is_some(), self.slowest.is_some(), self.blocked_by.is_some()]);
        self.boundary.iter().for_each(|boundary| put_u64s(b, [*boundary]));
        self.slowest.iter().for_each(|slowest| slowest.put(b));
        self.blocked_by.iter().for_each(|reason| b.push(*reason as u8));
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut topic = Self::new(get_name(r)?.parse::<TopicName>()?);
        topic.publishers = r.u32()?;
        topic.ended = r.u32()?;
        topic.subscribers = r.u32()?;
        topic.offline = r.u32()?;
        topic.alternate_paths = r.u32()?;
        topic.ring_bytes = r.u64()?;
        topic.head_bytes = r.u64()?;
        topic.received_bytes = r.u64()?;
        topic.delivered_bytes = r.u64()?;
        topic.dropped_bytes = r.u64()?;
        topic.max_lag_bytes = r.u64()?;
        let [boundary, slowest, blocked_by] = get_bits(r)?;
        topic.boundary = optional(boundary, || Ok(r.u64()?))?;
        topic.slowest = optional(slowest, || SlowestSubscriber::get(r))?;
        topic.blocked_by = optional(blocked_by, || BlockReason::get(r))?;
        Ok(topic)
    }
}

impl Row for SlowestSubscriber {
    fn put(&self, b: &mut Vec<u8>) {
        put_name(b, &self.name);
        b.push(self.policy as u8);
        put_bits(b, [self.offline, self.blocks_publisher]);
        put_u64s(b, [self.idle_ms, self.ring_bytes]);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (name, policy) = (get_name(r)?, get_policy(r)?);
        let [offline, blocks_publisher] = get_bits(r)?;
        Ok(Self { name, policy, offline, blocks_publisher, idle_ms: r.u64()?, ring_bytes: r.u64()? })
    }
}

impl Row for SubscriptionStats {
    fn put(&self, b: &mut Vec<u8>) {
        put_u64s(b, [self.conn]);
        put_u32s(b, [self.wire]);
        [&self.client, &self.address, &self.name].into_iter().for_each(|text| put_name(b, text));
        b.push(self.policy as u8);
        put_bits(b, [self.offline, self.retains_from.is_some()]);
        put_u64s(b, [self.start, self.sent, self.landed, self.consumed]);
        self.retains_from.iter().for_each(|at| put_u64s(b, [*at]));
        put_u64s(b, [self.dropped_bytes, self.idle_ms, self.expires_in_ms]);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (conn, wire) = (r.u64()?, r.u32()?);
        let (client, address, name) = (get_name(r)?, get_name(r)?, get_name(r)?);
        let policy = get_policy(r)?;
        let [offline, retains_from] = get_bits(r)?;
        Ok(Self {
            conn,
            wire,
            client,
            address,
            name,
            policy,
            offline,
            start: r.u64()?,
            sent: r.u64()?,
            landed: r.u64()?,
            consumed: r.u64()?,
            retains_from: optional(retains_from, || Ok(r.u64()?))?,
            dropped_bytes: r.u64()?,
            idle_ms: r.u64()?,
            expires_in_ms: r.u64()?,
        })
    }
}

impl Row for SubscriptionSortKey {
    fn put(&self, b: &mut Vec<u8>) {
        put_u64s(b, [self.landed, self.conn]);
        put_u32s(b, [self.wire]);
        put_name(b, &self.name);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { landed: r.u64()?, conn: r.u64()?, wire: r.u32()?, name: get_name(r)? })
    }
}
