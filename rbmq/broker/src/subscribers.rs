//! Subscribers: their filters, and the announcement of buffers to them.
//!
//! A subscriber with the filter `#` may have to learn of ten thousand buffers at once, more than the queue of its connection
//! can hold. Announcements that don't fit wait here, in order, as ids of buffers, and the queue is tried again a little later.
//! A subscriber with too many waiting announcements is disconnected.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use access::Identity;
use rbmq_wire::{Control, Rejection, Space, SubscribeLimits, Topic, TopicFilter, TopicName};
use rocketbufs::inspect::SubscriberInfo;
use rocketbufs::{Bid, Conn, OutBuffer};
use tracing::info;

use super::admission::{Changed, not_allowed, not_allowed_at_all};
use super::counters::Refusal;
use super::limits::{FilterLimits, TooManyFilters};
use super::login::AcceptedClient;
use super::names::display_name;
use super::offline::OfflineSubscribers;
use super::outgoing::try_send;
use super::routes::Hop;
use super::tables::{Denial, Tables};
use super::topics::{Buffer, Topics};

/// The number of announcements that may always wait for a subscriber. With many buffers the limit is higher.
const MIN_WAITING: usize = 1 << 16;

/// A connected subscriber.
pub(super) struct Subscriber {
    pub(super) conn: Conn,
    pub(super) name: String,
    pub(super) identity: Arc<Identity>,
    /// The hop to a broker that subscribes here; none for other subscribers.
    hop: Option<Hop>,
    /// Time for which the subscriber may be disconnected and come back with its name; zero: it doesn't come back.
    hold: Duration,
    /// Buffers that were announced as new and not subscribed to, if the subscriber may come back.
    not_subscribed: BTreeSet<Bid>,
    waiting: VecDeque<Announcement>,
    /// The limits on its subscriptions that were last sent.
    limits: SubscribeLimits,
}

impl Subscriber {
    /// The name under which the subscriber comes back. Users with the same name for a subscriber have nothing to do with each
    /// other; the name of a user contains no slash.
    fn own_name(&self) -> String {
        format!("{}/{}", self.identity.user, self.name)
    }

    /// Whether a buffer keeps a place for its name.
    fn has_place(&self, buffer: &OutBuffer) -> bool {
        let name = self.name.as_bytes();
        buffer.durable_cursors().iter().any(|cursor| cursor.name == name)
            || buffer.subscribers().iter().any(|present| present.name == name)
    }

    /// Whether it is another broker.
    pub(super) fn is_broker(&self) -> bool {
        self.hop.is_some()
    }
}

/// An announcement to a subscriber.
enum Announcement {
    /// A buffer exists. `fresh`: it is new since the subscriber asked for its topic. `kept`: the subscriber may ask for a replay.
    Exists { bid: Bid, fresh: bool, kept: bool },
    /// Whether the log of a buffer continues in another buffer.
    Continues(Bid),
    /// A buffer was removed.
    Removed(Bid, TopicName),
    /// All buffers that existed when the subscriber asked have been announced.
    Complete,
    /// Some of what it asked for is refused, or all, for this reason.
    Rejected(Rejection, String),
}

impl Announcement {
    /// The message, if the announcement is still valid.
    fn message(&self, topics: &Topics, limits: &TopicLimits<'_>, to: &Subscriber) -> Option<Control> {
        let (bid, fresh, kept) = match self {
            Self::Exists { bid, fresh, kept } => (*bid, *fresh, *kept),
            Self::Continues(bid) => {
                let yes = topics.get(*bid)?.continues;
                return Some(Control::Continues { bid: *bid, yes });
            }
            Self::Complete => return Some(Control::TopicsDone),
            Self::Rejected(what, reason) => {
                return Some(Control::Rejected { what: *what, reason: reason.clone() });
            }
            Self::Removed(bid, topic) => {
                return Some(Control::TopicGone { bid: *bid, topic: topic.clone() });
            }
        };
        let buffer = topics.get(bid)?;
        let topic = Topic {
            bid,
            // A buffer without an epoch is announced when its publisher has answered.
            epoch: buffer.epoch?.0,
            framing: buffer.framing,
            fresh,
            kept,
            max_delivery_bytes: limits.max_delivery_bytes(bid, buffer, &to.conn),
            topic: buffer.topic.clone(),
            space: Space::of_log(&buffer.topic),
        };
        match to.hop {
            None => Some(Control::Topic(topic)),
            Some(hop) => Some(Control::TopicVia { topic, path: hop.extend(&buffer.path)? }),
        }
    }
}

impl Subscriber {
    fn announce(&mut self, announcement: Announcement, topics: &Topics, limits: &TopicLimits<'_>) {
        match announcement {
            Announcement::Exists { bid, fresh: true, .. } if !self.hold.is_zero() => {
                self.not_subscribed.insert(bid);
            }
            Announcement::Removed(bid, _) => {
                self.not_subscribed.remove(&bid);
            }
            _ => {}
        }
        self.waiting.push_back(announcement);
        if self.waiting.len() == 1 {
            self.send_waiting(topics, limits);
        }
        if self.waiting.len() > MIN_WAITING.max(4 * topics.buffers()) {
            self.waiting.clear();
            self.conn.close("the subscriber does not read the announcements of its topics");
        }
    }

    /// Sends waiting announcements while there is room. Returns whether some are left.
    fn send_waiting(&mut self, topics: &Topics, limits: &TopicLimits<'_>) -> bool {
        while let Some(announcement) = self.waiting.front() {
            let message = announcement.message(topics, limits, self);
            if let Some(Control::Topic(topic)) = &message {
                let announced = limits.of(&topic.topic);
                if announced != self.limits && !try_send(&self.conn, &Control::Limits(announced)) {
                    return true;
                }
                self.limits = announced;
            }
            if message.is_some_and(|message| !try_send(&self.conn, &message)) {
                return true;
            }
            self.waiting.pop_front();
        }
        false
    }
}

/// The limits on subscriptions that subscribers learn, by topic, and the sizes of deliveries.
struct TopicLimits<'a> {
    tables: &'a Tables,
    max_hold_ms: u32,
}

impl<'a> TopicLimits<'a> {
    fn new(tables: &'a Tables) -> Self {
        Self { tables, max_hold_ms: tables.max_hold_ms() }
    }

    /// The largest delivery for which a subscriber makes its ring: of the ring as it is now where the subscriber's does not grow later.
    fn max_delivery_bytes(&self, bid: Bid, buffer: &Buffer, to: &Conn) -> u64 {
        let now = if to.peer_grows() { None } else { self.tables.info(bid) };
        now.map_or(buffer.max_delivery_bytes, |info| info.max_delivery_bytes)
    }

    fn of(&self, topic: &TopicName) -> SubscribeLimits {
        self.tables.settings.topics.of(topic).announced_limits(self.max_hold_ms)
    }
}

/// The subscribers of this broker.
#[derive(Default)]
pub(super) struct Subscribers {
    /// Sorted, so that a page of them begins anywhere.
    by_conn: BTreeMap<u64, Subscriber>,
    /// Subscribers with waiting announcements.
    waiting: BTreeSet<u64>,
    offline: OfflineSubscribers,
    /// The number of subscribers that are brokers.
    brokers: usize,
}

impl Subscribers {
    pub(super) fn get(&self, conn: u64) -> Option<&Subscriber> {
        self.by_conn.get(&conn)
    }

    /// The subscribers behind a connection, by the numbers of their connections.
    pub(super) fn after(&self, conn: Option<u64>) -> impl Iterator<Item = &Subscriber> {
        let begin = conn.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_conn.range((begin, Bound::Unbounded)).map(|(_, subscriber)| subscriber)
    }

    pub(super) fn len(&self) -> usize {
        self.by_conn.len()
    }

    /// A subscriber or, with a hop, a broker is connected.
    pub(super) fn connected(&mut self, tables: &mut Tables, client: AcceptedClient, hop: Option<Hop>) {
        let AcceptedClient { conn, hello, identity, .. } = client;
        let name = hello.name;
        self.brokers += usize::from(hop.is_some());
        let what = if hop.is_some() { "broker" } else { "subscriber" };
        info!("{what} {} at {} is up", display_name(&name), conn.peer_addr());
        tables.counters.totals.subscribers += 1;
        let subscriber = Subscriber {
            conn: conn.clone(),
            name,
            identity,
            hop,
            hold: Duration::ZERO,
            not_subscribed: BTreeSet::new(),
            waiting: VecDeque::new(),
            limits: SubscribeLimits::default(),
        };
        self.by_conn.insert(conn.id(), subscriber);
        tables.out.add_conn(&conn);
    }

    /// The user of a subscriber has other roles.
    pub(super) fn set_identity(&mut self, conn: u64, identity: &Arc<Identity>) {
        if let Some(subscriber) = self.by_conn.get_mut(&conn) {
            subscriber.identity.clone_from(identity);
        }
    }

    /// A connection is down.
    pub(super) fn disconnected(&mut self, tables: &mut Tables, conn: u64, why: &str) {
        let subscriber = self.by_conn.remove(&conn);
        if let Some(subscriber) = &subscriber {
            self.keep_offline(tables, conn, subscriber);
        }
        tables.topics.forget(conn);
        tables.admission.disconnected(conn);
        if let Some(subscriber) = subscriber {
            if subscriber.hop.is_some() {
                self.brokers -= 1;
                tables.topics.forget_downstream(conn);
            }
            let (name, addr) = (display_name(&subscriber.name), subscriber.conn.peer_addr());
            let user = &*subscriber.identity.user;
            info!(user, "subscriber {name} at {addr} is down: {why}");
        }
    }

    /// Keeps the state of a disconnected subscriber that may come back.
    fn keep_offline(&mut self, tables: &Tables, conn: u64, subscriber: &Subscriber) {
        let name = subscriber.own_name();
        let newest = self.offline.disconnected(&name, conn);
        if subscriber.hold.is_zero() {
            return;
        }
        // A newer connection of this name has already taken the unsubscribed buffers over.
        let not_subscribed = if newest { subscriber.not_subscribed.clone() } else { BTreeSet::new() };
        let (filters, last) = (tables.topics.filters(conn), tables.topics.last_number());
        let until = Instant::now() + subscriber.hold;
        self.offline.leave(&name, until, filters, last, not_subscribed);
    }

    /// A connection has subscribed to a buffer.
    pub(super) fn subscribed(&mut self, conn: u64, bid: Bid) {
        if let Some(subscriber) = self.by_conn.get_mut(&conn) {
            subscriber.not_subscribed.remove(&bid);
        }
    }

    /// A connection asks for topics.
    pub(super) fn on_topics(&mut self, tables: &mut Tables, conn: &Conn, filters: Vec<TopicFilter>) {
        // The connection may be down already.
        let Some(subscriber) = self.by_conn.get(&conn.id()) else { return };
        let limits = FilterLimits::new(&tables.settings, subscriber.identity.is_own());
        let (filters, refused) = tables.admission.split(conn.id(), filters);
        let refused = refused_topics(tables, conn.id(), &refused, &filters);
        let (new, patterns) = tables.topics.count_new(conn.id(), &filters);
        let charge = match tables.admission.charge_filters(conn.id(), new, patterns) {
            Ok(charge) => charge,
            Err(exceeded) => {
                let reason = exceeded.to_string();
                tables.counters.refused(Refusal::Quota);
                if let Some((identity, addr)) = tables.admission.identity(conn.id()) {
                    let (address, identity, reason) = (&*addr, &*identity, &*reason);
                    let (conn, operation) = (conn.id(), "subscribe");
                    tables.audit_refusal(&Denial { conn, address, identity, operation, topic: None, reason });
                }
                // In the order of the requests.
                return self.announce(tables, conn.id(), Announcement::Rejected(Rejection::Limit, reason));
            }
        };
        match tables.topics.add_filters(conn.id(), filters.clone(), limits) {
            Ok(bids) => {
                tables.admission.keep_filters(conn.id(), charge);
                self.announce_existing(tables, conn.id(), &filters, refused, &bids);
            }
            Err(error) => {
                tables.counters.refused(match error {
                    TooManyFilters::Filters(_) => Refusal::TopicsOfSubscriber,
                    TooManyFilters::Patterns(_) => Refusal::PatternsOfSubscriber,
                });
                let reason = limits.reason(&error);
                self.announce(tables, conn.id(), Announcement::Rejected(Rejection::Limit, reason));
            }
        }
    }

    /// Announces the existing buffers that match new filters of a connection.
    fn announce_existing(
        &mut self,
        tables: &Tables,
        conn: u64,
        filters: &[TopicFilter],
        refused: Option<String>,
        bids: &[Bid],
    ) {
        let may_read = |bid: &Bid| {
            tables.topics.get(*bid).is_some_and(|buffer| tables.admission.may_read(conn, &buffer.topic))
        };
        let bids = bids.iter().copied().filter(may_read);
        let bids: Vec<Bid> = bids.filter(|bid| !self.begins_behind(tables, conn, *bid)).collect();
        let held = self.by_conn.get(&conn).filter(|subscriber| !subscriber.hold.is_zero());
        let name = held.map(Subscriber::own_name);
        for &bid in &bids {
            let is_new =
                |name: &String| Some(self.offline.is_new(name, bid, tables.topics.get(bid)?, &tables.topics));
            let fresh = name.as_ref().and_then(is_new).unwrap_or(false);
            let kept = self.may_replay(tables, conn, bid);
            self.announce(tables, conn, Announcement::Exists { bid, fresh, kept });
        }
        let refused = refused.map(|reason| Announcement::Rejected(Rejection::Rights, reason));
        self.announce(tables, conn, refused.unwrap_or(Announcement::Complete));
        if let Some(name) = name {
            self.offline.back(&name, filters, &bids);
        }
    }

    /// A subscriber may come back with its name within this time.
    pub(super) fn on_hold(&mut self, tables: &Tables, conn: u64, hold_ms: u32) {
        let Some(subscriber) = self.by_conn.get_mut(&conn).filter(|subscriber| !subscriber.name.is_empty())
        else {
            return;
        };
        subscriber.hold = Duration::from_millis(hold_ms.min(tables.max_hold_ms()).into());
        let name = subscriber.own_name();
        let before = self.offline.connected(&name, conn);
        let Some(before) = before.and_then(|conn| self.by_conn.get_mut(&conn)) else { return };
        // The older connection may be down without an event yet. The newer connection takes over its
        // state, including buffers that the older one may still subscribe to.
        let (not_subscribed, until) =
            (std::mem::take(&mut before.not_subscribed), Instant::now() + before.hold);
        if !not_subscribed.is_empty() {
            self.offline.leave(&name, until, std::iter::empty(), 0, not_subscribed);
        }
    }

    /// Announces a new buffer to the subscribers of its topic.
    pub(super) fn announce_new(&mut self, tables: &mut Tables, bid: Bid) {
        tables.topics.assign_number(bid);
        let Some(buffer) = tables.topics.get(bid) else { return };
        for conn in readers(tables, buffer) {
            let kept = self.may_replay(tables, conn, bid);
            self.announce(tables, conn, Announcement::Exists { bid, fresh: true, kept });
        }
    }

    /// Whether a subscriber may ask for a replay of a buffer. A broker gets what the ring has, and a durable subscriber that comes back
    /// goes on at the place that the ring keeps for it.
    fn may_replay(&self, tables: &Tables, conn: u64, bid: Bid) -> bool {
        let kept = tables.topics.get(bid).is_some_and(|buffer| buffer.kept);
        let Some(subscriber) = self.by_conn.get(&conn).filter(|one| kept && one.hop.is_none()) else {
            return false;
        };
        subscriber.hold.is_zero()
            || tables.out.buffer(bid).is_some_and(|buffer| !subscriber.has_place(&buffer))
    }

    /// Whether a subscriber does not hear of a buffer: messages of an owner before may be in no log any more. A subscriber that comes back still has
    /// its place there. Other brokers do not hear of the buffer either, since their subscribers would begin there.
    fn begins_behind(&self, tables: &Tables, conn: u64, bid: Bid) -> bool {
        let Some(subscriber) = self.by_conn.get(&conn).filter(|_| is_left(tables, bid)) else { return false };
        let has_place = tables.out.buffer(bid).is_some_and(|buffer| subscriber.has_place(&buffer));
        !has_place || subscriber.hop.is_none() && subscriber.hold.is_zero()
    }

    /// Announces whether the log of a buffer continues in another buffer.
    pub(super) fn announce_continues(&mut self, tables: &Tables, bid: Bid) {
        let Some(buffer) = tables.topics.get(bid) else { return };
        for conn in readers(tables, buffer) {
            self.announce(tables, conn, Announcement::Continues(bid));
        }
    }

    /// Announces the removal of a buffer.
    pub(super) fn announce_removed(&mut self, tables: &Tables, bid: Bid, buffer: &Buffer) {
        for conn in readers(tables, buffer) {
            self.announce(tables, conn, Announcement::Removed(bid, buffer.topic.clone()));
        }
    }

    /// The rights of clients have changed. A subscriber is told of topics that it may read now, and of topics that it named and may
    /// not read any more. The framework ends its subscriptions and tells it so.
    pub(super) fn on_rights(&mut self, tables: &mut Tables, changed: &HashMap<u64, Changed>) {
        for (conn, rights) in changed {
            let Some(subscriber) = self.by_conn.get_mut(conn) else { continue };
            if subscriber.hop.is_some() && !tables.admission.may_chain(&rights.identity) {
                let why = not_allowed_at_all(&rights.identity, "connect as a broker", "chain");
                tables.counters.refused(Refusal::Rights);
                let (address, identity) = (&*subscriber.conn.peer_addr(), &*rights.identity);
                let (conn, operation) = (*conn, "chain");
                tables.audit_cut(&Denial { conn, address, identity, operation, topic: None, reason: &why });
                subscriber.conn.close(&why);
                continue;
            }
            let matched = tables.topics.matched(*conn);
            let lost: BTreeSet<Bid> =
                matched.iter().filter(|(_, topic)| rights.lost(topic)).map(|(bid, _)| *bid).collect();
            if let Some((_, first)) = matched.iter().find(|(_, topic)| rights.lost(topic)) {
                let (why, addr) = (format!("{} buffers", lost.len()), subscriber.conn.peer_addr());
                let (address, identity, operation) = (&*addr, &*rights.identity, "subscribe");
                let (conn, topic) = (*conn, Some(first.as_str()));
                tables.audit_cut(&Denial { conn, address, identity, operation, topic, reason: &why });
            }
            subscriber.not_subscribed.retain(|bid| !lost.contains(bid));
            subscriber
                .waiting
                .retain(|waiting| !matches!(waiting, Announcement::Exists { bid, .. } if lost.contains(bid)));
            let named = tables.topics.filters(*conn).filter_map(TopicFilter::as_topic);
            let named: Vec<TopicName> = named.filter(|topic| rights.lost(topic)).collect();
            if let Some(reason) = refused_topics(tables, *conn, &named, &[]) {
                self.announce(tables, *conn, Announcement::Rejected(Rejection::Withdrawn, reason));
            }
            for (bid, _) in matched.iter().filter(|(_, topic)| rights.gained(topic)) {
                let kept = self.may_replay(tables, *conn, *bid);
                self.announce(tables, *conn, Announcement::Exists { bid: *bid, fresh: false, kept });
            }
        }
    }

    fn announce(&mut self, tables: &Tables, conn: u64, announcement: Announcement) {
        let (topics, limits) = (&tables.topics, TopicLimits::new(tables));
        let Some(subscriber) = self.by_conn.get_mut(&conn) else { return };
        let continues = match announcement {
            Announcement::Exists { bid, .. } => {
                topics.get(bid).filter(|buffer| buffer.continues).map(|_| Announcement::Continues(bid))
            }
            _ => None,
        };
        subscriber.announce(announcement, topics, &limits);
        if let Some(continues) = continues {
            subscriber.announce(continues, topics, &limits);
        }
        if !subscriber.waiting.is_empty() {
            self.waiting.insert(conn);
        }
    }

    /// Whether announcements wait for room in a queue.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends waiting announcements for which there is room.
    pub(super) fn send_waiting(&mut self, tables: &Tables) {
        let limits = TopicLimits::new(tables);
        let by_conn = &mut self.by_conn;
        self.waiting.retain(|conn| {
            by_conn.get_mut(conn).is_some_and(|one| one.send_waiting(&tables.topics, &limits))
        });
    }

    /// When the hold of a disconnected subscriber ends.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.offline.next_due()
    }

    /// Forgets disconnected subscribers whose hold is over.
    pub(super) fn expire(&mut self, now: Instant) {
        self.offline.expire(now);
    }

    /// A subscribed broker reports the number of its subscribers of a buffer. Returns whether that is to be counted.
    pub(super) fn on_downstream(&self, tables: &mut Tables, conn: &Conn, bid: Bid, count: u32) -> bool {
        // The connection may be down already, or the buffer removed.
        let Some(subscriber) = self.by_conn.get(&conn.id()) else { return false };
        if subscriber.hop.is_none() {
            conn.close("a subscriber sent a message that only brokers send");
            return false;
        }
        let topic = tables.topics.get(bid).map(|buffer| &buffer.topic);
        if !topic.is_some_and(|topic| tables.admission.may_read(conn.id(), topic)) {
            return false;
        }
        let buffer = tables.topics.get_mut(bid);
        buffer.is_some_and(|buffer| {
            buffer.downstream.insert(conn.id(), count);
            true
        })
    }

    /// The number of subscriptions of a buffer, at this broker and at the brokers that subscribe here.
    pub(super) fn count(&self, tables: &Tables, bid: Bid) -> u32 {
        if self.brokers == 0 {
            let count = tables.out.buffer(bid).map_or(0, |buffer| buffer.subscriber_count());
            return u32::try_from(count).unwrap_or(u32::MAX);
        }
        let Some(buffer) = tables.topics.get(bid) else { return 0 };
        let count = |subscription: &SubscriberInfo| {
            let is_broker = self.by_conn.get(&subscription.conn).is_some_and(|one| one.hop.is_some());
            if is_broker { buffer.downstream.get(&subscription.conn).copied().unwrap_or(0) } else { 1 }
        };
        let subscriptions = tables.out.buffer(bid).map_or(Vec::new(), |buffer| buffer.subscribers());
        subscriptions.iter().map(count).fold(0, u32::saturating_add)
    }
}

/// The subscribers of a buffer that may read its topic.
fn readers(tables: &Tables, buffer: &Buffer) -> impl Iterator<Item = u64> {
    let subscribers = tables.topics.subscribers(buffer);
    subscribers.into_iter().filter(|conn| tables.admission.may_read(*conn, &buffer.topic))
}

/// Whether the log of a buffer goes on at the owner of its topic (this broker or another one), and not in this buffer.
fn is_left(tables: &Tables, bid: Bid) -> bool {
    tables.topics.get(bid).is_some_and(|buffer| buffer.gone && tables.is_shared(&buffer.topic))
}

/// The reason for the refusal of topics that a subscriber has named, and of spaces in which it has asked for topics.
fn refused_topics(
    tables: &mut Tables,
    conn: u64,
    topics: &[TopicName],
    filters: &[TopicFilter],
) -> Option<String> {
    let spaces = tables.topics.withheld(filters, |topic| tables.admission.may_read(conn, topic));
    let refused: Vec<TopicName> = topics.iter().cloned().chain(spaces).collect();
    let first = refused.first()?;
    tables.counters.refused(Refusal::Rights);
    let (identity, addr) = tables.admission.identity(conn)?;
    let reason = not_allowed(&identity, "subscribe to", first);
    let reason = match refused.len() - 1 {
        0 => reason,
        more => format!("{reason}; nor {more} more of the topics that it named"),
    };
    let (address, identity, topic) = (&*addr, &*identity, Some(first.as_str()));
    tables.audit_refusal(&Denial { conn, address, identity, operation: "subscribe", topic, reason: &reason });
    Some(reason)
}
