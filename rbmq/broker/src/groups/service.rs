//! The thread of the groups.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rbmq_groups::Settings;
use rbmq_wire::{
    GROUP_HEADER_BYTES, GroupAction, GroupJoin, GroupMessage, GroupName, GroupStats, MAX_GROUP_ROWS,
    TopicName,
};
use rocketbufs::{Bid, BufferOptions, OutWriter};
use tracing::warn;

use super::super::kept::{Ear, folder};
use super::live::{Live, New, Turn};
use super::shared::{Around, Command, Inbox, Joining, Key, Parts, Places, Question, Shared, answer};

/// The folder of a topic's groups, in that of the topic.
const FOLDER: &str = "groups";

/// The longest sleep.
const STEP: Duration = Duration::from_secs(3600);

/// The smallest ring of a worker, in bytes.
const MIN_RING_BYTES: u64 = 256 << 10;

/// How often all groups look for a log that has ended.
const CHECK: Duration = Duration::from_secs(1);

struct Service<'a> {
    shared: &'a Shared,
    parts: Parts,
    ear: Arc<Ear>,
    groups: BTreeMap<Key, Live>,
    places: Places,
    /// Groups with something to do.
    busy: HashSet<Key>,
    begun: Instant,
}

/// Runs until the groups are stopped.
pub(super) fn run(shared: &Arc<Shared>, parts: Parts) {
    let waker = Arc::downgrade(shared);
    let ear = parts.logs.news().listen(move || {
        if let Some(shared) = waker.upgrade() {
            shared.inbox.lock().has_news = true;
            shared.changed.notify_all();
        }
    });
    let (groups, places, busy) = (BTreeMap::new(), Places::default(), HashSet::new());
    let mut service = Service { shared, parts, ear, groups, places, busy, begun: Instant::now() };
    service.open_all();
    let mut next = None;
    loop {
        let inbox = service.wait(next);
        if inbox.is_stopped {
            let now = service.now();
            service.groups.values_mut().for_each(|live| live.close(now));
            return;
        }
        service.take(inbox);
        next = service.turns();
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
            commands: std::mem::take(&mut inbox.commands),
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
                let Ok(GroupMessage::Marks(marks)) = GroupMessage::decode(&message) else { return };
                let now = self.now();
                self.with_worker(bid, |live, bid| live.mark(bid, &marks, now));
            }
            Command::Ask(question) => self.question(&question),
            Command::Subscribed(bid) => self.with_worker(bid, Live::has_room),
            Command::Left(bid) => self.leave(bid),
            Command::Down(conn) => {
                if let Some(bid) = self.places.by_conn.get(&conn).copied() {
                    self.leave(bid);
                }
            }
        }
    }

    fn with_worker(&mut self, bid: Bid, act: impl FnOnce(&mut Live, Bid)) {
        let Some(key) = self.places.by_bid.get(&bid) else { return };
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
        self.places.by_bid.remove(&bid);
        self.places.by_conn.retain(|_, of| *of != bid);
        self.shared.inbox.lock().bids.remove(&bid);
    }

    /// Does what the groups have to do. Returns when that is next.
    fn turns(&mut self) -> Option<u64> {
        let now = self.now();
        let ended: Vec<Key> =
            self.groups.iter().filter(|(_, live)| live.is_over()).map(|(key, _)| key.clone()).collect();
        ended.iter().for_each(|key| self.close(key, "the log of the topic goes no further here"));
        let mut next: Option<u64> = None;
        let around = Around { events: &self.parts.events, ear: &self.ear, now };
        for (key, live) in &mut self.groups {
            let is_due = live.is_due(now);
            let turn = live.turn(&around);
            if self.busy.remove(key) || is_due {
                self.shared.rows.lock().insert(key.clone(), live.stats());
            }
            match turn {
                Turn::More => _ = self.busy.insert(key.clone()),
                Turn::At(at) => next = Some(next.map_or(at, |next| next.min(at))),
                Turn::Idle => {}
            }
        }
        next
    }

    /// Ends a group for now. Its journal stays.
    fn close(&mut self, key: &Key, reason: &str) {
        let now = self.now();
        if let Some(mut live) = self.groups.remove(key) {
            let workers: Vec<Bid> = live.workers().collect();
            live.dismiss(true, reason, now);
            live.close(now);
            workers.into_iter().for_each(|bid| self.forget(bid));
        }
        self.busy.remove(key);
        self.shared.rows.lock().remove(key);
    }

    fn folder(&self, topic: &TopicName) -> PathBuf {
        self.parts.dir.join(folder(topic)).join(FOLDER)
    }

    /// Opens the groups of earlier brokers.
    fn open_all(&mut self) {
        for topic in self.parts.logs.topics() {
            let Ok(entries) = fs::read_dir(self.folder(&topic)) else { continue };
            let names =
                entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<GroupName>().ok());
            let names: Vec<GroupName> = names.collect();
            for name in names {
                if let Err(reason) = self.open(&topic, &name, None) {
                    warn!("group '{name}' of topic '{topic}' is not available: {reason}");
                }
            }
        }
    }

    /// Opens a group that is not open. False: it does not exist, and nobody says how it is to be.
    fn open(&mut self, topic: &TopicName, name: &GroupName, new: Option<New>) -> Result<bool, String> {
        let key = (topic.to_string(), name.to_string());
        if self.groups.contains_key(&key) {
            return Ok(true);
        }
        let max = self.parts.limits.max_groups;
        if self.groups.len() >= max {
            return Err(format!("the broker has {max} groups; that is the limit (broker.max_groups)"));
        }
        let Some((reader, _)) = self.parts.logs.of(topic) else {
            return Err(format!("topic '{topic}' has no log on the disk of this broker"));
        };
        let dir = self.folder(topic);
        private_files::create_folder(&dir).map_err(|error| error.to_string())?;
        let dir = dir.join(name.as_str());
        if new.is_none() && !dir.is_dir() {
            return Ok(false);
        }
        let opened = Live::open(&dir, topic, name, reader, new, self.parts.limits.of_one);
        let Some(live) = opened.map_err(|error| error.to_string())? else { return Ok(false) };
        self.ear.follow_topic(topic, true);
        self.busy.insert(key.clone());
        self.groups.insert(key, live);
        Ok(true)
    }

    fn join(&mut self, joining: &Joining) {
        if let Err((again, reason)) = self.try_join(joining) {
            answer(&joining.conn, &GroupMessage::Refused { again, reason });
            self.forget(joining.bid);
        }
    }

    fn try_join(&mut self, joining: &Joining) -> Result<(), (bool, String)> {
        let Joining { conn, live, bid, join } = joining;
        let GroupJoin { topic, group, ack_ms, max_attempts, dead_letter, ordered, .. } = join;
        if self.places.by_conn.contains_key(&conn.id()) {
            return Err((
                false,
                "this connection has a group already; each group has a connection of its own".into(),
            ));
        }
        let settings = Settings {
            ack_ms: (*ack_ms).max(1),
            max_attempts: *max_attempts,
            dead_letter: dead_letter.as_ref().map(TopicName::to_string).unwrap_or_default(),
            ordered: *ordered,
        };
        let new = New { settings, from_newest: join.from_newest };
        self.open(topic, group, Some(new)).map_err(|reason| (false, reason))?;
        let max_delivery = live.info().map_or(0, |info| info.max_delivery_bytes) + GROUP_HEADER_BYTES as u64;
        let writer = self.buffer(*bid, max_delivery).map_err(|reason| (true, reason))?;
        let key = (topic.to_string(), group.to_string());
        let Some(live) = self.groups.get_mut(&key) else { return Ok(()) };
        let ack_ms = live.ack_ms();
        if !live.join(conn, writer, max_delivery, join.credit) {
            // A buffer without a worker is of no use.
            let _ = self.shared.out.destroy_buffer(*bid);
            return Err((false, format!("group '{group}' has as many workers as it may have")));
        }
        self.places.by_bid.insert(*bid, key.clone());
        self.places.by_conn.insert(conn.id(), *bid);
        self.busy.insert(key);
        answer(conn, &GroupMessage::Joined { bid: *bid, max_delivery_bytes: max_delivery, ack_ms });
        Ok(())
    }

    /// The buffer of a worker.
    fn buffer(&self, bid: Bid, max_delivery: u64) -> Result<OutWriter, String> {
        let options = BufferOptions::new()
            .size_bytes(max_delivery.saturating_mul(2).max(MIN_RING_BYTES))
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
        answer(conn, &message);
    }

    fn list(&self, conn: u64, request: u32, after: Option<&(TopicName, GroupName)>) -> GroupMessage {
        let after = after.map(|(topic, group)| (topic.to_string(), group.to_string()));
        let is_after = |row: &GroupStats| {
            after
                .as_ref()
                .is_none_or(|(topic, group)| (row.topic.as_str(), row.group.as_str()) > (topic, group))
        };
        let mut rows: Vec<GroupStats> = self.groups.values().map(|live| live.stats().0).collect();
        rows.retain(|row| is_after(row) && self.parts.admission.may_read(conn, &row.topic));
        let more = rows.len() > MAX_GROUP_ROWS;
        rows.truncate(MAX_GROUP_ROWS);
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
        if !self.parts.admission.may_read(conn, topic) || !self.groups.contains_key(&key) {
            return Err(format!(
                "there is no group '{group}' of topic '{topic}', or you may not subscribe to the topic"
            ));
        }
        let now = self.now();
        let Some(live) = self.groups.get_mut(&key) else { return Ok(()) };
        let workers: Vec<Bid> = live.workers().collect();
        let result = if action == GroupAction::Delete {
            live.dismiss(false, "the group was deleted", now);
            self.busy.remove(&key);
            self.shared.rows.lock().remove(&key);
            self.groups.remove(&key).map_or(Ok(()), Live::delete).map_err(|error| error.to_string())
        } else {
            live.dismiss(true, "the group was reset", now);
            let to = if let GroupAction::ResetTo(position) = action { Some(position) } else { None };
            let limits = self.parts.limits.of_one;
            self.busy.insert(key);
            live.reset(to, action == GroupAction::ResetNewest, limits).map_err(|error| error.to_string())
        };
        workers.into_iter().for_each(|bid| self.forget(bid));
        result
    }
}
