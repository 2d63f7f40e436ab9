//! The receiving end of the client library.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketbufs::{Bid, Config, Conn, Context, Epoch, InView, Policy, Position, RIn, Received, RefusedError};
use tracing::debug;

use super::batch::{Batch, Bytes, Message};
use super::error::{ConnectError, ReceiveError, SubscribeTopicError};
use super::feed::{Feed, Options, Stage, StartFrom, State};
use super::link::{Link, lock, wait_while};
use crate::wire::{Framing, RECORD_HEADER_BYTES, Records, Role, TopicName};

/// Most bytes of a name under which a subscriber's place is held.
const MAX_NAME_BYTES: usize = 255;

/// How often a subscriber that waits for data looks for what the broker said besides.
const LOOK: Duration = Duration::from_millis(500);

/// How a subscriber connects, and how it takes part. The same for all of its topics.
#[derive(Clone, Default)]
pub struct SubscriberBuilder {
    options: Options,
    config: Config,
    context: Option<Context>,
    ring_bytes: Option<u64>,
}

impl SubscriberBuilder {
    /// What people see in the broker's log; with [`SubscriberBuilder::hold`] the name under which the broker keeps
    /// this subscriber's place.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.options.name);
        self
    }

    /// How long the broker keeps this subscriber's place in every buffer while it is away. Needs a name. Another
    /// process of that name goes on there: what the first had not released comes again, and perhaps a little before.
    pub fn hold(mut self, hold: Duration) -> Self {
        self.options.hold = hold;
        self
    }

    /// With true, the broker keeps everything that this subscriber has not released (dropped or [`Kept::release`]d
    /// its batch), so that a process that is killed and started again, with a name, a hold and the position up to
    /// which it worked, misses nothing. By default the broker keeps what has not reached this process's memory.
    ///
    /// [`Kept::release`]: crate::Kept::release
    pub fn confirm_released(mut self, confirm: bool) -> Self {
        self.options.confirm_released = confirm;
        self
    }

    /// What happens when this subscriber is slow. Default: [`Policy::Block`], nothing is lost.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.options.policy = policy;
        self
    }

    /// The lag in bytes at which the policies `drop` and `disconnect` act; 0: the broker's default.
    pub fn max_lag_bytes(mut self, bytes: u64) -> Self {
        self.options.max_lag_bytes = bytes;
        self
    }

    /// How long `block` may hold the publishers without progress; zero: for ever.
    pub fn block_timeout(mut self, timeout: Duration) -> Self {
        self.options.block_timeout = Some(timeout);
        self
    }

    /// Capacity of the ring of each buffer here, in bytes; made larger where a buffer's deliveries need it.
    pub fn ring_bytes(mut self, bytes: u64) -> Self {
        self.ring_bytes = Some(bytes);
        self
    }

    /// The framework's configuration, for a context of this subscriber's own.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Shares the memory and threads of a context that exists.
    pub fn context(mut self, context: &Context) -> Self {
        self.context = Some(context.clone());
        self
    }

    /// Connects to a broker.
    ///
    /// # Errors
    /// Nobody answered, the broker refused, or this process lacks memory or threads.
    pub fn connect(self, addr: &str) -> Result<Subscriber, ConnectError> {
        let ctx = match self.context {
            Some(context) => context,
            None => Context::new(self.config)?,
        };
        let ring_bytes = self.ring_bytes.unwrap_or(ctx.config().buffers.size_bytes);
        // A place that is kept is one from which nothing is missed.
        let confirm_released = self.options.confirm_released || !self.options.hold.is_zero();
        let options = Options { ring_bytes, confirm_released, ..self.options };
        let link = Link::connect(&ctx, addr, (Role::Subscriber, &options.name), |_| {})?;
        let feed = Arc::new(Feed { options, ..Feed::default() });
        let rin = feed.attach(&link.conn());
        let (again, same) = (feed.clone(), rin.clone());
        let mut broker = link.conn().peer_instance();
        let mut current = Some(same);
        let over = feed.clone();
        let on_over = move |why| {
            lock(&over.state).over = Some(why);
            over.changed.notify_all();
        };
        let on_up = move |conn: &Conn| {
            let mut state = lock(&again.state);
            state.came_back = true;
            state.reconnects += 1;
            match &current {
                Some(rin) if conn.peer_instance() == broker => {
                    drop(state);
                    rin.resume(conn);
                    again.ask_all(conn);
                }
                _ => {
                    // Another process: only the application's thread knows what it has handed out.
                    broker = conn.peer_instance();
                    current = None;
                    state.moved = Some(conn.clone());
                    drop(state);
                }
            }
            again.changed.notify_all();
        };
        link.watch(on_up, on_over)?;
        Ok(Subscriber { feed, link, rin, ctx, handed: HashMap::new(), current: None, downs: 0 })
    }
}

/// What [`Subscriber::next`] returns.
#[derive(Debug)]
#[non_exhaustive]
pub enum Item<'s> {
    /// Messages.
    Batch(Batch<'s>),
    /// Something else that happened.
    Notice(Notice),
}

/// What happens to a subscriber besides messages, in order with the messages of the same buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A buffer of a topic is subscribed to; its messages begin at `start`.
    Joined {
        /// The topic.
        topic: TopicName,
        /// The log: its publisher's.
        epoch: Epoch,
        /// First position that will come.
        start: Position,
    },
    /// Bytes are gone; the log goes on at `to`.
    Lost {
        /// The topic.
        topic: TopicName,
        /// The log.
        epoch: Epoch,
        /// First position that is missing.
        from: Position,
        /// First position that is there again.
        to: Position,
    },
    /// The publisher closed the topic; this was all of its log.
    Closed {
        /// The topic.
        topic: TopicName,
        /// The log.
        epoch: Epoch,
        /// Its end.
        end: Position,
    },
    /// The publisher is gone for good without closing; this was all that is complete.
    Gone {
        /// The topic.
        topic: TopicName,
        /// The log.
        epoch: Epoch,
        /// The end of its last complete delivery.
        end: Position,
    },
    /// The broker refused something, or ended a subscription. In words.
    Refused(String),
    /// The connection is lost; it is made again by itself.
    Disconnected(String),
    /// The connection is back.
    Reconnected,
}

/// A batch that [`Subscriber::recv`] takes one message after the other from.
struct Current {
    bytes: Bytes,
    offset: usize,
    topic: TopicName,
    framing: Framing,
}

/// Receives topics from a broker. Reconnects by itself and goes on where it stopped; what is gone by then is told.
///
/// ```
/// # use rbmq::{Broker, BrokerConfig, Publisher};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut config = BrokerConfig::default();
/// # config.broker.listen = "127.0.0.1:0".into();
/// # let broker = Broker::start(config)?;
/// # let addr = broker.addr();
/// # let publisher = Publisher::connect(&addr)?;
/// # let mut news = publisher.topic("news")?;
/// use rbmq::Subscriber;
///
/// let mut subscriber = Subscriber::connect(&addr)?;
/// subscriber.subscribe("news")?;
/// # news.wait_subscribers(1, std::time::Duration::from_secs(10))?;
/// # news.publish(b"hello")?;
/// # news.close()?;
/// for message in subscriber {
///     let message = message?;
///     println!("{}: {}", message.topic, String::from_utf8_lossy(&message.bytes));
/// }
/// # Ok(())
/// # }
/// ```
pub struct Subscriber {
    feed: Arc<Feed>,
    link: Link,
    rin: RIn,
    ctx: Context,
    /// How far each log was handed out.
    handed: HashMap<Epoch, Position>,
    current: Option<Current>,
    /// How many losses of the connection were told.
    downs: u64,
}

impl Subscriber {
    /// Connects to a broker with the defaults.
    ///
    /// # Errors
    /// As [`SubscriberBuilder::connect`].
    pub fn connect(addr: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(addr)
    }

    /// Connects with options.
    pub fn builder() -> SubscriberBuilder {
        SubscriberBuilder::default()
    }

    /// Receives a topic from now on. The topic need not exist yet.
    ///
    /// # Errors
    /// No such name is possible.
    pub fn subscribe(&mut self, topic: &str) -> Result<(), SubscribeTopicError> {
        self.subscribe_from(topic, StartFrom::Newest)
    }

    /// Receives a topic from a place on. Publishers that appear later are received from their beginning.
    ///
    /// # Errors
    /// No such name is possible.
    pub fn subscribe_from(&mut self, topic: &str, from: StartFrom) -> Result<(), SubscribeTopicError> {
        let topic: TopicName = topic.parse()?;
        let bytes = self.feed.options.name.len();
        if bytes > MAX_NAME_BYTES {
            return Err(SubscribeTopicError::SubscriberName { bytes, max: MAX_NAME_BYTES });
        }
        let mut state = lock(&self.feed.state);
        if let StartFrom::Positions(positions) = &from {
            state.positions.extend(positions.iter().copied());
        }
        if state.wanted.insert(topic.clone(), from).is_none() {
            drop(state);
            Feed::ask(&self.link.conn(), &[topic]);
        }
        Ok(())
    }

    /// What comes next, waiting at most `timeout`; none if nothing came.
    ///
    /// # Errors
    /// StartFrom a callback of the framework, which must not wait.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Item<'_>>, ReceiveError> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(problem) = lock(&self.feed.state).problems.pop_front() {
                return Ok(Some(Item::Notice(Notice::Refused(problem))));
            }
            let left = deadline.map_or(LOOK, |d| d.saturating_duration_since(Instant::now()));
            // What was received before the connection was lost is still there, and comes first.
            let away = self.away();
            let wait = if away { Duration::ZERO } else { left.min(LOOK) };
            match self.rin.recv(Some(wait))? {
                Some(Received::Data(view)) => {
                    if let Some((bytes, topic, framing)) = self.take(view) {
                        let subscriber = PhantomData;
                        let batch = Batch { bytes: Some(bytes), topic, framing, subscriber };
                        return Ok(Some(Item::Batch(batch)));
                    }
                    continue;
                }
                Some(event) => match self.on_event(event) {
                    Some(notice) => return Ok(Some(Item::Notice(notice))),
                    None => continue,
                },
                None if let Some(why) = self.over() => return Err(ReceiveError::Down(why)),
                None if away && self.wait_back(left) => {
                    return Ok(Some(Item::Notice(Notice::Reconnected)));
                }
                None => {}
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// The next messages, several at once and borrowed where they landed, waiting at most `timeout`; none if nothing
    /// came, or if every topic has ended ([`Subscriber::ended`]).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let mut subscriber = rbmq::Subscriber::connect("127.0.0.1:7411")?;
    /// subscriber.subscribe("prices")?;
    /// let mut bytes = 0;
    /// while let Some(batch) = subscriber.next_batch(Duration::from_secs(10))? {
    ///     bytes += batch.records().map(<[u8]>::len).sum::<usize>();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Something is missing or refused; each is told once, and receiving goes on with the next call.
    pub fn next_batch(&mut self, timeout: Duration) -> Result<Option<Batch<'_>>, ReceiveError> {
        let next = self.wait_bytes(timeout)?;
        let subscriber = PhantomData;
        Ok(next.map(|(bytes, topic, framing)| Batch { bytes: Some(bytes), topic, framing, subscriber }))
    }

    /// The next message, copied, waiting at most `timeout`; none if nothing came, or if every topic has ended.
    ///
    /// # Errors
    /// As [`Subscriber::next_batch`].
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Message>, ReceiveError> {
        loop {
            if let Some(mut current) = self.current.take() {
                match current.next()? {
                    Some(message) => {
                        self.current = Some(current);
                        return Ok(Some(message));
                    }
                    None => current.bytes.into_view().consume(),
                }
            }
            match self.wait_bytes(timeout)? {
                Some((bytes, topic, framing)) => {
                    self.current = Some(Current { bytes, offset: 0, topic, framing });
                }
                None => return Ok(None),
            }
        }
    }

    /// Whether every topic that was asked for has had a publisher, and all of them have ended and were received.
    pub fn ended(&self) -> bool {
        let state = lock(&self.feed.state);
        let ended = |topic: &TopicName| {
            let mut buffers = state.buffers.values().filter(|b| b.topic == *topic).peekable();
            let known = buffers.peek().is_some() || state.ended_topics.contains(topic);
            known && buffers.all(|buffer| buffer.stage == Stage::Ended)
        };
        self.current.is_none() && !state.wanted.is_empty() && state.wanted.keys().all(ended)
    }

    /// Whether there is a connection to the broker now.
    pub fn is_connected(&self) -> bool {
        self.link.conn().is_up()
    }

    /// The context it uses: to share its memory and threads.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// Ends the connection in order. Waits at most `timeout`.
    pub fn close(self, timeout: Duration) {
        self.link.close(timeout);
    }

    /// The next bytes; what is missing or refused is an error, what else happens is passed over.
    fn wait_bytes(&mut self, timeout: Duration) -> Result<Option<(Bytes, TopicName, Framing)>, ReceiveError> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if self.ended() {
                return Ok(None);
            }
            let left = deadline.map_or(timeout, |d| d.saturating_duration_since(Instant::now()));
            match self.next(left)? {
                None => return Ok(None),
                Some(Item::Batch(mut batch)) => {
                    let (topic, framing) = (batch.topic.clone(), batch.framing);
                    if let Some(bytes) = batch.bytes.take() {
                        return Ok(Some((bytes, topic, framing)));
                    }
                }
                Some(Item::Notice(notice)) => notice.into_error().map_or(Ok(()), Err)?,
            }
        }
    }

    /// What is known of the buffer of received data, and that it was handed out.
    fn take(&mut self, view: InView) -> Option<(Bytes, TopicName, Framing)> {
        let buffer = lock(&self.feed.state).buffers.get(&view.bid()).cloned()?;
        self.handed.insert(view.epoch(), view.end());
        Some((Bytes::of(view)?, buffer.topic, buffer.framing))
    }

    fn on_event(&mut self, event: Received) -> Option<Notice> {
        let mut state = lock(&self.feed.state);
        match event {
            Received::Subscribed { bid, epoch, start } => {
                let topic = state.buffers.get(&bid)?.topic.clone();
                Some(Notice::Joined { topic, epoch, start })
            }
            Received::Lost { bid, from, to } => {
                let buffer = state.buffers.get(&bid)?.clone();
                drop(state);
                self.handed.insert(buffer.epoch, to);
                Some(Notice::Lost { topic: buffer.topic, epoch: buffer.epoch, from, to })
            }
            Received::Closed { bid, end } => {
                let (topic, epoch) = end_buffer(&mut state, bid)?;
                Some(Notice::Closed { topic, epoch, end })
            }
            Received::Gone { bid, end } => {
                let (topic, epoch) = end_buffer(&mut state, bid)?;
                // Its publisher may come back, with the same log under another id.
                state.positions.insert(epoch, end);
                Some(Notice::Gone { topic, epoch, end })
            }
            Received::Restarted { bid, .. } => {
                let (topic, _) = end_buffer(&mut state, bid)?;
                Some(Notice::Refused(format!("topic '{topic}': its publisher began a new log")))
            }
            Received::Refused { bid, error } => refused(&mut state, bid, &error),
            Received::ConnDown { why } => {
                drop(state);
                self.downs += 1;
                Some(Notice::Disconnected(why))
            }
            other => {
                debug!("not told: {other:?}");
                None
            }
        }
    }

    /// Why the connection is lost for good, if it is.
    fn over(&self) -> Option<String> {
        lock(&self.feed.state).over.clone()
    }

    /// Whether the connection is lost and not made again yet.
    fn away(&self) -> bool {
        let state = lock(&self.feed.state);
        state.moved.is_some() || state.reconnects < self.downs
    }

    /// Waits until there is a connection again; moves to it if it leads to another broker process.
    fn wait_back(&mut self, timeout: Duration) -> bool {
        let downs = self.downs;
        let waiting =
            |state: &mut State| state.moved.is_none() && state.over.is_none() && state.reconnects < downs;
        if !wait_while(&self.feed.state, &self.feed.changed, timeout, waiting) || self.over().is_some() {
            return false;
        }
        let moved = lock(&self.feed.state).moved.take();
        if let Some(conn) = moved {
            let mut state = lock(&self.feed.state);
            self.downs = state.reconnects;
            state.buffers.clear();
            state.positions.extend(self.handed.drain());
            drop(state);
            self.rin = self.feed.attach(&conn);
            self.feed.ask_all(&conn);
        }
        true
    }
}

fn end_buffer(state: &mut State, bid: Bid) -> Option<(TopicName, Epoch)> {
    let buffer = state.buffers.get_mut(&bid)?;
    buffer.stage = Stage::Ended;
    Some((buffer.topic.clone(), buffer.epoch))
}

fn refused(state: &mut State, bid: Bid, error: &RefusedError) -> Option<Notice> {
    use rocketbufs::proto::RefuseCode::NoSuchBuffer;
    let buffer = state.buffers.remove(&bid)?;
    if matches!(error, RefusedError::Peer { code: NoSuchBuffer, .. }) {
        // Removed at the broker while the subscription was on its way: there is nothing of it any more.
        state.ended_topics.insert(buffer.topic);
        return None;
    }
    Some(Notice::Refused(format!("topic '{}': {error}", buffer.topic)))
}

impl Notice {
    /// What of this is an error for those who only want messages.
    fn into_error(self) -> Option<ReceiveError> {
        match self {
            Self::Lost { topic, from, to, .. } => Some(ReceiveError::Lost { topic, from, to }),
            Self::Gone { topic, end, .. } => Some(ReceiveError::Gone { topic, end }),
            Self::Refused(reason) => Some(ReceiveError::Refused(reason)),
            Self::Joined { .. } | Self::Closed { .. } | Self::Disconnected(_) | Self::Reconnected => None,
        }
    }
}

impl Current {
    fn next(&mut self) -> Result<Option<Message>, ReceiveError> {
        let bytes = self.bytes.as_slice().get(self.offset..).unwrap_or_default();
        let record = match self.framing {
            Framing::Raw if bytes.is_empty() => return Ok(None),
            Framing::Raw => bytes,
            Framing::Records => {
                let mut records = Records::new(bytes);
                match (records.next(), records.malformed()) {
                    (Some(record), _) => record,
                    (None, None) => return Ok(None),
                    (None, Some(error)) => {
                        self.offset = self.bytes.as_slice().len();
                        return Err(ReceiveError::Malformed { topic: self.topic.clone(), error });
                    }
                }
            }
        };
        let header = if self.framing == Framing::Records { RECORD_HEADER_BYTES } else { 0 };
        self.offset += header + record.len();
        let view = self.bytes.view();
        let end = view.position() + self.offset as u64;
        Ok(Some(Message { topic: self.topic.clone(), bytes: record.to_vec(), epoch: view.epoch(), end }))
    }
}

impl IntoIterator for Subscriber {
    type Item = Result<Message, ReceiveError>;
    type IntoIter = Messages;

    fn into_iter(self) -> Messages {
        Messages { subscriber: self }
    }
}

/// The messages of a subscriber until every topic has ended; see [`Subscriber`].
pub struct Messages {
    subscriber: Subscriber,
}

impl Iterator for Messages {
    type Item = Result<Message, ReceiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.subscriber.recv(Duration::from_secs(3600)) {
                Ok(Some(message)) => return Some(Ok(message)),
                Ok(None) if self.subscriber.ended() => return None,
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl std::fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriber").field("conn", &self.link.conn()).finish_non_exhaustive()
    }
}
