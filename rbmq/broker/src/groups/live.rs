//! A group at work: its machine, its journal, the log that it reads, and its workers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rbmq_groups::{Changes, Group, Handout, Journal, JournalError, Limits, Recovered, Settings};
use rbmq_wire::{GROUP_HEADER_BYTES, GroupMessage, GroupName, GroupStats, Mark, MarkKind, TopicName};
use rocketbufs::{Bid, Conn, OutWriter, Position, Progress, SegmentError};
use seglog::{ReadError, Reader};
use tracing::{info, warn};

use super::super::outgoing::send_bytes;
use super::burial::{Burial, Letter};
use super::reading::{self, Messages, Next};
use super::shared::Around;

/// A turn hands out at most so many bytes, so that groups take turns.
const TURN_BYTES: usize = 1 << 20;

/// A delivery to a worker has at most so many bytes, unless one message is larger.
const DELIVERY_BYTES: usize = 64 << 10;

/// How long the disk is left alone after it failed, in milliseconds.
const RETRY_MS: u64 = 500;

/// The longest time that a worker can ask for at once: 12 hours.
const MAX_EXTEND_MS: u32 = 12 * 3_600_000;

/// A worker.
struct Worker {
    conn: Conn,
    writer: OutWriter,
    max_delivery: usize,
    /// What it gets in this turn.
    batch: Vec<u8>,
    batched: Vec<Position>,
    /// Marks that came, and those that it was told of.
    marks: u64,
    told: u64,
}

/// What a group has to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// There is more at once.
    More,
    /// Nothing before this time, in milliseconds.
    At(u64),
    /// Nothing before somebody comes or the log grows.
    Idle,
}

/// A group.
pub(super) struct Live {
    pub(super) topic: TopicName,
    pub(super) name: GroupName,
    dir: PathBuf,
    group: Group,
    journal: Journal,
    /// What the journal has not taken yet.
    unwritten: Changes,
    damaged_bytes: u64,
    reader: Reader,
    epoch: u128,
    messages: Option<Messages>,
    workers: HashMap<Bid, Worker>,
    burial: Burial,
    /// The disk is left alone until then.
    failing: Option<u64>,
}

/// How a group is opened that has no journal yet.
pub(super) struct New {
    pub(super) settings: Settings,
    pub(super) from_newest: bool,
}

impl Live {
    /// Opens a group, or makes it. None: it does not exist, and nobody says how it is to be.
    pub(super) fn open(
        dir: &Path,
        topic: &TopicName,
        name: &GroupName,
        reader: Reader,
        new: Option<New>,
        limits: Limits,
    ) -> Result<Option<Self>, JournalError> {
        let (mut journal, recovered) = Journal::open(dir)?;
        let epoch = u128::from_le_bytes(reader.id());
        let damaged_bytes = recovered.damaged_bytes;
        if damaged_bytes > 0 {
            warn!(
                "group '{name}' of topic '{topic}': {damaged_bytes} bytes of its journal are damaged or missing; messages that were \
                 acknowledged may come again"
            );
        }
        let group = begun(recovered, new, &reader, limits, &format!("group '{name}' of topic '{topic}'"));
        let Some(group) = group else { return Ok(None) };
        journal.save(&group, epoch)?;
        info!(
            "group '{name}' of topic '{topic}': {} messages are pending, the next is at {}",
            group.pending(),
            group.next()
        );
        Ok(Some(Self {
            topic: topic.clone(),
            name: name.clone(),
            dir: dir.to_owned(),
            group,
            journal,
            unwritten: Changes::default(),
            damaged_bytes,
            reader,
            epoch,
            messages: None,
            workers: HashMap::new(),
            burial: Burial::default(),
            failing: None,
        }))
    }

    /// How long a worker may have a message.
    pub(super) fn ack_ms(&self) -> u32 {
        self.group.settings().ack_ms
    }

    /// A worker comes. It gets nothing before [`Live::subscribed`]. False: there are as many as may be.
    pub(super) fn join(&mut self, conn: &Conn, writer: OutWriter, max_delivery: u64, credit: u32) -> bool {
        let bid = writer.buffer().bid();
        if !self.group.join(bid, credit) {
            return false;
        }
        self.group.pause(bid, true);
        let max_delivery = usize::try_from(max_delivery).unwrap_or(usize::MAX);
        let (batch, batched) = (Vec::new(), Vec::new());
        let worker = Worker { conn: conn.clone(), writer, max_delivery, batch, batched, marks: 0, told: 0 };
        self.workers.insert(bid, worker);
        true
    }

    /// A worker reads its buffer, or there is room in it again.
    pub(super) fn has_room(&mut self, bid: Bid) {
        self.group.pause(bid, false);
    }

    /// A worker is gone. What it has goes to others.
    pub(super) fn leave(&mut self, bid: Bid, now: u64) {
        if let Some(worker) = self.workers.remove(&bid) {
            self.group.leave(bid, now);
            worker.writer.buffer().destroy();
        }
    }

    /// A worker's words.
    pub(super) fn mark(&mut self, bid: Bid, marks: &[Mark], now: u64) {
        let end = self.reader.end();
        let Some(worker) = self.workers.get_mut(&bid) else { return };
        worker.marks += marks.len() as u64;
        for Mark { kind, position, ms } in marks {
            match kind {
                MarkKind::Ack => self.group.ack(*position, end),
                MarkKind::Nack => self.group.nack(bid, *position, *ms, now),
                MarkKind::Extend => self.group.extend(bid, *position, (*ms).min(MAX_EXTEND_MS), now),
                MarkKind::Release => self.group.release(bid, *position),
            };
        }
    }

    /// The log of the dead-letter topic's publisher.
    pub(super) fn buries_in(&self) -> Option<rocketbufs::Epoch> {
        self.burial.log()
    }

    /// Dead letters are stored up to a position of their publisher's log.
    pub(super) fn buried(&mut self, to: Position) {
        for position in self.burial.stored(to) {
            self.group.buried(position);
        }
    }

    /// Whether a time is over.
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.group.next_due().is_some_and(|due| due <= now)
    }

    /// Does what can be done now.
    pub(super) fn turn(&mut self, around: &Around<'_>) -> Turn {
        let now = around.now;
        self.group.expire(now);
        if self.failing.is_some_and(|until| until > now) {
            return Turn::At(self.failing.unwrap_or(now));
        }
        self.failing = None;
        let mut is_more = false;
        let handed_out = self.hand_out(now);
        match handed_out {
            Ok(more) => is_more = more,
            Err(error) => self.fails("does not give messages", &error, now),
        }
        self.deliver_all();
        self.bury(around);
        self.write(now);
        match self.failing {
            Some(until) => Turn::At(until),
            None if is_more => Turn::More,
            None => self.group.next_due().map_or(Turn::Idle, Turn::At),
        }
    }

    /// Returns whether there may be more.
    fn hand_out(&mut self, now: u64) -> Result<bool, ReadError> {
        let mut bytes = 0;
        while bytes < TURN_BYTES {
            let Some(handout) = self.group.take(now) else {
                if !self.group.wants() || !self.read_more()? {
                    return Ok(false);
                }
                continue;
            };
            let record = match self.messages.as_ref().and_then(|it| it.record(handout.position, handout.len))
            {
                Some(record) => Some(record),
                None => match reading::record(&mut self.reader, handout.position, handout.len) {
                    Ok(record) => record,
                    Err(error) => {
                        self.group.release(handout.worker, handout.position);
                        return Err(error);
                    }
                },
            };
            let Some(record) = record else {
                warn!(
                    "group '{}' of topic '{}': the message at {} was not done, and the log has it no more",
                    self.name, self.topic, handout.position
                );
                self.group.lost(handout.position);
                continue;
            };
            bytes += GROUP_HEADER_BYTES + record.len();
            self.add(&handout, &record);
        }
        Ok(true)
    }

    /// Reads one more message. False: there is none.
    fn read_more(&mut self) -> Result<bool, ReadError> {
        loop {
            if let Some(messages) = &mut self.messages {
                if let Some(found) = messages.next() {
                    self.group.offer(found.position, found.len, found.key, messages.reached());
                    return Ok(true);
                }
                self.group.passed(messages.end());
            }
            let next = self.group.next();
            if next >= self.reader.end() {
                return Ok(false);
            }
            self.messages = None;
            match reading::read(&mut self.reader, next)? {
                Next::Messages(messages) => self.messages = Some(messages),
                Next::Gap(to) => {
                    warn!(
                        "group '{}' of topic '{}': {} bytes from {next} to {to} were removed or damaged before the group has read them",
                        self.name,
                        self.topic,
                        to - next
                    );
                    self.group.skipped(to);
                }
                Next::End => return Ok(false),
            }
        }
    }

    fn add(&mut self, handout: &Handout, record: &Bytes) {
        let Some(worker) = self.workers.get_mut(&handout.worker) else { return };
        let size = GROUP_HEADER_BYTES + record.len();
        let max = DELIVERY_BYTES.min(worker.max_delivery);
        let is_full = !worker.batch.is_empty() && worker.batch.len() + size > max;
        if is_full {
            self.deliver(handout.worker);
        }
        let Some(worker) = self.workers.get_mut(&handout.worker) else { return };
        worker.batch.extend_from_slice(&handout.position.to_le_bytes());
        worker.batch.extend_from_slice(&handout.attempt.to_le_bytes());
        worker.batch.extend_from_slice(&[0, 0]);
        worker.batch.extend_from_slice(record);
        worker.batched.push(handout.position);
    }

    fn deliver_all(&mut self) {
        let filled: Vec<Bid> =
            self.workers.iter().filter(|(_, worker)| !worker.batch.is_empty()).map(|(bid, _)| *bid).collect();
        filled.into_iter().for_each(|bid| self.deliver(bid));
    }

    /// Delivers what a worker gets in this turn. What its ring has no room for goes to others, or to it later.
    fn deliver(&mut self, bid: Bid) {
        let Some(worker) = self.workers.get_mut(&bid) else { return };
        let delivered = worker.writer.append(&[&worker.batch]);
        worker.batch.clear();
        let positions = std::mem::take(&mut worker.batched);
        let Err(error) = delivered else { return };
        match error {
            SegmentError::TooLarge { size, max } => {
                warn!(
                    "group '{}' of topic '{}': a message of {size} bytes is passed over: the topic's deliveries have at most {max} now (ring_bytes)",
                    self.name, self.topic
                );
                return positions.into_iter().for_each(|position| self.group.lost(position));
            }
            SegmentError::Full => {
                self.group.pause(bid, true);
                worker.writer.buffer().notify_progress(Progress::Room);
            }
            // The worker's end follows.
            _ => self.group.pause(bid, true),
        }
        for position in positions {
            self.group.release(bid, position);
        }
    }

    /// Publishes dead letters.
    fn bury(&mut self, around: &Around<'_>) {
        let topic = match self.group.settings().dead_letter.parse::<TopicName>() {
            Ok(topic) => topic,
            Err(_) => return,
        };
        while let Some(dead) = self.group.next_dead() {
            let record = reading::record(&mut self.reader, dead.position, dead.len);
            let is_published = match &record {
                Ok(Some(record)) => {
                    let letter = Letter { dead, record, topic: &self.topic, group: self.name.as_str() };
                    self.burial.publish(&letter, &topic, around)
                }
                Ok(None) => {
                    self.group.lost(dead.position);
                    continue;
                }
                Err(_) => false,
            };
            if !is_published {
                self.group.not_buried(dead.position, around.now);
            }
        }
    }

    /// Writes what has happened, and tells the workers of it.
    fn write(&mut self, now: u64) {
        let Changes { done, failed } = self.group.take_changes();
        self.unwritten.done.extend(done);
        self.unwritten.failed.extend(failed);
        if !self.unwritten.is_empty() {
            if let Err(error) = self.journal.write(&self.unwritten) {
                return self.fails("does not take acknowledgements", &error, now);
            }
            self.unwritten = Changes::default();
        }
        for worker in self.workers.values_mut().filter(|worker| worker.told < worker.marks) {
            worker.told = worker.marks;
            send_bytes(&worker.conn, &GroupMessage::Marked { count: worker.marks }.encode());
        }
        if self.journal.wants_save()
            && let Err(error) = self.journal.save(&self.group, self.epoch)
        {
            self.fails("does not take the whole group", &error, now);
        }
    }

    fn fails(&mut self, what: &str, error: &dyn std::fmt::Display, now: u64) {
        warn!("group '{}' of topic '{}': the disk {what}: {error}", self.name, self.topic);
        self.failing = Some(now + RETRY_MS);
    }

    /// Ends all workers.
    pub(super) fn dismiss(&mut self, again: bool, reason: &str, now: u64) {
        let workers: Vec<Bid> = self.workers.keys().copied().collect();
        for bid in workers {
            if let Some(worker) = self.workers.get(&bid) {
                send_bytes(
                    &worker.conn,
                    &GroupMessage::Refused { again, reason: reason.to_owned() }.encode(),
                );
            }
            self.leave(bid, now);
        }
    }

    /// The workers' buffers.
    pub(super) fn workers(&self) -> impl Iterator<Item = Bid> {
        self.workers.keys().copied()
    }

    /// Whether the log goes no further: the topic is open no more, or has another log.
    pub(super) fn is_over(&self) -> bool {
        self.reader.is_closed()
    }

    /// Begins anew at a position.
    pub(super) fn reset(
        &mut self,
        to: Option<Position>,
        newest: bool,
        limits: Limits,
    ) -> Result<(), JournalError> {
        let (first, end) = (self.reader.first(), self.reader.end());
        let to = if newest { end } else { to.unwrap_or(first).clamp(first, end) };
        self.group = Group::new(self.group.settings().clone(), to, limits);
        self.messages = None;
        self.unwritten = Changes::default();
        self.journal.save(&self.group, self.epoch)
    }

    /// Forgets the group, whose workers are dismissed.
    pub(super) fn delete(self) -> std::io::Result<()> {
        let dir = self.dir.clone();
        drop(self);
        std::fs::remove_dir_all(dir)
    }

    /// Writes everything to the disk.
    pub(super) fn close(&mut self, now: u64) {
        self.write(now);
        // The next process need not read again what this one has read.
        let saved = self.unwritten.is_empty().then(|| self.journal.save(&self.group, self.epoch));
        if let Err(error) = saved.transpose().and_then(|_| self.journal.sync()) {
            warn!(
                "group '{}' of topic '{}': its journal is not closed in order: {error}",
                self.name, self.topic
            );
        }
    }

    /// How the group is, for people, and a reader of its log, whose end goes on.
    pub(super) fn stats(&self) -> (GroupStats, Reader) {
        let (settings, counters) = (self.group.settings(), self.group.counters());
        let stats = GroupStats {
            topic: self.topic.clone(),
            group: self.name.clone(),
            workers: u32::try_from(self.workers.len()).unwrap_or(u32::MAX),
            pending: self.group.pending() as u64,
            held: self.group.held() as u64,
            floor: self.group.floor(),
            next: self.group.next(),
            end: self.reader.end(),
            delivered: counters.delivered,
            acked: counters.acked,
            failed: counters.failed,
            dead: counters.dead,
            lost: counters.lost,
            lost_bytes: counters.lost_bytes,
            damaged_bytes: self.damaged_bytes,
            ack_ms: settings.ack_ms,
            max_attempts: settings.max_attempts,
            dead_letter: settings.dead_letter.clone(),
            ordered: settings.ordered,
            full: self.group.is_full(),
            failing: self.failing.is_some(),
        };
        (stats, self.reader.clone())
    }
}

/// The group of a journal, or a new one.
fn begun(
    recovered: Recovered,
    new: Option<New>,
    reader: &Reader,
    limits: Limits,
    who: &str,
) -> Option<Group> {
    let is_damaged = recovered.damaged_bytes > 0;
    let saved = recovered.saved.as_ref().map(|saved| (saved.settings.clone(), saved.epoch));
    match (saved, new) {
        (Some((_, its)), _) if its == u128::from_le_bytes(reader.id()) => recovered.group(limits),
        (Some((settings, _)), _) => {
            warn!("{who}: the topic has another log; the group begins with its oldest message");
            Some(Group::new(settings, reader.first(), limits))
        }
        (None, Some(new)) => {
            let first = if new.from_newest && !is_damaged { reader.end() } else { reader.first() };
            Some(Group::new(new.settings, first, limits))
        }
        (None, None) if is_damaged => {
            warn!(
                "{who}: nothing of its journal is left; it begins with the oldest message, with default settings"
            );
            Some(Group::new(Settings::default(), reader.first(), limits))
        }
        (None, None) => None,
    }
}
