//! One publisher at the broker: its rIn, and which of its buffers the broker took.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rbmq_wire::Control;
use rocketbufs::{Bid, Conn, RIn};

use super::control::{Event, send};
use super::inbox::Sender;
use super::merge::MergedIn;

/// Names a publisher over its reconnects: the process and the publisher in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SessionKey {
    /// The process's endpoint, as the framework's handshake tells it.
    pub(super) instance: u128,
    /// The publisher in that process, as its hello tells it.
    pub(super) client: u128,
}

impl SessionKey {
    /// No publisher's: that of buffers which the broker writes itself.
    pub(super) const BROKER: Self = Self { instance: 0, client: 0 };
}

/// Which of a publisher's ids belong to a topic, and the broker's id of each. Read for every arriving transfer.
#[derive(Debug, Clone, Default)]
pub(super) struct Mapping(Arc<RwLock<HashMap<Bid, Bid>>>);

impl Mapping {
    fn read(&self) -> RwLockReadGuard<'_, HashMap<Bid, Bid>> {
        self.0.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Bid, Bid>> {
        self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn insert(&self, in_bid: Bid, out_bid: Bid) {
        self.write().insert(in_bid, out_bid);
    }

    pub(super) fn remove(&self, in_bid: Bid) {
        self.write().remove(&in_bid);
    }

    pub(super) fn get(&self, in_bid: Bid) -> Option<Bid> {
        self.read().get(&in_bid).copied()
    }

    /// The broker's ids.
    pub(super) fn out_bids(&self) -> Vec<Bid> {
        self.read().values().copied().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.read().len()
    }
}

/// Which of another broker's ids belong to which buffers here. Another process there has other ids.
#[derive(Debug, Default)]
pub(super) struct Theirs {
    ours: HashMap<Bid, Bid>,
    theirs: HashMap<Bid, Bid>,
}

impl Theirs {
    pub(super) fn insert(&mut self, theirs: Bid, ours: Bid) {
        self.ours.insert(theirs, ours);
        self.theirs.insert(ours, theirs);
    }

    pub(super) fn remove(&mut self, ours: Bid) {
        if let Some(theirs) = self.theirs.remove(&ours)
            && self.ours(theirs) == Some(ours)
        {
            self.ours.remove(&theirs);
        }
    }

    pub(super) fn ours(&self, theirs: Bid) -> Option<Bid> {
        self.ours.get(&theirs).copied()
    }

    pub(super) fn of(&self, ours: Bid) -> Option<Bid> {
        self.theirs.get(&ours).copied()
    }
}

/// A publisher, connected or away for less than the linger time.
pub(super) struct Session {
    pub(super) rin: RIn,
    pub(super) conn: Conn,
    pub(super) name: String,
    pub(super) mapping: Mapping,
    pub(super) merged: MergedIn,
    /// Which of the configured brokers it is, if it is one. Its buffers have the same ids in `rin` as here.
    pub(super) upstream: Option<usize>,
    /// What they are called there.
    pub(super) theirs: Theirs,
    /// The process there is not the first that was seen.
    pub(super) restarted: bool,
    /// It is away and has ended everything; what it published is still readable.
    pub(super) done: bool,
}

impl Session {
    /// Makes the rIn of a new publisher, or of another broker, and its callbacks (paper 1, Listing 3: `on_conn`).
    pub(super) fn new(
        key: SessionKey,
        conn: Conn,
        (name, upstream): (String, Option<usize>),
        events: &Sender,
    ) -> Self {
        let rin = RIn::new(&conn);
        let mapping = Mapping::default();
        let merged = MergedIn::default();
        let (verify, arrivals, wrong) = (mapping.clone(), merged.clone(), events.clone());
        rin.set_data_in_cb(move |bid, _segment| {
            // Splicing forwards the bytes; what is left to do is to check that they may be forwarded. Merged ones are
            // moved.
            if verify.get(bid).is_none() && !arrivals.arrived(bid) {
                wrong.event(Event::InvalidMapping { key, bid });
            }
        });
        let control = events.clone();
        rin.set_control_msg_cb(move |rin, message| {
            control.publisher_control(key, &rin.conn(), message);
        });
        let changes = events.clone();
        let asks = merged.clone();
        rin.set_event_cb(move |event| {
            if !asks.take(&event) {
                changes.event(Event::Publisher { key, event });
            }
        });
        let (theirs, restarted, done) = (Theirs::default(), false, false);
        Self { rin, conn, name, mapping, merged, upstream, theirs, restarted, done }
    }

    /// Answers a publisher; another broker did not ask, and is told only of subscribers.
    pub(super) fn answer(&self, message: &Control) {
        match (self.upstream, message) {
            (None, _) => send(&self.conn, message),
            (Some(_), Control::Subscribers { bid, count }) => {
                if let Some(bid) = self.theirs.of(*bid) {
                    send(&self.conn, &Control::Downstream { bid, count: *count });
                }
            }
            (Some(_), _) => {}
        }
    }

    /// Whether this connection leads to the process that it was connected to before.
    pub(super) fn is_same(&self, conn: &Conn) -> bool {
        self.conn.peer_instance() == conn.peer_instance()
    }

    /// The publisher is back on another connection: its buffers go on where they stopped. Those of another broker that was
    /// restarted do so when it offers their logs again.
    pub(super) fn resume(&mut self, conn: Conn) {
        if self.conn.down_reason().is_none() {
            self.conn.close("the same publisher connected again");
        }
        if self.is_same(&conn) {
            self.rin.resume(&conn);
        } else {
            self.theirs = Theirs::default();
            self.restarted = true;
            self.rin.resume_elsewhere(&conn);
        }
        self.conn = conn;
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.upstream.is_some() { "broker" } else { "publisher" };
        write!(f, "{what} {} at {}", display_name(&self.name), self.conn.peer_addr())
    }
}

/// A client's name in quotes, without what would confuse a terminal or a log.
pub(super) fn display_name(name: &str) -> String {
    if name.is_empty() { "(unnamed)".into() } else { format!("'{}'", name.escape_debug()) }
}
