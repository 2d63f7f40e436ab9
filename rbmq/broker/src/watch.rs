//! A handle for the observation of a broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use locks::Mutex;
use rbmq_groups::Limits;
use rbmq_wire::{GroupStats, Observe, TopicName, TopicStats};
use rocketbufs::{Bid, Context, ROut};

use super::asks::{Answered, Ask, ClientKey, ClientsPage, Disconnect, Disconnected, Record};
use super::cluster::{Cluster, ClusterMember, ClusterStatus, Owner};
use super::config::BrokerConfig;
use super::counters::Census;
use super::feed::FeedValues;
use super::feeds::Feeds;
use super::foreign_connections::ForeignConnections;
use super::gate::{AllGatewayCounters, Desk, GatewayCounters, KeptLog};
use super::groups::{GroupLimits, GroupRow, Groups, Members, Parts};
use super::inbox::{Event, Sender};
use super::kept::{ArchiveLoad, Archives, KeptLoad, KeptLogs, Replays, Scribe};
use super::merge::{MergeIndex, TableLoad};
use super::observation::Observation;
use super::traces::{TraceAnswer, TraceAsk, Wish};
use crate::config::Setting;

/// Observes a broker from other threads, also while it stops. A request costs the broker's thread a visit of its tables.
/// Positions are read directly, without the threads that move data.
#[derive(Clone)]
pub struct Watch {
    pub(super) ctx: Context,
    pub(super) out: ROut,
    pub(super) events: Sender,
    pub(super) draining: Arc<AtomicBool>,
    pub(super) max_topic_series: Arc<AtomicUsize>,
    pub(super) observation: Observation,
    pub(super) desk: Desk,
    /// The configuration in force.
    pub(super) config: Arc<Mutex<Arc<BrokerConfig>>>,
    pub(super) foreign: Arc<ForeignConnections>,
    pub(super) merge_index: MergeIndex,
    pub(super) feeds: Feeds,
    pub(super) gateways: AllGatewayCounters,
    pub(super) kept_logs: KeptLogs,
    pub(super) replays: Replays,
    pub(super) groups: Groups,
    pub(super) archives: Archives,
    pub(super) scribe: Scribe,
    pub(super) cluster: Option<Arc<dyn Cluster>>,
}

impl Watch {
    /// The topics by name. None if the broker has stopped or doesn't answer within the time-out.
    pub fn topics(&self, timeout: Duration) -> Option<Vec<TopicStats>> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.events.event(Event::Stats(reply));
        answer.recv_timeout(timeout).ok()
    }

    /// Whether the broker's thread answers within the time-out. The call does not visit tables.
    pub fn is_alive(&self, timeout: Duration) -> bool {
        let (reply, answer) = mpsc::sync_channel(1);
        self.events.event(Event::Alive(reply));
        answer.recv_timeout(timeout).is_ok()
    }

    /// The topics with an archive that are open here. One that the cluster gives to another member is closed when nothing more is published here and
    /// the archive has all that it takes, and only then may the other one go on there.
    pub fn archived_topics(&self) -> Vec<TopicName> {
        self.archives.open_topics()
    }

    /// Tells the broker that its [`Cluster`](crate::Cluster) answers otherwise than before. The call does not wait.
    pub fn cluster_changed(&self) {
        self.events.event(Event::ClusterChanged);
    }

    /// How long the disk of kept topics has been busy with one write or sync. A disk that stands still says more and more.
    pub fn disk_busy_for(&self) -> Duration {
        self.scribe.works_for()
    }

    /// How the cluster is. None: this broker is alone.
    pub fn cluster(&self) -> Option<ClusterStatus> {
        self.cluster.as_ref().map(|cluster| cluster.status())
    }

    /// How many topics that are kept on the disk could not be opened. Their publishers and subscribers wait.
    pub fn unavailable_topics(&self) -> usize {
        self.kept_logs.unavailable()
    }

    /// Whether the broker is stopping, and only delivers to its subscribers what it has.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// The sum of the sizes of all rings, and its limit, in bytes.
    pub fn ring_bytes(&self) -> (u64, u64) {
        (self.ctx.memory_in_use(), self.ctx.config().buffers.max_ring_bytes)
    }

    /// The number of rings of publishers on this machine that the broker maps, and the sum of their capacities in bytes.
    pub fn mapped_rings(&self) -> (u64, u64) {
        let (rings, bytes) = self.ctx.mapped();
        (rings as u64, bytes)
    }

    pub(crate) fn out(&self) -> &ROut {
        &self.out
    }

    pub(crate) fn observation(&self) -> &Observation {
        &self.observation
    }

    pub(crate) fn foreign_connections(&self) -> &ForeignConnections {
        &self.foreign
    }

    /// Returns the counters of the feeds.
    pub fn feeds(&self) -> Vec<FeedValues> {
        self.feeds.values()
    }

    /// The counters of the gateways.
    pub fn gateways(&self) -> Vec<Arc<GatewayCounters>> {
        self.gateways.all()
    }

    /// The load of a merged topic's table. None if the buffer is not a merged one.
    pub(crate) fn table_load(&self, bid: Bid) -> Option<TableLoad> {
        self.merge_index.table_load(bid)
    }

    /// How much of a buffer is kept on disk. None if it is not kept.
    pub(crate) fn kept_load(&self, bid: Bid) -> Option<KeptLoad> {
        self.kept_logs.load(bid, self.merge_index.is_failing(bid))
    }

    /// The counters of a buffer and its archive. None if it has none.
    pub(crate) fn archive_load(&self, bid: Bid) -> Option<ArchiveLoad> {
        self.archives.load(bid)
    }

    /// The number of subscribers that read from the disk, and of those that wait for their turn.
    pub(crate) fn replays(&self) -> (usize, usize) {
        self.replays.counts()
    }

    /// Users, rules and the audit log.
    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    /// The settings in force, each with its origin.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        self.config().settings()
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<BrokerConfig> {
        self.config.lock().clone()
    }

    /// Asks as an observer does. None: the broker has stopped, or does not answer within the time-out.
    pub(crate) fn observe(&self, message: Observe, timeout: Duration) -> Option<Answered<Observe>> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.events.event(Event::Ask(Ask::Observe { message, reply }));
        answer.recv_timeout(timeout).ok()
    }

    /// Some of the clients: those behind another one.
    pub(crate) fn clients(
        &self,
        after: Option<ClientKey>,
        timeout: Duration,
    ) -> Option<Answered<ClientsPage>> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.events.event(Event::Ask(Ask::Clients { after, reply }));
        answer.recv_timeout(timeout).ok()
    }

    /// Disconnects a client, which is told why. `record` is called before. None: the broker has stopped, or does not answer within the
    /// time-out, and the client is not disconnected later.
    pub(crate) fn disconnect(
        &self,
        conn: u64,
        why: &'static str,
        record: Record,
        timeout: Duration,
    ) -> Option<Disconnected> {
        let (reply, answer) = mpsc::sync_channel(1);
        let is_settled = Arc::new(AtomicBool::new(false));
        let disconnect = Disconnect { conn, why, record, is_settled: is_settled.clone(), reply };
        self.events.event(Event::Ask(Ask::Disconnect(Box::new(disconnect))));
        match answer.recv_timeout(timeout) {
            // The broker's thread has begun with it.
            Err(_) if is_settled.swap(true, Ordering::Relaxed) => answer.recv_timeout(timeout).ok(),
            told => told.ok(),
        }
    }

    /// Begins, reads or ends a trace. None: the broker has stopped, or does not answer within the time-out.
    pub(crate) fn trace(&self, owner: String, wish: Wish, timeout: Duration) -> Option<TraceAnswer> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.events.event(Event::Trace(Box::new(TraceAsk { owner, wish, reply })));
        answer.recv_timeout(timeout).ok()
    }

    /// The other members of the cluster, and where they are. None: this broker is alone.
    pub(crate) fn members(&self) -> Option<Vec<ClusterMember>> {
        self.cluster.as_ref().map(|cluster| cluster.members())
    }

    /// The name of this member of the cluster.
    pub(crate) fn member_id(&self) -> Option<String> {
        self.cluster.as_ref().and_then(|cluster| cluster.id())
    }

    /// The log of a kept topic. None if it has none here.
    pub(crate) fn kept_log(&self, topic: &TopicName) -> Option<KeptLog> {
        KeptLog::of(&self.kept_logs, topic)
    }

    /// Which member of the cluster has a kept topic. None: this broker is alone.
    pub(crate) fn owner(&self, topic: &TopicName) -> Option<Owner> {
        self.cluster.as_ref().map(|cluster| cluster.owner(topic))
    }

    /// The kept topics that are open, by name.
    pub(crate) fn kept_topics(&self) -> Vec<(TopicName, Bid)> {
        self.kept_logs.topics()
    }

    /// Starts the thread of the groups, if topics can be kept. A member of a cluster has none: groups do not follow a topic that moves.
    pub(crate) fn start_groups(&self, config: &BrokerConfig, desk: &Desk) -> std::io::Result<()> {
        if config.broker.keep_dir.is_empty() || self.cluster.is_some() {
            return Ok(());
        }
        let (logs, events) = (self.kept_logs.clone(), self.events.clone());
        let admission = desk.admission.clone();
        let settings = &config.broker;
        let of_one = Limits {
            max_pending: settings.max_group_pending,
            max_workers: settings.max_group_workers,
            max_credit: settings.max_group_credit,
            ..Limits::default()
        };
        let limits = GroupLimits {
            max_groups: settings.max_groups,
            max_pending_bytes: usize::try_from(settings.max_group_pending_bytes).unwrap_or(usize::MAX),
            max_workers: settings.max_group_workers,
            max_ring_bytes: settings.max_group_ring_bytes,
            of_one,
        };
        self.groups.start(Parts { dir: (&config.broker.keep_dir).into(), logs, events, admission, limits })
    }

    /// The groups that share topics.
    pub fn groups(&self) -> Vec<GroupStats> {
        self.groups.stats()
    }

    /// The groups that share topics, with what is known of their messages, by topic and name.
    pub(crate) fn group_rows(&self) -> Vec<GroupRow> {
        self.groups.rows()
    }

    /// The workers of a group, at most 500. None: its thread does not answer within the time-out. None inside: no such group.
    pub(crate) fn group_members(
        &self,
        topic: &str,
        group: &str,
        timeout: Duration,
    ) -> Option<Option<Members>> {
        self.groups.members((topic.to_owned(), group.to_owned()), timeout)
    }

    /// The counters and tables of the broker's thread.
    pub(crate) fn census(&self, timeout: Duration) -> Option<Census> {
        let (reply, answer) = mpsc::sync_channel(1);
        let max_own = self.max_topic_series.load(Ordering::Relaxed);
        self.events.event(Event::Census { max_own, reply });
        answer.recv_timeout(timeout).ok()
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("draining", &self.is_draining()).finish_non_exhaustive()
    }
}
