//! The user level: a ring in this process for each topic, without flow control.
//!
//! ```text
//!   log        tail              boundary     horizon = tail + capacity
//!   ────────────┬───────────────────┬────────────┬──▶
//!    overwritten│ readable          │ announced  │
//!               └────── window ─────┘
//! ```
//!
//! Readers never wait for the writer and never stop it. A reader copies bytes and then reads the tail again, which shows whether the
//! bytes were overwritten. The writer announces an eighth of the capacity ahead, and readers cannot use these bytes: seven eighths of
//! the capacity can be read at any time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use locks::{Mutex, MutexGuard, RwLock};
use rocketring::{Pool, PoolConfig, PoolError, Ring, RingConfig, RingReceiver};

use super::signal::Signal;
use crate::counters::LevelCounters;
use crate::level::{Appended, Counters, Found, Level, LevelError, LevelKind, Stop, Written};
use crate::log::{Batch, Hole, MAX_OFFSET, Offset, Window};
use crate::topic::{Epoch, TopicId};

/// The smallest ring. An eighth of it has room for the largest datagram.
const MIN_CAPACITY_BYTES: u64 = 1 << 19;
/// The writer announces this part of the capacity ahead.
const ANNOUNCED_PART: u64 = 8;

/// The settings of a [`UserLevel`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserConfig {
    /// Bytes of each topic's ring; default 64 MiB, at least 512 KiB. Rounded up to a power of two, and touched only as far as
    /// the log has come. Seven eighths of it can be read. Too small, and the next level is too late (equation 1).
    pub capacity_bytes: u64,
    /// How many topics the level takes; default 64. Their rings together are the most memory that the level uses.
    pub max_topics: usize,
    /// The next level is woken each time that a topic has grown by this many bytes; default 32 KiB, the paper's. At most a quarter
    /// of the capacity.
    pub batch_bytes: u64,
}

impl Default for UserConfig {
    fn default() -> Self {
        UserConfig { capacity_bytes: 64 << 20, max_topics: 64, batch_bytes: 32 << 10 }
    }
}

/// Why a [`UserLevel`] was not made. All are the configuration's fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserConfigError {
    /// The capacity is below the minimum.
    #[error("a capacity of {0} bytes: the user level needs at least {MIN_CAPACITY_BYTES}")]
    Capacity(u64),
    /// The batch is not between 1 and a quarter of the capacity.
    #[error("batches of {batch_bytes} bytes: with a capacity of {capacity_bytes} they have 1 to {}", capacity_bytes / 4)]
    Batch {
        /// The size asked for.
        batch_bytes: u64,
        /// The capacity.
        capacity_bytes: u64,
    },
    /// The capacity of all topics together is more than an address space holds, or the system refused.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// The level of rings in this process.
pub struct UserLevel {
    config: UserConfig,
    pool: Pool,
    topics: RwLock<HashMap<TopicId, Arc<Topic>>>,
    signal: Signal,
}

struct Topic {
    ring: Ring,
    receiver: Mutex<RingReceiver>,
    epoch: Epoch,
    counters: LevelCounters,
}

impl UserLevel {
    /// A level without topics.
    ///
    /// # Errors
    /// [`UserConfigError`].
    pub fn new(mut config: UserConfig) -> Result<UserLevel, UserConfigError> {
        let asked = config.capacity_bytes;
        if asked < MIN_CAPACITY_BYTES {
            return Err(UserConfigError::Capacity(asked));
        }
        config.capacity_bytes = asked.checked_next_power_of_two().ok_or(UserConfigError::Capacity(asked))?;
        let capacity_bytes = config.capacity_bytes;
        if !(1..=capacity_bytes / 4).contains(&config.batch_bytes) {
            return Err(UserConfigError::Batch { batch_bytes: config.batch_bytes, capacity_bytes });
        }
        let max_bytes = capacity_bytes.saturating_mul(config.max_topics as u64);
        let pool = Pool::new(PoolConfig { reservation_bytes: capacity_bytes.max(1 << 26), max_bytes })?;
        let signal = Signal::new(config.batch_bytes);
        Ok(UserLevel { config, pool, topics: RwLock::default(), signal })
    }

    fn topic(&self, topic: TopicId) -> Result<Arc<Topic>, LevelError> {
        self.topics.read().get(&topic).cloned().ok_or(LevelError::UnknownTopic(topic))
    }

    fn new_topic(&self, start: Offset, epoch: Epoch) -> Result<Topic, LevelError> {
        let config = RingConfig {
            capacity_bytes: self.config.capacity_bytes,
            flow_control: false,
            start,
            ..RingConfig::default()
        };
        let ring = self.pool.ring(config).map_err(|error| LevelError::Io(std::io::Error::other(error)))?;
        let receiver = Mutex::new(ring.receiver().expect("the ring is new"));
        Ok(Topic { ring, receiver, epoch, counters: LevelCounters::default() })
    }
}

impl Topic {
    fn receiver(&self) -> MutexGuard<'_, RingReceiver> {
        self.receiver.lock()
    }

    fn window(&self) -> Window {
        // The head is read first, since a tail that is read later is only higher.
        let head = self.ring.boundary();
        Window { first: self.ring.tail().min(head), head, epoch: self.epoch }
    }

    fn read(&self, from: Offset, out: &mut [u8]) -> Found {
        let head = self.ring.boundary();
        let tail = self.ring.tail();
        if from < tail {
            return Found { bytes: 0, stop: Stop::Gone(tail) };
        }
        if from >= head {
            let stop = if out.is_empty() { Stop::Filled } else { Stop::Head };
            return Found { bytes: 0, stop };
        }
        let wanted = from.saturating_add(out.len() as u64);
        let (mut end, mut stop) = if wanted <= head { (wanted, Stop::Filled) } else { (head, Stop::Head) };
        // The head was read before, so every hole below it is seen.
        if let Some(gap) = self.ring.gap_after(from).filter(|gap| gap.from < end) {
            let hole = Hole { from: gap.from.max(from), to: gap.to };
            (end, stop) = (hole.from, Stop::Hole(hole));
        }
        let bytes = (end - from) as usize;
        match self.ring.view(from, end).copy_to(0, &mut out[..bytes]) {
            Ok(()) => Found { bytes, stop },
            Err(lapped) => Found { bytes: 0, stop: Stop::Gone(from + lapped.by) },
        }
    }
}

impl Level for UserLevel {
    fn kind(&self) -> LevelKind {
        LevelKind::User
    }

    fn capacity_bytes(&self) -> Option<u64> {
        Some(self.config.capacity_bytes - self.config.capacity_bytes / ANNOUNCED_PART)
    }

    fn open(&self, topic: TopicId, start: Offset, epoch: Epoch) -> Result<Window, LevelError> {
        if start > MAX_OFFSET {
            return Err(LevelError::Offset(start));
        }
        let mut topics = self.topics.write();
        if let Some(open) = topics.get(&topic) {
            return Ok(open.window());
        }
        if topics.len() == self.config.max_topics {
            return Err(LevelError::TooManyTopics(topics.len()));
        }
        let new = self.new_topic(start, epoch)?;
        let window = new.window();
        topics.insert(topic, Arc::new(new));
        Ok(window)
    }

    fn window(&self, topic: TopicId) -> Option<Window> {
        self.topic(topic).ok().map(|topic| topic.window())
    }

    fn append(
        &self,
        topic: TopicId,
        messages: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<Appended, LevelError> {
        let topic = self.topic(topic)?;
        let most = self.config.capacity_bytes / ANNOUNCED_PART;
        let mut receiver = topic.receiver();
        let offset = topic.ring.boundary();
        let mut appended = Appended { offset, bytes: 0, messages: 0, oversize: 0 };
        let mut unpublished = 0;
        for message in messages {
            let size = message.len() as u64;
            if size > most || offset + appended.bytes + size > MAX_OFFSET {
                appended.oversize += 1;
                continue;
            }
            receiver.copy_in(message);
            appended.messages += 1;
            appended.bytes += size;
            unpublished += size;
            // Readers must not find more than the ring announced between two boundaries.
            if unpublished >= most {
                receiver.end();
                unpublished = 0;
            }
        }
        receiver.end();
        drop(receiver);
        topic.counters.appended(appended.messages, appended.bytes);
        topic.counters.refused(appended.oversize);
        self.signal.grown(offset..offset + appended.bytes);
        Ok(appended)
    }

    fn write(&self, topic: TopicId, batch: Batch<'_>) -> Result<Written, LevelError> {
        if batch.offset > MAX_OFFSET || batch.end() > MAX_OFFSET {
            return Err(LevelError::Offset(batch.offset));
        }
        let topic = self.topic(topic)?;
        let mut receiver = topic.receiver();
        let head = topic.ring.boundary();
        let placed = batch.place(head);
        if let Some(hole) = placed.hole {
            receiver.skip(hole.to);
        }
        receiver.copy_in(placed.bytes);
        receiver.end();
        drop(receiver);
        let written =
            Written { hole: placed.hole, bytes: placed.bytes.len() as u64, repeated: placed.repeated };
        topic.counters.written(&written);
        self.signal.grown(head..batch.end().max(head));
        Ok(written)
    }

    fn wait_batch(&self, timeout: Duration) -> bool {
        self.signal.wait(timeout)
    }

    fn wake(&self) {
        self.signal.wake();
    }

    fn transfer(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        Ok(self.topic(topic)?.read(from, out))
    }

    fn read(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        let topic = self.topic(topic)?;
        let found = topic.read(from, out);
        topic.counters.read(Some(&found));
        Ok(found)
    }

    fn counters(&self, topic: TopicId) -> Counters {
        let Ok(topic) = self.topic(topic) else { return Counters::default() };
        topic.counters.counters(topic.window().first - topic.ring.start())
    }
}
