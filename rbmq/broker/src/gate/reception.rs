//! The reception: what gateways need to know about their clients, in a process that has no broker.
//!
//! ```text
//!   clients ──▶ gateway ── Entrance ──▶ Reception: users, rules, quotas, audit log, threads for passwords ◀── configuration, reload
//!                  └────── publisher and subscriber, over the network ──▶ broker in another process
//! ```

use std::sync::Arc;
use std::time::Instant;

use locks::Mutex;
use rocketbufs::MeterClock;

use super::counters::AllGatewayCounters;
use super::desk::Desk;
use super::entrance::Entrance;
use crate::config::{BrokerConfig, GatewaySettings, Reload};
use crate::error::BrokerError;
use crate::in_force::Rules;
use crate::login::Checks;
use crate::password_check::PasswordCheck;

/// Decides about the clients of gateways that run beside their broker, by a configuration of their own: its users, rules of access, quotas
/// and audit log. Dropping it changes nothing for the entrances that it has opened.
pub struct Reception {
    config: BrokerConfig,
    desk: Desk,
    counters: AllGatewayCounters,
    /// None until there are users.
    checks: Arc<Mutex<Option<Checks>>>,
    clock: MeterClock,
}

impl Reception {
    /// With the users, rules of access, quotas and the audit log of a configuration.
    ///
    /// # Errors
    /// One of them cannot be used, or the system refuses a thread.
    pub fn open(config: BrokerConfig) -> Result<Self, BrokerError> {
        let checks = Arc::<Mutex<Option<Checks>>>::default();
        let known = checks.clone();
        let checker = move |check: PasswordCheck| match &*known.lock() {
            Some(checks) => checks.submit(check),
            None => check.refuse(),
        };
        let desk = Desk::open(&config, Arc::new(checker))?;
        let (counters, clock) = (AllGatewayCounters::default(), MeterClock::new(Instant::now()));
        let reception = Self { config, desk, counters, checks, clock };
        reception.start_checks()?;
        Ok(reception)
    }

    /// The configuration in force.
    pub fn config(&self) -> &BrokerConfig {
        &self.config
    }

    /// As [`Gate::open`](super::Gate::open).
    pub fn entrance(
        &self,
        settings: &GatewaySettings,
        address: &str,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Entrance {
        let counters = self.counters.open(settings.protocol, address);
        Entrance::new(self.desk.clone(), counters, Arc::new(wake), self.clock)
    }

    /// Applies the reloadable settings of another configuration, as [`Broker::reload`](crate::Broker::reload): users, rules of access and
    /// quotas. The file of users is read again in any case, and clients whose user was removed are cut off.
    ///
    /// # Errors
    /// The file of users cannot be used, or a rule of access is not valid: nothing changes then. Or the system refuses a thread.
    pub fn reload(&mut self, config: &BrokerConfig) -> Result<Reload, BrokerError> {
        let rights = config.rights()?;
        let authenticator = self.desk.in_force.rules().authenticator.reopen(&config.users.options())?;
        let reload = self.config.reload(config);
        self.desk.admission.set_limits(self.config.quotas.limits(self.config.is_reachable()));
        // No connection here has limits of its own: gateways ask at each login.
        self.desk.admission.set_rates(self.config.quotas.rates());
        self.desk.in_force.replace(Rules::new(authenticator, rights, &self.config, config));
        self.desk.audit.reopen();
        self.start_checks()?;
        Ok(reload)
    }

    /// Starts the threads that check passwords, once there are users.
    fn start_checks(&self) -> Result<(), BrokerError> {
        let (threads, waiting) = (self.config.users.login_threads, self.config.users.max_waiting_logins);
        let mut checks = self.checks.lock();
        match &*checks {
            Some(checks) => checks.set_max_waiting(waiting),
            None if self.desk.in_force.rules().authenticator.has_users() => {
                *checks = Some(Checks::start(threads, waiting).map_err(BrokerError::Thread)?);
            }
            None => {}
        }
        Ok(())
    }
}

impl std::fmt::Debug for Reception {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reception").finish_non_exhaustive()
    }
}
