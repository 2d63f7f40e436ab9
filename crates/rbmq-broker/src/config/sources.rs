//! Every setting with its value and who set it: what `rbmq config` shows, and what two configurations differ in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rocketbufs::config::{ConfigError, Origin, SECTIONS, example_toml, knobs, nearest};
use serde::Serialize;
use toml::de::{DeArray, DeTable, DeValue};
use toml::{Table, Value};

use super::{BrokerConfig, BrokerSettings, HttpSettings, LogSettings};

/// A setting as it is in force.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Setting {
    /// Section and field: `broker.max_topics`.
    pub name: String,
    /// The value as it would stand in a file; none if it is unset.
    pub value: Option<Value>,
    /// Who set it.
    pub origin: Origin,
}

/// The broker's own sections and what is in them.
const OWN_FIELDS: [(&str, &[(&str, &str)]); 3] =
    [("broker", BrokerSettings::FIELDS), ("log", LogSettings::FIELDS), ("http", HttpSettings::FIELDS)];

/// The names of the broker's own sections.
pub(super) fn own_sections() -> impl Iterator<Item = &'static str> {
    OWN_FIELDS.iter().map(|(section, _)| *section)
}

/// What stands in a broker's file, as people write it: the broker's own sections, and what is RocketBufs'.
pub fn file_parts() -> (String, String) {
    let listed = |sections: Vec<&str>| sections.iter().map(|name| format!("[{name}]")).collect::<Vec<_>>();
    (
        listed(own_sections().collect()).join(", "),
        format!("transport, {}", listed(SECTIONS.into()).join(", ")),
    )
}

/// What there is instead of a name that stands where sections do.
pub(super) fn instead_of(name: &str) -> String {
    let (own, framework) = file_parts();
    let near = nearest(name, own_sections().chain(SECTIONS).chain(["transport"]));
    let hint = near.map(|near| format!("did you mean '{near}'? ")).unwrap_or_default();
    format!("{hint}there are {own}, and RocketBufs' {framework}")
}

/// Who set what in the broker's own sections, if it was not left at its default.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    path: Option<PathBuf>,
    /// Where each line of the file begins.
    starts: Vec<usize>,
    lines: BTreeMap<String, usize>,
    /// The fields of the tables of a list, as `broker.topics[0].pattern`, and on which line they stand.
    entries: BTreeMap<String, usize>,
    changed: BTreeMap<String, Origin>,
}

impl Sources {
    /// Notes on which line of a file each name stands.
    pub(super) fn of_file(text: &str, path: &Path) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut sources = Self { path: Some(path.to_owned()), starts, ..Self::default() };
        // What is no TOML has been refused before.
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

    /// Who set a name.
    pub(super) fn origin(&self, name: &str) -> Origin {
        let line = || self.lines.get(name).map(|line| self.file(Some(*line)));
        self.changed.get(name).cloned().or_else(line).unwrap_or(Origin::Default)
    }

    /// Who set a field of a table of a list; who set the list, if nobody set that field.
    pub(super) fn origin_of_entry(&self, list: &str, entry: usize, field: &str) -> Origin {
        match self.entries.get(&entry_name(list, entry, field)) {
            Some(line) if !self.changed.contains_key(list) => self.file(Some(*line)),
            _ => self.origin(list),
        }
    }

    /// Refuses names in the broker's own sections that are none, before somebody else does who does not know the nearest.
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

    /// The line of the file in which an octet stands.
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

impl BrokerConfig {
    /// Remembers that a setting of the broker's own sections was set by somebody else than the file.
    pub fn note_origin(&mut self, name: &str, origin: Origin) {
        self.sources.changed.insert(name.to_owned(), origin);
    }

    /// Every setting in the order of the file, with its value and who set it.
    pub fn settings(&self) -> Vec<Setting> {
        let own = [
            ("broker", table(&self.broker), BrokerSettings::FIELDS),
            ("log", table(&self.log), LogSettings::FIELDS),
            ("http", table(&self.http), HttpSettings::FIELDS),
        ];
        let mut settings = Vec::new();
        for (section, mut values, fields) in own {
            for (field, _) in fields {
                let name = format!("{section}.{field}");
                let origin = self.sources.origin(&name);
                settings.push(Setting { value: values.remove(*field), origin, name });
            }
        }
        let framework = table(&self.framework);
        for knob in knobs() {
            let value = match knob.name.split_once('.') {
                None => framework.get(knob.name),
                Some((section, field)) => framework.get(section).and_then(|section| section.get(field)),
            };
            let origin = self.framework.origin(knob.name);
            settings.push(Setting { name: knob.name.to_owned(), value: value.cloned(), origin });
        }
        settings
    }

    /// A file with every setting at its default, commented out, and what it does.
    pub fn example() -> String {
        let mut text = String::new();
        let default = Self::default();
        for (section, about, fields, values) in [
            ("broker", BrokerSettings::ABOUT, BrokerSettings::FIELDS, table(&default.broker)),
            ("log", LogSettings::ABOUT, LogSettings::FIELDS, table(&default.log)),
            ("http", HttpSettings::ABOUT, HttpSettings::FIELDS, table(&default.http)),
        ] {
            text.push_str(&format!("{}[{section}]\n\n", comment(about)));
            for (field, help) in fields {
                let value = values.get(*field).map_or_else(|| "(unset)".to_owned(), Value::to_string);
                text.push_str(&format!("{}#{field} = {value}\n\n", comment(help)));
            }
        }
        // A setting outside of all sections must come before the first of them.
        let (own, _) = file_parts();
        let framework = example_toml().replacen(
            "\n\n",
            &format!(
                "\n# {own} are the broker's own and take no such variables (only log.level: RBMQ_LOG).\n\n"
            ),
            1,
        );
        let sections =
            framework.find("\n[").map_or(0, |at| framework[..at].rfind("\n\n").map_or(0, |at| at + 2));
        format!("{}{text}{}", &framework[..sections], &framework[sections..])
    }
}

/// A section as a table. What is unset is not in it.
pub(super) fn table(section: &impl Serialize) -> Table {
    let json = serde_json::to_value(section).expect("settings are numbers, words and tables");
    match value(json) {
        Some(Value::Table(table)) => table,
        _ => Table::new(),
    }
}

/// The form in TOML. A number that a program set and no file could have is a text.
fn value(json: serde_json::Value) -> Option<Value> {
    use serde_json::Value as Json;
    Some(match json {
        Json::Null => return None,
        Json::Bool(yes) => Value::Boolean(yes),
        Json::Number(n) => match (n.as_i64(), n.is_f64().then(|| n.as_f64()).flatten()) {
            (Some(n), _) => Value::Integer(n),
            (None, Some(n)) => Value::Float(n),
            (None, None) => Value::String(n.to_string()),
        },
        Json::String(text) => Value::String(text),
        Json::Array(values) => Value::Array(values.into_iter().filter_map(value).collect()),
        Json::Object(fields) => {
            Value::Table(fields.into_iter().filter_map(|(name, of)| Some((name, value(of)?))).collect())
        }
    })
}

fn comment(help: &str) -> String {
    help.trim().lines().map(|line| format!("# {}\n", line.trim().replace('`', ""))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_file_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rbmq.toml");
        for text in [BrokerConfig::example(), uncommented(&BrokerConfig::example())] {
            std::fs::write(&path, &text).unwrap();
            let config = BrokerConfig::load(Some(&path)).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert_eq!(config.broker, BrokerSettings::default());
            assert_eq!(config.log, LogSettings::default());
            assert_eq!(config.http, HttpSettings::default());
            assert_eq!(config.framework, rocketbufs::Config::default());
        }
    }

    /// Takes the `#` before every setting away, as its readers are told to.
    fn uncommented(text: &str) -> String {
        let setting =
            |line: &str| line.starts_with('#') && !line.starts_with("# ") && !line.contains("(unset)");
        let lines = text.lines().map(|line| if setting(line) { &line[1..] } else { line });
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn numbers_that_no_file_can_have_are_told_as_text() {
        let mut config = BrokerConfig::default();
        config.broker.closed_linger_ms = u64::MAX;
        config.broker.drain_timeout_ms = i64::MAX as u64;
        let settings = config.settings();
        let of = |name: &str| settings.iter().find(|s| s.name == name).unwrap().value.clone().unwrap();
        assert_eq!(of("broker.closed_linger_ms"), Value::String(u64::MAX.to_string()));
        assert_eq!(of("broker.drain_timeout_ms"), Value::Integer(i64::MAX));
    }

    #[test]
    fn every_setting_says_who_set_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rbmq.toml");
        std::fs::write(&path, "# head\n[tcp]\nnodelay = false\n[broker]\n\nmax_topics = 7\n").unwrap();
        let mut config = BrokerConfig::load(Some(&path)).unwrap();
        config.note_origin("broker.listen", Origin::Argument);
        let settings = config.settings();
        let of = |name: &str| settings.iter().find(|s| s.name == name).unwrap();
        let line = |line| Origin::File { path: Some(path.clone()), line: Some(line) };
        assert_eq!(of("broker.max_topics").value, Some(Value::Integer(7)));
        assert_eq!(of("broker.max_topics").origin, line(6));
        assert_eq!(of("tcp.nodelay").origin, line(3));
        assert_eq!(of("broker.listen").origin, Origin::Argument);
        assert_eq!(of("broker.max_publishers").origin, Origin::Default);
        assert_eq!(of("tcp.congestion_control").value, None);
    }
}
