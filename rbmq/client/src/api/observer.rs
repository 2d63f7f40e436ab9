//! An observer: asks a broker for its state, as `rbmq top` does.

use std::time::Duration;

use rbmq_wire::connect::is_encrypted;
use rocketbufs::{Bid, Config, Conn, Context, InEvent, RIn};

use crate::connection::hello;
use crate::ground::deadline::Deadline;
use crate::ground::error::{ConnectError, ObserveError};
use crate::ground::login::{Login, login_setters};
use crate::wire::{
    BrokerSummary, BufferStats, GatewayStats, GroupStats, LimitStats, Observe, Role, SubscriptionSortKey,
    SubscriptionStats, TopicFilter, TopicName, TopicStats,
};

/// How long a call waits for an answer by default.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of all answers to one call: more than any broker has, and a limit for a faulty one.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Smaller answers count as this many bytes.
const MIN_ANSWER_BYTES: usize = 256;

/// A list of many answers may take this many times as long as one answer.
const LIST_TIMEOUT_FACTOR: u32 = 30;

/// The longest wait before the observer checks the connection.
const STEP: Duration = Duration::from_millis(50);

/// Asks a broker for its topics, their buffers, and the subscribers that are slow or hold publishers.
///
/// The broker sends only answers. An observer does not reconnect: after [`ObserveError::Down`] every call fails. One thread uses
/// it at a time.
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
/// use rbmq::Observer;
///
/// let mut observer = Observer::connect(&addr)?;
/// for topic in observer.topics(None)? {
///     println!("{}: slowest is {} bytes behind", topic.topic, topic.max_lag_bytes);
/// }
/// assert_eq!(observer.summary()?.topics, 1);
/// # Ok(())
/// # }
/// ```
pub struct Observer {
    conn: Conn,
    rin: RIn,
    _ctx: Context,
    requests: u32,
    timeout: Option<Duration>,
    call: Call,
}

/// The remaining bytes and time of a call that requests one page after the other.
struct Call {
    bytes: usize,
    deadline: Deadline,
}

/// Everything that the broker knows about a topic.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TopicDetail {
    /// The topic.
    pub topic: TopicName,
    /// The buffers, the oldest first. A topic that does not exist has none.
    pub buffers: Vec<BufferDetail>,
}

/// A buffer and its subscriptions.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BufferDetail {
    /// The buffer.
    #[serde(flatten)]
    pub buffer: BufferStats,
    /// The subscriptions, and the places of offline durable subscribers: the slowest first.
    pub subscriptions: Vec<SubscriptionStats>,
}

/// Options of an [`Observer`].
#[derive(Debug, Clone)]
pub struct ObserverBuilder {
    name: String,
    config: Config,
    timeout: Option<Duration>,
    login: Login,
}

login_setters!(ObserverBuilder);

impl Default for ObserverBuilder {
    fn default() -> Self {
        let (name, config, login) = (String::new(), Config::default(), Login::default());
        Self { name, config, timeout: Some(TIMEOUT), login }
    }
}

impl ObserverBuilder {
    /// Connects to a broker. Waits until it accepts, at most `session.connect_timeout_ms` of the configuration.
    ///
    /// # Errors
    /// No broker answers at the address, the broker refuses, or this process lacks memory or threads.
    pub fn connect(mut self, addr: &str) -> Result<Observer, ConnectError> {
        // An observer waits for one answer at a time.
        self.config.tcp.tcp_num_threads = 1;
        let timeout = Duration::from_millis(self.config.session.connect_timeout_ms.into());
        let ctx = Context::new(self.config)?;
        let hello = hello(Role::Observer, &self.name)?;
        let hello = self.login.hello(&hello, addr, is_encrypted(&ctx))?;
        let refused = |source| ConnectError::Broker { addr: addr.to_owned(), source };
        let conn = Conn::look_up_and_start(&ctx, addr, &hello).map_err(refused)?;
        let rin = RIn::new(&conn);
        conn.wait_up(Some(timeout)).map_err(refused)?;
        let call = Call { bytes: 0, deadline: Deadline::after(None) };
        Ok(Observer { conn, rin, _ctx: ctx, requests: 0, timeout: self.timeout, call })
    }
}

option_setters::setters! { ObserverBuilder:
    /// The name in the broker's log.
    name(name: &str) = name.to_owned();
    /// The framework's configuration.
    config(config: Config);
    /// How long a call waits for an answer; none: no limit. Default: 10 s. A list takes several answers, and at most thirty times
    /// as long.
    timeout(timeout: Option<Duration>);
}

impl Observer {
    /// Connects to a broker with the default options.
    ///
    /// # Errors
    /// As [`ObserverBuilder::connect`].
    pub fn connect(addr: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(addr)
    }

    /// Options for a connection.
    pub fn builder() -> ObserverBuilder {
        ObserverBuilder::default()
    }

    /// The state of the broker as a whole.
    ///
    /// # Errors
    /// [`ObserveError`]: the connection is down, or there was no answer in time.
    pub fn summary(&mut self) -> Result<BrokerSummary, ObserveError> {
        self.begin();
        match self.ask(|request| Observe::GetSummary { request })? {
            Observe::Summary { summary, .. } => Ok(summary),
            other => Err(unexpected(&other)),
        }
    }

    /// The users and addresses that are at or near a limit of the broker (`[quotas]`), those at a limit first: the first 100, or
    /// fewer if a message has no room for them.
    ///
    /// # Errors
    /// As [`Observer::summary`]. A broker that does not know the request closes the connection.
    pub fn limits(&mut self) -> Result<Vec<LimitStats>, ObserveError> {
        self.begin();
        match self.ask(|request| Observe::GetLimits { request })? {
            Observe::Limits { rows, .. } => Ok(rows),
            other => Err(unexpected(&other)),
        }
    }

    /// The gateways of the broker, for clients of other systems.
    ///
    /// # Errors
    /// As [`Observer::limits`].
    pub fn gateways(&mut self) -> Result<Vec<GatewayStats>, ObserveError> {
        self.begin();
        match self.ask(|request| Observe::GetGateways { request })? {
            Observe::Gateways { rows, .. } => Ok(rows),
            other => Err(unexpected(&other)),
        }
    }

    /// The groups of workers, those with the largest lag first: as many as fit into a message, about eighty.
    ///
    /// # Errors
    /// As [`Observer::limits`].
    pub fn groups(&mut self) -> Result<Vec<GroupStats>, ObserveError> {
        self.begin();
        match self.ask(|request| Observe::GetGroups { request })? {
            Observe::Groups { rows, .. } => Ok(rows),
            other => Err(unexpected(&other)),
        }
    }

    /// The topics that a filter matches (none: all topics), sorted by name.
    ///
    /// # Errors
    /// As [`Observer::summary`], or the list does not end.
    pub fn topics(&mut self, filter: Option<&TopicFilter>) -> Result<Vec<TopicStats>, ObserveError> {
        self.begin();
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let filter = filter.cloned();
            match self.ask(|request| Observe::GetTopics { request, filter, after: after.take() })? {
                Observe::TopicsPage { rows, next, .. } => {
                    all.extend(rows);
                    match next {
                        Some(next) => after = Some(next),
                        None => return Ok(all),
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// A topic with its buffers and all their subscriptions.
    ///
    /// # Errors
    /// As [`Observer::topics`].
    pub fn topic(&mut self, topic: &TopicName) -> Result<TopicDetail, ObserveError> {
        self.begin();
        let (mut buffers, mut after) = (Vec::new(), None);
        loop {
            let topic = topic.clone();
            match self.ask(|request| Observe::GetBuffers { request, topic, after })? {
                Observe::BuffersPage { rows, next, .. } => {
                    buffers.extend(rows);
                    after = next;
                }
                other => return Err(unexpected(&other)),
            }
            if after.is_none() {
                break;
            }
        }
        let detail = |buffer: BufferStats| {
            let subscriptions = self.subscriptions(buffer.bid)?;
            Ok(BufferDetail { buffer, subscriptions })
        };
        let buffers = buffers.into_iter().map(detail).collect::<Result<_, ObserveError>>()?;
        Ok(TopicDetail { topic: topic.clone(), buffers })
    }

    fn subscriptions(&mut self, bid: Bid) -> Result<Vec<SubscriptionStats>, ObserveError> {
        let mut all: Vec<SubscriptionStats> = Vec::new();
        let mut after: Option<SubscriptionSortKey> = None;
        loop {
            match self.ask(|request| Observe::GetSubscriptions { request, bid, after: after.take() })? {
                Observe::SubscriptionsPage { rows, next, .. } => {
                    all.extend(rows);
                    match next {
                        Some(next) => after = Some(next),
                        None => break,
                    }
                }
                other => return Err(unexpected(&other)),
            }
        }
        // A subscription that moved between two pages is listed twice. The later row counts.
        all.reverse();
        let mut seen = std::collections::HashSet::new();
        all.retain(|row| seen.insert((row.conn, row.wire, row.offline.then(|| row.name.clone()))));
        all.sort_by_cached_key(SubscriptionStats::sort_key);
        Ok(all)
    }

    fn begin(&mut self) {
        let timeout = self.timeout.map(|timeout| timeout.saturating_mul(LIST_TIMEOUT_FACTOR));
        self.call = Call { bytes: MAX_ANSWER_BYTES, deadline: Deadline::after(timeout) };
    }

    fn ask(&mut self, message: impl FnOnce(u32) -> Observe) -> Result<Observe, ObserveError> {
        self.requests = self.requests.wrapping_add(1);
        let request = self.requests;
        let down = |conn: &Conn| conn.down_reason().map(|why| ObserveError::Down(why.to_string()));
        if let Err(error) = self.conn.send_control(&message(request).encode()) {
            return Err(down(&self.conn).unwrap_or_else(|| ObserveError::Down(error.to_string())));
        }
        let deadline = Deadline::after(self.timeout);
        loop {
            let over = deadline.has_passed() || self.call.deadline.has_passed();
            let step = deadline.left_within(self.call.deadline.left_within(STEP));
            if let Ok(Some(InEvent::Control { message: bytes })) = self.rin.recv(Some(step)) {
                let cost = bytes.len().max(MIN_ANSWER_BYTES);
                self.call.bytes = self.call.bytes.checked_sub(cost).ok_or(ObserveError::Endless)?;
                let answer = Observe::decode(&bytes).map_err(ObserveError::Malformed)?;
                if answer.request() == request {
                    return Ok(answer);
                }
                // Late answers to earlier requests are skipped.
            } else if let Some(down) = down(&self.conn) {
                return Err(down);
            }
            if over {
                let times = if deadline.has_passed() { 1 } else { LIST_TIMEOUT_FACTOR };
                let waited = self.timeout.unwrap_or_default().saturating_mul(times);
                return Err(ObserveError::TimedOut { waited });
            }
        }
    }
}

fn unexpected(answer: &Observe) -> ObserveError {
    ObserveError::Unexpected { request: answer.request() }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.conn.close("the observer is done");
        // The broker then counts one observer less.
        let _ = self.conn.wait_down(Some(Duration::from_millis(200)));
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("conn", &self.conn).finish()
    }
}
