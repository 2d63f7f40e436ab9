//! The user: what the application sees of each log, and what it must see.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rocketbufs::{Epoch, Position};

use super::broker::Log;
use crate::ground::options::{SlowPolicy, StartFrom};
use crate::state::event::Notice;
use crate::wire::{Framing, Topic, TopicFilter, TopicName};

/// A log that the user has seen, or must see.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The next position. None: of the log nothing has come.
    pub(super) next: Option<Position>,
    /// The subscription began, and has not ended.
    pub(super) joined: bool,
    /// The last subscription ended since the log is complete.
    pub(super) closed: bool,
    /// The log is new since the broker had announced everything: nothing that the broker has may be skipped.
    new: bool,
}

#[derive(Default)]
pub(super) struct User {
    /// The filters, and whether the broker has answered them.
    pub(super) filters: BTreeMap<String, (TopicFilter, bool)>,
    pub(super) seen: BTreeMap<u128, Seen>,
    /// The ends of logs that the user left.
    pub(super) left: BTreeMap<u128, Position>,
    /// Refusals by topic, with the logs whose subscriptions they end, and whether they have to be told.
    pub(super) refusals: Vec<(TopicName, u128, bool)>,
    /// Requests that are refused.
    pub(super) rejected: u64,
    /// The merged logs of former broker processes: another log of such a topic replaces them.
    had_merged: BTreeMap<TopicName, BTreeSet<u128>>,
    announced_merged: BTreeMap<TopicName, BTreeSet<u128>>,
    /// What the broker allows less of, as it was told.
    clamped: BTreeSet<String>,
    must_be_clamped: BTreeSet<&'static str>,
    positions_used: bool,
    disconnected: bool,
    pub(super) trace: u64,
}

impl User {
    pub(super) fn wants(&self, topic: &TopicName) -> bool {
        self.filters.values().any(|(filter, _)| filter.matches(topic))
    }

    fn note(&mut self, what: u64, epoch: u128, at: Position) {
        let value = what ^ (epoch as u64).rotate_left(20) ^ at.rotate_left(40);
        self.trace = (self.trace ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
    }

    /// The user subscribes. `positions`: logs that begin there.
    pub(super) fn on_subscribe(
        &mut self,
        filter: &TopicFilter,
        start: &StartFrom,
        positions: &[(Epoch, Position)],
    ) {
        for (epoch, position) in positions {
            self.seen.entry(epoch.0).or_default().next = Some(*position);
        }
        self.positions_used |= matches!(start, StartFrom::Positions(_));
        self.filters.entry(filter.as_str().into()).or_insert((filter.clone(), false));
    }

    /// The user unsubscribes: it sees nothing more of logs without a filter.
    pub(super) fn on_unsubscribe(&mut self, filter: &TopicFilter, logs: &[Log]) {
        self.filters.remove(filter.as_str());
        for log in logs {
            let wanted = self.wants(&log.topic);
            if !wanted {
                self.had_merged.remove(&log.topic);
            }
            let Some(seen) = self.seen.get_mut(&log.epoch) else { continue };
            seen.new &= !filter.matches(&log.topic) || seen.next.is_some();
            if !wanted {
                self.left.extend(seen.next.map(|next| (log.epoch, next)));
                self.seen.remove(&log.epoch);
            }
        }
    }

    /// A log is new.
    pub(super) fn on_new_log(&mut self, log: &Log) {
        let answered =
            self.filters.values().any(|(filter, answered)| *answered && filter.matches(&log.topic));
        self.seen.entry(log.epoch).or_default().new = answered;
    }

    /// The broker announces a log.
    pub(super) fn on_announced(&mut self, topic: &Topic, hold: Duration, slow: SlowPolicy) {
        match topic.topic.as_str() {
            "a" if self.wants(&topic.topic) && !hold.is_zero() => self.must_be_clamped.insert("max_hold_ms"),
            "a/b" if self.wants(&topic.topic) && slow.max_lag_bytes().is_some() => {
                self.must_be_clamped.insert("max_lag_bytes")
            }
            _ => false,
        };
        if topic.framing == Framing::Merged {
            // The same log is back.
            self.had_merged.retain(|name, had| *name != topic.topic || !had.contains(&topic.epoch));
            self.announced_merged.entry(topic.topic.clone()).or_default().insert(topic.epoch);
        }
    }

    /// The broker has answered all requests over a connection. `accepted`: it has refused none.
    pub(super) fn on_answered(&mut self, accepted: bool) {
        self.filters.values_mut().for_each(|(_, answered)| *answered |= accepted);
    }

    /// The connection leads to another broker process.
    pub(super) fn on_moved(&mut self, logs: &[Log]) {
        for log in logs.iter().filter(|log| log.framing == Framing::Merged) {
            if self.seen.get(&log.epoch).is_some_and(|seen| seen.joined) {
                self.had_merged.entry(log.topic.clone()).or_default().insert(log.epoch);
            }
        }
        self.seen.values_mut().for_each(|seen| seen.joined = false);
    }

    /// A subscription begins. `oldest`: the first position that the broker had.
    pub(super) fn on_joined(&mut self, log: &Log, start: Position, oldest: Position) {
        self.note(1, log.epoch, start);
        assert!(self.wants(&log.topic), "a log joins that no filter matches");
        let former = self.had_merged.get(&log.topic).is_some_and(|had| !had.contains(&log.epoch));
        assert!(!former, "the user learns that a merged log is another one");
        let seen = self.seen.entry(log.epoch).or_default();
        assert!(!seen.joined || log.moved, "a log begins that has not ended");
        if let Some(next) = seen.next {
            assert_eq!(start, next, "a log goes on where it was left");
        } else if seen.new {
            assert!(start <= oldest, "nothing of a new log is skipped: from {start}, and {oldest} was there");
        }
        (seen.next, seen.joined, seen.closed) = (Some(start), true, false);
    }

    /// Messages come, or are lost.
    pub(super) fn on_bytes(&mut self, log: &Log, from: Position, to: Position) {
        self.note(2, log.epoch, to);
        assert!(self.wants(&log.topic), "messages come that no filter matches");
        let seen = self.seen.get_mut(&log.epoch).expect("a log that has begun");
        assert!(seen.joined, "messages come without a subscription");
        assert_eq!(seen.next, Some(from), "messages are missing or come twice");
        seen.next = Some(to);
    }

    fn end(&mut self, log: &Log, end: Position, closed: bool) {
        self.note(3, log.epoch, end);
        if !self.wants(&log.topic) {
            return;
        }
        let seen = self.seen.entry(log.epoch).or_default();
        if closed {
            assert!(seen.joined, "a subscription ends twice");
            assert_eq!(seen.next, Some(end), "messages before the end are missing");
        }
        // A subscription may be refused before it begins, and a user may have left and come back before it takes the notice.
        assert!(seen.next.is_none_or(|next| next >= end), "messages before the end are missing");
        (seen.joined, seen.closed) = (false, closed);
    }

    /// Takes a notice that is no [`Notice::Joined`].
    pub(super) fn on_notice(&mut self, notice: Notice, logs: &[Log], is_blocking: bool) {
        let log = |epoch: Epoch| logs.iter().find(|log| log.epoch == epoch.0).expect("a log that exists");
        match notice {
            Notice::Lost { epoch, from, to, .. } => {
                let log = log(epoch);
                assert!(!(log.kept && is_blocking), "the disk has everything, and {from} to {to} are lost");
                self.on_bytes(log, from, to);
            }
            Notice::Closed { epoch, end, .. } => {
                let log = log(epoch);
                assert!(log.closed && end == log.head, "a log is complete that is not");
                self.end(log, end, true);
            }
            Notice::Gone { epoch, end, .. } => {
                let log = log(epoch);
                assert!(log.may_be_gone, "a log is gone that goes on in another buffer");
                self.end(log, end, false);
            }
            Notice::LogReplaced { topic, epoch } => {
                let had = self
                    .announced_merged
                    .get(&topic)
                    .is_some_and(|had| had.iter().any(|had| *had != epoch.0));
                assert!(had || self.positions_used, "a log replaces none");
                self.had_merged.remove(&topic);
            }
            Notice::Refused { topic: None, .. } => {
                self.rejected = self.rejected.checked_sub(1).expect("a request that was refused");
            }
            Notice::Refused { topic: Some(topic), .. } => {
                let at = self.refusals.iter().position(|(refused, ..)| *refused == topic);
                let (_, epoch, _) = self.refusals.remove(at.expect("a topic that was refused"));
                self.seen.entry(epoch).or_default().joined = false;
            }
            Notice::OptionClamped(text) => {
                let (_, limit) = text.split_once("asked for: ").expect("what the broker allows");
                assert!(self.clamped.insert(limit.into()), "a limit is told twice: {limit}");
            }
            Notice::Disconnected(_) => assert!(!std::mem::replace(&mut self.disconnected, true)),
            Notice::Reconnected => assert!(std::mem::replace(&mut self.disconnected, false)),
            Notice::Joined { .. } => unreachable!("it is no such notice"),
        }
    }

    /// Nothing is told any more.
    pub(super) fn check_over(&self) {
        assert!(!self.disconnected, "the user does not know that the connection is back");
        assert_eq!(self.rejected, 0, "a refused request was not told");
        for limit in &self.must_be_clamped {
            assert!(self.clamped.iter().any(|told| told.contains(limit)), "{limit} was not told");
        }
        let untold = self.refusals.iter().find(|(_, _, must)| *must);
        assert!(untold.is_none(), "a refused topic was not told: {untold:?}");
    }
}
