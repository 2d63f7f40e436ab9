//! The state of a session: all that outlives a connection, in one place.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rbmq_wire::{TopicFilter, TopicName};

use crate::protocol::ConnId;

use super::codec::Version;
use super::message::Stored;

/// A will.
#[derive(Debug)]
pub(super) struct OwnedWill {
    pub(super) topic: TopicName,
    pub(super) qos: u8,
    pub(super) retain: bool,
    /// Encoded properties without the will delay.
    pub(super) properties: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) delay: Duration,
}

/// The connection of a session.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) conn: ConnId,
    pub(super) version: Version,
    /// Most messages of QoS 1 and 2 without acknowledgement.
    pub(super) window: usize,
    /// How many there are on this connection.
    pub(super) outstanding: usize,
    /// The largest packet that the client takes.
    pub(super) max_packet: usize,
}

/// A message that waits.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) message: Arc<Stored>,
    pub(super) qos: u8,
    pub(super) retain: bool,
    /// A retained message for a new subscription, which is bounded by the number of retained messages and not by the limit of the queue.
    pub(super) for_new: bool,
    /// Subscription ids.
    pub(super) ids: Box<[u32]>,
}

/// A message in the queue.
#[derive(Debug)]
enum Waiting {
    Message(Pending),
    /// A retained message for a new subscription. If another one takes its place, which arrives as every message, it is not sent any more: who reads
    /// slowly keeps no former ones in memory.
    Retained {
        message: Weak<Stored>,
        qos: u8,
        ids: Box<[u32]>,
    },
}

impl Waiting {
    fn is_for_new(&self) -> bool {
        match self {
            Self::Message(pending) => pending.for_new,
            Self::Retained { .. } => true,
        }
    }

    /// What it holds.
    fn bytes(&self) -> usize {
        match self {
            Self::Message(pending) => pending.bytes(),
            Self::Retained { ids, .. } => ENTRY + size_of_val(&**ids),
        }
    }

    fn into_pending(self) -> Option<Pending> {
        match self {
            Self::Message(pending) => Some(pending),
            Self::Retained { message, qos, ids } => {
                let message = message.upgrade()?;
                Some(Pending { message, qos, retain: true, for_new: true, ids })
            }
        }
    }
}

/// A message of QoS 1 or 2 that was sent.
#[derive(Debug)]
pub(super) struct Inflight {
    pub(super) id: u16,
    /// The message; none: PUBREC has come, and PUBREL is owed or was sent.
    pub(super) message: Option<Pending>,
    pub(super) qos: u8,
    /// Whether it was sent on this connection.
    pub(super) sent: bool,
    /// The number of messages before it.
    number: u64,
}

/// What a session holds in memory, which is a part of what all sessions hold.
#[derive(Debug, Default)]
pub(super) struct Held {
    own: usize,
    all: Arc<AtomicUsize>,
}

impl Held {
    /// A part of all.
    pub(super) fn of(all: &Arc<AtomicUsize>) -> Self {
        Self { own: 0, all: Arc::clone(all) }
    }

    /// The bytes of the session.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    fn add(&mut self, bytes: usize) {
        self.own += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&mut self, bytes: usize) {
        self.own -= bytes;
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.remove(self.own);
    }
}

/// What an entry of a table takes beside its contents, about.
const ENTRY: usize = 100;

impl OwnedWill {
    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        ENTRY + self.topic.as_str().len() + self.properties.len() + self.payload.len()
    }
}

impl Pending {
    fn bytes(&self) -> usize {
        ENTRY + self.message.bytes() + size_of_val(&*self.ids)
    }
}

/// What an id takes, about.
const ID: usize = 8;
/// Most ids of [`Session::released`].
const MAX_RELEASED: usize = 1000;

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    /// Its number, which no other session has.
    pub(super) serial: u64,
    /// Its key in the table: the user and the client id, so that no user gets the session of another.
    pub(super) key: Box<str>,
    pub(super) link: Option<Link>,
    /// Which departure its last connection was; none: it has a connection.
    pub(super) away: Option<u64>,
    /// How long it lives without a connection; none: as long as the gateway.
    pub(super) expiry: Option<Duration>,
    /// When it ends; none: it has a connection, or does not end.
    pub(super) ends_at: Option<Instant>,
    will: Option<OwnedWill>,
    /// When the will is published, after the connection has gone.
    pub(super) will_at: Option<Instant>,
    /// The filters, and whether their subscriptions leave out own messages.
    subscriptions: BTreeMap<TopicFilter, bool>,
    /// Ids of QoS 2 that the client has not released.
    received: HashSet<u16>,
    /// Ids that the client has released last: it may not have got the PUBCOMP, and may release them again.
    released: VecDeque<u16>,
    /// Sent and not acknowledged, in order.
    pub(super) inflight: VecDeque<Inflight>,
    /// Not sent yet, in order.
    queue: VecDeque<Waiting>,
    pub(super) queued_bytes: usize,
    /// Messages in the queue for new subscriptions.
    pub(super) for_new: usize,
    pub(super) held: Held,
    sent: u64,
    last_id: u16,
}

impl Session {
    pub(super) fn new(serial: u64, key: Box<str>, mut held: Held) -> Self {
        held.add(size_of::<Self>() + 2 * key.len() + ENTRY);
        Self {
            serial,
            key,
            link: None,
            away: None,
            expiry: Some(Duration::ZERO),
            ends_at: None,
            will: None,
            will_at: None,
            subscriptions: BTreeMap::new(),
            received: HashSet::new(),
            released: VecDeque::new(),
            inflight: VecDeque::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            for_new: 0,
            held,
            sent: 0,
            last_id: 0,
        }
    }

    /// Sets the will. Returns the former one.
    pub(super) fn set_will(&mut self, will: Option<OwnedWill>) -> Option<OwnedWill> {
        self.held.add(will.as_ref().map_or(0, OwnedWill::bytes));
        let old = std::mem::replace(&mut self.will, will);
        self.held.remove(old.as_ref().map_or(0, OwnedWill::bytes));
        old
    }

    pub(super) fn will(&self) -> Option<&OwnedWill> {
        self.will.as_ref()
    }

    pub(super) fn filters(&self) -> impl ExactSizeIterator<Item = &TopicFilter> {
        self.subscriptions.keys()
    }

    pub(super) fn is_subscribed(&self, filter: &TopicFilter) -> bool {
        self.subscriptions.contains_key(filter)
    }

    /// Adds a subscription, or replaces it.
    pub(super) fn subscribe(&mut self, filter: TopicFilter, no_local: bool) {
        let bytes = filter_bytes(&filter);
        if self.subscriptions.insert(filter, no_local).is_none() {
            self.held.add(bytes);
        }
    }

    /// Removes a subscription. Returns whether there was one.
    pub(super) fn unsubscribe(&mut self, filter: &TopicFilter) -> bool {
        let was = self.subscriptions.remove(filter).is_some();
        self.held.remove(if was { filter_bytes(filter) } else { 0 });
        was
    }

    /// Whether some subscription leaves out own messages.
    pub(super) fn has_no_local(&self) -> bool {
        self.subscriptions.values().any(|no_local| *no_local)
    }

    /// The number of live messages that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() - self.for_new
    }

    /// The number of all messages that wait.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn push(&mut self, pending: Pending) {
        if !pending.for_new {
            self.queued_bytes += pending.message.bytes();
        }
        self.enqueue(Waiting::Message(pending));
    }

    /// A retained message waits for a new subscription.
    pub(super) fn push_retained(&mut self, message: &Arc<Stored>, qos: u8, ids: Box<[u32]>) {
        self.enqueue(Waiting::Retained { message: Arc::downgrade(message), qos, ids });
    }

    fn enqueue(&mut self, waiting: Waiting) {
        self.held.add(waiting.bytes());
        self.for_new += usize::from(waiting.is_for_new());
        self.queue.push_back(waiting);
    }

    /// The QoS of the next message.
    pub(super) fn next_qos(&mut self) -> Option<u8> {
        loop {
            match self.queue.front()? {
                Waiting::Message(pending) => return Some(pending.qos),
                Waiting::Retained { message, qos, .. } if message.strong_count() > 0 => return Some(*qos),
                Waiting::Retained { .. } => _ = self.take_first(),
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<Pending> {
        self.next_qos()?;
        self.take_first()?.into_pending()
    }

    fn take_first(&mut self) -> Option<Waiting> {
        let waiting = self.queue.pop_front()?;
        self.held.remove(waiting.bytes());
        self.for_new -= usize::from(waiting.is_for_new());
        if let Waiting::Message(pending) = &waiting
            && !pending.for_new
        {
            self.queued_bytes -= pending.message.bytes();
        }
        Some(waiting)
    }

    /// A new message is sent: its packet id.
    pub(super) fn begin(&mut self, pending: Pending) -> u16 {
        let id = self.next_id();
        let qos = pending.qos;
        self.held.add(ENTRY + pending.bytes());
        self.inflight.push_back(Inflight { id, message: Some(pending), qos, sent: true, number: self.sent });
        self.sent += 1;
        if let Some(link) = &mut self.link {
            link.outstanding += 1;
        }
        id
    }

    /// An id that no message has. Ids are given in turn, so that only the oldest message can have the next one, until it is that old.
    fn next_id(&mut self) -> u16 {
        let is_old =
            self.inflight.front().is_some_and(|oldest| self.sent - oldest.number >= u64::from(u16::MAX) - 1);
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !is_old || self.inflight.iter().all(|inflight| inflight.id != self.last_id) {
                return self.last_id;
            }
        }
    }

    /// A message was not sent on this connection after all.
    pub(super) fn unsend(&mut self, id: u16) {
        if let Some(inflight) = self.inflight.iter_mut().find(|inflight| inflight.id == id)
            && std::mem::take(&mut inflight.sent)
            && let Some(link) = &mut self.link
        {
            link.outstanding -= 1;
        }
    }

    pub(super) fn find(&mut self, id: u16) -> Option<&mut Inflight> {
        self.inflight.iter_mut().find(|inflight| inflight.id == id)
    }

    /// The client has recorded a message, which is not sent again.
    pub(super) fn record(&mut self, id: u16) {
        let inflight = self.inflight.iter_mut().find(|inflight| inflight.id == id);
        if let Some(message) = inflight.and_then(|inflight| inflight.message.take()) {
            self.held.remove(message.bytes());
        }
    }

    /// A message is done.
    pub(super) fn finish(&mut self, id: u16) {
        let at = self.inflight.iter().position(|inflight| inflight.id == id);
        let Some(done) = at.and_then(|at| self.inflight.remove(at)) else { return };
        self.held.remove(ENTRY + done.message.as_ref().map_or(0, Pending::bytes));
        if let Some(link) = &mut self.link {
            link.outstanding -= usize::from(done.sent);
        }
    }

    /// Whether a message of QoS 2 came before, and is not released.
    pub(super) fn has_received(&self, id: u16) -> bool {
        self.received.contains(&id)
    }

    /// The number of such messages.
    pub(super) fn unreleased(&self) -> usize {
        self.received.len()
    }

    /// The client released an id. Whether it is known.
    pub(super) fn release(&mut self, id: u16) -> bool {
        if !self.received.remove(&id) {
            return self.released.contains(&id);
        }
        if self.released.len() == MAX_RELEASED {
            self.released.pop_front();
            self.held.remove(ID);
        }
        // From one table to the other.
        self.released.push_back(id);
        true
    }

    /// The client uses an id for a new message.
    pub(super) fn receive(&mut self, id: u16) {
        let before = self.received.len() + self.released.len();
        self.released.retain(|released| *released != id);
        self.received.insert(id);
        self.held.remove(before * ID);
        self.held.add((self.received.len() + self.released.len()) * ID);
    }

    /// A connection begins: nothing was sent on it yet.
    pub(super) fn attach(&mut self, link: Link) {
        self.link = Some(link);
        self.inflight.iter_mut().for_each(|inflight| inflight.sent = false);
    }

    /// What is counted is what is there.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let live = self.queue.iter().filter_map(|waiting| match waiting {
            Waiting::Message(pending) if !pending.for_new => Some(pending.message.bytes()),
            _ => None,
        });
        assert_eq!((self.waiting(), self.queued_bytes), (live.clone().count(), live.sum()));
        let inflight =
            self.inflight.iter().map(|inflight| ENTRY + inflight.message.as_ref().map_or(0, Pending::bytes));
        let held = [
            size_of::<Self>() + 2 * self.key.len() + ENTRY,
            self.will.as_ref().map_or(0, OwnedWill::bytes),
            self.subscriptions.keys().map(filter_bytes).sum(),
            (self.received.len() + self.released.len()) * ID,
            inflight.sum(),
            self.queue.iter().map(Waiting::bytes).sum(),
        ];
        assert_eq!(self.held.own, held.iter().sum::<usize>());
    }
}

fn filter_bytes(filter: &TopicFilter) -> usize {
    // In the session's list, and in the routes.
    2 * (ENTRY + filter.as_str().len())
}
