//! Which processes have secrets.

use rbmq_broker::{BrokerConfig, UpstreamSettings};
use tracing::warn;

/// The variable of users that want a core dump.
const VARIABLE: &str = "RBMQ_CORE_DUMPS";

/// From here on the process has secrets, which stay out of core dumps.
pub(super) fn protect() {
    if let Err(error) = commands::secrets::protect(VARIABLE) {
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
    let logs_in = |at: &UpstreamSettings| at.password_file.is_some() || at.token_file.is_some();
    let gateway = config.gateways().iter().any(|gateway| gateway.key.is_some());
    let upstream = config.broker.upstream.iter().any(logs_in);
    config.users.is_required()
        || http
        || gateway
        || upstream
        || ["tls.key", "cluster.key", "cluster.password_file"].into_iter().any(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_keys_tokens_and_passwords_are_secrets() {
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
        let written = |text: &str| {
            std::fs::write(&path, text).unwrap();
            BrokerConfig::load(Some(&path)).unwrap()
        };
        assert!(are_in(&written("[tls]\nkey = '/etc/rbmq/key.pem'\n")));
        assert!(are_in(&written("[[gateway]]\nprotocol = 'resp'\ncert = 'cert.pem'\nkey = 'key.pem'\n")));
        let upstream = "[[broker.upstream]]\naddress = '127.0.0.1:7411'\n";
        assert!(!are_in(&written(upstream)));
        assert!(are_in(&written(&format!("{upstream}token_file = '/etc/rbmq/token'\n"))));
        assert!(are_in(&written(&format!("{upstream}user = 'a'\npassword_file = '/etc/rbmq/password'\n"))));
    }
}
