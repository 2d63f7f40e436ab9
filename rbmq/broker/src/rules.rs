//! Rules of topics: `[[broker.topics]]`. The first rule whose pattern matches a topic applies. A rule sets the rings of the
//! topic and limits the options of its subscribers.
//!
//! ```toml
//! [[broker.topics]]
//! pattern = "sensors/#"
//! ring_bytes = 65536
//! policies = ["drop", "disconnect"]
//! ```
//!
//! A setting that the rule doesn't have keeps its default.

use std::ops::RangeInclusive;
use std::time::Duration;

use rbmq_wire::{Space, SubscribeLimits, TopicFilter, TopicName};
use rocketbufs::{BlockTimeout, Policy, SubscriptionLimits};
use serde::{Deserialize, Serialize};
use settings::{by_serde, optional_bytes, optional_millis};

use super::config::BrokerConfigError;

/// The largest number of rules. A new buffer is compared with the rules one by one.
pub const MAX_RULES: usize = 1000;

/// The smallest limit of a kept topic, in bytes: a few segments.
const MIN_KEEP_BYTES: u64 = 4 << 20;

/// How the publishers of a topic share rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Ingest {
    /// Each publisher has its own ring; its bytes are forwarded as they arrive.
    #[default]
    Splice,
    /// The publishers share one ring; complete deliveries are copied into it.
    Merge,
}

/// A kind of archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ArchiveKind {
    /// Apache Kafka: section `[kafka]`.
    Kafka,
    /// An object store: section `[s3]`.
    S3,
}

/// An entry of `[[broker.topics]]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Rule {
    /// The topics of the rule.
    pub pattern: TopicFilter,
    /// How publishers share rings. Default: `splice`.
    #[serde(default)]
    pub ingest: Ingest,
    /// The policies that subscribers may use. Default: `block`, `drop` and `disconnect`.
    #[serde(default = "all_policies")]
    pub policies: Vec<Policy>,
    /// Ring of each buffer at the broker, in bytes, from `broker.min_ring_bytes` to `broker.max_ring_bytes`. The value
    /// replaces the size that the publisher asks for. The ring is larger if the deliveries of the publisher need it.
    /// Default: the size that the publisher asks for. Too small: little history, and slow subscribers stop the publisher
    /// early. Too large: memory.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_bytes")]
    pub ring_bytes: Option<u64>,
    /// History for new subscribers in each ring, in bytes, at most half of the ring. Default: `buffers.retain_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_bytes")]
    pub retain_bytes: Option<u64>,
    /// Largest lag of a subscriber with `drop` or `disconnect`, and the lag of a subscriber that asks for none, in bytes.
    /// Default: no limit; `session.max_lag_bytes` for a subscriber that asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_bytes")]
    pub max_lag_bytes: Option<u64>,
    /// Longest time for which a subscriber with `block` can stop the publishers without progress, and the time of a
    /// subscriber that asks for none, in milliseconds; 0: no limit. Default: no limit; `session.block_timeout_ms` for a
    /// subscriber that asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_millis")]
    pub block_timeout_ms: Option<u32>,
    /// Time for which a disconnected publisher can come back to the topic, in milliseconds. Default: `session.linger_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_millis")]
    pub linger_ms: Option<u32>,
    /// Longest time for which the position of a disconnected subscriber is kept, in milliseconds. Default:
    /// `limits.max_hold_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_millis")]
    pub max_hold_ms: Option<u32>,
    /// Keeps the topic on disk, in `broker.keep_dir`: subscribers can begin at any kept position, also after a restart of the
    /// broker. The publishers share one log then, as with `ingest = "merge"`. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// The most bytes of the topic on disk, at least 4 MiB. Default: 1 GiB. The oldest data is removed beyond that. Up to a
    /// sixteenth more may be there.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_bytes")]
    pub keep_bytes: Option<u64>,
    /// The longest time for which the data of the topic stays on disk, in milliseconds. Default: no limit. Data may stay longer
    /// by a sixteenth.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_millis")]
    pub keep_ms: Option<u64>,
    /// Copies what is on disk to an archive, `"kafka"` (section `[kafka]`) or `"s3"` (section `[s3]`), and answers from there what the disk
    /// has no more. Needs `keep = true`. Default: no archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveKind>,
    /// `true` is another word for `archive = "kafka"`. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kafka: bool,
    /// All topics of the rule live in one merged log, `$space/PREFIX` (`$space` for `#`), whose records name their topics: 100,000 topics
    /// cost one ring. The pattern is `PREFIX/#` or `#`; the other settings are about the log. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub space: bool,
}

fn all_policies() -> Vec<Policy> {
    vec![Policy::Block, Policy::Drop, Policy::Disconnect]
}

impl Rule {
    /// A rule without settings.
    pub fn new(pattern: TopicFilter) -> Self {
        Self {
            pattern,
            ingest: Ingest::default(),
            policies: all_policies(),
            ring_bytes: None,
            retain_bytes: None,
            max_lag_bytes: None,
            block_timeout_ms: None,
            linger_ms: None,
            max_hold_ms: None,
            keep: false,
            keep_bytes: None,
            keep_ms: None,
            archive: None,
            kafka: false,
            space: false,
        }
    }

    /// Whether the publishers of a topic share one log.
    pub(super) fn merges(&self) -> bool {
        self.ingest == Ingest::Merge || self.keep || self.space
    }

    /// The same rule for a log of its own of a topic of the space, as other brokers and feeds have them.
    fn beside_space(&self) -> Self {
        Self {
            ingest: Ingest::Splice,
            ring_bytes: None,
            retain_bytes: None,
            keep: false,
            keep_bytes: None,
            keep_ms: None,
            archive: None,
            kafka: false,
            space: false,
            ..self.clone()
        }
    }

    /// The space of the rule.
    fn as_space(&self) -> Option<Space> {
        Space::new(&self.pattern).ok().filter(|_| self.space)
    }

    /// The most bytes on disk.
    pub(super) fn keep_bytes(&self) -> u64 {
        self.keep_bytes.unwrap_or(1 << 30)
    }

    /// The longest time on disk.
    pub(super) fn keep_age(&self) -> Option<Duration> {
        self.keep_ms.map(Duration::from_millis)
    }

    /// The archive below the disk.
    pub fn archive(&self) -> Option<ArchiveKind> {
        self.archive.or(self.kafka.then_some(ArchiveKind::Kafka))
    }

    /// The limits on subscriptions that the framework enforces.
    pub(super) fn limits(&self) -> SubscriptionLimits {
        let millis = |ms: u32| Duration::from_millis(ms.into());
        let block_timeout = match self.block_timeout_ms {
            None => BlockTimeout::Default,
            Some(0) => BlockTimeout::Never,
            Some(ms) => BlockTimeout::After(millis(ms)),
        };
        SubscriptionLimits::new()
            .policies(self.policies.iter().copied().collect())
            .max_lag_bytes(self.max_lag_bytes)
            .block_timeout(block_timeout)
            .max_hold(self.max_hold_ms.map(millis))
    }

    /// The same limits for a LIMITS message. `max_hold_ms` limits the hold of all topics.
    pub(super) fn announced_limits(&self, max_hold_ms: u32) -> SubscribeLimits {
        SubscribeLimits {
            max_lag_bytes: self.max_lag_bytes.unwrap_or(0),
            block_timeout_ms: self.block_timeout_ms.unwrap_or(0),
            max_hold_ms: self.max_hold_ms.map_or(max_hold_ms, |most| most.min(max_hold_ms)),
        }
    }

    /// `linger_ms` as a duration.
    pub(super) fn linger(&self) -> Option<Duration> {
        self.linger_ms.map(|ms| Duration::from_millis(ms.into()))
    }

    /// The first invalid field of those for the disk.
    fn problem_of_keeping(&self) -> Option<(&'static str, String)> {
        let is = |field, problem: String| Some((field, problem));
        if let Some(bytes) = self.keep_bytes.filter(|bytes| *bytes < MIN_KEEP_BYTES) {
            return is(
                "keep_bytes",
                format!("keep_bytes = {bytes}: it must be at least {MIN_KEEP_BYTES} (4 MiB)"),
            );
        }
        if self.keep_ms == Some(0) {
            return is(
                "keep_ms",
                "keep_ms = 0: it must be at least 1; without this line there is no limit".into(),
            );
        }
        if !self.keep && (self.keep_bytes.is_some() || self.keep_ms.is_some()) {
            let problem = "keep_bytes and keep_ms are limits of what is kept on disk: add keep = true";
            return is(if self.keep_bytes.is_some() { "keep_bytes" } else { "keep_ms" }, problem.into());
        }
        let field = if self.kafka { "kafka" } else { "archive" };
        if self.archive().is_some() && !self.keep {
            return is(field, format!("{field} is for topics that are kept on disk: add keep = true"));
        }
        if self.kafka && self.archive.is_some_and(|kind| kind != ArchiveKind::Kafka) {
            return is(field, "kafka = true and another archive: a topic has one".into());
        }
        None
    }

    /// The first invalid field and the problem. `rings` are the sizes that the broker's rings may have.
    fn problem(&self, rings: &RangeInclusive<u64>) -> Option<(&'static str, String)> {
        let is = |field, problem: String| Some((field, problem));
        if self.policies.is_empty() {
            let problem =
                "policies is empty: no client could subscribe; allow some of block, drop, disconnect";
            return is("policies", problem.into());
        }
        if self.policies.contains(&Policy::Overwrite) {
            return is(
                "policies",
                "policies: overwrite is not available here; use block, drop, disconnect".into(),
            );
        }
        let (min, max) = (*rings.start(), *rings.end());
        if let Some(ring) = self.ring_bytes.filter(|ring| *ring < min || rounded(*ring) > max) {
            let takes = rounded(ring);
            let problem = format!(
                "ring_bytes = {ring}: it must be from broker.min_ring_bytes ({min}) to broker.max_ring_bytes ({max}), \
                 also when it is rounded up to a power of two ({takes})"
            );
            return is("ring_bytes", problem);
        }
        if let (Some(ring), Some(retain)) = (self.ring_bytes, self.retain_bytes)
            && retain > rounded(ring) / 2
        {
            let problem =
                format!("retain_bytes = {retain}: the history can have at most half of ring_bytes ({ring})");
            return is("retain_bytes", problem);
        }
        if let Some(problem) = self.problem_of_keeping() {
            return Some(problem);
        }
        if self.space
            && let Err(error) = Space::new(&self.pattern)
        {
            return is("space", format!("space = true: {error}"));
        }
        if self.max_lag_bytes == Some(0) {
            let problem = "max_lag_bytes = 0: it must be at least 1; without this line there is no limit";
            return is("max_lag_bytes", problem.into());
        }
        None
    }
}

/// All rules, in order.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "Vec<Rule>", into = "Vec<Rule>")]
pub struct Rules {
    rules: Vec<Rule>,
    otherwise: Rule,
    /// For each rule: what is left of the rule of a space for logs that are not the space's.
    beside: Vec<Option<Rule>>,
}

/// The space of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InSpace {
    pub(super) space: Space,
    /// The patterns of earlier rules, whose topics are not in the space.
    pub(super) before: Vec<TopicFilter>,
}

by_serde!(Rules);

impl Rules {
    /// The first rule that matches a topic, or a rule without settings. The log of a space has the rule of its space.
    pub fn of(&self, topic: &TopicName) -> &Rule {
        let Some(at) = self.number_of(topic) else { return &self.otherwise };
        match &self.beside[at] {
            Some(beside) if !Space::is_reserved(topic) => beside,
            _ => &self.rules[at],
        }
    }

    fn number_of(&self, topic: &TopicName) -> Option<usize> {
        match Space::of_log(topic) {
            Some(space) => self.rules.iter().position(|rule| rule.space && rule.pattern == *space.pattern()),
            None => self.rules.iter().position(|rule| rule.pattern.matches(topic)),
        }
    }

    /// The space of a topic, or of which this is the name of the log.
    pub(super) fn space_of(&self, topic: &TopicName) -> Option<InSpace> {
        let at = self.number_of(topic)?;
        let space = self.rules[at].as_space()?;
        let earlier = self.rules[..at].iter().map(|rule| &rule.pattern);
        let before = earlier.filter(|pattern| pattern.intersects(space.pattern())).cloned().collect();
        Some(InSpace { space, before })
    }

    /// All spaces.
    pub(super) fn spaces(&self) -> impl Iterator<Item = Space> {
        self.rules.iter().filter_map(Rule::as_space)
    }

    /// All spaces, with the topics that are not in them.
    pub(super) fn in_spaces(&self) -> impl Iterator<Item = InSpace> {
        self.spaces().filter_map(|space| self.space_of(space.log()))
    }

    /// Whether the same topics are in the same spaces.
    pub(super) fn has_same_spaces(&self, other: &Self) -> bool {
        let deciding = |rules: &Self| {
            let last = rules.rules.iter().rposition(|rule| rule.space).map_or(0, |last| last + 1);
            rules.rules[..last].iter().map(|rule| (rule.pattern.clone(), rule.space)).collect::<Vec<_>>()
        };
        deciding(self) == deciding(other)
    }

    /// The configured rules.
    pub fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.rules.iter()
    }

    /// Refuses invalid rules. `rings` are the sizes that the broker's rings may have.
    pub(super) fn check(&self, rings: &RangeInclusive<u64>) -> Result<(), BrokerConfigError> {
        if self.rules.len() > MAX_RULES {
            let message = format!("{} rules; the limit is {MAX_RULES}", self.rules.len());
            return Err(BrokerConfigError::Rule { rule: MAX_RULES, field: "pattern", message });
        }
        for (at, rule) in self.rules.iter().enumerate() {
            let problem = rule.problem(rings).or_else(|| self.problem_of_space(at));
            if let Some((field, problem)) = problem {
                let message = format!("the rule of pattern '{}': {problem}", rule.pattern);
                return Err(BrokerConfigError::Rule { rule: at, field, message });
            }
        }
        Ok(())
    }

    /// Whether earlier rules leave no topic to the space of a rule.
    fn problem_of_space(&self, at: usize) -> Option<(&'static str, String)> {
        let (earlier, rule) = (&self.rules[..at], &self.rules[at]);
        let taken = earlier.iter().find(|earlier| rule.space && earlier.pattern.covers(&rule.pattern))?;
        let problem =
            format!("the earlier rule of pattern '{}' leaves no topic to this space", taken.pattern);
        Some(("space", problem))
    }
}

impl Default for Rules {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl From<Vec<Rule>> for Rules {
    fn from(rules: Vec<Rule>) -> Self {
        let beside = rules.iter().map(|rule| rule.space.then(|| rule.beside_space())).collect();
        Self { rules, otherwise: Rule::new(TopicFilter::all()), beside }
    }
}

impl From<Rules> for Vec<Rule> {
    fn from(rules: Rules) -> Self {
        rules.rules
    }
}

impl<'a> IntoIterator for &'a Rules {
    type Item = &'a Rule;
    type IntoIter = std::slice::Iter<'a, Rule>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The size of a ring for so many bytes: a power of two.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes.checked_next_power_of_two().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RINGS: RangeInclusive<u64> = 65_536..=1 << 20;

    fn rules(text: &str) -> Result<Rules, String> {
        #[derive(Deserialize)]
        struct Section {
            topics: Rules,
        }
        let rules = toml::from_str::<Section>(text).map_err(|e| e.message().to_owned())?.topics;
        rules.check(&RINGS).map(|()| rules).map_err(|e| e.to_string())
    }

    #[test]
    fn the_first_rule_that_matches_applies() {
        let rules = rules(
            "[[topics]]\npattern = 'a/b'\nmax_lag_bytes = 7\n\
             [[topics]]\npattern = 'a/#'\nring_bytes = 131072\npolicies = ['drop']\ningest = 'merge'\n",
        )
        .unwrap();
        let of = |topic: &str| rules.of(&topic.parse().unwrap()).clone();
        assert_eq!(of("a/b").max_lag_bytes, Some(7));
        assert_eq!(of("a/b").ring_bytes, None);
        assert_eq!(of("a/c").ring_bytes, Some(131_072));
        assert_eq!(of("a").policies, [Policy::Drop]);
        assert_eq!(of("a").ingest, Ingest::Merge);
        assert_eq!(of("b"), Rule::new(TopicFilter::all()));
        assert_eq!(of("$b"), Rule::new(TopicFilter::all()));
    }

    #[test]
    fn invalid_rules_are_refused_with_a_reason() {
        for (rule, says) in [
            ("pattern = 'a#'", "'#' must be a whole level"),
            ("ring_bytes = 1", "missing field `pattern`"),
            ("pattern = 'a'\nring = 1", "unknown field `ring`"),
            ("pattern = 'a'\npolicies = []", "no client could subscribe"),
            ("pattern = 'a'\npolicies = ['overwrite']", "overwrite is not available here"),
            ("pattern = 'a'\npolicies = ['blok']", "unknown variant `blok`"),
            ("pattern = 'a'\ningest = 'x'", "unknown variant `x`"),
            ("pattern = 'a'\nring_bytes = 1", "rule of pattern 'a': ring_bytes = 1: it must be from"),
            ("pattern = 'a'\nring_bytes = 65536\nretain_bytes = 40000", "at most half of ring_bytes"),
            ("pattern = 'a'\nmax_lag_bytes = 0", "at least 1"),
            ("pattern = 'a'\nkeep = true\nkeep_bytes = 9", "at least 4194304 (4 MiB)"),
            ("pattern = 'a'\nkeep = true\nkeep_ms = 0", "at least 1"),
            ("pattern = 'a'\nkeep_ms = '7d'", "add keep = true"),
            ("pattern = 'a'\nkafka = true", "add keep = true"),
            ("pattern = 'a'\narchive = 's3'", "add keep = true"),
            ("pattern = 'a'\nkeep = true\nkafka = true\narchive = 's3'", "a topic has one"),
            (
                "pattern = 'a/+/#'\nspace = true",
                "space = true: 'a/+/#' is no pattern of a space: it is '#', or",
            ),
            ("pattern = 'a'\nspace = true", "a name without wildcards and '/#' behind it"),
            ("pattern = '$SYS/#'\nspace = true", "reserved for the broker"),
            (
                "pattern = 'a/#'\n[[topics]]\npattern = 'a/b/#'\nspace = true",
                "rule of pattern 'a/b/#': the earlier rule of pattern 'a/#' leaves no topic to this space",
            ),
            ("pattern = 'a'\nlinger_ms = -1", "number of milliseconds"),
            ("pattern = 'a'\nlinger_ms = '5000000 s'", "too long"),
            ("pattern = 'a'\nlinger_ms = '5 sec'", "no time with a unit: us, ms, s,"),
            ("pattern = 'a'\nlinger_ms = '0.5ms'", "no whole number of milliseconds"),
        ] {
            let error = rules(&format!("[[topics]]\n{rule}\n")).unwrap_err();
            assert!(error.contains(says), "{rule}: {error}");
        }
        let many = "[[topics]]\npattern = 'a'\n".repeat(MAX_RULES + 1);
        assert!(rules(&many).unwrap_err().contains("limit is 1000"));
    }

    #[test]
    fn the_topics_of_a_space_have_a_log_and_the_rule_is_about_it() {
        let rules = rules(
            "[[topics]]\npattern = 'a/b'\n[[topics]]\npattern = 'c/#'\n[[topics]]\npattern = 'a/+/x'\n\
             [[topics]]\npattern = 'a/#'\nspace = true\nring_bytes = 131072\npolicies = ['drop']\nkeep = true\n\
             [[topics]]\npattern = '#'\nspace = true\n",
        )
        .unwrap();
        let name = |text: &str| text.parse::<TopicName>().unwrap();
        let log = |topic: &str| rules.space_of(&name(topic)).map(|of| of.space.log().to_string());
        assert_eq!(log("a/c").as_deref(), Some("$space/a"));
        assert_eq!(log("$space/a").as_deref(), Some("$space/a"));
        assert_eq!(log("b").as_deref(), Some("$space"));
        for own in ["a/b", "c", "a/1/x", "$b", "$space/b", "$spaces"] {
            assert_eq!(log(own), None, "{own}");
        }
        let before: Vec<String> =
            rules.space_of(&name("a")).unwrap().before.iter().map(ToString::to_string).collect();
        assert_eq!(before, ["a/b", "a/+/x"]);
        let (of_log, beside) = (rules.of(&name("$space/a")), rules.of(&name("a/c")));
        assert!(of_log.keep && of_log.merges() && !beside.keep && !beside.merges());
        assert_eq!((of_log.ring_bytes, beside.ring_bytes), (Some(131_072), None));
        assert_eq!(beside.policies, [Policy::Drop]);
        assert_eq!(rules.spaces().count(), 2);
    }

    #[test]
    fn rules_that_decide_which_topics_are_in_spaces_are_compared() {
        let rules = |patterns: &[(&str, bool)]| {
            let rule = |(pattern, space): &(&str, bool)| Rule {
                space: *space,
                ..Rule::new(pattern.parse().unwrap())
            };
            Rules::from(patterns.iter().map(rule).collect::<Vec<_>>())
        };
        let running = rules(&[("a", false), ("b/#", true), ("c", false)]);
        for (same, other) in [
            (true, rules(&[("a", false), ("b/#", true)])),
            (true, rules(&[("a", false), ("b/#", true), ("d", false)])),
            (false, rules(&[("b/#", true)])),
            (false, rules(&[("a", false), ("b/#", false), ("c", false)])),
            (false, rules(&[("a", false), ("b/#", true), ("c/#", true)])),
        ] {
            assert_eq!(running.has_same_spaces(&other), same, "{other:?}");
        }
    }

    #[test]
    fn rules_survive_serialization() {
        let rule: Rule = toml::from_str("pattern = \"a/+\"\nring_bytes = 70000\n").unwrap();
        let again: Rule = toml::from_str(&toml::to_string(&rule).unwrap()).unwrap();
        assert_eq!(again, rule);
    }
}
