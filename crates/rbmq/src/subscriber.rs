//! The receiving end of the client library.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rocketbufs::{Bid, Context, Epoch, InEvent, InView, Position, RIn, RefusedError};
use tracing::debug;

use super::batch::{Batch, Bytes, Message, MessageRef};
use super::builder::SubscriberBuilder;
use super::current::Current;
use super::error::{ConnectError, ReceiveError, SubscribeTopicError};
use super::feed::{Feed, StartFrom, State};
use super::link::{Deadline, Link, lock, wait_while};
use super::notice::{Item, Notice};
use super::places::Place;
use crate::wire::{Framing, TopicFilter, TopicName};

/// Most bytes of a name under which a subscriber's place is held.
const MAX_NAME_BYTES: usize = 255;

/// How often a subscriber that waits for data looks for what the broker said besides.
const LOOK: Duration = Duration::from_millis(500);

/// Receives topics from a broker. Reconnects by itself and goes on where it stopped; what is gone by then is told.
///
/// ```
/// # use rbmq::Publisher;
/// # use rbmq_broker::{Broker, BrokerConfig};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut config = BrokerConfig::default();
/// # config.broker.listen = "127.0.0.1:0".into();
/// # let broker = Broker::start(config)?;
/// # let addr = broker.addr();
/// # let publisher = Publisher::connect(&addr)?;
/// # let mut news = publisher.topic("news")?;
/// use rbmq::Subscriber;
///
/// let mut subscriber = Subscriber::builder().until_ended(true).connect(&addr)?;
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
    /// From where on everything of it came.
    since: HashMap<Epoch, Position>,
    current: Option<Current>,
    /// What bytes are copied to that are in memory which others may write.
    spare: Vec<u8>,
    /// How many losses of the connection were told.
    downs: u64,
}

impl Subscriber {
    pub(super) fn new(ctx: Context, link: Link, feed: Arc<Feed>, rin: RIn) -> Self {
        Self {
            feed,
            link,
            rin,
            ctx,
            handed: HashMap::new(),
            since: HashMap::new(),
            current: None,
            spare: Vec::new(),
            downs: 0,
        }
    }

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

    /// Receives a topic from now on, or every topic that a filter matches (`+` is any one level, `#` the rest), each
    /// once however many filters match it. No topic need exist yet; those that appear later are received from their
    /// beginning.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut subscriber = rbmq::Subscriber::connect("127.0.0.1:7411")?;
    /// subscriber.subscribe("sensors/+/temp")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No such name or filter is possible.
    pub fn subscribe(&mut self, topics: &str) -> Result<(), SubscribeTopicError> {
        self.subscribe_from(topics, StartFrom::Newest)
    }

    /// As [`Subscriber::subscribe`], from a place on. Publishers that appear later are received from their beginning.
    /// In a topic that several filters match, the first that was asked for says where to begin.
    ///
    /// # Errors
    /// No such name or filter is possible.
    pub fn subscribe_from(&mut self, topics: &str, from: StartFrom) -> Result<(), SubscribeTopicError> {
        let filter: TopicFilter = topics.parse()?;
        let bytes = self.feed.options.name.len();
        let holds = !self.feed.options.hold.is_zero();
        if bytes > MAX_NAME_BYTES || (holds && bytes == 0) {
            return Err(SubscribeTopicError::SubscriberName { bytes, max: MAX_NAME_BYTES });
        }
        let mut state = lock(&self.feed.state);
        if let StartFrom::Positions(positions) = &from {
            state.positions.give(positions);
        }
        let seen = state.buffers.any_of(&filter);
        if state.wanted.add(&filter, from, seen) {
            drop(state);
            self.feed.ask(&self.link.conn(), &[filter]);
        }
        Ok(())
    }

    /// What comes next, waiting at most `timeout`; none if nothing came.
    ///
    /// # Errors
    /// The connection is over for good, or the call came from a callback of the framework, which must not wait.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Item<'_>>, ReceiveError> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(notice) = self.untold() {
                return Ok(Some(Item::Notice(notice)));
            }
            let left = deadline.left();
            // What was received before the connection was lost is still there, and comes first.
            let away = self.away();
            let wait = if away { Duration::ZERO } else { left.min(LOOK) };
            match self.rin.recv(Some(wait))? {
                Some(InEvent::Data(view)) => {
                    if let Some((bytes, topic, framing)) = self.take(view) {
                        let spare = &mut self.spare;
                        let batch = Batch { bytes: Some(bytes), topic, framing, spare };
                        return Ok(Some(Item::Batch(batch)));
                    }
                }
                Some(event) => {
                    if let Some(notice) = self.on_event(event) {
                        return Ok(Some(Item::Notice(notice)));
                    }
                }
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
    /// came. A topic without a publisher is waited for: its next publisher may come. With
    /// [`SubscriberBuilder::until_ended`] this returns none as soon as every topic has ended.
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
        let spare = &mut self.spare;
        Ok(next.map(|(bytes, topic, framing)| Batch { bytes: Some(bytes), topic, framing, spare }))
    }

    /// The next message, copied, waiting at most `timeout`; none if nothing came, as for [`Subscriber::next_batch`].
    ///
    /// # Errors
    /// As [`Subscriber::next_batch`].
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Message>, ReceiveError> {
        Ok(self.recv_ref(timeout)?.map(|message| message.to_message()))
    }

    /// The next message, borrowed where it landed, waiting at most `timeout`; none if nothing came, as for
    /// [`Subscriber::next_batch`]. Its space is given back when the last message of its batch was followed by another call.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let mut subscriber = rbmq::Subscriber::connect("127.0.0.1:7411")?;
    /// subscriber.subscribe("prices")?;
    /// let mut bytes = 0;
    /// while let Some(message) = subscriber.recv_ref(Duration::from_secs(10))? {
    ///     bytes += message.bytes.len();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Subscriber::next_batch`].
    #[inline]
    pub fn recv_ref(&mut self, timeout: Duration) -> Result<Option<MessageRef<'_>>, ReceiveError> {
        let (start, end) = loop {
            if let Some(current) = &mut self.current
                && let Some(range) = current.advance()?
            {
                break range;
            }
            if !self.next_current(timeout)? {
                return Ok(None);
            }
        };
        Ok(self.current.as_ref().map(|current| current.message(start, end)))
    }

    /// Gives back the batch whose messages were all taken, and waits for another one.
    fn next_current(&mut self, timeout: Duration) -> Result<bool, ReceiveError> {
        if let Some(taken) = self.current.take() {
            taken.consume(&mut self.spare);
        }
        let next = self.wait_bytes(timeout)?;
        self.current = next.map(|(bytes, topic, framing)| Current::new(bytes, topic, framing));
        Ok(self.current.is_some())
    }

    /// Whether every topic and filter that was asked for has matched a publisher's log, and all logs that were matched
    /// so far have ended and were received. With a filter, as with a topic, another may appear later.
    pub fn ended(&self) -> bool {
        let state = lock(&self.feed.state);
        // A topic that could not be had has not ended, and is told first; others are still to be heard of until the
        // broker has answered.
        let told = state.notices.is_empty() && state.asked.1 == 0 && state.awaited.is_empty();
        self.current.is_none() && told && state.wanted.all_seen() && state.buffers.all_ended()
    }

    /// Whether there is a connection to the broker now.
    pub fn is_connected(&self) -> bool {
        self.link.conn().is_up()
    }

    /// The context it uses: to share its memory and threads. If the subscriber made it, callbacks set on it may run inside
    /// calls that wait ([`Context::allow_callbacks_in_calls`]).
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// Ends the connection in order. Waits at most `timeout`. The messages that were handed out count as consumed (in a
    /// merged topic those of whole runs): whoever waits for that learns it, and a named subscriber that comes back goes on
    /// with the first delivery of which it had not all.
    pub fn close(mut self, timeout: Duration) {
        if let Some(current) = self.current.take() {
            current.leave(&mut self.spare);
        }
        self.link.close(timeout);
    }

    /// The next bytes; what is missing or refused is an error, what else happens is passed over.
    fn wait_bytes(&mut self, timeout: Duration) -> Result<Option<(Bytes, TopicName, Framing)>, ReceiveError> {
        let deadline = Deadline::after(timeout);
        loop {
            let until_ended = self.feed.options.until_ended;
            if until_ended && self.ended() {
                return Ok(None);
            }
            let left = deadline.left();
            // That all has ended may be known only when the broker's last word has come, which wakes nobody.
            let step = left.min(LOOK);
            match self.next(step)? {
                None if step < left => {}
                None => return Ok(None),
                Some(Item::Batch(mut batch)) => {
                    let (topic, framing) = (batch.topic.clone(), batch.framing);
                    if let Some(bytes) = batch.bytes.take() {
                        return Ok(Some((bytes, topic, framing)));
                    }
                }
                // Another publisher of the topic may come.
                Some(Item::Notice(Notice::Gone { .. })) if !until_ended => {}
                Some(Item::Notice(notice)) => notice.into_error().map_or(Ok(()), Err)?,
            }
        }
    }

    /// What is known of the buffer of received data, and that it was handed out.
    fn take(&mut self, view: InView) -> Option<(Bytes, TopicName, Framing)> {
        let buffer = lock(&self.feed.state).buffers.get(view.bid()).cloned()?;
        self.handed.insert(view.epoch(), view.end());
        Some((Bytes::of(view, &mut self.spare)?, buffer.topic, buffer.framing))
    }

    fn on_event(&mut self, event: InEvent) -> Option<Notice> {
        let mut state = lock(&self.feed.state);
        match event {
            InEvent::Subscribed { bid, epoch, start } => {
                let topic = state.buffers.get(bid)?.topic.clone();
                let since = state.positions.get(epoch).map_or(start, |place| place.since.min(start));
                self.since.insert(epoch, since);
                Some(Notice::Joined { topic, epoch, start })
            }
            InEvent::NoPlace { bid } => state.no_place(bid),
            InEvent::Lost { bid, from, to } => {
                let buffer = state.buffers.get(bid)?.clone();
                drop(state);
                self.handed.insert(buffer.epoch, to);
                self.since.insert(buffer.epoch, to);
                Some(Notice::Lost { topic: buffer.topic, epoch: buffer.epoch, from, to })
            }
            InEvent::Closed { bid, end } => {
                let (topic, epoch) = state.buffers.end(bid)?;
                state.positions.leave(epoch, leave(&mut self.since, epoch, end));
                drop(state);
                self.handed.remove(&epoch);
                self.feed.go_on(&self.rin, epoch);
                Some(Notice::Closed { topic, epoch, end })
            }
            InEvent::Gone { bid, end } => {
                drop(state);
                self.on_gone(bid, end)
            }
            InEvent::Restarted { bid, .. } => {
                drop(state);
                self.on_restarted(bid)
            }
            InEvent::Refused { bid, error } => {
                drop(state);
                self.on_refused(bid, &error)
            }
            InEvent::ConnDown { reason: why } => {
                drop(state);
                self.downs += 1;
                Some(Notice::Disconnected(why.to_string()))
            }
            other => {
                debug!("not told: {other:?}");
                None
            }
        }
    }

    fn on_restarted(&mut self, bid: Bid) -> Option<Notice> {
        let (topic, epoch) = lock(&self.feed.state).buffers.end(bid)?;
        self.handed.remove(&epoch);
        self.since.remove(&epoch);
        Some(Notice::Refused(format!("topic '{topic}': its publisher began a new log")))
    }

    /// A subscription was refused, or ended by the broker: what was handed out counts if its log comes again.
    fn on_refused(&mut self, bid: Bid, error: &RefusedError) -> Option<Notice> {
        let mut state = lock(&self.feed.state);
        let epoch = state.buffers.get(bid).map(|buffer| buffer.epoch)?;
        let notice = refused(&mut state, bid, error);
        if let Some(position) = self.handed.remove(&epoch) {
            state.positions.leave(epoch, leave(&mut self.since, epoch, position));
        }
        drop(state);
        self.feed.go_on(&self.rin, epoch);
        notice
    }

    /// A buffer's publisher is gone: it may come back, with the same log under another id, or the log may be there
    /// already by another broker.
    fn on_gone(&mut self, bid: Bid, end: Position) -> Option<Notice> {
        let mut state = lock(&self.feed.state);
        let (topic, epoch) = state.buffers.end(bid)?;
        state.positions.leave(epoch, leave(&mut self.since, epoch, end));
        self.handed.remove(&epoch);
        let goes_on = state.continues.remove(&bid) || state.later.contains_key(&epoch);
        if goes_on {
            state.awaited.insert(epoch, (bid, topic.clone(), end));
        }
        drop(state);
        self.feed.go_on(&self.rin, epoch);
        (!goes_on).then_some(Notice::Gone { topic, epoch, end })
    }

    /// What the broker said besides messages, and was not told yet.
    fn untold(&self) -> Option<Notice> {
        let mut state = lock(&self.feed.state);
        let notice = state.notices.pop_front();
        notice.or_else(|| state.lowered.untold.pop_front().map(Notice::Lowered))
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
            state.buffers.forget();
            state.later.clear();
            state.continues.clear();
            state.awaited.clear();
            for (epoch, position) in self.handed.drain() {
                state.positions.leave(epoch, leave(&mut self.since, epoch, position));
            }
            self.since.clear();
            drop(state);
            self.rin = self.feed.attach(&conn);
            self.feed.ask_all(&conn);
        }
        true
    }
}

/// A log is left at a position.
fn leave(since: &mut HashMap<Epoch, Position>, epoch: Epoch, position: Position) -> Place {
    Place { position, since: since.remove(&epoch).unwrap_or(position) }
}

fn refused(state: &mut State, bid: Bid, error: &RefusedError) -> Option<Notice> {
    use rocketbufs::proto::RefuseCode::NoSuchBuffer;
    let buffer = state.buffers.remove(bid)?;
    if matches!(error, RefusedError::Peer { code: NoSuchBuffer, .. }) {
        // Removed at the broker while the subscription was on its way: there is nothing of it any more.
        return None;
    }
    Some(Notice::Refused(format!("topic '{}': {error}", buffer.topic)))
}

impl IntoIterator for Subscriber {
    type Item = Result<Message, ReceiveError>;
    type IntoIter = Messages;

    fn into_iter(self) -> Messages {
        Messages { subscriber: self }
    }
}

/// The messages of a subscriber, without an end; with [`SubscriberBuilder::until_ended`], until every topic has ended. See
/// [`Subscriber`].
pub struct Messages {
    subscriber: Subscriber,
}

impl Iterator for Messages {
    type Item = Result<Message, ReceiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.subscriber.recv(Duration::from_secs(3600)) {
                Ok(Some(message)) => return Some(Ok(message)),
                Ok(None) if self.subscriber.feed.options.until_ended && self.subscriber.ended() => {
                    return None;
                }
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
