//! A broker in the test's own process.

use rbmq_broker::{Broker, BrokerConfig, Rule};
/// On a free port, configured otherwise than by default.
pub fn broker_with(change: impl FnOnce(&mut BrokerConfig)) -> Broker {
    let mut config = BrokerConfig::default();
    config.broker.listen = "127.0.0.1:0".into();
    change(&mut config);
    Broker::start(config).expect("a broker")
}

/// A rule of the topics that a pattern matches.
pub fn rule(pattern: &str, change: impl FnOnce(&mut Rule)) -> Rule {
    let mut rule = Rule::new(pattern.parse().expect("a pattern"));
    change(&mut rule);
    rule
}
