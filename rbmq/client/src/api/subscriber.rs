//! A subscriber: receives topics.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use rocketbufs::{Budget, Conn, Context, InEvent, InView, RIn};
use rustix::event::epoll;
use tracing::debug;

use crate::api::subscription_driver::SubscriptionDriver;
use crate::connection::{Connection, hello, own_context};
use crate::ground::deadline::Deadline;
use crate::ground::error::{ConnectError, ReceiveError, SubscribeTopicError};
use crate::ground::options::{StartFrom, SubscriberBuilder, SubscriberOptions};
use crate::state::batch::{Batch, Bytes, Message, MessageRef};
use crate::state::batch_cursor::{BatchCursor, Place};
use crate::state::event::{Event, Notice, RefusedFilter};
use crate::state::space_reader::{SpaceReader, SpaceView};
use crate::subscriptions::HandedOut;
use crate::wire::{Framing, Role, TopicFilter, TopicName};

/// The longest name of a durable subscriber in bytes.
const MAX_NAME_BYTES: usize = 255;

/// The longest wait for data before the subscriber looks for notices of the broker.
const STEP: Duration = Duration::from_millis(500);

/// How long closing may take by default.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The budget of a subscriber that sets none.
const BUDGET_BYTES: u64 = 64 << 20;

/// The largest message for which rings grow by default: as much as brokers take by default.
const MAX_MESSAGE_BYTES: u64 = 64 << 20;

/// Receives topics from a broker. The subscriber reconnects by itself and resumes where it stopped. The subscriber reports
/// messages that were lost in between.
///
/// A subscriber may be moved to another thread, and one thread uses it at a time. Dropping it closes the connection. Messages that
/// were received and not handed out then count as not consumed, and so do the remaining messages of the current batch. Time-outs
/// are for the whole call: `None` is no limit, and `Some(Duration::ZERO)` takes an available message and does not wait.
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
/// # news.wait_subscribers(1, Some(std::time::Duration::from_secs(10)))?;
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
    pub(crate) driver: Arc<SubscriptionDriver>,
    connection: Connection,
    rin: RIn,
    context: Context,
    pub(crate) cursor: Option<BatchCursor>,
    /// For copies of bytes in memory that other processes may write.
    pub(crate) spare: Vec<u8>,
    /// The names in spaces, and what of their logs is not consumed.
    pub(crate) spaces: SpaceReader,
    /// An epoll descriptor for the descriptors of the rIn and of the driver, if the application asked for it.
    poll: OnceLock<OwnedFd>,
    /// The registration of that descriptor with a runtime of tokio.
    #[cfg(feature = "tokio")]
    pub(crate) readiness: Option<rocketbufs::readiness::Readiness>,
}

/// Bytes of a topic that were taken from the rIn.
pub(crate) struct TakenBytes {
    pub(crate) bytes: Bytes,
    pub(crate) topic: TopicName,
    pub(crate) framing: Framing,
    /// What is wanted of the log of a space.
    pub(crate) space: Option<SpaceView>,
}

impl TakenBytes {
    pub(crate) fn into_cursor(self) -> BatchCursor {
        BatchCursor::new(self.bytes, self.topic, self.framing, self.space)
    }

    pub(crate) fn into_batch(self, spare: &mut Vec<u8>) -> Batch<'_> {
        Batch { bytes: Some(self.bytes), topic: self.topic, framing: self.framing, spare }
    }
}

/// An event that does not borrow the subscriber.
pub(crate) enum Taken {
    Bytes(TakenBytes),
    Notice(Notice),
}

impl Taken {
    pub(crate) fn into_event(self, spare: &mut Vec<u8>) -> Event<'_> {
        match self {
            Self::Bytes(taken) => Event::Batch(taken.into_batch(spare)),
            Self::Notice(notice) => Event::Notice(notice),
        }
    }
}

impl SubscriberBuilder {
    /// Connects to a broker. Waits until it accepts, at most `session.connect_timeout_ms` of the configuration.
    ///
    /// # Errors
    /// No broker answers at the address, the broker refuses, the name of a durable subscriber is not valid, or this process lacks
    /// memory or threads.
    pub fn connect(self, addr: &str) -> Result<Subscriber, ConnectError> {
        let bytes = self.options.name.len();
        let durable = !self.options.hold.is_zero();
        if durable && !(1..=MAX_NAME_BYTES).contains(&bytes) {
            return Err(ConnectError::DurableName { bytes, max: MAX_NAME_BYTES });
        }
        let context = match self.context {
            Some(context) => context,
            None => own_context(self.config)?,
        };
        let ring_bytes = self.ring_bytes.unwrap_or(context.config().buffers.size_bytes);
        let options = SubscriberOptions {
            ring_bytes,
            batch_bytes: self.batch_bytes.unwrap_or(ring_bytes / 4),
            // A durable subscriber misses nothing.
            confirm_consumed: self.options.confirm_consumed || durable,
            max_message_bytes: self.max_message_bytes.unwrap_or(MAX_MESSAGE_BYTES),
            set_budget_bytes: self.budget_bytes,
            budget: Some(Budget::new(self.budget_bytes.unwrap_or(BUDGET_BYTES))),
            ..self.options
        };
        let hello = hello(Role::Subscriber, &options.name)?;
        let connection = Connection::connect(&context, addr, hello, &self.login, |_| {})?;
        let driver = SubscriptionDriver::new(options, &connection.conn());
        let (resumed, taken_over, shut_down) = (driver.clone(), driver.clone(), driver.clone());
        // A subscriber that has left the first broker process does not resume there.
        let (first, mut same_broker) = (connection.conn().peer_instance(), true);
        let on_up = move |conn: &Conn| {
            same_broker &= conn.peer_instance() == first;
            resumed.on_reconnected(conn, same_broker);
        };
        connection.watch(
            |_| {},
            on_up,
            move |why| taken_over.on_over(ReceiveError::TakenOver(why)),
            move || shut_down.on_over(ReceiveError::ShutDown),
        )?;
        let rin = driver.rin();
        Ok(Subscriber {
            driver,
            connection,
            rin,
            context,
            cursor: None,
            spare: Vec::new(),
            spaces: SpaceReader::default(),
            poll: OnceLock::new(),
            #[cfg(feature = "tokio")]
            readiness: None,
        })
    }
}

impl Subscriber {
    /// Connects to a broker with the default options.
    ///
    /// # Errors
    /// As [`SubscriberBuilder::connect`].
    pub fn connect(addr: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(addr)
    }

    /// Options for a connection.
    pub fn builder() -> SubscriberBuilder {
        SubscriberBuilder::default()
    }

    /// Subscribes to a topic, or to every topic that a filter matches (`+` is any one level, `#` the rest), from the next
    /// message on. A topic that several filters match is received once. Topics need not exist yet: later ones are received
    /// from their first message. Returns without waiting for the broker; [`Notice::Joined`] reports each active subscription.
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
    /// The name or filter is not valid.
    pub fn subscribe(&mut self, topics: &str) -> Result<(), SubscribeTopicError> {
        self.subscribe_from(topics, StartFrom::Newest)
    }

    /// As [`Subscriber::subscribe`], with another start. Later publishers are received from their first message. In a topic that
    /// several filters match, the earliest filter decides the start.
    ///
    /// # Errors
    /// The name or filter is not valid.
    pub fn subscribe_from(&mut self, topics: &str, start: StartFrom) -> Result<(), SubscribeTopicError> {
        let filter: TopicFilter = topics.parse()?;
        if self.driver.over() == Some(ReceiveError::ShutDown) {
            return Err(SubscribeTopicError::ShutDown);
        }
        self.driver.subscribe(&self.connection.conn(), &filter, start);
        self.follow_filters();
        Ok(())
    }

    /// Ends the subscription of a topic or filter, exactly as it was subscribed. Nothing more is received from topics that no
    /// other filter matches, not even messages that have arrived. A durable subscriber gives up its places there. Does nothing if
    /// there is no such subscription.
    ///
    /// # Errors
    /// The name or filter is not valid.
    pub fn unsubscribe(&mut self, topics: &str) -> Result<(), SubscribeTopicError> {
        let filter: TopicFilter = topics.parse()?;
        let left = self.driver.unsubscribe(&filter);
        if let Some(cursor) = self.cursor.take_if(|cursor| left.contains(&cursor.epoch())) {
            cursor.consume_taken(&mut self.spare, &mut self.spaces);
        }
        self.follow_filters();
        Ok(())
    }

    /// The rest of the bytes of a space is for the present filters.
    fn follow_filters(&mut self) {
        if let Some(cursor) = self.cursor.as_mut().filter(|cursor| cursor.is_of_space()) {
            cursor.set_wanted(&self.driver.wanted());
        }
    }

    /// The next event, waiting at most `timeout`; none if nothing came.
    ///
    /// # Errors
    /// Another subscriber took over the place ([`ReceiveError::TakenOver`]), the context was shut down, or the call came from a callback of the framework,
    /// which must not wait.
    pub fn next_event(&mut self, timeout: Option<Duration>) -> Result<Option<Event<'_>>, ReceiveError> {
        let next = self.take_event(timeout)?;
        let spare = &mut self.spare;
        Ok(next.map(|taken| taken.into_event(spare)))
    }

    /// As [`Subscriber::next_event`], without borrowing the subscriber.
    pub(crate) fn take_event(&mut self, timeout: Option<Duration>) -> Result<Option<Taken>, ReceiveError> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(part) = self.next_part() {
                return Ok(Some(Taken::Bytes(part)));
            }
            match self.take_whole(deadline.left())? {
                // Perhaps nothing of it is wanted.
                Some(Taken::Bytes(taken)) if taken.space.is_some() => self.cursor = Some(taken.into_cursor()),
                other => return Ok(other),
            }
        }
    }

    /// The next records of one topic in the bytes of a space that are being taken.
    fn next_part(&mut self) -> Option<TakenBytes> {
        let cursor = self.cursor.as_mut().filter(|cursor| cursor.is_of_space())?;
        let part = cursor.next_part(&mut self.spaces);
        // The end of the last part returns the space, whether or not the application calls again.
        if let Some(taken) = self.cursor.take_if(|cursor| part.is_none() || cursor.is_at_end()) {
            taken.consume(&mut self.spare, &mut self.spaces);
        }
        let (topic, part) = part?;
        Some(TakenBytes { bytes: Bytes::Part(part), topic, framing: Framing::Records, space: None })
    }

    /// As [`Subscriber::take_event`], with everything that arrived of a space, whatever of it is wanted.
    pub(crate) fn take_whole(&mut self, timeout: Option<Duration>) -> Result<Option<Taken>, ReceiveError> {
        // What is left of a batch whose messages were taken one by one comes before everything else.
        if let Some((bytes, topic, framing)) =
            self.cursor.take().and_then(|cursor| cursor.into_rest(&mut self.spare))
        {
            return Ok(Some(Taken::Bytes(TakenBytes { bytes, topic, framing, space: None })));
        }
        let deadline = Deadline::after(timeout);
        loop {
            let (notice, disconnected) = self.driver.next_notice()?;
            if let Some(notice) = notice {
                return Ok(Some(Taken::Notice(notice)));
            }
            let over = deadline.has_passed();
            // Data that was received before the connection was lost comes first.
            let wait = if disconnected { Duration::ZERO } else { deadline.left_within(STEP) };
            match self.rin.recv(Some(wait))? {
                Some(InEvent::Data(view)) => {
                    if let Some(taken) = self.take(view) {
                        return Ok(Some(taken));
                    }
                }
                Some(event) => self.driver.on_event(event),
                None if let Some(why) = self.driver.over() => return Err(why),
                None if disconnected && self.wait_moved(deadline.left()) => {}
                None if over || self.driver.is_dismissed() => return Ok(None),
                None => {}
            }
        }
    }

    /// The next messages, several at once and in the memory where they landed, waiting at most `timeout`; none if nothing came.
    /// A topic without a publisher may get another one, so the call waits. With [`SubscriberBuilder::until_ended`] it returns
    /// none as soon as every topic has ended. After [`Subscriber::recv`] it begins with the messages that arrived together with the
    /// last one; in a merged topic with all messages of its run, at whose start alone a batch begins.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let mut subscriber = rbmq::Subscriber::connect("127.0.0.1:7411")?;
    /// subscriber.subscribe("prices")?;
    /// let mut bytes = 0;
    /// while let Some(batch) = subscriber.next_batch(Some(Duration::from_secs(10)))? {
    ///     bytes += batch.records().map(<[u8]>::len).sum::<usize>();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Messages are missing, or the broker refused something. Each error is returned once, and the next call continues, unless
    /// [`ReceiveError::is_final`].
    pub fn next_batch(&mut self, timeout: Option<Duration>) -> Result<Option<Batch<'_>>, ReceiveError> {
        let next = self.wait_bytes(timeout, Self::take_event)?;
        let spare = &mut self.spare;
        Ok(next.map(|taken| taken.into_batch(spare)))
    }

    /// A copy of the next message, waiting at most `timeout`; none if nothing came, as for [`Subscriber::next_batch`].
    ///
    /// # Errors
    /// As [`Subscriber::next_batch`].
    pub fn recv(&mut self, timeout: Option<Duration>) -> Result<Option<Message>, ReceiveError> {
        Ok(self.recv_ref(timeout)?.map(|message| message.to_message()))
    }

    /// The next message in the memory where it landed, waiting at most `timeout`; none if nothing came, as for
    /// [`Subscriber::next_batch`]. The messages of a batch are consumed by the call that follows the last one.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let mut subscriber = rbmq::Subscriber::connect("127.0.0.1:7411")?;
    /// subscriber.subscribe("prices")?;
    /// let mut bytes = 0;
    /// while let Some(message) = subscriber.recv_ref(Some(Duration::from_secs(10)))? {
    ///     bytes += message.bytes.len();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Subscriber::next_batch`].
    #[inline]
    pub fn recv_ref(&mut self, timeout: Option<Duration>) -> Result<Option<MessageRef<'_>>, ReceiveError> {
        let place = match self.cursor.as_mut().and_then(BatchCursor::step) {
            Some(place) => place,
            None => match self.next_place(timeout)? {
                Some(place) => place,
                None => return Ok(None),
            },
        };
        Ok(self.cursor.as_ref().map(|cursor| cursor.message(place)))
    }

    /// The place of the next message, which needs another batch or more than a step.
    #[inline(never)]
    fn next_place(&mut self, timeout: Option<Duration>) -> Result<Option<Place>, ReceiveError> {
        let mut deadline = None;
        loop {
            if let Some(cursor) = &mut self.cursor
                && let Some(place) = cursor.advance(&mut self.spaces)?
            {
                return Ok(Some(place));
            }
            // Only now: no clock is read for the messages of a space that are here.
            let deadline = *deadline.get_or_insert_with(|| Deadline::after(timeout));
            if !self.next_cursor(deadline.left())? {
                return Ok(None);
            }
        }
    }

    /// Consumes the batch whose messages were all taken, and waits for another one.
    fn next_cursor(&mut self, timeout: Option<Duration>) -> Result<bool, ReceiveError> {
        if let Some(taken) = self.cursor.take() {
            taken.consume(&mut self.spare, &mut self.spaces);
        }
        let next = self.wait_bytes(timeout, Self::take_whole)?;
        if let Some(taken) = next {
            self.cursor = Some(taken.into_cursor());
        }
        Ok(self.cursor.is_some())
    }

    /// Whether every subscribed topic and filter has matched a publisher's log, and all matched logs have ended and were
    /// received. Another log may appear later, for a filter as for a topic.
    pub fn ended(&self) -> bool {
        self.cursor.is_none() && self.driver.has_ended()
    }

    /// Whether everything that the application subscribed to is in force: the broker has answered, and what is published from now on, to topics
    /// that exist or that appear later, arrives. The calls that receive bring the answers in: a program that must know before it goes on takes
    /// events until this is true. After a call that returned false, [`Subscriber::pollable`] is readable when it would return true.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use rbmq::Subscriber;
    /// # use rbmq_broker::{Broker, BrokerConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut config = BrokerConfig::default();
    /// # config.broker.listen = "127.0.0.1:0".into();
    /// # let broker = Broker::start(config)?;
    /// let mut subscriber = Subscriber::connect(&broker.addr())?;
    /// subscriber.subscribe("news/#")?;
    /// while !subscriber.is_settled() {
    ///     subscriber.next_event(Some(Duration::from_millis(1)))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_settled(&self) -> bool {
        self.driver.is_settled()
    }

    /// The filters that the broker has refused since the last call, as soon as it has answered all requests ([`Subscriber::is_settled`]). Nothing
    /// comes of them. They are asked for again by [`Subscriber::subscribe`] and over each new connection, until [`Subscriber::unsubscribe`]. A filter
    /// with wildcards is in force for the topics that the user may read, and refused if all its topics are in a space that the user may not read. What was in force and is refused after a reconnect is told
    /// by [`Notice::Refused`](crate::Notice::Refused) alone.
    pub fn take_refused(&mut self) -> Vec<RefusedFilter> {
        self.driver.take_refused()
    }

    /// The broker process at which all subscriptions are in force, for [`PublisherBuilder::resume_when`](crate::PublisherBuilder::resume_when);
    /// none while they are not. After a loss it is the last one, until the calls that receive have moved to another one.
    #[doc(hidden)]
    pub fn receives_from(&self) -> Option<u128> {
        self.driver.receives_from()
    }

    /// A descriptor that is readable while a call that receives would return something. The application's event loop may only
    /// poll it. When it is readable, take events or messages with a time-out of zero until none is returned: messages of a
    /// batch that is partly taken do not make the descriptor readable.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pollable(&self) -> io::Result<BorrowedFd<'_>> {
        if let Some(poll) = self.poll.get() {
            return Ok(poll.as_fd());
        }
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        self.driver.with_descriptor(|descriptor| add_to_poll(&poll, descriptor))?;
        add_to_poll(&poll, self.rin.pollable()?)?;
        Ok(self.poll.get_or_init(|| poll).as_fd())
    }

    /// Says whether the calling thread is awake, and takes messages with a time-out of zero again and again. Such calls then look themselves at the
    /// memory of topics that the broker shares: nothing else has to wake up. Before the thread sleeps on [`Subscriber::pollable`], it says that it is
    /// not awake; true: a call has something, and the thread must not sleep. The first call has to come before the first subscription, and the context has
    /// to be the subscriber's own.
    #[doc(hidden)]
    pub fn attend(&self, is_awake: bool) -> bool {
        self.rin.attend(is_awake)
    }

    /// What ends a wait of this subscriber from another thread, as a program does that is to end.
    ///
    /// ```
    /// # use rbmq::{ReceiveError, Subscriber};
    /// # use rbmq_broker::{Broker, BrokerConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut config = BrokerConfig::default();
    /// # config.broker.listen = "127.0.0.1:0".into();
    /// # let broker = Broker::start(config)?;
    /// let mut subscriber = Subscriber::connect(&broker.addr())?;
    /// let interrupter = subscriber.interrupter();
    /// let receiver = std::thread::spawn(move || subscriber.recv(None));
    /// interrupter.interrupt();
    /// assert_eq!(receiver.join().unwrap().unwrap_err(), ReceiveError::Interrupted);
    /// # Ok(())
    /// # }
    /// ```
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(Arc::downgrade(&self.driver))
    }

    /// Whether the connection to the broker is up.
    pub fn is_connected(&self) -> bool {
        self.connection.conn().is_up()
    }

    /// The context, to share its memory and its threads. If the subscriber created it, callbacks set on it may run inside
    /// calls that wait ([`Context::allow_callbacks_in_calls`]).
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Closes the connection. Waits at most 10 s. The messages that were handed out count as consumed (in a merged topic: those
    /// of whole runs). A durable subscriber that returns resumes with the first delivery of which it had not all.
    pub fn close(self) {
        self.close_timeout(Some(CLOSE_TIMEOUT));
    }

    /// As [`Subscriber::close`], waiting at most `timeout`.
    pub fn close_timeout(mut self, timeout: Option<Duration>) {
        if let Some(cursor) = self.cursor.take() {
            cursor.consume_taken(&mut self.spare, &mut self.spaces);
        }
        self.connection.close(timeout);
    }

    /// The next bytes. Losses and refusals are errors, and other notices are skipped.
    pub(crate) fn wait_bytes(
        &mut self,
        timeout: Option<Duration>,
        take: impl Fn(&mut Self, Option<Duration>) -> Result<Option<Taken>, ReceiveError>,
    ) -> Result<Option<TakenBytes>, ReceiveError> {
        let deadline = Deadline::after(timeout);
        loop {
            let until_ended = self.driver.options.until_ended;
            if until_ended && self.ended() {
                return Ok(None);
            }
            let over = deadline.has_passed();
            // The broker's last answer may complete the end of all topics. This answer wakes no thread that waits for data.
            match take(self, Some(deadline.left_within(STEP)))? {
                None if over || self.driver.is_dismissed() => return Ok(None),
                None => {}
                Some(Taken::Bytes(taken)) => return Ok(Some(taken)),
                // The topic may get another publisher.
                Some(Taken::Notice(Notice::Gone { .. })) if !until_ended => {}
                Some(Taken::Notice(notice)) => notice.into_error().map_or(Ok(()), Err)?,
            }
        }
    }

    /// Takes the bytes of received data, and remembers that they were handed out. Bytes that were overwritten are lost.
    fn take(&mut self, view: InView) -> Option<Taken> {
        let HandedOut { topic, framing, space } = self.driver.hand_out(view.bid(), view.end())?;
        let (epoch, from, to) = (view.epoch(), view.position(), view.end());
        if let Some(bytes) = Bytes::of(view, &mut self.spare) {
            return Some(Taken::Bytes(TakenBytes { bytes, topic, framing, space }));
        }
        self.driver.on_overwritten(epoch, to);
        Some(Taken::Notice(Notice::Lost { topic, epoch, from, to }))
    }

    /// Waits for a connection after a loss. Moves to it, and returns true, if it leads to another broker process.
    fn wait_moved(&mut self, timeout: Option<Duration>) -> bool {
        let Some(conn) = self.driver.wait_moved(timeout) else { return false };
        self.rin = self.driver.move_to(&conn);
        if let Some(poll) = self.poll.get() {
            // The descriptor of the former rIn leaves the poll set when it is closed.
            let added = self.rin.pollable().and_then(|descriptor| add_to_poll(poll, descriptor));
            if let Err(error) = added {
                debug!("the descriptor does not follow the new connection: {error}");
            }
        }
        true
    }
}

fn add_to_poll(poll: &OwnedFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    epoll::add(poll, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    Ok(())
}

/// Ends waits of a [`Subscriber`], from any thread.
#[derive(Clone)]
pub struct Interrupter(Weak<SubscriptionDriver>);

impl Interrupter {
    /// The call that receives on the subscriber and waits, or the next one that has to look for more than the rest of a batch, fails with
    /// [`ReceiveError::Interrupted`], once. Does nothing if the subscriber is gone.
    pub fn interrupt(&self) {
        if let Some(driver) = self.0.upgrade() {
            driver.interrupt();
        }
    }

    /// Calls that receive wait no longer, and return nothing as if their time were over, until [`Interrupter::readmit`]. An interrupt, which
    /// is the program's, stays beside it.
    #[doc(hidden)]
    pub fn dismiss(&self) {
        if let Some(driver) = self.0.upgrade() {
            driver.dismiss();
        }
    }

    /// Takes [`Interrupter::dismiss`] back.
    #[doc(hidden)]
    pub fn readmit(&self) {
        if let Some(driver) = self.0.upgrade() {
            driver.readmit();
        }
    }
}

impl std::fmt::Debug for Interrupter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupter").finish_non_exhaustive()
    }
}

impl IntoIterator for Subscriber {
    type Item = Result<Message, ReceiveError>;
    type IntoIter = Messages;

    fn into_iter(self) -> Messages {
        Messages { subscriber: self, over: false }
    }
}

/// The messages of a subscriber, without an end; with [`SubscriberBuilder::until_ended`], until every topic has ended. An error
/// that [`ReceiveError::is_final`] ends the iterator, and after any other one it continues. See [`Subscriber`].
pub struct Messages {
    subscriber: Subscriber,
    over: bool,
}

impl Iterator for Messages {
    type Item = Result<Message, ReceiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.subscriber.recv(None).transpose();
        self.over = next.as_ref().is_none_or(|next| next.as_ref().is_err_and(ReceiveError::is_final));
        next
    }
}

impl std::fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriber").field("conn", &self.connection.conn()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
