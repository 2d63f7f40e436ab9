//! Groups of named consumers ([`rbmq_groups::Consumers`]), whose clients are those of gateways in this process.
//!
//! ```text
//!   gateway ─ with ──▶ the group, under a lock: memory only ─ write ──▶ journal, before a client is answered
//!   gateway ─ change ─▶ thread of the groups: makes and removes folders ─ wake ──▶ the gateway asks again
//! ```
//!
//! Gateways read the log themselves, as for streams. So what a group has to decide is a look into a tree, and waits for no thread.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use access::Charge;
use locks::Mutex;
use rbmq_groups::{Consumers, EntryId, Journal, JournalError, TIGHT_PENDING};
use rbmq_wire::{GroupName, GroupStats, TopicName};
use seglog::Reader;
use tracing::warn;

use super::super::kept::KeptLogs;
use super::row::{GroupLimits, GroupRow};

/// How long the disk is left alone after it failed.
const RETRY: Duration = Duration::from_millis(500);

/// Nobody has groups now.
const NONE: &str = "this broker has no groups: it stops, or is a member of a cluster";

/// What a group of named consumers may have more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRoom {
    /// Entries that may become pending.
    pub entries: usize,
    /// Consumers, all of them.
    pub consumers: usize,
}

/// A group of named consumers is to be made or removed.
#[derive(Debug)]
pub struct GroupChange {
    /// The kept topic.
    pub topic: TopicName,
    /// The group.
    pub group: GroupName,
    /// How it begins; none: it is to be removed.
    pub make: Option<Consumers>,
    /// What it costs whoever makes it.
    pub charge: Option<GroupCharge>,
}

/// A group that counts in the quotas of whoever has made it.
#[derive(Debug)]
pub struct GroupCharge(pub(crate) Charge);

/// A group.
pub(super) struct Named {
    pub(super) topic: TopicName,
    pub(super) name: GroupName,
    pub(super) dir: PathBuf,
    pub(super) group: Consumers,
    pub(super) journal: Journal,
    pub(super) reader: Reader,
    pub(super) damaged_bytes: u64,
    /// Counts while the group is there.
    pub(super) charge: Option<Charge>,
    /// The disk is left alone until then.
    failing: Option<Instant>,
}

/// All groups of named consumers.
#[derive(Default)]
pub(super) struct Registry(Mutex<State>);

#[derive(Default)]
struct State {
    groups: HashMap<TopicName, BTreeMap<GroupName, Named>>,
    /// Groups of which something may not be in the journal.
    dirty: Vec<(TopicName, GroupName)>,
    /// The memory of these groups, and of all others.
    cost: usize,
    others: usize,
    /// None: the thread of the groups does not run.
    limits: Option<GroupLimits>,
}

impl Named {
    /// A group with its journal, which has no more than this.
    pub(super) fn new(
        topic: &TopicName,
        name: &GroupName,
        dir: PathBuf,
        group: Consumers,
        journal: Journal,
        reader: Reader,
    ) -> Self {
        let (topic, name, failing, charge) = (topic.clone(), name.clone(), None, None);
        Self { topic, name, dir, group, journal, reader, damaged_bytes: 0, charge, failing }
    }

    fn epoch(&self) -> u128 {
        epoch_of(&self.reader)
    }

    /// Writes what has happened.
    fn write(&mut self) -> Result<(), JournalError> {
        self.journal.write_consumers(&mut self.group)?;
        if self.journal.wants_save() {
            let epoch = self.epoch();
            self.journal.save_consumers(&self.group, epoch)?;
        }
        self.failing = None;
        Ok(())
    }

    /// Writes what has happened, unless the disk has failed a moment ago.
    fn try_write(&mut self) -> Result<(), String> {
        const NO_DISK: &str =
            "the disk of the broker does not take what consumers say; the broker's own log says why";
        if self.failing.is_some_and(|until| until > Instant::now()) {
            return Err(NO_DISK.to_owned());
        }
        self.write().map_err(|error| {
            warn!(
                "group '{}' of topic '{}': the disk does not take acknowledgements: {error}",
                self.name, self.topic
            );
            self.failing = Some(Instant::now() + RETRY);
            NO_DISK.to_owned()
        })
    }

    /// The topic was closed, and has perhaps another log now, with which the group begins anew.
    fn follow(&mut self, logs: &KeptLogs) -> Result<(), String> {
        let Some((reader, _)) = logs.of(&self.topic) else {
            return Err(format!("topic '{}' has no log on the disk of this broker", self.topic));
        };
        if epoch_of(&reader) != self.epoch() {
            self.group = Consumers::new(EntryId::MIN, None);
            self.journal
                .save_consumers(&self.group, epoch_of(&reader))
                .map_err(|error| format!("the disk of the broker takes nothing: {error}"))?;
        }
        self.reader = reader;
        Ok(())
    }

    fn row(&self, is_tight: bool, limits: &GroupLimits) -> GroupRow {
        let group = &self.group;
        let next = group.next().unwrap_or(group.last().position).max(self.reader.first());
        let first = group.pending_from(EntryId::MIN).next();
        let counts = group.counts();
        let pending = group.pending() as u64;
        let stats = GroupStats {
            topic: self.topic.clone(),
            group: self.name.clone(),
            workers: u32::try_from(group.len()).unwrap_or(u32::MAX),
            pending,
            held: pending,
            floor: first.map_or(next, |(id, _)| id.position.min(next)),
            next,
            end: self.reader.end(),
            delivered: counts.delivered,
            acked: counts.acked,
            failed: 0,
            dead: 0,
            lost: 0,
            lost_bytes: 0,
            damaged_bytes: self.damaged_bytes,
            ack_ms: 0,
            max_attempts: 0,
            dead_letter: String::new(),
            ordered: false,
            full: room(group, is_tight, limits) == 0,
            failing: self.failing.is_some(),
        };
        let reader = self.reader.clone();
        GroupRow { stats, reader, read: counts.read, read_bytes: counts.read_bytes }
    }
}

fn room(group: &Consumers, is_tight: bool, limits: &GroupLimits) -> usize {
    let most = limits.of_one.max_pending;
    (if is_tight { most.min(TIGHT_PENDING) } else { most }).saturating_sub(group.pending())
}

/// The name of a log.
pub(super) fn epoch_of(reader: &Reader) -> u128 {
    u128::from_le_bytes(reader.id())
}

/// The time, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Why a name cannot be used by the other kind of group.
pub(super) fn of_consumers(topic: &TopicName, name: &GroupName) -> String {
    format!(
        "group '{name}' of topic '{topic}' belongs to consumers of Redis (XGROUP), which native workers do not share"
    )
}

/// Why consumers with names cannot use a group.
pub(super) fn of_workers(topic: &TopicName, group: &GroupName) -> String {
    format!(
        "group '{group}' of topic '{topic}' belongs to native workers (rbmq sub --group), which consumers of Redis do not share: take another name"
    )
}

impl State {
    fn get(&mut self, topic: &TopicName, name: &GroupName) -> Option<&mut Named> {
        self.groups.get_mut(topic)?.get_mut(name)
    }

    fn is_tight(&self, limits: &GroupLimits) -> bool {
        self.cost.saturating_add(self.others) >= limits.max_pending_bytes
    }
}

impl Registry {
    /// The thread of the groups runs.
    pub(super) fn open(&self, limits: GroupLimits) {
        self.0.lock().limits = Some(limits);
    }

    /// Calls `act` with a group. False: there is none.
    ///
    /// # Errors
    /// The group cannot be used now.
    pub(super) fn with(
        &self,
        logs: &KeptLogs,
        topic: &TopicName,
        name: &GroupName,
        act: &mut dyn FnMut(&mut Consumers, GroupRoom),
    ) -> Result<bool, String> {
        let mut state = self.0.lock();
        let Some(limits) = state.limits else { return Err(NONE.to_owned()) };
        let is_tight = state.is_tight(&limits);
        let Some(named) = state.get(topic, name) else { return Ok(false) };
        if named.failing.is_some() {
            named.try_write()?;
        }
        if named.reader.is_closed() {
            named.follow(logs)?;
        }
        let (before, was_written) = (named.group.cost(), named.group.changes().is_none());
        let room = GroupRoom {
            entries: room(&named.group, is_tight, &limits),
            consumers: limits.of_one.max_workers,
        };
        act(&mut named.group, room);
        let (after, is_written) = (named.group.cost(), named.group.changes().is_none());
        state.cost = (state.cost + after).saturating_sub(before);
        if was_written && !is_written {
            state.dirty.push((topic.clone(), name.clone()));
        }
        Ok(true)
    }

    /// Writes what has happened in all groups. A killed process does not forget it after that.
    ///
    /// # Errors
    /// The disk does not take it. It is tried again before something else happens in the group.
    pub(super) fn write(&self) -> Result<(), String> {
        let mut state = self.0.lock();
        let dirty = std::mem::take(&mut state.dirty);
        let mut done = Ok(());
        for (topic, name) in dirty {
            let Some(named) = state.get(&topic, &name) else { continue };
            if let Err(error) = named.try_write() {
                state.dirty.push((topic, name));
                done = Err(error);
            }
        }
        done
    }

    /// A group is there.
    pub(super) fn insert(&self, named: Named) {
        let mut state = self.0.lock();
        state.cost += named.group.cost();
        let of_topic = state.groups.entry(named.topic.clone()).or_default();
        of_topic.insert(named.name.clone(), named);
    }

    pub(super) fn has(&self, topic: &TopicName, name: &GroupName) -> bool {
        self.0.lock().get(topic, name).is_some()
    }

    /// Takes a group away.
    pub(super) fn remove(&self, topic: &TopicName, name: &GroupName) -> Option<Named> {
        let mut state = self.0.lock();
        let of_topic = state.groups.get_mut(topic)?;
        let named = of_topic.remove(name)?;
        if of_topic.is_empty() {
            state.groups.remove(topic);
        }
        state.cost = state.cost.saturating_sub(named.group.cost());
        state.dirty.retain(|(of, dirty)| (of, dirty) != (topic, name));
        Some(named)
    }

    /// The names of a topic's groups.
    pub(super) fn names(&self, topic: &TopicName) -> Vec<GroupName> {
        self.0.lock().groups.get(topic).map_or_else(Vec::new, |groups| groups.keys().cloned().collect())
    }

    /// The number of groups.
    pub(super) fn len(&self) -> usize {
        self.0.lock().groups.values().map(BTreeMap::len).sum()
    }

    /// The memory of these groups. All others have so much.
    pub(super) fn cost(&self, others: usize) -> usize {
        let mut state = self.0.lock();
        state.others = others;
        state.cost
    }

    /// The state of all groups, for people.
    pub(super) fn rows(&self) -> Vec<GroupRow> {
        let state = self.0.lock();
        let Some(limits) = state.limits else { return Vec::new() };
        let is_tight = state.is_tight(&limits);
        state.groups.values().flat_map(BTreeMap::values).map(|named| named.row(is_tight, &limits)).collect()
    }

    /// Writes everything to the disk. Nobody gets a group after that.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.limits = None;
        for mut named in std::mem::take(&mut state.groups).into_values().flat_map(BTreeMap::into_values) {
            let epoch = named.epoch();
            let written = named.write().and_then(|()| named.journal.save_consumers(&named.group, epoch));
            if let Err(error) = written.and_then(|()| named.journal.sync()) {
                warn!(
                    "group '{}' of topic '{}': its journal is not closed in order: {error}",
                    named.name, named.topic
                );
            }
        }
    }
}
