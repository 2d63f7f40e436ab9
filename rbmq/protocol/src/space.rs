//! Spaces: all topics of a pattern live in one merged log.
//!
//! ```text
//!   devices/1/temp ┐
//!   devices/2/temp ┼──▶ log "$space/devices": records with the attribute *topic*
//!   devices/2/door ┘
//! ```
//!
//! A log costs a ring and a few tables, so a topic for each of 100,000 devices is too much; a name in a record costs its bytes. The log has
//! a name that no other topic has, and that says the pattern.

use topics::{MAX_TOPIC_BYTES, TopicFilter, TopicName};

/// The name of the log of the space of all topics, and the first level of the names of other logs.
const LOG: &str = "$space";

/// A pattern is none of a space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// The pattern is no prefix.
    #[error(
        "'{pattern}' is no pattern of a space: it is '#', or a name without wildcards and '/#' behind it"
    )]
    NoPrefix {
        /// The pattern.
        pattern: TopicFilter,
    },
    /// The topics are the broker's.
    #[error("'{pattern}' is no pattern of a space: names that begin with '$' are reserved for the broker")]
    Reserved {
        /// The pattern.
        pattern: TopicFilter,
    },
    /// The name of the log would be too long.
    #[error(
        "'{pattern}' is too long for a space: its log would have a name of {bytes} bytes, and the limit is {MAX_TOPIC_BYTES}"
    )]
    TooLong {
        /// The pattern.
        pattern: TopicFilter,
        /// The length of the name.
        bytes: usize,
    },
}

/// A space: the topics of the pattern `PREFIX/#` or `#`, whose records are in one log. Cloning copies two pointers.
///
/// ```
/// use rbmq_wire::Space;
/// let space = Space::new(&"devices/#".parse()?)?;
/// assert_eq!(space.log().as_str(), "$space/devices");
/// assert!(space.contains("devices/7/temp") && !space.contains("doors/7"));
/// assert_eq!(Space::of_log(space.log()), Some(space));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Space {
    pattern: TopicFilter,
    log: TopicName,
}

impl Space {
    /// The space of a pattern.
    ///
    /// # Errors
    /// The pattern is none of a space.
    pub fn new(pattern: &TopicFilter) -> Result<Self, SpaceError> {
        let prefix = match pattern.as_str() {
            "#" => None,
            text => {
                let none = || SpaceError::NoPrefix { pattern: pattern.clone() };
                Some(text.strip_suffix("/#").filter(|prefix| !prefix.contains('+')).ok_or_else(none)?)
            }
        };
        if prefix.is_some_and(|prefix| prefix.starts_with('$')) {
            return Err(SpaceError::Reserved { pattern: pattern.clone() });
        }
        let log = prefix.map_or(LOG.to_owned(), |prefix| format!("{LOG}/{prefix}"));
        let bytes = log.len();
        let log = log.parse().map_err(|_| SpaceError::TooLong { pattern: pattern.clone(), bytes })?;
        Ok(Self { pattern: pattern.clone(), log })
    }

    /// The space whose log has this name; none if it is the name of no log.
    pub fn of_log(log: &TopicName) -> Option<Self> {
        let pattern = match log.as_str().strip_prefix(LOG)? {
            "" => TopicFilter::all(),
            prefix => format!("{}/#", prefix.strip_prefix('/')?).parse().ok()?,
        };
        Self::new(&pattern).ok()
    }

    /// Whether a name is kept for logs of spaces.
    pub fn is_reserved(name: &TopicName) -> bool {
        name.as_str().strip_prefix(LOG).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The pattern of its topics.
    pub fn pattern(&self) -> &TopicFilter {
        &self.pattern
    }

    /// The name of its log.
    pub fn log(&self) -> &TopicName {
        &self.log
    }

    /// Whether a subscriber of the filter gets the log: the filter matches some topic of the space, or is the name of the log, whose subscriber
    /// wants all of it.
    pub fn is_wanted_by(&self, filter: &TopicFilter) -> bool {
        filter.as_str() == self.log.as_str() || filter.intersects(&self.pattern)
    }

    /// Whether the pattern matches a name. The name is not checked otherwise.
    pub fn contains(&self, name: &str) -> bool {
        match self.pattern.as_str().strip_suffix("/#") {
            None => !name.starts_with('$'),
            Some(prefix) => {
                name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(text: &str) -> TopicFilter {
        text.parse().unwrap()
    }

    #[test]
    fn a_log_has_the_name_of_its_pattern() {
        for (pattern, log) in
            [("#", "$space"), ("a/#", "$space/a"), ("a/b c/#", "$space/a/b c"), ("/#", "$space/")]
        {
            let space = Space::new(&filter(pattern)).unwrap();
            assert_eq!(space.log().as_str(), log);
            assert_eq!(Space::of_log(space.log()), Some(space.clone()));
            assert!(Space::is_reserved(space.log()));
        }
        for name in ["$spaces", "space/a", "a", "$space/$a"] {
            assert_eq!(Space::of_log(&name.parse().unwrap()), None, "{name}");
        }
        assert!(!Space::is_reserved(&"$spaces".parse().unwrap()));
    }

    #[test]
    fn other_patterns_are_refused() {
        let error = |text: &str| Space::new(&filter(text)).unwrap_err().to_string();
        for pattern in ["a", "+/#", "a/+/#", "a/+"] {
            assert!(error(pattern).contains("it is '#', or a name without wildcards"), "{pattern}");
        }
        assert!(error("$SYS/#").contains("reserved"));
        let long = "x".repeat(MAX_TOPIC_BYTES - 2);
        assert!(error(&format!("{long}/#")).contains("260 bytes, and the limit is 255"));
        assert!(Space::new(&filter(&format!("{}/#", &long[5..]))).is_ok());
    }

    proptest! {
        #[test]
        fn contains_what_its_pattern_matches(prefix in r"[ab/]{0,3}", all in any::<bool>(), name in r"[ab$/]{1,5}") {
            let pattern = if all { TopicFilter::all() } else { filter(&format!("{prefix}/#")) };
            let space = Space::new(&pattern).unwrap();
            prop_assert_eq!(space.contains(&name), pattern.matches(&name.parse().unwrap()));
        }
    }
}
