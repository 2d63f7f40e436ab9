//! A group at work: its machine, its journal, the log that it reads, and its workers.

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::Bytes;
use rbmq_groups::{
    Answered, Attempt, Changes, Counters, Group, Handout, Journal, JournalError, Limits, Recovered, Settings,
};
use rbmq_wire::connect::random;
use rbmq_wire::{GROUP_HEADER_BYTES, GroupMessage, GroupName, GroupStats, Mark, MarkKind, TopicName};
use rocketbufs::{Bid, Conn, OutWriter, Position, Progress, SegmentError};
use seglog::{ReadError, Reader};
use tracing::{info, warn};

use super::super::kept::Ear;
use super::super::outgoing::send_bytes;
use super::burial::{Burial, Letter, Sent};
use super::reading::{self, Messages, Next};
use super::row::GroupRow;
use super::shared::{Around, Member, Members};

/// A turn hands out at most so many bytes, so that groups take turns.
const TURN_BYTES: usize = 1 << 20;

/// A turn takes at most so many steps in the log, and publishes at most so many dead letters, so that groups take turns.
const TURN_STEPS: usize = 4096;
const TURN_LETTERS: usize = 64;

/// A turn ends with the letter with which it has published so many bytes.
const TURN_LETTERS_BYTES: usize = 1 << 20;

/// A delivery to a worker has at most so many bytes, unless one message is larger.
const DELIVERY_BYTES: usize = 64 << 10;

/// How long the disk is left alone after it failed, in milliseconds.
const RETRY_MS: u64 = 500;

/// A group that has read nothing for this time lets go of what it reads, in milliseconds.
const REST_MS: u64 = 5000;

/// A message that is larger than the rings of the workers is tried again after this time, in milliseconds.
const TOO_LARGE_MS: u32 = 60_000;

/// A worker.
struct Worker {
    conn: Conn,
    writer: OutWriter,
    max_delivery: usize,
    /// The largest delivery for which this worker connects again, to get a larger ring.
    most_delivery: u64,
    /// What it gets in this turn.
    batch: Vec<u8>,
    batched: Vec<Attempt>,
    /// Marks that came, those of them that were refused, and those that it was told of.
    marks: u64,
    refused: u64,
    told: u64,
    /// Its buffer has ended, and it says what is to become of its messages.
    is_leaving: bool,
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
    /// The reader may have a file, or `messages` a delivery; and when something was read last.
    is_reading: bool,
    read_at: u64,
    workers: HashMap<Bid, Worker>,
    /// The largest delivery for which the ring of a worker was too small.
    needed_bytes: u64,
    burial: Burial,
    /// Workers that have ended in this turn.
    ended: Vec<Bid>,
    /// The disk is left alone until then.
    failing: Option<u64>,
}

/// A worker that comes.
pub(super) struct Comes<'a> {
    pub(super) conn: &'a Conn,
    pub(super) writer: OutWriter,
    pub(super) max_delivery: u64,
    /// The largest delivery for which the worker connects again, to get a larger ring.
    pub(super) most_delivery: u64,
    pub(super) credit: u32,
}

/// How a group is opened that has no journal yet.
pub(super) struct New {
    pub(super) settings: Settings,
    pub(super) from_newest: bool,
}

impl Live {
    /// Opens a group, or makes it. None: it does not exist, and nobody says how it is to be.
    pub(super) fn open(
        mut journal: Journal,
        recovered: Recovered,
        topic: &TopicName,
        name: &GroupName,
        reader: Reader,
        new: Option<New>,
        limits: Limits,
    ) -> Result<Option<Self>, JournalError> {
        let dir = recovered.dir.clone();
        let epoch = u128::from_le_bytes(reader.id());
        let damaged_bytes = recovered.damaged_bytes;
        if damaged_bytes > 0 {
            warn!(
                "group '{name}' of topic '{topic}': {damaged_bytes} bytes of its journal are damaged or missing; messages that were \
                 acknowledged may come again"
            );
        }
        let begin = Begin { new, reader: &reader, limits, generation: new_generation()? };
        let Some(group) = begin.with(recovered, &format!("group '{name}' of topic '{topic}'")) else {
            return Ok(None);
        };
        journal.save(&group, epoch)?;
        info!(
            "group '{name}' of topic '{topic}': {} messages are pending, the next is at {}",
            group.pending(),
            group.next()
        );
        Ok(Some(Self {
            topic: topic.clone(),
            name: name.clone(),
            dir,
            group,
            journal,
            unwritten: Changes::default(),
            damaged_bytes,
            reader,
            epoch,
            messages: None,
            is_reading: false,
            read_at: 0,
            workers: HashMap::new(),
            needed_bytes: 0,
            burial: Burial::default(),
            ended: Vec::new(),
            failing: None,
        }))
    }

    /// What the group is since it began anew.
    pub(super) fn generation(&self) -> u64 {
        self.group.generation()
    }

    /// The largest delivery for which the ring of a worker was too small. The next worker needs room for it.
    pub(super) fn needed_bytes(&self) -> u64 {
        self.needed_bytes
    }

    /// How long a worker may have a message.
    pub(super) fn ack_ms(&self) -> u32 {
        self.group.settings().ack_ms
    }

    /// A worker comes. It gets nothing before [`Live::subscribed`]. False: there are as many as may be.
    pub(super) fn join(&mut self, comes: Comes<'_>) -> bool {
        let Comes { conn, writer, max_delivery, most_delivery, credit } = comes;
        let bid = writer.buffer().bid();
        if !self.group.join(bid, credit) {
            return false;
        }
        self.group.pause(bid, true);
        let max_delivery = usize::try_from(max_delivery).unwrap_or(usize::MAX);
        let (batch, batched) = (Vec::new(), Vec::new());
        let conn = conn.clone();
        let (marks, refused, told, is_leaving) = (0, 0, 0, false);
        let worker = Worker {
            conn,
            writer,
            max_delivery,
            most_delivery,
            batch,
            batched,
            marks,
            refused,
            told,
            is_leaving,
        };
        self.workers.insert(bid, worker);
        true
    }

    /// A worker reads its buffer, or there is room in it again.
    pub(super) fn has_room(&mut self, bid: Bid) {
        self.group.pause(bid, false);
    }

    /// A worker will go. It gets nothing more: what is on its way and then the end of its buffer, so that it can say of each message what is to
    /// become of it.
    pub(super) fn retire(&mut self, bid: Bid) {
        self.group.retire(bid);
        if let Some(worker) = self.workers.get_mut(&bid) {
            worker.is_leaving = true;
            worker.writer.buffer().destroy();
        }
    }

    /// Whether a worker will go: its subscription ends before it has said everything.
    pub(super) fn is_leaving(&self, bid: Bid) -> bool {
        self.workers.get(&bid).is_some_and(|worker| worker.is_leaving)
    }

    /// A worker is gone. What it has goes to others.
    pub(super) fn leave(&mut self, bid: Bid, now: u64) {
        if let Some(worker) = self.workers.remove(&bid) {
            self.group.leave(bid, now);
            worker.writer.buffer().destroy();
        }
    }

    /// A worker's words.
    pub(super) fn mark(&mut self, bid: Bid, generation: u64, marks: &[Mark], now: u64) {
        let (end, is_its) = (self.reader.end(), generation == self.group.generation());
        let Some(worker) = self.workers.get_mut(&bid) else { return };
        worker.marks += marks.len() as u64;
        for Mark { kind, position, attempt, ms } in marks {
            let attempt = Attempt { position: *position, number: *attempt };
            let answered = match kind {
                _ if !is_its => Answered::Refused,
                MarkKind::Ack => self.group.ack(bid, attempt, end),
                MarkKind::Nack => self.group.nack(bid, attempt, *ms, now),
                MarkKind::Extend => self.group.extend(bid, attempt, *ms, now),
                MarkKind::Release => self.group.release(bid, attempt),
                MarkKind::Drop => self.group.drop_message(bid, attempt),
            };
            worker.refused += u64::from(*kind == MarkKind::Ack && answered == Answered::Refused);
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

    /// Does what can be done now. What workers have said is in the journal before anything that follows from it is handed out.
    pub(super) fn turn(&mut self, around: &Around<'_>) -> Turn {
        let now = around.now;
        let mut is_more = self.group.expire(now);
        for position in self.burial.ended(around.ear) {
            self.group.not_buried(position, now);
        }
        if let Some(until) = self.failing.filter(|until| *until > now) {
            return Turn::At(until);
        }
        self.failing = None;
        self.write(now);
        if let Some(until) = self.failing {
            return Turn::At(until);
        }
        match self.hand_out(now) {
            Ok(more) => is_more |= more,
            Err(error) => self.fails("does not give messages", &error, now),
        }
        self.deliver_all(now);
        is_more |= self.bury(around) || self.group.has_changes();
        self.rest(now);
        match self.failing {
            Some(until) => Turn::At(until),
            None if is_more => Turn::More,
            None => {
                let asks = self.burial.asks_at().filter(|_| self.group.has_dead());
                self.group.next_due().into_iter().chain(asks).min().map_or(Turn::Idle, Turn::At)
            }
        }
    }

    /// A group that reads nothing holds no delivery in memory, and no file of the log, whose room on the disk is free after its removal.
    fn rest(&mut self, now: u64) {
        let reads = !self.workers.is_empty() || self.group.has_dead();
        if self.is_reading && (!reads || self.read_at + REST_MS < now) {
            (self.messages, self.is_reading) = (None, false);
            self.reader = self.reader.clone();
        }
    }

    /// The most memory of what is pending.
    pub(super) fn cost(&self) -> usize {
        self.group.cost()
    }

    /// Whether all groups together have no memory left.
    pub(super) fn tighten(&mut self, is_tight: bool) {
        self.group.tighten(is_tight);
    }

    /// Returns whether there may be more.
    fn hand_out(&mut self, now: u64) -> Result<bool, ReadError> {
        let lost = self.group.counters().lost;
        let result = self.hand_out_some(now);
        let lost = self.group.counters().lost - lost;
        if lost > 0 {
            warn!(
                "group '{}' of topic '{}': {lost} messages were not done, and the log has them no more",
                self.name, self.topic
            );
        }
        result
    }

    fn hand_out_some(&mut self, now: u64) -> Result<bool, ReadError> {
        let mut bytes = 0;
        for _ in 0..TURN_STEPS {
            if bytes >= TURN_BYTES {
                break;
            }
            let Some(handout) = self.group.take(now) else {
                if !self.group.wants() || !self.read_more()? {
                    return Ok(false);
                }
                continue;
            };
            (self.is_reading, self.read_at) = (true, now);
            let record = match self.messages.as_ref().and_then(|it| it.record(handout.position, handout.len))
            {
                Some(record) => Some(record),
                None => match reading::record(&mut self.reader, handout.position, handout.len) {
                    Ok(record) => record,
                    Err(error) => {
                        self.group.release(handout.worker, handout.attempt());
                        return Err(error);
                    }
                },
            };
            let Some(record) = record else {
                self.group.lost(handout.position);
                continue;
            };
            bytes += GROUP_HEADER_BYTES + record.len();
            self.add(&handout, &record, now);
        }
        Ok(true)
    }

    /// Takes a step in the log: to the next message, or over what has none. False: there is nothing more.
    fn read_more(&mut self) -> Result<bool, ReadError> {
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
        (self.messages, self.is_reading) = (None, true);
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
        Ok(true)
    }

    fn add(&mut self, handout: &Handout, record: &Bytes, now: u64) {
        let Some(worker) = self.workers.get_mut(&handout.worker) else { return };
        let size = GROUP_HEADER_BYTES + record.len();
        let max = DELIVERY_BYTES.min(worker.max_delivery);
        let is_full = !worker.batch.is_empty() && worker.batch.len() + size > max;
        if is_full {
            self.deliver(handout.worker, now);
        }
        let Some(worker) = self.workers.get_mut(&handout.worker) else { return };
        worker.batch.extend_from_slice(&handout.position.to_le_bytes());
        worker.batch.extend_from_slice(&handout.attempt.to_le_bytes());
        worker.batch.extend_from_slice(&[0, 0]);
        worker.batch.extend_from_slice(record);
        worker.batched.push(handout.attempt());
    }

    fn deliver_all(&mut self, now: u64) {
        let filled: Vec<Bid> =
            self.workers.iter().filter(|(_, worker)| !worker.batch.is_empty()).map(|(bid, _)| *bid).collect();
        filled.into_iter().for_each(|bid| self.deliver(bid, now));
    }

    /// Delivers what a worker gets in this turn. What its ring has no room for goes to others, or to it later.
    fn deliver(&mut self, bid: Bid, now: u64) {
        let Some(worker) = self.workers.get_mut(&bid) else { return };
        let delivered = worker.writer.append(&[&worker.batch]);
        worker.batch.clear();
        let attempts = std::mem::take(&mut worker.batched);
        let Err(error) = delivered else { return };
        match error {
            // The next ring of the worker has room for the message. This is no failed attempt.
            SegmentError::TooLarge { size, .. } if size <= worker.most_delivery => {
                self.needed_bytes = self.needed_bytes.max(size);
                return self.dismiss_one(bid, true, "the topic has larger messages now", now);
            }
            SegmentError::TooLarge { size, .. } => {
                warn!(
                    "group '{}' of topic '{}': a message of {size} bytes waits: a worker may have no ring for it (broker.max_group_ring_bytes, buffers.max_ring_bytes, quotas)",
                    self.name, self.topic
                );
                for attempt in attempts {
                    self.group.nack(bid, attempt, TOO_LARGE_MS, now);
                }
                return;
            }
            SegmentError::Full => {
                self.group.pause(bid, true);
                worker.writer.buffer().notify_progress(Progress::Room);
            }
            // The worker's end follows.
            _ => self.group.pause(bid, true),
        }
        for attempt in attempts {
            self.group.release(bid, attempt);
        }
    }

    /// Publishes dead letters. Returns whether there are more.
    fn bury(&mut self, around: &Around<'_>) -> bool {
        let topic = match self.group.settings().dead_letter.parse::<TopicName>() {
            Ok(topic) => topic,
            Err(_) => return false,
        };
        // Nothing is read before it can be published.
        if !self.group.has_dead() || !self.burial.is_open(&topic, around) {
            return false;
        }
        self.is_reading = true;
        let mut bytes = 0;
        for _ in 0..TURN_LETTERS {
            let Some(dead) = self.group.next_dead() else { return false };
            if !self.burial.takes(dead.len, &topic) {
                self.group.not_buried(dead.position, around.now);
                continue;
            }
            bytes += dead.len as usize;
            let record = reading::record(&mut self.reader, dead.position, dead.len);
            let sent = match &record {
                Ok(Some(record)) => {
                    let letter = Letter { dead, record, topic: &self.topic, group: self.name.as_str() };
                    self.burial.publish(&letter)
                }
                Ok(None) => {
                    self.group.lost(dead.position);
                    continue;
                }
                Err(_) => Sent::Later,
            };
            match sent {
                Sent::Published => {}
                Sent::Later => self.group.not_buried(dead.position, around.now),
                Sent::Wait => {
                    self.group.not_buried_yet(dead.position);
                    return false;
                }
            }
            if bytes >= TURN_LETTERS_BYTES {
                break;
            }
        }
        true
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
            let marked = GroupMessage::Marked { count: worker.marks, refused: worker.refused };
            send_bytes(&worker.conn, &marked.encode());
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
        workers.into_iter().for_each(|bid| self.dismiss_one(bid, again, reason, now));
    }

    /// Ends a worker. That it has not done its messages is not its fault.
    fn dismiss_one(&mut self, bid: Bid, again: bool, reason: &str, now: u64) {
        if let Some(worker) = self.workers.get(&bid) {
            let refused = GroupMessage::Refused { again, reason: reason.to_owned() };
            send_bytes(&worker.conn, &refused.encode());
        }
        self.group.dismiss(bid);
        self.leave(bid, now);
        self.ended.push(bid);
    }

    /// The workers that this group has ended since this was asked last.
    pub(super) fn take_ended(&mut self) -> Vec<Bid> {
        std::mem::take(&mut self.ended)
    }

    /// The workers' buffers.
    pub(super) fn workers(&self) -> impl Iterator<Item = Bid> {
        self.workers.keys().copied()
    }

    /// Whether the log goes no further: the topic is open no more, or has another log.
    pub(super) fn is_over(&self) -> bool {
        self.reader.is_closed()
    }

    /// The group as it begins anew, at a position or elsewhere.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn anew(
        &self,
        to: Option<Position>,
        newest: bool,
        limits: Limits,
    ) -> Result<Group, JournalError> {
        let (first, end) = (self.reader.first(), self.reader.end());
        let to = if newest { end } else { to.unwrap_or(first).clamp(first, end) };
        Ok(Group::new(self.group.settings().clone(), new_generation()?, to, limits))
    }

    /// Ends without a word to the journal. Returns the journal's folder, and the name of the log.
    pub(super) fn abandon(mut self, ear: &Ear) -> (PathBuf, u128) {
        self.burial.close(ear);
        (self.dir, self.epoch)
    }

    /// Writes everything to the disk.
    pub(super) fn close(&mut self, ear: &Ear, now: u64) {
        self.write(now);
        self.burial.close(ear);
        // The next process need not read again what this one has read.
        let saved = self.unwritten.is_empty().then(|| self.journal.save(&self.group, self.epoch));
        if let Err(error) = saved.transpose().and_then(|_| self.journal.sync()) {
            warn!(
                "group '{}' of topic '{}': its journal is not closed in order: {error}",
                self.name, self.topic
            );
        }
    }

    /// The workers, at most so many, and what they have.
    pub(super) fn members(&self, most: usize) -> Members {
        let member = |(bid, worker): (&Bid, &Worker)| {
            let at_worker = self.group.worker(*bid)?;
            Some(Member { conn: worker.conn.id(), at_worker, is_leaving: worker.is_leaving })
        };
        let rows = self.workers.iter().take(most).filter_map(member).collect();
        Members { rows, is_cut: self.workers.len() > most }
    }

    /// The state of the group, for people.
    pub(super) fn row(&self) -> GroupRow {
        let (stats, reader) = self.stats();
        let Counters { read, read_bytes, .. } = self.group.counters();
        GroupRow { stats, reader, read, read_bytes }
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

/// How a group begins whose journal is opened.
struct Begin<'a> {
    new: Option<New>,
    reader: &'a Reader,
    limits: Limits,
    /// For a group that begins anew.
    generation: u64,
}

impl Begin<'_> {
    /// The group of a journal, or a new one.
    fn with(self, recovered: Recovered, who: &str) -> Option<Group> {
        let Self { new, reader, limits, generation } = self;
        let is_damaged = recovered.damaged_bytes > 0;
        let saved = recovered.saved.as_ref().map(|saved| (saved.settings.clone(), saved.epoch));
        let (settings, first) = match (saved, new) {
            (Some((_, its)), _) if its == u128::from_le_bytes(reader.id()) => return recovered.group(limits),
            (Some((settings, _)), _) => {
                warn!("{who}: the topic has another log; the group begins with its oldest message");
                (settings, reader.first())
            }
            (None, Some(new)) => {
                let is_newest = new.from_newest && !is_damaged;
                (new.settings, if is_newest { reader.end() } else { reader.first() })
            }
            (None, None) if is_damaged => {
                warn!(
                    "{who}: nothing of its journal is left; it begins with the oldest message, with default settings"
                );
                (Settings::default(), reader.first())
            }
            (None, None) => return None,
        };
        Some(Group::new(settings, generation, first, limits))
    }
}

/// A number that no group has had.
fn new_generation() -> Result<u64, JournalError> {
    let number = random().map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok((number >> 64) as u64)
}
