//! A broker in the test's own process.

use rbmq_broker::{Broker, BrokerConfig, Rule};

/// A broker on a free port of the loopback, with the changed default configuration.
///
/// # Panics
/// It does not start.
pub fn broker_with(change: impl FnOnce(&mut BrokerConfig)) -> Broker {
    let mut config = BrokerConfig::default();
    config.broker.listen = "127.0.0.1:0".into();
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
