//! The `[users]` section: which users the broker knows.

use std::path::PathBuf;
use std::time::Duration;

use access::{AccessOptions, JwtOptions};
use serde::{Deserialize, Serialize};

use super::error::BrokerConfigError;

described! {
/// The `[users]` section: which users the broker knows, and how their logins are checked. Without a file of users every client is
/// anonymous.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UsersSettings {
    /// File of the users and their tokens, as `rbmq passwd` and `rbmq token` write it. Only its owner and its group may read it. A
    /// reload reads it again. Default "": there are no users, and every client that reaches the address is let in. Otherwise
    /// every client must log in.
    pub file: String,
    /// Time for which a password that was right is not checked again, in milliseconds. Default 300,000 (5 minutes), at most 1 hour.
    /// 0: every connection costs a check, about 50 ms of a processor. Too small: clients that all connect again wait for
    /// each other. The broker remembers no password, but a hash with a random key of the process.
    #[serde(deserialize_with = "super::sizes::millis")]
    pub password_cache_ms: u32,
    /// Time within which a password must have been checked, in milliseconds. Default 5,000, 100 to 600,000. Clients give up after
    /// their `session.connect_timeout_ms`.
    #[serde(deserialize_with = "super::sizes::millis")]
    pub login_timeout_ms: u32,
    /// Largest number of passwords that wait to be checked, of all addresses. Default 64, 1 to 4,096. At the limit, the address with
    /// the most waiting logins is refused. Too large: a login waits longer than clients do.
    pub max_waiting_logins: usize,
    /// Key file of the token issuer: PEM public key (RSA: RS256, P-256: ES256, Ed25519: EdDSA), or HS256 secret. Default "": no JWTs.
    /// Needs `jwt_issuer` and `jwt_audience`. If set, every client must log in, even without `users.file`.
    pub jwt_key: String,
    /// Issuer of the tokens (`iss`). Default "".
    pub jwt_issuer: String,
    /// Audience that the tokens must be for (`aud`): the name of this broker at the issuer. Default "".
    pub jwt_audience: String,
    /// Claim of the tokens with the roles of the user, a list of names. Default "roles".
    pub jwt_roles: String,
    /// Threads that check passwords. Default 2, 1 to 16. Each needs 19 MiB while it checks a password that `rbmq passwd` has
    /// written, and at most 64 MiB. Too many: logins take the processors of the data. Needs a restart.
    pub login_threads: usize,
}
}

impl Default for UsersSettings {
    fn default() -> Self {
        Self {
            file: String::new(),
            password_cache_ms: 300_000,
            login_timeout_ms: 5_000,
            max_waiting_logins: 64,
            jwt_key: String::new(),
            jwt_issuer: String::new(),
            jwt_audience: String::new(),
            jwt_roles: "roles".into(),
            login_threads: 2,
        }
    }
}

impl UsersSettings {
    /// Whether clients have to log in.
    pub fn is_required(&self) -> bool {
        !self.file.is_empty() || !self.jwt_key.is_empty()
    }

    /// The options of the library that checks logins.
    pub fn options(&self) -> AccessOptions {
        AccessOptions {
            jwt: (!self.jwt_key.is_empty()).then(|| JwtOptions {
                key: PathBuf::from(&self.jwt_key),
                issuer: self.jwt_issuer.clone(),
                audience: self.jwt_audience.clone(),
                roles: self.jwt_roles.clone(),
            }),
            users: (!self.file.is_empty()).then(|| PathBuf::from(&self.file)),
            password_cache: Duration::from_millis(self.password_cache_ms.into()),
        }
    }

    /// `login_timeout_ms` as a duration.
    pub fn login_timeout(&self) -> Duration {
        Duration::from_millis(self.login_timeout_ms.into())
    }

    pub(super) fn validate(&self) -> Result<(), BrokerConfigError> {
        let ranges = [
            ("users.password_cache_ms", u64::from(self.password_cache_ms), 0..=3_600_000, "at most 1 hour"),
            ("users.login_timeout_ms", self.login_timeout_ms.into(), 100..=600_000, "100 to 600000 ms"),
            ("users.max_waiting_logins", self.max_waiting_logins as u64, 1..=4_096, "1 to 4096"),
            ("users.login_threads", self.login_threads as u64, 1..=16, "1 to 16"),
        ];
        for (name, value, range, expects) in ranges {
            if !range.contains(&value) {
                return Err(BrokerConfigError::Value { name, value, expects });
            }
        }
        let required = [
            ("users.jwt_issuer", &self.jwt_issuer),
            ("users.jwt_audience", &self.jwt_audience),
            ("users.jwt_roles", &self.jwt_roles),
        ];
        let missing = required.into_iter().find(|(_, value)| !self.jwt_key.is_empty() && value.is_empty());
        if let Some((name, value)) = missing {
            let (value, expects) = (value.clone(), "set, since users.jwt_key is");
            return Err(BrokerConfigError::Word { name, value, expects });
        }
        Ok(())
    }
}
