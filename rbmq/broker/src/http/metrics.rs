//! The metrics in the text format of Prometheus.
//!
//! A counter must not decrease, because its rate would then include the whole sum again. The sums that are read here can decrease
//! for a moment: a buffer that is being removed counts neither as existing nor as removed. So the last scrape is remembered, and no
//! counter is reported with less.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use access::NearLimit;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use rbmq_wire::GroupStats;
use rocketbufs::inspect::Traffic;

use super::process::Process;
use crate::Watch;
use crate::cluster::ClusterStatus;
use crate::counters::{Census, POLICIES, Refusal, TopicCounters, add};
use crate::feed::FeedValues;
use crate::gate::{Count, GatewayCounters};
use crate::kept::{ArchiveLoad, KeptLoad};
use crate::rates::RateUse;

/// The label for the sum of the topics without a label of their own. No topic can have this name.
const OTHERS: &str = "#others";

/// The traffic of the last scrape.
#[derive(Debug, Default)]
pub(super) struct LastScrape {
    all: Traffic,
    /// By the numbers of the topics' counters; 0: the other topics.
    topics: HashMap<u64, Traffic>,
}

/// The values of a topic.
#[derive(Debug, Default)]
struct Topic {
    name: String,
    traffic: Traffic,
    lag_bytes: u64,
    unsent_bytes: u64,
    ring_bytes: u64,
    publishers: u64,
    subscribers: u64,
    /// The entries of a merged topic's table and their limit; 0: the topic is not merged.
    table_entries: u64,
    table_limit: u64,
    /// The contents of its log on disk. None: the topic is not kept.
    kept: Option<KeptLoad>,
    /// The contents of its archive. None: it has none.
    archived: Option<ArchiveLoad>,
}

/// The values of the counters of the endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) refused_connections: u64,
    pub(super) wrong_tokens: u64,
    pub(super) log_lines_dropped: u64,
}

/// The values of one scrape.
#[derive(Debug)]
pub(super) struct Scrape {
    census: Census,
    topics: Vec<Topic>,
    topic_count: u64,
    buffer_count: u64,
    traffic: Traffic,
    ring_bytes: (u64, u64),
    mapped_rings: (u64, u64),
    feeds: Vec<FeedValues>,
    gateways: Vec<Arc<GatewayCounters>>,
    /// Replays that are under way, and that wait.
    replays: (usize, usize),
    groups: Vec<GroupStats>,
    /// Topics on the disk that could not be opened.
    unavailable: usize,
    /// None: the broker is alone.
    cluster: Option<ClusterStatus>,
    draining: bool,
    /// Connections to the broker's address that ended before a valid hello, by reason.
    foreign: Vec<(&'static str, u64)>,
    http: Counts,
    process: Process,
}

impl Scrape {
    /// Reads the positions of the buffers in the census.
    pub(super) fn take(watch: &Watch, mut census: Census, http: Counts, last: &mut LastScrape) -> Self {
        let mut others = Topic { name: OTHERS.into(), traffic: census.others_removed, ..Topic::default() };
        let all = std::mem::take(&mut census.topics);
        let (topic_count, mut buffer_count) = (all.len() as u64, 0);
        let (mut topics, mut reported) = (Vec::new(), HashMap::new());
        for counters in all {
            buffer_count += counters.bids.len() as u64;
            let mut topic = Topic::read(watch, &counters);
            if counters.own {
                topic.traffic = at_least(topic.traffic, last.topics.get(&counters.number));
                reported.insert(counters.number, topic.traffic);
                topics.push(topic);
            } else {
                others.add(&topic);
            }
        }
        others.traffic = at_least(others.traffic, last.topics.get(&0));
        reported.insert(0, others.traffic);
        topics.push(others);
        last.topics = reported;
        last.all = at_least(watch.out().traffic(), Some(&last.all));
        Self {
            census,
            topics,
            topic_count,
            buffer_count,
            traffic: last.all,
            ring_bytes: watch.ring_bytes(),
            mapped_rings: watch.mapped_rings(),
            feeds: watch.feeds(),
            gateways: watch.gateways(),
            replays: watch.replays(),
            groups: watch.groups(),
            unavailable: watch.unavailable_topics(),
            cluster: watch.cluster(),
            draining: watch.is_draining(),
            foreign: watch.foreign_connections().counts().collect(),
            http,
            process: Process::read(),
        }
    }

    pub(super) fn encode(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// The value of the label for a topic: its name. One with characters that move text or are not seen has escapes for them, behind a `#`, which
/// no name has: two topics never have one label, for which monitoring would refuse the whole page.
fn label(name: &str) -> String {
    if name.contains(text::is_hidden) {
        format!("#{}", text::printable(&name.replace('\\', "\\\\")))
    } else {
        name.to_owned()
    }
}

impl Topic {
    fn read(watch: &Watch, counters: &TopicCounters) -> Self {
        let mut topic = Self { name: label(&counters.name), traffic: counters.removed, ..Self::default() };
        for bid in &counters.bids {
            let Some(buffer) = watch.out().buffer(*bid) else { continue };
            let Some(info) = buffer.info() else { continue };
            add(&mut topic.traffic, info.traffic);
            topic.publishers += u64::from(!info.ended);
            topic.ring_bytes += info.capacity_bytes;
            let (present, offline) = (buffer.subscribers(), buffer.durable_cursors());
            topic.subscribers += present.len() as u64;
            let unsent = present.iter().map(|sub| sub.lag_bytes).max().unwrap_or(0);
            topic.unsent_bytes = topic.unsent_bytes.max(unsent);
            // Offline durable subscribers block the publishers too.
            let landed =
                present.iter().map(|sub| sub.landed).chain(offline.iter().map(|cursor| cursor.landed));
            let lag = landed.map(|landed| info.head.saturating_sub(landed)).max().unwrap_or(0);
            topic.lag_bytes = topic.lag_bytes.max(lag);
            if lag > 0 {
                // The subscribers' answers are in the next scrape.
                buffer.refresh_subscribers();
            }
            if let Some(load) = watch.table_load(*bid) {
                topic.table_entries += load.entries as u64;
                topic.table_limit += load.limit as u64;
            }
            topic.archived = topic.archived.or_else(|| watch.archive_load(*bid));
            topic.kept = watch.kept_load(*bid).or(topic.kept);
        }
        topic
    }

    fn add(&mut self, other: &Self) {
        add(&mut self.traffic, other.traffic);
        self.lag_bytes = self.lag_bytes.max(other.lag_bytes);
        self.unsent_bytes = self.unsent_bytes.max(other.unsent_bytes);
        self.ring_bytes += other.ring_bytes;
        self.publishers += other.publishers;
        self.subscribers += other.subscribers;
        self.table_entries += other.table_entries;
        self.table_limit += other.table_limit;
        if let Some(kept) = other.kept {
            let sum = self.kept.get_or_insert_default();
            sum.file_bytes += kept.file_bytes;
            sum.unsynced += kept.unsynced;
            sum.damaged += kept.damaged;
            sum.is_failing |= kept.is_failing;
        }
        if let Some(archived) = other.archived {
            let sum = self.archived.get_or_insert_default();
            sum.bytes += archived.bytes;
            sum.replayed_bytes += archived.replayed_bytes;
            sum.failures += archived.failures;
            sum.holes += archived.holes;
            sum.hole_bytes += archived.hole_bytes;
            sum.lag += archived.lag;
            sum.is_failing |= archived.is_failing;
        }
    }
}

fn at_least(now: Traffic, last: Option<&Traffic>) -> Traffic {
    let last = last.copied().unwrap_or_default();
    Traffic {
        received_bytes: now.received_bytes.max(last.received_bytes),
        delivered_bytes: now.delivered_bytes.max(last.delivered_bytes),
        dropped_bytes: now.dropped_bytes.max(last.dropped_bytes),
    }
}

/// What a metric is.
struct About<'a> {
    name: &'a str,
    help: &'a str,
    kind: MetricType,
}

impl<'a> About<'a> {
    fn counter(name: &'a str, help: &'a str) -> Self {
        Self { name, help, kind: COUNTER }
    }

    fn gauge(name: &'a str, help: &'a str) -> Self {
        Self { name, help, kind: GAUGE }
    }
}

/// Writes metrics.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn metric(
        &mut self,
        about: About<'_>,
        write: impl FnOnce(MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        write(self.0.encode_descriptor(about.name, about.help, None, about.kind)?)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.metric(About::counter(name, help), |to| ConstCounter::new(value).encode(to))
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.metric(About::gauge(name, help), |to| gauge(to, value))
    }

    /// A counter or gauge for each value of a label.
    fn family<'v>(
        &mut self,
        about: About<'_>,
        label: &str,
        values: impl Iterator<Item = (&'v str, u64)>,
    ) -> fmt::Result {
        let counts = matches!(about.kind, MetricType::Counter);
        self.metric(about, |mut to| {
            for (name, value) in values {
                let labels = [(label, name)];
                let member = to.encode_family(&labels)?;
                if counts { ConstCounter::new(value).encode(member)? } else { gauge(member, value)? }
            }
            Ok(())
        })
    }
}

fn gauge(to: MetricEncoder<'_>, value: u64) -> fmt::Result {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(to)
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = Writer(encoder);
        self.broker(&mut to)?;
        self.clients(&mut to)?;
        self.shares(&mut to)?;
        self.losses(&mut to)?;
        self.by_topic(&mut to)?;
        self.by_merged_topic(&mut to)?;
        self.by_kept_topic(&mut to)?;
        self.by_archived_topic(&mut to)?;
        self.by_group(&mut to)?;
        self.by_feed(&mut to)?;
        self.by_gateway(&mut to)?;
        self.cluster(&mut to)?;
        self.process(&mut to)
    }
}

const COUNTER: MetricType = MetricType::Counter;
const GAUGE: MetricType = MetricType::Gauge;

impl Scrape {
    fn broker(&self, to: &mut Writer<'_>) -> fmt::Result {
        let version = [(env!("CARGO_PKG_VERSION"), 1)];
        to.family(
            About::gauge("rbmq_build_info", "The version of the broker"),
            "version",
            version.into_iter(),
        )?;
        to.gauge("rbmq_draining", "1 while the broker is stopping", self.draining.into())?;
        to.gauge("rbmq_topics", "Topics with a buffer", self.topic_count)?;
        to.gauge("rbmq_buffers", "Buffers of all topics", self.buffer_count)?;
        let (in_use, most) = self.ring_bytes;
        to.gauge("rbmq_ring_bytes", "Sum of the sizes of all rings", in_use)?;
        let (mapped_rings, mapped_bytes) = self.mapped_rings;
        to.gauge(
            "rbmq_mapped_rings",
            "Rings of publishers on this machine that the broker maps",
            mapped_rings,
        )?;
        to.gauge("rbmq_mapped_ring_bytes", "Sum of the sizes of the mapped rings", mapped_bytes)?;
        let limits = self.census.limits.iter().copied().chain([("buffers.max_ring_bytes", most)]);
        to.family(About::gauge("rbmq_limit", "Configured limits"), "setting", limits)?;
        let help = "Bytes received from publishers";
        to.counter("rbmq_received_bytes", help, self.traffic.received_bytes)?;
        let help = "Bytes confirmed as received by subscribers, sum of all subscribers";
        to.counter("rbmq_delivered_bytes", help, self.traffic.delivered_bytes)?;
        to.counter("rbmq_http_requests", "Requests to this endpoint", self.http.requests)?;
        let help = "Connections to this endpoint that were refused (http.max_connections)";
        to.counter("rbmq_http_refused_connections", help, self.http.refused_connections)?;
        let help = "Requests to this endpoint with a wrong token (http.token_file), or too soon after several of them";
        to.counter("rbmq_http_wrong_tokens", help, self.http.wrong_tokens)?;
        let help = "Lines of the log that were dropped because the reader of the log was too slow";
        to.counter("rbmq_log_lines_dropped", help, self.http.log_lines_dropped)
    }

    fn clients(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Census { totals, publishers, publishers_offline, subscribers, .. } = &self.census;
        to.gauge("rbmq_publishers", "Connected publishers", *publishers as u64)?;
        let help = "Disconnected publishers that can still come back (session.linger_ms)";
        to.gauge("rbmq_publishers_offline", help, *publishers_offline as u64)?;
        to.gauge("rbmq_subscribers", "Connected subscribers", *subscribers as u64)?;
        let roles = [("publisher", totals.publishers), ("subscriber", totals.subscribers)];
        let about =
            About::counter("rbmq_connections", "Accepted clients; a reconnecting subscriber counts again");
        to.family(about, "role", roles.into_iter())?;
        let reasons = Refusal::ALL.iter().map(|(_, name)| *name).zip(totals.refusals);
        let about = About::counter(
            "rbmq_refused_connections",
            "Connections to the broker's address that ended before a valid hello",
        );
        to.family(about, "reason", self.foreign.iter().copied())?;
        to.family(About::counter("rbmq_refusals", "Refused requests and clients"), "reason", reasons)?;
        let help = "Events that the audit log could not take";
        to.counter("rbmq_audit_dropped", help, self.census.audit_dropped)
    }

    /// The users and addresses that have used up a share of the broker, or nearly so.
    fn shares(&self, to: &mut Writer<'_>) -> fmt::Result {
        let at = "What is in use by users and addresses that have used up a quota, at most 100 of them";
        let near = "What is in use by those that have used four fifths of a quota and not all of it, of the same 100";
        for (name, help, full) in [("rbmq_at_quota", at, true), ("rbmq_near_quota", near, false)] {
            to.metric(About::gauge(name, help), |mut to| {
                for of @ NearLimit { who, resource, in_use, .. } in &self.census.near_limit {
                    if of.is_full() == full {
                        let labels = [("who", who.to_string()), ("resource", resource.as_str().to_owned())];
                        gauge(to.encode_family(&labels)?, *in_use)?;
                    }
                }
                Ok(())
            })?;
        }
        let help = "The limit on bytes per second of users and addresses, in or out: the 100 that use most of theirs";
        self.by_rate(to, About::gauge("rbmq_rate_limit_bytes_per_second", help), |to, of| {
            gauge(to, of.limit)
        })?;
        let help = "Bytes that counted for the limit";
        self.by_rate(to, About::counter("rbmq_rate_bytes", help), |to, of| {
            ConstCounter::new(of.bytes).encode(to)
        })?;
        let help = "How long anything was delayed by the limit";
        self.by_rate(to, About::counter("rbmq_rate_delayed_seconds", help), |to, of| {
            ConstCounter::new(of.delayed.as_secs_f64()).encode(to)
        })
    }

    fn by_rate(
        &self,
        to: &mut Writer<'_>,
        about: About<'_>,
        write: impl Fn(MetricEncoder<'_>, &RateUse) -> fmt::Result,
    ) -> fmt::Result {
        to.metric(about, |mut to| {
            for of in &self.census.rates {
                let labels = [("who", of.who.to_string()), ("direction", of.direction.as_str().to_owned())];
                write(to.encode_family(&labels)?, of)?;
            }
            Ok(())
        })
    }

    fn losses(&self, to: &mut Writer<'_>) -> fmt::Result {
        let totals = &self.census.totals;
        let policies = || POLICIES.iter().map(|policy| policy.as_str());
        let about = About::counter("rbmq_lost_bytes", "Bytes lost by slow subscribers, by their policy");
        to.family(about, "policy", policies().zip(totals.lost_bytes))?;
        let about = About::counter(
            "rbmq_too_slow_disconnects",
            "Subscribers disconnected because they were slow, by their policy",
        );
        to.family(about, "policy", policies().zip(totals.too_slow))?;
        let help = "Bytes that publishers lost before the broker received them";
        to.counter("rbmq_publisher_lost_bytes", help, totals.lost_by_publishers)
    }

    fn by_topic(&self, to: &mut Writer<'_>) -> fmt::Result {
        type Column = (&'static str, &'static str, MetricType, fn(&Topic) -> u64);
        let columns: [Column; 8] = [
            ("rbmq_topic_received_bytes", "Bytes received from the topic's publishers", COUNTER, |t| {
                t.traffic.received_bytes
            }),
            (
                "rbmq_topic_delivered_bytes",
                "Bytes confirmed as received by the topic's subscribers",
                COUNTER,
                |t| t.traffic.delivered_bytes,
            ),
            ("rbmq_topic_lost_bytes", "Bytes lost by the topic's slow subscribers", COUNTER, |t| {
                t.traffic.dropped_bytes
            }),
            (
                "rbmq_topic_lag_bytes",
                "Lag of the topic's slowest subscriber, by its last confirmation",
                GAUGE,
                |t| t.lag_bytes,
            ),
            ("rbmq_topic_unsent_bytes", "Bytes not yet sent to the topic's slowest subscriber", GAUGE, |t| {
                t.unsent_bytes
            }),
            ("rbmq_topic_ring_bytes", "Sum of the sizes of the topic's rings", GAUGE, |t| t.ring_bytes),
            ("rbmq_topic_publishers", "Publishers that have not closed the topic", GAUGE, |t| t.publishers),
            ("rbmq_topic_subscriptions", "Subscriptions of the topic's buffers", GAUGE, |t| t.subscribers),
        ];
        for (name, help, kind, value) in columns {
            let values = self.topics.iter().map(|topic| (topic.name.as_str(), value(topic)));
            to.family(About { name, help, kind }, "topic", values)?;
        }
        Ok(())
    }

    fn by_merged_topic(&self, to: &mut Writer<'_>) -> fmt::Result {
        let merged = || self.topics.iter().filter(|topic| topic.table_limit > 0);
        let about = About::gauge(
            "rbmq_topic_merge_table_entries",
            "Runs of the merged topic that some subscriber has not consumed",
        );
        to.family(about, "topic", merged().map(|topic| (topic.name.as_str(), topic.table_entries)))?;
        let about = About::gauge(
            "rbmq_topic_merge_table_limit",
            "Limit of entries at which the merged topic's publishers wait (broker.merge_table_entries)",
        );
        to.family(about, "topic", merged().map(|topic| (topic.name.as_str(), topic.table_limit)))
    }

    fn by_kept_topic(&self, to: &mut Writer<'_>) -> fmt::Result {
        type Column = (&'static str, &'static str, fn(&KeptLoad) -> u64);
        let columns: [Column; 5] = [
            ("rbmq_kept_file_bytes", "Bytes of the topic on disk", |kept| kept.file_bytes),
            ("rbmq_kept_first_position", "The oldest position on disk", |kept| kept.first),
            ("rbmq_kept_unsynced_bytes", "Bytes that a crash of the machine loses", |kept| kept.unsynced),
            (
                "rbmq_kept_damaged_bytes",
                "Bytes on disk that were found damaged or missing, and are lost",
                |kept| kept.damaged,
            ),
            ("rbmq_kept_failing", "1 while the publishers wait for the disk", |kept| kept.is_failing.into()),
        ];
        for (name, help, value) in columns {
            let kept =
                self.topics.iter().filter_map(|topic| Some((topic.name.as_str(), value(&topic.kept?))));
            to.family(About::gauge(name, help), "topic", kept)?;
        }
        let help = "Topics on the disk that could not be opened";
        to.gauge("rbmq_kept_unavailable", help, self.unavailable as u64)?;
        let (active, waiting) = self.replays;
        let help = "Subscribers that read kept topics from the disk";
        to.gauge("rbmq_replays", help, active as u64)?;
        let help = "Subscribers that wait for their turn to do so (broker.max_replays)";
        to.gauge("rbmq_replays_waiting", help, waiting as u64)
    }

    fn by_archived_topic(&self, to: &mut Writer<'_>) -> fmt::Result {
        type Column = (&'static str, &'static str, MetricType, fn(&ArchiveLoad) -> u64);
        let columns: [Column; 8] = [
            ("rbmq_archive_bytes", "Bytes that were copied from the disk to the archive", COUNTER, |a| {
                a.bytes
            }),
            ("rbmq_archive_replayed_bytes", "Bytes that subscribers read from the archive", COUNTER, |a| {
                a.replayed_bytes
            }),
            ("rbmq_archive_failures", "Calls of the archive that failed", COUNTER, |a| a.failures),
            (
                "rbmq_archive_holes",
                "Times that the disk removed data before the archive had it",
                COUNTER,
                |a| a.holes,
            ),
            ("rbmq_archive_hole_bytes", "Bytes in holes", COUNTER, |a| a.hole_bytes),
            ("rbmq_archive_lag_bytes", "Bytes on the disk that the archive does not have yet", GAUGE, |a| {
                a.lag
            }),
            (
                "rbmq_archive_first_position",
                "The oldest position in the archive or on the disk",
                GAUGE,
                |a| a.first,
            ),
            (
                "rbmq_archive_failing",
                "1 while the archive does not answer or does not take the log",
                GAUGE,
                |a| a.is_failing.into(),
            ),
        ];
        for (name, help, kind, value) in columns {
            let archived =
                self.topics.iter().filter_map(|topic| Some((topic.name.as_str(), value(&topic.archived?))));
            to.family(About { name, help, kind }, "topic", archived)?;
        }
        Ok(())
    }

    fn by_group(&self, to: &mut Writer<'_>) -> fmt::Result {
        type Column = (&'static str, &'static str, MetricType, fn(&GroupStats) -> u64);
        let columns: [Column; 6] = [
            (
                "rbmq_group_lag_bytes",
                "Bytes of the topic's log that are not done",
                GAUGE,
                GroupStats::lag_bytes,
            ),
            ("rbmq_group_pending", "Messages that were read and are not done", GAUGE, |g| g.pending),
            ("rbmq_group_workers", "Workers", GAUGE, |g| g.workers.into()),
            ("rbmq_group_failed", "Failed attempts", COUNTER, |g| g.failed),
            ("rbmq_group_dead", "Messages that went to the dead-letter topic", COUNTER, |g| g.dead),
            ("rbmq_group_lost", "Messages that the log had no more before they were done", COUNTER, |g| {
                g.lost
            }),
        ];
        for (name, help, kind, value) in columns {
            let is_counter = matches!(kind, MetricType::Counter);
            to.metric(About { name, help, kind }, |mut to| {
                for group in &self.groups {
                    let labels = [("topic", group.topic.as_str()), ("group", group.group.as_str())];
                    let (member, value) = (to.encode_family(&labels)?, value(group));
                    if is_counter { ConstCounter::new(value).encode(member)? } else { gauge(member, value)? }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn by_feed(&self, to: &mut Writer<'_>) -> fmt::Result {
        type Column = (&'static str, &'static str, MetricType, fn(&FeedValues) -> u64);
        let columns: [Column; 9] = [
            ("rbmq_ingest_messages", "Messages that the topic got from its source", COUNTER, |f| f.messages),
            ("rbmq_ingest_bytes", "Bytes that the topic got from its source", COUNTER, |f| f.bytes),
            ("rbmq_ingest_holes", "Times that the source had overwritten messages", COUNTER, |f| f.holes),
            ("rbmq_ingest_lost_bytes", "Bytes in holes", COUNTER, |f| f.lost_bytes),
            (
                "rbmq_ingest_lost_messages",
                "Messages in holes, known when the topic has no lag",
                COUNTER,
                |f| f.lost_messages,
            ),
            ("rbmq_ingest_refused", "Messages that the source refused", COUNTER, |f| f.refused),
            ("rbmq_ingest_lag_bytes", "Arrived bytes that the topic has not got yet", GAUGE, |f| f.lag_bytes),
            ("rbmq_ingest_up", "1 while messages can arrive", GAUGE, |f| f.is_up.into()),
            ("rbmq_ingest_full", "1 while the topic's ring has no room", GAUGE, |f| f.is_full.into()),
        ];
        for (name, help, kind, value) in columns {
            let values = self.feeds.iter().map(|feed| (feed.topic.as_str(), value(feed)));
            to.family(About { name, help, kind }, "topic", values)?;
        }
        Ok(())
    }

    fn by_gateway(&self, to: &mut Writer<'_>) -> fmt::Result {
        let names: Vec<_> = self.gateways.iter().map(|gateway| gateway.name()).collect();
        let values = |value: &dyn Fn(&GatewayCounters) -> u64| -> Vec<_> {
            names.iter().map(String::as_str).zip(self.gateways.iter().map(|gateway| value(gateway))).collect()
        };
        let about = About::gauge("rbmq_gateway_up", "1 while the gateway serves clients");
        to.family(about, "gateway", values(&|gateway| gateway.is_serving().into()).into_iter())?;
        let about = About::gauge("rbmq_gateway_connections", "Connected clients of the gateway");
        to.family(about, "gateway", values(&GatewayCounters::connections).into_iter())?;
        for (what, name, help) in Count::ALL {
            let about = About { name, help, kind: COUNTER };
            to.family(about, "gateway", values(&|gateway| gateway.get(what)).into_iter())?;
        }
        Ok(())
    }

    fn cluster(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let help = "1 while the cluster is degraded: /ready says why";
        to.gauge("rbmq_cluster_degraded", help, cluster.degraded.is_some().into())?;
        let help = "Members of the cluster that live, as far as this one knows";
        to.gauge("rbmq_cluster_members", help, cluster.members as u64)?;
        let help = "Groups of topics that this member has";
        to.gauge("rbmq_cluster_owned_groups", help, cluster.owned_groups as u64)?;
        let help = "Changes of the owner of a group";
        to.counter("rbmq_cluster_term_changes", help, cluster.term_changes)?;
        to.counter("rbmq_cluster_etcd_errors", "Calls of etcd that failed", cluster.store_errors)?;
        let Some(age) = cluster.lease_age else { return Ok(()) };
        let about =
            About::gauge("rbmq_cluster_lease_age_seconds", "Time since the lease in etcd was renewed");
        to.metric(about, |to| ConstGauge::new(age.as_secs_f64()).encode(to))
    }

    fn process(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Process { cpu_seconds, resident_bytes, open_descriptors, max_descriptors, started_seconds } =
            self.process;
        if let Some(seconds) = cpu_seconds {
            let about = About::counter("process_cpu_seconds", "Processor time");
            to.metric(about, |to| ConstCounter::new(seconds).encode(to))?;
        }
        if let Some(seconds) = started_seconds {
            let about = About::gauge("process_start_time_seconds", "Start time of the process (Unix time)");
            to.metric(about, |to| ConstGauge::new(seconds).encode(to))?;
        }
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory", resident_bytes),
            ("process_open_fds", "Open file descriptors", open_descriptors),
            ("process_max_fds", "Limit on open file descriptors", max_descriptors),
        ] {
            if let Some(value) = value {
                to.gauge(name, help, value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_counter_decreases() {
        let traffic = |n| Traffic { received_bytes: n, delivered_bytes: 2 * n, dropped_bytes: 0 };
        assert_eq!(at_least(traffic(5), Some(&traffic(7))), traffic(7));
        assert_eq!(at_least(traffic(9), Some(&traffic(7))), traffic(9));
        assert_eq!(at_least(traffic(9), None), traffic(9));
    }
}
