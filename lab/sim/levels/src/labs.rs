//! Makers of the levels in user space for the conformance suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use multimqc::levels::{DiskConfig, DiskLevel, UserConfig, UserLevel};
use multimqc::{Level, LevelKind};

use crate::Lab;

/// Rings in this process.
#[derive(Debug)]
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
#[derive(Debug)]
pub struct Disk {
    folder: tempfile::TempDir,
    levels: AtomicUsize,
}

impl Default for Disk {
    fn default() -> Disk {
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
