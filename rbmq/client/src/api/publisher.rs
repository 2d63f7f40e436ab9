//! A publisher: a connection and the topics that are published over it.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::Duration;

use rocketbufs::error::BufferError;
use rocketbufs::fields::printable;
use rocketbufs::{Bid, BufferOptions, Config, Conn, Context, OutEvent, OutWriter, ROut};
use tracing::debug;

use crate::api::space_writer::SpaceWriter;
use crate::api::writer::TopicWriter;
use crate::connection::{Connection, hello, lock, own_context};
use crate::ground::deadline::Deadline;
use crate::ground::error::{ConnectError, Over, TopicEnd, TopicOpenError};
use crate::ground::login::{Login, login_setters};
use crate::state::confirm::{Confirmations, Requests, send_requests};
use crate::state::conn_places::{ConnPlaces, HOME, PlaceId};
use crate::state::disk_asks::DiskAsks;
use crate::state::elsewhere::{Dial, Elsewhere};
use crate::state::event::{PublisherEvent, PublisherEvents};
use crate::state::publisher_shared::{PublisherShared, end, end_topics};
use crate::state::space_log::{LogUser, Output, SpaceLog, SpaceLogs};
use crate::state::topic_state::{CLOSE_TIMEOUT, Names, TopicState, Topics};
use crate::wire::{AttributesBuf, Control, Framing, RefuseCode, Role, Space, TopicFilter, TopicName};

/// Options of a [`Publisher`].
#[derive(Clone, Default)]
pub struct PublisherBuilder {
    name: String,
    config: Config,
    context: Option<Context>,
    login: Login,
    login_elsewhere: Option<Login>,
    resume_when: Option<Arc<ResumeWhen>>,
}

/// Whether a broker process may get the topics now.
type ResumeWhen = dyn Fn(u128) -> bool + Send + Sync;

/// How often that is asked.
const RESUME_STEP: Duration = Duration::from_millis(5);

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
    /// deliveries, whatever [`TopicOptions::ring_bytes`] says. Default: a quarter of the ring, and more once a larger record is
    /// published, up to the broker's `max_message_bytes`. Large messages are fastest in a ring of a few of them, which stays in the
    /// processor's cache.
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

impl TopicOptions {
    fn buffer(&self, config: &Config) -> BufferOptions {
        let ring_bytes = self.ring_bytes.unwrap_or(config.buffers.size_bytes);
        BufferOptions::new()
            .size_bytes(ring_bytes.max(self.max_delivery_bytes.unwrap_or(0).saturating_mul(2)))
            .max_delivery_bytes(self.max_delivery_bytes)
            .keep_until_delivered(self.keep_until_delivered)
    }

    /// What the log of a space has otherwise than these options want.
    fn differ_from(&self, log: &SpaceLog) -> Option<String> {
        let state = &log.state;
        if self.framing != Framing::Records {
            return Some("records, while this topic is to have plain bytes".into());
        }
        if self.keep_until_delivered != log.keep_until_delivered {
            return Some(format!("keep_until_delivered = {}", log.keep_until_delivered));
        }
        if self.min_subscribers != state.min_subscribers {
            return Some(format!("min_subscribers = {}", state.min_subscribers));
        }
        let wanted = self.max_delivery_bytes.filter(|wanted| *wanted > state.max_delivery_bytes());
        wanted.map(|_| format!("max_delivery_bytes = {}", state.max_delivery_bytes()))
    }
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
        let (asks, conns, weak) =
            (Arc::<DiskAsks>::default(), Arc::<ConnPlaces>::default(), Arc::<OnceLock<_>>::default());
        let control = Answers {
            topics: topics.clone(),
            asks: asks.clone(),
            conns: conns.clone(),
            publisher: Arc::clone(&weak),
        };
        out.set_control_msg_cb(move |conn, message| control.on_control(conn, message));
        follow_confirmations(&out, &topics);
        let (home, added) = (conns.clone(), out.as_ref().clone());
        let on_start = move |conn: &Conn| {
            home.begin(conn, HOME);
            added.add_conn(conn);
        };
        let own = hello(Role::Publisher, &self.name)?;
        // Everywhere the same publisher: a broker knows it again, whether it was at home there or not. One that turns out to be the one at home
        // gets a connection for another.
        let connection = Connection::connect(&context, addr, own.clone(), &self.login, on_start)?;
        let login = self.login_elsewhere.unwrap_or_else(|| self.login.named_by(addr));
        let dial = Dial { context: context.clone(), hello: own, login };
        let elsewhere = Elsewhere::new(dial, conns);
        let shared = Arc::new(PublisherShared {
            connection,
            out,
            topics,
            events,
            asks,
            elsewhere,
            weak: weak.clone(),
        });
        let _ = weak.set(Arc::downgrade(&shared));
        shared.reconnect(self.resume_when)?;
        let (next_bid, next_writer, opening) = (AtomicU32::new(0), AtomicU64::new(0), Mutex::default());
        let spaces = Arc::default();
        Ok(Publisher { shared, context, next_bid, next_writer, opening, spaces })
    }
}

impl PublisherBuilder {
    /// Logs in so at other brokers, to which the first one sends topics. It names their addresses, and is trusted with that: a part of its own process
    /// connects as the broker itself would. Default: as at the first one, where that is safe.
    #[doc(hidden)]
    #[must_use]
    pub fn login_elsewhere(mut self, login: Login) -> Self {
        self.login_elsewhere = Some(login);
        self
    }

    /// After a lost connection, the broker gets the topics only when this is true of the instance of its process. A program with a subscriber
    /// that is to miss nothing waits until that one receives there ([`Subscriber::receives_from`](crate::Subscriber::receives_from)): a broker
    /// that was restarted keeps for nobody what it is sent before.
    #[doc(hidden)]
    #[must_use]
    pub fn resume_when(mut self, ready: impl Fn(u128) -> bool + Send + Sync + 'static) -> Self {
        self.resume_when = Some(Arc::new(ready));
        self
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
    fn reconnect(&self, resume_when: Option<Arc<ResumeWhen>>) -> Result<(), ConnectError> {
        let (topics, buffers) = (self.topics.clone(), self.out.as_ref().clone());
        let (down, up) = (self.events.clone(), self.events.clone());
        let there = topics.clone();
        let on_down = move |why: &str| {
            let known: Vec<_> = lock(&there).values().cloned().collect();
            known.iter().filter(|topic| topic.place() == HOME).for_each(|topic| topic.on_away());
            down.push(PublisherEvent::Disconnected(why.to_owned()));
        };
        let on_up = move |conn: &Conn| {
            if let Some(ready) = &resume_when {
                while conn.is_up() && !ready(conn.peer_instance()) {
                    std::thread::sleep(RESUME_STEP);
                }
            }
            // Not under the lock: the worker that makes room for more messages may wait for it. A topic that is being opened may
            // be named twice. The broker answers twice, which does no harm.
            let known: Vec<_> = lock(&topics).values().cloned().collect();
            for topic in known.into_iter().filter(|topic| topic.place() == HOME) {
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
    /// Numbers the writers.
    next_writer: AtomicU64,
    /// Held while the log of a space is looked for and made.
    opening: Mutex<()>,
    spaces: Arc<SpaceLogs>,
}

/// How far the opening of a topic is.
pub(crate) enum Opened {
    Ready(TopicWriter),
    /// The topic is in a space, whose log is being opened.
    InSpace(TopicWriter),
}

/// Passes the framework's reports to the confirmations and the events. The callbacks hold the rOut weakly, since the rOut owns
/// them.
fn follow_confirmations(out: &Arc<ROut>, topics: &Topics) {
    let (known, weak) = (topics.clone(), Arc::downgrade(out));
    out.set_subscriber_progress_cb(move |progress| {
        let Some(topic) = find(&known, progress.bid) else { return };
        let positions = [progress.landed, progress.delivered, progress.consumed];
        let requests = topic.confirmations.on_progress(positions, progress.coverage);
        if let Some(out) = weak.upgrade() {
            send_requests(&out, progress.bid, &requests);
        }
    });
    let (known, weak): (_, Weak<ROut>) = (topics.clone(), Arc::downgrade(out));
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
                topic.on_room();
            }
        }
        _ => {}
    });
}

fn find(topics: &Topics, bid: Bid) -> Option<Arc<TopicState>> {
    lock(topics).get(&bid).cloned()
}

/// What brokers say about topics. Only the broker counts that has a topic, or is asked for it.
struct Answers {
    topics: Topics,
    asks: Arc<DiskAsks>,
    conns: Arc<ConnPlaces>,
    publisher: Arc<OnceLock<Weak<PublisherShared>>>,
}

impl Answers {
    fn on_control(&self, conn: &Conn, message: &[u8]) {
        let message = match Control::decode(message) {
            Ok(message) => message,
            Err(error) => return conn.close(&error.to_string()),
        };
        let Some(place) = self.conns.of(conn) else { return };
        match self.about(&message, place) {
            Ok(None) => conn.close("the broker sent a message that is not for publishers"),
            Ok(Some(topic)) => self.on_answer(conn, place, &topic, message),
            // The topic was closed, or is at another broker.
            Err(bid) => {
                let has_left = matches!(
                    message,
                    Control::Ended { .. } | Control::Refused { code: RefuseCode::Elsewhere, .. }
                );
                if let Some(publisher) = self.publisher().filter(|_| has_left) {
                    publisher.elsewhere.leave(place, bid);
                }
            }
        }
        self.asks.send_again(conn, |bid| find(&self.topics, bid)?.confirmations.disk_request());
    }

    fn publisher(&self) -> Option<Arc<PublisherShared>> {
        self.publisher.get().and_then(Weak::upgrade)
    }

    /// The topic that a message is about, if it is at the broker that says so; none if no broker sends this.
    fn about(&self, message: &Control, place: PlaceId) -> Result<Option<Arc<TopicState>>, Bid> {
        let (Control::Created { bid }
        | Control::Largest { bid, .. }
        | Control::Refused { bid, .. }
        | Control::Ended { bid, .. }
        | Control::Stored { bid, .. }
        | Control::NotStored { bid, .. }
        | Control::Disk { bid, .. }
        | Control::InSpace { bid, .. }
        | Control::Subscribers { bid, .. }) = message
        else {
            return Ok(None);
        };
        find(&self.topics, *bid).filter(|topic| topic.place() == place).map(Some).ok_or(*bid)
    }

    fn on_answer(&self, conn: &Conn, place: PlaceId, topic: &Arc<TopicState>, message: Control) {
        let ask = |requests: Requests| {
            requests.of_disk.into_iter().for_each(|wanted| self.asks.send(conn, topic.bid, wanted));
        };
        match message {
            Control::Created { .. } => {
                topic.on_created();
                ask(topic.confirmations.on_created());
            }
            Control::Largest { max_delivery_bytes, .. } => {
                topic.largest_bytes.store(max_delivery_bytes, Ordering::Relaxed);
            }
            Control::Refused { code: RefuseCode::Elsewhere, reason, .. } => {
                if let Some(publisher) = self.publisher() {
                    publisher.go_elsewhere(topic, place, &printable(&reason));
                }
            }
            Control::Refused { code, reason, .. } => {
                let reason = printable(&reason);
                debug!("the broker refused topic '{}': {reason}", topic.topic);
                topic.on_refused(code, reason);
            }
            Control::Ended { .. } => topic.update(|state| state.ended = true),
            Control::Stored { position, synced, archived, .. } => {
                lock(&topic.state).told = Some(position);
                ask(topic.confirmations.on_stored([position, synced, archived]));
            }
            Control::NotStored { is_of_archive, is_lost, reason, .. } => {
                topic.confirmations.on_not_stored(is_of_archive, is_lost, &printable(&reason));
            }
            Control::Disk { failure, .. } => topic.on_disk(printable(&failure)),
            Control::InSpace { more, space, before, .. } => {
                if let Err(error) = topic.on_in_space(more, space, before) {
                    conn.close(&error.to_string());
                }
            }
            Control::Subscribers { count, .. } => topic.on_subscribers(count),
            _ => {}
        }
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
        self.open(self.begin(name, &options)?, &options)
    }

    /// Opens a space with the default options, to publish to any of its topics by their names.
    ///
    /// # Errors
    /// As [`Publisher::space_with`].
    pub fn space(&self, pattern: &str) -> Result<SpaceWriter, TopicOpenError> {
        self.space_with(pattern, TopicOptions::default())
    }

    /// Opens a space: all topics of a pattern that the broker keeps in one log, because it has a rule of this pattern with
    /// `space = true`. The writer names the topic of each record. Topics of the same space that were opened by their names share the
    /// buffer with it.
    ///
    /// ```
    /// # use rbmq::{Attributes, Publisher};
    /// # use rbmq_broker::{Broker, BrokerConfig, Rule};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut config = BrokerConfig::default();
    /// # config.broker.listen = "127.0.0.1:0".into();
    /// # let mut rule = Rule::new("devices/#".parse()?);
    /// # rule.space = true;
    /// # config.broker.topics = vec![rule].into();
    /// # let broker = Broker::start(config)?;
    /// let publisher = Publisher::connect(&broker.addr())?;
    /// let mut devices = publisher.space("devices/#")?;
    /// for n in 0..1000 {
    ///     devices.publish_to(&format!("devices/{n}/temp").parse()?, Attributes::EMPTY, b"21.5")?;
    /// }
    /// devices.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The pattern is none of a space, or as [`Publisher::topic_with`]: the broker has no such space, among others.
    pub fn space_with(&self, pattern: &str, options: TopicOptions) -> Result<SpaceWriter, TopicOpenError> {
        self.open(self.begin_space(pattern, &options)?, &options).map(SpaceWriter::new)
    }

    /// Waits until the broker has taken what was begun.
    fn open(&self, mut writer: TopicWriter, options: &TopicOptions) -> Result<TopicWriter, TopicOpenError> {
        let deadline = Deadline::after(options.open_timeout);
        loop {
            writer.state.wait(deadline.left(), |state| state.is_answered());
            writer = match self.opened(writer, options)? {
                Opened::Ready(writer) => return Ok(writer),
                Opened::InSpace(writer) => writer,
            };
        }
    }

    /// Creates the buffer of a topic, and names the topic to the broker. A topic of a space that is open needs neither.
    pub(crate) fn begin(&self, name: &str, options: &TopicOptions) -> Result<TopicWriter, TopicOpenError> {
        let topic: TopicName = name.parse()?;
        if Space::is_reserved(&topic) {
            let reason = "this is the name of the log of a space; open the space by its pattern".into();
            return Err(TopicOpenError::Refused { topic, code: RefuseCode::Invalid, reason });
        }
        let in_space = |log: &SpaceLog| {
            let answer = lock(&log.state.in_space);
            answer.in_space.as_ref().is_some_and(|in_space| in_space.contains(&topic))
        };
        if let Some(log) = self.spaces.find(in_space) {
            return self.join(log, self.next_writer(), Some(topic), options);
        }
        let (state, writer) = self.create(topic.clone(), None, Names::default(), options)?;
        let (shared, id) = (self.shared.clone(), self.next_writer());
        Ok(TopicWriter::new(shared, state, Output::Own(writer), topic, id, options.max_confirmations))
    }

    pub(crate) fn begin_space(
        &self,
        pattern: &str,
        options: &TopicOptions,
    ) -> Result<TopicWriter, TopicOpenError> {
        let pattern: TopicFilter = pattern.parse()?;
        self.begin_in_space(&Space::new(&pattern)?, None, options)
    }

    /// Finds or makes the log of a space, for the writer of a topic or of the space.
    fn begin_in_space(
        &self,
        space: &Space,
        topic: Option<TopicName>,
        options: &TopicOptions,
    ) -> Result<TopicWriter, TopicOpenError> {
        let (_opening, id) = (lock(&self.opening), self.next_writer());
        if let Some(log) = self.spaces.find(|log| log.space == *space) {
            return self.join(log, id, topic, options);
        }
        let names = Names::default();
        // Before the broker can say anything about the log.
        names.add(id, topic.as_ref().unwrap_or(space.log()));
        let (state, writer) = self.create(space.log().clone(), Some(space.clone()), names, options)?;
        let keep = options.keep_until_delivered;
        let (space, spaces, shared) = (space.clone(), self.spaces.clone(), self.shared.clone());
        let log = self.spaces.add(SpaceLog::new(space, spaces, shared, state, writer, keep));
        self.join(log, id, topic, options)
    }

    /// A number for a writer.
    fn next_writer(&self) -> u64 {
        self.next_writer.fetch_add(1, Ordering::Relaxed)
    }

    /// Another writer of the log of a space.
    fn join(
        &self,
        log: LogUser,
        id: u64,
        topic: Option<TopicName>,
        options: &TopicOptions,
    ) -> Result<TopicWriter, TopicOpenError> {
        let name = topic.clone().unwrap_or_else(|| log.space.log().clone());
        if let Some(differs) = options.differ_from(&log) {
            let reason = format!(
                "the topics of the space '{}' share one buffer, and it is open with {differs}",
                log.space.pattern()
            );
            return Err(TopicOpenError::Refused { topic: name, code: RefuseCode::Invalid, reason });
        }
        let mut attributes = AttributesBuf::new();
        if let Some(topic) = &topic {
            // A name is shorter than any attribute may be.
            let _ = attributes.topic(topic.as_str());
        }
        let (state, max_confirmations) = (log.state.clone(), options.max_confirmations);
        state.confirmations.change_limit(0, max_confirmations);
        state.names.add(id, &name);
        let output = Output::Shared { log, topic: attributes };
        Ok(TopicWriter::new(self.shared.clone(), state, output, name, id, max_confirmations))
    }

    /// Creates a buffer, and names it to the broker.
    fn create(
        &self,
        topic: TopicName,
        space: Option<Space>,
        names: Names,
        options: &TopicOptions,
    ) -> Result<(Arc<TopicState>, OutWriter), TopicOpenError> {
        let shared = &self.shared;
        if let Some(over) = shared.connection.over() {
            return Err(TopicEnd::Over(over).of_open(topic));
        }
        let bid = self.next_bid.fetch_add(1, Ordering::Relaxed);
        // The end of the context, which may come meanwhile, is told to the connection before buffers end by it.
        let no_buffer = |source| match shared.connection.over() {
            Some(over) => TopicEnd::Over(over).of_open(topic.clone()),
            None => TopicOpenError::Buffer { topic: topic.clone(), source },
        };
        let buffer = options.buffer(self.context.config());
        let buffer = shared.out.create_buffer_with(bid, buffer).map_err(no_buffer)?;
        let writer = buffer.writer().map_err(no_buffer)?;
        let info = buffer.info().ok_or(BufferError::NoSuchBuffer(bid)).map_err(no_buffer)?;
        // The writers of a space count each for itself.
        let max_confirmations = if space.is_some() { 0 } else { options.max_confirmations };
        let state = Arc::new(TopicState {
            topic,
            bid,
            framing: options.framing,
            ring_bytes: info.capacity_bytes,
            max_delivery_bytes: AtomicU64::new(info.max_delivery_bytes),
            grows: options.max_delivery_bytes.is_none() && space.is_none(),
            largest_bytes: AtomicU64::new(0),
            min_subscribers: options.min_subscribers,
            stopped: AtomicBool::new(options.min_subscribers > 0),
            confirmations: Arc::new(Confirmations::new(max_confirmations, options.min_subscribers)),
            state: Mutex::default(),
            changed: Condvar::new(),
            tasks: Mutex::default(),
            events: shared.events.clone(),
            space,
            in_space: Mutex::default(),
            names,
        });
        // In this order: a new connection either finds the topic and names it, or the topic is named on that connection here.
        lock(&shared.topics).insert(bid, state.clone());
        state.create(&shared.connection.conn());
        // An end that comes after this finds the topic.
        if let Some(over) = shared.connection.over() {
            state.update(|state| state.over = Some(over));
        }
        Ok((state, writer))
    }

    /// Checks the broker's answer about a topic, which was waited for.
    pub(crate) fn opened(
        &self,
        writer: TopicWriter,
        options: &TopicOptions,
    ) -> Result<Opened, TopicOpenError> {
        let topic = writer.topic().clone();
        if let Some(end) = writer.state.end() {
            return Err(end.of_open(topic));
        }
        let (is_log, in_space) =
            (writer.output.log().is_some(), lock(&writer.state.in_space).in_space.clone());
        let (accepted, redirected) = {
            let state = lock(&writer.state.state);
            (state.accepted, state.redirected)
        };
        match in_space {
            Some(in_space) if redirected && !is_log => {
                drop(writer);
                return self.begin_in_space(&in_space.space, Some(topic), options).map(Opened::InSpace);
            }
            None if accepted && is_log => {
                let reason = "the broker knows no spaces: update it".into();
                return Err(TopicOpenError::Refused { topic, code: RefuseCode::Invalid, reason });
            }
            _ => {}
        }
        if !accepted {
            let (waited, last_error) = (options.open_timeout.unwrap_or_default(), writer.last_error());
            return Err(TopicOpenError::TimedOut { topic, waited, last_error });
        }
        Ok(Opened::Ready(writer))
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
        self.shared.elsewhere.close(timeout);
        self.shared.end(Over::Closed);
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("conn", &self.shared.connection.conn()).finish()
    }
}
