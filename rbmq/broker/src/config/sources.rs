//! The origins of the settings in the broker's own sections: the line of a file, or an argument.

use std::collections::BTreeMap;
use std::path::Path;

use rocketbufs::config::{ConfigError, Origin, SECTIONS, nearest};
use settings::{Lines, parse};

/// The names of the broker's own sections.
const OWN_SECTIONS: [&str; 10] =
    ["broker", "users", "access", "quotas", "audit", "kafka", "s3", "cluster", "log", "http"];

/// The broker's own settings outside of all sections.
const OUTSIDE: &str = "gateway";

/// The names of the broker's own sections, and of its settings outside of them.
pub(super) fn own_sections() -> impl Iterator<Item = &'static str> {
    OWN_SECTIONS.into_iter().chain([OUTSIDE])
}

/// The sections of a broker's file as text: the broker's own, and RocketBufs'.
pub fn file_parts() -> (String, String) {
    let listed = |sections: &[&str]| sections.iter().map(|name| format!("[{name}]")).collect::<Vec<_>>();
    (
        format!("{}, [[{OUTSIDE}]]", listed(&OWN_SECTIONS).join(", ")),
        format!("transport, {}", listed(&SECTIONS).join(", ")),
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
    pub(super) lines: Lines,
    /// Settings that were changed after the file was read.
    changed: BTreeMap<String, Origin>,
}

impl Sources {
    /// Finds the line of each name in a file.
    pub(super) fn of_file(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let (_, lines) = parse(text, Some(path))?;
        Ok(Self { lines, changed: BTreeMap::new() })
    }

    /// The origin of a setting.
    pub(super) fn origin(&self, name: &str) -> Origin {
        self.changed.get(name).cloned().or_else(|| self.lines.find(name)).unwrap_or(Origin::Default)
    }

    /// The origin of a field in a list of tables, or of the list if the field is not set.
    pub(super) fn origin_of_entry(&self, list: &str, entry: usize, field: &str) -> Origin {
        let of_file = || self.lines.find_entry(list, entry, field);
        let found = if self.changed.contains_key(list) { None } else { of_file() };
        found.unwrap_or_else(|| self.origin(list))
    }

    /// Records that a setting was changed after the file was read.
    pub(super) fn changed(&mut self, name: &str, origin: Origin) {
        self.changed.insert(name.to_owned(), origin);
    }
}
