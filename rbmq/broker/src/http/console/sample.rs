//! One sample of the broker for all who look: the sums, the topics and the clients.
//!
//! ```text
//!   pages, streams ──▶ Samples ── older than its time? ── page after page ──▶ broker's thread
//!                         └── the same sample for all ◀──────────────────────────┘
//! ```
//!
//! Nothing is taken unless somebody asks, and everybody who asks gets the same, until the next one is due ([`Due`]).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use locks::Mutex;
use rbmq_wire::{BrokerSummary, GatewayStats, LimitStats, Observe, TopicName, TopicStats};
use serde::Serialize;

use super::due::{Due, NoAnswer, Taken};
use super::engine::Engine;
use super::group_sample::{self, GroupEntry};
use crate::asks::ClientRow;

/// The time for the answers of the subscribers to the broker, and the most topics of a sample that is taken twice because of them.
const ANSWERS: Duration = Duration::from_millis(20);
const MAX_TWICE: usize = 1_000;

/// A sample this long after the one before is a first one.
const FRESH: Duration = Duration::from_secs(5);

/// A sample that takes longer is cut.
const SAMPLE_WITHIN: Duration = Duration::from_secs(5);

/// Rates over a longer time say nothing about now.
const MAX_RATE_TIME: Duration = Duration::from_secs(120);

/// The time between two points of the history, and the number of points: an hour.
const POINT_EVERY: Duration = Duration::from_secs(10);
const MAX_POINTS: usize = 360;

/// The most topics and clients of a sample. The limits of a broker may be higher.
const MAX_ROWS: usize = 200_000;

/// Bytes per second. None where there is no earlier sample.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Rates {
    /// Bytes from publishers.
    pub(super) in_bytes_per_s: Option<u64>,
    /// Bytes to subscribers.
    pub(super) out_bytes_per_s: Option<u64>,
    /// Bytes that slow subscribers lose.
    pub(super) lost_bytes_per_s: Option<u64>,
}

/// A topic in a sample.
#[derive(Debug, Clone, Serialize)]
pub(super) struct TopicRow {
    #[serde(flatten)]
    pub(super) stats: TopicStats,
    #[serde(flatten)]
    pub(super) rates: Rates,
}

/// A client in a sample, with the sums of its subscriptions.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ClientEntry {
    #[serde(flatten)]
    pub(super) client: ClientRow,
    pub(super) subscriptions: u64,
    /// The lag of its slowest subscription.
    pub(super) max_lag_bytes: u64,
    pub(super) dropped_bytes: u64,
}

/// A kept topic in a sample.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct KeptRow {
    pub(super) topic: String,
    /// The first position on the disk, and the one behind the last.
    pub(super) first: u64,
    pub(super) end: u64,
    /// Bytes of files.
    pub(super) file_bytes: u64,
    /// Bytes that are not on the disk yet.
    pub(super) unsynced_bytes: u64,
    /// Bytes that were found damaged or missing.
    pub(super) damaged_bytes: u64,
    /// Whether its publishers wait for the disk.
    pub(super) is_failing: bool,
    /// The retention, by the rules in force; none: no limit of its own.
    pub(super) keep_bytes: Option<u64>,
    pub(super) keep_ms: Option<u64>,
    /// None: it has no archive.
    pub(super) archive: Option<ArchiveRow>,
}

/// The archive of a kept topic.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct ArchiveRow {
    /// The first position that can be read, there or on the disk.
    pub(super) first: u64,
    /// Bytes on the disk that are to be copied.
    pub(super) lag_bytes: u64,
    /// Calls that failed.
    pub(super) failures: u64,
    /// Bytes that the disk had removed before they were copied.
    pub(super) missing_bytes: u64,
    /// The last call failed.
    pub(super) is_failing: bool,
}

/// A point of the history.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Point {
    /// Milliseconds since 1970.
    pub(super) time_ms: u64,
    #[serde(flatten)]
    pub(super) rates: Rates,
    pub(super) ring_bytes: u64,
    pub(super) max_lag_bytes: u64,
}

/// The state of the broker at one time.
#[derive(Debug)]
pub(super) struct Sample {
    at: Instant,
    /// Milliseconds since 1970.
    pub(super) time_ms: u64,
    pub(super) summary: BrokerSummary,
    pub(super) rates: Rates,
    /// By name.
    pub(super) topics: Vec<TopicRow>,
    /// There are more topics: the broker has too many, or answered too slowly.
    pub(super) is_cut: bool,
    pub(super) limits: Vec<LimitStats>,
    pub(super) gateways: Vec<GatewayStats>,
}

/// The clients of a sample.
#[derive(Debug)]
pub(super) struct Clients {
    /// By the numbers of their connections.
    pub(super) rows: Vec<ClientEntry>,
    /// As for topics.
    pub(super) is_cut: bool,
}

impl Clients {
    /// The client of a connection.
    pub(super) fn of(&self, conn: u64) -> Option<&ClientRow> {
        self.entry(conn).map(|row| &row.client)
    }

    /// The same, with the sums of its subscriptions.
    pub(super) fn entry(&self, conn: u64) -> Option<&ClientEntry> {
        let at = self.rows.binary_search_by_key(&conn, |row| row.client.conn).ok()?;
        self.rows.get(at)
    }
}

/// The newest samples.
pub(super) struct Samples {
    engine: Arc<Engine>,
    broker: Mutex<Due<Sample>>,
    clients: Mutex<Due<Clients>>,
    kept: Mutex<Due<Vec<KeptRow>>>,
    groups: Mutex<Due<Vec<GroupEntry>>>,
    history: Mutex<VecDeque<Point>>,
}

impl Samples {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        let (broker, clients, kept) =
            (Mutex::new(Due::new()), Mutex::new(Due::new()), Mutex::new(Due::new()));
        let groups = Mutex::new(Due::new());
        Self { engine, broker, clients, kept, groups, history: Mutex::default() }
    }

    /// The sample of now.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(super) fn broker(&self) -> Result<Arc<Sample>, NoAnswer> {
        self.broker.lock().get(|before| {
            let Taken { value: sample, work } = self.take(before)?;
            // Subscribers tell where they are when the broker is asked for them, so the first sample does not know it yet.
            let is_first = before.is_none_or(|before| sample.at.duration_since(before.at) > FRESH);
            let taken = match is_first && sample.topics.len() <= MAX_TWICE {
                true => {
                    std::thread::sleep(ANSWERS);
                    let again = self.take(before)?;
                    Taken { work: work + again.work, ..again }
                }
                false => Taken { value: sample, work },
            };
            self.remember(&taken.value);
            Ok(taken)
        })
    }

    /// The clients.
    ///
    /// # Errors
    /// The broker does not answer.
    pub(super) fn clients(&self) -> Result<Arc<Clients>, NoAnswer> {
        self.clients.lock().get(|_| self.take_clients())
    }

    /// The kept topics, by name.
    ///
    /// # Errors
    /// None at present.
    pub(super) fn kept(&self) -> Result<Arc<Vec<KeptRow>>, NoAnswer> {
        self.kept.lock().get(|_| {
            let begin = Instant::now();
            let value = self.take_kept();
            // Logs and archives share locks with those who look.
            Ok(Taken { value, work: begin.elapsed() })
        })
    }

    /// The groups of workers, by topic and name.
    ///
    /// # Errors
    /// None at present.
    pub(super) fn groups(&self) -> Result<Arc<Vec<GroupEntry>>, NoAnswer> {
        self.groups.lock().get(|before| Ok(group_sample::take(&self.engine, before)))
    }

    /// Frees the memory of samples that nobody looks at any more.
    pub(super) fn forget(&self, now: Instant) {
        self.broker.lock().forget(now);
        self.clients.lock().forget(now);
        self.kept.lock().forget(now);
        self.groups.lock().forget(now);
    }

    /// The last hour, as far as somebody looked.
    pub(super) fn history(&self) -> Vec<Point> {
        self.history.lock().iter().copied().collect()
    }

    fn remember(&self, sample: &Sample) {
        let mut points = self.history.lock();
        let least = points.back().map_or(0, |last| last.time_ms + POINT_EVERY.as_millis() as u64);
        // A clock that was set back begins anew.
        if points.back().is_some_and(|last| last.time_ms > sample.time_ms) {
            points.clear();
        } else if sample.time_ms < least {
            return;
        }
        if points.len() == MAX_POINTS {
            points.pop_front();
        }
        points.push_back(Point {
            time_ms: sample.time_ms,
            rates: sample.rates,
            ring_bytes: sample.summary.ring_bytes,
            max_lag_bytes: sample.topics.iter().map(|row| row.stats.max_lag_bytes).max().unwrap_or(0),
        });
    }

    fn take(&self, before: Option<&Sample>) -> Result<Taken<Sample>, NoAnswer> {
        let mut asking = self.engine.ask(SAMPLE_WITHIN);
        let mut ask = |message| asking.observe(message);
        let (at, time_ms) = (Instant::now(), now_ms());
        let Observe::Summary { summary, .. } = ask(Observe::GetSummary { request: 0 })? else {
            return Err(NoAnswer);
        };
        let Observe::Limits { rows: limits, .. } = ask(Observe::GetLimits { request: 0 })? else {
            return Err(NoAnswer);
        };
        let Observe::Gateways { rows: gateways, .. } = ask(Observe::GetGateways { request: 0 })? else {
            return Err(NoAnswer);
        };
        let (mut all, mut after): (Vec<TopicStats>, _) = (Vec::new(), None);
        loop {
            let page =
                asking.observe(Observe::GetTopics { request: 0, filter: None, after: after.take() })?;
            let Observe::TopicsPage { rows, next, .. } = page else { return Err(NoAnswer) };
            all.extend(rows);
            after = next;
            if after.is_none() || all.len() >= MAX_ROWS || asking.is_late() {
                break;
            }
        }
        // The broker has them level by level, where `a/b` is before `a-b`.
        all.sort_unstable_by(|a, b| a.topic.cmp(&b.topic));
        let before = before.filter(|before| at.duration_since(before.at) < MAX_RATE_TIME);
        let (topics, rates) = (rows(all, before, at), sums(&summary, before, at));
        let is_cut = after.is_some();
        let value = Sample { at, time_ms, summary, rates, topics, is_cut, limits, gateways };
        Ok(Taken { value, work: asking.work })
    }

    fn take_clients(&self) -> Result<Taken<Clients>, NoAnswer> {
        let mut asking = self.engine.ask(SAMPLE_WITHIN);
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = asking.clients(after)?;
            all.extend(page.rows);
            after = page.next;
            if after.is_none() || all.len() >= MAX_ROWS || asking.is_late() {
                break;
            }
        }
        all.sort_unstable_by_key(|client| client.conn);
        let subscriptions = self.subscriptions();
        let entry = |client: ClientRow| {
            let of = subscriptions.get(&client.conn).copied().unwrap_or_default();
            let Subscriptions { count: subscriptions, max_lag_bytes, dropped_bytes } = of;
            ClientEntry { client, subscriptions, max_lag_bytes, dropped_bytes }
        };
        let rows = all.into_iter().map(entry).collect();
        Ok(Taken { value: Clients { rows, is_cut: after.is_some() }, work: asking.work })
    }

    /// The logs and the archives are asked directly, and the broker's thread has no work.
    fn take_kept(&self) -> Vec<KeptRow> {
        let rules = self.engine.watch.desk().in_force.rules().settings;
        let row = |(topic, bid)| {
            let load = self.engine.watch.kept_load(bid)?;
            let rule = rules.topics.of(&topic);
            let archive = self.engine.watch.archive_load(bid).map(|archive| ArchiveRow {
                first: archive.first,
                lag_bytes: archive.lag,
                failures: archive.failures,
                missing_bytes: archive.hole_bytes,
                is_failing: archive.is_failing,
            });
            Some(KeptRow {
                topic: topic.to_string(),
                first: load.first,
                end: load.end,
                file_bytes: load.file_bytes,
                unsynced_bytes: load.unsynced,
                damaged_bytes: load.damaged,
                is_failing: load.is_failing,
                keep_bytes: rule.keep_bytes,
                keep_ms: rule.keep_ms,
                archive,
            })
        };
        self.engine.watch.kept_topics().into_iter().take(MAX_ROWS).filter_map(row).collect()
    }

    /// The sums of the subscriptions of each connection. This thread reads them, and the broker's has no work.
    fn subscriptions(&self) -> HashMap<u64, Subscriptions> {
        let mut sums: HashMap<u64, Subscriptions> = HashMap::new();
        for buffer in self.engine.watch.out().buffers() {
            let head = buffer.info().map_or(0, |info| info.head);
            for subscriber in buffer.subscribers() {
                let sum = sums.entry(subscriber.conn).or_default();
                sum.count += 1;
                sum.max_lag_bytes = sum.max_lag_bytes.max(head.saturating_sub(subscriber.landed));
                sum.dropped_bytes = sum.dropped_bytes.saturating_add(subscriber.dropped_bytes);
            }
        }
        sums
    }
}

/// The subscriptions of a connection.
#[derive(Debug, Clone, Copy, Default)]
struct Subscriptions {
    count: u64,
    max_lag_bytes: u64,
    dropped_bytes: u64,
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

/// The growth of a counter per second. A counter of a topic that was made anew begins at 0.
fn rate(now: u64, before: u64, elapsed: Duration) -> Option<u64> {
    let grown = now.checked_sub(before)?;
    let seconds = elapsed.as_secs_f64();
    (seconds > 0.0).then(|| (grown as f64 / seconds).round() as u64)
}

/// The rows with their rates. Both samples are sorted by name.
fn rows(topics: Vec<TopicStats>, before: Option<&Sample>, at: Instant) -> Vec<TopicRow> {
    let mut old = before.map_or(&[][..], |before| &before.topics).iter().peekable();
    let elapsed = before.map_or(Duration::ZERO, |before| at.duration_since(before.at));
    let row = |stats: TopicStats| {
        while old.next_if(|row| row.stats.topic < stats.topic).is_some() {}
        let rates = match old.peek().filter(|row| row.stats.topic == stats.topic) {
            None => Rates::default(),
            Some(TopicRow { stats: old, .. }) => Rates {
                in_bytes_per_s: rate(stats.received_bytes, old.received_bytes, elapsed),
                out_bytes_per_s: rate(stats.delivered_bytes, old.delivered_bytes, elapsed),
                lost_bytes_per_s: rate(stats.dropped_bytes, old.dropped_bytes, elapsed),
            },
        };
        TopicRow { stats, rates }
    };
    topics.into_iter().map(row).collect()
}

fn sums(summary: &BrokerSummary, before: Option<&Sample>, at: Instant) -> Rates {
    let Some(before) = before else { return Rates::default() };
    let (old, elapsed) = (&before.summary, at.duration_since(before.at));
    Rates {
        in_bytes_per_s: rate(summary.received_bytes, old.received_bytes, elapsed),
        out_bytes_per_s: rate(summary.delivered_bytes, old.delivered_bytes, elapsed),
        lost_bytes_per_s: rate(summary.dropped_bytes, old.dropped_bytes, elapsed),
    }
}

impl Sample {
    /// The row of a topic.
    pub(super) fn topic(&self, name: &TopicName) -> Option<&TopicRow> {
        let at = self.topics.binary_search_by(|row| row.stats.topic.cmp(name)).ok()?;
        self.topics.get(at)
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    pub(in super::super) fn topic(name: &str) -> TopicStats {
        TopicStats::new(name.parse().unwrap())
    }

    /// A sample with these topics, and nothing else.
    pub(in super::super) fn sample(topics: Vec<TopicStats>) -> Sample {
        let at = Instant::now();
        Sample {
            at,
            time_ms: 0,
            summary: BrokerSummary::default(),
            rates: Rates::default(),
            topics: rows(topics, None, at),
            is_cut: false,
            limits: Vec::new(),
            gateways: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{sample, topic};
    use super::*;

    fn stats(name: &str, received_bytes: u64) -> TopicStats {
        TopicStats { received_bytes, ..topic(name) }
    }

    #[test]
    fn rates_are_those_of_topics_that_were_there_before() {
        let before = sample(vec![stats("a", 100), stats("c", 50), stats("d", 500)]);
        let begin = before.at;
        let topics = vec![stats("a", 300), stats("b", 9), stats("c", 50), stats("d", 20)];
        let now = rows(topics, Some(&before), begin + Duration::from_secs(2));
        let rates: Vec<_> = now.iter().map(|row| row.rates.in_bytes_per_s).collect();
        assert_eq!(rates, [Some(100), None, Some(0), None], "d was made anew");
    }
}
