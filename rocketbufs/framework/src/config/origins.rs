//! The lines of the settings in a text, and the last origin of each value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::Table;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Origin};

/// The last origin of each value. A value that the program assigned afterwards is recognised by its text, which differs.
#[derive(Debug, Clone, Default)]
pub struct Origins(BTreeMap<&'static str, (Origin, String)>);

impl Origins {
    pub(super) fn remember(&mut self, name: &'static str, origin: Origin, value: String) {
        self.0.insert(name, (origin, value));
    }

    /// Returns the origin of a setting, and its value then.
    pub(super) fn of(&self, name: &str) -> Option<(&Origin, &str)> {
        self.0.get(name).map(|(origin, value)| (origin, value.as_str()))
    }
}

/// The lines of the top-level names and of the fields of sections in a text.
#[derive(Debug, Default)]
pub(super) struct Lines {
    path: Option<PathBuf>,
    lines: BTreeMap<String, usize>,
}

impl Lines {
    /// Returns the place where a name was set.
    pub fn origin(&self, name: &str) -> Origin {
        Origin::File { path: self.path.clone(), line: self.lines.get(name).copied() }
    }
}

/// Parses a text, and collects the lines.
pub(super) fn parse(text: &str, path: Option<&Path>) -> Result<(Table, Lines), ConfigError> {
    let path = path.map(Path::to_owned);
    let line = |at: usize| 1 + text.as_bytes()[..at.min(text.len())].iter().filter(|b| **b == b'\n').count();
    let wrong = |error: toml::de::Error| ConfigError::Syntax {
        origin: Origin::File { path: path.clone(), line: error.span().map(|span| line(span.start)) },
        message: error.message().to_owned(),
    };
    let spanned = DeTable::parse(text).map_err(wrong)?;
    let table: Table = toml::from_str(text).map_err(wrong)?;
    let mut lines = BTreeMap::new();
    for (name, value) in spanned.get_ref() {
        lines.insert(name.get_ref().to_string(), line(name.span().start));
        if let DeValue::Table(fields) = value.get_ref() {
            for field in fields.keys() {
                let full = format!("{}.{}", name.get_ref(), field.get_ref());
                lines.insert(full, line(field.span().start));
            }
        }
    }
    Ok((table, Lines { path, lines }))
}
