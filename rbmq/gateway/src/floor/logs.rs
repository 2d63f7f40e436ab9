//! The logs of kept topics, as a gateway reads them and learns where its own messages are.
//!
//! ```text
//!   append ─▶ publisher's ring ─▶ broker ─▶ log on disk ── news ──▶ where each message is: its position and time
//!             own position, ticket ──────────────────────────────▶  ticket
//! ```
//!
//! Logs are read on the thread of the gateway, a delivery at a time, from the memory of the system: another thread reads them before where the disk
//! may have to be waited for (`fetching.rs`).

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rbmq_broker::{GroupChange, Keeping, KeptLog, KeptReadError, KeptTopics};
use rbmq_wire::TopicName;
use rocketbufs::{Epoch, Position};

use super::fetching::{Fetcher, Job, Part};
use super::wake::Bell;
use crate::protocol::{ConnId, Fetch, Ticket};

/// The most logs that are open for reading. Each keeps its last delivery.
const MAX_OPEN: usize = 64;

/// What a read costs at least, in bytes of a log.
const LEAST_READ: u64 = 256;

/// How long a topic that is not kept yet stays closed at first, and at most: each time twice as long. It ends only while nobody opens it.
const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(120);

/// The most topics that are remembered so.
const MAX_RESTING: usize = 1000;

/// A message that was published and is not stored yet.
#[derive(Debug)]
pub(super) struct Pending {
    /// Its first byte, in the publisher's log.
    pub(super) start: Position,
    pub(super) ticket: Ticket,
}

/// A topic that is not kept yet stays closed.
#[derive(Debug)]
struct Rest {
    time: Duration,
    until: Instant,
}

/// Something that the protocol is told.
#[derive(Debug)]
pub(crate) enum LogNews {
    /// A message is stored at a position and a time; or it never will be.
    Stored(Ticket, Result<(Position, u64), String>),
    /// A topic that is followed has grown.
    Grown(TopicName),
    /// What a client wants to read can be read.
    Fetched(ConnId),
}

/// The logs that the gateway reads and follows.
pub(crate) struct LogDesk {
    /// None: the broker is another process.
    kept: Option<KeptTopics>,
    open: HashMap<TopicName, KeptLog>,
    /// What publishers of this gateway wait for.
    own: HashMap<Epoch, VecDeque<Pending>>,
    failed: Vec<LogNews>,
    /// Topics that are not kept yet.
    resting: HashMap<TopicName, Rest>,
    /// The bytes that were read so far.
    pub(super) read_bytes: u64,
    fetcher: Fetcher,
    /// What was not read, as the disk may have to be waited for.
    put_off: Option<(TopicName, Part)>,
    /// Nothing is put off now.
    pub(super) is_in_place: bool,
    /// Groups that are made or removed for clients: the way of the answer, or the answer.
    changes: HashMap<ConnId, Change>,
}

/// A group is made or removed.
#[derive(Debug)]
enum Change {
    Asked(Receiver<Result<bool, String>>),
    Done(Result<bool, String>),
}

impl LogDesk {
    pub(crate) fn new(kept: Option<KeptTopics>, bell: Bell) -> Self {
        let (open, own, resting) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (fetcher, failed) = (Fetcher::new(bell), Vec::new());
        let (read_bytes, put_off, is_in_place, changes) = (0, None, false, HashMap::new());
        Self { kept, open, own, failed, resting, read_bytes, fetcher, put_off, is_in_place, changes }
    }

    /// The largest delivery of a publisher of a topic, if that is known.
    pub(super) fn max_delivery_bytes(&self, topic: &TopicName) -> Option<u64> {
        self.kept.as_ref()?.max_delivery_bytes(topic)
    }

    /// Where a topic is kept; none: nobody knows here.
    pub(super) fn keeping(&self, topic: &TopicName) -> Option<Keeping> {
        self.kept.as_ref().map(|kept| kept.keeping(topic))
    }

    /// Begins to tell when a topic grows; false: ends it.
    pub(super) fn follow_topic(&self, topic: &TopicName, follow: bool) {
        if let Some(kept) = &self.kept {
            kept.follow_topic(topic, follow);
        }
    }

    fn follow_publisher(&self, log: Epoch, follow: bool) {
        if let Some(kept) = &self.kept {
            kept.follow_publisher(log, follow);
        }
    }

    /// The log of a topic, if it has one.
    pub(super) fn log(&mut self, topic: &TopicName) -> Option<&mut KeptLog> {
        if self.open.get(topic).is_none_or(KeptLog::is_closed) {
            self.open.remove(topic);
            let log = self.kept.as_ref()?.log(topic)?;
            if self.open.len() >= MAX_OPEN {
                self.open.clear();
            }
            self.open.insert(topic.clone(), log);
        }
        self.open.get_mut(topic)
    }

    /// Reads a part of the log of a topic. None: it has none. An error too if the disk may have to be waited for: see [`LogDesk::fetch`].
    pub(super) fn read<T>(
        &mut self,
        topic: &TopicName,
        part: Part,
        read: impl FnOnce(&mut KeptLog) -> Result<T, KeptReadError>,
    ) -> Option<Result<T, String>> {
        let log = self.log(topic)?;
        let kept = log.first()..log.end();
        if !self.is_in_place && !self.fetcher.has(topic, part, kept) {
            if self.fetcher.has_failed(topic, part) {
                return Some(Err("the log cannot be read: the broker's own log says why".to_owned()));
            }
            self.put_off = Some((topic.clone(), part));
            return Some(Err("the log is being read".to_owned()));
        }
        let log = self.log(topic)?;
        let before = log.read_bytes();
        let done = read(log).map_err(|error| error.to_string());
        let bytes = log.read_bytes() - before;
        self.read_bytes += bytes + LEAST_READ;
        Some(done)
    }

    /// Begins to read what the last call was to read, and did not, for a client.
    pub(super) fn fetch(&mut self, conn: ConnId, bytes: u64) -> Fetch {
        self.is_in_place = false;
        let Some((topic, part)) = self.put_off.take() else { return Fetch::Nothing };
        // The next call finds out that the log is gone.
        let Some(log) = self.log(&topic).cloned() else { return Fetch::Now };
        self.fetcher.fetch(Job { conn, topic, log, part, bytes })
    }

    /// Reads nothing more for a client that has left.
    pub(super) fn forget_fetch(&mut self, conn: ConnId) {
        self.fetcher.forget(conn);
        self.changes.remove(&conn);
    }

    /// The kept topics, if the broker is this process.
    pub(super) fn kept(&self) -> Option<&KeptTopics> {
        self.kept.as_ref()
    }

    /// Makes or removes a group for a client.
    pub(super) fn change_group(&mut self, conn: ConnId, change: GroupChange) {
        let change = match &self.kept {
            Some(kept) => Change::Asked(kept.change_group(change)),
            None => Change::Done(Err("the broker is another process".to_owned())),
        };
        self.changes.insert(conn, change);
    }

    /// The result of that change.
    pub(super) fn changed_group(&mut self, conn: ConnId) -> Option<Result<bool, String>> {
        match self.changes.remove(&conn)? {
            Change::Done(done) => Some(done),
            asked @ Change::Asked(_) => {
                self.changes.insert(conn, asked);
                None
            }
        }
    }

    /// The clients whose groups were changed since the last call.
    fn take_changed(&mut self) -> Vec<ConnId> {
        let mut changed = Vec::new();
        for (conn, change) in &mut self.changes {
            let Change::Asked(answer) = change else { continue };
            let done = match answer.try_recv() {
                Ok(done) => done,
                Err(TryRecvError::Empty) => continue,
                Err(TryRecvError::Disconnected) => Err("the broker stops".to_owned()),
            };
            *change = Change::Done(done);
            changed.push(*conn);
        }
        changed
    }

    /// Whether messages of a publisher's log wait: it is not closed before they are stored.
    pub(super) fn awaits(&self, log: Epoch) -> bool {
        self.own.get(&log).is_some_and(|pending| !pending.is_empty())
    }

    /// A topic that is not kept yet was closed, and is not opened again for a while.
    pub(super) fn rest(&mut self, topic: &TopicName, now: Instant) {
        if self.resting.len() >= MAX_RESTING {
            self.resting.clear();
        }
        let last = self.resting.get(topic).map(|rest| rest.time);
        let time = last.map_or(FIRST_REST, |last| LONGEST_REST.min(2 * last));
        self.resting.insert(topic.clone(), Rest { time, until: now + time });
    }

    /// Whether a topic is not to be opened now.
    pub(super) fn rests(&mut self, topic: &TopicName, now: Instant) -> bool {
        self.resting.get(topic).is_some_and(|rest| rest.until > now) && self.log(topic).is_none()
    }

    /// Whether a topic that is not kept yet was opened again, in vain.
    pub(super) fn has_rested(&self, topic: &TopicName) -> bool {
        self.resting.get(topic).is_some_and(|rest| rest.time > FIRST_REST)
    }

    /// A topic has its log.
    pub(super) fn is_kept_now(&mut self, topic: &TopicName) {
        if !self.resting.is_empty() {
            self.resting.remove(topic);
        }
    }

    /// A publisher's log is closed, or refused: what waits is not stored.
    pub(super) fn closed(&mut self, log: Epoch, why: &str) {
        let Some(pending) = self.own.remove(&log) else { return };
        self.follow_publisher(log, false);
        let failed = pending.into_iter();
        self.failed.extend(failed.map(|pending| LogNews::Stored(pending.ticket, Err(why.to_owned()))));
    }

    /// Begins to learn where messages of a publisher's log are stored.
    pub(super) fn follow(&mut self, log: Epoch) {
        if !self.own.contains_key(&log) {
            self.follow_publisher(log, true);
            self.own.insert(log, VecDeque::new());
        }
    }

    /// A message of a log that is followed was published.
    pub(super) fn published(&mut self, log: Epoch, pending: Pending) {
        if let Some(own) = self.own.get_mut(&log) {
            own.push_back(pending);
        }
    }

    /// What has happened since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<LogNews> {
        let (grown, stored) = self.kept.as_ref().map(KeptTopics::take_news).unwrap_or_default();
        let mut news = std::mem::take(&mut self.failed);
        for stored in stored {
            let Some(own) = self.own.get_mut(&stored.log) else { continue };
            let is_stored = |pending: &Pending| pending.start < stored.to;
            let count = own.iter().take_while(|pending| is_stored(pending)).count();
            news.extend(own.drain(..count).map(|Pending { start, ticket }| {
                // What was stored before somebody followed the log was answered otherwise.
                let place = start.checked_sub(stored.from).map(|offset| (stored.at + offset, stored.time_ms));
                let place =
                    place.ok_or_else(|| "the place of the message in the log is not known".to_owned());
                LogNews::Stored(ticket, place)
            }));
        }
        news.extend(grown.into_iter().map(LogNews::Grown));
        news.extend(self.fetcher.take().into_iter().map(LogNews::Fetched));
        if !self.changes.is_empty() {
            news.extend(self.take_changed().into_iter().map(LogNews::Fetched));
        }
        news
    }
}
