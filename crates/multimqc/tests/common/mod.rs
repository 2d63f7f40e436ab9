//! The levels that can be tested here, and the vectors.

#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use multimqc::conformance::Lab;
use multimqc::levels::{DiskConfig, DiskLevel, UserConfig, UserLevel};
use multimqc::{
    Appended, Batch, Counters, Epoch, Found, Kept, Level, LevelError, LevelKind, Offset, TopicId, Window,
    Written,
};
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

/// A level whose device can be full, or one in the place of a level of another kind.
pub struct Device {
    level: Arc<dyn Level>,
    place: Option<LevelKind>,
    full: AtomicBool,
}

impl Device {
    pub fn new(level: Arc<dyn Level>) -> Arc<Device> {
        Arc::new(Device { level, place: None, full: AtomicBool::new(false) })
    }

    /// A level in the place of another one, whose log has all that readers have seen, also after its process was killed.
    pub fn in_place_of(kind: LevelKind, level: Arc<dyn Level>) -> Arc<Device> {
        Arc::new(Device { level, place: Some(kind), full: AtomicBool::new(false) })
    }

    /// While the device is full, the level takes nothing.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Release);
    }
}

impl Level for Device {
    fn kind(&self) -> LevelKind {
        self.place.unwrap_or_else(|| self.level.kind())
    }

    fn capacity_bytes(&self) -> Option<u64> {
        self.level.capacity_bytes()
    }

    fn kept(&self, topic: TopicId) -> Result<Option<Kept>, LevelError> {
        let kept = self.level.kept(topic)?;
        Ok(kept.map(|kept| if self.place.is_some() { Kept { unsure_bytes: 0, ..kept } } else { kept }))
    }

    fn open(&self, topic: TopicId, start: Offset, epoch: Epoch) -> Result<Window, LevelError> {
        self.level.open(topic, start, epoch)
    }

    fn window(&self, topic: TopicId) -> Option<Window> {
        self.level.window(topic)
    }

    fn append(
        &self,
        topic: TopicId,
        messages: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<Appended, LevelError> {
        self.level.append(topic, messages)
    }

    fn write(&self, topic: TopicId, batch: Batch<'_>) -> Result<Written, LevelError> {
        if self.full.load(Ordering::Acquire) {
            return Err(LevelError::Full(std::io::ErrorKind::StorageFull.into()));
        }
        self.level.write(topic, batch)
    }

    fn wait_batch(&self, timeout: Duration) -> bool {
        self.level.wait_batch(timeout)
    }

    fn wake(&self) {
        self.level.wake();
    }

    fn transfer(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        self.level.transfer(topic, from, out)
    }

    fn read(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        self.level.read(topic, from, out)
    }

    fn counters(&self, topic: TopicId) -> Counters {
        self.level.counters(topic)
    }
}
