//! The queue of events from the framework's callbacks to the broker's thread.
//!
//! Callbacks run on the framework's workers and must not wait, so they only queue an event. The broker's thread owns all
//! tables and handles one event after the other. The number of the framework's events is bounded by the existing connections
//! and subscriptions. The messages of peers are counted, per peer and in total: a peer with too many waiting messages is
//! disconnected and takes no room from the others. The limits allow a publisher with ten thousand topics, and thousands of
//! publishers that reconnect at once after a restart of the broker.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use access::{Authenticator, Login, QuotaLimits, Refused, Rights};
use locks::{Mutex, MutexGuard};
use rbmq_wire::{Control, TopicName, TopicStats};
use rocketbufs::{Bid, Conn, InEvent, OutEvent};

use super::asks::Ask;
use super::config::{BrokerSettings, UsersSettings};
use super::counters::Census;
use super::feed::{Feed, FeedError, FeedOptions};
use super::kept::{Taken, Wanted};
use super::merge::LocalAsk;
use super::password_check::PasswordCheck;
use super::rates::RateSettings;
use super::session_key::SessionKey;
use super::traces::TraceAsk;

/// Most bytes of one peer's waiting messages: about 20,000 CREATEs.
const MAX_BYTES_OF_PEER: usize = 4 << 20;

/// Most bytes of all waiting messages.
const MAX_BYTES: usize = 256 << 20;

/// Most bytes of all messages that wait for the thread of the groups, which waits for the disk. Nobody else pays for them.
const MAX_BYTES_OF_GROUPS: usize = 64 << 20;

/// The cost of a message besides its bytes.
const COST: usize = 128;

const _: () = assert!(Control::MAX_BYTES + COST <= MAX_BYTES_OF_PEER && MAX_BYTES_OF_PEER <= MAX_BYTES);

/// An event for the broker's thread.
pub(super) enum Event {
    /// A new connection with a readable hello.
    Connection(Conn),
    /// A new connection from a part of this process.
    OwnConnection(Conn),
    /// The password of a client was checked.
    LoginChecked { conn: u64, login: Result<Login, Refused> },
    /// A client of a gateway has shown a password.
    CheckPassword(Box<PasswordCheck>),
    /// A connection to an upstream broker is up.
    UpstreamUp { index: usize, conn: Conn },
    /// A control message from a publisher.
    PublisherControl { key: SessionKey, message: Message },
    /// A control message from a subscriber.
    SubscriberControl { conn: Conn, message: Message },
    /// An event of a publisher's rIn.
    Publisher { key: SessionKey, event: InEvent },
    /// An event of the rOut.
    Out(OutEvent),
    /// Data arrived for an id without a topic.
    InvalidMapping { key: SessionKey, bid: Bid },
    /// All data of a publisher of a merged topic was merged, and no more follows.
    Merged { out_bid: Bid, number: u32, position: u64 },
    /// A publisher of a merged topic has sent more in one piece than its log takes.
    TooLarge { out_bid: Bid, number: u32 },
    /// A publisher of a merged topic was stopped.
    Stopped { out_bid: Bid, number: u32, stopped: Stopped },
    /// Disconnect a publisher.
    Expel { key: SessionKey, why: &'static str },
    /// An event of an observer.
    Observer(ObserverEvent),
    /// A request for the table of topics.
    Stats(mpsc::SyncSender<Vec<TopicStats>>),
    /// A question of this process about the tables.
    Ask(Ask),
    /// Somebody traces a client or a topic.
    Trace(Box<TraceAsk>),
    /// A request for a sign of life.
    Alive(mpsc::SyncSender<()>),
    /// A request for all counters, with at most `max_own` topics by name.
    Census { max_own: usize, reply: mpsc::SyncSender<Census> },
    /// Make a topic that this process writes.
    Feed { options: Box<FeedOptions>, reply: mpsc::SyncSender<Result<Feed, FeedError>> },
    /// Make a publisher of this process into the log of a space.
    Local(Box<LocalAsk>),
    /// Disconnect all publishers; the broker is about to stop.
    Drain(mpsc::SyncSender<()>),
    /// Apply other settings.
    Reload(Box<Reloaded>),
    /// The cluster says of some topic that another member has it than before, or has other members.
    ClusterChanged,
    /// The log of a topic is here, which goes on in the archive.
    Taken(Box<(Wanted, Taken)>),
    /// The topics with a log that goes on in the archive, at whichever member.
    Listed(Vec<TopicName>),
    /// Other users are in force.
    Users(Box<(Authenticator, UsersSettings)>),
    /// Stop the thread.
    Stop,
}

/// How far the log of a publisher is here, which goes to another broker.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopped {
    /// Everything below is merged. None: nobody knows, since the topic's log has ended.
    pub(super) position: Option<u64>,
    /// It is on the disk.
    pub(super) is_synced: bool,
    /// The disk lost a part of the topic's log, and the publisher has not heard of that.
    pub(super) is_lost: bool,
}

/// The settings of a reload.
pub(super) struct Reloaded {
    pub(super) settings: BrokerSettings,
    /// None: every client may do everything.
    pub(super) rights: Option<Arc<Rights>>,
    pub(super) limits: QuotaLimits,
    pub(super) rates: RateSettings,
}

/// An event of an observer's connection.
pub(super) enum ObserverEvent {
    /// The observer sent a request.
    Request { conn: Conn, message: Vec<u8> },
    /// The connection is down.
    Down { conn: u64, why: String },
}

/// The callbacks' end of the queue.
#[derive(Clone)]
pub(super) struct Sender {
    events: mpsc::Sender<Event>,
    budget: Budget,
}

/// The end of the broker's thread.
pub(super) struct Inbox {
    pub(super) events: mpsc::Receiver<Event>,
}

/// A message of a peer. Its bytes count as waiting until it is dropped.
pub(super) struct Message {
    bytes: Vec<u8>,
    conn: u64,
    budget: Budget,
    is_for_groups: bool,
    arrived: Instant,
}

impl Message {
    /// The time at which the framework had read the message.
    pub(super) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// The message goes on to the thread of the groups, and counts there. False: too many are there already.
    pub(super) fn is_taken_by_groups(&mut self) -> bool {
        let cost = self.bytes.len() + COST;
        let mut usage = self.budget.lock();
        if !usage.groups.reserve(self.conn, cost, MAX_BYTES_OF_PEER, MAX_BYTES_OF_GROUPS) {
            return false;
        }
        usage.engine.release(self.conn, cost);
        drop(usage);
        self.is_for_groups = true;
        true
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let mut budget = self.budget.lock();
        let usage = if self.is_for_groups { &mut budget.groups } else { &mut budget.engine };
        usage.release(self.conn, self.bytes.len() + COST);
    }
}

/// The bytes of waiting messages, shared by all senders and messages.
#[derive(Clone, Default)]
struct Budget(Arc<Mutex<Usages>>);

#[derive(Default)]
struct Usages {
    /// Messages that wait for the broker's thread.
    engine: Usage,
    /// Messages that wait for the thread of the groups.
    groups: Usage,
}

#[derive(Default)]
struct Usage {
    of_peers: HashMap<u64, usize>,
    total: usize,
}

impl Budget {
    fn lock(&self) -> MutexGuard<'_, Usages> {
        self.0.lock()
    }
}

impl Usage {
    /// Counts a message. Returns false if a limit would be exceeded.
    fn reserve(&mut self, conn: u64, cost: usize, max_of_peer: usize, max: usize) -> bool {
        let of_peer = self.of_peers.get(&conn).copied().unwrap_or(0) + cost;
        if of_peer > max_of_peer || self.total + cost > max {
            return false;
        }
        self.of_peers.insert(conn, of_peer);
        self.total += cost;
        true
    }

    fn release(&mut self, conn: u64, cost: usize) {
        self.total -= cost;
        if let Some(of_peer) = self.of_peers.get_mut(&conn) {
            *of_peer -= cost;
            if *of_peer == 0 {
                self.of_peers.remove(&conn);
            }
        }
    }
}

/// Makes a queue.
// The channel is unbounded, because a worker that waits for room could hold what the broker's thread needs to make room.
#[allow(clippy::disallowed_methods)]
pub(super) fn inbox() -> (Sender, Inbox) {
    let (events, receiver) = mpsc::channel();
    (Sender { events, budget: Budget::default() }, Inbox { events: receiver })
}

impl Sender {
    /// Queues an event. After the end of the broker's thread the event is dropped.
    pub(super) fn event(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Queues a message that a publisher sent over this connection.
    pub(super) fn publisher_control(&self, key: SessionKey, conn: &Conn, message: &[u8]) {
        match self.admit(conn.id(), message) {
            Ok(message) => self.event(Event::PublisherControl { key, message }),
            Err(why) => {
                // Close at once: a publisher with an open connection could queue more of these events.
                conn.close(why);
                self.event(Event::Expel { key, why });
            }
        }
    }

    /// Queues a message that a subscriber sent over this connection.
    pub(super) fn subscriber_control(&self, conn: &Conn, message: &[u8]) {
        match self.admit(conn.id(), message) {
            Ok(message) => self.event(Event::SubscriberControl { conn: conn.clone(), message }),
            Err(why) => conn.close(why),
        }
    }

    fn admit(&self, conn: u64, message: &[u8]) -> Result<Message, &'static str> {
        if message.len() > Control::MAX_BYTES {
            return Err("a control message is larger than RBMQ's limit");
        }
        let cost = message.len() + COST;
        if !self.budget.lock().engine.reserve(conn, cost, MAX_BYTES_OF_PEER, MAX_BYTES) {
            return Err("too many control messages at once; connect again later");
        }
        let (bytes, budget, arrived) = (message.to_vec(), self.budget.clone(), Instant::now());
        Ok(Message { bytes, conn, budget, is_for_groups: false, arrived })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_with_too_many_messages_takes_no_room_from_others() {
        let (sender, _inbox) = inbox();
        let mut waiting = Vec::new();
        while let Ok(message) = sender.admit(1, &[0; 64]) {
            waiting.push(message);
        }
        assert!(waiting.len() > 20_000, "a publisher with ten thousand topics is within the limit");
        assert!(sender.admit(2, &[0; 64]).is_ok());
        waiting.pop();
        assert!(sender.admit(1, &[0; 64]).is_ok());
        drop(waiting);
        // A peer that is refused because of others is not remembered.
        sender.budget.lock().engine.total = MAX_BYTES;
        assert!(sender.admit(3, &[0; 64]).is_err());
        sender.budget.lock().engine.total = 0;
        let usage = sender.budget.lock();
        assert_eq!((usage.engine.total, usage.engine.of_peers.len()), (0, 0));
    }

    #[test]
    fn messages_that_wait_for_groups_take_no_room_from_others() {
        let (sender, _inbox) = inbox();
        let mut waiting = Vec::new();
        for conn in 0.. {
            let before = waiting.len();
            loop {
                let mut message = sender.admit(conn, &[0; 64]).unwrap();
                if !message.is_taken_by_groups() {
                    break;
                }
                waiting.push(message);
            }
            if waiting.len() == before {
                break;
            }
        }
        assert!(sender.budget.lock().groups.total > MAX_BYTES_OF_GROUPS - 1024);
        assert_eq!(sender.budget.lock().engine.total, 0, "all others have all of the room");
        drop(waiting);
        let usage = sender.budget.lock();
        assert_eq!((usage.groups.total, usage.groups.of_peers.len()), (0, 0));
    }
}
