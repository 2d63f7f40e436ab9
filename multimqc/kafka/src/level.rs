//! The level.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use locks::{Condvar, Mutex, RwLock};
use multimqc::{
    Appended, Batch, Counters, Epoch, Found, Hole, Kept, Level, LevelCounters, LevelError, LevelKind,
    MAX_OFFSET, Offset, Stop, TopicId, Window, Written,
};

use crate::client::{self, Appender, Fetcher, Unread};
use crate::config::KafkaConfig;
use crate::reader::{self, Reader, State};
use crate::record::{self, Kind};

/// After so many writes the level asks Kafka for the oldest record that retention has left.
const WRITES_PER_LOOK: u32 = 1024;

/// The level that keeps its log in Apache Kafka.
pub struct KafkaLevel {
    config: KafkaConfig,
    appender: Appender,
    topics: RwLock<HashMap<TopicId, Arc<Topic>>>,
    names: RwLock<HashMap<TopicId, String>>,
    woken: Mutex<bool>,
    wakes: Condvar,
}

struct Topic {
    name: String,
    state: Mutex<State>,
    /// The state of the writer. This lock is taken before that of `reader`, and the latter before that of `state`.
    writer: Mutex<Writer>,
    reader: Mutex<Reader<Fetcher>>,
    /// The head of a log that a process did not close, and how many bytes after the head readers may have seen.
    unsure: Option<(Offset, u64)>,
    counters: LevelCounters,
}

#[derive(Debug, Default)]
struct Writer {
    /// A write failed, and it is unknown whether Kafka has its record.
    in_doubt: bool,
    /// Writes since the last check for removed records.
    writes: u32,
}

impl KafkaLevel {
    /// A level without topics. Kafka is not asked yet.
    ///
    /// # Errors
    /// [`LevelError::Down`] if librdkafka refuses a property.
    pub fn new(config: KafkaConfig) -> Result<KafkaLevel, LevelError> {
        let appender = Appender::new(config.clone())?;
        Ok(KafkaLevel {
            config,
            appender,
            topics: RwLock::default(),
            names: RwLock::default(),
            woken: Mutex::new(false),
            wakes: Condvar::new(),
        })
    }

    /// Gives Kafka's topic of a topic that is not open yet another name than [`KafkaConfig::prefix`] and the number: letters, digits,
    /// `.`, `_` and `-`, at most 249. Otherwise the opening fails.
    ///
    /// ```
    /// # fn main() -> Result<(), multimqc::LevelError> {
    /// use multimqc::TopicId;
    /// use multimqc_kafka::{KafkaConfig, KafkaLevel};
    /// let level = KafkaLevel::new(KafkaConfig::new("127.0.0.1:9092"))?;
    /// level.name_topic(TopicId(3), "plant.temperature");
    /// # Ok(())
    /// # }
    /// ```
    pub fn name_topic(&self, topic: TopicId, name: impl Into<String>) {
        self.names.write().insert(topic, name.into());
    }

    fn topic(&self, topic: TopicId) -> Result<Arc<Topic>, LevelError> {
        self.topics.read().get(&topic).cloned().ok_or(LevelError::UnknownTopic(topic))
    }

    fn new_topic(&self, topic: TopicId, start: Offset, epoch: Epoch) -> Result<Topic, LevelError> {
        let name = self.names.read().get(&topic).cloned();
        let name = name.unwrap_or_else(|| format!("{}-{:05}", self.config.prefix, topic.0));
        client::create_topic(&self.config, &name)?;
        let fetcher = Fetcher::new(&self.config, &name)?;
        let state = State { epoch, start, first: start, head: 0, offsets: 0..0, closed: false };
        let mut topic = Topic {
            name,
            state: Mutex::new(state),
            writer: Mutex::default(),
            reader: Mutex::new(Reader::new(fetcher)),
            unsure: None,
            counters: LevelCounters::default(),
        };
        topic.look(&mut topic.reader.lock())?;
        let State { head, offsets, closed, .. } = topic.state.lock().clone();
        topic.unsure = (!offsets.is_empty() && !closed).then_some((head, self.config.restart_gap_bytes));
        Ok(topic)
    }

    /// The topic, which is opened if it is not open. If Kafka has no records of it, its log begins at `start` with `epoch`.
    fn opened(&self, topic: TopicId, start: Offset, epoch: Epoch) -> Result<Arc<Topic>, LevelError> {
        if start > MAX_OFFSET {
            return Err(LevelError::Offset(start));
        }
        let mut topics = self.topics.write();
        if let Some(open) = topics.get(&topic) {
            open.begin(start, epoch);
            return Ok(Arc::clone(open));
        }
        if topics.len() >= self.config.max_topics {
            return Err(LevelError::TooManyTopics(topics.len()));
        }
        let new = Arc::new(self.new_topic(topic, start, epoch)?);
        topics.insert(topic, Arc::clone(&new));
        Ok(new)
    }

    /// Writes a record that all levels below have moved all their bytes to Kafka.
    fn close(&self, topic: &Topic) {
        let State { epoch, head, offsets, closed, .. } = topic.state.lock().clone();
        if !offsets.is_empty() && !closed && !topic.writer.lock().in_doubt {
            let mark = (record::key(epoch.0, head, Kind::Closed), &[][..]);
            // If the record does not arrive, the next process leaves a hole.
            let _ = self.appender.append(&topic.name, &[mark]);
        }
    }

    /// Appends the bytes that a batch adds to the log.
    fn add(&self, topic: &Topic, batch: Batch<'_>) -> Result<Written, LevelError> {
        let mut writer = topic.writer.lock();
        writer.writes += 1;
        if writer.in_doubt || writer.writes >= WRITES_PER_LOOK {
            writer.in_doubt = true;
            topic.look(&mut topic.reader.lock())?;
            *writer = Writer::default();
        }
        let (epoch, head) = {
            let state = topic.state.lock();
            (state.epoch.0, state.head)
        };
        let placed = batch.place(head);
        let at = placed.hole.map_or(head, |hole| hole.to);
        let end_of_hole = at.to_le_bytes();
        let mut records: Vec<([u8; record::KEY], &[u8])> = Vec::new();
        if placed.bytes.is_empty() && placed.hole.is_some() {
            records.push((record::key(epoch, head, Kind::Hole), &end_of_hole));
        }
        let mut position = at;
        for bytes in placed.bytes.chunks(self.config.max_record_bytes.max(1)) {
            let kind = if position > batch.offset { Kind::Rest } else { Kind::Data };
            records.push((record::key(epoch, position, kind), bytes));
            position += bytes.len() as u64;
        }
        if !records.is_empty() {
            let (offsets, result) = self.appender.append(&topic.name, &records);
            if let Err(error) = result {
                writer.in_doubt = true;
                return Err(error);
            }
            if !topic.appended(offsets.first().copied(), offsets.last().copied(), head, position) {
                writer.in_doubt = true;
                return Err(LevelError::Down(format!("another process writes Kafka's topic {}", topic.name)));
            }
        }
        Ok(Written { hole: placed.hole, bytes: placed.bytes.len() as u64, repeated: placed.repeated })
    }
}

impl Topic {
    fn window(&self) -> Window {
        let state = self.state.lock();
        Window { first: state.first, head: state.head, epoch: state.epoch }
    }

    /// Sets the beginning of a log that is not known yet.
    fn begin(&self, start: Offset, epoch: Epoch) {
        let mut state = self.state.lock();
        if state.epoch == Epoch::ANY {
            (state.epoch, state.start, state.first, state.head) = (epoch, start, start, start);
        }
    }

    /// Records that Kafka has these records. False: they do not follow the known records.
    fn appended(&self, first: Option<i64>, last: Option<i64>, from: Offset, head: Offset) -> bool {
        let (Some(first), Some(last)) = (first, last) else { return true };
        if first != self.state.lock().offsets.end {
            return false;
        }
        // This does not wait for a busy reader, since the entry would only save it some steps.
        if let Some(mut reader) = self.reader.try_lock() {
            reader.note(from, first);
        }
        let mut state = self.state.lock();
        if state.offsets.is_empty() {
            (state.first, state.offsets) = (from, first..first);
        }
        (state.head, state.closed) = (head, false);
        state.offsets.end = last + 1;
        true
    }

    /// Asks Kafka where the log begins and ends.
    fn look(&self, reader: &mut Reader<Fetcher>) -> Result<(), LevelError> {
        let known = self.state.lock().clone();
        let found = reader.look(known)?;
        *self.state.lock() = found;
        Ok(())
    }

    /// Copies bytes from a position on.
    fn read(&self, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        let mut bytes = 0;
        let mut reader = self.reader.lock();
        loop {
            let at = from.saturating_add(bytes as u64);
            if bytes == out.len() {
                return Ok(Found { bytes, stop: Stop::Filled });
            }
            let State { first, head, offsets, .. } = self.state.lock().clone();
            if at >= head {
                return Ok(Found { bytes, stop: Stop::Head });
            }
            if at < first {
                return Ok(Found { bytes, stop: Stop::Gone(first) });
            }
            let record = match reader.find(offsets.clone(), at) {
                Ok(Some(record)) => record,
                Ok(None) => return Ok(Found { bytes, stop: Stop::Hole(Hole { from: at, to: head }) }),
                Err(Unread::Removed) => {
                    self.look(&mut reader)?;
                    if self.state.lock().offsets == offsets {
                        return Err(reader::lost());
                    }
                    continue;
                }
                Err(Unread::Level(error)) => return Err(error),
            };
            let to = match &record.bytes {
                Some(data) if record.position <= at => {
                    let data = &data[(at - record.position) as usize..];
                    let count = data.len().min(out.len() - bytes);
                    out[bytes..bytes + count].copy_from_slice(&data[..count]);
                    bytes += count;
                    continue;
                }
                None if record.position <= at => record.end,
                _ => record.position,
            };
            return Ok(Found { bytes, stop: Stop::Hole(Hole { from: at, to }) });
        }
    }
}

impl Level for KafkaLevel {
    fn kind(&self) -> LevelKind {
        LevelKind::Kafka
    }

    fn capacity_bytes(&self) -> Option<u64> {
        self.config.retention_bytes
    }

    fn kept(&self, topic: TopicId) -> Result<Option<Kept>, LevelError> {
        let topic = self.opened(topic, 0, Epoch::ANY)?;
        let window = topic.window();
        let unsure = topic.unsure.filter(|(head, _)| *head == window.head);
        let has_log = window.epoch != Epoch::ANY;
        Ok(has_log.then(|| Kept { window, unsure_bytes: unsure.map_or(0, |(_, bytes)| bytes) }))
    }

    fn open(&self, topic: TopicId, start: Offset, epoch: Epoch) -> Result<Window, LevelError> {
        Ok(self.opened(topic, start, epoch)?.window())
    }

    fn window(&self, topic: TopicId) -> Option<Window> {
        self.topic(topic).ok().map(|topic| topic.window())
    }

    fn append(&self, _: TopicId, _: &mut dyn Iterator<Item = &[u8]>) -> Result<Appended, LevelError> {
        Err(LevelError::NotWritable)
    }

    fn write(&self, topic: TopicId, batch: Batch<'_>) -> Result<Written, LevelError> {
        if batch.offset > MAX_OFFSET || batch.end() > MAX_OFFSET {
            return Err(LevelError::Offset(batch.offset));
        }
        let topic = self.topic(topic)?;
        match self.add(&topic, batch) {
            Ok(written) => {
                topic.counters.written(&written);
                Ok(written)
            }
            Err(error) => {
                topic.counters.refused(1);
                Err(error)
            }
        }
    }

    /// Ends by the time or by [`wake`](Level::wake): nothing is transferred from the last level.
    fn wait_batch(&self, timeout: Duration) -> bool {
        let mut woken = self.woken.lock();
        if !*woken {
            self.wakes.wait_for(&mut woken, timeout);
        }
        std::mem::take(&mut woken)
    }

    fn wake(&self) {
        *self.woken.lock() = true;
        self.wakes.notify_all();
    }

    fn transfer(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        self.topic(topic)?.read(from, out)
    }

    fn read(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        let topic = self.topic(topic)?;
        let found = topic.read(from, out);
        topic.counters.read(found.as_ref().ok());
        found
    }

    fn counters(&self, topic: TopicId) -> Counters {
        let Ok(topic) = self.topic(topic) else { return Counters::default() };
        let state = topic.state.lock();
        topic.counters.counters(state.first - state.start.min(state.first))
    }
}

impl Drop for KafkaLevel {
    fn drop(&mut self) {
        let topics = std::mem::take(self.topics.get_mut());
        topics.values().for_each(|topic| self.close(topic));
    }
}
