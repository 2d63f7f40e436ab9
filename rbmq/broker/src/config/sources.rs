//! The origins of the settings in the broker's own sections: the line of a file, or an argument.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rocketbufs::config::{ConfigError, Origin, SECTIONS, nearest};
use toml::de::{DeArray, DeTable, DeValue};

use super::access::AccessSettings;
use super::broker::BrokerSettings;
use super::http::HttpSettings;
use super::kafka::KafkaSettings;
use super::quotas::QuotaSettings;
use super::sections::{AuditSettings, LogSettings};
use super::users::UsersSettings;

/// The broker's own sections and their fields.
const OWN_FIELDS: [(&str, &[(&str, &str)]); 8] = [
    ("broker", BrokerSettings::FIELDS),
    ("users", UsersSettings::FIELDS),
    ("access", AccessSettings::FIELDS),
    ("quotas", QuotaSettings::FIELDS),
    ("audit", AuditSettings::FIELDS),
    ("kafka", KafkaSettings::FIELDS),
    ("log", LogSettings::FIELDS),
    ("http", HttpSettings::FIELDS),
];

/// The names of the broker's own sections.
pub(super) fn own_sections() -> impl Iterator<Item = &'static str> {
    OWN_FIELDS.iter().map(|(section, _)| *section)
}

/// The sections of a broker's file as text: the broker's own, and RocketBufs'.
pub fn file_parts() -> (String, String) {
    let listed = |sections: Vec<&str>| sections.iter().map(|name| format!("[{name}]")).collect::<Vec<_>>();
    (
        listed(own_sections().collect()).join(", "),
        format!("transport, {}", listed(SECTIONS.into()).join(", ")),
    )
}

/// The section with the most similar name, and all sections.
pub(super) fn alternatives_to(name: &str) -> String {
    let (own, framework) = file_parts();
    let near = nearest(name, own_sections().chain(SECTIONS).chain(["transport"]));
    let hint = near.map(|near| format!("did you mean '{near}'? ")).unwrap_or_default();
    format!("{hint}there are {own}, and RocketBufs' {framework}")
}

/// The origin of each setting in the broker's own sections that doesn't have its default.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    path: Option<PathBuf>,
    /// The offset of each line of the file.
    starts: Vec<usize>,
    lines: BTreeMap<String, usize>,
    /// The line of each field in a list of tables, by names such as `broker.topics[0].pattern`.
    entries: BTreeMap<String, usize>,
    /// Settings that were changed after the file was read.
    changed: BTreeMap<String, Origin>,
}

impl Sources {
    /// Finds the line of each name in a file.
    pub(super) fn of_file(text: &str, path: &Path) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut sources = Self { path: Some(path.to_owned()), starts, ..Self::default() };
        // Invalid TOML was refused before.
        let Ok(table) = DeTable::parse(text) else { return sources };
        for (name, value) in table.get_ref() {
            sources.note(name.get_ref().to_string(), name.span().start);
            let DeValue::Table(fields) = value.get_ref() else { continue };
            for (field, value) in fields {
                let name = format!("{}.{}", name.get_ref(), field.get_ref());
                if let DeValue::Array(entries) = value.get_ref() {
                    sources.note_entries(&name, entries);
                }
                sources.note(name, field.span().start);
            }
        }
        sources
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

    /// The origin of a setting.
    pub(super) fn origin(&self, name: &str) -> Origin {
        let line = || self.lines.get(name).map(|line| self.file(Some(*line)));
        self.changed.get(name).cloned().or_else(line).unwrap_or(Origin::Default)
    }

    /// The origin of a field in a list of tables, or of the list if the field is not set.
    pub(super) fn origin_of_entry(&self, list: &str, entry: usize, field: &str) -> Origin {
        match self.entries.get(&entry_name(list, entry, field)) {
            Some(line) if !self.changed.contains_key(list) => self.file(Some(*line)),
            _ => self.origin(list),
        }
    }

    /// Refuses unknown names in the broker's own sections. The error suggests the most similar name, which the error of the
    /// TOML parser doesn't.
    pub(super) fn check_names(&self) -> Result<(), ConfigError> {
        for name in self.lines.keys() {
            let Some((section, field)) = name.split_once('.') else { continue };
            let Some((_, fields)) = OWN_FIELDS.iter().find(|(own, _)| *own == section) else { continue };
            if fields.iter().all(|(known, _)| *known != field) {
                let nearest = nearest(field, fields.iter().map(|(known, _)| *known));
                let nearest = nearest.map(|known| format!("{section}.{known}"));
                return Err(ConfigError::Unknown { name: name.clone(), origin: self.origin(name), nearest });
            }
        }
        Ok(())
    }

    /// Records that a setting was changed after the file was read.
    pub(super) fn changed(&mut self, name: &str, origin: Origin) {
        self.changed.insert(name.to_owned(), origin);
    }

    /// The line of an offset in the file.
    pub(super) fn line_of(&self, at: Option<usize>) -> Origin {
        self.file(at.map(|at| self.line(at)))
    }

    fn file(&self, line: Option<usize>) -> Origin {
        Origin::File { path: self.path.clone(), line }
    }
}

fn entry_name(list: &str, entry: usize, field: &str) -> String {
    format!("{list}[{entry}].{field}")
}
