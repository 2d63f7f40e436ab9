//! Topic filters: names with wildcards, for subscriptions and rules.
//!
//! ```text
//!   sensors/+/temp     sensors/kitchen/temp, sensors//temp      not sensors/kitchen/oven/temp
//!   sensors/#          sensors, sensors/kitchen, sensors/kitchen/temp
//!   #                  every topic that does not begin with '$'
//! ```
//!
//! Slashes separate levels, which may be empty. `+` matches any one level. `#` matches all remaining levels, also none, and must
//! be the last level. Names that begin with `$` are reserved for topics of the broker: a filter that begins with a wildcard does
//! not match them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::topic::{MAX_TOPIC_BYTES, TopicName};

/// A text is not a valid topic filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// The text is empty.
    #[error("a topic or filter cannot be empty")]
    Empty,
    /// The text is too long.
    #[error("a topic or filter of {bytes} bytes is too long; the limit is {MAX_TOPIC_BYTES} bytes")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The text has a control character.
    #[error("a topic or filter cannot contain {character:?} (control characters)")]
    Character {
        /// The first such character.
        character: char,
    },
    /// A wildcard is not a whole level.
    #[error("'{wildcard}' must be a whole level, as in 'a/{wildcard}': '{level}' is none")]
    PartOfLevel {
        /// The wildcard.
        wildcard: char,
        /// The level that contains it.
        level: String,
    },
    /// `#` is not the last level.
    #[error("'#' is the rest of a topic and must be the last level; '+' is any one level")]
    NotLast,
}

/// Selects topics: a name, or a name with wildcards. Cloning copies a pointer.
///
/// ```
/// use topics::{TopicFilter, TopicName};
/// let filter: TopicFilter = "sensors/+/temp".parse()?;
/// let topic: TopicName = "sensors/kitchen/temp".parse()?;
/// assert!(filter.matches(&topic));
/// assert!("sensors#".parse::<TopicFilter>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct TopicFilter(Arc<str>);

impl TopicFilter {
    /// The filter that matches every topic that does not begin with `$`.
    pub fn all() -> Self {
        Self("#".into())
    }

    /// The text of the filter.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The levels of the filter.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// Whether the filter has wildcards.
    pub fn has_wildcards(&self) -> bool {
        self.levels().any(|level| matches!(level, "+" | "#"))
    }

    /// The only topic that a filter without wildcards matches.
    pub fn as_topic(&self) -> Option<TopicName> {
        // A filter without wildcards is a valid name.
        if self.has_wildcards() { None } else { self.0.parse().ok() }
    }

    /// Whether some topic is matched by both filters. The limit on the length of a name is not looked at.
    ///
    /// ```
    /// # use topics::TopicFilter;
    /// let space: TopicFilter = "devices/#".parse()?;
    /// assert!("+/7/temp".parse::<TopicFilter>()?.intersects(&space));
    /// assert!(!"doors/#".parse::<TopicFilter>()?.intersects(&space));
    /// # Ok::<(), topics::FilterError>(())
    /// ```
    pub fn intersects(&self, other: &Self) -> bool {
        if self.hides(other) || other.hides(self) {
            return false;
        }
        let (mut ours, mut theirs) = (self.long().split('/'), other.long().split('/'));
        loop {
            match (ours.next(), theirs.next()) {
                (Some("#"), _) | (_, Some("#")) | (None, None) => return true,
                (Some("+"), Some(_)) | (Some(_), Some("+")) => {}
                (Some(ours), Some(theirs)) if ours == theirs => {}
                _ => return false,
            }
        }
    }

    /// Whether the filter matches every topic that the other one matches.
    ///
    /// ```
    /// # use topics::TopicFilter;
    /// let space: TopicFilter = "devices/#".parse()?;
    /// assert!(space.covers(&"devices/+/temp".parse()?));
    /// assert!(!space.covers(&TopicFilter::all()));
    /// # Ok::<(), topics::FilterError>(())
    /// ```
    pub fn covers(&self, other: &Self) -> bool {
        if self.hides(other) {
            return false;
        }
        let (mut ours, mut theirs) = (self.levels(), other.long().split('/'));
        loop {
            match (ours.next(), theirs.next()) {
                (Some("#"), _) | (None, None) => return true,
                (_, Some("#")) => return false,
                (Some("+"), Some(_)) => {}
                (Some(ours), Some(theirs)) if ours == theirs => {}
                _ => return false,
            }
        }
    }

    /// The text of a filter for the same topics, whose `#` stands for none that cannot be: a name has a level, and is not empty.
    fn long(&self) -> &str {
        match &*self.0 {
            "#" => "+/#",
            "/#" => "/+/#",
            text => text,
        }
    }

    /// Whether the topics of the other filter are reserved ones, which this filter does not match because it begins with a wildcard.
    fn hides(&self, other: &Self) -> bool {
        self.0.starts_with(['+', '#']) && other.0.starts_with('$')
    }

    /// Whether the filter matches a topic.
    pub fn matches(&self, topic: &TopicName) -> bool {
        if topic.as_str().starts_with('$') && self.0.starts_with(['+', '#']) {
            return false;
        }
        let (mut filter, mut levels) = (self.levels(), topic.as_str().split('/'));
        loop {
            match (filter.next(), levels.next()) {
                (Some("#"), _) | (None, None) => return true,
                (Some("+"), Some(_)) => {}
                (Some(wanted), Some(level)) if wanted == level => {}
                _ => return false,
            }
        }
    }

    /// The filter of the topics that both filters match. None if there is no such topic.
    ///
    /// ```
    /// use topics::TopicFilter;
    /// let [a, b]: [TopicFilter; 2] = ["sensors/+/temp".parse()?, "sensors/kitchen/#".parse()?];
    /// assert_eq!(a.intersection(&b), Some("sensors/kitchen/temp".parse()?));
    /// # Ok::<(), topics::FilterError>(())
    /// ```
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        if self.hides(other) || other.hides(self) {
            return None;
        }
        let (mut own, mut others, mut both) = (self.levels(), other.levels(), Vec::new());
        loop {
            match (own.next(), others.next()) {
                (Some("#"), rest) => break both.extend(rest.into_iter().chain(others)),
                (rest, Some("#")) => break both.extend(rest.into_iter().chain(own)),
                (None, None) => break,
                (Some("+"), Some(level)) | (Some(level), Some("+")) => both.push(level),
                (Some(one), Some(level)) if one == level => both.push(level),
                _ => return None,
            }
        }
        Some(Self(both.join("/").into()))
    }
}

impl FromStr for TopicFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        if text.is_empty() {
            return Err(FilterError::Empty);
        }
        if text.len() > MAX_TOPIC_BYTES {
            return Err(FilterError::TooLong { bytes: text.len() });
        }
        if let Some(character) = text.chars().find(|c| c.is_control()) {
            return Err(FilterError::Character { character });
        }
        let mut levels = text.split('/').peekable();
        while let Some(level) = levels.next() {
            match level.find(['+', '#']) {
                None => {}
                Some(_) if level == "+" => {}
                Some(_) if level == "#" && levels.peek().is_none() => {}
                Some(_) if level == "#" => return Err(FilterError::NotLast),
                Some(at) => {
                    let wildcard = if level.as_bytes()[at] == b'+' { '+' } else { '#' };
                    return Err(FilterError::PartOfLevel { wildcard, level: level.to_owned() });
                }
            }
        }
        Ok(Self(text.into()))
    }
}

impl From<&TopicName> for TopicFilter {
    /// The filter that matches only this topic.
    fn from(topic: &TopicName) -> Self {
        Self(topic.as_str().into())
    }
}

impl TryFrom<String> for TopicFilter {
    type Error = FilterError;

    fn try_from(text: String) -> Result<Self, FilterError> {
        text.parse()
    }
}

impl From<TopicFilter> for String {
    fn from(filter: TopicFilter) -> Self {
        filter.0.as_ref().to_owned()
    }
}

impl fmt::Display for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    fn matches(filter: &str, topic: &str) -> bool {
        filter.parse::<TopicFilter>().unwrap().matches(&topic.parse().unwrap())
    }

    #[test]
    fn matches_as_documented() {
        for (filter, topic) in [
            ("a", "a"),
            ("a/#", "a"),
            ("a/#", "a/"),
            ("a/#", "a/b/c"),
            ("a/+", "a/"),
            ("a/+/c", "a//c"),
            ("+/#", "a"),
            ("+", "a"),
            ("#", "a/b"),
            ("$SYS/#", "$SYS/x"),
            ("/+", "/x"),
        ] {
            assert!(matches(filter, topic), "{filter} {topic}");
        }
        for (filter, topic) in [
            ("a", "b"),
            ("a/#", "ab"),
            ("a/+", "a"),
            ("a/+", "a/b/c"),
            ("+", "/x"),
            ("#", "$SYS"),
            ("+/x", "$SYS/x"),
            ("+/#", "$a/b"),
            ("a/b", "a"),
        ] {
            assert!(!matches(filter, topic), "{filter} {topic}");
        }
    }

    #[test]
    fn invalid_filters_are_refused() {
        let error = |text: &str| text.parse::<TopicFilter>().unwrap_err();
        assert_eq!(error(""), FilterError::Empty);
        assert_eq!(error(&"x".repeat(256)), FilterError::TooLong { bytes: 256 });
        assert_eq!(error("a\n"), FilterError::Character { character: '\n' });
        assert_eq!(error("#/a"), FilterError::NotLast);
        assert_eq!(error("a/b+/c"), FilterError::PartOfLevel { wildcard: '+', level: "b+".into() });
        assert_eq!(error("a/##"), FilterError::PartOfLevel { wildcard: '#', level: "##".into() });
    }

    #[test]
    fn a_name_is_a_filter_of_itself() {
        let filter: TopicFilter = "a/b".parse().unwrap();
        assert_eq!(filter.as_topic(), Some("a/b".parse().unwrap()));
        assert_eq!("a/+".parse::<TopicFilter>().unwrap().as_topic(), None);
    }

    /// All topics of up to four levels of this alphabet, with a level and a word that no filter of the test names.
    static TOPICS: LazyLock<Vec<TopicName>> = LazyLock::new(|| {
        let levels = ["", "a", "b", "$a"];
        let (mut names, mut last) = (Vec::new(), levels.map(str::to_owned).to_vec());
        for _ in 0..4 {
            names.extend(last.iter().filter_map(|name| name.parse().ok()));
            last = last.iter().flat_map(|name| levels.map(|level| format!("{name}/{level}"))).collect();
        }
        names
    });

    /// Filters of up to three levels, some with `#` behind them.
    fn small_filter() -> impl Strategy<Value = TopicFilter> {
        let levels = proptest::collection::vec(r"\+|a|\$a|", 0..4);
        (levels, any::<bool>()).prop_filter_map("no filter", |(mut levels, rest)| {
            levels.extend(rest.then(|| "#".to_owned()));
            levels.join("/").parse().ok()
        })
    }

    /// A plain model of the rules.
    fn model(filter: &[&str], topic: &[&str]) -> bool {
        match (filter, topic) {
            ([], []) => true,
            (["#"], _) => true,
            ([first, filter @ ..], [level, topic @ ..]) => {
                (*first == "+" || first == level) && model(filter, topic)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matches_as_the_model(
            filter in proptest::collection::vec(r"\+|[ab$]|\$a|", 1..5),
            rest in any::<bool>(),
            topic in proptest::collection::vec(r"[ab$]|\$a|", 1..5),
        ) {
            let mut filter: Vec<&str> = filter.iter().map(String::as_str).collect();
            if rest {
                filter.push("#");
            }
            let topic: Vec<&str> = topic.iter().map(String::as_str).collect();
            prop_assume!(filter != [""] && topic != [""]);
            let hidden = topic[0].starts_with('$') && matches!(filter[0], "+" | "#");
            let expected = !hidden && model(&filter, &topic);
            prop_assert_eq!(matches(&filter.join("/"), &topic.join("/")), expected);
        }

        #[test]
        fn intersections_and_covers_are_those_of_all_topics(one in small_filter(), other in small_filter()) {
            let both = TOPICS.iter().any(|topic| one.matches(topic) && other.matches(topic));
            prop_assert_eq!(one.intersects(&other), both);
            prop_assert_eq!(other.intersects(&one), both);
            let intersection = one.intersection(&other);
            let in_it = |topic: &TopicName| intersection.as_ref().is_some_and(|both| both.matches(topic));
            prop_assert!(TOPICS.iter().all(|topic| in_it(topic) == (one.matches(topic) && other.matches(topic))));
            let all = TOPICS.iter().all(|topic| one.matches(topic) || !other.matches(topic));
            prop_assert_eq!(one.covers(&other), all, "{} {}", one, other);
        }

        #[test]
        fn a_text_without_wildcards_is_a_filter_if_and_only_if_it_is_a_name(text in "[a-c/$\u{1}]{0,6}") {
            let filter = text.parse::<TopicFilter>();
            prop_assert_eq!(filter.is_ok(), text.parse::<TopicName>().is_ok());
        }
    }
}
