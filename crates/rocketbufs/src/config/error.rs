//! Where a setting came from, and what can be wrong with it.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A configuration file or text.
    File {
        /// The file; none if it was a text.
        path: Option<PathBuf>,
        /// The line, from 1; none if it is not known.
        line: Option<usize>,
    },
    /// This environment variable.
    Variable(String),
    /// An argument of the program ([`Config::set`](super::Config::set)).
    Argument,
    /// The program assigned the field.
    Program,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "the default"),
            Self::File { path: Some(path), line: Some(line) } => write!(f, "{}, line {line}", path.display()),
            Self::File { path: Some(path), line: None } => write!(f, "{}", path.display()),
            Self::File { path: None, line: Some(line) } => write!(f, "configuration, line {line}"),
            Self::File { path: None, line: None } => write!(f, "configuration"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Argument => write!(f, "argument"),
            Self::Program => write!(f, "set by the program"),
        }
    }
}

/// What is wrong with a configuration: the fault of whoever wrote it. Nothing was started with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is not TOML.
    #[error("{origin}: {message}")]
    Syntax {
        /// Where.
        origin: Origin,
        /// What the parser said.
        message: String,
    },
    /// There is no such setting.
    #[error("there is no setting '{name}' ({origin}){}", hint(nearest.as_deref()))]
    Unknown {
        /// What was set.
        name: String,
        /// Where.
        origin: Origin,
        /// A setting with a similar name.
        nearest: Option<String>,
    },
    /// A value has the wrong type or is out of range.
    #[error("{name} = {value} ({origin}): it must be {expects}")]
    Value {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// Where it came from.
        origin: Origin,
        /// The values it takes.
        expects: String,
    },
    /// Two settings do not go together.
    #[error("{0}")]
    Relation(Box<Relation>),
}

/// Two settings that do not go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// A setting.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// Where it came from.
    pub origin: Origin,
    /// What it must be in relation to the other: "at most".
    pub must_be: &'static str,
    /// The other setting.
    pub other: &'static str,
    /// Its value.
    pub other_value: u64,
    /// Where that came from.
    pub other_origin: Origin,
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({}): it must be {} ", self.name, self.value, self.origin, self.must_be)?;
        write!(f, "{} = {} ({})", self.other, self.other_value, self.other_origin)
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean '{name}'?")).unwrap_or_default()
}

/// The candidate that looks most like `name`, if one is close: for errors of those who have settings of their own.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    let close = 1 + name.len() / 4;
    let best = candidates.map(|c| (distance(name, c), c)).min()?;
    (best.0 <= close).then(|| best.1.to_owned())
}

/// How many single characters have to be put in, taken out or exchanged to make one of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
