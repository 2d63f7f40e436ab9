//! The RBMQ broker: it receives the data of publishers and forwards it to subscribers (paper 1, section 4.1 and Listing 3).
//!
//! ```text
//!                  ┌──────────────────────── broker ───────────────────────┐
//!  publisher A ──▶ │ rIn A ── splice ─▶ buffer 7 ┐                          │ ──▶ subscriber X
//!                  │                             ├─ topic "news" ─▶ one rOut│
//!  publisher B ──▶ │ rIn B ── splice ─▶ buffer 9 ┘                          │ ──▶ subscriber Y
//!                  └────────────────────────────────────────────────────────┘
//! ```
//!
//! The broker has one rIn for each publisher, and a single rOut. Each topic of each publisher is a spliced buffer with an id of
//! the broker. If a rule has `ingest = "merge"`, the publishers of a topic share one buffer instead (`merge`). The framework
//! moves the bytes. This crate decides which client receives what, on one thread that owns all tables (`engine`).
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "http"), allow(dead_code, reason = "only the HTTP endpoint reads the counters"))]

mod admission;
mod asks;
mod cluster;
mod config;
mod counters;
mod descriptors;
mod dialer;
mod effects;
mod enforcement;
mod engine;
mod error;
mod federation;
mod feed;
mod feeds;
mod foreign_connections;
mod former;
mod gate;
mod groups;
#[cfg(feature = "http")]
pub mod http;
mod in_force;
mod inbox;
mod joining;
mod kept;
mod limits;
mod lines;
mod login;
mod merge;
mod names;
mod observation;
mod observers;
mod offline;
mod outgoing;
mod password_check;
mod path_migration;
mod publishers;
mod rates;
mod report;
mod routes;
mod rules;
mod session_key;
mod sessions;
mod subscribers;
mod tables;
mod topics;
mod traced;
mod traces;
mod vouchers;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::Mutex;
pub use rbmq_wire::{FilterError, SlowestSubscriber, TopicFilter, TopicName, TopicStats};
use rocketbufs::{Context, Listener, OutBuffer, ROut};

pub use cluster::{Cluster, ClusterMember, ClusterStatus, LogClaim, Owner};
pub use config::{
    AccessSettings, AuditSettings, BrokerConfig, BrokerConfigError, BrokerSettings, Change, ClusterSettings,
    EndpointClients, EndpointConsole, EndpointTls, Explained, Exposed, GatewayProtocol, GatewaySettings,
    HttpSettings, IngestLevel, IngestSettings, IngestSource, KafkaSettings, LogFormat, LogSettings, OnLoss,
    OriginOfRule, OutsideSettings, QuotaSettings, Reload, S3Settings, Setting, SlowClient, UpstreamSettings,
    UsersSettings, explain_right, explain_topic, file_parts,
};
pub use descriptors::{MOST_RESERVED, OF_KEPT_TOPIC, TooFewDescriptors, raise_descriptor_limit};
pub use error::BrokerError;
pub use feed::{Batch, Feed, FeedCounters, FeedError, FeedOptions, FeedValues};
pub use gate::{
    Count, Entrance, EntranceEvent, Entry, Gate, GatewayCounters, Keeping, KeptBatch, KeptLog, KeptRead,
    KeptReadError, KeptTopics, Reception,
};
pub use groups::{GroupChange, GroupCharge, GroupRoom};
use inbox::Event;
pub use kept::{Archive, ArchiveError, ArchiveLog, ArchiveRead, ArchivedLog, KeepError, Stored};
pub use merge::{LocalPublisher, NotTaken};
pub use rbmq_groups::{Consumers, Delivered, EntryId, MAX_CONSUMER_NAME_BYTES};
pub use rules::{ArchiveKind, Ingest, MAX_RULES, Rule, Rules};

pub use watch::Watch;

/// What a program gives to a broker beside its configuration.
#[derive(Clone, Default)]
pub struct Parts {
    /// An archive for the topics whose rule has `archive`, or `kafka = true`: what their disk has is copied there, and subscribers read
    /// there what the disk has no more. Any [`Archive`] will do; `rbmq serve` brings Apache Kafka and object stores.
    pub archive: Option<Arc<dyn Archive>>,
    /// Who has which kept topic, where several brokers are one cluster.
    pub cluster: Option<Arc<dyn Cluster>>,
}

/// A running broker. Dropping it stops the broker at once; [`Broker::stop`] stops it in order.
///
/// ```
/// use rbmq::{Publisher, Subscriber};
/// use rbmq_broker::{Broker, BrokerConfig};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut config = BrokerConfig::default();
/// config.broker.listen = "127.0.0.1:0".into();
/// let broker = Broker::start(config)?;
/// let publisher = Publisher::connect(&broker.addr())?;
/// # drop(publisher);
/// broker.stop();
/// # Ok(())
/// # }
/// ```
pub struct Broker {
    watch: Watch,
    listener: Option<Listener>,
    /// The listener for gateways, once there are some.
    own_listener: Mutex<Option<gate::OwnListener>>,
    addr: String,
    thread: Option<JoinHandle<()>>,
    /// The threads that read kept topics. None if none can be kept.
    replay_threads: Option<kept::ReplayThreads>,
    /// The thread that copies to the archive. None without one.
    archive_thread: Option<kept::ArchiveThread>,
    /// The configuration in force.
    config: BrokerConfig,
    /// The users and rights in force, and what else decides about clients.
    desk: gate::Desk,
}

impl Broker {
    /// Starts a broker.
    ///
    /// # Errors
    /// The system refuses memory, threads or the address.
    pub fn start(config: BrokerConfig) -> Result<Self, BrokerError> {
        Self::start_with(config, Parts::default())
    }

    /// Starts a broker with parts of the program's own.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(config: BrokerConfig, parts: Parts) -> Result<Self, BrokerError> {
        let Parts { archive, cluster } = parts;
        check_archive(&config, archive.is_some())?;
        let (events, inbox) = inbox::inbox();
        let desk = gate::Desk::open(&config, checker(&events))?;
        let gate::Desk { in_force, admission, audit, .. } = desk.clone();
        raise_descriptor_limit();
        let ctx = Context::new(config.framework.clone())?;
        let out = ROut::new(&ctx);
        let merge_index = merge::MergeIndex::default();
        let replays = kept::Replays::new(&out);
        out.set_admission(admission.decide());
        let groups = groups::Groups::new(&out);
        connect_callbacks(&out, &events, &merge_index, &replays, &groups);
        let archives = kept::Archives::new(archive.clone(), config.archive(), cluster.clone());
        let keeper = kept::Keeper::new(&config.broker.keep_dir, archives.clone())?;
        let kept_logs = keeper.logs();
        let keeps = !config.broker.keep_dir.is_empty();
        let replay_threads = keeps.then(|| replays.start(archives.is_there())).transpose();
        let replay_threads = replay_threads.map_err(BrokerError::Thread)?;
        let archive_thread = archives.start().map_err(BrokerError::Thread)?;
        let listener = Listener::bind(&ctx, &config.broker.listen).map_err(BrokerError::Listen)?;
        let addr = listener.local_addr();
        let gateways = gate::AllGatewayCounters::default();
        let own_listener = gate::OwnListener::for_gateways(config.gateways(), &ctx, &events)?;
        let foreign = take_connections(&listener, &events);
        let max_topic_series = Arc::new(AtomicUsize::new(config.http.max_topic_series));
        let watch = Watch {
            ctx,
            out,
            events,
            draining: Arc::default(),
            max_topic_series,
            observation: observation::Observation::new(in_force, audit),
            desk: desk.clone(),
            config: Arc::new(Mutex::new(Arc::new(config.clone()))),
            foreign,
            merge_index,
            feeds: feeds::Feeds::default(),
            gateways,
            kept_logs,
            replays,
            groups,
            archives,
            scribe: keeper.scribe().clone(),
            cluster: cluster.clone(),
        };
        let mut merged = merge::MergedTopics::new(watch.merge_index.clone(), keeper);
        let takeovers = take_overs(&config, archive, cluster.as_ref(), &watch)?;
        takeovers.into_iter().for_each(|takeovers| merged.share(takeovers));
        let mut engine = engine(&config, &desk, &watch, merged, cluster)?;
        engine.open_kept()?;
        watch.start_groups(&config, &desk).map_err(BrokerError::Thread)?;
        engine.dial_members();
        let thread =
            threads::spawn("rbmq-broker", move || engine.run(&inbox)).map_err(BrokerError::Thread)?;
        Ok(Self {
            watch,
            listener: Some(listener),
            own_listener: Mutex::new(own_listener),
            desk,
            addr,
            thread: Some(thread),
            replay_threads,
            archive_thread,
            config,
        })
    }

    /// The address in use.
    pub fn addr(&self) -> String {
        self.addr.clone()
    }

    /// The topics by name.
    pub fn topics(&self) -> Vec<TopicStats> {
        self.watch.topics(Duration::from_secs(5)).unwrap_or_default()
    }

    /// A handle for the observation of the broker from other threads, also while it stops.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Makes a topic that this process writes without a connection: a feed, whose messages come from elsewhere.
    ///
    /// # Errors
    /// [`FeedError`], if the broker has no room for the topic or its ring, or has stopped.
    pub fn feed(&self, options: FeedOptions) -> Result<Feed, FeedError> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.watch.events.event(Event::Feed { options: Box::new(options), reply });
        answer.recv().unwrap_or(Err(FeedError::Stopped))
    }

    /// The way in for gateways in this process: publishers, subscribers and clients of other systems.
    ///
    /// # Errors
    /// The system refuses a listener.
    pub fn gate(&self) -> Result<Gate, BrokerError> {
        let Watch { ctx, events, gateways, kept_logs, groups, .. } = &self.watch;
        let mut listener = self.own_listener.lock();
        let listener = match &mut *listener {
            Some(listener) => listener,
            none => none.insert(gate::OwnListener::bind(ctx, events)?),
        };
        let kept = gate::KeptParts { logs: kept_logs.clone(), groups: groups.clone() };
        let (desk, gateways, events) = (self.desk.clone(), gateways.clone(), events.clone());
        Ok(Gate::new(listener, ctx, self.config.cluster.is_used(), desk, gateways, kept, events))
    }

    /// The sum of the sizes of all rings, in bytes.
    pub fn memory_in_use(&self) -> u64 {
        self.watch.ctx.memory_in_use()
    }

    /// The configuration in force.
    pub fn config(&self) -> &BrokerConfig {
        &self.config
    }

    /// Applies the reloadable settings of another configuration. The result lists the applied settings and the settings that
    /// need a restart. Existing objects keep their values. The caller applies a changed `log.level`.
    ///
    /// ```
    /// # use rbmq_broker::{Broker, BrokerConfig};
    /// # let mut config = BrokerConfig::default();
    /// # config.broker.listen = "127.0.0.1:0".into();
    /// let mut broker = Broker::start(config.clone())?;
    /// config.broker.max_topics = 20;
    /// config.framework.tcp.nodelay = false;
    /// let reload = broker.reload(&config)?;
    /// assert_eq!(reload.applied[0].to_string(), "broker.max_topics: 10000 -> 20");
    /// assert_eq!(reload.needs_restart[0].name, "tcp.nodelay");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The file of users is read again in any case. Clients whose user was removed, or whose token was revoked, are cut off.
    ///
    /// # Errors
    /// The file of users cannot be used, or a rule of access is not valid. Nothing changes then.
    pub fn reload(&mut self, config: &BrokerConfig) -> Result<Reload, BrokerError> {
        let rights = config.rights()?;
        let authenticator = self.desk.in_force.rules().authenticator.reopen(&config.users.options())?;
        let mut reload = self.config.reload(config);
        reload.certificates = match self.watch.ctx.reload_tls() {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error.to_string())),
        };
        let rules = in_force::Rules::new(authenticator.clone(), rights.clone(), &self.config, config);
        self.desk.in_force.replace(rules);
        *self.watch.config.lock() = Arc::new(self.config.clone());
        self.watch.max_topic_series.store(self.config.http.max_topic_series, Ordering::Relaxed);
        self.desk.audit.reopen();
        let (settings, quotas) = (self.config.broker_in_force(), &self.config.quotas);
        let (limits, rates) = (quotas.limits(self.config.is_reachable()), quotas.rates());
        self.watch.events.event(Event::Reload(Box::new(inbox::Reloaded { settings, rights, limits, rates })));
        self.watch.events.event(Event::Users(Box::new((authenticator, self.config.users.clone()))));
        Ok(reload)
    }

    /// Stops in order. The broker refuses new connections, disconnects its publishers, waits at most `drain_timeout_ms` until
    /// the connected subscribers have received everything, and closes the connections. Returns the number of bytes that the slowest
    /// subscriber has not received (0: all subscribers have everything).
    pub fn stop(self) -> u64 {
        self.stop_with(|| ())
    }

    /// As [`stop`](Self::stop). Calls `archived` when nothing more is published here, and the archives of topics that another broker goes on with have
    /// all that the disk has, as far as they take it in time: only then may another broker have the topics.
    pub fn stop_with(mut self, archived: impl FnOnce()) -> u64 {
        self.watch.draining.store(true, Ordering::Release);
        drop(self.listener.take());
        drop(self.own_listener.lock().take());
        let drain_timeout = self.config.broker.drain_timeout();
        let deadline = Instant::now() + drain_timeout;
        let (reply, done) = std::sync::mpsc::sync_channel(1);
        self.watch.events.event(Event::Drain(reply));
        // The answer comes at once. Without an answer the thread has ended.
        let _ = done.recv_timeout(drain_timeout);
        self.watch.archives.flush(deadline);
        archived();
        // Asks all subscribers that are here for their positions, and waits for the slowest.
        let _ = self.watch.out.drain_connected(Some(deadline.saturating_duration_since(Instant::now())));
        let left = self.undelivered();
        self.end(Duration::from_secs(1));
        left
    }

    /// The number of bytes that the slowest connected subscriber has not received.
    fn undelivered(&self) -> u64 {
        let lag = |buffer: OutBuffer| {
            let boundary = buffer.info().map_or(0, |info| info.boundary);
            buffer.subscribers().iter().map(|s| boundary.saturating_sub(s.landed)).max().unwrap_or(0)
        };
        self.watch.out.buffers().into_iter().map(lag).max().unwrap_or(0)
    }

    fn end(&mut self, grace: Duration) {
        drop(self.replay_threads.take());
        drop(self.archive_thread.take());
        self.watch.groups.stop();
        self.watch.events.event(Event::Stop);
        self.watch.ctx.shutdown(grace);
        if let Some(thread) = self.thread.take() {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}

/// All parts of the broker's thread.
fn engine(
    config: &BrokerConfig,
    desk: &gate::Desk,
    watch: &Watch,
    merged: merge::MergedTopics,
    cluster: Option<Arc<dyn Cluster>>,
) -> Result<engine::Engine, BrokerError> {
    let gate::Desk { in_force, admission, audit, vouchers, .. } = desk.clone();
    let (ctx, events) = (&watch.ctx, &watch.events);
    let (settings, gateways) = (config.broker_in_force(), watch.gateways.clone());
    let member = cluster.as_ref().and_then(|cluster| cluster.id());
    let (authenticator, audited) = (in_force.rules().authenticator, audit.clone());
    let logins = login::Logins::open(authenticator, &config.users, audited, vouchers, events);
    let tables = tables::Tables::new(&watch.out, &settings, admission, audit, cluster, events);
    let tables = tables::Tables { shares: merged.shares(), ..tables };
    Ok(engine::Engine {
        subscribers: subscribers::Subscribers::default(),
        federation: federation::Federation::start(ctx, &config.broker, member.as_deref(), events)?,
        migration: path_migration::PathMigration::default(),
        merged,
        replays: watch.replays.clone(),
        groups: watch.groups.clone(),
        feeds: watch.feeds.clone(),
        observers: observers::Observers::new(ctx, events, &config.broker, gateways),
        tables,
        logins: logins.map_err(BrokerError::Thread)?,
        lines: lines::Lines::default(),
        drained: None,
    })
}

/// Takes the logs of topics from the archive, where they go on there when their owner is gone.
fn take_overs(
    config: &BrokerConfig,
    archive: Option<Arc<dyn Archive>>,
    cluster: Option<&Arc<dyn Cluster>>,
    watch: &Watch,
) -> Result<Option<kept::TakeOvers>, BrokerError> {
    let (OnLoss::Archive, Some(archive), Some(cluster)) = (config.cluster.on_loss, archive, cluster) else {
        return Ok(None);
    };
    let (map, cluster, events) = (cluster.clone(), cluster.clone(), watch.events.clone());
    let term = move |topic: &TopicName| match cluster.owner(topic) {
        Owner::Here { term } => Some(term),
        _ => None,
    };
    let taken = move |wanted, taken| events.event(Event::Taken(Box::new((wanted, taken))));
    let (archives, events) = (watch.archives.clone(), watch.events.clone());
    let listed = move |topics| events.event(Event::Listed(topics));
    let why_no_room = move || archives.why_no_room();
    let hooks = kept::TakeOverHooks {
        term: Box::new(term),
        why_no_room: Box::new(why_no_room),
        taken: Box::new(taken),
        listed: Box::new(listed),
    };
    let place = kept::TakeOverPlace {
        map,
        archive,
        cluster: config.cluster.name.clone(),
        dir: config.broker.keep_dir.clone().into(),
    };
    kept::TakeOvers::start(place, hooks).map(Some).map_err(BrokerError::Thread)
}

/// Takes the passwords of gateways' clients to the threads that check those of all clients.
fn checker(events: &inbox::Sender) -> gate::Checker {
    let events = events.clone();
    Arc::new(move |check| events.event(Event::CheckPassword(Box::new(check))))
}

/// Refuses rules that want an archive if there is none.
fn check_archive(config: &BrokerConfig, is_there: bool) -> Result<(), BrokerError> {
    match config.broker.topics.iter().find(|rule| rule.archive().is_some() && !is_there) {
        Some(rule) => Err(BrokerError::NoArchive(rule.pattern.to_string())),
        None => Ok(()),
    }
}

/// Sends new connections to the broker's thread, and counts those that are no clients.
fn take_connections(
    listener: &Listener,
    events: &inbox::Sender,
) -> Arc<foreign_connections::ForeignConnections> {
    let foreign = Arc::new(foreign_connections::ForeignConnections::default());
    let (arrivals, refused) = (events.clone(), foreign.clone());
    listener.set_foreign_conn_cb(move |foreign| refused.record(foreign));
    listener.set_conn_cb(move |conn| arrivals.event(Event::Connection(conn)));
    foreign
}

/// Sends the events and messages of the rOut to the broker's thread, and progress directly to the merged topics.
fn connect_callbacks(
    out: &ROut,
    events: &inbox::Sender,
    merge_index: &merge::MergeIndex,
    replays: &kept::Replays,
    groups: &groups::Groups,
) {
    let messages = events.clone();
    out.set_control_msg_cb(move |conn, message| messages.subscriber_control(conn, message));
    let progress = merge_index.clone();
    out.set_subscriber_progress_cb(move |subscriber| progress.progress(subscriber.bid));
    let (changes, merged) = (events.clone(), merge_index.clone());
    let (replays, groups) = (replays.downgrade(), groups.downgrade());
    out.set_event_cb(move |event| {
        let is_own =
            matches!(event, rocketbufs::OutEvent::Progress { bid } if replays.wake(bid) || groups.wake(bid));
        if !is_own && !merged.take(&event) {
            changes.event(Event::Out(event));
        }
    });
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end(Duration::ZERO);
        }
    }
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker").field("addr", &self.addr).finish()
    }
}
