//! Knobs: a knob's description, the values it takes, and how they are read and shown.

use std::time::Duration;

use toml::Value;

use super::time::parse_time;
use super::transport::TransportKind;

/// The prefix of the names of environment variables.
pub const ENV_PREFIX: &str = "ROCKETBUFS_";

/// A knob's description, from which the reference (docs/CONFIGURATION.md) and the commented example file are made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Knob {
    /// Section and field, as [`Config::set`](super::Config::set) takes it: `tcp.nodelay`.
    pub name: &'static str,
    /// The unit of the number; empty for a knob that is no number.
    pub unit: &'static str,
    /// The default, as it would stand in a file; `(unset)` where the default is to leave it out.
    pub default: String,
    /// The values it takes.
    pub range: String,
    /// The knob's cost, in memory and processor time.
    pub cost: &'static str,
    /// The knob's effect, and what goes wrong at either end of its range.
    pub help: &'static str,
}

impl Knob {
    /// The environment variable that sets it.
    ///
    /// ```
    /// let knobs = rocketbufs::config::knobs();
    /// let knob = knobs.iter().find(|k| k.name == "tcp.nodelay").unwrap();
    /// assert_eq!(knob.variable(), "ROCKETBUFS_TCP_NODELAY");
    /// ```
    pub fn variable(&self) -> String {
        variable(self.name)
    }
}

/// The environment variable of a knob.
pub(super) fn variable(name: &str) -> String {
    format!("{}{}", ENV_PREFIX, name.replace('.', "_").to_ascii_uppercase())
}

/// The part of a knob's description that is fixed when the program is built.
#[derive(Debug)]
pub(super) struct Spec {
    pub name: &'static str,
    pub unit: &'static str,
    pub range: Range,
    pub cost: &'static str,
    pub help: &'static str,
}

impl Spec {
    /// The values it takes, with their unit, for people.
    pub fn expects(&self) -> String {
        match &self.range {
            Range::Int { zero, min, max } => {
                let zero = if *zero { "0 or " } else { "" };
                format!("{zero}{min} to {max} {}", self.unit).trim_end().to_owned()
            }
            Range::Bool => "true or false".to_owned(),
            Range::Word { max_bytes } => {
                format!("a word of 1 to {max_bytes} letters, digits, '_' and '-'")
            }
            Range::Text { max_bytes } => {
                format!("a text of 1 to {max_bytes} bytes, without control characters")
            }
            Range::Choice(words) => format!("one of: {}", words.join(", ")),
        }
    }

    /// The value of a text that is a number with a unit of its own: `64 MiB`, `10 s`. None if the text is no whole number
    /// of this knob's unit.
    fn number(&self, text: &str) -> Option<u64> {
        let unit = match self.unit {
            "bytes" => return parse_bytes(text),
            "ms" => Duration::from_millis(1),
            "us" => Duration::from_micros(1),
            _ => return None,
        };
        let (time, unit) = (parse_time(text, unit)?.as_nanos(), unit.as_nanos());
        (time % unit == 0).then(|| u64::try_from(time / unit).ok()).flatten()
    }
}

/// The values a knob takes.
#[derive(Debug)]
pub(super) enum Range {
    /// A whole number; `zero`: also 0, which has a meaning of its own.
    Int { zero: bool, min: u64, max: u64 },
    /// `true` or `false`.
    Bool,
    /// Letters, digits, `_`, `-`.
    Word { max_bytes: usize },
    /// Any text without control characters: a path, a name.
    Text { max_bytes: usize },
    /// A word of this list.
    Choice(&'static [&'static str]),
}

/// The common interface of the settings' fields.
pub(super) trait Setting {
    /// Takes the value over if it is of this field's type. Its range is [`Setting::fits`]'s business.
    fn read(&mut self, value: &Value, spec: &Spec) -> bool;
    /// Back to the default of an optional field; false if the field is not optional.
    fn unset(&mut self) -> bool {
        false
    }
    /// The value for a file; none if it is left out.
    fn value(&self) -> Option<Value>;
    /// Whether the value is in the range.
    fn fits(&self, range: &Range) -> bool;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn read(&mut self, value: &Value, spec: &Spec) -> bool {
                let number = match value {
                    Value::Integer(number) => u64::try_from(*number).ok(),
                    Value::String(text) => spec.number(text),
                    _ => None,
                };
                match number.and_then(|n| <$type>::try_from(n).ok()) {
                    Some(number) => *self = number,
                    None => return false,
                }
                true
            }

            fn value(&self) -> Option<Value> {
                Some(Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX)))
            }

            fn fits(&self, range: &Range) -> bool {
                let &Range::Int { zero, min, max } = range else { return false };
                let number = *self as u64;
                (zero && number == 0) || (min..=max).contains(&number)
            }
        }
    )*};
}

number!(u32, u64, usize);

impl Setting for bool {
    fn read(&mut self, value: &Value, _: &Spec) -> bool {
        value.as_bool().map(|v| *self = v).is_some()
    }

    fn value(&self) -> Option<Value> {
        Some(Value::Boolean(*self))
    }

    fn fits(&self, range: &Range) -> bool {
        matches!(range, Range::Bool)
    }
}

impl Setting for String {
    fn read(&mut self, value: &Value, _: &Spec) -> bool {
        value.as_str().map(|v| v.clone_into(self)).is_some()
    }

    fn value(&self) -> Option<Value> {
        Some(Value::String(self.clone()))
    }

    fn fits(&self, range: &Range) -> bool {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        match range {
            Range::Word { max_bytes } => (1..=*max_bytes).contains(&self.len()) && self.bytes().all(word),
            Range::Text { max_bytes } => {
                (1..=*max_bytes).contains(&self.len()) && !self.contains(char::is_control)
            }
            Range::Choice(words) => words.contains(&self.as_str()),
            _ => false,
        }
    }
}

impl Setting for TransportKind {
    fn read(&mut self, value: &Value, _: &Spec) -> bool {
        value.as_str().and_then(|v| v.parse().ok()).map(|v| *self = v).is_some()
    }

    fn value(&self) -> Option<Value> {
        Some(Value::String(self.as_str().to_owned()))
    }

    fn fits(&self, range: &Range) -> bool {
        matches!(range, Range::Choice(words) if words.contains(&self.as_str()))
    }
}

impl<T: Setting + Default> Setting for Option<T> {
    fn read(&mut self, value: &Value, spec: &Spec) -> bool {
        let mut inner = T::default();
        let good = inner.read(value, spec);
        if good {
            *self = Some(inner);
        }
        good
    }

    fn unset(&mut self) -> bool {
        *self = None;
        true
    }

    fn value(&self) -> Option<Value> {
        self.as_ref().and_then(Setting::value)
    }

    fn fits(&self, range: &Range) -> bool {
        self.as_ref().is_none_or(|inner| inner.fits(range))
    }
}

/// The units that follow a number of bytes: of 1024 with an `i` or without the `B`, of 1000 with the `B` alone.
const UNITS: [(&str, u64); 15] = [
    ("", 1),
    ("B", 1),
    ("k", 1 << 10),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("T", 1 << 40),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// A number of bytes as people write it: `4096`, `64 KiB` or `64k` (of 1024), `64 kB` (of 1000); none if it is none, or
/// more than 64 bits. Every setting and argument that is a size is read by this.
///
/// ```
/// use rocketbufs::config::parse_bytes;
/// assert_eq!(["64k", "64 KiB", "64 kB", "1_000", "64 kb"].map(parse_bytes), [
///     Some(65_536), Some(65_536), Some(64_000), Some(1_000), None,
/// ]);
/// ```
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS.into_iter().find(|(name, _)| *name == unit.trim_start())?;
    number.replace('_', "").parse::<u64>().ok()?.checked_mul(factor)
}

/// The value of this knob that a text from the environment or the command line means.
pub(super) fn value_of_text(text: &str, spec: &Spec) -> Value {
    let text = text.trim();
    let number = || text.replace('_', "").parse().ok().map(Value::Integer);
    let parsed = match spec.range {
        Range::Int { .. } => number(),
        Range::Bool => text.parse().ok().map(Value::Boolean),
        Range::Word { .. } | Range::Text { .. } | Range::Choice(_) => None,
    };
    parsed.unwrap_or_else(|| Value::String(text.to_owned()))
}
