//! The publishing end of the client library.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::Duration;

use rocketbufs::fields::printable;
use rocketbufs::{Bid, BufferError, BufferOptions, Config, Conn, Context, ControlError, OutEvent, ROut};
use tracing::debug;

use super::confirm::{Confirms, Level, Questions};
use super::error::{ConnectError, PublisherWaitError, TopicOpenError};
use super::link::{Link, lock, own_context, send_patiently, wait_while};
use super::writer::TopicWriter;
use crate::wire::{Control, Framing, RefuseCode, Role, TopicName};

/// How long closing may take, unless it is said otherwise.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How a publisher connects.
#[derive(Clone, Default)]
pub struct PublisherBuilder {
    name: String,
    config: Config,
    context: Option<Context>,
}

/// How a topic is opened for publishing.
#[derive(Debug, Clone)]
pub struct TopicOptions {
    /// Capacity of the topic's ring here (and at the broker), in bytes; rounded up to a power of two. None: as
    /// configured (`buffers.size_bytes`, 1 MiB).
    pub ring_bytes: Option<u64>,
    /// The largest delivery in bytes, the headers of its records (4 bytes each) included. The ring has room for two of
    /// them at least, whatever `ring_bytes` says. None: a quarter of the ring. Large messages go fastest through rings
    /// of few of them, as those stay in the processor's cache.
    pub max_delivery_bytes: Option<u64>,
    /// Whether records or plain bytes are published.
    pub framing: Framing,
    /// How long to wait for the broker to take the topic.
    pub timeout: Duration,
    /// Keeps what was published in the ring here until it is delivered, not only until the broker has it: then a
    /// broker that dies takes nothing with it. The ring holds what is under way to the subscribers; use a larger one for
    /// slow ones.
    pub keep_until_delivered: bool,
    /// How many subscribers there must be, at the ends of all ways. While fewer are connected publishing waits
    /// ([`PublishError::TooFewSubscribers`](crate::PublishError::TooFewSubscribers) where it may not wait longer). While
    /// fewer have a place, those away whose place is kept included, nothing is confirmed as delivered or consumed, and the
    /// broker keeps what it has for those who come back; with `keep_until_delivered` also a broker that was restarted
    /// does. Where some went for good and those who came instead began behind, that is told as
    /// [`ConfirmError::TooFew`](crate::ConfirmError::TooFew). 0: as many as there are. Refused by topics that the broker
    /// merges.
    pub min_subscribers: u32,
    /// Most confirmations that wait at a time; each costs about 200 bytes.
    pub max_confirmations: usize,
}

impl Default for TopicOptions {
    fn default() -> Self {
        Self {
            ring_bytes: None,
            max_delivery_bytes: None,
            framing: Framing::Records,
            timeout: Duration::from_secs(10),
            keep_until_delivered: false,
            min_subscribers: 0,
            max_confirmations: 65_536,
        }
    }
}

impl PublisherBuilder {
    /// What people see in the broker's log.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The framework's configuration, for a context of this publisher's own.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Shares the memory and threads of a context that exists. What the broker has not taken is then kept while it is
    /// away for `limits.max_hold_ms` of that context at most; a context of the publisher's own keeps it for ever.
    pub fn context(mut self, context: &Context) -> Self {
        self.context = Some(context.clone());
        self
    }

    /// Connects to a broker.
    ///
    /// # Errors
    /// Nobody answered, the broker refused, or this process lacks memory or threads.
    pub fn connect(mut self, addr: &str) -> Result<Publisher, ConnectError> {
        let ctx = match self.context {
            Some(context) => context,
            None => {
                // A publisher waits for its broker rather than forget what it published: its place is kept.
                self.config.limits.max_hold_ms = u32::MAX;
                own_context(self.config)?
            }
        };
        let out = ROut::new(&ctx);
        let topics: Topics = Arc::default();
        let (table, answers) = (topics.clone(), topics.clone());
        out.set_control_msg_cb(move |conn, message| on_control(&answers, conn, message));
        let asks = Asks::default();
        hear_confirmations(&out, &topics, &asks);
        let conns = out.clone();
        let buffers = out.clone();
        let link =
            Link::connect(&ctx, addr, (Role::Publisher, &self.name), move |conn| conns.add_conn(conn))?;
        let name_again = move |conn: &Conn| {
            // Without the lock, which the worker that makes room for more names may wait for. A topic that is being
            // opened may be named twice, which is answered twice and does no harm.
            let known: Vec<_> = lock(&table).values().cloned().collect();
            for topic in known {
                match buffers.buffer(topic.bid) {
                    Some(_) => topic.begin(conn),
                    // It was closed, and a broker has had all of it and knew that. Only its answer was lost.
                    None => topic.update(|state| state.ended = true),
                }
            }
        };
        // Nobody takes over a publisher's place but itself.
        link.watch(name_again, |_| {})?;
        let inner = Inner { link, out, topics, ctx, next_bid: AtomicU32::new(0) };
        let inner = Arc::new(inner);
        let _ = asks.set(Arc::downgrade(&inner));
        Ok(Publisher { inner })
    }
}

/// Publishes to a broker. Reconnects by itself; what was published and not yet taken by the broker is sent when it is
/// back, as long as this process lives.
///
/// ```
/// # use rbmq_broker::{Broker, BrokerConfig};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut config = BrokerConfig::default();
/// # config.broker.listen = "127.0.0.1:0".into();
/// # let broker = Broker::start(config)?;
/// # let addr = broker.addr();
/// use rbmq::Publisher;
///
/// let publisher = Publisher::connect(&addr)?;
/// let mut news = publisher.topic("news")?;
/// for n in 0..1000 {
///     news.publish(format!("message {n}").as_bytes())?;
/// }
/// news.close()?;
/// # Ok(())
/// # }
/// ```
pub struct Publisher {
    inner: Arc<Inner>,
}

/// What a publisher shares with its topics' writers.
pub(super) struct Inner {
    pub(super) link: Link,
    pub(super) out: ROut,
    topics: Topics,
    ctx: Context,
    next_bid: AtomicU32,
}

type Topics = Arc<Mutex<HashMap<Bid, Arc<TopicState>>>>;

/// What the broker says about a topic of this publisher.
pub(super) struct TopicState {
    pub(super) topic: TopicName,
    pub(super) bid: Bid,
    pub(super) framing: Framing,
    ring_bytes: u64,
    max_delivery_bytes: u64,
    pub(super) min_subscribers: u32,
    /// Nothing may be written before it is known why: a refusal, or too few subscribers. Looked at for every record; set
    /// under `state`.
    pub(super) stopped: AtomicBool,
    pub(super) confirms: Arc<Confirms>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    taken: bool,
    ended: bool,
    refusal: Option<(RefuseCode, String)>,
    subscribers: u32,
}

impl TopicState {
    /// Names the topic on a connection. What the broker said on an earlier one no longer counts, but for the end.
    fn begin(&self, conn: &Conn) {
        let mut state = lock(&self.state);
        *state = State { ended: state.ended, ..State::default() };
        self.stopped.store(self.min_subscribers > 0, Ordering::Release);
        drop(state);
        let create = Control::Create {
            bid: self.bid,
            framing: self.framing,
            ring_bytes: self.ring_bytes,
            max_delivery_bytes: self.max_delivery_bytes,
            min_subscribers: self.min_subscribers,
            topic: self.topic.clone(),
        };
        match send_patiently(conn, &create) {
            Ok(()) => {}
            Err(error @ ControlError::TooLarge { .. }) => {
                let reason = format!("it cannot be named to the broker: {error}");
                self.confirms.refuse(&reason);
                self.update(|state| state.refusal = Some((RefuseCode::Internal, reason)));
            }
            // The next connection begins again.
            Err(error) => debug!("topic '{}' was not named to the broker: {error}", self.topic),
        }
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.state);
        change(&mut state);
        let stopped = state.refusal.is_some() || state.subscribers < self.min_subscribers;
        self.stopped.store(stopped, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    fn wait(&self, timeout: Duration, mut done: impl FnMut(&State) -> bool) -> bool {
        wait_while(&self.state, &self.changed, timeout, |state| !done(state))
    }

    pub(super) fn refusal(&self) -> Option<(RefuseCode, String)> {
        lock(&self.state).refusal.clone()
    }

    pub(super) fn subscribers(&self) -> u32 {
        lock(&self.state).subscribers
    }

    /// Waits until there are enough subscribers to publish, or a refusal; how many there are, if they are too few then.
    pub(super) fn too_few(&self, timeout: Duration) -> Option<u32> {
        if !self.stopped.load(Ordering::Acquire) {
            return None;
        }
        let least = self.min_subscribers;
        let go_on = self.wait(timeout, |state| state.subscribers >= least || state.refusal.is_some());
        (!go_on).then(|| self.subscribers())
    }

    /// Waits until the topic has `wanted` subscribers.
    pub(super) fn wait_subscribers(&self, wanted: u32, waited: Duration) -> Result<(), PublisherWaitError> {
        self.wait(waited, |state| state.subscribers >= wanted || state.refusal.is_some());
        let (present, topic) = (self.subscribers(), self.topic.clone());
        match self.refusal() {
            Some((_, reason)) => Err(PublisherWaitError::Refused { topic, reason }),
            None if present < wanted => {
                Err(PublisherWaitError::Subscribers { topic, present, wanted, waited })
            }
            None => Ok(()),
        }
    }

    /// Waits until the broker knows the end of the topic's log.
    pub(super) fn wait_ended(&self, timeout: Duration) -> bool {
        self.wait(timeout, |state| state.ended || state.refusal.is_some()) && lock(&self.state).ended
    }
}

/// The publisher, once it is made: the worker asks the broker in its name.
type Asks = Arc<OnceLock<Weak<Inner>>>;

/// Has what the broker confirms, and what it does not go on with, told to those who wait.
fn hear_confirmations(out: &ROut, topics: &Topics, asks: &Asks) {
    let (table, inner) = (topics.clone(), asks.clone());
    out.set_subscriber_progress_cb(move |told| {
        let Some(topic) = lock(&table).get(&told.bid).cloned() else { return };
        let levels = [told.landed, told.delivered, told.consumed];
        ask_from_worker(&inner, told.bid, topic.confirms.progress(levels, told.coverage));
    });
    let (table, inner) = (topics.clone(), asks.clone());
    out.set_event_cb(move |event| match event {
        OutEvent::Subscribed { bid, start, resumed, .. } => {
            let Some(topic) = lock(&table).get(&bid).cloned() else { return };
            ask_from_worker(&inner, bid, topic.confirms.subscribed(start, resumed));
        }
        OutEvent::Dropped { bid, from, to, .. } => {
            let Some(topic) = lock(&table).get(&bid).cloned() else { return };
            topic.confirms.lost(from, to);
        }
        _ => {}
    });
}

fn ask_from_worker(asks: &Asks, bid: Bid, questions: Questions) {
    if let Some(inner) = asks.get().and_then(Weak::upgrade) {
        inner.ask(bid, questions);
    }
}

fn on_control(topics: &Topics, conn: &Conn, message: &[u8]) {
    let message = match Control::decode(message) {
        Ok(message) => message,
        Err(error) => return conn.close(&error.to_string()),
    };
    let find = |bid: Bid| lock(topics).get(&bid).cloned();
    match message {
        Control::Created { bid } => find(bid).into_iter().for_each(|t| t.update(|s| s.taken = true)),
        Control::Refused { bid, code, reason } => {
            if let Some(topic) = find(bid) {
                let reason = printable(&reason);
                // Whoever opens it, publishes or waits is told.
                debug!("the broker refused topic '{}': {reason}", topic.topic);
                topic.confirms.refuse(&reason);
                topic.update(|state| state.refusal = Some((code, reason)));
            }
        }
        Control::Ended { bid, .. } => find(bid).into_iter().for_each(|t| t.update(|s| s.ended = true)),
        Control::Subscribers { bid, count } => {
            find(bid).into_iter().for_each(|t| t.update(|s| s.subscribers = count));
        }
        _ => conn.close("the broker sent a message that is not for publishers"),
    }
}

impl Publisher {
    /// Connects to a broker with the defaults.
    ///
    /// # Errors
    /// As [`PublisherBuilder::connect`].
    pub fn connect(addr: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(addr)
    }

    /// Connects with options.
    pub fn builder() -> PublisherBuilder {
        PublisherBuilder::default()
    }

    /// Opens a topic for records, with the defaults.
    ///
    /// # Errors
    /// As [`Publisher::topic_with`].
    pub fn topic(&self, name: &str) -> Result<TopicWriter, TopicOpenError> {
        self.topic_with(name, TopicOptions::default())
    }

    /// Opens a topic: makes its buffer here and waits until the broker has taken it.
    ///
    /// # Errors
    /// No such name is possible, no memory, the broker refused (with its reason), or it did not answer in time.
    pub fn topic_with(&self, name: &str, options: TopicOptions) -> Result<TopicWriter, TopicOpenError> {
        let topic: TopicName = name.parse()?;
        let inner = &self.inner;
        let ring_bytes = options.ring_bytes.unwrap_or(inner.ctx.config().buffers.size_bytes);
        let ring_bytes = ring_bytes.max(options.max_delivery_bytes.unwrap_or(0).saturating_mul(2));
        let bid = inner.next_bid.fetch_add(1, Ordering::Relaxed);
        let no_buffer = |source| TopicOpenError::Buffer { topic: topic.clone(), source };
        let buffer = BufferOptions::new()
            .size_bytes(ring_bytes)
            .max_delivery_bytes(options.max_delivery_bytes)
            .keep_until_delivered(options.keep_until_delivered);
        let buffer = inner.out.create_buffer_with(bid, buffer).map_err(no_buffer)?;
        let writer = buffer.writer().map_err(no_buffer)?;
        let info = buffer.info().ok_or(BufferError::NoSuchBuffer(bid)).map_err(no_buffer)?;
        let state = Arc::new(TopicState {
            topic: topic.clone(),
            bid,
            framing: options.framing,
            ring_bytes: info.capacity_bytes,
            max_delivery_bytes: info.max_delivery_bytes,
            min_subscribers: options.min_subscribers,
            stopped: AtomicBool::new(options.min_subscribers > 0),
            confirms: Arc::new(Confirms::new(
                topic.clone(),
                (options.max_confirmations, options.min_subscribers),
            )),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        // In this order: whoever names the topics again on a new connection finds it, or it is named on that one.
        lock(&inner.topics).insert(bid, state.clone());
        state.begin(&inner.link.conn());
        let writer = TopicWriter::new(inner.clone(), state.clone(), writer, info.max_delivery_bytes);
        let waited = options.timeout;
        state.wait(waited, |s| s.taken || s.refusal.is_some());
        if let Some((code, reason)) = state.refusal() {
            return Err(TopicOpenError::Refused { topic, code, reason });
        }
        if !lock(&state.state).taken {
            let last_error = inner.link.last_error();
            return Err(TopicOpenError::TimedOut { topic, waited, last_error });
        }
        Ok(writer)
    }

    /// Whether there is a connection to the broker now.
    pub fn is_connected(&self) -> bool {
        self.inner.link.conn().is_up()
    }

    /// Ends the connection in order; topics should be closed before. Waits at most 10 s.
    pub fn close(self) {
        self.inner.link.close(CLOSE_TIMEOUT);
    }
}

impl Inner {
    /// Asks the broker to tell as soon as these are confirmed.
    pub(super) fn ask(&self, bid: Bid, questions: Questions) {
        let Some(buffer) = self.out.buffer(bid) else { return };
        for (level, position) in Level::ALL.into_iter().zip(questions) {
            if let Some(position) = position {
                buffer.request_confirm(level.framework(), position);
            }
        }
    }

    /// A topic is over.
    pub(super) fn forget(&self, bid: Bid) {
        lock(&self.topics).remove(&bid);
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("conn", &self.inner.link.conn()).finish()
    }
}
