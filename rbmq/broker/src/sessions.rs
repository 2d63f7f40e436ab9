//! The sessions of publishers and upstream brokers: the rIn of each, and the buffers that the broker took from it.
//!
//! A session survives lost connections. A publisher that is disconnected and whose logs have all ended is *finished*: it stays
//! known while its topics are readable, and doesn't count for the limit on publishers. So a script that runs `rbmq pub` again
//! and again is not many publishers.
//!
//! Publishers learn how many subscribers they have. Subscribers come and go fast, and publishers may read slowly. While
//! something waits in the queue of a publisher's connection, only the newest number of each buffer waits here, and the queue is
//! tried again a little later. So subscribers cannot fill a publisher's queue, and a slow publisher is not disconnected because
//! of its subscribers.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use access::Identity;
use locks::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rbmq_wire::Control;
use rocketbufs::{Bid, Conn, RIn};

use super::inbox::{Event, Sender};
use super::merge::MergedIn;
use super::names::display_name;
use super::outgoing::{RETRY_AFTER, send};
use super::session_key::{FormerPlace, SessionKey};

/// Numbers of subscribers are delayed while more than this waits in a queue. The smallest queue has eight times as much room.
const QUEUED_BYTES: usize = 4096;

/// The buffers of a publisher that belong to a topic, with the broker's ids. Every arriving transfer reads this table.
#[derive(Debug, Clone, Default)]
pub(super) struct Mapping(Arc<RwLock<HashMap<Bid, Bid>>>);

impl Mapping {
    fn read(&self) -> RwLockReadGuard<'_, HashMap<Bid, Bid>> {
        self.0.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Bid, Bid>> {
        self.0.write()
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

/// The ids of buffers at an upstream broker. A restarted upstream broker has other ids for the same logs.
#[derive(Debug, Default)]
pub(super) struct UpstreamIds {
    local: HashMap<Bid, Bid>,
    remote: HashMap<Bid, Bid>,
}

impl UpstreamIds {
    pub(super) fn insert(&mut self, remote: Bid, local: Bid) {
        self.local.insert(remote, local);
        self.remote.insert(local, remote);
    }

    /// Removes a buffer by its id at this broker.
    pub(super) fn remove(&mut self, local: Bid) {
        if let Some(remote) = self.remote.remove(&local)
            && self.local(remote) == Some(local)
        {
            self.local.remove(&remote);
        }
    }

    /// The id at this broker.
    pub(super) fn local(&self, remote: Bid) -> Option<Bid> {
        self.local.get(&remote).copied()
    }

    /// The id at the upstream broker.
    pub(super) fn remote(&self, local: Bid) -> Option<Bid> {
        self.remote.get(&local).copied()
    }
}

/// A publisher or an upstream broker that is connected, or disconnected for less than the linger time.
pub(super) struct Session {
    pub(super) rin: RIn,
    pub(super) conn: Conn,
    pub(super) name: String,
    /// The user of the newest connection; nobody for an upstream broker.
    pub(super) identity: Arc<Identity>,
    /// Spliced buffers.
    pub(super) mapping: Mapping,
    /// Merged buffers.
    pub(super) merged: MergedIn,
    /// The number of the upstream broker in the configuration; none for a publisher. The buffers of an upstream broker have
    /// the same ids in `rin` as at this broker.
    pub(super) upstream: Option<usize>,
    pub(super) upstream_ids: UpstreamIds,
    /// The upstream broker was restarted since the first connection.
    pub(super) restarted: bool,
    /// The last PLACE of the publisher, for the CREATE that follows.
    pub(super) place: Option<(Bid, FormerPlace)>,
    finished: bool,
}

impl Session {
    /// Makes the rIn of a new publisher or upstream broker, with its callbacks (paper 1, Listing 3: `on_conn`).
    pub(super) fn new(
        key: SessionKey,
        conn: Conn,
        identity: Arc<Identity>,
        name: String,
        upstream: Option<usize>,
        events: &Sender,
    ) -> Self {
        let rin = RIn::new(&conn);
        let mapping = Mapping::default();
        let merged = MergedIn::default();
        let (spliced, arrivals, invalid) = (mapping.clone(), merged.clone(), events.clone());
        rin.set_data_in_cb(move |bid, _segment| {
            // The framework forwards spliced bytes by itself; the broker only checks that they belong to a topic. Merged
            // bytes have to be copied.
            if spliced.get(bid).is_none() && !arrivals.arrived(bid) {
                invalid.event(Event::InvalidMapping { key, bid });
            }
        });
        let (control, asked) = (events.clone(), upstream.is_none().then(|| merged.clone()));
        rin.set_control_msg_cb(move |rin, message| {
            if !asked.as_ref().is_some_and(|merged| merged.take_control(message)) {
                control.publisher_control(key, &rin.conn(), message);
            }
        });
        let (changes, questions) = (events.clone(), merged.clone());
        rin.set_event_cb(move |event| {
            if !questions.take(&event) {
                changes.event(Event::Publisher { key, event });
            }
        });
        let (upstream_ids, restarted, finished) = (UpstreamIds::default(), false, false);
        Self {
            rin,
            conn,
            name,
            identity,
            mapping,
            merged,
            upstream,
            upstream_ids,
            restarted,
            place: None,
            finished,
        }
    }

    /// Sends a message about a buffer. An upstream broker only learns the number of subscribers.
    pub(super) fn answer(&self, message: &Control) {
        match (self.upstream, message) {
            (None, _) => send(&self.conn, message),
            (Some(_), Control::Subscribers { bid, count }) => {
                if let Some(bid) = self.upstream_ids.remote(*bid) {
                    send(&self.conn, &Control::Downstream { bid, count: *count });
                }
            }
            (Some(_), _) => {}
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.conn.down_reason().is_some()
    }

    /// The number of buffers that the publisher has at this broker.
    pub(super) fn buffers(&self) -> usize {
        self.mapping.len() + self.merged.len()
    }

    /// Whether a connection leads to the same process as the connection before.
    pub(super) fn is_same_process(&self, conn: &Conn) -> bool {
        self.conn.peer_instance() == conn.peer_instance()
    }

    /// Continues on another connection. The buffers continue where they stopped; the buffers of a restarted upstream broker
    /// continue when it offers their logs again.
    pub(super) fn resume(&mut self, conn: Conn) {
        if !self.is_down() {
            self.conn.close("the same publisher connected again");
        }
        if self.is_same_process(&conn) {
            self.rin.resume(&conn);
        } else {
            self.upstream_ids = UpstreamIds::default();
            self.restarted = true;
            self.rin.resume_elsewhere(&conn);
        }
        (self.conn, self.place) = (conn, None);
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.upstream.is_some() { "broker" } else { "publisher" };
        write!(f, "{what} {} at {}", display_name(&self.name), self.conn.peer_addr())
    }
}

/// All sessions, and the numbers of subscribers that publishers have not been sent yet.
#[derive(Default)]
pub(super) struct Sessions {
    /// Sorted, so that a page of them begins anywhere.
    by_key: BTreeMap<SessionKey, Session>,
    finished: usize,
    /// The newest number of subscribers, by publisher and its buffer.
    unsent_counts: BTreeMap<(SessionKey, Bid), u32>,
    retry_at: Option<Instant>,
}

/// The number of sessions by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SessionCounts {
    pub(super) connected: usize,
    /// Disconnected, and not finished.
    pub(super) disconnected: usize,
}

impl Sessions {
    pub(super) fn get(&self, key: SessionKey) -> Option<&Session> {
        self.by_key.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.by_key.get_mut(&key)
    }

    /// The user of a connection has other roles.
    pub(super) fn set_identity(&mut self, conn: u64, identity: &Arc<Identity>) {
        for session in self.by_key.values_mut().filter(|session| session.conn.id() == conn) {
            session.identity = identity.clone();
        }
    }

    pub(super) fn insert(&mut self, key: SessionKey, session: Session) {
        self.by_key.insert(key, session);
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = SessionKey> {
        self.by_key.keys().copied()
    }

    /// The sessions behind one, by key.
    pub(super) fn after(&self, key: Option<SessionKey>) -> impl Iterator<Item = (SessionKey, &Session)> {
        let begin = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_key.range((begin, Bound::Unbounded)).map(|(key, session)| (*key, session))
    }

    /// The number of sessions that count for the limit.
    pub(super) fn active(&self) -> usize {
        self.by_key.len() - self.finished
    }

    /// Whether a publisher is one of the active sessions.
    pub(super) fn is_active(&self, key: SessionKey) -> bool {
        self.get(key).is_some_and(|session| !session.finished)
    }

    pub(super) fn counts(&self) -> SessionCounts {
        let down = self.by_key.values().filter(|session| session.is_down()).count();
        SessionCounts {
            connected: self.by_key.len() - down,
            disconnected: down.saturating_sub(self.finished),
        }
    }

    /// Marks a session as finished or not.
    pub(super) fn set_finished(&mut self, key: SessionKey, finished: bool) {
        let Some(session) = self.by_key.get_mut(&key) else { return };
        self.finished = self.finished + usize::from(finished) - usize::from(session.finished);
        session.finished = finished;
    }

    /// Removes a session that is disconnected and has no buffer at this broker.
    pub(super) fn remove_idle(&mut self, key: SessionKey) {
        if self.get(key).is_some_and(|session| session.is_down() && session.buffers() == 0)
            && let Some(session) = self.by_key.remove(&key)
        {
            self.finished -= usize::from(session.finished);
        }
    }

    /// Sends the number of a buffer's subscribers to its publisher, or keeps it until the publisher has read more.
    pub(super) fn notify_count(&mut self, key: SessionKey, bid: Bid, count: u32) {
        let Some(session) = self.by_key.get(&key) else { return };
        if session.conn.control_waiting() <= QUEUED_BYTES {
            self.unsent_counts.remove(&(key, bid));
            return session.answer(&Control::Subscribers { bid, count });
        }
        self.unsent_counts.insert((key, bid), count);
        self.retry_at.get_or_insert_with(|| Instant::now() + RETRY_AFTER);
    }

    /// When the unsent numbers are tried again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Sends the unsent numbers for which there is room.
    pub(super) fn retry_counts(&mut self, now: Instant) {
        if self.retry_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        for ((key, bid), count) in std::mem::take(&mut self.unsent_counts) {
            // A disconnected publisher names its buffers again when it is back, and gets the number then.
            if self.get(key).is_some_and(|session| !session.is_down()) {
                self.notify_count(key, bid, count);
            }
        }
    }
}
