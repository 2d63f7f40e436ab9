//! The `[access]` section: what users may do.

use access::{AccessRule, Rights, RuleError};
use settings::section;

use super::error::BrokerConfigError;

section! {
    /// The `[access]` section: what users may do.
    "access" AccessSettings {
        /// Rules of access. A user may do what any rule for the user gives, except what one of them denies; everything else is denied.
        /// Default none: without users (`users.file`) every client may do everything, and with users nobody anything. At most 10,000 with 100,000 patterns. A rule costs about 300 bytes, and one
        /// bit for each connection.
        #[reloadable]
        rules: Vec<AccessRule> = Vec::new();
        /// Whether the broker and its HTTP endpoint may listen on addresses that other machines can reach, without TLS, users or a token
        /// (`--insecure`). Default false: `rbmq serve` refuses that, and says what is missing. Only for networks that you trust.
        insecure: bool = false, range [true or false];
    }
}

impl AccessSettings {
    pub(super) fn validate(&self) -> Result<(), BrokerConfigError> {
        Rights::new(self.rules.clone()).map(drop).map_err(|RuleError { rule, field, message, .. }| {
            BrokerConfigError::Access { rule, field, message }
        })
    }
}
