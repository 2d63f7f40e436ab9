//! The counters of the broker: connections, refusals by reason, and the traffic of buffers that were removed.
//!
//! ```text
//!   bytes of a topic = traffic of its buffers + removed traffic of its removed buffers
//!   the first topics, up to http.max_topic_series, are listed by name; all others have one sum
//! ```
//!
//! The first scrape that finds a topic begins to count for it. A topic that is listed by name stays so until it is removed, because
//! counters must never decrease.

use std::collections::HashMap;

use access::NearLimit;
use peers::LogLimiter;
use rbmq_wire::{RefuseCode, TopicName};
use rocketbufs::inspect::Traffic;
use rocketbufs::{Bid, Policy};

use super::rates::RateUse;
use super::topics::Topics;

/// Why a client or a request was refused, or a client disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The hello is invalid.
    Hello,
    /// The client did not log in as a user of the broker.
    Login,
    /// The broker is about to stop.
    Draining,
    /// `broker.max_publishers`.
    Publishers,
    /// `broker.max_observers`.
    Observers,
    /// `broker.max_topics_per_subscriber`.
    TopicsOfSubscriber,
    /// `broker.max_patterns_per_subscriber`.
    PatternsOfSubscriber,
    /// The user may not do this (`access.rules`); without buffers of publishers.
    Rights,
    /// A user or an address has used up a quota (`quotas`); without buffers of publishers.
    Quota,
    /// A buffer was refused.
    Buffer(RefuseCode),
    /// The client violated the protocol or exceeded a limit on messages.
    Expelled,
}

impl Refusal {
    /// All reasons with their names in the metrics, in the order of [`Totals::refusals`].
    pub(crate) const ALL: [(Self, &'static str); 17] = [
        (Self::Hello, "hello"),
        (Self::Login, "login"),
        (Self::Draining, "draining"),
        (Self::Publishers, "max_publishers"),
        (Self::Observers, "max_observers"),
        (Self::TopicsOfSubscriber, "max_topics_per_subscriber"),
        (Self::PatternsOfSubscriber, "max_patterns_per_subscriber"),
        (Self::Rights, "not_allowed"),
        (Self::Quota, "quota"),
        (Self::Buffer(RefuseCode::NotAllowed), "buffer_not_allowed"),
        (Self::Buffer(RefuseCode::Invalid), "buffer_invalid"),
        (Self::Buffer(RefuseCode::Limit), "buffer_limit"),
        (Self::Buffer(RefuseCode::Size), "buffer_size"),
        (Self::Buffer(RefuseCode::BidInUse), "buffer_id_in_use"),
        (Self::Buffer(RefuseCode::Internal), "buffer_internal"),
        (Self::Buffer(RefuseCode::Elsewhere), "buffer_elsewhere"),
        (Self::Expelled, "protocol"),
    ];
}

/// The policies, in the order of [`Totals`]. All rings of a broker have flow control, and other policies exist only without.
pub(crate) const POLICIES: [Policy; 3] = [Policy::Block, Policy::Drop, Policy::Disconnect];

/// Sums since the broker's start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Accepted publishers and subscribers.
    pub(crate) publishers: u64,
    pub(crate) subscribers: u64,
    pub(crate) refusals: [u64; Refusal::ALL.len()],
    /// Bytes that slow subscribers lost, by policy.
    pub(crate) lost_bytes: [u64; POLICIES.len()],
    /// Subscribers that were disconnected because they were slow, by policy.
    pub(crate) too_slow: [u64; POLICIES.len()],
    /// Bytes that publishers lost before they arrived at the broker.
    pub(crate) lost_by_publishers: u64,
}

/// A copy of a topic's counters.
#[derive(Debug)]
pub(crate) struct TopicCounters {
    pub(crate) name: String,
    /// Identifies the counters. A topic that is removed and created again has others.
    pub(crate) number: u64,
    /// Whether the topic is listed by name.
    pub(crate) own: bool,
    /// The traffic of removed buffers.
    pub(crate) removed: Traffic,
    pub(crate) bids: Vec<Bid>,
}

/// The counters and tables of the broker's thread, copied for the metrics.
#[derive(Debug)]
pub(crate) struct Census {
    pub(crate) topics: Vec<TopicCounters>,
    /// The traffic of removed topics that were not listed by name.
    pub(crate) others_removed: Traffic,
    pub(crate) totals: Totals,
    pub(crate) publishers: usize,
    pub(crate) publishers_offline: usize,
    pub(crate) subscribers: usize,
    pub(crate) limits: [(&'static str, u64); 2],
    /// The users and addresses that have used up a quota or nearly so, the first of them.
    pub(crate) near_limit: Vec<NearLimit>,
    /// The use of the limits on bytes per second, the first of them.
    pub(crate) rates: Vec<RateUse>,
    /// Events that the audit log could not take.
    pub(crate) audit_dropped: u64,
}

#[derive(Debug, Default)]
struct Counted {
    number: u64,
    own: bool,
    removed: Traffic,
}

/// The counters of the broker and of its topics.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) totals: Totals,
    by_topic: HashMap<TopicName, Counted>,
    own: usize,
    opened: u64,
    others_removed: Traffic,
    /// Limits the lines of the log about publishers that keep no position for this broker.
    pub(super) no_slot_log: LogLimiter,
}

impl Counters {
    pub(super) fn refused(&mut self, why: Refusal) {
        let at = Refusal::ALL.iter().position(|(known, _)| *known == why);
        if let Some(count) = at.and_then(|at| self.totals.refusals.get_mut(at)) {
            *count += 1;
        }
    }

    pub(super) fn lost(&mut self, policy: Policy, bytes: u64) {
        if let Some(at) = POLICIES.iter().position(|p| *p == policy) {
            self.totals.lost_bytes[at] = self.totals.lost_bytes[at].saturating_add(bytes);
        }
    }

    /// Counts bytes that a publisher reports as lost. The number comes from a peer, so the sum saturates.
    pub(super) fn lost_by_publisher(&mut self, bytes: u64) {
        self.totals.lost_by_publishers = self.totals.lost_by_publishers.saturating_add(bytes);
    }

    pub(super) fn too_slow(&mut self, policy: Policy) {
        if let Some(at) = POLICIES.iter().position(|p| *p == policy) {
            self.totals.too_slow[at] += 1;
        }
    }

    /// Adds up the counters of a buffer that was removed. `last`: the topic has no other buffer.
    pub(super) fn closed(&mut self, topic: &TopicName, traffic: Traffic, last: bool) {
        if !last {
            return add(&mut self.counted(topic, 0).removed, traffic);
        }
        match self.by_topic.remove(topic) {
            Some(counters) if counters.own => self.own -= 1,
            counters => {
                add(&mut self.others_removed, counters.unwrap_or_default().removed);
                add(&mut self.others_removed, traffic);
            }
        }
    }

    fn counted(&mut self, topic: &TopicName, max_own: usize) -> &mut Counted {
        let (own, opened) = (&mut self.own, &mut self.opened);
        self.by_topic.entry(topic.clone()).or_insert_with(|| {
            *opened += 1;
            let named = *own < max_own;
            *own += usize::from(named);
            Counted { number: *opened, own: named, removed: Traffic::default() }
        })
    }

    /// The counters of all topics, at most `max_own` of them listed by name.
    pub(super) fn topics(&mut self, topics: &Topics, max_own: usize) -> (Vec<TopicCounters>, Traffic) {
        let counters = topics.after(None).map(|(name, bids)| {
            let Counted { number, own, removed } = *self.counted(name, max_own);
            TopicCounters { name: name.to_string(), number, own, removed, bids: bids.to_vec() }
        });
        let counters = counters.collect();
        (counters, self.others_removed)
    }
}

pub(crate) fn add(sum: &mut Traffic, more: Traffic) {
    sum.received_bytes = sum.received_bytes.wrapping_add(more.received_bytes);
    sum.delivered_bytes = sum.delivered_bytes.wrapping_add(more.delivered_bytes);
    sum.dropped_bytes = sum.dropped_bytes.wrapping_add(more.dropped_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::tests::buffer;

    fn traffic(received_bytes: u64) -> Traffic {
        Traffic { received_bytes, ..Traffic::default() }
    }

    #[test]
    fn a_topic_is_listed_by_name_until_it_is_removed() {
        let (mut counters, mut topics) = (Counters::default(), Topics::default());
        let bids = ["a", "b", "c"].map(|name| topics.add(buffer(name, 1), 9).unwrap());
        let own = |counters: &mut Counters, topics: &Topics| {
            let (list, removed) = counters.topics(topics, 2);
            let own: Vec<String> = list.iter().filter(|a| a.own).map(|a| a.name.clone()).collect();
            (own.join(" "), removed.received_bytes)
        };
        assert_eq!(own(&mut counters, &topics), ("a b".into(), 0));
        // The bytes of a topic that is not listed by name stay in the sum.
        topics.remove(bids[2]);
        counters.closed(&"c".parse().unwrap(), traffic(7), true);
        assert_eq!(own(&mut counters, &topics), ("a b".into(), 7));
        // A listed topic takes its bytes with it. The next new topic is listed instead.
        topics.remove(bids[0]);
        counters.closed(&"a".parse().unwrap(), traffic(100), true);
        topics.add(buffer("d", 1), 9).unwrap();
        assert_eq!(own(&mut counters, &topics), ("b d".into(), 7));
    }

    #[test]
    fn the_traffic_of_removed_buffers_stays_with_the_topic() {
        let (mut counters, mut topics) = (Counters::default(), Topics::default());
        let first = topics.add(buffer("a", 1), 9).unwrap();
        topics.add(buffer("a", 2), 9).unwrap();
        let number = counters.topics(&topics, 5).0[0].number;
        topics.remove(first);
        counters.closed(&"a".parse().unwrap(), traffic(40), false);
        let counters = &counters.topics(&topics, 5).0[0];
        assert_eq!((counters.number, counters.removed), (number, traffic(40)));
    }

    #[test]
    fn every_reason_is_counted_by_its_name() {
        let mut counters = Counters::default();
        for (at, (why, _)) in Refusal::ALL.into_iter().enumerate() {
            counters.refused(why);
            assert_eq!(counters.totals.refusals[at], 1);
        }
        counters.lost(Policy::Drop, 5);
        counters.too_slow(Policy::Disconnect);
        assert_eq!(counters.totals.lost_bytes, [0, 5, 0]);
        assert_eq!(counters.totals.too_slow, [0, 0, 1]);
    }

    #[test]
    fn no_counter_decreases_whatever_publishers_report() {
        let mut counters = Counters::default();
        for _ in 0..3 {
            counters.lost_by_publisher(u64::MAX - 1);
            counters.lost(Policy::Drop, u64::MAX - 1);
        }
        assert_eq!(counters.totals.lost_by_publishers, u64::MAX);
        assert!(counters.totals.lost_bytes.contains(&u64::MAX));
    }
}
