//! Groups of named consumers ([`rbmq_groups::Consumers`]), whose clients are those of gateways in this process.
//!
//! ```text
//!   gateway ─ with ──▶ the group, under its lock: memory only ─ write ──▶ an append to its journal, before a client is answered
//!   gateway ─ change ─▶ thread of the groups: makes and removes folders ─ wake ──▶ the gateway asks again
//!                       thread of the groups: saves a group as a whole, removes old files, opens what was not open
//! ```
//!
//! Gateways read the log themselves, as for streams. So what a group has to decide is a look into a tree, and waits for no thread. Each group has its
//! lock and its disk to itself: one that fails or waits fails for its own clients.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use access::Charge;
use locks::Mutex;
use rbmq_groups::{Consumers, EntryId, Journal, JournalError, TIGHT_PENDING, folder};
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
    /// The journal; a group that is removed or closed has none.
    pub(super) journal: Option<Journal>,
    pub(super) reader: Reader,
    pub(super) damaged_bytes: u64,
    /// Counts while the group is there.
    pub(super) charge: Option<Charge>,
    /// The disk is left alone until then.
    failing: Option<Instant>,
    /// The same for what the thread of the groups does.
    rests: Option<Instant>,
    /// The thread of the groups has it.
    is_in_care: bool,
}

/// A group, under its lock.
type Shelf = Arc<Mutex<Named>>;

/// Groups of which something may not be in the journal, for one gateway.
#[derive(Default)]
pub(crate) struct Touched(Mutex<Vec<Shelf>>);

/// All groups of named consumers. The lock of all of them is never held while one of them waits for the disk.
#[derive(Default)]
pub(super) struct Registry {
    state: Mutex<State>,
    /// The memory of these groups, and of all others.
    cost: AtomicUsize,
    others: AtomicUsize,
}

#[derive(Default)]
struct State {
    groups: HashMap<TopicName, BTreeMap<GroupName, Shelf>>,
    /// Groups with a folder that are not open.
    absent: HashMap<TopicName, BTreeMap<GroupName, Absent>>,
    /// Topics whose folders were looked into.
    known: HashSet<TopicName>,
    /// Groups for the thread of the groups: to be looked after, and to be opened.
    in_care: Vec<Shelf>,
    to_open: Vec<(TopicName, GroupName)>,
    /// The terms, while the thread of the groups runs.
    terms: Option<Terms>,
}

/// What the thread of the groups began with.
#[derive(Clone)]
struct Terms {
    limits: GroupLimits,
    /// The folder of a topic's groups.
    folder: fn(&Path, &TopicName) -> PathBuf,
    dir: PathBuf,
}

/// A group with a folder that is not open.
struct Absent {
    reason: String,
    /// The time after which a request opens the group.
    retry: Instant,
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
        let (topic, name, failing, charge, journal) =
            (topic.clone(), name.clone(), None, None, Some(journal));
        let (rests, is_in_care) = (None, false);
        Self {
            topic,
            name,
            dir,
            group,
            journal,
            reader,
            damaged_bytes: 0,
            charge,
            failing,
            rests,
            is_in_care,
        }
    }

    fn epoch(&self) -> u128 {
        epoch_of(&self.reader)
    }

    /// Writes what has happened.
    fn write(&mut self) -> Result<(), JournalError> {
        if let Some(journal) = &mut self.journal {
            journal.write_consumers(&mut self.group)?;
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

    /// Whether the thread of the groups has something to do.
    fn needs_care(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.wants_save() || journal.is_untidy())
    }

    /// Saves the group as a whole, or removes a file. What fails is tried again later, and concerns no client.
    fn care(&mut self) {
        let epoch = self.epoch();
        let Some(journal) =
            self.journal.as_mut().filter(|_| self.rests.is_none_or(|at| at <= Instant::now()))
        else {
            return;
        };
        let done = match journal.wants_save() {
            true => journal
                .write_consumers(&mut self.group)
                .and_then(|()| journal.save_consumers(&self.group, epoch)),
            false => journal.tidy(),
        };
        if let Err(error) = &done
            && self.rests.is_none()
        {
            warn!("group '{}' of topic '{}': its journal grows: {error}", self.name, self.topic);
        }
        self.rests = done.is_err().then(|| Instant::now() + RETRY);
    }

    /// The topic was closed, and has perhaps another log now, with which the group begins anew.
    fn follow(&mut self, logs: &KeptLogs) -> Result<(), String> {
        let Some((reader, _)) = logs.of(&self.topic) else {
            return Err(format!("topic '{}' has no log on the disk of this broker", self.topic));
        };
        if epoch_of(&reader) != self.epoch()
            && let Some(journal) = &mut self.journal
        {
            self.group = Consumers::new(EntryId::MIN, None);
            journal
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
    fn get(&self, topic: &TopicName, name: &GroupName) -> Option<Shelf> {
        self.groups.get(topic)?.get(name).cloned()
    }

    /// Learns which groups of a topic have a folder, once. A topic may get its log after the start.
    fn look(&mut self, terms: &Terms, topic: &TopicName) {
        if !self.known.insert(topic.clone()) {
            return;
        }
        for name in names_in(&(terms.folder)(&terms.dir, topic)) {
            if self.get(topic, &name).is_none() {
                let absent = Absent { reason: "it is being opened".to_owned(), retry: Instant::now() };
                self.absent.entry(topic.clone()).or_default().insert(name, absent);
            }
        }
    }

    /// What whoever asks for a group that is not open is told.
    fn missing(
        &mut self,
        terms: &Terms,
        logs: &KeptLogs,
        topic: &TopicName,
        name: &GroupName,
    ) -> Result<bool, String> {
        if logs.of(topic).is_some() {
            self.look(terms, topic);
        }
        let Some(absent) = self.absent.get_mut(topic).and_then(|of| of.get_mut(name)) else {
            return Ok(false);
        };
        if absent.retry <= Instant::now() {
            absent.retry = Instant::now() + RETRY;
            self.to_open.push((topic.clone(), name.clone()));
        }
        Err(format!("group '{name}' of topic '{topic}' is not available now: {}", absent.reason))
    }
}

/// The names of the groups that have a folder in this one.
pub(super) fn names_in(dir: &Path) -> Vec<GroupName> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

impl Registry {
    /// The thread of the groups runs. `folder`: that of a topic's groups, in the folder of all topics.
    pub(super) fn open(&self, limits: GroupLimits, dir: &Path, folder: fn(&Path, &TopicName) -> PathBuf) {
        self.state.lock().terms = Some(Terms { limits, folder, dir: dir.to_owned() });
    }

    fn is_tight(&self, limits: &GroupLimits) -> bool {
        // Relaxed: a limit that is passed by a little.
        let [cost, others] = [&self.cost, &self.others].map(|count| count.load(Ordering::Relaxed));
        cost.saturating_add(others) >= limits.max_pending_bytes
    }

    fn cost_changed(&self, before: usize, after: usize) {
        // Relaxed: a sum. Each change follows from the one before under the lock of its group.
        self.cost.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
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
        touched: &Touched,
        act: &mut dyn FnMut(&mut Consumers, GroupRoom),
    ) -> Result<bool, String> {
        let (limits, shelf) = {
            let mut state = self.state.lock();
            let Some(terms) = state.terms.clone() else { return Err(NONE.to_owned()) };
            let Some(shelf) = state.get(topic, name) else { return state.missing(&terms, logs, topic, name) };
            (terms.limits, shelf)
        };
        let mut named = shelf.lock();
        if named.journal.is_none() {
            // The group was removed meanwhile, or all are closed.
            return self.state.lock().terms.as_ref().map(|_| false).ok_or_else(|| NONE.to_owned());
        }
        if named.failing.is_some() {
            named.try_write()?;
        }
        let before = named.group.cost();
        if named.reader.is_closed() {
            named.follow(logs)?;
        }
        let room = GroupRoom {
            entries: room(&named.group, self.is_tight(&limits), &limits),
            consumers: limits.of_one.max_workers,
        };
        act(&mut named.group, room);
        self.cost_changed(before, named.group.cost());
        if named.group.changes().is_some() {
            let mut touched = touched.0.lock();
            if !touched.iter().any(|other| Arc::ptr_eq(other, &shelf)) {
                touched.push(shelf.clone());
            }
        }
        Ok(true)
    }

    /// Writes what has happened in the groups that a gateway has touched. A killed process does not forget it after that. Returns whether the thread
    /// of the groups has to be woken.
    ///
    /// # Errors
    /// The disk does not take it. It is tried again before something else happens in the group.
    pub(super) fn write(&self, touched: &Touched) -> (bool, Result<(), String>) {
        let (mut wakes, mut done) = (false, Ok(()));
        for shelf in std::mem::take(&mut *touched.0.lock()) {
            let mut named = shelf.lock();
            if let Err(error) = named.try_write() {
                done = Err(error);
            }
            if named.needs_care() && !std::mem::replace(&mut named.is_in_care, true) {
                drop(named);
                self.state.lock().in_care.push(shelf);
                wakes = true;
            }
        }
        (wakes, done)
    }

    /// Does a step of what journals need beside changes, on the thread of the groups. Returns whether there is more to do soon.
    pub(super) fn tend(&self) -> bool {
        let mut in_care = std::mem::take(&mut self.state.lock().in_care);
        in_care.retain(|shelf| {
            let mut named = shelf.lock();
            named.care();
            named.is_in_care = named.needs_care();
            named.is_in_care
        });
        let mut state = self.state.lock();
        state.in_care.append(&mut in_care);
        !state.in_care.is_empty()
    }

    /// Groups that somebody has asked for and that are not open.
    pub(super) fn take_to_open(&self) -> Vec<(TopicName, GroupName)> {
        std::mem::take(&mut self.state.lock().to_open)
    }

    /// Whether somebody has asked for a group that is not open.
    pub(super) fn has_to_open(&self) -> bool {
        !self.state.lock().to_open.is_empty()
    }

    /// Learns which groups of a topic have a folder, before one more has.
    pub(super) fn look(&self, topic: &TopicName) {
        let mut state = self.state.lock();
        if let Some(terms) = state.terms.clone() {
            state.look(&terms, topic);
        }
    }

    /// A group is open, or does not exist; or it could not be opened. Returns whether that is new.
    pub(super) fn opened(&self, topic: &TopicName, name: &GroupName, done: Result<(), &str>) -> bool {
        let mut state = self.state.lock();
        match done {
            Ok(()) => state.absent.get_mut(topic).and_then(|of| of.remove(name)).is_some(),
            Err(reason) => {
                let absent = Absent { reason: reason.to_owned(), retry: Instant::now() + RETRY };
                let before = state.absent.entry(topic.clone()).or_default().insert(name.clone(), absent);
                before.is_none_or(|before| before.reason != reason)
            }
        }
    }

    /// A group is there.
    pub(super) fn insert(&self, mut named: Named) {
        self.cost_changed(0, named.group.cost());
        let (topic, name) = (named.topic.clone(), named.name.clone());
        named.is_in_care = true;
        let shelf = Arc::new(Mutex::new(named));
        let mut state = self.state.lock();
        state.in_care.push(shelf.clone());
        if let Some(absent) = state.absent.get_mut(&topic) {
            absent.remove(&name);
        }
        state.groups.entry(topic).or_default().insert(name, shelf);
    }

    pub(super) fn has(&self, topic: &TopicName, name: &GroupName) -> bool {
        self.state.lock().get(topic, name).is_some()
    }

    /// Removes a group and its folder. False: there is none.
    ///
    /// # Errors
    /// The folder cannot be renamed. The group goes on.
    pub(super) fn remove(&self, topic: &TopicName, name: &GroupName) -> Result<bool, JournalError> {
        let Some(shelf) = self.state.lock().get(topic, name) else { return Ok(false) };
        let mut named = shelf.lock();
        if let Err(error) = folder::remove(&named.dir)
            && named.dir.is_dir()
        {
            return Err(error);
        }
        named.journal = None;
        named.charge = None;
        self.cost_changed(named.group.cost(), 0);
        drop(named);
        let mut state = self.state.lock();
        if let Some(of_topic) = state.groups.get_mut(topic) {
            of_topic.remove(name);
            if of_topic.is_empty() {
                state.groups.remove(topic);
            }
        }
        Ok(true)
    }

    /// The names of a topic's groups.
    pub(super) fn names(&self, topic: &TopicName) -> Vec<GroupName> {
        self.state.lock().groups.get(topic).map_or_else(Vec::new, |groups| groups.keys().cloned().collect())
    }

    /// The number of groups.
    pub(super) fn len(&self) -> usize {
        self.state.lock().groups.values().map(BTreeMap::len).sum()
    }

    /// The memory of these groups. All others have so much.
    pub(super) fn cost(&self, others: usize) -> usize {
        self.others.store(others, Ordering::Relaxed);
        self.cost.load(Ordering::Relaxed)
    }

    /// The state of all groups, for people.
    pub(super) fn rows(&self) -> Vec<GroupRow> {
        let (limits, shelves) = {
            let state = self.state.lock();
            let Some(terms) = &state.terms else { return Vec::new() };
            let shelves: Vec<Shelf> = state.groups.values().flat_map(BTreeMap::values).cloned().collect();
            (terms.limits, shelves)
        };
        let is_tight = self.is_tight(&limits);
        shelves.iter().map(|shelf| shelf.lock().row(is_tight, &limits)).collect()
    }

    /// Writes everything to the disk. Nobody gets a group after that.
    pub(super) fn close(&self) {
        let groups = {
            let mut state = self.state.lock();
            state.terms = None;
            std::mem::take(&mut state.groups)
        };
        for shelf in groups.into_values().flat_map(BTreeMap::into_values) {
            let mut named = shelf.lock();
            let (epoch, written) = (named.epoch(), named.write());
            let Some(mut journal) = named.journal.take() else { continue };
            let saved = written.and_then(|()| journal.save_consumers(&named.group, epoch));
            if let Err(error) = saved.and_then(|()| journal.sync()) {
                // Clients without a reply get an error.
                named.failing = Some(Instant::now() + RETRY);
                warn!(
                    "group '{}' of topic '{}': its journal is not closed in order: {error}",
                    named.name, named.topic
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rbmq_groups::Limits;
    use seglog::{Log, Options};
    use seglog_sim::{Fault, SimStorage};

    use super::*;

    fn entry(position: u64) -> EntryId {
        EntryId { time: 1, position }
    }

    /// A registry with a group for each disk, named `g0` and so on.
    fn registry(disks: &[&SimStorage], dir: &Path) -> Registry {
        let registry = Registry::default();
        let limits = GroupLimits {
            max_groups: 9,
            max_pending_bytes: usize::MAX,
            max_workers: 9,
            max_ring_bytes: 0,
            of_one: Limits::default(),
        };
        registry.open(limits, dir, |dir, topic| dir.join(topic.as_str()));
        for (at, disk) in disks.iter().enumerate() {
            let (topic, name) = key(at);
            let dir = dir.join(format!("{at}"));
            let storage = || Arc::new((*disk).clone());
            let log = Log::open_on(storage(), dir.join("log"), Options::default()).unwrap();
            let (mut journal, _) = Journal::open_on(storage(), &dir).unwrap();
            let group = Consumers::new(EntryId::MIN, None);
            journal.save_consumers(&group, epoch_of(&log.reader())).unwrap();
            // The reader says that its log goes on.
            let reader = Box::leak(Box::new(log)).reader();
            registry.insert(Named::new(&topic, &name, dir, group, journal, reader));
        }
        registry
    }

    fn key(at: usize) -> (TopicName, GroupName) {
        ("t".parse().unwrap(), format!("g{at}").parse().unwrap())
    }

    fn act(registry: &Registry, at: usize, act: impl Fn(&mut Consumers)) -> Result<(), String> {
        let (touched, (topic, name)) = (Touched::default(), key(at));
        registry.with(&KeptLogs::default(), &topic, &name, &touched, &mut |group, _| act(group))?;
        registry.write(&touched).1
    }

    fn deliver(group: &mut Consumers, count: u64) {
        let (number, _) = group.consumer(b"anna", 1, 9).unwrap();
        let last = group.last();
        let ids: Vec<EntryId> = (last.position + 1..=last.position + count).map(entry).collect();
        assert!(group.deliver(number, last, &ids, 1, true));
    }

    #[test]
    fn a_disk_that_fails_fails_for_the_clients_of_its_group() {
        let (dir, disks) = (tempfile::tempdir().unwrap(), [SimStorage::new(1), SimStorage::new(2)]);
        let registry = registry(&[&disks[0], &disks[1]], dir.path());
        disks[0].fail(Fault::Write, 0, u32::MAX);
        assert!(act(&registry, 0, |group| deliver(group, 1)).is_err());
        act(&registry, 1, |group| deliver(group, 1)).unwrap();
        assert!(act(&registry, 0, |group| deliver(group, 1)).is_err());
        act(&registry, 1, |group| assert!(group.ack(entry(1)))).unwrap();
    }

    #[test]
    fn a_disk_with_room_for_changes_alone_takes_them() {
        let (dir, disk) = (tempfile::tempdir().unwrap(), SimStorage::new(1));
        let registry = registry(&[&disk], dir.path());
        act(&registry, 0, |group| deliver(group, 50_000)).unwrap();
        disk.set_capacity(disk.used() + (100 << 10));
        for position in 1..=10 {
            act(&registry, 0, |group| assert!(group.ack(entry(position)))).unwrap();
            assert!(registry.tend(), "the group is to be saved");
        }
        let used = disk.used();
        disk.set_capacity(u64::MAX);
        while disk.used() < used + (1 << 20) {
            assert!(registry.tend());
        }
    }

    #[test]
    fn a_group_that_cannot_be_opened_or_removed_is_not_gone() {
        let (dir, disk) = (tempfile::tempdir().unwrap(), SimStorage::new(1));
        let registry = registry(&[&disk], dir.path());
        let (topic, name) = key(0);
        let group = dir.path().join("0");
        fs::create_dir(&group).unwrap();
        // Nothing can be renamed to this.
        fs::write(dir.path().join(".old-0"), "").unwrap();
        assert!(registry.remove(&topic, &name).is_err() && registry.has(&topic, &name));
        act(&registry, 0, |group| deliver(group, 1)).unwrap();
        fs::remove_file(dir.path().join(".old-0")).unwrap();
        assert!(registry.remove(&topic, &name).unwrap() && !registry.has(&topic, &name));
        assert_eq!((registry.cost(0), group.exists()), (0, false));
        // A group of an earlier broker.
        let (topic, name) = key(7);
        assert!(registry.opened(&topic, &name, Err("no descriptors")));
        assert!(!registry.opened(&topic, &name, Err("no descriptors")), "the log says so once");
        let error = act(&registry, 7, |_| ()).unwrap_err();
        assert!(error.ends_with("is not available now: no descriptors"), "{error}");
        assert!(registry.opened(&topic, &name, Ok(())));
        act(&registry, 7, |_| ()).unwrap();
    }
}
