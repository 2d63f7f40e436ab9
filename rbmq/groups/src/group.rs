//! The machine of a group: who gets which message, and what is done.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::pending::{ENTRY_BYTES, Entry, NONE, Pending, Place, Stage};
use crate::state::{Changes, MAX_PENDING, Saved, SavedEntry, Settings};
use crate::worker::{Attempt, NOBODY, Worker};

/// A message that goes nowhere is tried again after this time, in milliseconds.
const DEAD_RETRY_MS: u64 = 1000;

/// A call looks at about so many messages whose time is over.
const EXPIRED_AT_ONCE: usize = 4096;

/// So many messages are pending in a group at most while all groups together have no memory left.
pub const TIGHT_PENDING: usize = 1024;

/// The longest time that a worker can ask for at once, and the longest delay of a message that was given back: 12 hours.
const LONGEST_MS: u32 = 12 * 3_600_000;

/// What a group may use at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Messages that were read and are not done, at most [`MAX_PENDING`]. Each costs at most [`ENTRY_BYTES`](crate::ENTRY_BYTES).
    pub max_pending: usize,
    /// Different keys among them, of an ordered group. Each costs about 40 bytes.
    pub max_keys: usize,
    /// Workers.
    pub max_workers: usize,
    /// Messages that a worker has at a time; one that asks for more gets so many.
    pub max_credit: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_pending: 1 << 20, max_keys: 1 << 16, max_workers: 1024, max_credit: 10_000 }
    }
}

/// A message for a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handout {
    /// The worker.
    pub worker: u32,
    /// Where the record begins in the log.
    pub position: u64,
    /// The bytes of the record, with its header.
    pub len: u32,
    /// 1 for the first attempt.
    pub attempt: u16,
}

impl Handout {
    /// The message, and which attempt it is.
    pub fn attempt(&self) -> Attempt {
        Attempt { position: self.position, number: self.attempt }
    }
}

/// A message for the dead-letter topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dead {
    /// Where the record begins in the log.
    pub position: u64,
    /// The bytes of the record, with its header.
    pub len: u32,
    /// The attempts that have failed.
    pub attempts: u16,
}

/// What came of a worker's word about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// It is as the worker says.
    Done,
    /// The message is done already, or the worker does not have it any more.
    Late,
    /// The word is of an earlier generation, the log has no such message, or there is no room to remember that it is done: nothing is noted,
    /// and the message comes, or comes again.
    Refused,
}

/// What a worker has, in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtWorker {
    /// Messages that are its own.
    pub held: usize,
    /// Messages whose time is over, of which it has not said a word.
    pub overdue: usize,
    /// The most of both.
    pub credit: usize,
}

/// What has happened since the machine was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages that were handed out, each time.
    pub delivered: u64,
    /// Messages that were acknowledged.
    pub acked: u64,
    /// Attempts that have failed: time-outs, lost workers and messages that workers gave back.
    pub failed: u64,
    /// Messages that went to the dead-letter topic.
    pub dead: u64,
    /// Messages that the log had no more before they were done.
    pub lost: u64,
    /// Bytes that the log had no more before they were read.
    pub lost_bytes: u64,
    /// Messages that were read, and the bytes of the log that they took: so much a message has on average.
    pub read: u64,
    /// See `read`.
    pub read_bytes: u64,
}

/// A group. See the crate's drawing.
///
/// ```
/// use rbmq_groups::{Answered, Group, Limits, Settings};
/// let mut group = Group::new(Settings::default(), 7, 0, Limits::default());
/// assert!(group.join(1, 10));
/// group.offer(100, 24, 0, 124);
/// let handout = group.take(0).expect("there is a message and a worker");
/// assert_eq!((handout.worker, handout.position, handout.attempt), (1, 100, 1));
/// assert_eq!(group.ack(1, handout.attempt(), 124), Answered::Done);
/// assert_eq!(group.floor(), 124);
/// ```
#[derive(Debug)]
pub struct Group {
    settings: Settings,
    generation: u64,
    limits: Limits,
    is_tight: bool,
    pending: Pending,
    /// Everything below was read.
    next: u64,
    /// The last pending message of each key.
    keys: HashMap<u32, u64>,
    workers: BTreeMap<u32, Worker>,
    /// The workers with room, in the order in which they get messages.
    turn: VecDeque<u32>,
    /// What an earlier process knew of messages that are not read yet.
    done_ahead: BTreeSet<u64>,
    failed_ahead: BTreeMap<u64, u16>,
    dying: VecDeque<u64>,
    changes: Changes,
    counters: Counters,
}

impl Group {
    /// A new group, which begins to read at a position. The generation is a number that no earlier group of this name has had.
    pub fn new(settings: Settings, generation: u64, next: u64, limits: Limits) -> Self {
        let limits = Limits { max_pending: limits.max_pending.min(MAX_PENDING), ..limits };
        Self {
            settings,
            generation,
            limits,
            is_tight: false,
            pending: Pending::default(),
            next,
            keys: HashMap::new(),
            workers: BTreeMap::new(),
            turn: VecDeque::new(),
            done_ahead: BTreeSet::new(),
            failed_ahead: BTreeMap::new(),
            dying: VecDeque::new(),
            changes: Changes::default(),
            counters: Counters::default(),
        }
    }

    /// The group as the journal has it: what was there, and what has happened since. Nobody has a message.
    pub fn restore(saved: Saved, since: impl IntoIterator<Item = Changes>, limits: Limits) -> Self {
        let mut group = Self::new(saved.settings, saved.generation, saved.next, limits);
        let (mut done, mut failed) = (BTreeSet::new(), BTreeMap::new());
        for changes in std::iter::once(saved.ahead).chain(since) {
            done.extend(changes.done);
            failed.extend(changes.failed);
        }
        for SavedEntry { position, len, key, attempts } in saved.pending {
            if !done.contains(&position) {
                group.add(position, len, key, failed.get(&position).copied().unwrap_or(attempts));
            }
        }
        failed.retain(|position, _| !done.contains(position));
        group.done_ahead = done.split_off(&group.next);
        group.failed_ahead = failed.split_off(&group.next);
        group
    }

    /// How the group works.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What names the group since it began anew. A word of another generation does not count.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Everything below this position was read from the log.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Everything below this position is done.
    pub fn floor(&self) -> u64 {
        self.pending.iter().next().map_or(self.next, |entry| entry.position)
    }

    /// The messages that were read and are not done.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The messages that workers have.
    pub fn held(&self) -> usize {
        self.workers.values().map(|worker| worker.held.len()).sum()
    }

    /// The workers.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// What a worker has, and may have at a time. None: there is no such worker.
    pub fn worker(&self, worker: u32) -> Option<AtWorker> {
        let of = self.workers.get(&worker)?;
        Some(AtWorker { held: of.held.len(), overdue: of.overdue(), credit: of.credit() })
    }

    /// What has happened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The memory of the pending messages, in bytes.
    pub fn memory(&self) -> usize {
        self.pending.memory()
    }

    /// The most memory that the group uses, in bytes: for messages that are pending, for those that are known before they are read, and for keys.
    pub fn cost(&self) -> usize {
        let entries = self.pending.len() + self.done_ahead.len() + self.failed_ahead.len() + self.keys.len();
        entries * ENTRY_BYTES
    }

    /// Whether all groups together have no memory left: then this one reads no more than a little, [`TIGHT_PENDING`], so that every group goes on.
    pub fn tighten(&mut self, is_tight: bool) {
        self.is_tight = is_tight;
    }

    fn max_pending(&self) -> usize {
        let max = self.limits.max_pending;
        if self.is_tight { max.min(TIGHT_PENDING) } else { max }
    }

    /// A worker comes, which may have `credit` messages at a time, within the limit. False: the group has as many as it may.
    pub fn join(&mut self, worker: u32, credit: u32) -> bool {
        let is_full = self.workers.len() >= self.limits.max_workers;
        if is_full || worker == NOBODY || self.workers.contains_key(&worker) {
            return false;
        }
        self.workers.insert(worker, Worker::new(credit.min(self.limits.max_credit)));
        self.line_up(worker);
        true
    }

    /// A worker is gone. What it has counts as a failed attempt, and others get it.
    pub fn leave(&mut self, worker: u32, now: u64) {
        let Some(gone) = self.workers.remove(&worker) else { return };
        self.turn.retain(|other| *other != worker);
        gone.held.into_iter().for_each(|position| self.fail(position, now, 0));
    }

    /// A worker has to go: what it has is ready for others, and that is no attempt.
    pub fn dismiss(&mut self, worker: u32) {
        let Some(of) = self.workers.get_mut(&worker) else { return };
        of.is_leaving = true;
        for position in std::mem::take(&mut of.held) {
            if let Some(place) = self.pending.find(position) {
                self.pending.set(place, Stage::Ready, 0);
            }
        }
    }

    /// A worker will go: it gets nothing more, and says what it has not begun with.
    pub fn retire(&mut self, worker: u32) {
        if let Some(of) = self.workers.get_mut(&worker) {
            of.is_leaving = true;
        }
    }

    /// A worker's ring is full: it gets nothing more. False again: it has room.
    pub fn pause(&mut self, worker: u32, is_paused: bool) {
        if let Some(of) = self.workers.get_mut(&worker) {
            of.is_paused = is_paused;
        }
        self.line_up(worker);
    }

    /// Whether more is to be read: a worker has room, no message is ready, and the limits allow it.
    pub fn wants(&self) -> bool {
        self.pending.ready() == 0
            && self.pending.len() < self.max_pending()
            && self.keys.len() < self.limits.max_keys
            && self.turn.iter().any(|worker| self.workers.get(worker).is_some_and(Worker::has_room))
    }

    /// Whether the pending set is full, so that nothing more is read.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= self.max_pending() || self.keys.len() >= self.limits.max_keys
    }

    /// A message of the log, at `next` or behind it. `end`: what was read with it.
    pub fn offer(&mut self, position: u64, len: u32, key: u32, end: u64) {
        if position < self.next {
            return;
        }
        self.counters.read += 1;
        let attempts = self.failed_ahead.remove(&position).unwrap_or(0);
        if !self.done_ahead.remove(&position) {
            self.add(position, len, key, attempts);
        }
        self.passed(end);
    }

    /// Everything below a position was read.
    pub fn passed(&mut self, to: u64) {
        self.counters.read_bytes += to.saturating_sub(self.next);
        self.advance(to);
    }

    fn advance(&mut self, to: u64) {
        self.next = self.next.max(to);
        if !self.done_ahead.is_empty() {
            self.done_ahead = self.done_ahead.split_off(&self.next);
        }
        if !self.failed_ahead.is_empty() {
            self.failed_ahead = self.failed_ahead.split_off(&self.next);
        }
    }

    /// The log has nothing more below a position: it was removed, or damaged, before it was read.
    pub fn skipped(&mut self, to: u64) {
        self.counters.lost_bytes += to.saturating_sub(self.next);
        self.advance(to);
    }

    fn add(&mut self, position: u64, len: u32, key: u32, attempts: u16) {
        let mut stage = if self.is_last(attempts) { Stage::Dying } else { Stage::Ready };
        if self.settings.ordered
            && key != 0
            && let Some(before) = self.keys.insert(key, position)
            && let Some(place) = self.pending.find(before)
        {
            self.pending.change(place, |entry| entry.next = position);
            stage = Stage::Blocked;
        }
        let entry =
            Entry { position, due: NONE, next: NONE, len, key, worker: 0, attempts, stage: Stage::Blocked };
        self.pending.push(entry);
        if stage != Stage::Blocked
            && let Some(place) = self.pending.find(position)
        {
            self.pending.set(place, stage, 0);
        }
    }

    /// The next message for a worker. None: there is none, or no worker has room.
    pub fn take(&mut self, now: u64) -> Option<Handout> {
        let worker = loop {
            let worker = *self.turn.front()?;
            match self.workers.get_mut(&worker) {
                Some(of) if of.has_room() => break worker,
                Some(of) => of.is_waiting = false,
                None => {}
            }
            self.turn.pop_front();
        };
        let place = self.pending.first_ready()?;
        let due = now.saturating_add(self.settings.ack_ms.max(1).into());
        self.pending.set(place, Stage::Held, due);
        self.pending.change(place, |entry| entry.worker = worker);
        let Entry { position, len, attempts, .. } = *self.pending.get(place);
        self.turn.pop_front();
        if let Some(of) = self.workers.get_mut(&worker) {
            of.held.insert(position);
            of.is_waiting = false;
        }
        self.line_up(worker);
        self.counters.delivered += 1;
        Some(Handout { worker, position, len, attempt: attempts.saturating_add(1) })
    }

    /// A worker with room gets a place in the turn.
    fn line_up(&mut self, worker: u32) {
        if let Some(of) = self.workers.get_mut(&worker).filter(|of| of.has_room() && !of.is_waiting) {
            of.is_waiting = true;
            self.turn.push_back(worker);
        }
    }

    /// A message is done, whoever says so: a worker whose time was over has done it nevertheless. `end` is the end of the log: a worker
    /// of an earlier process may know messages that are not read again yet.
    pub fn ack(&mut self, worker: u32, attempt: Attempt, end: u64) -> Answered {
        self.settle(worker, attempt);
        let position = attempt.position;
        let answered = match self.pending.find(position) {
            Some(place) => self.ack_pending(place, worker, attempt),
            None => self.ack_ahead(position, end),
        };
        if answered == Answered::Done {
            self.changes.done.push(position);
            self.counters.acked += 1;
        }
        answered
    }

    fn ack_pending(&mut self, place: Place, worker: u32, attempt: Attempt) -> Answered {
        match self.pending.get(place).stage {
            Stage::Early => return Answered::Late,
            // A journal with damage knows less than the workers do.
            Stage::Blocked => self.pending.set(place, Stage::Early, 0),
            _ => self.finish(place, Some((worker, attempt))),
        }
        Answered::Done
    }

    fn ack_ahead(&mut self, position: u64, end: u64) -> Answered {
        if position < self.next || self.done_ahead.contains(&position) {
            return Answered::Late;
        }
        if position >= end || self.done_ahead.len() >= self.max_pending() {
            return Answered::Refused;
        }
        self.done_ahead.insert(position);
        Answered::Done
    }

    /// A worker cannot do a message now. Others get it after `delay_ms`, at most 12 hours.
    pub fn nack(&mut self, worker: u32, attempt: Attempt, delay_ms: u32, now: u64) -> Answered {
        if self.settle(worker, attempt) || self.place_of(worker, attempt).is_none() {
            return Answered::Late;
        }
        self.let_go(worker, attempt.position);
        self.fail(attempt.position, now, delay_ms.min(LONGEST_MS).into());
        Answered::Done
    }

    /// A worker has not begun with a message, and gives it back: that is no attempt.
    pub fn release(&mut self, worker: u32, attempt: Attempt) -> Answered {
        if self.settle(worker, attempt) {
            return Answered::Late;
        }
        let Some(place) = self.place_of(worker, attempt) else { return Answered::Late };
        self.let_go(worker, attempt.position);
        self.pending.set(place, Stage::Ready, 0);
        Answered::Done
    }

    /// A worker works on a message no more, and does not say how it ended: others get it after its time.
    pub fn drop_message(&mut self, worker: u32, attempt: Attempt) -> Answered {
        if self.settle(worker, attempt) {
            return Answered::Late;
        }
        let Some(place) = self.place_of(worker, attempt) else { return Answered::Late };
        self.let_go(worker, attempt.position);
        self.pending.change(place, |entry| entry.worker = NOBODY);
        Answered::Done
    }

    /// A worker needs more time: `ms` from now on, at most 12 hours.
    pub fn extend(&mut self, worker: u32, attempt: Attempt, ms: u32, now: u64) -> Answered {
        let Some(place) = self.place_of(worker, attempt) else { return Answered::Late };
        self.pending.set(place, Stage::Held, now.saturating_add(ms.min(LONGEST_MS).into()));
        Answered::Done
    }

    /// A worker has said a word of a message that was its own once.
    fn settle(&mut self, worker: u32, attempt: Attempt) -> bool {
        let was_its = self.workers.get_mut(&worker).is_some_and(|of| of.settle(attempt));
        if was_its {
            self.line_up(worker);
        }
        was_its
    }

    fn place_of(&self, worker: u32, attempt: Attempt) -> Option<Place> {
        let place = self.pending.find(attempt.position)?;
        let entry = self.pending.get(place);
        let is_its = entry.stage == Stage::Held && entry.worker == worker;
        (is_its && entry.attempt() == attempt).then_some(place)
    }

    /// The log has a message no more, or it cannot be brought to the worker that should have it.
    pub fn lost(&mut self, position: u64) {
        if let Some(place) = self.pending.find(position) {
            let entry = *self.pending.get(place);
            let by = (entry.stage == Stage::Held).then_some((entry.worker, entry.attempt()));
            self.finish(place, by);
            self.changes.done.push(position);
            self.counters.lost += 1;
        }
    }

    /// When something is to be done without anybody's word.
    pub fn next_due(&self) -> Option<u64> {
        Some(self.pending.due()).filter(|due| *due != NONE)
    }

    /// Does what is due: messages whose time is over, and those whose delay is. A call has a limit; true: there is more to do at once.
    pub fn expire(&mut self, now: u64) -> bool {
        let due = self.pending.take_due(now, EXPIRED_AT_ONCE);
        due.into_iter().for_each(|position| self.expire_one(position, now));
        self.pending.due() <= now
    }

    fn expire_one(&mut self, position: u64, now: u64) {
        let Some(place) = self.pending.find(position) else { return };
        match self.pending.get(place).stage {
            Stage::Held => {
                let entry = *self.pending.get(place);
                self.miss(entry.worker, entry.attempt());
                self.fail(position, now, 0);
            }
            Stage::Delayed => self.pending.set(place, Stage::Ready, 0),
            Stage::Dying => {
                self.pending.set(place, Stage::Dying, NONE);
                self.dying.push_back(position);
            }
            _ => {}
        }
    }

    /// Whether messages wait for the dead-letter topic.
    pub fn has_dead(&self) -> bool {
        !self.dying.is_empty()
    }

    /// The next message for the dead-letter topic. [`Group::buried`] or [`Group::not_buried`] says what came of it.
    pub fn next_dead(&mut self) -> Option<Dead> {
        loop {
            let position = self.dying.pop_front()?;
            if let Some(place) = self.pending.find(position) {
                let Entry { len, attempts, .. } = *self.pending.get(place);
                return Some(Dead { position, len, attempts });
            }
        }
    }

    /// A message is in the dead-letter topic.
    pub fn buried(&mut self, position: u64) {
        if let Some(place) = self.pending.find(position) {
            self.finish(place, None);
            self.changes.done.push(position);
            self.counters.dead += 1;
        }
    }

    /// The dead-letter topic takes a message as soon as it has taken the one before.
    pub fn not_buried_yet(&mut self, position: u64) {
        self.dying.push_front(position);
    }

    /// The dead-letter topic has not taken a message, and is tried again later.
    pub fn not_buried(&mut self, position: u64, now: u64) {
        if let Some(place) = self.pending.find(position) {
            self.pending.set(place, Stage::Dying, now.saturating_add(DEAD_RETRY_MS));
        }
    }

    /// Whether something has happened that the journal does not have.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// What has happened since the last call, for the journal.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// The group as a whole, for the journal.
    pub fn save(&self, epoch: u128) -> Saved {
        let saved = |entry: &Entry| {
            let Entry { position, len, key, attempts, .. } = *entry;
            SavedEntry { position, len, key, attempts }
        };
        let pending = self.pending.iter().filter(|entry| entry.stage != Stage::Early).map(saved).collect();
        let failed = self.failed_ahead.iter().map(|(position, attempts)| (*position, *attempts)).collect();
        let ahead = Changes { done: self.done_ahead.iter().copied().collect(), failed };
        let (settings, generation) = (self.settings.clone(), self.generation);
        Saved { settings, epoch, generation, next: self.next, pending, ahead }
    }

    fn is_last(&self, attempts: u16) -> bool {
        self.settings.max_attempts > 0 && attempts >= self.settings.max_attempts
    }

    /// A worker has a message no more, and knows it.
    fn let_go(&mut self, worker: u32, position: u64) {
        if let Some(of) = self.workers.get_mut(&worker) {
            of.held.remove(&position);
        }
        self.line_up(worker);
    }

    /// A worker has a message no more, and does not know.
    fn miss(&mut self, worker: u32, attempt: Attempt) {
        if let Some(of) = self.workers.get_mut(&worker) {
            of.lose(attempt);
        }
    }

    /// An attempt has failed. The worker has the message no more.
    fn fail(&mut self, position: u64, now: u64, delay_ms: u64) {
        let Some(place) = self.pending.find(position) else { return };
        self.pending.change(place, |entry| entry.attempts = entry.attempts.saturating_add(1));
        let attempts = self.pending.get(place).attempts;
        self.counters.failed += 1;
        self.changes.failed.push((position, attempts));
        if self.is_last(attempts) {
            self.pending.set(place, Stage::Dying, now);
        } else if delay_ms > 0 {
            self.pending.set(place, Stage::Delayed, now.saturating_add(delay_ms));
        } else {
            self.pending.set(place, Stage::Ready, 0);
        }
    }

    /// A message is done, as a worker says with an attempt, or nobody.
    fn finish(&mut self, place: Place, by: Option<(u32, Attempt)>) {
        let entry = *self.pending.get(place);
        if entry.stage == Stage::Held {
            if by == Some((entry.worker, entry.attempt())) {
                self.let_go(entry.worker, entry.position);
            } else {
                self.miss(entry.worker, entry.attempt());
            }
        }
        self.pending.set(place, Stage::Done, 0);
        if self.settings.ordered && entry.key != 0 {
            self.unblock(entry);
        }
    }

    /// The message of a key behind one that is done is the key's first one now.
    fn unblock(&mut self, mut entry: Entry) {
        while entry.next != NONE {
            let Some(place) = self.pending.find(entry.next) else { return };
            entry = *self.pending.get(place);
            match entry.stage {
                Stage::Early => self.pending.set(place, Stage::Done, 0),
                Stage::Blocked if self.is_last(entry.attempts) => {
                    return self.pending.set(place, Stage::Dying, 0);
                }
                Stage::Blocked => return self.pending.set(place, Stage::Ready, 0),
                _ => return,
            }
        }
        self.keys.remove(&entry.key);
    }
}
