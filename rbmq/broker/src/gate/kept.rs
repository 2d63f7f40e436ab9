//! Kept topics for gateways: their logs are read in place, by position, and nobody needs a connection for it.
//!
//! ```text
//!   gateway ─ log(topic) ──▶ KeptLog: first, end, batches by position and by time, forwards and backwards
//!           ◀─ wake, news ── what has grown, and where the gateway's own messages were stored
//! ```

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use bytes::Bytes;
use rbmq_groups::Consumers;
use rbmq_wire::{GroupName, TopicName};
use rocketbufs::{Epoch, Position};
use seglog::{Read, ReadError, Reader};

use crate::groups::{GroupChange, GroupRoom, Groups, Touched, Wake};
use crate::in_force::InForce;
use crate::kept::{Clock, Ear, KeptLogs, Stored, batch_before};
use crate::limits::largest_delivery;

/// The place where the rules keep a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keeping {
    /// The topic is not kept.
    No,
    /// The topic is kept in the log of its space, among other topics.
    InSpace,
    /// The topic is kept, in a log of its own.
    Yes,
}

/// The kept topics of a broker, for one part of its process.
pub struct KeptTopics {
    logs: KeptLogs,
    in_force: InForce,
    ear: Arc<Ear>,
    groups: Groups,
    /// Groups that are to be written.
    touched: Touched,
    wake: Wake,
}

/// The log of a kept topic. A clone reads independently.
#[derive(Debug, Clone)]
pub struct KeptLog {
    reader: Reader,
    clock: Clock,
}

/// A delivery in the log of a kept topic: runs ([`rbmq_wire::Runs`]).
#[derive(Debug, Clone)]
pub struct KeptBatch {
    position: Position,
    time_ms: u64,
    bytes: Bytes,
}

/// What a log has at a position.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum KeptRead {
    /// The whole delivery that has the position.
    Batch(KeptBatch),
    /// Nothing up to this position: it was removed, or a crash of the machine has left it out.
    Gap(Position),
    /// Nothing yet.
    End,
}

/// The disk does not give what a log has.
#[derive(Debug, thiserror::Error)]
#[error("the disk cannot be read: {0}")]
pub struct KeptReadError(#[from] ReadError);

impl KeptTopics {
    pub(super) fn new(
        logs: KeptLogs,
        in_force: InForce,
        groups: Groups,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let wake: Wake = Arc::new(wake);
        let of_ear = wake.clone();
        let ear = logs.news().listen(move || of_ear());
        Self { logs, in_force, ear, groups, touched: Touched::default(), wake }
    }

    /// Whether a topic is kept, by the rules in force.
    pub fn keeping(&self, topic: &TopicName) -> Keeping {
        let settings = self.in_force.rules().settings;
        let topics = &settings.topics;
        match topics.space_of(topic) {
            Some(space) if topics.of(space.space.log()).keep => Keeping::InSpace,
            None if topics.of(topic).keep => Keeping::Yes,
            _ => Keeping::No,
        }
    }

    /// The largest delivery that a new publisher of the topic may have, by the rules in force. None: its ring is its own, and not that of a merged
    /// topic.
    pub fn max_delivery_bytes(&self, topic: &TopicName) -> Option<u64> {
        let settings = self.in_force.rules().settings;
        let rule = settings.topics.of(topic);
        let ring = rule.ring_bytes.unwrap_or(settings.merge_ring_bytes);
        rule.merges().then(|| largest_delivery(ring))
    }

    /// The log of a topic. None if it has none: nobody has published the topic yet, or it is not kept.
    pub fn log(&self, topic: &TopicName) -> Option<KeptLog> {
        KeptLog::of(&self.logs, topic)
    }

    /// Begins to be told when the topic grows; false: ends it. A topic that has no log yet is told when it has one.
    pub fn follow_topic(&self, topic: &TopicName, follow: bool) {
        self.ear.follow_topic(topic, follow);
    }

    /// Begins to be told where bytes of a publisher's log are stored; false: ends it.
    pub fn follow_publisher(&self, log: Epoch, follow: bool) {
        self.ear.follow_publisher(log, follow);
    }

    /// Calls `act` with a group of named consumers of a topic, under a lock. False: there is none.
    ///
    /// # Errors
    /// The group belongs to native workers, or the disk or the topic cannot be used now. The text is for people.
    pub fn with_group(
        &self,
        topic: &TopicName,
        group: &GroupName,
        act: &mut dyn FnMut(&mut Consumers, GroupRoom),
    ) -> Result<bool, String> {
        self.groups.with_consumers(&self.logs, topic, group, &self.touched, act)
    }

    /// The names of the groups of named consumers of a topic, in order.
    pub fn group_names(&self, topic: &TopicName) -> Vec<GroupName> {
        self.groups.names_of_consumers(topic)
    }

    /// Writes what has happened through this in groups of named consumers since the last call. A killed broker does not forget it after that.
    ///
    /// # Errors
    /// The disk does not take it, for a text for people.
    pub fn write_groups(&self) -> Result<(), String> {
        self.groups.write_consumers(&self.touched)
    }

    /// Makes or removes a group of named consumers. `wake` is called when the answer is there: whether there was something to do, or a text for
    /// people.
    pub fn change_group(&self, change: GroupChange) -> Receiver<Result<bool, String>> {
        self.groups.change_consumers(change, self.wake.clone())
    }

    /// Those who follow a topic are to look at it again.
    pub fn tell_of(&self, topic: &TopicName) {
        self.logs.news().changed(topic);
    }

    /// What has happened since the last call: the topics that have grown, and what was stored, in order.
    pub fn take_news(&self) -> (Vec<TopicName>, Vec<Stored>) {
        self.ear.take()
    }
}

impl std::fmt::Debug for KeptTopics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptTopics").finish_non_exhaustive()
    }
}

impl KeptLog {
    /// The log of a topic. None if it has none.
    pub(crate) fn of(logs: &KeptLogs, topic: &TopicName) -> Option<Self> {
        logs.of(topic).map(|(reader, clock)| Self { reader, clock })
    }

    /// A log without a broker.
    #[cfg(test)]
    pub(crate) fn of_reader(reader: Reader) -> Self {
        Self { reader, clock: Clock::default() }
    }

    /// The name of the log.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(u128::from_le_bytes(self.reader.id()))
    }

    /// The first position that is kept.
    pub fn first(&self) -> Position {
        self.reader.first()
    }

    /// The position behind the last delivery.
    pub fn end(&self) -> Position {
        self.reader.end()
    }

    /// The bytes that were read and checked for this reader so far, wherever it looked for something.
    pub fn read_bytes(&self) -> u64 {
        self.reader.read_bytes()
    }

    /// Whether nothing more comes: the topic may have another log now.
    pub fn is_closed(&self) -> bool {
        self.reader.is_closed()
    }

    /// The whole delivery at a position. May wait for the disk.
    ///
    /// # Errors
    /// The disk does not give it.
    pub fn read(&mut self, position: Position) -> Result<KeptRead, KeptReadError> {
        let batch = match self.reader.read(position)? {
            Read::Batch(batch) if batch.batch == batch.position => batch,
            Read::Batch(batch) => match self.reader.read(batch.batch)? {
                Read::Batch(whole) => whole,
                // It was removed meanwhile.
                _ => return Ok(KeptRead::Gap(batch.end())),
            },
            Read::Hole(hole) => return Ok(KeptRead::Gap(hole.range.end)),
            Read::Removed { first } => return Ok(KeptRead::Gap(first.max(position + 1))),
            _ => return Ok(KeptRead::End),
        };
        let time_ms = self.clock.time(batch.position, batch.time);
        Ok(KeptRead::Batch(KeptBatch { position: batch.position, time_ms, bytes: batch.bytes }))
    }

    /// The last delivery that begins before a position. None: there is none any more.
    ///
    /// # Errors
    /// The disk does not give it.
    pub fn read_before(&mut self, position: Position) -> Result<Option<KeptBatch>, KeptReadError> {
        let Some(part) = batch_before(&mut self.reader, position)? else { return Ok(None) };
        match self.read(part.batch)? {
            KeptRead::Batch(batch) => Ok(Some(batch)),
            // It was removed meanwhile.
            _ => Ok(None),
        }
    }

    /// The position of the first delivery of this time (milliseconds since 1970) or later; the end if there is none.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn find_time(&mut self, time_ms: u64) -> Result<Position, KeptReadError> {
        Ok(self.clock.find(&mut self.reader, time_ms)?)
    }
}

impl KeptBatch {
    /// A delivery that somebody else has, for the tests of those who read them.
    pub fn new(position: Position, time_ms: u64, bytes: Vec<u8>) -> Self {
        Self { position, time_ms, bytes: bytes.into() }
    }

    /// The position of its first byte.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The position behind its last byte.
    pub fn end(&self) -> Position {
        self.position + self.bytes.len() as u64
    }

    /// When it was stored, in milliseconds since 1970. No delivery is earlier than one before it, also where the machine's clock was set back, and a
    /// restarted broker says the same times.
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Its runs.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
