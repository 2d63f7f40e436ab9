//! What decides about the clients of gateways.

use std::sync::Arc;

use access::{Audit, Authenticator};

use crate::admission::Admission;
use crate::config::BrokerConfig;
use crate::error::BrokerError;
use crate::in_force::{InForce, Rules};
use crate::password_check::PasswordCheck;
use crate::vouchers::Vouchers;

/// Takes passwords to the threads that check them.
pub(crate) type Checker = Arc<dyn Fn(PasswordCheck) + Send + Sync>;

/// What decides about the clients of gateways. Clones share it.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) in_force: InForce,
    pub(crate) admission: Admission,
    pub(crate) audit: Audit,
    pub(crate) checker: Checker,
    /// Clients that are let in at the own listener, besides parts of this process.
    pub(crate) vouchers: Vouchers,
}

impl Desk {
    /// With the users, rules, quotas and the audit log of a configuration.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub(crate) fn open(config: &BrokerConfig, checker: Checker) -> Result<Self, BrokerError> {
        let rights = config.rights()?;
        let limits = config.quotas.limits(config.is_reachable());
        let admission = Admission::new(rights.clone(), limits, config.quotas.rates());
        let audit = Audit::open(&config.audit.file).map_err(BrokerError::Audit)?;
        let authenticator = Authenticator::open(&config.users.options())?;
        let in_force = InForce::new(Rules::new(authenticator, rights, config, config));
        Ok(Self { in_force, admission, audit, checker, vouchers: Vouchers::default() })
    }
}
