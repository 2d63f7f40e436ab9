//! The broker: publishers come in, subscribers go out, bytes pass through (paper 1, section 4.1 and Listing 3).
//!
//! ```text
//!                  ┌──────────────────────── broker ───────────────────────┐
//!  publisher A ──▶ │ rIn A ── splice ─▶ buffer 7 ┐                          │ ──▶ subscriber X
//!                  │                             ├─ topic "news" ─▶ one rOut│
//!  publisher B ──▶ │ rIn B ── splice ─▶ buffer 9 ┘                          │ ──▶ subscriber Y
//!                  └────────────────────────────────────────────────────────┘
//! ```
//!
//! One rIn for each publisher, a single rOut. Every topic of every publisher is a spliced buffer of its own, renamed
//! by the broker; or, where a rule says `ingest = "merge"`, the publishers of a topic share one buffer (`merge`). The
//! framework moves the bytes; what is here decides who may have what, on a thread of its own that alone owns the tables.
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "http"), allow(dead_code, reason = "only the HTTP endpoint reads the counters"))]

mod away;
mod chain;
mod config;
mod control;
mod counts;
mod descriptors;
#[cfg(feature = "http")]
pub mod http;
mod inbox;
mod ledger;
mod merge;
mod moves;
mod observers;
mod publishers;
mod rules;
mod session;
mod stats;
mod strangers;
mod topics;
mod upstream;
mod wants;
mod watch;
mod watchers;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use rbmq_wire::{FilterError, Slowest, TopicFilter, TopicName, TopicStats};
use rocketbufs::{Context, ContextError, ListenError, Listener, ROut};

pub use config::{
    BrokerConfig, BrokerConfigError, BrokerSettings, Change, HttpSettings, LogFormat, LogSettings, Reload,
    Setting, UpstreamSettings, file_parts,
};
use control::Event;
pub use descriptors::raise_descriptor_limit;
pub use rules::{Ingest, MAX_RULES, Rule, Rules};

pub use watch::Watch;

/// Why a broker could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// Memory, threads or the configuration.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The address.
    #[error("{0}{advice}", advice = advice(.0))]
    Listen(ListenError),
    /// The system has no random numbers.
    #[error("no random numbers: {0}")]
    Random(String),
    /// The system refused a thread.
    #[error("cannot start the broker's thread: {0}")]
    Thread(std::io::Error),
}

/// What to do about an address. The framework passes on the system's words, not its number; where the address itself is
/// wrong, they say what is.
fn advice(error: &ListenError) -> &'static str {
    match error {
        ListenError::Refused { reason, .. } if reason.contains("Address already in use") => {
            "; is another broker running there? Choose another address with --listen"
        }
        _ => "",
    }
}

/// A running broker. Dropping it ends it at once; [`Broker::stop`] ends it in order.
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
    addr: String,
    thread: Option<JoinHandle<()>>,
    /// What is in force.
    config: BrokerConfig,
}

impl Broker {
    /// Starts a broker; it serves until it is stopped or dropped.
    ///
    /// # Errors
    /// What could not be had: memory, threads, the address.
    pub fn start(config: BrokerConfig) -> Result<Self, BrokerError> {
        raise_descriptor_limit();
        let ctx = Context::new(config.framework.clone())?;
        let out = ROut::new(&ctx);
        let (events, inbox) = inbox::inbox();
        let messages = events.clone();
        out.set_control_msg_cb(move |conn, message| messages.subscriber_control(conn, message));
        let changes = events.clone();
        let wakers = merge::Wakers::default();
        let (woken, progress) = (wakers.clone(), wakers.clone());
        out.set_subscriber_progress_cb(move |told| progress.progress(told.bid));
        out.set_event_cb(move |event| {
            if !woken.take(&event) {
                changes.event(Event::Out(event));
            }
        });
        let listener = Listener::bind(&ctx, &config.broker.listen).map_err(BrokerError::Listen)?;
        let addr = listener.local_addr();
        let observers = observers::Observers::new(&ctx, &events, &config.broker);
        let chain = chain::Chain::start(&ctx, &config.broker, &events)?;
        let state = control::Broker {
            out: out.clone(),
            settings: config.broker.clone(),
            topics: topics::Topics::default(),
            sessions: HashMap::new(),
            done: 0,
            watchers: HashMap::new(),
            behind: BTreeSet::new(),
            away: away::Away::default(),
            observers,
            counts: counts::Counts::default(),
            merges: merge::Merges::default(),
            wakers: wakers.clone(),
            events: events.clone(),
            chain,
            moves: moves::Moves::default(),
            draining: false,
            ledger: ledger::Ledger::default(),
        };
        let thread = std::thread::Builder::new().name("rbmq-broker".into());
        let thread = thread.spawn(move || state.run(&inbox)).map_err(BrokerError::Thread)?;
        let arrivals = events.clone();
        let strangers = Arc::new(strangers::Strangers::default());
        let came = strangers.clone();
        listener.set_foreign_conn_cb(move |stranger| came.came(stranger));
        listener.set_conn_cb(move |conn| arrivals.event(Event::Connection(conn)));
        let max_topic_series = Arc::new(AtomicUsize::new(config.http.max_topic_series));
        let watch = Watch { ctx, out, events, draining: Arc::default(), max_topic_series, strangers, wakers };
        Ok(Self { watch, listener: Some(listener), addr, thread: Some(thread), config })
    }

    /// The address in use.
    pub fn addr(&self) -> String {
        self.addr.clone()
    }

    /// The topics as they are now, by name.
    pub fn topics(&self) -> Vec<TopicStats> {
        self.watch.topics(Duration::from_secs(5)).unwrap_or_default()
    }

    /// A handle to look at it from other threads, also while it ends.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Bytes of rings that exist now.
    pub fn memory_in_use(&self) -> u64 {
        self.watch.ctx.memory_in_use()
    }

    /// The configuration in force.
    pub fn config(&self) -> &BrokerConfig {
        &self.config
    }

    /// Takes over what a running broker can take over of another configuration, and says what that is and what has to
    /// wait for a restart. What exists keeps what it was given. A `log.level` that changed is for the caller to apply.
    ///
    /// ```
    /// # use rbmq_broker::{Broker, BrokerConfig};
    /// # let mut config = BrokerConfig::default();
    /// # config.broker.listen = "127.0.0.1:0".into();
    /// let mut broker = Broker::start(config.clone())?;
    /// config.broker.max_topics = 20;
    /// config.framework.tcp.nodelay = false;
    /// let reload = broker.reload(&config);
    /// assert_eq!(reload.applied[0].to_string(), "broker.max_topics: 10000 -> 20");
    /// assert_eq!(reload.needs_restart[0].name, "tcp.nodelay");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reload(&mut self, config: &BrokerConfig) -> Reload {
        let reload = self.config.reload(config);
        self.watch.max_topic_series.store(self.config.http.max_topic_series, Ordering::Relaxed);
        self.watch.events.event(Event::Reload(Box::new(self.config.broker.clone())));
        reload
    }

    /// Ends in order: takes no more connections and nothing more from publishers, lets subscribers receive what is
    /// here for at most `drain_timeout_ms`, says goodbye. Returns the bytes that the slowest subscriber did not get
    /// any more (0: everybody has everything).
    pub fn stop(mut self) -> u64 {
        self.watch.draining.store(true, Ordering::Release);
        drop(self.listener.take());
        let drain_timeout = self.config.broker.drain_timeout();
        let deadline = Instant::now() + drain_timeout;
        let (reply, done) = std::sync::mpsc::sync_channel(1);
        self.watch.events.event(Event::Drain(reply));
        // It takes no time; without an answer there is nobody to wait for.
        let _ = done.recv_timeout(drain_timeout);
        // Asks each subscriber how far it is, and waits for the slowest.
        let _ = self.watch.out.drain_all(deadline.saturating_duration_since(Instant::now()));
        let left = self.undelivered();
        self.end(Duration::from_secs(1));
        left
    }

    /// Bytes that the slowest of the connected subscribers does not have yet.
    fn undelivered(&self) -> u64 {
        let lag = |bid| {
            let boundary = self.watch.out.buffer_info(bid).map_or(0, |info| info.boundary);
            let subscribers = self.watch.out.subscribers(bid);
            subscribers.iter().map(|s| boundary.saturating_sub(s.landed)).max().unwrap_or(0)
        };
        self.watch.out.buffers().into_iter().map(lag).max().unwrap_or(0)
    }

    fn end(&mut self, grace: Duration) {
        self.watch.events.event(Event::Stop);
        self.watch.ctx.shutdown(grace);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed when it happened.
            let _ = thread.join();
        }
    }
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
