//! The reason why a user may do something or not: the rule that decides, in words, and the line of the file that has it.

use std::sync::Arc;

use access::{BrokerRight, Decision, Identity, Operation, Reason, Rights};
use rbmq_wire::TopicName;
use rocketbufs::config::Origin;

/// A decision about a user, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explained {
    /// Whether the user may do it.
    pub allowed: bool,
    /// The decision: `user 'anna' may publish topic 'a'`.
    pub what: String,
    /// The rule that decided, and what it says; or that none is for the user.
    pub why: String,
    /// The number of that rule, from 1. None: no rule decided.
    pub rule: Option<usize>,
    /// Whether no rule is for the user at all.
    pub has_no_rule: bool,
}

/// The place of each rule (its file and line), by the number of the rule from 0.
pub type OriginOfRule<'a> = &'a dyn Fn(usize) -> Origin;

/// Says whether a user may publish or read a topic, and which rule decides. `origin` gives the places of the rules.
pub fn explain_topic(
    rights: &Arc<Rights>,
    identity: &Identity,
    operation: Operation,
    topic: &TopicName,
    origin: OriginOfRule<'_>,
) -> Explained {
    let Decision { allowed, reason, policies, .. } = rights.explain(identity, operation, topic);
    let may = if allowed { "may" } else { "may not" };
    let what = format!("user '{}' {may} {operation} topic '{topic}'", identity.user);
    let (rule, why) = match &reason {
        Reason::Given { rule, pattern } => {
            let policies: Vec<&str> = policies.iter().map(|policy| policy.as_str()).collect();
            let with =
                if policies.is_empty() { String::new() } else { format!(", with {}", policies.join(", ")) };
            (Some(*rule), format!("{} gives it: {operation} = \"{pattern}\"{with}", named(*rule, origin)))
        }
        Reason::Denied { rule, pattern } => {
            (Some(*rule), format!("{} denies it: deny_{operation} = \"{pattern}\"", named(*rule, origin)))
        }
        Reason::NoRule { rules_of_user: 0 } => (None, NO_RULE.to_owned()),
        Reason::NoRule { rules_of_user: 1 } => {
            (None, "no pattern of the only rule for this user matches".to_owned())
        }
        Reason::NoRule { rules_of_user } => {
            (None, format!("no pattern of the {rules_of_user} rules for this user matches"))
        }
        _ => (None, String::new()),
    };
    let has_no_rule = matches!(reason, Reason::NoRule { rules_of_user: 0 });
    Explained { allowed, what, why, rule: rule.map(|rule| rule + 1), has_no_rule }
}

/// Says whether a user has a right without a topic, and which rule gives it. `origin` gives the places of the rules.
pub fn explain_right(
    rights: &Arc<Rights>,
    identity: &Identity,
    right: BrokerRight,
    origin: OriginOfRule<'_>,
) -> Explained {
    let what = match right {
        BrokerRight::Observe => "observe the broker",
        BrokerRight::Administer => "administer the broker",
        _ => "connect as a broker",
    };
    let user = &identity.user;
    let not = |why: String, has_no_rule| {
        let what = format!("user '{user}' may not {what}");
        Explained { allowed: false, what, why, rule: None, has_no_rule }
    };
    match rights.explain_right(identity, right) {
        Ok(rule) => Explained {
            allowed: true,
            what: format!("user '{user}' may {what}"),
            why: format!("{} gives it: {right} = true", named(rule, origin)),
            rule: Some(rule + 1),
            has_no_rule: false,
        },
        Err(0) => not(NO_RULE.to_owned(), true),
        Err(1) => not(format!("the only rule for this user has no {right} = true"), false),
        Err(rules) => not(format!("none of the {rules} rules for this user has {right} = true"), false),
    }
}

/// The reason if no rule is for a user.
const NO_RULE: &str = "no rule is for this user; add one with [[access.rules]]";

fn named(rule: usize, origin: OriginOfRule<'_>) -> String {
    format!("rule {} ({})", rule + 1, origin(rule))
}
