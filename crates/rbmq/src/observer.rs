//! Somebody who looks at a broker: what `rbmq top` is made of.

use std::time::Duration;

use rocketbufs::{Bid, Config, Conn, Context, InEvent, RIn};

use super::error::{ConnectError, ObserveError};
use super::link::{Deadline, random};
use crate::wire::{
    BrokerSummary, BufferStats, Hello, Observe, Place, Role, SubscriptionStats, TopicFilter, TopicName,
    TopicStats,
};

/// How long an answer is waited for, unless it is said otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of all the answers that one call takes: more than any broker has to tell, and an end where it tells nonsense
/// for ever.
const ROOM_BYTES: usize = 64 << 20;

/// A smaller answer counts for so many.
const LEAST_BYTES: usize = 256;

/// How many times as long as an answer a list of many may take.
const LIST_PATIENCE: u32 = 30;

/// How long one wait lasts before the connection is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Asks a broker what is going on: its topics, their buffers, who is slow and whom that holds.
///
/// Nothing is sent unless it is asked for, and nothing at the broker is slower because of it. It does not reconnect: a
/// call that fails with [`ObserveError::Down`] fails from then on.
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
    patience: Duration,
    call: Call,
}

/// What is left to a call that asks for one page after the other.
struct Call {
    room: usize,
    deadline: Deadline,
}

/// A topic with everything that the broker knows of it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TopicDetail {
    /// The topic.
    pub topic: TopicName,
    /// Its buffers, the oldest first; none: there is no such topic.
    pub buffers: Vec<BufferDetail>,
}

/// A buffer and its subscriptions.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BufferDetail {
    /// The buffer.
    #[serde(flatten)]
    pub buffer: BufferStats,
    /// Who subscribes to it, or has a place there: the slowest first.
    pub subscriptions: Vec<SubscriptionStats>,
}

impl Observer {
    /// Connects to a broker with the defaults.
    ///
    /// # Errors
    /// Nobody answered, the broker refused, or this process lacks memory or threads.
    pub fn connect(addr: &str) -> Result<Self, ConnectError> {
        Self::connect_with(addr, "", Config::default())
    }

    /// Connects under a name that the broker logs, with the framework's configuration.
    ///
    /// # Errors
    /// As [`Observer::connect`].
    pub fn connect_with(addr: &str, name: &str, mut config: Config) -> Result<Self, ConnectError> {
        // It waits for one answer at a time.
        config.tcp.tcp_num_threads = 1;
        let timeout = Duration::from_millis(config.session.connect_timeout_ms.into());
        let ctx = Context::new(config)?;
        let hello = Hello { role: Role::Observer, client: random()?, name: name.to_owned() };
        let refused = |source| ConnectError::Broker { addr: addr.to_owned(), source };
        let conn = Conn::connect_start(&ctx, addr, &hello.encode()).map_err(refused)?;
        let rin = RIn::new(&conn);
        conn.wait_up(Some(timeout)).map_err(refused)?;
        let call = Call { room: 0, deadline: Deadline::after(Duration::ZERO) };
        Ok(Self { conn, rin, _ctx: ctx, requests: 0, patience: PATIENCE, call })
    }

    /// How long an answer is waited for, 10 seconds unless it is said otherwise. A list takes several answers, and thirty
    /// times as long at most.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The broker as a whole.
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

    /// The topics that a filter matches (none: all), by name.
    ///
    /// # Errors
    /// As [`Observer::summary`], or there was more than any broker has to tell.
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
        let mut after: Option<Place> = None;
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
        // One that moved on between two pages is there twice; the later word counts.
        all.reverse();
        let mut seen = std::collections::HashSet::new();
        all.retain(|row| seen.insert((row.conn, row.wire, row.absent.then(|| row.name.clone()))));
        all.sort_by_cached_key(SubscriptionStats::place);
        Ok(all)
    }

    fn begin(&mut self) {
        let deadline = Deadline::after(self.patience.saturating_mul(LIST_PATIENCE));
        self.call = Call { room: ROOM_BYTES, deadline };
    }

    fn ask(&mut self, message: impl FnOnce(u32) -> Observe) -> Result<Observe, ObserveError> {
        self.requests = self.requests.wrapping_add(1);
        let request = self.requests;
        let down = |conn: &Conn| conn.down_reason().map(ObserveError::Down);
        if let Err(error) = self.conn.send_control(&message(request).encode()) {
            return Err(down(&self.conn).unwrap_or_else(|| ObserveError::Down(error.to_string())));
        }
        let deadline = Deadline::after(self.patience);
        loop {
            let left = deadline.left().min(self.call.deadline.left());
            if let Ok(Some(InEvent::Control { message: bytes })) = self.rin.recv(Some(left.min(LOOK))) {
                let cost = bytes.len().max(LEAST_BYTES);
                self.call.room = self.call.room.checked_sub(cost).ok_or(ObserveError::Endless)?;
                let answer = Observe::decode(&bytes).map_err(ObserveError::Malformed)?;
                if answer.request() == request {
                    return Ok(answer);
                }
                // What was asked before and not waited for any more is passed over.
            } else if let Some(down) = down(&self.conn) {
                return Err(down);
            }
            if left.is_zero() {
                let times = if deadline.left().is_zero() { 1 } else { LIST_PATIENCE };
                return Err(ObserveError::TimedOut { waited: self.patience.saturating_mul(times) });
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
        // So that the broker hears it, and does not count it any longer.
        self.conn.wait_down(Some(Duration::from_millis(200)));
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("conn", &self.conn).finish()
    }
}
