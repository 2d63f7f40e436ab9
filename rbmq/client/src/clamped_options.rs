//! Options that the broker limits. Each limit is reported once, and not once for each of ten thousand topics.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rocketbufs::Policy;

use super::options::{SlowPolicy, SubscriberOptions};
use crate::wire::{SubscribeLimits, TopicName};

/// The limits that were reported, and the reports that wait for the application.
#[derive(Debug, Default)]
pub(super) struct ClampedOptions {
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
    /// Compares the options of a subscription to this topic with the limits of the broker.
    pub(super) fn compare(
        &mut self,
        options: &SubscriberOptions,
        limits: SubscribeLimits,
        topic: &TopicName,
    ) {
        let (asked, most) = (options.hold, Duration::from_millis(limits.max_hold_ms.into()));
        if limits.max_hold_ms != u32::MAX && asked > most {
            let why = format!(
                "it keeps the place of an offline subscriber for {most:?}, not for {asked:?} (max_hold_ms of the rule or \
                 of the limits)"
            );
            self.report(ClampedOption::Hold, limits.max_hold_ms.into(), topic, &why);
        }
        let most = limits.max_lag_bytes;
        if let (policy, Some(asked)) = (options.slow, options.slow.max_lag_bytes())
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
        if let SlowPolicy::BlockFor { timeout: asked } = options.slow
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

    /// The broker does not let this subscriber hold back the publishers of this topic.
    pub(super) fn on_no_block(&mut self, policy: Policy, topic: &TopicName) {
        let so = match policy {
            Policy::Drop => "while it is slow, it skips messages and reports how many bytes it lost",
            _ => "when it is too slow, the broker ends the subscription",
        };
        let why = format!(
            "this subscriber may not hold publishers back (policy 'block'), here and perhaps in other topics, and reads with the \
             policy '{policy}': {so}"
        );
        self.report(ClampedOption::Block, policy as u64, topic, &why);
    }

    fn report(&mut self, option: ClampedOption, limit: u64, topic: &TopicName, why: &str) {
        if self.reported.len() < MAX_REPORTED && self.reported.insert((option, limit)) {
            self.reports
                .push_back(format!("topic '{topic}': the broker allows less than was asked for: {why}"));
        }
    }
}
