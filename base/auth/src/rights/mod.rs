//! The rights of users.
//!
//! ```text
//!   rules ──▶ Rights ── of(identity) ──▶ Grants ── may_publish(topic), policies(topic) ──▶ yes or no
//!             tables of patterns         the rules of a user, one bit each
//! ```
//!
//! A user has a right if one of its rules gives it and none of them denies it. A decision about a topic visits only the patterns that
//! match the topic, level by level. A pattern with `%u` is one entry for all users, so the tables do not grow with the number of users.
//! A connection costs one bit for each rule.

mod policies;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use topics::{Levels, TopicFilter, TopicName};

pub use policies::{Policies, Policy};
use rule::EVERYBODY;
pub use rule::{AccessRule, Pattern, PatternError};

use crate::Identity;

/// The largest number of rules.
pub const MAX_RULES: usize = 10_000;

/// The largest number of patterns of all rules. A pattern costs about 200 bytes.
pub const MAX_PATTERNS: usize = 100_000;

/// The largest number of users and roles in all rules. Each costs about 100 bytes.
pub const MAX_NAMES: usize = 100_000;

const _: () = assert!(MAX_RULES <= u16::MAX as usize);

/// A rule is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct RuleError {
    /// The number of the rule, from 0.
    pub rule: usize,
    /// The name of the field.
    pub field: &'static str,
    /// The problem.
    pub message: String,
}

/// An operation that rules allow by topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// To create a buffer of a topic and write it.
    Publish,
    /// To read a topic.
    Subscribe,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Publish => "publish",
            Self::Subscribe => "subscribe",
        })
    }
}

/// An operation that a rule allows without a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BrokerRight {
    /// To observe the broker.
    Observe,
    /// To connect as a broker.
    Chain,
    /// To administer the broker by its console.
    Administer,
}

impl fmt::Display for BrokerRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Observe => "observe",
            Self::Chain => "chain",
            Self::Administer => "administer",
        })
    }
}

/// The rule that decided, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The rule gives it.
    Given {
        /// The number of the rule, from 0.
        rule: usize,
        /// The pattern of the rule.
        pattern: String,
    },
    /// The rule denies it.
    Denied {
        /// The number of the rule, from 0.
        rule: usize,
        /// The pattern of the rule.
        pattern: String,
    },
    /// No rule of the user gives it.
    NoRule {
        /// The number of rules that are for the user.
        rules_of_user: usize,
    },
}

/// A decision about a user, an operation and a topic, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// Whether the user may perform the operation.
    pub allowed: bool,
    /// The first rule that decided.
    pub reason: Reason,
    /// The policies with which the user may read the topic. Empty if it may not, and for other operations.
    pub policies: Vec<Policy>,
}

/// Rules by pattern.
#[derive(Debug, Default)]
struct Table(Levels<Vec<u16>>);

impl Table {
    fn add(&mut self, pattern: &Pattern, rule: u16) {
        let rules = self.0.entry(&pattern.key());
        // Rules are added in order.
        if rules.last() != Some(&rule) {
            rules.push(rule);
        }
    }

    /// Visits the rules of a user with a pattern for a topic, until `visit` returns true. Returns whether it did.
    fn visit(&self, grants: &Grants, topic: &TopicName, visit: &mut impl FnMut(u16) -> bool) -> bool {
        let mut of_pattern = |rules: &Vec<u16>| rules.iter().any(|rule| grants.has(*rule) && visit(*rule));
        self.0.matching_own(topic, grants.level.as_deref(), &mut of_pattern)
    }

    fn any(&self, grants: &Grants, topic: &TopicName) -> bool {
        self.visit(grants, topic, &mut |_| true)
    }

    /// The first rule of a user with a pattern for a topic.
    fn first(&self, grants: &Grants, topic: &TopicName) -> Option<u16> {
        let mut first = None;
        self.visit(grants, topic, &mut |rule| {
            first = Some(first.map_or(rule, |first: u16| first.min(rule)));
            false
        });
        first
    }
}

/// All rules, ready for decisions.
///
/// ```
/// use std::sync::Arc;
/// use access::{AccessRule, Identity, Rights};
/// let mut rule = AccessRule::for_user("anna");
/// rule.publish.push("home/%u/#".parse()?);
/// let rights = Arc::new(Rights::new(vec![rule])?);
/// let anna = Identity { user: "anna".into(), ..Identity::anonymous() };
/// let grants = rights.of(&anna);
/// assert!(grants.may_publish(&"home/anna/door".parse()?));
/// assert!(!grants.may_publish(&"home/bert/door".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Rights {
    rules: Vec<AccessRule>,
    policies: Vec<Policies>,
    everybody: Vec<u16>,
    users: HashMap<String, Vec<u16>>,
    roles: HashMap<String, Vec<u16>>,
    publish: Table,
    subscribe: Table,
    deny_publish: Table,
    deny_subscribe: Table,
}

impl Rights {
    /// Prepares rules.
    ///
    /// # Errors
    /// The first invalid rule, or too many rules, patterns or names.
    pub fn new(rules: Vec<AccessRule>) -> Result<Self, RuleError> {
        check(&rules)?;
        let mut rights = Self::default();
        for (number, rule) in (0..).zip(&rules) {
            rights.add(rule, number);
        }
        rights.rules = rules;
        Ok(rights)
    }

    fn add(&mut self, rule: &AccessRule, number: u16) {
        self.policies.push(rule.policies.iter().copied().collect());
        for user in &rule.users {
            match user.as_str() {
                EVERYBODY => self.everybody.push(number),
                user => self.users.entry(user.to_owned()).or_default().push(number),
            }
        }
        for role in &rule.roles {
            self.roles.entry(role.clone()).or_default().push(number);
        }
        let tables = [
            (&mut self.publish, &rule.publish),
            (&mut self.subscribe, &rule.subscribe),
            (&mut self.deny_publish, &rule.deny_publish),
            (&mut self.deny_subscribe, &rule.deny_subscribe),
        ];
        for (table, patterns) in tables {
            patterns.iter().for_each(|pattern| table.add(pattern, number));
        }
    }

    /// The configured rules.
    pub fn rules(&self) -> &[AccessRule] {
        &self.rules
    }

    /// The rights of a user. The result has one bit for each rule.
    pub fn of(self: &Arc<Self>, identity: &Identity) -> Grants {
        let mut bits = vec![0; self.rules.len().div_ceil(64)];
        let of_roles = identity.roles.iter().filter_map(|role| self.roles.get(role));
        let mine = self.users.get(&identity.user).into_iter().chain(of_roles).chain([&self.everybody]);
        for rule in mine.flatten() {
            bits[usize::from(*rule) / 64] |= 1_u64 << (rule % 64);
        }
        let level = is_level(&identity.user).then(|| identity.user.as_str().into());
        Grants { rights: self.clone(), rules: bits.into(), level }
    }

    /// Returns the number, from 0, of the first rule that gives a user this right. None denies it.
    ///
    /// # Errors
    /// No rule gives it. The error is the number of rules that are for the user.
    pub fn explain_right(self: &Arc<Self>, identity: &Identity, right: BrokerRight) -> Result<usize, usize> {
        let grants = self.of(identity);
        let gives = |rule: &AccessRule| match right {
            BrokerRight::Observe => rule.observe,
            BrokerRight::Chain => rule.chain,
            BrokerRight::Administer => rule.administer,
        };
        let mut own = (0_u16..).zip(&self.rules).filter(|(number, _)| grants.has(*number));
        own.find(|(_, rule)| gives(rule)).map(|(number, _)| number.into()).ok_or_else(|| grants.rules())
    }

    /// Decides, and names the rule that decided.
    pub fn explain(
        self: &Arc<Self>,
        identity: &Identity,
        operation: Operation,
        topic: &TopicName,
    ) -> Decision {
        let grants = self.of(identity);
        let (gives, denies) = match operation {
            Operation::Publish => (&self.publish, &self.deny_publish),
            Operation::Subscribe => (&self.subscribe, &self.deny_subscribe),
        };
        let pattern = |rule: u16, denied: bool| {
            let rule = &self.rules[usize::from(rule)];
            let patterns = match (operation, denied) {
                (Operation::Publish, false) => &rule.publish,
                (Operation::Publish, true) => &rule.deny_publish,
                (Operation::Subscribe, false) => &rule.subscribe,
                (Operation::Subscribe, true) => &rule.deny_subscribe,
            };
            first_match(patterns, &grants, topic)
        };
        let no = |reason| Decision { allowed: false, reason, policies: Vec::new() };
        if let Some(rule) = denies.first(&grants, topic) {
            return no(Reason::Denied { rule: rule.into(), pattern: pattern(rule, true) });
        }
        let Some(rule) = gives.first(&grants, topic) else {
            return no(Reason::NoRule { rules_of_user: grants.rules() });
        };
        let policies = match operation {
            Operation::Subscribe => grants.policies(topic).iter().collect(),
            Operation::Publish => Vec::new(),
        };
        Decision {
            allowed: true,
            reason: Reason::Given { rule: rule.into(), pattern: pattern(rule, false) },
            policies,
        }
    }
}

/// The text of the first pattern that matches a topic.
fn first_match(patterns: &[Pattern], grants: &Grants, topic: &TopicName) -> String {
    let matches = |pattern: &&Pattern| {
        let mut table = Levels::default();
        table.insert(&pattern.key(), ());
        table.matching_own(topic, grants.level.as_deref(), &mut |()| true)
    };
    patterns.iter().find(matches).map(Pattern::to_string).unwrap_or_default()
}

fn check(rules: &[AccessRule]) -> Result<(), RuleError> {
    let (mut patterns, mut names) = (0, 0);
    for (at, rule) in rules.iter().enumerate() {
        let fail = |field, message| Err(RuleError { rule: at, field, message });
        if at >= MAX_RULES {
            return fail("users", format!("{} rules; the limit is {MAX_RULES}", rules.len()));
        }
        if let Some((field, problem)) = rule.problem() {
            return fail(field, problem);
        }
        patterns += rule.patterns();
        names += rule.names();
        if patterns > MAX_PATTERNS {
            return fail(
                "publish",
                format!("more than {MAX_PATTERNS} patterns in all rules, which is the limit"),
            );
        }
        if names > MAX_NAMES {
            let problem =
                format!("more than {MAX_NAMES} users and roles in all rules, which is the limit; use roles");
            return fail("users", problem);
        }
    }
    Ok(())
}

/// Whether a user's name can be a level of a topic. `%u` matches nothing for other names, so that no name can widen a pattern.
fn is_level(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c.is_control() || matches!(c, '/' | '+' | '#'))
}

/// The rights of a user. Cheap to clone behind an `Arc`; valid as long as the rules are.
#[derive(Debug, Clone)]
pub struct Grants {
    rights: Arc<Rights>,
    /// A bit for each rule: whether it is for the user.
    rules: Box<[u64]>,
    /// The level that `%u` stands for.
    level: Option<Box<str>>,
}

impl Grants {
    fn has(&self, rule: u16) -> bool {
        self.rules[usize::from(rule) / 64] >> (rule % 64) & 1 == 1
    }

    /// Whether the same rules, in the same order, are for the same user as in other grants.
    pub fn is_same(&self, other: &Self) -> bool {
        self.level == other.level && self.own_rules().eq(other.own_rules())
    }

    /// The number of rules that are for the user.
    pub fn rules(&self) -> usize {
        self.rules.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    /// The rules for the user, in order.
    fn own_rules(&self) -> impl Iterator<Item = &AccessRule> {
        (0..).zip(&self.rights.rules).filter(|(number, _)| self.has(*number)).map(|(_, rule)| rule)
    }

    /// Whether the user may publish a topic.
    pub fn may_publish(&self, topic: &TopicName) -> bool {
        self.rights.publish.any(self, topic) && !self.rights.deny_publish.any(self, topic)
    }

    /// Whether the user may read a topic.
    pub fn may_subscribe(&self, topic: &TopicName) -> bool {
        self.rights.subscribe.any(self, topic) && !self.rights.deny_subscribe.any(self, topic)
    }

    /// Whether the user may read some topic that a filter matches. True also where only several patterns together deny all of them. The
    /// call visits all patterns of the user.
    pub fn may_subscribe_to_some(&self, filter: &TopicFilter) -> bool {
        let denied: Vec<_> = self.own_rules().flat_map(|rule| self.filters(&rule.deny_subscribe)).collect();
        let mut given = self.own_rules().flat_map(|rule| self.filters(&rule.subscribe));
        given.any(|given| {
            let both = given.intersection(filter);
            both.is_some_and(|both| !denied.iter().any(|denied| denied.covers(&both)))
        })
    }

    /// The filters of patterns, for the user.
    fn filters(&self, patterns: &[Pattern]) -> impl Iterator<Item = TopicFilter> {
        patterns.iter().filter_map(|pattern| pattern.filter(self.level.as_deref()))
    }

    /// The policies with which the user may read a topic. None of them: the user may not read it.
    pub fn policies(&self, topic: &TopicName) -> Policies {
        if self.rights.deny_subscribe.any(self, topic) {
            return Policies::NONE;
        }
        let mut policies = Policies::NONE;
        self.rights.subscribe.visit(self, topic, &mut |rule| {
            policies = policies.with(self.rights.policies[usize::from(rule)]);
            false
        });
        policies
    }

    /// Whether the user may publish every topic of a filter: a single pattern of its rules has all of them, and no rule denies any.
    pub fn may_publish_all(&self, topics: &TopicFilter) -> bool {
        !self.denies_some(topics, |rule| &rule.deny_publish)
            && self.own_rules().any(|rule| self.covers(&rule.publish, topics))
    }

    /// The policies with which the user may read every topic of a filter, by patterns that have all of them. None of them: the user may
    /// not read all.
    pub fn policies_for_all(&self, topics: &TopicFilter) -> Policies {
        if self.denies_some(topics, |rule| &rule.deny_subscribe) {
            return Policies::NONE;
        }
        let rules = (0_u16..).zip(&self.rights.rules).filter(|(number, _)| self.has(*number));
        let covering = rules.filter(|(_, rule)| self.covers(&rule.subscribe, topics));
        let policies = covering.map(|(number, _)| self.rights.policies[usize::from(number)]);
        policies.fold(Policies::NONE, Policies::with)
    }

    fn denies_some(&self, topics: &TopicFilter, denied: impl Fn(&AccessRule) -> &Vec<Pattern>) -> bool {
        let mut denied = self.own_rules().flat_map(|rule| self.filters(denied(rule)));
        denied.any(|filter| filter.intersects(topics))
    }

    fn covers(&self, patterns: &[Pattern], topics: &TopicFilter) -> bool {
        self.filters(patterns).any(|filter| filter.covers(topics))
    }

    /// Whether the user may observe the broker.
    pub fn may_observe(&self) -> bool {
        self.own_rules().any(|rule| rule.observe)
    }

    /// Whether the user may connect as a broker.
    pub fn may_chain(&self) -> bool {
        self.own_rules().any(|rule| rule.chain)
    }

    /// Whether the user may administer the broker by its console.
    pub fn may_administer(&self) -> bool {
        self.own_rules().any(|rule| rule.administer)
    }
}
