//! A look at the buffers of an rOut: their subscribers, and which of them hold the writer.
//!
//! Looking costs the caller, and the workers nothing: they keep these positions anyway.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::api::out_buffer::OutBuffer;
pub use crate::api::rin::SubscriptionInfo;
use crate::api::rout::ROut;
use crate::ground::lock::lock;
use crate::ground::types::{Epoch, Nanos, Policy, Position, WireId};
pub use crate::state::Traffic;
use crate::state::{DurableCursor, SubscriptionStatus, held_at};

/// One subscription, as [`OutBuffer::subscribers`] shows it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SubscriberInfo {
    /// By which connection.
    pub conn: u64,
    /// Its number on that connection.
    pub wire: WireId,
    /// Its name, if it has one.
    pub name: Vec<u8>,
    /// The treatment of the subscription when it is slow.
    pub policy: Policy,
    /// Where it began.
    pub start: Position,
    /// Everything below was given to the transport.
    pub sent: Position,
    /// Everything below is in its memory.
    pub landed: Position,
    /// Everything below is in the memory of all receivers behind it.
    pub delivered: Position,
    /// Everything below was given back by its application.
    pub consumed: Position,
    /// Bytes of the log that it was not yet sent.
    pub lag_bytes: u64,
    /// Bytes that it lost by its policy.
    pub dropped_bytes: u64,
    /// The ring retains everything from this position on for it; none if the ring retains nothing for it.
    pub retains_from: Option<Position>,
    /// How long it has given nothing back. Says that it is slow only where it has not everything.
    pub idle: Duration,
}

/// A durable subscription whose connection is gone, as [`OutBuffer::durable_cursors`] shows it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DurableCursorInfo {
    /// The subscription's name.
    pub name: Vec<u8>,
    /// The treatment of the subscription when it was slow.
    pub policy: Policy,
    /// Everything below was in its memory.
    pub landed: Position,
    /// Everything below was in the memory of all receivers behind it.
    pub delivered: Position,
    /// Everything below was given back by its application.
    pub consumed: Position,
    /// The ring retains everything from this position on for it; none if the ring retains nothing for it.
    pub retains_from: Option<Position>,
    /// How long the position is still kept.
    pub expires_in: Duration,
}

/// A buffer, as [`OutBuffer::info`] shows it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BufferInfo {
    /// The log's name.
    pub epoch: Epoch,
    /// Where this ring's part of the log begins.
    pub start: Position,
    /// End of the written bytes.
    pub head: Position,
    /// End of the last complete delivery.
    pub boundary: Position,
    /// First position that is still there.
    pub tail: Position,
    /// How far the writer may write now.
    pub horizon: Position,
    /// Bytes of the ring.
    pub capacity_bytes: u64,
    /// Bytes of history that are kept although nobody holds them.
    pub retain_bytes: u64,
    /// Bytes of the largest delivery.
    pub max_delivery_bytes: u64,
    /// How many subscriptions there are.
    pub subscribers: usize,
    /// Whether the log has ended.
    pub ended: bool,
    /// The traffic of the buffer so far.
    pub traffic: Traffic,
}

fn load(value: &AtomicU64) -> u64 {
    value.load(Ordering::Acquire)
}

fn duration(nanos: Nanos) -> Duration {
    Duration::from_nanos(nanos)
}

/// A look at a buffer. Looking costs the caller, and the workers nothing.
impl OutBuffer {
    /// The number of subscriptions of the buffer.
    pub fn subscriber_count(&self) -> usize {
        self.buffer.sub_count()
    }

    /// The subscriptions of the buffer: which are slow, by how much.
    pub fn subscribers(&self) -> Vec<SubscriberInfo> {
        let buffer = &self.buffer;
        let head = buffer.log().map_or(0, |log| log.ring.head());
        let now = buffer.inner.now();
        let info = |sub: &std::sync::Arc<SubscriptionStatus>| SubscriberInfo {
            conn: sub.conn,
            wire: sub.wire,
            name: sub.name.name.clone(),
            policy: sub.policy,
            start: sub.start,
            sent: load(&sub.sent),
            landed: load(&sub.landed),
            delivered: load(&sub.delivered),
            consumed: load(&sub.consumed),
            lag_bytes: head.saturating_sub(load(&sub.sent)),
            dropped_bytes: load(&sub.dropped),
            retains_from: held_at(lock(&sub.hold).as_ref()),
            idle: duration(now.saturating_sub(load(&sub.progress))),
        };
        buffer.subs().iter().map(info).collect()
    }

    /// The durable subscriptions of the buffer whose connections are gone.
    pub fn durable_cursors(&self) -> Vec<DurableCursorInfo> {
        let now = self.buffer.inner.now();
        self.buffer.each_held(|name, held: &DurableCursor| DurableCursorInfo {
            name: name.to_vec(),
            policy: held.policy,
            landed: held.levels[0],
            delivered: held.levels[1],
            consumed: held.levels[2],
            retains_from: held_at(held.hold.as_ref()),
            expires_in: duration(held.until.saturating_sub(now)),
        })
    }

    /// Asks the subscribers of the buffer how far they are; a later look shows their answers. Without it a slow trickle of data
    /// is reported only every quarter of a window. Costs a message to and from each subscriber that has not reported yet.
    pub fn refresh_subscribers(&self) {
        let Some(log) = self.buffer.log() else { return };
        self.buffer.progress_read.fetch_max(log.ring.head(), Ordering::Relaxed);
        self.buffer.notify();
    }

    /// The state of the buffer; none if it is spliced and its upstream subscription was not answered yet.
    pub fn info(&self) -> Option<BufferInfo> {
        let buffer = &self.buffer;
        let log = buffer.log()?;
        let ring = &log.ring;
        Some(BufferInfo {
            epoch: log.epoch,
            start: ring.start(),
            head: ring.head(),
            boundary: ring.boundary(),
            tail: ring.tail(),
            horizon: ring.horizon(),
            capacity_bytes: ring.capacity(),
            retain_bytes: ring.retain(),
            max_delivery_bytes: ring.max_delivery(),
            subscribers: buffer.sub_count(),
            ended: buffer.ended(),
            traffic: buffer.traffic(),
        })
    }
}

impl ROut {
    /// The traffic of all buffers there ever were. Costs a look at each that exists.
    pub fn traffic(&self) -> Traffic {
        let mut all = *lock(&self.shared.past);
        self.shared.all_buffers().iter().for_each(|buffer| all.add(buffer.traffic()));
        all
    }
}
