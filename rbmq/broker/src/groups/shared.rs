//! What the engine and the thread of the groups share.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

use access::Charge;
use locks::{Condvar, Mutex};
use rbmq_groups::AtWorker;
use rbmq_wire::{GroupAction, GroupJoin, GroupMessage, GroupName, TopicName};
use rocketbufs::{Bid, Conn, OutBuffer, ROut};

use super::super::admission::Admission;
use super::super::inbox::{Message, Sender};
use super::super::kept::{Ear, KeptLogs};
use super::super::outgoing::send_bytes;
use super::consumers::{GroupChange, Registry};
use super::row::{GroupLimits, GroupRow};

/// A round takes at most so many commands.
const ROUND: usize = 256;

/// A worker that may join.
pub(in super::super) struct Joining {
    pub(in super::super) conn: Conn,
    /// Counts as waiting until it is answered.
    pub(in super::super) _message: Message,
    /// The topic's buffer.
    pub(in super::super) live: OutBuffer,
    /// The id of the worker's buffer.
    pub(in super::super) bid: Bid,
    pub(in super::super) join: GroupJoin,
}

/// A question about groups.
pub(in super::super) struct Question {
    pub(in super::super) conn: Conn,
    pub(in super::super) request: u32,
    pub(in super::super) action: GroupAction,
    pub(in super::super) of: Option<(TopicName, GroupName)>,
    /// Counts as waiting until it is answered.
    pub(in super::super) _message: Message,
}

pub(super) enum Command {
    Join(Box<Joining>),
    Marks {
        conn: u64,
        message: Message,
    },
    /// The worker of a connection will go.
    Leave {
        conn: u64,
        _message: Message,
    },
    Ask(Box<Question>),
    /// A group of named consumers. The asker may have given up, and is woken.
    Change(Box<GroupChange>, SyncSender<Result<bool, String>>, Wake),
    /// The workers of a group. The asker may have given up.
    Members(Key, SyncSender<Option<Members>>),
    Subscribed(Bid),
    Left(Bid),
    Down(u64),
}

/// What the thread needs.
pub(in super::super) struct Parts {
    pub(in super::super) dir: PathBuf,
    pub(in super::super) logs: KeptLogs,
    pub(in super::super) events: Sender,
    pub(in super::super) admission: Admission,
    pub(in super::super) limits: GroupLimits,
}

#[derive(Default)]
pub(super) struct Inbox {
    pub(super) commands: VecDeque<Command>,
    /// The buffers of workers: their events are for this thread.
    pub(super) bids: HashSet<Bid>,
    /// Connections that have asked for a group. Each does once, so that what it costs is bounded.
    pub(super) joined: HashSet<u64>,
    /// Connections whose question waits. Each has one at a time.
    pub(super) asking: HashSet<u64>,
    /// Buffers with room.
    pub(super) roomy: HashSet<Bid>,
    pub(super) has_news: bool,
    pub(super) is_stopped: bool,
}

impl Inbox {
    /// The commands of a round. What may wait for the disk ends it, so that groups go on in between.
    pub(super) fn round(&mut self) -> VecDeque<Command> {
        let is_long =
            |command: &Command| matches!(command, Command::Join(_) | Command::Ask(_) | Command::Change(..));
        let first_long = self.commands.iter().take(ROUND).position(is_long);
        let count = first_long.map_or(ROUND, |at| at + 1).min(self.commands.len());
        self.commands.drain(..count).collect()
    }
}

pub(super) struct Shared {
    pub(super) out: ROut,
    /// The workers' buffers and the connections that have asked for a group. While there are none, all others pay nothing for groups.
    pub(super) known: AtomicUsize,
    pub(super) inbox: Mutex<Inbox>,
    pub(super) changed: Condvar,
    /// How the groups were after their last turn, by topic and name.
    pub(super) rows: Mutex<BTreeMap<Key, GroupRow>>,
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// Groups whose consumers have names.
    pub(super) consumers: Registry,
}

impl Shared {
    /// Changes what is known of workers.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Inbox) -> R) -> R {
        let mut inbox = self.inbox.lock();
        let result = change(&mut inbox);
        // Relaxed: events of a worker follow from its own join, through other locks.
        self.known.store(inbox.bids.len() + inbox.joined.len(), Ordering::Relaxed);
        result
    }

    /// Whether there is a worker, or a connection that has asked for a group.
    pub(super) fn knows_any(&self) -> bool {
        self.known.load(Ordering::Relaxed) > 0
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = GroupRow> {
        let mut rows = self.rows.lock().clone();
        for row in self.consumers.rows() {
            rows.insert((row.stats.topic.to_string(), row.stats.group.to_string()), row);
        }
        rows.into_values().map(|mut row| {
            row.stats.end = row.reader.end();
            row
        })
    }
}

/// A worker of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    /// Its connection.
    pub(crate) conn: u64,
    pub(crate) at_worker: AtWorker,
    /// The worker gets nothing more, and will go.
    pub(crate) is_leaving: bool,
}

/// Workers of a group at one time.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) rows: Vec<Member>,
    /// There are more workers than these.
    pub(crate) is_cut: bool,
}

/// The most workers of a look at a group.
pub(super) const MAX_MEMBERS: usize = 500;

/// Answers a worker or a question.
pub(super) fn answer(conn: &Conn, message: &GroupMessage) {
    send_bytes(conn, &message.encode());
}

/// The answer to whoever asks for a group that it may not see, or that does not exist: it does not learn which.
pub(in super::super) fn no_group(topic: &TopicName, group: &GroupName) -> String {
    format!("there is no group '{group}' of topic '{topic}', or you may not subscribe to the topic")
}

/// The keys of the service's tables: topic and name.
pub(super) type Key = (String, String);

/// Where a worker is.
pub(super) struct Place {
    pub(super) key: Key,
    pub(super) conn: u64,
    pub(super) ring_bytes: u64,
    /// The ring counts in the quotas of the worker's user and address.
    pub(super) _charge: Charge,
}

/// Where the workers are.
#[derive(Default)]
pub(super) struct Places {
    pub(super) by_bid: HashMap<Bid, Place>,
    pub(super) by_conn: HashMap<u64, Bid>,
    /// The bytes of all rings.
    pub(super) ring_bytes: u64,
}

impl Places {
    pub(super) fn insert(&mut self, bid: Bid, place: Place) {
        self.ring_bytes += place.ring_bytes;
        self.by_conn.insert(place.conn, bid);
        self.by_bid.insert(bid, place);
    }

    pub(super) fn remove(&mut self, bid: Bid) {
        if let Some(place) = self.by_bid.remove(&bid) {
            self.ring_bytes -= place.ring_bytes;
            self.by_conn.remove(&place.conn);
        }
    }
}

/// Wakes the thread.
pub(in super::super) type Wake = Arc<dyn Fn() + Send + Sync>;

/// What groups share.
pub(super) struct Around<'a> {
    pub(super) events: &'a Sender,
    pub(super) ear: &'a Ear,
    pub(super) logs: &'a KeptLogs,
    pub(super) wake: &'a Wake,
    pub(super) now: u64,
}
