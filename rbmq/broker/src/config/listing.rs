//! All settings with their values and origins, for `rbmq config` and for the comparison of two configurations.

use rocketbufs::config::{Origin, example_toml};
use settings::{Configuration, Section};
use toml::Value;

use super::BrokerConfig;
use super::sources::file_parts;

/// A setting of the configuration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Setting {
    /// Section and field: `broker.max_topics`.
    pub name: String,
    /// The value in the form of a file; none if the setting is unset.
    pub value: Option<Value>,
    /// The origin of the value.
    pub origin: Origin,
}

impl BrokerConfig {
    /// Records the origin of a setting in the broker's own sections that was changed after the file was read.
    pub fn note_origin(&mut self, name: &str, origin: Origin) {
        self.sources.changed(name, origin);
    }

    /// The origin of a rule of access, by its number from 0.
    pub fn origin_of_access_rule(&self, rule: usize) -> Origin {
        let field = self.access.rules.get(rule).map_or("users", |rule| match rule.users.is_empty() {
            true => "roles",
            false => "users",
        });
        self.sources.origin_of_entry("access.rules", rule, field)
    }

    /// All settings in the order of the file, with their values and origins.
    pub fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for section in self.sections() {
            section.visit(&mut |spec, setting| {
                let (name, origin) = (spec.name.to_owned(), self.sources.origin(spec.name));
                settings.push(Setting { name, value: setting.value(), origin });
            });
        }
        self.framework.visit(&mut |spec, setting| {
            let (name, origin) = (spec.name.to_owned(), self.framework.origin(spec.name));
            settings.push(Setting { name, value: setting.value(), origin });
        });
        settings
    }

    /// A file with all settings at their defaults, commented out, and their descriptions.
    pub fn example() -> String {
        // A setting outside of all sections must come before the first section.
        let (defaults, mut text) = (Self::default(), String::new());
        defaults.outside.visit(&mut |spec, setting| text.push_str(&settings::example_setting(spec, setting)));
        defaults.sections()[1..].iter().for_each(|section| text.push_str(&settings::example(*section)));
        let text = text.replace('`', "");
        let (own, _) = file_parts();
        let framework = example_toml().replacen(
            "\n\n",
            &format!(
                "\n# {own} are the broker's own sections; they have no such variables (only log.level: RBMQ_LOG).\n\n"
            ),
            1,
        );
        let sections =
            framework.find("\n[").map_or(0, |at| framework[..at].rfind("\n\n").map_or(0, |at| at + 2));
        format!("{}{text}{}", &framework[..sections], &framework[sections..])
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        BrokerSettings, ClusterSettings, HttpSettings, KafkaSettings, LogSettings, OutsideSettings,
        S3Settings, UsersSettings,
    };
    use super::*;

    #[test]
    fn the_example_is_a_file_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rbmq.toml");
        for text in [BrokerConfig::example(), uncommented(&BrokerConfig::example())] {
            std::fs::write(&path, &text).unwrap();
            let config = BrokerConfig::load(Some(&path)).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert_eq!(config.outside, OutsideSettings::default());
            assert_eq!(config.broker, BrokerSettings::default());
            assert_eq!(config.users, UsersSettings::default());
            assert_eq!(config.kafka, KafkaSettings::default());
            assert_eq!(config.s3, S3Settings::default());
            assert_eq!(config.cluster, ClusterSettings::default());
            assert_eq!(config.log, LogSettings::default());
            assert_eq!(config.http, HttpSettings::default());
            assert_eq!(config.framework, rocketbufs::Config::default());
        }
    }

    /// Removes the `#` before every setting.
    fn uncommented(text: &str) -> String {
        let setting =
            |line: &str| line.starts_with('#') && !line.starts_with("# ") && !line.contains("(unset)");
        let lines = text.lines().map(|line| if setting(line) { &line[1..] } else { line });
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn numbers_outside_of_the_range_of_toml_are_text() {
        let mut config = BrokerConfig::default();
        config.broker.closed_linger_ms = u64::MAX;
        config.broker.drain_timeout_ms = i64::MAX as u64;
        let settings = config.settings();
        let of = |name: &str| settings.iter().find(|s| s.name == name).unwrap().value.clone().unwrap();
        assert_eq!(of("broker.closed_linger_ms"), Value::String(u64::MAX.to_string()));
        assert_eq!(of("broker.drain_timeout_ms"), Value::Integer(i64::MAX));
    }

    #[test]
    fn every_setting_has_its_origin() {
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
