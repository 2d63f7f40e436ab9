//! The origin of a value, and errors of a configuration.

use std::fmt;
use std::path::PathBuf;

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The built-in default.
    Default,
    /// A configuration file or text.
    File {
        /// The file; none for a text.
        path: Option<PathBuf>,
        /// The line, from 1; none if unknown.
        line: Option<usize>,
    },
    /// An environment variable, by its name.
    Variable(String),
    /// An argument of the program.
    Argument,
    /// An assignment by the program.
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

/// An error of a configuration, which its author has to correct. Nothing was started with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The text is not TOML.
    #[error("{origin}: {message}")]
    Syntax {
        /// The place.
        origin: Origin,
        /// The error of the parser.
        message: String,
    },
    /// A setting does not exist.
    #[error("there is no setting '{name}' ({origin}){}", hint(nearest.as_deref()))]
    Unknown {
        /// The name.
        name: String,
        /// The place.
        origin: Origin,
        /// An existing setting with a similar name.
        nearest: Option<String>,
    },
    /// A value has the wrong type or is out of range.
    #[error("{name} = {value} ({origin}): it must be {expects}")]
    Value {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The origin of the value.
        origin: Origin,
        /// The valid values.
        expects: String,
    },
    /// Two settings contradict each other.
    #[error("{0}")]
    Relation(Box<Relation>),
}

/// Two settings that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// The setting.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// The origin of the value.
    pub origin: Origin,
    /// The required relation to the other setting, for example "at most".
    pub must_be: &'static str,
    /// The other setting.
    pub other: &'static str,
    /// Its value.
    pub other_value: u64,
    /// The origin of that value.
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

/// The longest name that is compared, in bytes. The cost of a comparison grows with the name.
const MAX_COMPARED: usize = 256;

/// Returns the candidate that is most similar to `name`, if one is similar enough. For programs that report unknown settings of
/// their own.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    if name.len() > MAX_COMPARED {
        return None;
    }
    let close = 1 + name.len() / 4;
    let best = candidates.map(|c| (distance(name, c), c)).min()?;
    (best.0 <= close).then(|| best.1.to_owned())
}

/// Returns the number of characters to insert, delete or replace that turns one text into the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
