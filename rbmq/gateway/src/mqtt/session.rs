//! The state of a session: all that outlives a connection, in one place.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rbmq_wire::TopicFilter;

use crate::protocol::{ConnId, FilterCount};

use super::codec::{SubscribeOptions, Version};
use super::journal::Notes;
use super::journal::entry::{Change, Ids, Life, Parcel};
use super::kept::Kept;
use super::message::Stored;
use super::settings::Settings;
use super::will::OwnedWill;

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

    /// As the journal has it; none: it has none of QoS 0.
    fn parcel(&self, notes: &Notes) -> Option<Parcel<'_>> {
        match self {
            Self::Message(pending) => (pending.qos > 0).then(|| pending.parcel(notes)),
            Self::Retained { message, qos, ids } => (*qos > 0).then(|| Parcel {
                // One that is not there any more has its place in the queue, until its turn comes.
                message: message.upgrade().map_or(0, |message| notes.message(&message)),
                qos: *qos,
                retain: true,
                for_new: true,
                replaceable: true,
                ids: Ids::Numbers(ids),
            }),
        }
    }

    fn is_journaled(&self) -> bool {
        match self {
            Self::Message(pending) => pending.qos > 0,
            Self::Retained { qos, .. } => *qos > 0,
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

    pub(super) fn add(&mut self, bytes: usize) {
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

impl Pending {
    fn bytes(&self) -> usize {
        ENTRY + self.message.bytes() + size_of_val(&*self.ids)
    }

    /// As the journal has it.
    fn parcel(&self, notes: &Notes) -> Parcel<'_> {
        let Self { message, qos, retain, for_new, ids } = self;
        let (qos, retain, for_new) = (*qos, *retain, *for_new);
        let ids = Ids::Numbers(ids);
        Parcel { message: notes.message(message), qos, retain, for_new, replaceable: false, ids }
    }
}

/// A subscription, as its session knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) options: SubscribeOptions,
    pub(super) id: Option<u32>,
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
    subscriptions: BTreeMap<TopicFilter, Subscription>,
    /// The number of filters with wildcards.
    patterns: usize,
    /// Ids of QoS 2 that the client has not released. With a number: the message of that number is on its way, and PUBREC is owed.
    received: HashMap<u16, Option<u64>>,
    /// Ids that the client has released last: it may not have got the PUBCOMP, and may release them again.
    released: VecDeque<u16>,
    /// Sent and not acknowledged, in order.
    pub(super) inflight: VecDeque<Inflight>,
    inflight_bytes: usize,
    /// Not sent yet, in order.
    queue: VecDeque<Waiting>,
    pub(super) queued_bytes: usize,
    /// Messages in the queue for new subscriptions.
    pub(super) for_new: usize,
    pub(super) held: Held,
    sent: u64,
    last_id: u16,
    kept: Kept,
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
            patterns: 0,
            received: HashMap::new(),
            released: VecDeque::new(),
            inflight: VecDeque::new(),
            inflight_bytes: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            for_new: 0,
            held,
            sent: 0,
            last_id: 0,
            kept: Kept::Nothing,
        }
    }

    /// Notes a change.
    fn note<'a>(&self, change: impl FnOnce(&Notes) -> Option<Change<'a>>) {
        self.kept.note(self.serial, change);
    }

    /// Notes a change of its life or its will.
    fn note_life(&self, change: Change<'_>) {
        self.kept.note_life(self.serial, change);
    }

    /// Sets the will. Returns the former one.
    pub(super) fn set_will(&mut self, will: Option<OwnedWill>) -> Option<OwnedWill> {
        self.held.add(will.as_ref().map_or(0, OwnedWill::bytes));
        let old = std::mem::replace(&mut self.will, will);
        self.held.remove(old.as_ref().map_or(0, OwnedWill::bytes));
        match &self.will {
            Some(will) => self.note_life(Change::Will(will.testament())),
            None if old.is_some() => self.note_life(Change::NoWill),
            None => {}
        }
        old
    }

    /// Takes the will, which stays in the journal until [`Session::note_will_is_gone`].
    pub(super) fn take_will(&mut self) -> Option<OwnedWill> {
        let will = self.will.take();
        self.held.remove(will.as_ref().map_or(0, OwnedWill::bytes));
        will
    }

    /// The will is published, or kept elsewhere.
    pub(super) fn note_will_is_gone(&self) {
        self.note_life(Change::NoWill);
    }

    pub(super) fn will(&self) -> Option<&OwnedWill> {
        self.will.as_ref()
    }

    pub(super) fn filters(&self) -> impl ExactSizeIterator<Item = &TopicFilter> {
        self.subscriptions.keys()
    }

    pub(super) fn subscriptions(&self) -> impl Iterator<Item = (&TopicFilter, &Subscription)> {
        self.subscriptions.iter()
    }

    pub(super) fn is_subscribed(&self, filter: &TopicFilter) -> bool {
        self.subscriptions.contains_key(filter)
    }

    /// Adds a subscription, or replaces it.
    pub(super) fn subscribe(&mut self, filter: TopicFilter, subscription: Subscription) {
        self.note(|_| Some(subscribed(&filter, subscription)));
        let (bytes, is_pattern) = (filter_bytes(&filter), filter.has_wildcards());
        if self.subscriptions.insert(filter, subscription).is_none() {
            self.held.add(bytes);
            self.patterns += usize::from(is_pattern);
        }
    }

    /// Removes a subscription. Returns whether there was one.
    pub(super) fn unsubscribe(&mut self, filter: &TopicFilter) -> bool {
        let was = self.subscriptions.remove(filter).is_some();
        self.held.remove(if was { filter_bytes(filter) } else { 0 });
        self.patterns -= usize::from(was && filter.has_wildcards());
        self.note(|_| was.then_some(Change::Unsubscribed { filter: filter.as_str() }));
        was
    }

    /// The number of subscriptions.
    pub(super) fn filter_count(&self) -> FilterCount {
        FilterCount { all: self.subscriptions.len(), patterns: self.patterns }
    }

    /// Whether some subscription leaves out own messages.
    pub(super) fn has_no_local(&self) -> bool {
        self.subscriptions.values().any(|subscription| subscription.options.no_local)
    }

    /// The client id, without the user before it.
    pub(super) fn client_id(&self) -> &str {
        self.key.split_once('\0').map_or(&*self.key, |(_, id)| id)
    }

    /// The number of live messages that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() - self.for_new
    }

    /// Whether one more message, of so many bytes, may wait.
    pub(super) fn has_room(&self, bytes: usize, settings: &Settings) -> bool {
        self.waiting() < settings.max_queued_messages
            && self.queued_bytes + bytes <= settings.max_queued_bytes
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
        self.note(|notes| waiting.parcel(notes).map(Change::Queued));
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
        self.note(|_| waiting.is_journaled().then_some(Change::Popped));
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
        self.note(|notes| Some(Change::Sent { packet_id: id, parcel: pending.parcel(notes) }));
        let qos = pending.qos;
        self.held.add(ENTRY + pending.bytes());
        self.inflight_bytes += pending.bytes();
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
            self.inflight_bytes -= message.bytes();
            self.note(|_| Some(Change::Recorded { packet_id: id }));
        }
    }

    /// A message is done.
    pub(super) fn finish(&mut self, id: u16) {
        let at = self.inflight.iter().position(|inflight| inflight.id == id);
        let Some(done) = at.and_then(|at| self.inflight.remove(at)) else { return };
        let bytes = done.message.as_ref().map_or(0, Pending::bytes);
        self.held.remove(ENTRY + bytes);
        self.inflight_bytes -= bytes;
        self.note(|_| Some(Change::Finished { packet_id: id }));
        if let Some(link) = &mut self.link {
            link.outstanding -= usize::from(done.sent);
        }
    }

    /// Whether one more message may be in flight. Beyond so many bytes, it waits in the queue.
    pub(super) fn has_window(&self, most_bytes: usize) -> bool {
        self.inflight_bytes < most_bytes
            && self.link.as_ref().is_some_and(|link| link.outstanding < link.window)
    }

    /// The bytes of messages in flight.
    pub(super) fn inflight_bytes(&self) -> usize {
        self.inflight_bytes
    }

    /// The numbers of messages of QoS 2 that are on their way.
    pub(super) fn numbers_on_their_way(&self) -> impl Iterator<Item = u64> {
        self.received.values().copied().flatten()
    }

    /// Whether a message of QoS 2 came before, and is not released.
    pub(super) fn has_received(&self, id: u16) -> bool {
        self.received.contains_key(&id)
    }

    /// The number of such a message, if it is on its way.
    pub(super) fn on_its_way(&self, id: u16) -> Option<u64> {
        self.received.get(&id).copied().flatten()
    }

    /// The number of such messages.
    pub(super) fn unreleased(&self) -> usize {
        self.received.len()
    }

    /// The client released an id. Whether it is known.
    pub(super) fn release(&mut self, id: u16) -> bool {
        if self.received.remove(&id).is_none() {
            return self.released.contains(&id);
        }
        self.note(|_| Some(Change::Released { packet_id: id }));
        if self.released.len() == MAX_RELEASED {
            self.released.pop_front();
            self.held.remove(ID);
        }
        // From one table to the other.
        self.released.push_back(id);
        true
    }

    /// The client uses an id for a new message, which is on its way and has a number, or is done.
    pub(super) fn receive(&mut self, id: u16, number: Option<u64>) {
        self.note(|_| number.is_none().then_some(Change::Received { packet_id: id }));
        let before = self.received.len() + self.released.len();
        self.released.retain(|released| *released != id);
        self.received.insert(id, number);
        self.held.remove(before * ID);
        self.held.add((self.received.len() + self.released.len()) * ID);
    }

    /// The message of a number is where it has to be. Returns whether the id is still that of this message.
    pub(super) fn settle(&mut self, id: u16, number: u64) -> bool {
        let found = self.received.get_mut(&id).filter(|known| **known == Some(number));
        let is_known = found.map(|known| *known = None).is_some();
        self.note(|_| is_known.then_some(Change::Received { packet_id: id }));
        is_known
    }

    /// The message of a number does not come: the client may send it again.
    pub(super) fn give_up(&mut self, id: u16, number: u64) {
        if self.on_its_way(id) == Some(number) {
            self.received.remove(&id);
            self.held.remove(ID);
        }
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
        let sent = self.inflight.iter().filter_map(|inflight| inflight.message.as_ref());
        assert_eq!(self.inflight_bytes, sent.map(Pending::bytes).sum::<usize>());
        let inflight =
            self.inflight.iter().map(|inflight| ENTRY + inflight.message.as_ref().map_or(0, Pending::bytes));
        let held = [
            size_of::<Self>() + 2 * self.key.len() + ENTRY,
            self.will.as_ref().map_or(0, OwnedWill::bytes),
            self.subscriptions.keys().map(filter_bytes).sum::<usize>(),
            (self.received.len() + self.released.len()) * ID,
            inflight.sum(),
            self.queue.iter().map(Waiting::bytes).sum(),
        ];
        assert_eq!(self.held.own, held.iter().sum::<usize>());
    }
}

/// The journal.
impl Session {
    /// Has its changes noted from now on, as it lives so; or only its will, or nothing, if it ends with its connection.
    pub(super) fn keep(&mut self, notes: &Notes, life: Life) {
        let is_lasting = life.expiry_ms != Some(0);
        let kept = match (is_lasting, &self.will) {
            (true, _) => Kept::All(notes.clone()),
            (false, Some(_)) => Kept::Will(notes.clone()),
            (false, None) => Kept::Nothing,
        };
        let is_other = std::mem::discriminant(&kept) != std::mem::discriminant(&self.kept);
        if is_other && !is_lasting {
            self.note_life(Change::Ended);
        }
        self.kept = kept;
        self.note_lives(life, is_other);
    }

    /// Notes how it lives, and its will if the journal does not have it yet.
    fn note_lives(&self, life: Life, with_will: bool) {
        self.note_life(Change::Lives { key: &self.key, life, last_id: self.last_id });
        if let Some(will) = self.will.as_ref().filter(|_| with_will) {
            self.note_life(Change::Will(will.testament()));
        }
        if let Some(at) = life.will_at {
            self.note_life(Change::WillAt { at });
        }
    }

    /// It has ended.
    pub(super) fn note_end(&mut self) {
        self.note_life(Change::Ended);
        self.kept = Kept::Nothing;
    }

    /// Notes everything, for a snapshot. `go_on` is called now and then, and may write it.
    pub(super) fn note_all(&self, life: Life, go_on: &mut dyn FnMut()) {
        self.note_lives(life, true);
        if !matches!(self.kept, Kept::All(_)) {
            return go_on();
        }
        for (filter, subscription) in &self.subscriptions {
            self.note(|_| Some(subscribed(filter, *subscription)));
        }
        for &packet_id in &self.released {
            self.note(|_| Some(Change::Received { packet_id }));
            self.note(|_| Some(Change::Released { packet_id }));
        }
        for (&packet_id, number) in &self.received {
            self.note(|_| number.is_none().then_some(Change::Received { packet_id }));
        }
        for Inflight { id: packet_id, message, .. } in &self.inflight {
            let packet_id = *packet_id;
            self.note(|notes| {
                Some(match message {
                    Some(pending) => Change::Sent { packet_id, parcel: pending.parcel(notes) },
                    None => Change::Recorded { packet_id },
                })
            });
            go_on();
        }
        for waiting in &self.queue {
            self.note(|notes| waiting.parcel(notes).map(Change::Queued));
            go_on();
        }
        // Those of messages in flight are older.
        self.note_lives(life, false);
        go_on();
    }

    /// From the journal: a message was sent, or its PUBREL is owed.
    pub(super) fn restore_sent(&mut self, id: u16, message: Option<Pending>) {
        let qos = message.as_ref().map_or(2, |pending| pending.qos);
        let bytes = message.as_ref().map_or(0, Pending::bytes);
        self.held.add(ENTRY + bytes);
        self.inflight_bytes += bytes;
        // Who knows how old it is: an id is not given before it was looked for.
        self.sent = u64::from(u16::MAX);
        self.inflight.push_back(Inflight { id, message, qos, sent: false, number: 0 });
        self.last_id = id;
    }

    /// From the journal: the last packet id.
    pub(super) fn restore_last_id(&mut self, id: u16) {
        self.last_id = id;
    }

    /// From the journal: a retained message was to be sent, which is not there any more.
    pub(super) fn push_gone(&mut self, qos: u8) {
        self.enqueue(Waiting::Retained { message: Weak::new(), qos, ids: Box::default() });
    }

    /// From the journal: the first message of the queue is not there any more.
    pub(super) fn restore_popped(&mut self) {
        self.take_first();
    }
}

fn subscribed(filter: &TopicFilter, subscription: Subscription) -> Change<'_> {
    let Subscription { options, id } = subscription;
    // No subscription has the id 0.
    Change::Subscribed { filter: filter.as_str(), options: options.bits(), id: id.unwrap_or(0) }
}

fn filter_bytes(filter: &TopicFilter) -> usize {
    // In the session's list, and in the routes.
    2 * (ENTRY + filter.as_str().len())
}
