//! Brokers that receive from each other, as processes.

use std::io::BufRead;

use testkit::{Process, own_addr};

use crate::common::{BrokerProcess, rbmq};

#[test]
fn a_broker_that_is_its_own_upstream_is_reported() {
    let addr = own_addr();
    let mut command = rbmq(["serve", "--listen", &addr, "--upstream", &addr]);
    command.stdout(std::process::Stdio::null());
    let mut broker = Process::start(command);
    let told = broker
        .stderr()
        .lines()
        .map(Result::unwrap)
        .find(|line| line.contains("does not receive from itself"));
    assert!(told.is_some_and(|line| line.contains(&addr)));
}

/// Messages of a subscriber that receives some and then closes are confirmed, through any number of brokers.
#[test]
fn a_downstream_subscriber_that_closes_is_confirmed_up_to_its_end() {
    let first = BrokerProcess::start();
    let mut brokers = vec![first];
    for topic in ["one", "two"] {
        let above = &brokers[brokers.len() - 1].addr;
        let below = BrokerProcess::start_with(&["--upstream", above]);
        let sub = below.sub(&format!("{topic} --count 1"));
        let args = format!("{topic} --wait-subscribers 1 --confirm consumed --json");
        let told = brokers[0].publish(&args, b"done\n").finish().good().text();
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["confirmed"]["subscribers"], 1, "{told}");
        assert_eq!(sub.finish().good().text(), "done\n");
        brokers.push(below);
    }
}
