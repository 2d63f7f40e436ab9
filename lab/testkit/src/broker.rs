//! A broker in the test's own process.

use rbmq_broker::{Broker, BrokerConfig, Rule};
use rocketbufs::Config;

use crate::{LONG, own_addr};

/// The settings of a client whose broker has so much to do that it answers late on a busy machine.
pub fn patient() -> Config {
    let mut config = Config::default();
    config.session.connect_timeout_ms = LONG.as_millis() as u32;
    config
}

/// A broker at an address of its own (see [`own_addr`]), where another one can follow it, with the changed default configuration.
///
/// # Panics
/// It does not start.
pub fn broker_with(change: impl FnOnce(&mut BrokerConfig)) -> Broker {
    let mut config = BrokerConfig::default();
    config.broker.listen = own_addr();
    change(&mut config);
    Broker::start(config).expect("a broker")
}

/// A rule of the topics that a pattern matches.
///
/// # Panics
/// It is no pattern.
pub fn rule(pattern: &str, change: impl FnOnce(&mut Rule)) -> Rule {
    let mut rule = Rule::new(pattern.parse().expect("a pattern"));
    change(&mut rule);
    rule
}
