//! The tables of a gateway of MQTT.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use peers::LogLimiter;
use rbmq_wire::{Levels, TopicFilter, TopicName};
use slab::Slab;

use crate::protocol::ConnId;

use super::codec::{DecodeError, SubscribeOptions, Version, reason};
use super::due_will::DueWill;
use super::journal::{Journal, Pieces};
use super::message::Stored;
use super::retained::RetainedMessages;
use super::session::Session;
use super::settings::{Clock, MAX_MESSAGE, Settings};
use super::will::OwnedWill;

/// The machine. See the module.
#[derive(Debug)]
pub(crate) struct Mqtt {
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    /// The random number of this gateway, by which it knows its own messages again.
    pub(super) gateway: u64,
    /// What makes the marks of its messages.
    pub(super) marks: RandomState,
    pub(super) clients: HashMap<ConnId, Client>,
    pub(super) sessions: Slab<Session>,
    /// Sessions by key.
    pub(super) names: HashMap<Box<str>, usize>,
    /// The bytes that all sessions hold.
    pub(super) held: Arc<AtomicUsize>,
    /// Whether a message had no room among them.
    pub(super) is_crowded: bool,
    /// When the largest session may end next, if they hold too much.
    pub(super) next_relief: Instant,
    /// Sessions without a connection, in the order in which they lost it.
    pub(super) away: BTreeMap<u64, usize>,
    /// Connections that sessions have lost so far.
    pub(super) departures: u64,
    /// Sessions so far.
    pub(super) serials: u64,
    /// A random number in the client ids that this gateway gives.
    pub(super) name_seed: u64,
    /// Client ids given so far.
    pub(super) named: u64,
    /// Retained messages so far.
    pub(super) retained_so_far: u64,
    pub(super) routes: Levels<Route>,
    /// Routes to topics of the gateway itself.
    pub(super) own_routes: usize,
    pub(super) retained: RetainedMessages,
    pub(super) alarms: BTreeSet<(Instant, Alarm)>,
    /// Sessions whose connection was full.
    pub(super) stalled: BTreeSet<usize>,
    /// Wills that are due and that the bus does not have yet.
    pub(super) owed: VecDeque<DueWill>,
    /// Wills that the bus has, and the broker in another process perhaps not, by number.
    pub(super) sent_wills: BTreeMap<u64, DueWill>,
    pub(super) will_lines: LogLimiter,
    /// Connections whose queue was full, to be disconnected.
    pub(super) doomed: Vec<ConnId>,
    /// Lines about sessions without room.
    pub(super) full_lines: LogLimiter,
    /// Where sessions and retained messages outlive this process; none: nowhere.
    pub(super) journal: Option<Journal>,
    /// What is being written of a snapshot.
    pub(super) snapshot: Option<Snapshot>,
    /// Messages of clients that are acknowledged when they come back, by number.
    pub(super) awaited: BTreeMap<u64, Awaited>,
    /// Numbers that were given so far.
    pub(super) numbered: u64,
    /// A filter was left by its last session: messages may not come back.
    pub(super) has_left_route: bool,
    pub(super) counts: Counts,
    pub(super) next_report: Instant,
    /// When the clock of the machine is looked at.
    pub(super) next_clock: Instant,
    pub(super) scratch: Scratch,
}

/// A snapshot that is written in steps, and what was there when it began and is not in it yet.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) pieces: Pieces,
    pub(super) retained: Vec<Weak<Stored>>,
    /// Sessions by slot and serial.
    pub(super) sessions: Vec<(usize, u64)>,
}

/// Memory that is used again.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) matched: Vec<Match>,
    pub(super) attributes: Vec<u8>,
}

/// What the gateway counts.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) packets_in: u64,
    pub(super) bytes_in: u64,
    pub(super) published_in: u64,
    pub(super) published_out: u64,
    /// Messages that a session or connection did not get: it was slow, or the message is larger than it takes.
    pub(super) dropped: u64,
    /// Messages that were worthless before they were sent.
    pub(super) expired: u64,
    /// Messages that clients were not allowed to publish, or that the broker refused.
    pub(super) refused: u64,
    /// Retained messages that were delivered and not kept.
    pub(super) not_retained: u64,
    pub(super) sessions_expired: u64,
    /// Bytes that the broker lost on the way to the gateway.
    pub(super) lost_bytes: u64,
}

/// Something is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// A connection has to have sent something.
    Silence(ConnId),
    /// A session may end, or its will be published.
    Session {
        /// Where it is.
        slot: usize,
        /// Its number.
        serial: u64,
    },
}

/// Where a connection stands.
#[derive(Debug)]
pub(super) enum Stage {
    /// Before CONNECT.
    New,
    /// Its password is being checked.
    LoggingIn(Box<Opening>),
    /// It has a session, in this slot.
    Live(usize),
    /// It was closed, and what it sends does not count.
    Closed,
}

/// A CONNECT whose client is not let in yet.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) version: Version,
    pub(super) clean_start: bool,
    pub(super) client_id: String,
    pub(super) assigned: bool,
    pub(super) keep_alive: u16,
    /// What the client asked for, in seconds.
    pub(super) asked_expiry: u32,
    pub(super) expiry: Option<Duration>,
    pub(super) receive_maximum: u16,
    pub(super) max_packet: usize,
    pub(super) will: Option<OwnedWill>,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) stage: Stage,
    pub(super) version: Version,
    /// After how long a silence it is disconnected.
    pub(super) patience: Option<Duration>,
    pub(super) heard: Instant,
    /// When that is looked at.
    pub(super) alarm: Option<Instant>,
    /// It waits for the bus and cannot be heard.
    pub(super) blocked: bool,
    pub(super) wants_reasons: bool,
    /// The largest packet that it takes.
    pub(super) max_packet: usize,
    pub(super) aliases: HashMap<u16, TopicName>,
    /// The topic of the last PUBLISH, whose name is mostly that of the next.
    pub(super) last_topic: Option<TopicName>,
    /// A SUBSCRIBE that is not done yet. The connection is not read until then, and gives the packet again.
    pub(super) subscribing: Option<Box<Subscribing>>,
    /// Acknowledgements of its messages, in their order, from the first that is not due yet.
    pub(super) owed: VecDeque<Owed>,
}

impl Client {
    pub(super) fn slot(&self) -> Option<usize> {
        match self.stage {
            Stage::Live(slot) => Some(slot),
            _ => None,
        }
    }
}

/// A filter of a SUBSCRIBE that is not in force yet.
#[derive(Debug)]
pub(super) struct Coming {
    /// The number of its reason.
    pub(super) at: usize,
    /// As the client has written it.
    pub(super) filter: TopicFilter,
    /// What the bus was asked for.
    pub(super) of_bus: TopicFilter,
}

/// A SUBSCRIBE that is being executed.
#[derive(Debug)]
pub(super) struct Subscribing {
    pub(super) packet_id: u16,
    pub(super) reasons: Vec<u8>,
    /// Filters without a subscription before.
    pub(super) fresh: Vec<TopicFilter>,
    /// Filters that are not in force yet.
    pub(super) waits: Vec<Coming>,
    /// Filters whose retained messages follow: each once, however often it is in the packet.
    pub(super) retained: BTreeMap<TopicFilter, RetainedWish>,
}

impl Subscribing {
    /// The filter whose reason comes next is not in force yet.
    pub(super) fn await_filter(&mut self, filter: &TopicFilter, of_bus: TopicFilter) {
        let at = self.reasons.len();
        self.waits.push(Coming { at, filter: filter.clone(), of_bus });
    }
}

/// What a message has to wait for before it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waits {
    /// Sessions want it: it has to come back.
    pub(super) sessions: bool,
    pub(super) disk: Disk,
}

/// Where the broker keeps a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disk {
    /// Nowhere, or it is there.
    No,
    /// In the file of its topic, or at a broker in another process: the bus tells when it is there.
    File,
    /// In a space: it comes back when it is there.
    Space,
}

/// A message that is not acknowledged yet.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) topic: TopicName,
    /// The connection that waits for the acknowledgement.
    pub(super) conn: ConnId,
    pub(super) slot: usize,
    /// The number of the session.
    pub(super) serial: u64,
    pub(super) packet_id: u16,
    pub(super) qos: u8,
    pub(super) waits: Waits,
}

/// An acknowledgement that is not sent yet, as one before it is not.
#[derive(Debug)]
pub(super) struct Owed {
    /// The number of the message; 0: it does not come back.
    pub(super) number: u64,
    /// The packet; none: the message has not come back.
    pub(super) packet: Option<Vec<u8>>,
}

/// Retained messages are to be sent for a subscription.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetainedWish {
    pub(super) qos: u8,
    pub(super) id: Option<u32>,
}

/// Who subscribed to a filter.
#[derive(Debug)]
pub(super) struct Route {
    /// Whether messages arrive.
    pub(super) in_force: bool,
    /// Sorted by slot.
    pub(super) subscribers: Vec<Subscriber>,
    /// Groups whose members share the messages.
    pub(super) groups: Vec<Group>,
}

/// Subscribers of which one gets a message.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: Box<str>,
    /// Sorted by slot, at least one.
    pub(super) members: Vec<Subscriber>,
    /// Whose turn it is, about.
    pub(super) turn: Cell<usize>,
}

/// A subscription of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subscriber {
    pub(super) slot: usize,
    pub(super) options: SubscribeOptions,
    pub(super) id: Option<u32>,
    /// The number of retained messages that were published before it subscribed: those that arrive later are not sent.
    pub(super) since: u64,
}

/// A subscription that matches a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Match {
    pub(super) slot: usize,
    pub(super) qos: u8,
    pub(super) retain_as_published: bool,
    pub(super) id: Option<u32>,
    /// For a group: it is no part of what the session gets by its other subscriptions.
    pub(super) shared: bool,
}

/// A client broke a rule, or a limit: its connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) reason: u8,
    pub(super) text: &'static str,
}

impl Fault {
    pub(super) fn new(reason: u8, text: &'static str) -> Self {
        Self { reason, text }
    }

    pub(super) fn protocol(text: &'static str) -> Self {
        Self::new(reason::PROTOCOL, text)
    }
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        let text = match error {
            DecodeError::Malformed(text) | DecodeError::Protocol(text) | DecodeError::TooMany(text) => text,
            DecodeError::TooLarge { .. } => "a packet is larger than gateway.max_message_bytes and 64 KiB",
            DecodeError::Version(_) => "the version of the protocol is not supported",
        };
        Self::new(error.reason(), text)
    }
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It was executed.
    Done,
    /// It has to come again: the bus has no room.
    Again,
    /// It has to come again: an answer of the broker is missing.
    Waits,
    /// It has to come again when the client has read what is queued: it costs much.
    Later,
}

/// The seconds that mean «never».
pub(super) const FOREVER: u32 = u32::MAX;

impl Mqtt {
    /// A machine without clients. `gateway` is a random number; `now` and `clock` are the present time.
    pub(crate) fn new(mut settings: Settings, clock: Clock, gateway: u64) -> Self {
        settings.max_message_bytes = settings.max_message_bytes.min(MAX_MESSAGE);
        Self {
            next_report: clock.at + settings.sys_interval,
            next_clock: clock.at,
            settings,
            clock,
            gateway,
            marks: RandomState::new(),
            clients: HashMap::new(),
            sessions: Slab::new(),
            names: HashMap::new(),
            held: Arc::default(),
            is_crowded: false,
            next_relief: clock.at,
            away: BTreeMap::new(),
            departures: 0,
            serials: 0,
            name_seed: RandomState::new().build_hasher().finish(),
            named: 0,
            retained_so_far: 0,
            routes: Levels::default(),
            own_routes: 0,
            retained: RetainedMessages::default(),
            alarms: BTreeSet::new(),
            stalled: BTreeSet::new(),
            owed: VecDeque::new(),
            sent_wills: BTreeMap::new(),
            will_lines: LogLimiter::default(),
            doomed: Vec::new(),
            full_lines: LogLimiter::default(),
            journal: None,
            snapshot: None,
            awaited: BTreeMap::new(),
            numbered: 0,
            has_left_route: false,
            counts: Counts::default(),
            scratch: Scratch::default(),
        }
    }

    /// The session's life for an expiry interval, within the limit.
    pub(super) fn life(&self, seconds: u32) -> Option<Duration> {
        let most = self.settings.max_session_expiry;
        let unlimited = most >= Duration::from_secs(FOREVER.into());
        match seconds {
            FOREVER if unlimited => None,
            seconds => Some(Duration::from_secs(seconds.into()).min(most)),
        }
    }

    /// Sets when a connection has to have sent something. The former time does not count any more: who comes and goes leaves nothing behind.
    pub(super) fn set_silence(&mut self, conn: ConnId, at: Option<Instant>) {
        let Some(client) = self.clients.get_mut(&conn) else { return };
        if let Some(old) = std::mem::replace(&mut client.alarm, at) {
            self.alarms.remove(&(old, Alarm::Silence(conn)));
        }
        if let Some(at) = at {
            self.alarms.insert((at, Alarm::Silence(conn)));
        }
    }

    /// A session gets a connection or ends: its end and its will are due no more.
    pub(super) fn disarm(&mut self, slot: usize) {
        let session = &mut self.sessions[slot];
        if let Some(number) = session.away.take() {
            self.away.remove(&number);
        }
        let alarm = Alarm::Session { slot, serial: session.serial };
        for at in [session.ends_at.take(), session.will_at.take()].into_iter().flatten() {
            self.alarms.remove(&(at, alarm));
        }
    }

    /// Whether the slot has the session with this number.
    pub(super) fn session(&mut self, slot: usize, serial: u64) -> Option<&mut Session> {
        self.sessions.get_mut(slot).filter(|session| session.serial == serial)
    }
}
