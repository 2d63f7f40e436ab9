//! What the broker counts for whoever watches it: who came, who was refused and why, and what went through topics that
//! no longer have the buffers that it went through.
//!
//! ```text
//!   a topic's bytes = the traffic of its buffers + what is remembered of those that were removed
//!   of the first so many topics (http.max_topic_series): by name; all others: one sum
//! ```
//!
//! A topic gets its account when it is first looked at, so a broker that nobody watches has none. Who has a name of its
//! own keeps it until the topic is gone: sums must never fall.

use std::collections::HashMap;

use rbmq_wire::{RefuseCode, TopicName};
use rocketbufs::{Bid, Policy, Traffic};
use rocketnet::LogLimiter;

use super::topics::Topics;

/// Why somebody was refused, or disconnected for what it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It does not speak this protocol.
    Hello,
    /// The broker is about to end.
    Draining,
    /// `broker.max_publishers`.
    Publishers,
    /// `broker.max_observers`.
    Observers,
    /// `broker.max_topics_per_subscriber`.
    TopicsOfSubscriber,
    /// `broker.max_patterns_per_subscriber`.
    PatternsOfSubscriber,
    /// A buffer was refused.
    Buffer(RefuseCode),
    /// It broke the protocol, or sent faster than it may.
    Expelled,
}

impl Refusal {
    /// All of them with their names in the metrics, in the order of [`Counts::refusals`].
    pub(crate) const ALL: [(Self, &'static str); 12] = [
        (Self::Hello, "hello"),
        (Self::Draining, "draining"),
        (Self::Publishers, "max_publishers"),
        (Self::Observers, "max_observers"),
        (Self::TopicsOfSubscriber, "max_topics_per_subscriber"),
        (Self::PatternsOfSubscriber, "max_patterns_per_subscriber"),
        (Self::Buffer(RefuseCode::Invalid), "buffer_invalid"),
        (Self::Buffer(RefuseCode::Limit), "buffer_limit"),
        (Self::Buffer(RefuseCode::Size), "buffer_size"),
        (Self::Buffer(RefuseCode::BidInUse), "buffer_id_in_use"),
        (Self::Buffer(RefuseCode::Internal), "buffer_internal"),
        (Self::Expelled, "protocol"),
    ];
}

/// The policies that are counted, in the order of [`Counts`]. All rings of a broker have flow control, without which alone
/// there could be a subscription of another.
pub(crate) const POLICIES: [Policy; 3] = [Policy::Block, Policy::Drop, Policy::Disconnect];

/// Sums since the broker's start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Publishers and subscribers that were taken.
    pub(crate) publishers: u64,
    pub(crate) subscribers: u64,
    pub(crate) refusals: [u64; Refusal::ALL.len()],
    /// Bytes that slow subscribers lost, by policy.
    pub(crate) lost_bytes: [u64; POLICIES.len()],
    /// Subscribers that were disconnected for being slow, by policy.
    pub(crate) too_slow: [u64; POLICIES.len()],
    /// Bytes that publishers' buffers lost before they came here.
    pub(crate) lost_by_publishers: u64,
}

/// A topic as its account has it.
#[derive(Debug)]
pub(crate) struct TopicAccount {
    pub(crate) name: String,
    /// Names this account: a topic that comes back has another one.
    pub(crate) number: u64,
    /// Whether it has time series of its own.
    pub(crate) own: bool,
    /// What went through buffers that are gone.
    pub(crate) past: Traffic,
    pub(crate) bids: Vec<Bid>,
}

/// Everything that the broker's thread knows and nobody else does.
#[derive(Debug)]
pub(crate) struct Census {
    pub(crate) topics: Vec<TopicAccount>,
    /// What went through topics that are gone and had no name of their own.
    pub(crate) others_past: Traffic,
    pub(crate) counts: Counts,
    pub(crate) publishers: usize,
    pub(crate) publishers_away: usize,
    pub(crate) subscribers: usize,
    pub(crate) limits: [(&'static str, u64); 2],
}

#[derive(Debug, Default)]
struct Account {
    number: u64,
    own: bool,
    past: Traffic,
}

/// The broker's books.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) counts: Counts,
    accounts: HashMap<TopicName, Account>,
    own: usize,
    opened: u64,
    others_past: Traffic,
    /// Lets a line through about publishers that keep no place for this broker.
    pub(super) placeless: LogLimiter,
}

impl Ledger {
    pub(super) fn refused(&mut self, why: Refusal) {
        let at = Refusal::ALL.iter().position(|(known, _)| *known == why);
        if let Some(count) = at.and_then(|at| self.counts.refusals.get_mut(at)) {
            *count += 1;
        }
    }

    pub(super) fn lost(&mut self, policy: Policy, bytes: u64) {
        if let Some(at) = POLICIES.iter().position(|p| *p == policy) {
            self.counts.lost_bytes[at] = self.counts.lost_bytes[at].saturating_add(bytes);
        }
    }

    /// A publisher may say that it lost anything: the sum stays where it can rise no more.
    pub(super) fn lost_by_publisher(&mut self, bytes: u64) {
        self.counts.lost_by_publishers = self.counts.lost_by_publishers.saturating_add(bytes);
    }

    pub(super) fn too_slow(&mut self, policy: Policy) {
        if let Some(at) = POLICIES.iter().position(|p| *p == policy) {
            self.counts.too_slow[at] += 1;
        }
    }

    /// A buffer of a topic is gone; `last`: so is the topic.
    pub(super) fn closed(&mut self, topic: &TopicName, traffic: Traffic, last: bool) {
        if !last {
            return add(&mut self.account(topic, 0).past, traffic);
        }
        match self.accounts.remove(topic) {
            Some(account) if account.own => self.own -= 1,
            account => {
                add(&mut self.others_past, account.unwrap_or_default().past);
                add(&mut self.others_past, traffic);
            }
        }
    }

    fn account(&mut self, topic: &TopicName, max_own: usize) -> &mut Account {
        let (own, opened) = (&mut self.own, &mut self.opened);
        self.accounts.entry(topic.clone()).or_insert_with(|| {
            *opened += 1;
            let named = *own < max_own;
            *own += usize::from(named);
            Account { number: *opened, own: named, past: Traffic::default() }
        })
    }

    /// The accounts of all topics; at most `max_own` have a name of their own.
    pub(super) fn topics(&mut self, topics: &Topics, max_own: usize) -> (Vec<TopicAccount>, Traffic) {
        let accounts = topics.after(None).map(|(name, bids)| {
            let Account { number, own, past } = *self.account(name, max_own);
            TopicAccount { name: name.to_string(), number, own, past, bids: bids.to_vec() }
        });
        let accounts = accounts.collect();
        (accounts, self.others_past)
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
    fn names_are_kept_until_their_topic_is_gone() {
        let (mut ledger, mut topics) = (Ledger::default(), Topics::default());
        let bids = ["a", "b", "c"].map(|name| topics.add(buffer(name, 1), 9).unwrap());
        let own = |ledger: &mut Ledger, topics: &Topics| {
            let (accounts, past) = ledger.topics(topics, 2);
            let own: Vec<String> = accounts.iter().filter(|a| a.own).map(|a| a.name.clone()).collect();
            (own.join(" "), past.received_bytes)
        };
        assert_eq!(own(&mut ledger, &topics), ("a b".into(), 0));
        // Of a topic that others are the sum of, the bytes stay in that sum.
        topics.remove(bids[2]);
        ledger.closed(&"c".parse().unwrap(), traffic(7), true);
        assert_eq!(own(&mut ledger, &topics), ("a b".into(), 7));
        // One that had a name takes its bytes along, and leaves the name to the next that comes.
        topics.remove(bids[0]);
        ledger.closed(&"a".parse().unwrap(), traffic(100), true);
        topics.add(buffer("d", 1), 9).unwrap();
        assert_eq!(own(&mut ledger, &topics), ("b d".into(), 7));
    }

    #[test]
    fn a_topic_remembers_the_buffers_that_it_had() {
        let (mut ledger, mut topics) = (Ledger::default(), Topics::default());
        let first = topics.add(buffer("a", 1), 9).unwrap();
        topics.add(buffer("a", 2), 9).unwrap();
        let number = ledger.topics(&topics, 5).0[0].number;
        topics.remove(first);
        ledger.closed(&"a".parse().unwrap(), traffic(40), false);
        let account = &ledger.topics(&topics, 5).0[0];
        assert_eq!((account.number, account.past), (number, traffic(40)));
    }

    #[test]
    fn every_reason_is_counted_by_its_name() {
        let mut ledger = Ledger::default();
        for (at, (why, _)) in Refusal::ALL.into_iter().enumerate() {
            ledger.refused(why);
            assert_eq!(ledger.counts.refusals[at], 1);
        }
        ledger.lost(Policy::Drop, 5);
        ledger.too_slow(Policy::Disconnect);
        assert_eq!(ledger.counts.lost_bytes, [0, 5, 0]);
        assert_eq!(ledger.counts.too_slow, [0, 0, 1]);
    }

    #[test]
    fn whatever_publishers_say_no_counter_falls() {
        let mut ledger = Ledger::default();
        for _ in 0..3 {
            ledger.lost_by_publisher(u64::MAX - 1);
            ledger.lost(Policy::Drop, u64::MAX - 1);
        }
        assert_eq!(ledger.counts.lost_by_publishers, u64::MAX);
        assert!(ledger.counts.lost_bytes.contains(&u64::MAX));
    }
}
