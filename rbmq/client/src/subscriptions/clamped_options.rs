//! Options that the broker limits. Each limit is reported once, and not once for each of ten thousand topics.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use rocketbufs::{Policy, PolicySet};

use super::buffers::MAX_UNWANTED;
use crate::ground::options::SlowPolicy;
use crate::wire::{SubscribeLimits, TopicName};

/// What the subscriber asks for, what the broker allows, and the limits that were reported.
#[derive(Debug, Default)]
pub(super) struct ClampedOptions {
    slow: SlowPolicy,
    hold: Duration,
    /// The limits of the buffers that the broker announces now.
    limits: SubscribeLimits,
    /// The policies for topics whose publishers this subscriber may not hold back.
    policies: HashMap<TopicName, Policy>,
    reported: BTreeSet<(ClampedOption, u64)>,
    /// Reports that the application has not taken yet.
    pub(super) reports: VecDeque<String>,
}

/// An option that the broker may limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ClampedOption {
    Hold,
    MaxLag,
    BlockTimeout,
    DurablePlace,
    Block,
}

/// The most limits that are remembered. Reports of a broker that invents further limits are ignored.
const MAX_REPORTED: usize = 64;

impl ClampedOptions {
    pub(super) fn new(slow: SlowPolicy, hold: Duration) -> Self {
        Self { slow, hold, ..Self::default() }
    }

    /// How long the broker shall keep the place of this subscriber while it is offline.
    pub(super) fn hold(&self) -> Duration {
        self.hold
    }

    /// The policy for a topic.
    pub(super) fn policy(&self, topic: &TopicName) -> Policy {
        self.policies.get(topic).copied().unwrap_or(self.slow.framework())
    }

    /// The broker says what it allows for the buffers that follow.
    pub(super) fn on_limits(&mut self, limits: SubscribeLimits) {
        self.limits = limits;
    }

    /// Compares the options of a subscription to this topic with the limits of the broker.
    pub(super) fn compare(&mut self, topic: &TopicName) {
        let limits = self.limits;
        let (asked, most) = (self.hold, Duration::from_millis(limits.max_hold_ms.into()));
        if limits.max_hold_ms != u32::MAX && asked > most {
            let why = format!(
                "it keeps the place of an offline subscriber for {most:?}, not for {asked:?} (max_hold_ms of the rule or \
                 of the limits)"
            );
            self.report(ClampedOption::Hold, limits.max_hold_ms.into(), topic, &why);
        }
        let most = limits.max_lag_bytes;
        if let (policy, Some(asked)) = (self.slow, self.slow.max_lag_bytes())
            && most != 0
            && asked > most
        {
            let why = format!(
                "the policy '{}' acts at a lag of {most} bytes, not of {asked} (max_lag_bytes)",
                policy.framework()
            );
            self.report(ClampedOption::MaxLag, most, topic, &why);
        }
        let most = limits.block_timeout_ms;
        if let SlowPolicy::BlockFor { timeout: asked } = self.slow
            && most != 0
            && asked.is_none_or(|asked| asked.as_millis() > most.into())
        {
            let asked = asked.map_or_else(|| "without a limit".into(), |asked| format!("for {asked:?}"));
            let most = Duration::from_millis(most.into());
            let why = format!(
                "a subscriber without progress blocks the publishers for {most:?}, not {asked} (block_timeout_ms)"
            );
            self.report(ClampedOption::BlockTimeout, limits.block_timeout_ms.into(), topic, &why);
        }
    }

    /// The broker keeps no place in a buffer of this topic.
    pub(super) fn on_no_place(&mut self, topic: &TopicName) {
        // A rule that keeps no places was reported as a hold of 0.
        if !self.reported.contains(&(ClampedOption::Hold, 0)) {
            let why = "it keeps no place for this subscriber while it is offline, here and perhaps in other topics: it keeps \
                       no more places (limits.max_held_subscriptions). Messages that are published meanwhile may be lost";
            self.report(ClampedOption::DurablePlace, 0, topic, why);
        }
    }

    /// The broker does not let this subscriber hold back the publishers of this topic. Returns whether the options allow for the best
    /// policy that the broker allows.
    pub(super) fn on_no_block(&mut self, topic: &TopicName, allowed: PolicySet) -> bool {
        let best = [Policy::Drop, Policy::Disconnect].into_iter().find(|policy| allowed.contains(*policy));
        let (Some(policy), SlowPolicy::BlockIfAllowed) = (best, self.slow) else { return false };
        if self.policies.len() >= MAX_UNWANTED {
            return false;
        }
        self.policies.insert(topic.clone(), policy);
        let so = match policy {
            Policy::Drop => "while it is slow, it skips messages and reports how many bytes it lost",
            _ => "when it is too slow, the broker ends the subscription",
        };
        let why = format!(
            "this subscriber may not hold publishers back (policy 'block'), here and perhaps in other topics, and reads with the \
             policy '{policy}': {so}"
        );
        self.report(ClampedOption::Block, policy as u64, topic, &why);
        true
    }

    fn report(&mut self, option: ClampedOption, limit: u64, topic: &TopicName, why: &str) {
        if self.reported.len() < MAX_REPORTED && self.reported.insert((option, limit)) {
            self.reports
                .push_back(format!("topic '{topic}': the broker allows less than was asked for: {why}"));
        }
    }
}
