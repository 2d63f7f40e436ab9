//! What the broker gives less of than was asked for: told once for each value, not for each of ten thousand topics.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rocketbufs::Policy;

use super::feed::Options;
use crate::wire::{Terms, TopicName};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lowered {
    told: BTreeSet<(&'static str, u64)>,
    /// What is still to be told.
    pub(super) untold: VecDeque<String>,
}

/// Values that are remembered: a broker that makes up others all the time is listened to no longer.
const MAX_TOLD: usize = 64;

impl Lowered {
    /// Compares what a subscription of this topic asks for with what it gets.
    pub(super) fn look(&mut self, options: &Options, terms: Terms, topic: &TopicName) {
        let (asked, most) = (options.hold, Duration::from_millis(terms.max_hold_ms.into()));
        if terms.max_hold_ms != u32::MAX && asked > most {
            let why = format!(
                "its place is kept for {most:?} while it is away, not for {asked:?} (max_hold_ms, of its rule or \
                 of the limits)"
            );
            self.tell("hold", terms.max_hold_ms.into(), topic, &why);
        }
        let (asked, most) = (options.max_lag_bytes, terms.max_lag_bytes);
        if options.policy != Policy::Block && most != 0 && asked > most {
            let why = format!(
                "the policy '{}' acts at a lag of {most} bytes, not of {asked} (max_lag_bytes)",
                options.policy
            );
            self.tell("lag", most, topic, &why);
        }
        let most = terms.block_timeout_ms;
        if let (Policy::Block, Some(asked)) = (options.policy, options.block_timeout)
            && most != 0
            && (asked.is_zero() || asked.as_millis() > most.into())
        {
            let asked = if asked.is_zero() { "ever".into() } else { format!("{asked:?}") };
            let most = Duration::from_millis(most.into());
            let why = format!(
                "it may hold the publishers without progress for {most:?}, not for {asked} (block_timeout_ms)"
            );
            self.tell("timeout", terms.block_timeout_ms.into(), topic, &why);
        }
    }

    /// No place is kept in a buffer of this topic.
    pub(super) fn no_place(&mut self, topic: &TopicName) {
        // Where a rule keeps none, that was told.
        if !self.told.contains(&("hold", 0)) {
            let why = "no place is kept for this subscriber while it is away, here and perhaps in other topics: as many \
                       are taken as the broker keeps (limits.max_held_subscriptions). What comes meanwhile may be lost";
            self.tell("place", 0, topic, why);
        }
    }

    fn tell(&mut self, what: &'static str, most: u64, topic: &TopicName, why: &str) {
        if self.told.len() < MAX_TOLD && self.told.insert((what, most)) {
            self.untold
                .push_back(format!("topic '{topic}': the broker allows less than was asked for: {why}"));
        }
    }
}
