//! A topic as a whole, from its buffers and their subscriptions.

use std::time::Duration;

use rbmq_wire::{Slowest, TopicName, TopicStats};
use rocketbufs::{Bid, BufferInfo, Policy};

use super::control::Broker;

/// The cursor that is furthest behind so far.
struct Behind {
    lag: u64,
    /// It holds more than the history that is kept anyway.
    holds: bool,
    policy: Policy,
    idle: Duration,
    ring_bytes: u64,
    /// None: it is away, and its place is kept.
    conn: Option<u64>,
    /// The name of its place, if it has one.
    name: Vec<u8>,
}

impl Broker {
    /// A topic's line in a table, and how many things were looked at for it.
    pub(super) fn topic_stats(&self, topic: &TopicName, bids: &[Bid]) -> (TopicStats, usize) {
        let mut stats = TopicStats::new(topic.clone());
        let (mut behind, mut looks) = (None, bids.len());
        for bid in bids {
            let Some(info) = self.out.buffer_info(*bid) else { continue };
            match info.ended {
                true => stats.ended += 1,
                // A merged buffer is one of many publishers.
                false => stats.publishers += self.merges.active(*bid).map_or(1, |n| n as u32),
            }
            stats.ring_bytes = stats.ring_bytes.saturating_add(info.capacity_bytes);
            stats.boundary = (bids.len() == 1).then_some(info.boundary);
            stats.head_bytes = stats.head_bytes.wrapping_add(info.head);
            stats.received_bytes = stats.received_bytes.wrapping_add(info.traffic.received_bytes);
            stats.delivered_bytes = stats.delivered_bytes.wrapping_add(info.traffic.delivered_bytes);
            stats.dropped_bytes = stats.dropped_bytes.wrapping_add(info.traffic.dropped_bytes);
            let of = self.topics.get(*bid).and_then(|buffer| Some((buffer.epoch?, buffer.session)));
            let spare = of.map_or(0, |(epoch, from)| self.chain.spare_ways(epoch, *bid, from));
            stats.spare_ways = stats.spare_ways.saturating_add(spare as u32);
            stats.holds = stats.holds.or_else(|| self.what_holds(*bid, &info));
            looks += self.look_at_cursors(*bid, &info, &mut stats, &mut behind);
        }
        stats.max_lag_bytes = behind.as_ref().map_or(0, |behind: &Behind| behind.lag);
        stats.slowest = behind.map(|behind| self.slowest(behind));
        (stats, looks)
    }

    /// Counts a buffer's subscriptions and remembers the one that is furthest behind.
    fn look_at_cursors(
        &self,
        bid: Bid,
        info: &BufferInfo,
        stats: &mut TopicStats,
        behind: &mut Option<Behind>,
    ) -> usize {
        let history = info.head.saturating_sub(info.retain_bytes);
        let ring_bytes = info.capacity_bytes;
        let lag = |landed: u64| info.head.saturating_sub(landed);
        let (present, kept) = (self.out.subscribers(bid), self.out.durable_cursors(bid));
        let looks = present.len() + kept.len();
        stats.subscribers = stats.subscribers.saturating_add(present.len() as u32);
        stats.absent = stats.absent.saturating_add(kept.len() as u32);
        let present = present.into_iter().map(|sub| Behind {
            lag: lag(sub.landed),
            holds: sub.holds.is_some_and(|at| at < history),
            policy: sub.policy,
            idle: sub.idle,
            ring_bytes,
            conn: Some(sub.conn),
            name: sub.name,
        });
        let kept = kept.into_iter().map(|place| Behind {
            lag: lag(place.landed),
            holds: place.holds.is_some_and(|at| at < history),
            policy: place.policy,
            idle: Duration::ZERO,
            ring_bytes,
            conn: None,
            name: place.name,
        });
        // How far they really are is seen by the next look.
        self.out.ask_subscribers(bid);
        let furthest = present.chain(kept).filter(|one| one.lag > 0).max_by_key(|one| one.lag);
        if let Some(furthest) = furthest
            && behind.as_ref().is_none_or(|behind| furthest.lag > behind.lag)
        {
            *behind = Some(furthest);
        }
        looks
    }

    fn slowest(&self, behind: Behind) -> Slowest {
        let watcher = behind.conn.and_then(|conn| self.watchers.get(&conn));
        let name = match watcher {
            Some(watcher) if !watcher.name.is_empty() => watcher.name.clone(),
            Some(watcher) if behind.name.is_empty() => watcher.conn.peer_addr(),
            _ => String::from_utf8_lossy(&behind.name).into_owned(),
        };
        Slowest {
            name,
            policy: behind.policy,
            absent: behind.conn.is_none(),
            holds: behind.holds,
            idle_ms: u64::try_from(behind.idle.as_millis()).unwrap_or(u64::MAX),
            ring_bytes: behind.ring_bytes,
        }
    }
}
