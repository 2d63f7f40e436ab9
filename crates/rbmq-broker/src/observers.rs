//! Observers (`rbmq top`): who asks what is going on, and the answers.
//!
//! They have an rOut of their own without buffers, so there is nothing that an observer could subscribe to, and no
//! hot path knows of them. Every request has one answer of at most one message, made on the broker's thread from a
//! bounded look at its tables: an observer that wants all of 10,000 topics asks some fifty times, and whatever else
//! happens comes between. What is limited is how many observers there are and how many requests of each wait; one
//! that asks for more, or reads its answers too slowly, is disconnected.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rbmq_wire::{
    BrokerSummary, BufferStage, BufferStats, Hello, Holds, Observe, Page, Place, SubscriptionStats,
    TopicFilter, TopicName,
};
use rocketbufs::{Bid, BufferInfo, Conn, Context, DurableCursorInfo, OutEvent, ROut, SubscriberInfo};
use tracing::{info, warn};

use super::config::BrokerSettings;
use super::control::{Broker, Event, send_bytes};
use super::inbox::Sender;
use super::ledger::Refusal;
use super::session::display_name;
use super::topics::{Buffer, Stage};

/// Names that are looked at for one page.
const MAX_NAMES: usize = 512;
/// Buffers and subscriptions that are looked at for one page; the topic that passes it ends the page.
const MAX_LOOKS: usize = 4096;

/// Publishers of a merged topic that are named.
const MERGED_NAMED: usize = 8;

/// What happens to observers.
pub(super) enum ObserverEvent {
    /// One asks.
    Request { conn: Conn, message: Vec<u8> },
    /// One is gone.
    Down { conn: u64, why: String },
}

/// How many requests of each observer wait for the broker's thread.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<HashMap<u64, usize>>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts a request. False: it is one too many, and the last word of this observer. None: nobody is asking.
    fn ask(&self, conn: u64, max: usize) -> Option<bool> {
        let mut waiting = self.lock();
        let count = waiting.get_mut(&conn)?;
        *count += 1;
        let allowed = *count <= max;
        if !allowed {
            waiting.remove(&conn);
        }
        Some(allowed)
    }

    fn answered(&self, conn: u64) {
        if let Some(count) = self.lock().get_mut(&conn) {
            *count = count.saturating_sub(1);
        }
    }
}

/// The observers of a broker.
pub(super) struct Observers {
    out: ROut,
    /// By connection, with the name that is logged.
    open: HashMap<u64, String>,
    waiting: Waiting,
    started: Instant,
}

impl Observers {
    pub(super) fn new(ctx: &Context, events: &Sender, settings: &BrokerSettings) -> Self {
        let (out, waiting) = (ROut::new(ctx), Waiting::default());
        let (requests, count, max) = (events.clone(), waiting.clone(), settings.max_observer_requests);
        out.set_control_msg_cb(move |conn, message| match count.ask(conn.id(), max) {
            Some(true) => {
                let (conn, message) = (conn.clone(), message.to_vec());
                requests.event(Event::Observer(ObserverEvent::Request { conn, message }));
            }
            Some(false) => conn.close(&format!(
                "more than {max} requests at once (broker.max_observer_requests); wait for answers"
            )),
            None => {}
        });
        let ends = events.clone();
        out.set_event_cb(move |event| {
            if let OutEvent::ConnDown { conn, why } = event {
                ends.event(Event::Observer(ObserverEvent::Down { conn, why }));
            }
        });
        Self { out, open: HashMap::new(), waiting, started: Instant::now() }
    }
}

impl Broker {
    /// An observer connects.
    pub(super) fn on_observer_conn(&mut self, conn: &Conn, hello: Hello) {
        let (open, max) = (self.observers.open.len(), self.settings.max_observers);
        if open >= max {
            self.ledger.refused(Refusal::Observers);
            let why = format!("the broker has {open} observers; its limit (broker.max_observers) is {max}");
            warn!("refused observer at {}: {why}", conn.peer_addr());
            return conn.reject(&why);
        }
        info!("observer {} at {} is up", display_name(&hello.name), conn.peer_addr());
        self.observers.open.insert(conn.id(), hello.name);
        self.observers.waiting.lock().insert(conn.id(), 0);
        self.observers.out.add_conn(conn);
    }

    pub(super) fn on_observer(&mut self, event: ObserverEvent) {
        match event {
            ObserverEvent::Request { conn, message } => {
                if self.observers.open.contains_key(&conn.id()) {
                    self.answer(&conn, &message);
                    self.observers.waiting.answered(conn.id());
                }
            }
            ObserverEvent::Down { conn, why } => {
                self.observers.waiting.lock().remove(&conn);
                if let Some(name) = self.observers.open.remove(&conn) {
                    info!("observer {} is down: {why}", display_name(&name));
                }
            }
        }
    }

    fn answer(&self, conn: &Conn, message: &[u8]) {
        let max = conn.max_control_bytes();
        let answer = match Observe::decode(message) {
            Ok(Observe::GetSummary { request }) => Observe::Summary { request, summary: self.summary() },
            Ok(Observe::GetTopics { request, filter, after }) => {
                let (rows, next) = self.topics_page(max, filter.as_ref(), after.as_ref());
                Observe::TopicsPage { request, rows, next }
            }
            Ok(Observe::GetBuffers { request, topic, after }) => {
                let (rows, next) = self.buffers_page(max, &topic, after);
                Observe::BuffersPage { request, rows, next }
            }
            Ok(Observe::GetSubscriptions { request, bid, after }) => {
                let (rows, next) = self.subscriptions_page(max, bid, after.as_ref());
                Observe::SubscriptionsPage { request, rows, next }
            }
            Ok(_) => return conn.close("an observer sent a message that only brokers send"),
            Err(error) => return conn.close(&error.to_string()),
        };
        send_bytes(conn, &answer.encode());
    }

    /// The broker as a whole. Costs a look at every buffer, for the sums.
    fn summary(&self) -> BrokerSummary {
        let (ctx, traffic) = (self.out.context(), self.out.traffic());
        BrokerSummary {
            uptime_ms: millis(self.observers.started.elapsed()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            publishers: count(self.sessions.len() - self.done),
            subscribers: count(self.watchers.len()),
            observers: count(self.observers.open.len()),
            topics: count(self.topics.len()),
            buffers: count(self.topics.buffers()),
            ring_bytes: ctx.memory_in_use(),
            max_ring_bytes: ctx.config().buffers.max_ring_bytes,
            received_bytes: traffic.received_bytes,
            delivered_bytes: traffic.delivered_bytes,
            dropped_bytes: traffic.dropped_bytes,
        }
    }

    fn topics_page(
        &self,
        max_bytes: usize,
        filter: Option<&TopicFilter>,
        after: Option<&TopicName>,
    ) -> (Vec<rbmq_wire::TopicStats>, Option<TopicName>) {
        let mut page = Page::new(max_bytes);
        let only = filter.and_then(TopicFilter::as_topic);
        if let Some(topic) = only {
            let bids = self.topics.of(&topic);
            if !bids.is_empty() {
                page.add(self.topic_stats(&topic, bids).0);
            }
            return (page.rows, None);
        }
        let (mut last, mut looks) = (None, 0);
        for (names, (topic, bids)) in self.topics.after(after).enumerate() {
            if names == MAX_NAMES || looks >= MAX_LOOKS {
                return (page.rows, last);
            }
            if filter.is_none_or(|filter| filter.matches(topic)) {
                let (row, looked) = self.topic_stats(topic, bids);
                looks += looked;
                if !page.add(row) {
                    return (page.rows, last);
                }
            }
            last = Some(topic.clone());
        }
        (page.rows, None)
    }

    fn buffers_page(
        &self,
        max_bytes: usize,
        topic: &TopicName,
        after: Option<Bid>,
    ) -> (Vec<BufferStats>, Option<Bid>) {
        let mut bids: Vec<Bid> = self.topics.of(topic).to_vec();
        bids.retain(|bid| after.is_none_or(|after| *bid > after));
        bids.sort_unstable();
        let (mut page, mut last) = (Page::new(max_bytes), None);
        for bid in bids {
            let Some(buffer) = self.topics.get(bid) else { continue };
            if !page.add(self.buffer_stats(bid, buffer)) {
                return (page.rows, last);
            }
            last = Some(bid);
        }
        (page.rows, None)
    }

    fn buffer_stats(&self, bid: Bid, buffer: &Buffer) -> BufferStats {
        let session = self.sessions.get(&buffer.session);
        let merged = self.merges.active(bid);
        let (stage, expires) = match buffer.stage {
            Stage::Opening => (BufferStage::Opening, Duration::ZERO),
            Stage::Live => (BufferStage::Live, Duration::ZERO),
            Stage::Ended { until, .. } => {
                let stage = if buffer.gone { BufferStage::Gone } else { BufferStage::Closed };
                (stage, until.saturating_duration_since(Instant::now()))
            }
        };
        let mut stats = BufferStats {
            bid,
            publisher: match (merged, session) {
                (Some(publishers), _) => self.merged_publishers(bid, publishers),
                (None, session) => session.map_or_else(String::new, |s| s.name.clone()),
            },
            address: session.map_or_else(String::new, |s| s.conn.peer_addr()),
            connected: merged.is_some_and(|n| n > 0) || session.is_some_and(|s| s.conn.is_up()),
            framing: buffer.framing,
            stage,
            expires_ms: millis(expires),
            max_delivery_bytes: buffer.max_delivery_bytes,
            absent: count(self.out.durable_cursors(bid).len()),
            ..BufferStats::default()
        };
        if let Some(info) = self.out.buffer_info(bid) {
            stats.epoch = info.epoch.0;
            (stats.start, stats.tail, stats.horizon) = (info.start, info.tail, info.horizon);
            (stats.boundary, stats.capacity_bytes) = (info.boundary, info.capacity_bytes);
            stats.max_delivery_bytes = info.max_delivery_bytes;
            stats.received_bytes = info.traffic.received_bytes;
            stats.delivered_bytes = info.traffic.delivered_bytes;
            stats.dropped_bytes = info.traffic.dropped_bytes;
            stats.subscribers = count(info.subscribers);
            self.note_holds(bid, &info, &mut stats);
        }
        stats
    }

    /// What keeps its publisher from going on besides subscribers that are behind.
    fn note_holds(&self, bid: Bid, info: &BufferInfo, stats: &mut BufferStats) {
        (stats.head, stats.retain_bytes) = (info.head, info.retain_bytes);
        (stats.min_subscribers, stats.kept_for_least) = (info.min_receivers, info.kept_for_least);
        stats.receivers = self.out.confirmed(bid).map_or(0, |confirmed| confirmed.coverage.receivers);
        if let Some(load) = self.wakers.table_load(bid) {
            (stats.table_entries, stats.max_table_entries) = (count(load.entries), count(load.limit));
        }
    }

    /// How many publishers a merged topic has, and who they are: the names of the first of them.
    fn merged_publishers(&self, bid: Bid, publishers: usize) -> String {
        let first = self.merges.first(bid, MERGED_NAMED);
        let names = first.iter().filter_map(|key| Some(self.sessions.get(key)?.name.as_str()));
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return format!("{publishers} merged");
        }
        let more = if publishers > names.len() { ", …" } else { "" };
        format!("{publishers} merged: {}{more}", names.join(", "))
    }

    /// What else than a subscriber that is behind keeps the publisher of a buffer from going on.
    pub(super) fn what_holds(&self, bid: Bid, info: &BufferInfo) -> Option<Holds> {
        if info.ended || info.min_receivers == 0 && self.merges.active(bid).is_none() {
            return None;
        }
        let mut stats = BufferStats::default();
        self.note_holds(bid, info, &mut stats);
        stats.holds()
    }

    /// What is behind `after` in the order of [`Place`]: the slowest first.
    fn subscriptions_page(
        &self,
        max_bytes: usize,
        bid: Bid,
        after: Option<&Place>,
    ) -> (Vec<SubscriptionStats>, Option<Place>) {
        // How far they really are is seen by the next look.
        self.out.ask_subscribers(bid);
        let present = self.out.subscribers(bid).into_iter().map(|info| self.subscription_stats(info));
        let absent = self.out.durable_cursors(bid).into_iter().map(absent_stats);
        let mut rows: Vec<_> = present.chain(absent).map(|row| (row.place(), row)).collect();
        rows.retain(|(place, _)| after.is_none_or(|after| place > after));
        rows.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let (mut page, mut last) = (Page::new(max_bytes), None);
        for (place, row) in rows {
            if !page.add(row) {
                return (page.rows, last);
            }
            last = Some(place);
        }
        (page.rows, None)
    }

    fn subscription_stats(&self, info: SubscriberInfo) -> SubscriptionStats {
        let watcher = self.watchers.get(&info.conn);
        SubscriptionStats {
            conn: info.conn,
            wire: info.wire,
            client: watcher.map_or_else(String::new, |w| w.name.clone()),
            address: watcher.map_or_else(String::new, |w| w.conn.peer_addr()),
            name: name(&info.name),
            policy: info.policy,
            absent: false,
            start: info.start,
            sent: info.sent,
            landed: info.landed,
            consumed: info.consumed,
            holds: info.holds,
            dropped_bytes: info.dropped_bytes,
            idle_ms: millis(info.idle),
            left_ms: 0,
        }
    }
}

fn absent_stats(place: DurableCursorInfo) -> SubscriptionStats {
    SubscriptionStats {
        name: name(&place.name),
        policy: place.policy,
        absent: true,
        sent: place.landed,
        landed: place.landed,
        consumed: place.consumed,
        holds: place.holds,
        left_ms: millis(place.left),
        ..SubscriptionStats::default()
    }
}

/// A subscription's name, as text that a row has room for.
fn name(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    // What is not UTF-8 gets longer; a row's order must not depend on whether it was encoded.
    text.truncate(text.floor_char_boundary(255));
    text
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
