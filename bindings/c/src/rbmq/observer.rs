//! Observers: the state of a broker, as `rbmq top` shows it.

use std::ffi::c_char;

use rbmq::wire::{
    BlockReason, BrokerSummary, BufferStage, BufferStats, SlowestSubscriber, SubscriptionStats, TopicFilter,
    TopicName, TopicStats,
};
use rbmq::{BufferDetail, ObserveError, Observer};
use rocketbufs::Config;

use crate::failures::failures;
use crate::handles::rb_config;
use crate::kept::Kept;
use crate::raw::{Versioned, answer, copied, optional_text, options, place, put, rb_id128, text, timeout};
use crate::rbmq::login::{login_of, rbmq_login};
use crate::rbmq::topic::framing;
use crate::status::rb_status::*;
use crate::status::{Failure, Outcome, call, rb_status};
use crate::table::{exclusive, insert, kinds, take};

/// Asks a broker for its state. One thread uses it at a time.
pub struct rbmq_observer(());

/// An observer, and what its last answer points at.
pub(crate) struct Asker {
    observer: Observer,
    kept: Kept,
    topics: Vec<rbmq_topic_stats>,
    buffers: Vec<rbmq_buffer_stats>,
    subscriptions: Vec<Vec<rbmq_subscription_stats>>,
}

// SAFETY: the pointers in the rows point at what the other fields own, which moves with them.
unsafe impl Send for Asker {}

kinds! { rbmq_observer => Asker, 25, "observer"; }

failures! {
    ObserveError: |e| match &e {
        ObserveError::Down(_) => RB_ERR_DOWN,
        ObserveError::TimedOut { .. } => RB_TIMED_OUT,
        ObserveError::Malformed(_) => RB_ERR_MALFORMED,
        ObserveError::Endless | ObserveError::Unexpected { .. } => RB_ERR_PROTOCOL,
        _ => RB_ERR_OTHER,
    };
}

/// Options of an observer. Zeros are defaults: `rbmq_observer_options options = {.size = sizeof options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_observer_options {
    /// `sizeof(rbmq_observer_options)`.
    pub size: usize,
    /// The name in the broker's log; NULL: none.
    pub name: *const c_char,
    /// The framework's configuration; NULL: the default. Read during the call.
    pub config: *const rb_config,
    /// How long a call waits for an answer, in nanoseconds; 0: 10 s, below 0: without a limit. A list takes several answers.
    pub timeout_ns: i64,
    /// The login of the client; NULL: none. Read during the call.
    pub login: *const rbmq_login,
}

// SAFETY: integers and pointers, and the first field is the size.
unsafe impl Versioned for rbmq_observer_options {}

/// The state of a broker as a whole.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_broker_summary {
    /// The uptime in milliseconds.
    pub uptime_ms: u64,
    /// The version of the broker.
    pub version: *const c_char,
    /// Publishers that are connected, or offline for less than the linger time.
    pub publishers: u32,
    /// Subscribers that are connected.
    pub subscribers: u32,
    /// Observers that are connected, including this one.
    pub observers: u32,
    /// Topics that have a buffer.
    pub topics: u32,
    /// Buffers of all topics.
    pub buffers: u32,
    /// The size of all rings in bytes (memory is allocated on first use).
    pub ring_bytes: u64,
    /// The limit for the size of all rings.
    pub max_ring_bytes: u64,
    /// Bytes that publishers sent since the start.
    pub received_bytes: u64,
    /// Bytes that subscribers got since the start.
    pub delivered_bytes: u64,
    /// Bytes that slow subscribers lost since the start.
    pub dropped_bytes: u64,
}

/// Publishers do not wait, or wait for a slow subscriber.
pub const RBMQ_BLOCKED_BY_NOTHING: u32 = 0;
/// Fewer subscribers than the publisher requires.
pub const RBMQ_BLOCKED_BY_TOO_FEW_SUBSCRIBERS: u32 = 1;
/// The table of a merged topic is full.
pub const RBMQ_BLOCKED_BY_MERGE_TABLE: u32 = 2;
/// A reason that this version of the library cannot describe.
pub const RBMQ_BLOCKED_BY_OTHER: u32 = 3;
/// The disk of a kept topic has no room or fails.
pub const RBMQ_BLOCKED_BY_DISK: u32 = 4;

/// The state of a topic.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_topic_stats {
    /// Its name.
    pub topic: *const c_char,
    /// Buffers that have not ended.
    pub publishers: u32,
    /// Buffers that have ended and are still readable.
    pub ended: u32,
    /// Subscriptions of all its buffers.
    pub subscribers: u32,
    /// Durable subscriptions that are offline.
    pub offline: u32,
    /// Bytes of its rings.
    pub ring_bytes: u64,
    /// Sum of the positions of its buffers' heads.
    pub head_bytes: u64,
    /// Bytes that its buffers received: two samples give a rate.
    pub received_bytes: u64,
    /// Bytes that all of its subscribers got, including former ones: two samples give a rate.
    pub delivered_bytes: u64,
    /// Bytes that its subscribers lost by their policies.
    pub dropped_bytes: u64,
    /// The lag of its slowest subscriber in bytes.
    pub max_lag_bytes: u64,
    /// The name of the subscriber with the largest lag, or its address; NULL if none lags.
    pub slowest: *const c_char,
    /// Whether that subscriber blocks the publisher, now or soon.
    pub slowest_blocks_publisher: bool,
    /// How long that subscriber has consumed nothing.
    pub slowest_idle_ms: u64,
    /// Why its publishers wait, if not for a slow subscriber: `RBMQ_BLOCKED_BY_…`.
    pub blocked_by: u32,
}

/// The broker has requested the buffer, and the publisher has not answered.
pub const RBMQ_STAGE_OPENING: u32 = 0;
/// The log may grow.
pub const RBMQ_STAGE_LIVE: u32 = 1;
/// The publisher closed the topic. The buffer is still readable.
pub const RBMQ_STAGE_CLOSED: u32 = 2;
/// The publisher was offline for too long. Complete deliveries are still readable.
pub const RBMQ_STAGE_GONE: u32 = 3;

/// A buffer of a topic: the log of one publisher, or of a merged topic.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_buffer_stats {
    /// The broker's id.
    pub bid: u32,
    /// The random name of the log.
    pub epoch: rb_id128,
    /// The publisher's name; may be empty. For a merged topic: the number of publishers, and the first names.
    pub publisher: *const c_char,
    /// The publisher's address.
    pub address: *const c_char,
    /// Whether the publisher is connected.
    pub connected: bool,
    /// `RBMQ_FRAMING_…`.
    pub framing: u32,
    /// `RBMQ_STAGE_…`.
    pub stage: u32,
    /// How long an ended buffer is still readable.
    pub expires_in_ms: u64,
    /// The first position of the log in this ring.
    pub start: u64,
    /// The oldest position in the ring.
    pub tail: u64,
    /// The end of the last complete delivery.
    pub boundary: u64,
    /// The end of the received bytes.
    pub head: u64,
    /// How far the publisher may write.
    pub horizon: u64,
    /// The size of the ring; 0 while the buffer is opening.
    pub capacity_bytes: u64,
    /// The bytes of history that the ring keeps for later subscribers.
    pub retain_bytes: u64,
    /// The largest delivery in bytes.
    pub max_delivery_bytes: u64,
    /// Bytes that it received.
    pub received_bytes: u64,
    /// Bytes that its subscribers got.
    pub delivered_bytes: u64,
    /// Bytes that its subscribers lost.
    pub dropped_bytes: u64,
    /// The least number of subscribers that the publisher requires; 0: none.
    pub min_subscribers: u32,
    /// Why its publisher waits, now or soon, if not for a slow subscriber: `RBMQ_BLOCKED_BY_…`.
    pub blocked_by: u32,
    /// The subscriptions, and the places of offline durable subscribers: the slowest first.
    pub subscriptions: *const rbmq_subscription_stats,
    /// Their number.
    pub subscriptions_count: usize,
}

/// A subscription of a buffer, connected or offline.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_subscription_stats {
    /// Its connection at the broker; 0 if it is offline.
    pub conn: u64,
    /// The client's name; may be empty.
    pub client: *const c_char,
    /// The client's address; empty if it is offline.
    pub address: *const c_char,
    /// The durable name; may be empty.
    pub name: *const c_char,
    /// Its policy: `RB_POLICY_…`.
    pub policy: u32,
    /// Whether it is offline. Its position is kept for another `expires_in_ms`.
    pub offline: bool,
    /// Its first position.
    pub start: u64,
    /// Everything below was given to the transport.
    pub sent: u64,
    /// Everything below is in its memory.
    pub landed: u64,
    /// Its application has consumed everything below.
    pub consumed: u64,
    /// Bytes that it lost by its policy.
    pub dropped_bytes: u64,
    /// How long it has consumed nothing.
    pub idle_ms: u64,
    /// How long the position of an offline subscription is still kept.
    pub expires_in_ms: u64,
}

fn blocked_by(reason: Option<BlockReason>) -> u32 {
    match reason {
        None => RBMQ_BLOCKED_BY_NOTHING,
        Some(BlockReason::TooFewSubscribers) => RBMQ_BLOCKED_BY_TOO_FEW_SUBSCRIBERS,
        Some(BlockReason::MergeTableFull) => RBMQ_BLOCKED_BY_MERGE_TABLE,
        Some(BlockReason::Disk) => RBMQ_BLOCKED_BY_DISK,
        Some(_) => RBMQ_BLOCKED_BY_OTHER,
    }
}

fn summary_of(summary: &BrokerSummary, kept: &mut Kept) -> rbmq_broker_summary {
    copied!(summary => rbmq_broker_summary {
        uptime_ms, version: kept.text(&summary.version), publishers, subscribers, observers, topics, buffers, ring_bytes,
        max_ring_bytes, received_bytes, delivered_bytes, dropped_bytes,
    })
}

fn topic_of(topic: &TopicStats, kept: &mut Kept) -> rbmq_topic_stats {
    let slowest = topic.slowest.as_ref();
    copied!(topic => rbmq_topic_stats {
        topic: kept.text(topic.topic.as_str()), publishers, ended, subscribers, offline, ring_bytes, head_bytes, received_bytes,
        delivered_bytes, dropped_bytes, max_lag_bytes,
        slowest: slowest.map_or(std::ptr::null(), |slowest: &SlowestSubscriber| kept.text(&slowest.name)),
        slowest_blocks_publisher: slowest.is_some_and(|slowest| slowest.blocks_publisher),
        slowest_idle_ms: slowest.map_or(0, |slowest| slowest.idle_ms), blocked_by: blocked_by(topic.blocked_by),
    })
}

/// A buffer, without its subscriptions.
fn buffer_of(buffer: &BufferStats, kept: &mut Kept) -> rbmq_buffer_stats {
    let stage = match buffer.stage {
        BufferStage::Opening => RBMQ_STAGE_OPENING,
        BufferStage::Live => RBMQ_STAGE_LIVE,
        BufferStage::Closed => RBMQ_STAGE_CLOSED,
        BufferStage::Gone => RBMQ_STAGE_GONE,
    };
    copied!(buffer => rbmq_buffer_stats {
        bid, epoch: buffer.epoch.into(), publisher: kept.text(&buffer.publisher), address: kept.text(&buffer.address),
        connected, framing: framing(buffer.framing), stage: stage, expires_in_ms, start, tail, boundary, head, horizon,
        capacity_bytes, retain_bytes, max_delivery_bytes, received_bytes, delivered_bytes, dropped_bytes, min_subscribers,
        blocked_by: blocked_by(buffer.blocked_by()), subscriptions: std::ptr::null(), subscriptions_count: 0,
    })
}

fn subscription_of(row: &SubscriptionStats, kept: &mut Kept) -> rbmq_subscription_stats {
    copied!(row => rbmq_subscription_stats {
        conn, client: kept.text(&row.client), address: kept.text(&row.address), name: kept.text(&row.name),
        policy: row.policy as u32, offline, start, sent, landed, consumed, dropped_bytes, idle_ms, expires_in_ms,
    })
}

impl Asker {
    fn new(observer: Observer) -> Self {
        let kept = Kept::default();
        Self { observer, kept, topics: Vec::new(), buffers: Vec::new(), subscriptions: Vec::new() }
    }

    /// Drops what the last answer points at.
    fn forget(&mut self) {
        self.topics.clear();
        self.buffers.clear();
        self.subscriptions.clear();
        self.kept = Kept::default();
    }

    fn keep(&mut self, detail: &BufferDetail) {
        let each = |row| subscription_of(row, &mut self.kept);
        let rows: Vec<_> = detail.subscriptions.iter().map(each).collect();
        let (subscriptions, subscriptions_count) = (rows.as_ptr(), rows.len());
        // The rows stay where they are when their vector moves.
        self.subscriptions.push(rows);
        let buffer = buffer_of(&detail.buffer, &mut self.kept);
        self.buffers.push(rbmq_buffer_stats { subscriptions, subscriptions_count, ..buffer });
    }
}

/// Connects to a broker, and waits until it accepts, at most `session.connect_timeout_ms`. `options` may be NULL. An observer does not
/// reconnect: after `RB_ERR_DOWN` make another one.
///
/// `*out` is the caller's, until `rbmq_observer_free`. Any thread. Fails as `rbmq_subscriber_connect`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_observer_connect(
    address: *const c_char,
    given: *const rbmq_observer_options,
    out: *mut *mut rbmq_observer,
) -> rb_status {
    call(|| {
        place(out, "the place for the observer")?;
        let given = options(given, "the observer's options")?;
        let mut builder = Observer::builder();
        if let Some(name) = optional_text(given.name, "the name")? {
            builder = builder.name(name);
        }
        if !given.config.is_null() {
            builder = builder.config(exclusive::<Config>(given.config)?.clone());
        }
        if given.timeout_ns != 0 {
            builder = builder.timeout(timeout(given.timeout_ns));
        }
        builder = builder.login(login_of(given.login)?);
        put(out, insert(Asker::new(builder.connect(text(address, "the address")?)?))?);
        Ok(())
    })
}

/// The state of the broker as a whole.
///
/// Its texts are valid until the next call on the observer. One thread uses an observer at a time. `RB_TIMED_OUT` if the broker did not
/// answer in time. Fails with `RB_ERR_DOWN`, `RB_ERR_MALFORMED` or `RB_ERR_PROTOCOL`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_observer_summary(
    observer: *mut rbmq_observer,
    summary: *mut rbmq_broker_summary,
) -> rb_status {
    answer(summary, "the place for the summary", || {
        let mut asker = exclusive::<Asker>(observer)?;
        asker.forget();
        let answer = asker.observer.summary()?;
        Ok(summary_of(&answer, &mut asker.kept))
    })
}

/// The topics that a filter matches (NULL: all), sorted by name: `*topics` gets the first of `*count` rows.
///
/// The rows are the observer's, and valid until the next call on it. One thread uses an observer at a time. Outcomes and errors as of
/// `rbmq_observer_summary`, and `RB_ERR_NAME`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_observer_topics(
    observer: *mut rbmq_observer,
    filter: *const c_char,
    topics: *mut *const rbmq_topic_stats,
    count: *mut usize,
) -> rb_status {
    call(|| {
        places(topics, count)?;
        let asker = &mut *exclusive::<Asker>(observer)?;
        asker.forget();
        let filter = optional_text(filter, "the filter")?.map(str::parse::<TopicFilter>).transpose();
        let filter = filter.map_err(|error| Failure::of(RB_ERR_NAME, error))?;
        let answer = asker.observer.topics(filter.as_ref())?;
        asker.topics = answer.iter().map(|topic| topic_of(topic, &mut asker.kept)).collect();
        put(topics, asker.topics.as_ptr());
        put(count, asker.topics.len());
        Ok(())
    })
}

/// The buffers of a topic with all their subscriptions, the oldest first: `*buffers` gets the first of `*count` rows. A topic that does not
/// exist has none.
///
/// The rows are the observer's, and valid until the next call on it. One thread uses an observer at a time. Outcomes and errors as of
/// `rbmq_observer_topics`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_observer_topic(
    observer: *mut rbmq_observer,
    topic: *const c_char,
    buffers: *mut *const rbmq_buffer_stats,
    count: *mut usize,
) -> rb_status {
    call(|| {
        places(buffers, count)?;
        let asker = &mut *exclusive::<Asker>(observer)?;
        asker.forget();
        let topic = text(topic, "the topic")?.parse::<TopicName>();
        let topic = topic.map_err(|error| Failure::of(RB_ERR_NAME, error))?;
        let answer = asker.observer.topic(&topic)?;
        answer.buffers.iter().for_each(|buffer| asker.keep(buffer));
        put(buffers, asker.buffers.as_ptr());
        put(count, asker.buffers.len());
        Ok(())
    })
}

fn places<T>(rows: *mut *const T, count: *mut usize) -> Outcome {
    place(rows, "the place for the rows")?;
    place(count, "the place for the number of rows")
}

/// Closes the connection, and frees the observer. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_observer_free(observer: *mut rbmq_observer) -> rb_status {
    call(|| if observer.is_null() { Ok(()) } else { take::<Asker>(observer).map(drop) })
}
