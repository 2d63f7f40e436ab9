//! Kept topics with a real Apache Kafka below their disk.

mod common;
#[path = "../../../multimqc/kafka/tests/kafka/mod.rs"]
mod kafka;

use common::archived::{Engine, are_one_log};
use kafka::Kafka;

impl Engine for Kafka {
    fn kill(&mut self) {
        Self::kill(self);
    }

    fn run(&mut self) {
        Self::run(self);
    }

    fn pause(&mut self) {
        Self::pause(self);
    }

    fn go_on(&mut self) {
        Self::go_on(self);
    }
}

#[test]
fn kafka_disk_and_ring_are_one_log_while_broker_and_kafka_are_killed() {
    let Some(mut kafka) = Kafka::start() else { return };
    let section = format!("[kafka]\nbrokers = '{}'", kafka.address());
    are_one_log(&mut kafka, "kafka = true", &section);
}
