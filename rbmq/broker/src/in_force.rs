//! The users and rules in force, for those who decide about clients outside of the broker's thread: the HTTP endpoint and gateways.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use access::{Authenticator, Rights};
use locks::Mutex;
use rocketbufs::config::Origin;

use super::config::{BrokerConfig, BrokerSettings};

/// The users, the rules, and what else a login needs.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) authenticator: Authenticator,
    /// None: every client may do everything.
    pub(super) rights: Option<Arc<Rights>>,
    /// Whether the broker takes every client that reaches its HTTP endpoint, if there are no users.
    pub(super) is_as_open_as_endpoint: bool,
    /// The settings of the broker, with the rules of topics.
    pub(super) settings: Arc<BrokerSettings>,
    /// The time within which a password must have been checked.
    pub(super) login_timeout: Duration,
    /// The places of the rules (file and line), in their order.
    pub(super) origins: Arc<[Origin]>,
}

impl Rules {
    /// `config` has the settings in force, and `file` the rules as they were read last.
    pub(super) fn new(
        authenticator: Authenticator,
        rights: Option<Arc<Rights>>,
        config: &BrokerConfig,
        file: &BrokerConfig,
    ) -> Self {
        let settings = Arc::new(config.broker_in_force());
        let is_as_open_as_endpoint = config.is_as_open_as_endpoint();
        let login_timeout = config.users.login_timeout();
        let rules = rights.as_ref().map_or(0, |rights| rights.rules().len());
        let origins = (0..rules).map(|rule| file.origin_of_access_rule(rule)).collect();
        Self { authenticator, rights, is_as_open_as_endpoint, settings, login_timeout, origins }
    }
}

/// Wakes a thread that looks at its clients again.
pub(super) type Wake = dyn Fn() + Send + Sync;

/// The rules in force. Clones share them.
#[derive(Clone)]
pub(super) struct InForce(Arc<Shared>);

struct Shared {
    rules: Mutex<Rules>,
    /// The number of changes.
    changes: AtomicU64,
    wakes: Mutex<Vec<Weak<Wake>>>,
}

impl InForce {
    pub(super) fn new(rules: Rules) -> Self {
        let (changes, wakes) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        Self(Arc::new(Shared { rules: Mutex::new(rules), changes, wakes }))
    }

    /// Other rules are in force.
    pub(super) fn replace(&self, rules: Rules) {
        *self.0.rules.lock() = rules;
        // Release pairs with the Acquire of `changes`.
        self.0.changes.fetch_add(1, Ordering::Release);
        let wakes: Vec<_> = {
            let mut wakes = self.0.wakes.lock();
            wakes.retain(|wake| wake.strong_count() > 0);
            wakes.iter().filter_map(Weak::upgrade).collect()
        };
        wakes.iter().for_each(|wake| wake());
    }

    /// The rules now.
    pub(super) fn rules(&self) -> Rules {
        self.0.rules.lock().clone()
    }

    /// A number that grows with every change, from 0.
    pub(super) fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// Calls `wake` after every change, as long as it lives.
    pub(super) fn wake_on_change(&self, wake: &Arc<Wake>) {
        self.0.wakes.lock().push(Arc::downgrade(wake));
    }
}
