//! Names of topics.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Most bytes of a topic's name.
pub const MAX_TOPIC_BYTES: usize = 255;

/// A text is not a valid topic name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The text is empty.
    #[error("a topic's name cannot be empty")]
    Empty,
    /// The text is too long.
    #[error("a topic's name of {bytes} bytes is too long; the limit is {MAX_TOPIC_BYTES} bytes")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The text has a character that names may not have.
    #[error("a topic's name cannot contain {character:?} (control characters, '+' and '#' are reserved)")]
    Character {
        /// The first such character.
        character: char,
    },
}

/// The name of a topic: 1 to 255 bytes of UTF-8 without control characters, `+` or `#` (the wildcards of filters).
/// Cloning copies a pointer.
///
/// ```
/// use topics::TopicName;
/// let topic: TopicName = "sensors/kitchen".parse()?;
/// assert_eq!(topic.as_str(), "sensors/kitchen");
/// assert!("a+b".parse::<TopicName>().is_err());
/// # Ok::<(), topics::TopicError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicName(Arc<str>);

impl TopicName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name is found by its text.
impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for TopicName {
    type Err = TopicError;

    fn from_str(text: &str) -> Result<Self, TopicError> {
        if text.is_empty() {
            return Err(TopicError::Empty);
        }
        if text.len() > MAX_TOPIC_BYTES {
            return Err(TopicError::TooLong { bytes: text.len() });
        }
        match text.chars().find(|c| c.is_control() || matches!(c, '+' | '#')) {
            Some(character) => Err(TopicError::Character { character }),
            None => Ok(Self(text.into())),
        }
    }
}

impl serde::Serialize for TopicName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_names_are_refused() {
        assert_eq!("".parse::<TopicName>(), Err(TopicError::Empty));
        assert_eq!("x".repeat(256).parse::<TopicName>(), Err(TopicError::TooLong { bytes: 256 }));
        for bad in ["a\nb", "a+", "#", "\u{7f}"] {
            assert!(matches!(bad.parse::<TopicName>(), Err(TopicError::Character { .. })), "{bad:?}");
        }
        assert!("x".repeat(255).parse::<TopicName>().is_ok());
        assert!("Grüße/日本".parse::<TopicName>().is_ok());
    }
}
