//! `rbmq check`: the file of users, and whether a rule gives them something.

use access::Authenticator;
use rbmq_broker::BrokerConfig;

use super::finding::{Finding, Level};

pub(super) fn findings(config: &BrokerConfig) -> Vec<Finding> {
    if !config.users.is_required() {
        return Vec::new();
    }
    let mut findings = vec![file(config)];
    if config.access.rules.is_empty() {
        findings.push(Finding::new(
            "rules",
            Level::Warn,
            "none, with users ([[access.rules]])".into(),
            "Nobody may publish or subscribe.",
            "[[access.rules]] in the configuration file: docs/security/RIGHTS.md".into(),
        ));
    }
    findings
}

fn file(config: &BrokerConfig) -> Finding {
    match Authenticator::open(&config.users.options()) {
        Ok(_) => Finding::ok("users", "the files can be used"),
        Err(error) => Finding::new(
            "users",
            Level::Bad,
            error.to_string(),
            "The broker does not start, and a reload changes nothing.",
            "as the line says; rbmq check as the user of the broker: sudo -u rbmq".into(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_need_a_file_and_rules() {
        let mut config = BrokerConfig::default();
        assert!(findings(&config).is_empty());
        let dir = tempfile::tempdir().unwrap();
        config.users.file = dir.path().join("users.toml").to_str().unwrap().to_owned();
        let found = findings(&config);
        assert_eq!(found.iter().map(|one| one.level).collect::<Vec<_>>(), [Level::Bad, Level::Warn]);
        assert!(found[0].found.contains("rbmq passwd --users"), "{}", found[0].found);
    }
}
