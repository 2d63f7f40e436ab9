//! The lines of the settings in a text, and the last origin of each value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Table;
use toml::de::{DeArray, DeTable, DeValue};

use super::error::{ConfigError, Origin, nearest};
use super::plain::message;

/// The last origin of each value. A value that the program assigned afterwards is recognised by its text, which differs.
#[derive(Debug, Clone, Default)]
pub struct Origins(BTreeMap<&'static str, (Origin, String)>);

impl Origins {
    pub(crate) fn remember(&mut self, name: &'static str, origin: Origin, value: String) {
        self.0.insert(name, (origin, value));
    }

    /// Returns the origin of a setting, and its value then.
    pub(crate) fn of(&self, name: &str) -> Option<(&Origin, &str)> {
        self.0.get(name).map(|(origin, value)| (origin, value.as_str()))
    }
}

/// The lines of the top-level names and of the fields of sections in a text.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    path: Option<PathBuf>,
    /// The offset of each line.
    starts: Vec<usize>,
    lines: BTreeMap<String, usize>,
    /// The line of each field in a list of tables, by names such as `broker.topics[0].pattern`.
    entries: BTreeMap<String, usize>,
}

impl Lines {
    /// The names with a line: `tcp`, `tcp.nodelay`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.lines.keys().map(String::as_str)
    }

    /// The place where a name was set, without a line if the text does not have the name.
    pub fn origin(&self, name: &str) -> Origin {
        self.file(self.lines.get(name).copied())
    }

    /// The place where a name was set; none if the text does not have the name.
    pub fn find(&self, name: &str) -> Option<Origin> {
        self.lines.get(name).map(|line| self.file(Some(*line)))
    }

    /// The place of a field in a list of tables.
    pub fn find_entry(&self, list: &str, entry: usize, field: &str) -> Option<Origin> {
        self.entries.get(&entry_name(list, entry, field)).map(|line| self.file(Some(*line)))
    }

    /// The place of an error of the TOML parser.
    pub fn of_error(&self, error: &toml::de::Error) -> Origin {
        self.file(error.span().map(|span| self.line(span.start)))
    }

    fn note(&mut self, name: String, at: usize) {
        let line = self.line(at);
        self.lines.insert(name, line);
    }

    fn note_entries(&mut self, list: &str, entries: &DeArray<'_>) {
        for (n, entry) in entries.iter().enumerate() {
            let DeValue::Table(fields) = entry.get_ref() else { continue };
            for field in fields.keys() {
                let line = self.line(field.span().start);
                self.entries.insert(entry_name(list, n, field.get_ref()), line);
            }
        }
    }

    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }

    fn file(&self, line: Option<usize>) -> Origin {
        Origin::File { path: self.path.clone(), line }
    }
}

fn entry_name(list: &str, entry: usize, field: &str) -> String {
    format!("{list}[{entry}].{field}")
}

/// Parses a text, and collects the lines.
///
/// # Errors
/// The text is not TOML.
pub fn parse(text: &str, path: Option<&Path>) -> Result<(Table, Lines), ConfigError> {
    let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let mut lines = Lines { path: path.map(Path::to_owned), starts, ..Lines::default() };
    let wrong = |error: toml::de::Error, lines: &Lines| ConfigError::Syntax {
        origin: lines.of_error(&error),
        message: message(&error, text),
    };
    let spanned = DeTable::parse(text).map_err(|error| wrong(error, &lines))?;
    let table: Table = toml::from_str(text).map_err(|error| wrong(error, &lines))?;
    for (name, value) in spanned.get_ref() {
        lines.note(name.get_ref().to_string(), name.span().start);
        let DeValue::Table(fields) = value.get_ref() else { continue };
        for (field, value) in fields {
            let name = format!("{}.{}", name.get_ref(), field.get_ref());
            if let DeValue::Array(entries) = value.get_ref() {
                lines.note_entries(&name, entries);
            }
            lines.note(name, field.span().start);
        }
    }
    Ok((table, lines))
}

/// Reads the parts of a file that a type has. Names at the top level that the type does not have may be ignored by the type.
///
/// # Errors
/// An error of serde with the line of the value that it refuses.
pub fn read_parts<T: DeserializeOwned>(text: &str, path: Option<&Path>) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| match parse(text, path) {
        Ok((_, lines)) => {
            ConfigError::Syntax { origin: lines.of_error(&error), message: message(&error, text) }
        }
        Err(error) => error,
    })
}

/// Refuses the names at the top level of a file that are not known.
///
/// # Errors
/// The first of them, with the nearest known name and its line.
pub fn refuse_unknown<'a>(
    names: &Table,
    known: impl Iterator<Item = &'a str> + Clone,
    lines: &Lines,
) -> Result<(), ConfigError> {
    match names.keys().find(|name| known.clone().all(|known| known != **name)) {
        None => Ok(()),
        Some(name) => {
            let nearest = nearest(name, known);
            Err(ConfigError::Unknown { name: name.clone(), origin: lines.origin(name), nearest })
        }
    }
}
