//! Rules of access: `[[access.rules]]`.
//!
//! ```toml
//! [[access.rules]]
//! roles = ["sensor"]
//! publish = ["sensors/%u/#"]
//! subscribe = ["commands/%u", "news/#"]
//! policies = ["drop", "disconnect"]
//! ```

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use topics::{FilterError, OWN_LEVEL, TopicFilter};

use super::policies::Policy;

/// The level of a pattern that stands for the name of the user.
pub(super) const USER: &str = "%u";

/// A text is not a valid pattern of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The text is not a valid filter.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// `%u` is a part of a level.
    #[error("'%u' (the user's name) must be a whole level, as in 'home/%u/#': '{level}' is none")]
    PartOfLevel {
        /// The level that contains it.
        level: String,
    },
}

/// The topics of a rule: a filter whose level `%u` stands for the name of the user.
///
/// ```
/// use access::Pattern;
/// let pattern: Pattern = "home/%u/#".parse()?;
/// assert_eq!(pattern.to_string(), "home/%u/#");
/// assert!("home/cam-%u".parse::<Pattern>().is_err());
/// # Ok::<(), access::PatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

impl Pattern {
    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The filter of a user whose name is this level. None if `%u` is in the pattern, and the name is no level.
    pub(super) fn filter(&self, own: Option<&str>) -> Option<TopicFilter> {
        let levels = self.0.split('/').map(|level| if level == USER { own } else { Some(level) });
        levels.collect::<Option<Vec<_>>>()?.join("/").parse().ok()
    }

    /// The key in a table of filters: `%u` is [`OWN_LEVEL`].
    pub(super) fn key(&self) -> String {
        let levels = self.0.split('/').map(|level| if level == USER { OWN_LEVEL } else { level });
        levels.collect::<Vec<_>>().join("/")
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        text.parse::<TopicFilter>()?;
        match text.split('/').find(|level| level.contains(USER) && *level != USER) {
            Some(level) => Err(PatternError::PartOfLevel { level: level.to_owned() }),
            None => Ok(Self(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name in `users` that stands for every user.
pub(super) const EVERYBODY: &str = "*";

/// An entry of `[[access.rules]]`: what some users may do. A user may do what any rule for this user gives, except what one of these
/// rules denies. Everything else is denied. The order of the rules does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AccessRule {
    /// The users of the rule; `"*"` is every user. A rule needs users or roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// The roles of the rule. The rule is for the users in `users` and for those with one of these roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// The topics that these users may publish. Patterns as of subscribers; the level `%u` is the user's name. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<Pattern>,
    /// The topics that these users may read. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscribe: Vec<Pattern>,
    /// The topics that these users may not publish, whatever other rules give. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny_publish: Vec<Pattern>,
    /// The topics that these users may not read, whatever other rules give. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny_subscribe: Vec<Pattern>,
    /// The policies with which they may read the topics of `subscribe`. Default: `block`, `drop` and `disconnect`. Without `block` they
    /// cannot hold a publisher back.
    #[serde(default = "all_policies")]
    pub policies: Vec<Policy>,
    /// Whether they may observe the broker (`rbmq top`, `rbmq topics`): the names, rates and clients of all topics. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observe: bool,
    /// Whether they may connect as a broker (`[[broker.upstream]]` of another broker), which learns the paths of topics and reports
    /// numbers of subscribers. Such a broker reads the topics of `subscribe`. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chain: bool,
    /// Whether they may administer the broker by its console: see users and tokens, and disconnect clients where `http.console` is "write".
    /// Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub administer: bool,
}

fn all_policies() -> Vec<Policy> {
    vec![Policy::Block, Policy::Drop, Policy::Disconnect]
}

impl AccessRule {
    /// A rule for a user that gives nothing.
    pub fn for_user(user: &str) -> Self {
        Self {
            users: vec![user.to_owned()],
            roles: Vec::new(),
            publish: Vec::new(),
            subscribe: Vec::new(),
            deny_publish: Vec::new(),
            deny_subscribe: Vec::new(),
            policies: all_policies(),
            observe: false,
            chain: false,
            administer: false,
        }
    }

    /// The number of its patterns.
    pub(super) fn patterns(&self) -> usize {
        self.publish.len() + self.subscribe.len() + self.deny_publish.len() + self.deny_subscribe.len()
    }

    /// The number of its users and roles.
    pub(super) fn names(&self) -> usize {
        self.users.len() + self.roles.len()
    }

    /// The first invalid field and the problem.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        let is = |field, problem: &str| Some((field, problem.to_owned()));
        if self.names() == 0 {
            return is(
                "users",
                "the rule is for nobody: add users = [\"NAME\"] or roles = [\"ROLE\"]; users = [\"*\"] is for everybody",
            );
        }
        if self.users.iter().any(String::is_empty) || self.roles.iter().any(String::is_empty) {
            let field = if self.users.iter().any(String::is_empty) { "users" } else { "roles" };
            return is(field, "a name is empty; users = [\"*\"] is for everybody");
        }
        if self.policies.is_empty() && !self.subscribe.is_empty() {
            return is(
                "policies",
                "policies is empty: nobody could read the topics of subscribe; allow some of block, drop, disconnect",
            );
        }
        if self.policies.contains(&Policy::Overwrite) {
            return is("policies", "policies: overwrite is not available here; use block, drop, disconnect");
        }
        None
    }
}
