//! The levels that can be tested here, and the vectors.

#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;

use multimqc::conformance::Lab;
use multimqc::levels::{UserConfig, UserLevel};
use multimqc::{Level, LevelKind};
use serde_json::Value;

pub struct User;

impl Lab for User {
    fn kind(&self) -> LevelKind {
        LevelKind::User
    }

    fn level(&self, capacity_bytes: u64, batch_bytes: u64) -> Arc<dyn Level> {
        let config = UserConfig { capacity_bytes, batch_bytes, max_topics: 2 };
        Arc::new(UserLevel::new(config).expect("the configuration is good"))
    }
}

/// Every level that is here.
pub fn labs() -> Vec<&'static dyn Lab> {
    vec![&User]
}

pub fn vectors() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/multimqc-vectors.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the vectors are there"))
        .expect("they are JSON")
}

/// The bytes of a hexadecimal text.
pub fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex is text");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}
