//! The declaration of a setting.

use std::time::Duration;

use toml::Value;

use super::size::{SIZE_UNITS, parse_bytes};
use super::time::{TIME_UNITS, parse_time};

/// The part of a setting's description that is fixed when the program is built.
#[derive(Debug)]
pub struct Spec {
    /// Section and field: `tcp.nodelay`.
    pub name: &'static str,
    /// The field alone.
    pub field: &'static str,
    /// The unit of the number; empty for a setting that is no number.
    pub unit: &'static str,
    /// The permitted values.
    pub range: Range,
    /// The permitted values, with their unit, for people.
    pub expects: &'static str,
    /// The cost in memory and processor time; empty where the help says it.
    pub cost: &'static str,
    /// The effect, and what goes wrong at either end of the range.
    pub help: &'static str,
    /// Whether a running program applies a changed value.
    pub reloadable: bool,
}

impl Spec {
    /// The value of a text that is a number with a unit of its own: `64 MiB`, `10 s`. None if the text is no whole number
    /// of this setting's unit.
    pub(crate) fn number(&self, text: &str) -> Option<u64> {
        let unit = match self.unit {
            "bytes" => return parse_bytes(text),
            "s" => Duration::from_secs(1),
            "ms" => Duration::from_millis(1),
            "us" => Duration::from_micros(1),
            _ => return None,
        };
        let (time, unit) = (parse_time(text, unit)?.as_nanos(), unit.as_nanos());
        (time % unit == 0).then(|| u64::try_from(time / unit).ok()).flatten()
    }

    /// The value that a text from the environment or the command line means.
    pub(crate) fn value_of_text(&self, text: &str) -> Value {
        let text = text.trim();
        let parsed = match self.range {
            Range::Int { .. } => text.replace('_', "").parse().ok().map(Value::Integer),
            Range::Bool => text.parse().ok().map(Value::Boolean),
            Range::Word { .. } | Range::Text { .. } | Range::Choice(_) | Range::Any => None,
        };
        parsed.unwrap_or_else(|| Value::String(text.to_owned()))
    }

    /// The text of the error for a value of the wrong type.
    pub(crate) fn refusal(&self, value: &Value) -> String {
        let units = match (value, self.unit) {
            (Value::String(_), "bytes") => format!("; its units are {SIZE_UNITS}"),
            (Value::String(_), "s" | "ms" | "us") => format!("; its units are {TIME_UNITS}"),
            _ => String::new(),
        };
        format!("{} = {value}: it must be {}{units}", self.name, self.expects)
    }
}

/// The values that a setting takes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Range {
    /// A whole number.
    Int {
        /// Whether 0 is permitted below `min`; it then has a meaning of its own.
        zero: bool,
        /// The smallest number.
        min: u64,
        /// The largest number.
        max: u64,
    },
    /// `true` or `false`.
    Bool,
    /// Letters, digits, `_`, `-`.
    Word {
        /// The largest length.
        max_bytes: usize,
    },
    /// Any text without control characters: a path, a name.
    Text {
        /// The largest length.
        max_bytes: usize,
    },
    /// A word of this list.
    Choice(&'static [&'static str]),
    /// Every value of the field's type.
    Any,
}

/// The environment variable of a setting.
pub(crate) fn variable(prefix: &str, name: &str) -> String {
    format!("{prefix}{}", name.replace('.', "_").to_ascii_uppercase())
}
