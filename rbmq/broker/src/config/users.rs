//! The `[users]` section: which users the broker knows.

use std::path::PathBuf;
use std::time::Duration;

use access::{AccessOptions, JwtOptions};
use settings::section;

use super::error::BrokerConfigError;

section! {
    /// The `[users]` section: which users the broker knows, and how their logins are checked. Without a file of users every client is
    /// anonymous.
    "users" UsersSettings {
        /// File of the users and their tokens, as `rbmq passwd` and `rbmq token` write it. Only its owner and its group may read it. A
        /// reload reads it again. Default "": there are no users, and every client that reaches the address is let in. Otherwise
        /// every client must log in.
        #[reloadable]
        file: String = String::new();
        /// Time for which a password that was right is not checked again, in milliseconds. Default 300,000 (5 minutes), at most 1 hour.
        /// 0: every connection costs a check, about 50 ms of a processor. Too small: clients that all connect again wait for
        /// each other. The broker remembers no password, but a hash with a random key of the process.
        #[reloadable]
        password_cache_ms: u32 = 300_000, "ms", range [0 to 3_600_000];
        /// Time within which a password must have been checked, in milliseconds. Default 5,000, 100 to 600,000. Clients give up after
        /// their `session.connect_timeout_ms`.
        #[reloadable]
        login_timeout_ms: u32 = 5_000, "ms", range [100 to 600_000];
        /// Largest number of passwords that wait to be checked, of all addresses. Default 64, 1 to 4,096. At the limit, the address with
        /// the most waiting logins is refused. Too large: a login waits longer than clients do.
        #[reloadable]
        max_waiting_logins: usize = 64, range [1 to 4096];
        /// Key file of the token issuer: PEM public key (RSA: RS256, P-256: ES256, Ed25519: EdDSA), or HS256 secret. Default "": no JWTs.
        /// Needs `jwt_issuer` and `jwt_audience`. If set, every client must log in, even without `users.file`.
        #[reloadable]
        jwt_key: String = String::new();
        /// Issuer of the tokens (`iss`). Default "".
        #[reloadable]
        jwt_issuer: String = String::new();
        /// Audience that the tokens must be for (`aud`): the name of this broker at the issuer. Default "".
        #[reloadable]
        jwt_audience: String = String::new();
        /// Claim of the tokens with the roles of the user, a list of names. Default "roles".
        #[reloadable]
        jwt_roles: String = "roles".into();
        /// Threads that check passwords. Default 2, 1 to 16. Each needs 19 MiB while it checks a password that `rbmq passwd` has
        /// written, and at most 64 MiB. Too many: logins take the processors of the data. Needs a restart.
        login_threads: usize = 2, range [1 to 16];
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
