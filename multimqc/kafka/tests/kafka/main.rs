//! The level alone and in stacks, with a real Apache Kafka.

#[path = "../../../kernel/tests/common/mod.rs"]
mod common;
#[path = "mod.rs"]
mod kafka;
mod lab;
mod level;
mod stack;
