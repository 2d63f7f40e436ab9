//! The thread of the groups.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use access::Charge;
use rbmq_groups::{Consumers, EntryId, Journal, JournalError, Recovered, Settings, folder};
use rbmq_wire::{
    GROUP_HEADER_BYTES, GroupAction, GroupJoin, GroupMessage, GroupName, GroupStats, MAX_GROUP_ROWS,
    TopicName,
};
use rocketbufs::{Bid, BufferOptions, OutWriter};
use tracing::{info, warn};

use super::super::descriptors::have_room_for_group;
use super::super::kept::{Ear, folder as topic_folder};
use super::super::rules::rounded;
use super::consumers::{GroupChange, Named, epoch_of, names_in, now_ms, of_consumers, of_workers};
use super::live::{Comes, Live, New, Turn};
use super::shared::{
    Around, Command, Inbox, Joining, Key, MAX_MEMBERS, Members, Parts, Place, Places, Question, Shared, Wake,
    answer, no_group,
};

/// The folder of a topic's groups, in that of the topic.
const FOLDER: &str = "groups";

/// The longest sleep.
const STEP: Duration = Duration::from_secs(3600);

/// The smallest ring of a worker, in bytes.
const MIN_RING_BYTES: u64 = 256 << 10;

/// How often all groups look for a log that has ended.
const CHECK: Duration = Duration::from_secs(1);

/// Journals of named consumers are looked after again after this time, in milliseconds, while they need it.
const TEND_MS: u64 = 20;

struct Service<'a> {
    shared: &'a Shared,
    parts: Parts,
    ear: Arc<Ear>,
    wake: Wake,
    groups: BTreeMap<Key, Live>,
    places: Places,
    /// What the groups cost those who have made them.
    charges: HashMap<Key, Charge>,
    /// Groups with something to do.
    busy: HashSet<Key>,
    begun: Instant,
}

/// The ring of a worker that is to come.
struct WorkerRing {
    writer: OutWriter,
    max_delivery: u64,
    /// The memory that it takes.
    bytes: u64,
    charge: Charge,
}

/// Runs until the groups are stopped.
pub(super) fn run(shared: &Arc<Shared>, parts: Parts, opened: &SyncSender<()>) {
    let waker = Arc::downgrade(shared);
    let wake: Wake = Arc::new(move || {
        if let Some(shared) = waker.upgrade() {
            shared.inbox.lock().has_news = true;
            shared.changed.notify_all();
        }
    });
    let woken = wake.clone();
    let ear = parts.logs.news().listen(move || woken());
    let (groups, places, busy) = (BTreeMap::new(), Places::default(), HashSet::new());
    let charges = HashMap::new();
    let mut service =
        Service { shared, parts, ear, wake, groups, places, charges, busy, begun: Instant::now() };
    shared.consumers.open(service.parts.limits, &service.parts.dir, groups_folder);
    service.open_all();
    // Whoever waits for it may have given up.
    let _ = opened.send(());
    let mut next = None;
    loop {
        let inbox = service.wait(next);
        if inbox.is_stopped {
            let (now, ear) = (service.now(), service.ear.clone());
            service.groups.values_mut().for_each(|live| live.close(&ear, now));
            shared.consumers.close();
            return;
        }
        service.take(inbox);
        for (topic, name) in shared.consumers.take_to_open() {
            service.reopen(&topic, &name);
        }
        next = service.turns();
        if shared.consumers.tend() {
            let soon = service.now() + TEND_MS;
            next = Some(next.map_or(soon, |next| next.min(soon)));
        }
    }
}

impl Service<'_> {
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Waits for something to do, at most until a time. The result has what came.
    fn wait(&self, until: Option<u64>) -> Inbox {
        let step = if self.groups.is_empty() { STEP } else { CHECK };
        let wait =
            until.map_or(step, |until| Duration::from_millis(until.saturating_sub(self.now())).min(step));
        let mut inbox = self.shared.inbox.lock();
        let is_idle = |inbox: &mut Inbox| {
            inbox.commands.is_empty() && inbox.roomy.is_empty() && !inbox.has_news && !inbox.is_stopped
        };
        if !wait.is_zero() && self.busy.is_empty() {
            self.shared.changed.wait_while_for(&mut inbox, is_idle, wait);
        }
        Inbox {
            commands: inbox.round(),
            roomy: std::mem::take(&mut inbox.roomy),
            has_news: std::mem::take(&mut inbox.has_news),
            is_stopped: inbox.is_stopped,
            ..Inbox::default()
        }
    }

    fn take(&mut self, inbox: Inbox) {
        for bid in inbox.roomy {
            self.with_worker(bid, Live::has_room);
        }
        for command in inbox.commands {
            self.command(command);
        }
        if !inbox.has_news {
            return;
        }
        let (grown, stored) = self.ear.take();
        let grown: HashSet<_> = grown.iter().map(TopicName::as_str).collect();
        self.busy.extend(self.groups.keys().filter(|(topic, _)| grown.contains(topic.as_str())).cloned());
        for stored in stored {
            for (key, live) in &mut self.groups {
                if live.buries_in() == Some(stored.log) {
                    live.buried(stored.to);
                    self.busy.insert(key.clone());
                }
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Join(joining) => self.join(&joining),
            Command::Marks { conn, message } => {
                let Some(bid) = self.places.by_conn.get(&conn).copied() else { return };
                // The engine has looked at it.
                let Ok(GroupMessage::Marks { generation, marks }) = GroupMessage::decode(&message) else {
                    return;
                };
                let now = self.now();
                self.with_worker(bid, |live, bid| live.mark(bid, generation, &marks, now));
            }
            Command::Ask(question) => self.question(&question),
            Command::Change(change, reply, wake) => {
                // Whoever asked may have given up.
                let _ = reply.send(self.change(*change));
                wake();
            }
            Command::Members(key, reply) => {
                let members = self.groups.get(&key).map(|live| live.members(MAX_MEMBERS));
                // Consumers with names have no connection of their own.
                let of_consumers = || {
                    let (topic, name) = (key.0.parse().ok()?, key.1.parse().ok()?);
                    let nobody = Members { rows: Vec::new(), is_cut: false };
                    self.shared.consumers.has(&topic, &name).then_some(nobody)
                };
                let members = members.or_else(of_consumers);
                // Whoever asked may have given up.
                let _ = reply.send(members);
            }
            Command::Subscribed(bid) => self.with_worker(bid, Live::has_room),
            Command::Leave { conn, .. } => {
                if let Some(bid) = self.places.by_conn.get(&conn).copied() {
                    self.with_worker(bid, Live::retire);
                }
            }
            Command::Left(bid) => {
                let mut is_leaving = false;
                self.with_worker(bid, |live, bid| is_leaving = live.is_leaving(bid));
                if !is_leaving {
                    self.leave(bid);
                }
            }
            Command::Down(conn) => {
                if let Some(bid) = self.places.by_conn.get(&conn).copied() {
                    self.leave(bid);
                }
            }
        }
    }

    fn with_worker(&mut self, bid: Bid, act: impl FnOnce(&mut Live, Bid)) {
        let Some(Place { key, .. }) = self.places.by_bid.get(&bid) else { return };
        if let Some(live) = self.groups.get_mut(key) {
            act(live, bid);
            self.busy.insert(key.clone());
        }
    }

    fn leave(&mut self, bid: Bid) {
        let now = self.now();
        self.with_worker(bid, |live, bid| live.leave(bid, now));
        self.forget(bid);
    }

    fn forget(&mut self, bid: Bid) {
        self.places.remove(bid);
        self.shared.change(|inbox| inbox.bids.remove(&bid));
    }

    /// Does what the groups have to do. Returns when that is next.
    fn turns(&mut self) -> Option<u64> {
        let now = self.now();
        let ended: Vec<Key> =
            self.groups.iter().filter(|(_, live)| live.is_over()).map(|(key, _)| key.clone()).collect();
        ended.iter().for_each(|key| self.close(key, "the log of the topic goes no further here"));
        let (mut next, mut gone): (Option<u64>, Vec<Bid>) = (None, Vec::new());
        let Parts { events, logs, .. } = &self.parts;
        let around = Around { events, ear: &self.ear, logs, wake: &self.wake, now };
        let used: usize = self.groups.values().map(Live::cost).sum();
        let mut used = used + self.shared.consumers.cost(used);
        for (key, live) in &mut self.groups {
            let is_due = live.is_due(now);
            let before = live.cost();
            live.tighten(used >= self.parts.limits.max_pending_bytes);
            let turn = live.turn(&around);
            used = used - before + live.cost();
            gone.append(&mut live.take_ended());
            if self.busy.remove(key) || is_due {
                self.shared.rows.lock().insert(key.clone(), live.row());
            }
            match turn {
                Turn::More => _ = self.busy.insert(key.clone()),
                Turn::At(at) => next = Some(next.map_or(at, |next| next.min(at))),
                Turn::Idle => {}
            }
        }
        gone.into_iter().for_each(|bid| self.forget(bid));
        next
    }

    /// Ends a group for now. Its journal stays.
    fn close(&mut self, key: &Key, reason: &str) {
        let now = self.now();
        if let Some(mut live) = self.dismiss(key, true, reason, now) {
            live.close(&self.ear, now);
        }
        self.charges.remove(key);
    }

    /// Takes a group away, whose workers are told why.
    fn dismiss(&mut self, key: &Key, again: bool, reason: &str, now: u64) -> Option<Live> {
        let mut live = self.groups.remove(key)?;
        let workers: Vec<Bid> = live.workers().collect();
        live.dismiss(again, reason, now);
        workers.into_iter().for_each(|bid| self.forget(bid));
        if !self.groups.keys().any(|(topic, _)| *topic == key.0) {
            self.ear.follow_topic(&live.topic, false);
        }
        self.busy.remove(key);
        self.shared.rows.lock().remove(key);
        Some(live)
    }

    fn folder(&self, topic: &TopicName) -> PathBuf {
        groups_folder(&self.parts.dir, topic)
    }

    /// Opens the groups of earlier brokers.
    fn open_all(&mut self) {
        for (topic, _) in self.parts.logs.topics() {
            if let Err(error) = repair(&self.folder(&topic)) {
                warn!("the folder of the groups of topic '{topic}' is not in order: {error}");
            }
            self.shared.consumers.look(&topic);
            for name in names_in(&self.folder(&topic)) {
                self.reopen(&topic, &name);
            }
        }
    }

    /// Opens a group that has a folder. Who asks for one that cannot be opened does not learn that there is none.
    fn reopen(&mut self, topic: &TopicName, name: &GroupName) {
        let opened = self.open(topic, name, None);
        let done = opened.as_ref().map(drop).map_err(|(_, reason)| &**reason);
        if self.shared.consumers.opened(topic, name, done)
            && let Err((_, reason)) = opened
        {
            warn!("group '{name}' of topic '{topic}' is not available: {reason}");
        }
    }

    /// Opens a group that is not open. False: it does not exist, and nobody says how it is to be.
    ///
    /// # Errors
    /// Whether to ask again is of use, and the reason.
    fn open(
        &mut self,
        topic: &TopicName,
        name: &GroupName,
        new: Option<New>,
    ) -> Result<bool, (bool, String)> {
        let key = (topic.to_string(), name.to_string());
        if self.groups.contains_key(&key) {
            return Ok(true);
        }
        if self.shared.consumers.has(topic, name) {
            return Err((false, of_consumers(topic, name)));
        }
        let (reader, dir) = self.place(topic, name)?;
        if new.is_none() && !dir.is_dir() {
            return Ok(false);
        }
        let (journal, recovered) = Journal::open(&dir).map_err(later)?;
        if recovered.consumers.is_some() {
            self.open_consumers(topic, name, reader, journal, &recovered).map_err(later)?;
            return if new.is_none() { Ok(true) } else { Err((false, of_consumers(topic, name))) };
        }
        let opened = Live::open(journal, recovered, topic, name, reader, new, self.parts.limits.of_one);
        let Some(live) = opened.map_err(later)? else { return Ok(false) };
        self.ear.follow_topic(topic, true);
        self.busy.insert(key.clone());
        self.groups.insert(key, live);
        self.shared.consumers.opened(topic, name, Ok(()));
        Ok(true)
    }

    /// The log of a topic that may have one group more, and the folder for its journal.
    fn place(
        &self,
        topic: &TopicName,
        name: &GroupName,
    ) -> Result<(seglog::Reader, PathBuf), (bool, String)> {
        let max = self.parts.limits.max_groups;
        if self.groups.len() + self.shared.consumers.len() >= max {
            let reason = format!("the broker has {max} groups; that is the limit (broker.max_groups)");
            return Err((false, reason));
        }
        let Some((reader, _)) = self.parts.logs.of(topic) else {
            return Err((true, format!("topic '{topic}' has no log on the disk of this broker")));
        };
        self.shared.consumers.look(topic);
        let dir = self.folder(topic);
        have_room_for_group().map_err(later)?;
        private_files::create_durable_folder(&dir).map_err(later)?;
        folder::repair(&dir).map_err(later)?;
        Ok((reader, dir.join(name.as_str())))
    }

    /// Opens a group of named consumers, which an earlier broker has made.
    fn open_consumers(
        &self,
        topic: &TopicName,
        name: &GroupName,
        reader: seglog::Reader,
        mut journal: Journal,
        recovered: &Recovered,
    ) -> Result<(), JournalError> {
        let Some((epoch, mut group)) = recovered.group_of_consumers(now_ms()) else { return Ok(()) };
        if recovered.damaged_bytes > 0 {
            let damaged = recovered.damaged_bytes;
            warn!(
                "group '{name}' of topic '{topic}': {damaged} bytes of its journal are damaged or missing; what was acknowledged may be pending"
            );
        }
        if epoch != epoch_of(&reader) {
            warn!(
                "group '{name}' of topic '{topic}': the topic has another log; the group begins with its oldest entry"
            );
            group = Consumers::new(EntryId::MIN, None);
        }
        journal.save_consumers(&group, epoch_of(&reader))?;
        info!("group '{name}' of topic '{topic}': {} entries are pending", group.pending());
        let mut named = Named::new(topic, name, recovered.dir.clone(), group, journal, reader);
        named.damaged_bytes = recovered.damaged_bytes;
        self.shared.consumers.insert(named);
        Ok(())
    }

    /// Makes or removes a group of named consumers. False: there was one, or none.
    fn change(&mut self, change: GroupChange) -> Result<bool, String> {
        let GroupChange { topic, group: name, make, charge } = change;
        let Some(group) = make else { return self.delete_consumers(&topic, &name) };
        // An earlier broker may have made it, before the topic was closed.
        let opened = self.open(&topic, &name, None);
        if self.shared.consumers.has(&topic, &name) {
            return Ok(false);
        }
        if opened.map_err(|(_, reason)| reason)? {
            return Err(of_workers(&topic, &name));
        }
        let (reader, dir) = self.place(&topic, &name).map_err(|(_, reason)| reason)?;
        let made = Journal::open(&dir).and_then(|(mut journal, _)| {
            journal.save_consumers(&group, epoch_of(&reader))?;
            journal.sync()?;
            Ok(journal)
        });
        let journal = made.map_err(|error| error.to_string())?;
        let mut named = Named::new(&topic, &name, dir, group, journal, reader);
        named.charge = charge.map(|charge| charge.0);
        self.shared.consumers.insert(named);
        Ok(true)
    }

    fn delete_consumers(&self, topic: &TopicName, name: &GroupName) -> Result<bool, String> {
        let removed = self.shared.consumers.remove(topic, name).map_err(|error| error.to_string());
        self.parts.logs.news().changed(topic);
        removed
    }

    fn join(&mut self, joining: &Joining) {
        if let Err((again, reason)) = self.try_join(joining) {
            answer(&joining.conn, &GroupMessage::Refused { again, reason });
            self.forget(joining.bid);
        }
    }

    fn try_join(&mut self, joining: &Joining) -> Result<(), (bool, String)> {
        let Joining { conn, live, bid, join, .. } = joining;
        let GroupJoin { topic, group, ack_ms, max_attempts, dead_letter, ordered, .. } = join;
        let settings = Settings {
            ack_ms: (*ack_ms).max(1),
            max_attempts: *max_attempts,
            dead_letter: dead_letter.as_ref().map(TopicName::to_string).unwrap_or_default(),
            ordered: *ordered,
        };
        let Some(info) = live.info() else { return Err((true, format!("topic '{topic}' ends here"))) };
        let new = New { settings, from_newest: join.from_newest };
        let key = (topic.to_string(), group.to_string());
        // Stored messages can be larger than the topic's ring takes now: it grows when a large message comes.
        let needed = self.groups.get(&key).map_or(0, Live::needed_bytes);
        let own = info.max_delivery_bytes + GROUP_HEADER_BYTES as u64;
        let admission = &self.parts.admission;
        let is_new = !self.groups.contains_key(&key);
        let of_group = is_new.then(|| admission.charge_group(conn.id())).transpose().map_err(later)?;
        let ring = match self.ring(joining, own.max(needed)) {
            // Without room for a larger ring, the worker works on all other messages.
            Err(_) if needed > own => self.ring(joining, own),
            made => made,
        };
        let WorkerRing { writer, max_delivery, bytes, charge } = ring.map_err(|reason| (true, reason))?;
        if let Err(refused) = self.open(topic, group, Some(new)) {
            let _ = self.shared.out.destroy_buffer(*bid);
            return Err(refused);
        }
        if let Some(of_group) = of_group {
            self.charges.insert(key.clone(), of_group);
        }
        let most_delivery = if max_delivery < needed { max_delivery } else { self.most_delivery() };
        let Some(group_at_work) = self.groups.get_mut(&key) else { return Ok(()) };
        let (ack_ms, generation) = (group_at_work.ack_ms(), group_at_work.generation());
        let comes = Comes { conn, writer, max_delivery, most_delivery, credit: join.credit };
        if !group_at_work.join(comes) {
            // A buffer without a worker is of no use.
            let _ = self.shared.out.destroy_buffer(*bid);
            return Err((true, format!("group '{group}' has as many workers as it may have")));
        }
        self.busy.insert(key.clone());
        self.places.insert(*bid, Place { key, conn: conn.id(), ring_bytes: bytes, _charge: charge });
        answer(
            conn,
            &GroupMessage::Joined { bid: *bid, generation, max_delivery_bytes: max_delivery, ack_ms },
        );
        Ok(())
    }

    /// The largest delivery for which the limit on all rings of workers allows one.
    fn most_delivery(&self) -> u64 {
        (1 << self.parts.limits.max_ring_bytes.max(2).ilog2()) / 2
    }

    /// Makes the ring of a worker for deliveries of so many bytes.
    fn ring(&self, joining: &Joining, max_delivery: u64) -> Result<WorkerRing, String> {
        let bytes = rounded(max_delivery.saturating_mul(2).max(MIN_RING_BYTES));
        self.has_room(bytes)?;
        let charge = self.parts.admission.charge_worker(joining.conn.id(), bytes);
        let charge = charge.map_err(|exceeded| exceeded.to_string())?;
        let writer = self.buffer(joining.bid, max_delivery, bytes)?;
        Ok(WorkerRing { writer, max_delivery, bytes, charge })
    }

    /// Whether there may be another worker, with a ring of so many bytes.
    fn has_room(&self, ring_bytes: u64) -> Result<(), String> {
        let limits = &self.parts.limits;
        let (workers, max) = (self.places.by_bid.len(), limits.max_workers);
        if workers >= max {
            return Err(format!(
                "the broker has {max} workers of groups; that is the limit (broker.max_group_workers)"
            ));
        }
        let (used, max) = (self.places.ring_bytes, limits.max_ring_bytes);
        if used + ring_bytes > max {
            return Err(format!(
                "the rings of the workers of groups have {used} bytes, and this one needs {ring_bytes} more; the limit is {max} (broker.max_group_ring_bytes)"
            ));
        }
        Ok(())
    }

    /// The buffer of a worker.
    fn buffer(&self, bid: Bid, max_delivery: u64, ring_bytes: u64) -> Result<OutWriter, String> {
        let options = BufferOptions::new()
            .size_bytes(ring_bytes)
            .retain_bytes(Some(0))
            .max_delivery_bytes(Some(max_delivery));
        let made = self.shared.out.create_buffer_with(bid, options).and_then(|buffer| buffer.writer());
        made.map_err(|error| format!("the broker has no memory for the worker: {error}"))
    }

    fn question(&mut self, question: &Question) {
        let Question { conn, request, action, of, .. } = question;
        let request = *request;
        let message = match (action, of) {
            (GroupAction::List, after) => self.list(conn.id(), request, after.as_ref()),
            (_, None) => GroupMessage::Failed { request, reason: "the question names no group".into() },
            (action, Some((topic, group))) => match self.act(conn.id(), *action, topic, group) {
                Ok(()) => GroupMessage::Rows { request, more: false, rows: Vec::new() },
                Err(reason) => GroupMessage::Failed { request, reason },
            },
        };
        // The next question may follow as soon as the answer is there.
        self.shared.inbox.lock().asking.remove(&conn.id());
        answer(conn, &message);
    }

    fn list(&self, conn: u64, request: u32, after: Option<&(TopicName, GroupName)>) -> GroupMessage {
        let after = after.map(|(topic, group)| (topic.to_string(), group.to_string()));
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut all: BTreeMap<Key, GroupStats> =
            self.groups.iter().map(|(key, live)| (key.clone(), live.stats().0)).collect();
        for row in self.shared.consumers.rows() {
            all.insert((row.stats.topic.to_string(), row.stats.group.to_string()), row.stats);
        }
        let all = all.range((from, Bound::Unbounded)).map(|(_, stats)| stats);
        let mut may_read = all.filter(|stats| self.parts.admission.may_read(conn, &stats.topic));
        let rows: Vec<GroupStats> = may_read.by_ref().take(MAX_GROUP_ROWS).cloned().collect();
        let more = may_read.next().is_some();
        GroupMessage::Rows { request, more, rows }
    }

    fn act(
        &mut self,
        conn: u64,
        action: GroupAction,
        topic: &TopicName,
        group: &GroupName,
    ) -> Result<(), String> {
        let key = (topic.to_string(), group.to_string());
        // Who may not read the topic does not learn what groups it has.
        let is_of_consumers = self.shared.consumers.has(topic, group);
        let exists = is_of_consumers || self.groups.contains_key(&key);
        if !self.parts.admission.may_read(conn, topic) || !exists {
            return Err(no_group(topic, group));
        }
        let done = match action {
            GroupAction::Delete if is_of_consumers => self.delete_consumers(topic, group).map(drop),
            _ if is_of_consumers => {
                let reason = format!("{}: XGROUP SETID says where they go on", of_consumers(topic, group));
                return Err(reason);
            }
            GroupAction::Delete => self.delete(&key).map_err(|error| error.to_string()),
            GroupAction::ResetTo(position) => {
                self.reset(&key, group, Some(position), false).map_err(|error| error.to_string())
            }
            _ => {
                let newest = action == GroupAction::ResetNewest;
                self.reset(&key, group, None, newest).map_err(|error| error.to_string())
            }
        };
        if done.is_ok()
            && let Some((identity, address)) = self.parts.admission.identity(conn)
        {
            let what = if action == GroupAction::Delete { "deleted" } else { "reset" };
            info!("group '{group}' of topic '{topic}' was {what} by '{}' at {address}", identity.user);
        }
        done
    }

    fn delete(&mut self, key: &Key) -> Result<(), JournalError> {
        let Some(live) = self.dismiss(key, false, "the group was deleted", self.now()) else { return Ok(()) };
        let (dir, _) = live.abandon(&self.ear);
        self.charges.remove(key);
        folder::remove(&dir)
    }

    /// A group begins anew, with a journal of its own: one that is damaged then never goes back behind that.
    fn reset(
        &mut self,
        key: &Key,
        group: &GroupName,
        to: Option<u64>,
        newest: bool,
    ) -> Result<(), JournalError> {
        let Some(live) = self.dismiss(key, true, "the group was reset", self.now()) else { return Ok(()) };
        let (topic, anew) = (live.topic.clone(), live.anew(to, newest, self.parts.limits.of_one));
        let (dir, epoch) = live.abandon(&self.ear);
        let replaced = anew.and_then(|anew| folder::replace(&dir, &anew, epoch));
        // Where that has failed, the group goes on as it was.
        if let Err((_, reason)) = self.open(&topic, group, None) {
            warn!("group '{group}' of topic '{topic}' is not available: {reason}");
        }
        replaced
    }
}

/// The folder of a topic's groups.
fn groups_folder(dir: &Path, topic: &TopicName) -> PathBuf {
    dir.join(topic_folder(topic)).join(FOLDER)
}

/// What passes: the disk has room again, or descriptors are free.
fn later(error: impl std::fmt::Display) -> (bool, String) {
    (true, error.to_string())
}

/// The groups of a topic that has none have no folder.
fn repair(dir: &Path) -> Result<(), JournalError> {
    if dir.is_dir() { folder::repair(dir) } else { Ok(()) }
}
