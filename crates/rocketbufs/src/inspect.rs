//! What can be seen of an rOut: its buffers, who subscribes to them, who holds whom; and of an rIn what it cost to receive.
//!
//! Reading costs those who read, and the workers nothing: they keep these positions for themselves anyway.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::lock::lock;
use crate::rin::RIn;
use crate::rout::ROut;
use crate::state::{Held, SubShared, Traffic, held_at};
use crate::types::{Bid, Epoch, Nanos, Policy, Position, WireId};

/// One subscription, as [`ROut::subscribers`] shows it.
#[derive(Debug, Clone)]
pub struct SubscriberInfo {
    /// By which connection.
    pub conn: u64,
    /// Its number on that connection.
    pub wire: WireId,
    /// Its name, if it has one.
    pub name: Vec<u8>,
    /// What happens when it is slow.
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
    /// Whether it holds the writer, and where.
    pub holds: Option<Position>,
    /// How long it has given nothing back. Says that it is slow only where it has not everything.
    pub idle: Duration,
}

/// A place that is kept for a named subscription whose connection is gone, as [`ROut::durable_cursors`] shows it.
#[derive(Debug, Clone)]
pub struct DurableCursorInfo {
    /// The subscription's name.
    pub name: Vec<u8>,
    /// What happened when it was slow.
    pub policy: Policy,
    /// Everything below was in its memory.
    pub landed: Position,
    /// Everything below was in the memory of all receivers behind it.
    pub delivered: Position,
    /// Everything below was given back by its application.
    pub consumed: Position,
    /// Whether it holds the writer, and where.
    pub holds: Option<Position>,
    /// How long the place is still kept.
    pub left: Duration,
}

/// A buffer, as [`ROut::buffer_info`] shows it.
#[derive(Debug, Clone)]
pub struct BufferInfo {
    /// The log's name.
    pub epoch: Epoch,
    /// Where this ring's part of the log begins.
    pub start: Position,
    /// End of what was written.
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
    /// For how many receivers at least it is confirmed ([`SubscribeOptions::min_receivers`](crate::SubscribeOptions)); 0:
    /// there is no least, or it is not spliced.
    pub min_receivers: u32,
    /// Where that begins which so many receivers do not have yet, and which is kept for them. None without a least.
    pub kept_for_least: Option<Position>,
    /// Whether the log has ended.
    pub ended: bool,
    /// What went through it so far.
    pub traffic: Traffic,
}

fn load(value: &AtomicU64) -> u64 {
    value.load(Ordering::Acquire)
}

fn duration(nanos: Nanos) -> Duration {
    Duration::from_nanos(nanos)
}

impl ROut {
    /// How many subscriptions a buffer has.
    pub fn subscriber_count(&self, bid: Bid) -> usize {
        self.shared.buffer(bid).map_or(0, |buffer| buffer.sub_count())
    }

    /// The subscriptions of a buffer: who is slow, by how much.
    pub fn subscribers(&self, bid: Bid) -> Vec<SubscriberInfo> {
        let Some(buffer) = self.shared.buffer(bid) else { return Vec::new() };
        let head = buffer.log().map_or(0, |log| log.ring.head());
        let now = self.shared.inner.now();
        let info = |sub: &std::sync::Arc<SubShared>| SubscriberInfo {
            conn: sub.conn,
            wire: sub.wire,
            name: sub.name.clone(),
            policy: sub.policy,
            start: sub.start,
            sent: load(&sub.sent),
            landed: load(&sub.landed),
            delivered: load(&sub.delivered),
            consumed: load(&sub.consumed),
            lag_bytes: head.saturating_sub(load(&sub.sent)),
            dropped_bytes: load(&sub.dropped),
            holds: held_at(lock(&sub.hold).as_ref()),
            idle: duration(now.saturating_sub(load(&sub.progress))),
        };
        buffer.subs().iter().map(info).collect()
    }

    /// The places that are kept for named subscriptions of a buffer whose connections are gone.
    pub fn durable_cursors(&self, bid: Bid) -> Vec<DurableCursorInfo> {
        let Some(buffer) = self.shared.buffer(bid) else { return Vec::new() };
        let now = self.shared.inner.now();
        buffer.each_held(|name, held: &Held| DurableCursorInfo {
            name: name.to_vec(),
            policy: held.policy,
            landed: held.levels[0],
            delivered: held.levels[1],
            consumed: held.levels[2],
            holds: held_at(held.hold.as_ref()),
            left: duration(held.until.saturating_sub(now)),
        })
    }

    /// Asks the subscribers of a buffer how far they are: what they say is seen by looking again. Without it a slow
    /// trickle of data is told only every quarter of a window. Costs a message to and from each that has not told yet.
    pub fn ask_subscribers(&self, bid: Bid) {
        let Some(buffer) = self.shared.buffer(bid) else { return };
        let Some(log) = buffer.log() else { return };
        buffer.looked_at.fetch_max(log.ring.head(), Ordering::Relaxed);
        buffer.notify();
    }

    /// A buffer's state; none if there is no such buffer, or its upstream subscription was not answered yet.
    pub fn buffer_info(&self, bid: Bid) -> Option<BufferInfo> {
        let buffer = self.shared.buffer(bid)?;
        let log = buffer.log()?;
        let ring = &log.ring;
        let (min_receivers, kept_for_least) = buffer.least();
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
            min_receivers,
            kept_for_least,
            ended: buffer.ended(),
            traffic: buffer.traffic(),
        })
    }

    /// What went through all buffers there ever were. Costs a look at each that exists.
    pub fn traffic(&self) -> Traffic {
        let mut all = *lock(&self.shared.past);
        self.shared.all_buffers().iter().for_each(|buffer| all.add(buffer.traffic()));
        all
    }
}

impl RIn {
    /// How many bytes of a buffer were copied to where they are received: none where that is the sender's memory (transport
    /// `shm`) or an adapter writes there (`rdma`), else all since its log began here, holes counted with them. None if there
    /// is no such subscription, or it was not answered yet.
    ///
    /// What an application copies out of a view is its own affair.
    pub fn copied_bytes(&self, bid: Bid) -> Option<u64> {
        let inbound = self.shared.inbound(bid)?;
        let state = lock(&inbound.state);
        let ring = state.log.as_ref()?.ring();
        let copies = !ring.is_peer_written() && !ring.is_exposed();
        Some(if copies { ring.head().saturating_sub(ring.start()) } else { 0 })
    }
}
