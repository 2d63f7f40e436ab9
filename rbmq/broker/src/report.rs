//! Reports on the state of a broker, for observers (`rbmq top`), for statistics and for the metrics.

mod clients;

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use rbmq_wire::{
    BlockReason, BrokerSummary, BufferStage, BufferStats, Control, LimitStats, Observe, Page,
    SlowestSubscriber, SubscriptionSortKey, SubscriptionStats, TopicFilter, TopicName, TopicStats,
};
use rocketbufs::inspect::{BufferInfo, DurableCursorInfo, SubscriberInfo};
use rocketbufs::{Bid, Conn, OutBuffer, Policy};

use super::admission::MAX_NEAR_LIMIT;
use super::asks::{Answered, Ask, MAX_CLIENTS};
use super::federation::Federation;
use super::groups::Groups;
use super::merge::MergedTopics;
use super::observers::Observers;
use super::outgoing::send_bytes;
use super::rates::RateUse;
use super::subscribers::Subscribers;
use super::tables::Tables;
use super::topics::{Buffer, Stage};

/// Names that are visited for one page.
const MAX_NAMES: usize = 512;
/// Buffers and subscriptions that are visited for one page. The topic that exceeds the number ends the page.
const MAX_VISITS: usize = 4096;

/// Publishers of a merged topic that are named.
const MERGED_NAMES: usize = 8;

/// The subscription with the largest lag so far.
struct SlowestCursor {
    lag: u64,
    /// The ring retains more for the subscription than the history.
    blocks_publisher: bool,
    policy: Policy,
    idle: Duration,
    ring_bytes: u64,
    /// None: the subscriber is disconnected, and its position is kept.
    conn: Option<u64>,
    /// The name of the subscription; empty if it has none.
    name: Vec<u8>,
}

/// The parts of the broker, for reading.
pub(super) struct Report<'a> {
    pub(super) tables: &'a Tables,
    pub(super) subscribers: &'a Subscribers,
    pub(super) federation: &'a Federation,
    pub(super) merged: &'a MergedTopics,
    pub(super) observers: &'a Observers,
    pub(super) groups: &'a Groups,
}

impl Report<'_> {
    /// All topics, by name.
    pub(super) fn topics(&self) -> Vec<TopicStats> {
        self.tables.topics.after(None).map(|(topic, bids)| self.topic_stats(topic, bids).0).collect()
    }

    /// The row of a topic, and the number of visited objects.
    fn topic_stats(&self, topic: &TopicName, bids: &[Bid]) -> (TopicStats, usize) {
        let mut stats = TopicStats::new(topic.clone());
        let (mut slowest, mut visits) = (None, bids.len());
        for bid in bids {
            let Some(info) = self.tables.info(*bid) else { continue };
            match info.ended {
                true => stats.ended += 1,
                // A merged buffer has many publishers.
                false => stats.publishers += self.merged.active(*bid).map_or(1, |n| n as u32),
            }
            stats.ring_bytes = stats.ring_bytes.saturating_add(info.capacity_bytes);
            stats.boundary = (bids.len() == 1).then_some(info.boundary);
            stats.head_bytes = stats.head_bytes.wrapping_add(info.head);
            stats.received_bytes = stats.received_bytes.wrapping_add(info.traffic.received_bytes);
            stats.delivered_bytes = stats.delivered_bytes.wrapping_add(info.traffic.delivered_bytes);
            stats.dropped_bytes = stats.dropped_bytes.wrapping_add(info.traffic.dropped_bytes);
            let of = self.tables.topics.get(*bid).and_then(|buffer| Some((buffer.epoch?, buffer.session)));
            let alternatives = of.map_or(0, |(epoch, from)| self.federation.alternatives(epoch, *bid, from));
            stats.alternate_paths = stats.alternate_paths.saturating_add(alternatives as u32);
            stats.blocked_by = stats.blocked_by.or_else(|| self.blocked_by(*bid, &info));
            visits += self.visit_cursors(*bid, &info, &mut stats, &mut slowest);
        }
        stats.max_lag_bytes = slowest.as_ref().map_or(0, |slowest: &SlowestCursor| slowest.lag);
        stats.slowest = slowest.map(|slowest| self.slowest(slowest));
        (stats, visits)
    }

    /// Counts the subscriptions of a buffer, and finds the one with the largest lag. Returns the number of subscriptions.
    fn visit_cursors(
        &self,
        bid: Bid,
        info: &BufferInfo,
        stats: &mut TopicStats,
        slowest: &mut Option<SlowestCursor>,
    ) -> usize {
        let history = info.head.saturating_sub(info.retain_bytes);
        let ring_bytes = info.capacity_bytes;
        let lag = |landed: u64| info.head.saturating_sub(landed);
        let Some(buffer) = self.tables.out.buffer(bid) else { return 0 };
        let (present, offline) = (buffer.subscribers(), buffer.durable_cursors());
        let visits = present.len() + offline.len();
        stats.subscribers = stats.subscribers.saturating_add(present.len() as u32);
        stats.offline = stats.offline.saturating_add(offline.len() as u32);
        let present = present.into_iter().map(|sub| SlowestCursor {
            lag: lag(sub.landed),
            blocks_publisher: sub.retains_from.is_some_and(|at| at < history),
            policy: sub.policy,
            idle: sub.idle,
            ring_bytes,
            conn: Some(sub.conn),
            name: sub.name,
        });
        let offline = offline.into_iter().map(|cursor| SlowestCursor {
            lag: lag(cursor.landed),
            blocks_publisher: cursor.retains_from.is_some_and(|at| at < history),
            policy: cursor.policy,
            idle: Duration::ZERO,
            ring_bytes,
            conn: None,
            name: cursor.name,
        });
        // The subscribers' answers are in the next report.
        buffer.refresh_subscribers();
        let furthest = present.chain(offline).filter(|one| one.lag > 0).max_by_key(|one| one.lag);
        if let Some(furthest) = furthest
            && slowest.as_ref().is_none_or(|slowest| furthest.lag > slowest.lag)
        {
            *slowest = Some(furthest);
        }
        visits
    }

    fn slowest(&self, cursor: SlowestCursor) -> SlowestSubscriber {
        let subscriber = cursor.conn.and_then(|conn| self.subscribers.get(conn));
        let name = match subscriber {
            Some(subscriber) if !subscriber.name.is_empty() => subscriber.name.clone(),
            Some(subscriber) if cursor.name.is_empty() => subscriber.conn.peer_addr(),
            _ => String::from_utf8_lossy(&cursor.name).into_owned(),
        };
        SlowestSubscriber {
            name,
            policy: cursor.policy,
            offline: cursor.conn.is_none(),
            blocks_publisher: cursor.blocks_publisher,
            idle_ms: u64::try_from(cursor.idle.as_millis()).unwrap_or(u64::MAX),
            ring_bytes: cursor.ring_bytes,
        }
    }

    /// Answers a request of an observer.
    pub(super) fn answer(&self, conn: &Conn, message: &[u8]) {
        match Observe::decode(message) {
            Ok(message) => match self.answer_of(message, conn.max_control_bytes()) {
                Some(answer) => send_bytes(conn, &answer.encode()),
                None => conn.close("an observer sent a message that only brokers send"),
            },
            Err(error) => conn.close(&error.to_string()),
        }
    }

    /// Answers a question of this process. Whoever asked may have given up.
    pub(super) fn tell(&self, ask: Ask) {
        match ask {
            Ask::Observe { message, reply } => {
                let begin = Instant::now();
                let answer = self.answer_of(message, Control::MAX_BYTES);
                let work = begin.elapsed();
                if let Some(answer) = answer {
                    let _ = reply.try_send(Answered { answer, work });
                }
            }
            Ask::Clients { after, reply } => {
                let begin = Instant::now();
                let answer = self.clients_page(after, MAX_CLIENTS);
                let _ = reply.try_send(Answered { answer, work: begin.elapsed() });
            }
            Ask::Disconnect(disconnect) => self.disconnect(*disconnect),
        }
    }

    /// The answer to a request, of at most so many bytes. None: the message is no request.
    fn answer_of(&self, message: Observe, max: usize) -> Option<Observe> {
        Some(match message {
            Observe::GetSummary { request } => Observe::Summary { request, summary: self.summary() },
            Observe::GetTopics { request, filter, after } => {
                let (rows, next) = self.topics_page(max, filter.as_ref(), after.as_ref());
                Observe::TopicsPage { request, rows, next }
            }
            Observe::GetBuffers { request, topic, after } => {
                let (rows, next) = self.buffers_page(max, &topic, after);
                Observe::BuffersPage { request, rows, next }
            }
            Observe::GetSubscriptions { request, bid, after } => {
                let (rows, next) = self.subscriptions_page(max, bid, after.as_ref());
                Observe::SubscriptionsPage { request, rows, next }
            }
            Observe::GetLimits { request } => Observe::Limits { request, rows: self.limits(max) },
            Observe::GetGateways { request } => {
                Observe::Gateways { request, rows: Page::of(max, self.observers.gateways()) }
            }
            Observe::GetGroups { request } => {
                let mut rows = self.groups.stats();
                rows.sort_by_key(|row| Reverse(row.lag_bytes()));
                Observe::Groups { request, rows: Page::of(max, rows) }
            }
            _ => return None,
        })
    }

    /// The users and addresses at or near a limit, those at a limit first, as many as a message has room for.
    fn limits(&self, max_bytes: usize) -> Vec<LimitStats> {
        let admission = &self.tables.admission;
        let quotas = admission.near_limit(MAX_NEAR_LIMIT).into_iter().map(|of| LimitStats {
            who: of.who.to_string(),
            resource: of.resource.as_str().to_owned(),
            used: of.in_use,
            limit: of.limit,
            at_limit: of.is_full(),
            delayed_ms: 0,
        });
        let near = admission.rate_uses(MAX_NEAR_LIMIT).into_iter().filter(RateUse::is_near);
        let rates = near.map(|of| LimitStats {
            who: of.who.to_string(),
            resource: format!("{}_bytes_per_s", of.direction.as_str()),
            used: of.rate,
            limit: of.limit,
            at_limit: of.is_delayed,
            delayed_ms: millis(of.delayed),
        });
        let mut all: Vec<_> = quotas.chain(rates).collect();
        // Stable: the rest of the order is that of the lists.
        all.sort_by_key(|of| !of.at_limit);
        all.truncate(MAX_NEAR_LIMIT);
        Page::of(max_bytes, all)
    }

    /// The sums of the broker. The call visits every buffer.
    fn summary(&self) -> BrokerSummary {
        let (ctx, traffic) = (self.tables.out.context(), self.tables.out.traffic());
        BrokerSummary {
            uptime_ms: millis(self.observers.uptime()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            publishers: count(self.tables.sessions.active()),
            subscribers: count(self.subscribers.len()),
            observers: count(self.observers.len()),
            topics: count(self.tables.topics.len()),
            buffers: count(self.tables.topics.buffers()),
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
    ) -> (Vec<TopicStats>, Option<TopicName>) {
        let mut page = Page::new(max_bytes);
        let only = filter.and_then(TopicFilter::as_topic);
        if let Some(topic) = only {
            let bids = self.tables.topics.of(&topic);
            if !bids.is_empty() {
                page.add(self.topic_stats(&topic, bids).0);
            }
            return (page.rows, None);
        }
        let (mut last, mut visits) = (None, 0);
        for (names, (topic, bids)) in self.tables.topics.after(after).enumerate() {
            if names == MAX_NAMES || visits >= MAX_VISITS {
                return (page.rows, last);
            }
            if filter.is_none_or(|filter| filter.matches(topic)) {
                let (row, visited) = self.topic_stats(topic, bids);
                visits += visited;
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
        let mut bids: Vec<Bid> = self.tables.topics.of(topic).to_vec();
        bids.retain(|bid| after.is_none_or(|after| *bid > after));
        bids.sort_unstable();
        let (mut page, mut last) = (Page::new(max_bytes), None);
        for bid in bids {
            let Some(buffer) = self.tables.topics.get(bid) else { continue };
            if !page.add(self.buffer_stats(bid, buffer)) {
                return (page.rows, last);
            }
            last = Some(bid);
        }
        (page.rows, None)
    }

    fn buffer_stats(&self, bid: Bid, buffer: &Buffer) -> BufferStats {
        let session = self.tables.sessions.get(buffer.session);
        let merged = self.merged.active(bid);
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
            expires_in_ms: millis(expires),
            max_delivery_bytes: buffer.max_delivery_bytes,
            offline: count(self.tables.out.buffer(bid).map_or(0, |buffer| buffer.durable_cursors().len())),
            ..BufferStats::default()
        };
        if let Some(info) = self.tables.info(bid) {
            stats.epoch = info.epoch.0;
            (stats.start, stats.tail, stats.horizon) = (info.start, info.tail, info.horizon);
            (stats.boundary, stats.capacity_bytes) = (info.boundary, info.capacity_bytes);
            stats.max_delivery_bytes = info.max_delivery_bytes;
            stats.received_bytes = info.traffic.received_bytes;
            stats.delivered_bytes = info.traffic.delivered_bytes;
            stats.dropped_bytes = info.traffic.dropped_bytes;
            stats.subscribers = count(info.subscribers);
            self.note_block_reasons(bid, &info, &mut stats);
        }
        stats
    }

    /// Fills in everything that can block the publisher, except for slow subscribers.
    fn note_block_reasons(&self, bid: Bid, info: &BufferInfo, stats: &mut BufferStats) {
        (stats.head, stats.retain_bytes) = (info.head, info.retain_bytes);
        if let Some(buffer) = self.tables.out.buffer(bid) {
            (stats.min_subscribers, stats.retained_from) = buffer.min_receivers();
            stats.receivers = buffer.confirmed().coverage.receivers;
        }
        if let Some(load) = self.merged.index().table_load(bid) {
            (stats.table_entries, stats.max_table_entries) = (count(load.entries), count(load.limit));
        }
    }

    /// The number of publishers of a merged topic, and the names of the first ones.
    fn merged_publishers(&self, bid: Bid, publishers: usize) -> String {
        let first = self.merged.first(bid, MERGED_NAMES);
        let names = first.iter().filter_map(|key| Some(self.tables.sessions.get(*key)?.name.as_str()));
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            return format!("{publishers} merged");
        }
        let more = if publishers > names.len() { ", …" } else { "" };
        format!("{publishers} merged: {}{more}", names.join(", "))
    }

    /// The reason why the publisher of a buffer waits, if it is not a slow subscriber.
    pub(super) fn blocked_by(&self, bid: Bid, info: &BufferInfo) -> Option<BlockReason> {
        if self.merged.index().is_failing(bid) {
            return Some(BlockReason::Disk);
        }
        let min_receivers = || self.tables.out.buffer(bid).map_or(0, |buffer| buffer.min_receivers().0);
        if info.ended || self.merged.active(bid).is_none() && min_receivers() == 0 {
            return None;
        }
        let mut stats = BufferStats::default();
        self.note_block_reasons(bid, info, &mut stats);
        stats.blocked_by()
    }

    /// The subscriptions after `after`, in the order of [`SubscriptionSortKey`]: the slowest first.
    fn subscriptions_page(
        &self,
        max_bytes: usize,
        bid: Bid,
        after: Option<&SubscriptionSortKey>,
    ) -> (Vec<SubscriptionStats>, Option<SubscriptionSortKey>) {
        // The subscribers' answers are in the next report.
        let buffer = self.tables.out.buffer(bid);
        buffer.iter().for_each(OutBuffer::refresh_subscribers);
        let present =
            buffer.iter().flat_map(OutBuffer::subscribers).map(|info| self.subscription_stats(info));
        let offline = buffer.iter().flat_map(OutBuffer::durable_cursors).map(offline_stats);
        let mut rows: Vec<_> = present.chain(offline).map(|row| (row.sort_key(), row)).collect();
        rows.retain(|(key, _)| after.is_none_or(|after| key > after));
        rows.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let (mut page, mut last) = (Page::new(max_bytes), None);
        for (key, row) in rows {
            if !page.add(row) {
                return (page.rows, last);
            }
            last = Some(key);
        }
        (page.rows, None)
    }

    fn subscription_stats(&self, info: SubscriberInfo) -> SubscriptionStats {
        let subscriber = self.subscribers.get(info.conn);
        SubscriptionStats {
            conn: info.conn,
            wire: info.wire,
            client: subscriber.map_or_else(String::new, |w| w.name.clone()),
            address: subscriber.map_or_else(String::new, |w| w.conn.peer_addr()),
            name: name(&info.name),
            policy: info.policy,
            offline: false,
            start: info.start,
            sent: info.sent,
            landed: info.landed,
            consumed: info.consumed,
            retains_from: info.retains_from,
            dropped_bytes: info.dropped_bytes,
            idle_ms: millis(info.idle),
            expires_in_ms: 0,
        }
    }
}

fn offline_stats(cursor: DurableCursorInfo) -> SubscriptionStats {
    SubscriptionStats {
        name: name(&cursor.name),
        policy: cursor.policy,
        offline: true,
        sent: cursor.landed,
        landed: cursor.landed,
        consumed: cursor.consumed,
        retains_from: cursor.retains_from,
        expires_in_ms: millis(cursor.expires_in),
        ..SubscriptionStats::default()
    }
}

/// The name of a subscription, as text within the limit of a row.
fn name(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    // Names that are not UTF-8 get longer here. The order of rows must not depend on the encoding.
    text.truncate(text.floor_char_boundary(255));
    text
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
