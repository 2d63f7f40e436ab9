//! Levels that fail, for the tests of what stands above them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use multimqc::{
    Appended, Batch, Counters, Epoch, Found, Kept, Level, LevelError, LevelKind, Offset, Sessions, TopicId,
    Window, Written,
};

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

    fn sessions(&self, topic: TopicId) -> Result<Option<Sessions>, LevelError> {
        self.level.sessions(topic)
    }

    fn keep_sessions(&self, topic: TopicId, sessions: &Sessions) -> Result<(), LevelError> {
        self.level.keep_sessions(topic, sessions)
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
