//! Secrets in memory stay out of core dumps.
//!
//! A core file, and a debugger of the same user, would have the passwords, tokens and keys of a process. From the moment that a
//! command has one, the kernel writes no core file of it, and other processes of its user can neither attach to it nor read its
//! memory. (The unit of systemd says the same for a broker.) The files of `/proc/PID` then belong to root, except to the process
//! itself.

use rbmq_broker::BrokerConfig;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use tracing::warn;

/// The variable of those who want a core dump.
const VARIABLE: &str = "RBMQ_CORE_DUMPS";

/// From here on the process has secrets. Does nothing if the variable RBMQ_CORE_DUMPS is 1.
pub(super) fn protect() {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "1") {
        return;
    }
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // The limit alone does not hold a core dump back that goes to a program (core_pattern), and the flag alone may be reset.
    let limited = setrlimit(Resource::Core, none).map_err(std::io::Error::from);
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(std::io::Error::from);
    if let Err(error) = limited.and(hidden) {
        warn!("secrets may be in core dumps of this process: {error}");
    }
}

/// Whether a broker with this configuration has secrets.
pub(super) fn are_in(config: &BrokerConfig) -> bool {
    let set = |name: &str| {
        let found = config.settings().into_iter().find(|setting| setting.name == name);
        found.and_then(|setting| setting.value).is_some_and(|value| value.as_str() != Some(""))
    };
    let http = !(config.http.token_file.is_empty() && config.http.key.is_empty());
    config.users.is_required() || http || set("tls.key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_keys_and_tokens_are_secrets() {
        let mut config = BrokerConfig::default();
        assert!(!are_in(&config));
        config.http.token_file = "/etc/rbmq/http-token".into();
        assert!(are_in(&config));
        let mut config = BrokerConfig::default();
        config.http.key = "/etc/rbmq/tls/http-key.pem".into();
        assert!(are_in(&config));
        let mut config = BrokerConfig::default();
        config.users.file = "/etc/rbmq/users.toml".into();
        assert!(are_in(&config));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rbmq.toml");
        std::fs::write(&path, "[tls]\nkey = '/etc/rbmq/key.pem'\n").unwrap();
        assert!(are_in(&BrokerConfig::load(Some(&path)).unwrap()));
    }
}
