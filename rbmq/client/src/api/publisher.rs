//! A publisher: a connection and the topics that are published over it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use rocketbufs::error::BufferError;
use rocketbufs::fields::printable;
use rocketbufs::{Bid, BufferOptions, Config, Conn, Context, OutEvent, ROut};
use tracing::debug;

use crate::api::writer::TopicWriter;
use crate::connection::{Connection, lock, own_context};
use crate::ground::error::{ConnectError, Over, TopicEnd, TopicOpenError};
use crate::ground::login::{Login, login_setters};
use crate::state::confirm::{Confirmations, Requests, send_requests};
use crate::state::disk_asks::DiskAsks;
use crate::state::event::{PublisherEvent, PublisherEvents};
use crate::state::topic_state::{CLOSE_TIMEOUT, PublisherShared, TopicState, Topics, end, end_topics};
use crate::wire::{Control, Framing, Role, TopicName};

/// Options of a [`Publisher`].
#[derive(Clone, Default)]
pub struct PublisherBuilder {
    name: String,
    config: Config,
    context: Option<Context>,
    login: Login,
}

/// How a topic is opened for publishing.
///
/// ```
/// use rbmq::{Framing, TopicOptions};
/// let options = TopicOptions::default().framing(Framing::Raw).ring_bytes(16 << 20);
/// ```
#[derive(Debug, Clone)]
pub struct TopicOptions {
    ring_bytes: Option<u64>,
    max_delivery_bytes: Option<u64>,
    framing: Framing,
    pub(crate) open_timeout: Option<Duration>,
    keep_until_delivered: bool,
    min_subscribers: u32,
    max_confirmations: usize,
}

impl Default for TopicOptions {
    fn default() -> Self {
        Self {
            ring_bytes: None,
            max_delivery_bytes: None,
            framing: Framing::Records,
            open_timeout: Some(Duration::from_secs(10)),
            keep_until_delivered: false,
            min_subscribers: 0,
            max_confirmations: 65_536,
        }
    }
}

option_setters::setters! { TopicOptions:
    /// Capacity of the topic's ring, in this process and at the broker, in bytes; rounded up to a power of two. Default:
    /// `buffers.size_bytes` of the configuration (1 MiB).
    ring_bytes(bytes: u64) = Some(bytes);
    /// The largest delivery in bytes, including 4 bytes of header for each record. The ring has room for at least two such
    /// deliveries, whatever [`TopicOptions::ring_bytes`] says. Default: a quarter of the ring. Large messages are fastest in a
    /// ring of a few of them, which stays in the processor's cache.
    max_delivery_bytes(bytes: u64) = Some(bytes);
    /// Whether records (the default) or plain bytes are published.
    framing(framing: Framing);
    /// How long opening waits for the broker to take the topic; none: no limit. Default: 10 s.
    open_timeout(timeout: Option<Duration>);
    /// With true, keeps published records in this process until they are delivered, and not only until the broker has them. Then
    /// a broker that dies loses nothing. The ring holds everything that is on its way to the subscribers: slow subscribers need
    /// a larger one.
    keep_until_delivered(keep: bool);
    /// The least number of subscribers, at the ends of all chains of brokers. Default: 0, no requirement. While fewer are
    /// connected, publishing waits, and fails with
    /// [`PublishError::TooFewSubscribers`](crate::PublishError::TooFewSubscribers) after its time-out. While fewer have a place
    /// (offline durable subscribers included), nothing is confirmed as delivered or consumed, and the broker keeps its records
    /// for subscribers that return. A restarted broker does so too with [`TopicOptions::keep_until_delivered`]. If some
    /// subscribers leave for good and their successors begin later, confirmations fail with
    /// [`ConfirmError::TooFew`](crate::ConfirmError::TooFew). Topics that the broker merges refuse this option.
    min_subscribers(count: u32);
    /// The most confirmations that wait at a time. Each costs about 200 bytes. Default: 65,536.
    max_confirmations(count: usize);
}

login_setters!(PublisherBuilder);

impl PublisherBuilder {
    /// Connects to a broker. Waits until it accepts, at most `session.connect_timeout_ms` of the configuration.
    ///
    /// # Errors
    /// No broker answers at the address, the broker refuses, or this process lacks memory or threads.
    pub fn connect(mut self, addr: &str) -> Result<Publisher, ConnectError> {
        let context = match self.context {
            Some(context) => context,
            None => {
                // A publisher waits for its broker rather than give up records: the place of the broker never expires.
                self.config.limits.max_hold_ms = u32::MAX;
                own_context(self.config)?
            }
        };
        let out = Arc::new(ROut::new(&context));
        let (topics, events) = (Topics::default(), Arc::<PublisherEvents>::default());
        let (known, asks) = (topics.clone(), Arc::<DiskAsks>::default());
        let unsent = asks.clone();
        out.set_control_msg_cb(move |conn, message| on_control(&known, &unsent, conn, message));
        follow_confirmations(&out, &topics, &events);
        let conns = out.as_ref().clone();
        let on_start = move |conn: &Conn| conns.add_conn(conn);
        let connection =
            Connection::connect(&context, addr, Role::Publisher, &self.name, &self.login, on_start)?;
        let shared = PublisherShared { connection, out, topics, events, asks };
        shared.reconnect()?;
        Ok(Publisher { shared: Arc::new(shared), context, next_bid: AtomicU32::new(0) })
    }
}

option_setters::setters! { PublisherBuilder:
    /// The name in the broker's log and in `rbmq top`.
    name(name: &str) = name.to_owned();
    /// The framework's configuration, for a context of this publisher's own.
    config(config: Config);
    /// Shares the memory and the threads of an existing context. Records that the broker has not accepted are then kept for
    /// `limits.max_hold_ms` of that context while the broker is away. A context of the publisher's own keeps them for ever.
    context(context: &Context) = Some(context.clone());
}

impl PublisherShared {
    /// Starts to replace lost connections. The topics are named again on every new connection.
    fn reconnect(&self) -> Result<(), ConnectError> {
        let (topics, buffers) = (self.topics.clone(), self.out.as_ref().clone());
        let (down, up) = (self.events.clone(), self.events.clone());
        let on_down = move |why: &str| down.push(PublisherEvent::Disconnected(why.to_owned()));
        let on_up = move |conn: &Conn| {
            // Not under the lock: the worker that makes room for more messages may wait for it. A topic that is being opened may
            // be named twice. The broker answers twice, which does no harm.
            let known: Vec<_> = lock(&topics).values().cloned().collect();
            for topic in known {
                match buffers.buffer(topic.bid) {
                    Some(_) => topic.create(conn),
                    // The topic was closed, and the broker has its end. Only the answer was lost.
                    None => topic.update(|state| state.ended = true),
                }
            }
            up.push(PublisherEvent::Reconnected);
        };
        let (topics, events) = (self.topics.clone(), self.events.clone());
        let on_shutdown = move || {
            end_topics(&topics, Over::ShutDown);
            end(&topics, &events, Over::ShutDown);
        };
        // No other client takes over the place of a publisher.
        self.connection.watch(on_down, on_up, |_| {}, on_shutdown)
    }
}

/// Publishes to a broker. The publisher reconnects by itself. Records that the broker has not accepted are sent when the
/// connection is back, as long as this process lives.
///
/// All methods may be called from several threads at once. Each topic has a [`TopicWriter`], which one thread uses at a time.
/// Dropping a publisher closes the connection once its writers are dropped too. Records that are still on their way may then
/// be lost: close the writers, or call [`TopicWriter::flush`] before.
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
    shared: Arc<PublisherShared>,
    context: Context,
    next_bid: AtomicU32,
}

/// Passes the framework's reports to the confirmations and the events. The callbacks hold the rOut weakly, since the rOut owns
/// them.
fn follow_confirmations(out: &Arc<ROut>, topics: &Topics, events: &Arc<PublisherEvents>) {
    let (known, weak) = (topics.clone(), Arc::downgrade(out));
    out.set_subscriber_progress_cb(move |progress| {
        let Some(topic) = find(&known, progress.bid) else { return };
        let positions = [progress.landed, progress.delivered, progress.consumed];
        let requests = topic.confirmations.on_progress(positions, progress.coverage);
        if let Some(out) = weak.upgrade() {
            send_requests(&out, progress.bid, &requests);
        }
    });
    let (known, weak, events): (_, Weak<ROut>, _) = (topics.clone(), Arc::downgrade(out), events.clone());
    out.set_event_cb(move |event| match event {
        OutEvent::Subscribed { bid, start, resumed, .. } => {
            let Some(topic) = find(&known, bid) else { return };
            let requests = topic.confirmations.on_subscribed(start, resumed);
            if let Some(out) = weak.upgrade() {
                send_requests(&out, bid, &requests);
            }
        }
        OutEvent::Dropped { bid, from, to, .. } => {
            if let Some(topic) = find(&known, bid) {
                topic.confirmations.on_lost(from, to);
            }
        }
        OutEvent::Progress { bid } => {
            if let Some(topic) = find(&known, bid) {
                events.push(PublisherEvent::Room { topic: topic.topic.clone() });
            }
        }
        _ => {}
    });
}

fn find(topics: &Topics, bid: Bid) -> Option<Arc<TopicState>> {
    lock(topics).get(&bid).cloned()
}

fn on_control(topics: &Topics, asks: &DiskAsks, conn: &Conn, message: &[u8]) {
    let message = match Control::decode(message) {
        Ok(message) => message,
        Err(error) => return conn.close(&error.to_string()),
    };
    let ask = |bid, requests: Requests| {
        requests.of_disk.into_iter().for_each(|wanted| asks.send(conn, bid, wanted));
    };
    match message {
        Control::Created { bid } => on_topic(topics, bid, |topic| {
            topic.update(|state| state.accepted = true);
            ask(bid, topic.confirmations.on_created());
        }),
        Control::Refused { bid, code, reason } => on_topic(topics, bid, |topic| {
            let reason = printable(&reason);
            debug!("the broker refused topic '{}': {reason}", topic.topic);
            topic.on_refused(code, reason);
        }),
        Control::Ended { bid, .. } => on_topic(topics, bid, |topic| topic.update(|state| state.ended = true)),
        Control::Stored { bid, position, synced } => on_topic(topics, bid, |topic| {
            ask(bid, topic.confirmations.on_stored(position, synced));
        }),
        Control::NotStored { bid, reason } => {
            on_topic(topics, bid, |topic| topic.confirmations.on_not_stored(&printable(&reason)));
        }
        Control::Disk { bid, failure } => {
            on_topic(topics, bid, |topic| topic.on_disk(printable(&failure)));
        }
        Control::Subscribers { bid, count } => on_topic(topics, bid, |topic| topic.on_subscribers(count)),
        _ => conn.close("the broker sent a message that is not for publishers"),
    }
    asks.send_again(conn, |bid| find(topics, bid)?.confirmations.disk_request());
}

fn on_topic(topics: &Topics, bid: Bid, act: impl FnOnce(&TopicState)) {
    if let Some(topic) = find(topics, bid) {
        act(&topic);
    }
}

impl Publisher {
    /// Connects to a broker with the default options.
    ///
    /// # Errors
    /// As [`PublisherBuilder::connect`].
    pub fn connect(addr: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(addr)
    }

    /// Options for a connection.
    pub fn builder() -> PublisherBuilder {
        PublisherBuilder::default()
    }

    /// Opens a topic for records with the default options.
    ///
    /// # Errors
    /// As [`Publisher::topic_with`].
    pub fn topic(&self, name: &str) -> Result<TopicWriter, TopicOpenError> {
        self.topic_with(name, TopicOptions::default())
    }

    /// Opens a topic: creates its buffer in this process and waits until the broker has taken it, at most
    /// [`TopicOptions::open_timeout`].
    ///
    /// # Errors
    /// The name is not valid, there is no memory, the broker refuses (with its reason), or it does not answer in time.
    pub fn topic_with(&self, name: &str, options: TopicOptions) -> Result<TopicWriter, TopicOpenError> {
        let writer = self.begin(name, &options)?;
        writer.state.wait(options.open_timeout, |state| state.is_answered());
        self.opened(writer, options.open_timeout)
    }

    /// Creates the buffer of a topic, and names the topic to the broker.
    pub(crate) fn begin(&self, name: &str, options: &TopicOptions) -> Result<TopicWriter, TopicOpenError> {
        let topic: TopicName = name.parse()?;
        let shared = &self.shared;
        if let Some(over) = shared.connection.over() {
            return Err(TopicEnd::Over(over).of_open(topic));
        }
        let ring_bytes = options.ring_bytes.unwrap_or(self.context.config().buffers.size_bytes);
        let ring_bytes = ring_bytes.max(options.max_delivery_bytes.unwrap_or(0).saturating_mul(2));
        let bid = self.next_bid.fetch_add(1, Ordering::Relaxed);
        let no_buffer = |source| TopicOpenError::Buffer { topic: topic.clone(), source };
        let buffer = BufferOptions::new()
            .size_bytes(ring_bytes)
            .max_delivery_bytes(options.max_delivery_bytes)
            .keep_until_delivered(options.keep_until_delivered);
        let buffer = shared.out.create_buffer_with(bid, buffer).map_err(no_buffer)?;
        let writer = buffer.writer().map_err(no_buffer)?;
        let info = buffer.info().ok_or(BufferError::NoSuchBuffer(bid)).map_err(no_buffer)?;
        let confirmations =
            Confirmations::new(topic.clone(), options.max_confirmations, options.min_subscribers);
        let state = Arc::new(TopicState {
            topic: topic.clone(),
            bid,
            framing: options.framing,
            ring_bytes: info.capacity_bytes,
            max_delivery_bytes: info.max_delivery_bytes,
            min_subscribers: options.min_subscribers,
            stopped: AtomicBool::new(options.min_subscribers > 0),
            confirmations: Arc::new(confirmations),
            state: Mutex::default(),
            changed: Condvar::new(),
            task: Mutex::default(),
            events: shared.events.clone(),
        });
        // In this order: a new connection either finds the topic and names it, or the topic is named on that connection here.
        lock(&shared.topics).insert(bid, state.clone());
        state.create(&shared.connection.conn());
        // An end that comes after this finds the topic.
        if let Some(over) = shared.connection.over() {
            state.update(|state| state.over = Some(over));
        }
        Ok(TopicWriter::new(shared.clone(), state, writer, info.max_delivery_bytes))
    }

    /// The writer, if the broker has taken the topic. The answer was waited for for `timeout`.
    pub(crate) fn opened(
        &self,
        writer: TopicWriter,
        timeout: Option<Duration>,
    ) -> Result<TopicWriter, TopicOpenError> {
        let topic = writer.topic().clone();
        if let Some(end) = writer.state.end() {
            return Err(end.of_open(topic));
        }
        if !lock(&writer.state.state).accepted {
            let (waited, last_error) = (timeout.unwrap_or_default(), self.shared.connection.last_error());
            return Err(TopicOpenError::TimedOut { topic, waited, last_error });
        }
        Ok(writer)
    }

    /// The next event, waiting at most `timeout` (none: no limit); none if nothing happened in that time. Events are collected
    /// from the first call of this method or of [`Publisher::pollable`] on, at most 256. An application that ignores events
    /// needs neither: losses and refusals are also errors of the calls that they concern.
    pub fn next_event(&self, timeout: Option<Duration>) -> Option<PublisherEvent> {
        self.shared.events.recv(timeout)
    }

    /// A descriptor that is readable while [`Publisher::next_event`] would return an event. The application's event loop may
    /// only poll it. A program that must not wait publishes with a time-out of zero, and tries again after
    /// [`PublisherEvent::Room`].
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pollable(&self) -> io::Result<BorrowedFd<'_>> {
        self.shared.events.pollable()
    }

    /// Whether the connection to the broker is up.
    pub fn is_connected(&self) -> bool {
        self.shared.connection.conn().is_up()
    }

    /// Closes the connection after the queued data. Waits at most 10 s. Close the topics before: afterwards their writers take
    /// nothing more, and calls that wait fail as closed.
    pub fn close(self) {
        self.close_timeout(Some(CLOSE_TIMEOUT));
    }

    /// As [`Publisher::close`], waiting at most `timeout` (none: no limit). Other threads may be in calls, which end.
    pub fn close_timeout(&self, timeout: Option<Duration>) {
        self.shared.end_topics(Over::Closed);
        self.shared.connection.close(timeout);
        self.shared.end(Over::Closed);
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("conn", &self.shared.connection.conn()).finish()
    }
}
