//! The levels that can be tested here, and the vectors.

#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use multimqc::conformance::Lab;
use multimqc::levels::{DiskConfig, DiskLevel, UserConfig, UserLevel};
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

/// Disk levels in a folder that is removed with the lab.
pub struct Disk {
    folder: tempfile::TempDir,
    levels: AtomicUsize,
}

impl Disk {
    pub fn new() -> Disk {
        Disk { folder: tempfile::tempdir().expect("a folder"), levels: AtomicUsize::new(0) }
    }
}

impl Lab for Disk {
    fn kind(&self) -> LevelKind {
        LevelKind::Disk
    }

    fn level(&self, capacity_bytes: u64, batch_bytes: u64) -> Arc<dyn Level> {
        let number = self.levels.fetch_add(1, Ordering::Relaxed);
        let config = DiskConfig {
            max_bytes: Some(8 * capacity_bytes),
            segment_bytes: capacity_bytes,
            batch_bytes,
            max_topics: 2,
            ..DiskConfig::new(self.folder.path().join(number.to_string()))
        };
        Arc::new(DiskLevel::new(config).expect("a folder"))
    }
}

/// Every level that is here.
pub fn labs() -> Vec<Box<dyn Lab>> {
    vec![Box::new(User), Box::new(Disk::new())]
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
