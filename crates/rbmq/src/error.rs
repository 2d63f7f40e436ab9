//! What can go wrong at a client, one enum for each operation. Time-outs are outcomes that an application expects.

use std::time::Duration;

use rocketbufs::{BufferError, ConnError, ContextError};

use super::confirm::Level;
use crate::wire::{DecodeError, FilterError, RefuseCode, TopicError, TopicName, UnpackError};

/// A client could not connect to a broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Memory, threads or the configuration of this process.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// Nobody answered, or the broker did not want this client.
    #[error("cannot connect to the broker at {addr}: {source}")]
    Broker {
        /// Where to.
        addr: String,
        /// Why.
        source: ConnError,
    },
    /// The system refused a thread.
    #[error("cannot start the thread that reconnects: {0}")]
    Thread(std::io::Error),
    /// The system has no random numbers, of which a client needs one for its name.
    #[error("no random numbers: {0}")]
    Random(String),
}

/// A topic could not be opened for publishing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopicOpenError {
    /// No topic can have that name.
    #[error(transparent)]
    Name(#[from] TopicError),
    /// No memory for its buffer, or too many buffers.
    #[error("no buffer for topic '{topic}' here at the publisher: {source}{}", whose(source))]
    Buffer {
        /// The topic.
        topic: TopicName,
        /// Why.
        source: BufferError,
    },
    /// The broker does not take it.
    #[error("the broker refused topic '{topic}': {reason}")]
    Refused {
        /// The topic.
        topic: TopicName,
        /// Why.
        code: RefuseCode,
        /// The same in words, with numbers.
        reason: String,
    },
    /// The broker did not answer.
    #[error("the broker did not take topic '{topic}' within {waited:?}{}", why(.last_error))]
    TimedOut {
        /// The topic.
        topic: TopicName,
        /// How long it was waited for.
        waited: Duration,
        /// Why there was no connection, if there was none.
        last_error: Option<String>,
    },
}

/// A record was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// It is larger than a delivery of this topic may be.
    #[error(
        "a record of {size} bytes is too large: with its header of 4 a delivery of this topic has at most \
             {max}; open the topic with a larger max_delivery_bytes"
    )]
    TooLarge {
        /// Its size.
        size: u64,
        /// Most bytes of a delivery.
        max: u64,
    },
    /// The topic's buffer stayed full: subscribers with policy `block` are slow, or the broker is away. Nothing of
    /// the record was published; the caller still has it.
    #[error("the topic's buffer stayed full: a subscriber is slow, or the broker is away{}", why(.last_error))]
    TimedOut {
        /// Why there is no connection, if there is none.
        last_error: Option<String>,
    },
    /// Fewer subscribers are there than [`TopicOptions::min_subscribers`](crate::TopicOptions::min_subscribers) asks for.
    /// Nothing of the record was published; the caller still has it.
    #[error("{present} subscribers are there; at least {wanted} must be (min_subscribers){}", why(.last_error))]
    TooFewSubscribers {
        /// How many there are.
        present: u32,
        /// How many there must be.
        wanted: u32,
        /// Why there is no connection, if there is none.
        last_error: Option<String>,
    },
    /// The broker no longer takes the topic (after a reconnect).
    #[error("the broker refused the topic: {reason}")]
    Refused {
        /// In words.
        reason: String,
    },
    /// Records and raw bytes cannot be mixed in a topic.
    #[error("this topic was opened for {opened}; open it for {wanted} to publish them")]
    WrongFraming {
        /// What it was opened for.
        opened: crate::wire::Framing,
        /// What was published.
        wanted: crate::wire::Framing,
    },
    /// The framework cannot write: the text says why.
    #[error("{0}")]
    Buffer(String),
}

/// Something that a publisher waited for did not come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublisherWaitError {
    /// Fewer subscribers than wanted.
    #[error("topic '{topic}' has {present} of {wanted} subscribers after {waited:?}")]
    Subscribers {
        /// The topic.
        topic: TopicName,
        /// How many there are.
        present: u32,
        /// How many were waited for.
        wanted: u32,
        /// How long.
        waited: Duration,
    },
    /// The broker does not have everything.
    #[error(
        "the broker does not have everything of topic '{topic}' after {waited:?}: confirmed up to position \
         {confirmed} of {end}{}", why(.last_error)
    )]
    NotLanded {
        /// The topic.
        topic: TopicName,
        /// What it has.
        confirmed: u64,
        /// What was published.
        end: u64,
        /// How long.
        waited: Duration,
        /// Why there is no connection, if there is none.
        last_error: Option<String>,
    },
    /// The broker refused the topic after a reconnect.
    #[error("the broker refused topic '{topic}': {reason}")]
    Refused {
        /// The topic.
        topic: TopicName,
        /// In words.
        reason: String,
    },
}

/// Something was not confirmed. `confirmed` says what is: everything below.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// Not yet: a subscriber is slow, or the broker is away. It may still come.
    #[error(
        "topic '{topic}': position {position} was not {level} within {waited:?}; confirmed up to {confirmed}{}{}",
        still_missing(*.missing), why(.last_error)
    )]
    TimedOut {
        /// The topic.
        topic: TopicName,
        /// The level waited for.
        level: Level,
        /// The position waited for.
        position: u64,
        /// What is confirmed.
        confirmed: u64,
        /// How long.
        waited: Duration,
        /// How many subscribers are missing to [`TopicOptions::min_subscribers`](crate::TopicOptions::min_subscribers).
        missing: u32,
        /// Why there is no connection, if there is none.
        last_error: Option<String>,
    },
    /// So few subscribers had it when it was confirmed that it does not count
    /// ([`TopicOptions::min_subscribers`](crate::TopicOptions::min_subscribers)): some went for good, and those who came
    /// instead began behind it. Nothing beyond is confirmed either, at this level, until
    /// [`TopicWriter::accept_lost`](crate::TopicWriter::accept_lost). Publish it again if others are to have it.
    #[error(
        "topic '{topic}': {} bytes (positions {from} to {to}) are {level} by {subscribers} subscribers, and {wanted} are \
         wanted (min_subscribers): publish them again, or give subscribers a hold time. Confirmed up to {confirmed}",
        to - from
    )]
    TooFew {
        /// The topic.
        topic: TopicName,
        /// The level.
        level: Level,
        /// What is confirmed.
        confirmed: u64,
        /// First position that too few have.
        from: u64,
        /// First position behind.
        to: u64,
        /// How many have it, as far as is known.
        subscribers: u32,
        /// How many must.
        wanted: u32,
    },
    /// A broker died with what it had taken, and the publisher does not have it any more: it will never be confirmed.
    /// Nothing beyond is either, at this level, until [`TopicWriter::accept_lost`](crate::TopicWriter::accept_lost).
    #[error(
        "topic '{topic}': {} bytes were lost before they were {level} (positions {from} to {to}): the broker that had \
         them is gone, and the ring here has gone on; keep_until_delivered keeps it here. Confirmed up to {confirmed}",
        to - from
    )]
    Lost {
        /// The topic.
        topic: TopicName,
        /// The level.
        level: Level,
        /// What is confirmed.
        confirmed: u64,
        /// First position that is lost.
        from: u64,
        /// First position that is not.
        to: u64,
    },
    /// The broker does not take the topic any more.
    #[error("the broker refused topic '{topic}': {reason}; {level} up to {confirmed}")]
    Refused {
        /// The topic.
        topic: TopicName,
        /// The level.
        level: Level,
        /// What is confirmed.
        confirmed: u64,
        /// Why.
        reason: String,
    },
    /// The topic was closed before.
    #[error("topic '{topic}' was closed; {level} up to {confirmed}: wait for confirmations before closing")]
    Closed {
        /// The topic.
        topic: TopicName,
        /// The level.
        level: Level,
        /// What is confirmed.
        confirmed: u64,
    },
    /// Nothing was published up to there.
    #[error("topic '{topic}': position {position} was not published; the topic ends at {end}")]
    NotPublished {
        /// The topic.
        topic: TopicName,
        /// The position.
        position: u64,
        /// Where the topic ends now.
        end: u64,
    },
    /// Too many wait; wait for some of them first, or for every tenth: confirmations are cumulative.
    #[error(
        "topic '{topic}': {waiting} confirmations are waited for; the limit (max_confirmations) is {limit}"
    )]
    TooMany {
        /// The topic.
        topic: TopicName,
        /// How many wait.
        waiting: usize,
        /// The limit.
        limit: usize,
    },
}

impl ConfirmError {
    /// The same, with the reason why there is no connection, and how many subscribers are missing.
    pub(super) fn explained(self, why: Option<String>, missing: u32) -> Self {
        match self {
            Self::TimedOut { topic, level, position, confirmed, waited, .. } => {
                Self::TimedOut { topic, level, position, confirmed, waited, missing, last_error: why }
            }
            other => other,
        }
    }
}

/// A topic could not be subscribed to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeTopicError {
    /// It is no topic's name, and no filter.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The name of the subscriber is too long to hold its place under, or it wants a place held and has none.
    #[error("the subscriber's name has {bytes} bytes; with 1 to {max} its place can be held")]
    SubscriberName {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

/// Receiving ended, or something is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Bytes of a topic are gone (this subscriber was too slow for its policy, or away for too long). Receiving goes
    /// on behind them.
    #[error("topic '{topic}': {} bytes were lost (positions {from} to {to}); read faster, use a larger ring, or the policy 'block'", to - from)]
    Lost {
        /// The topic.
        topic: TopicName,
        /// First position that is missing.
        from: u64,
        /// First position that is there again.
        to: u64,
    },
    /// A publisher is gone without closing its topic: what it had not sent is missing. Other publishers go on.
    #[error(
        "topic '{topic}': a publisher is gone and did not close the topic; the last complete delivery ended at {end}"
    )]
    Gone {
        /// The topic.
        topic: TopicName,
        /// Where its log ended.
        end: u64,
    },
    /// The broker refused, or ended a subscription.
    #[error("{0}")]
    Refused(String),
    /// A publisher of records wrote something else, or (in a merged topic) the broker did. Receiving goes on behind it.
    #[error("topic '{topic}': {error}")]
    Malformed {
        /// The topic.
        topic: TopicName,
        /// What it is.
        error: UnpackError,
    },
    /// The connection is lost and is not made again: another subscriber of the same name took over the place.
    #[error("the connection to the broker is over: {0}")]
    Down(String),
    /// A call that waits was made from a callback.
    #[error(transparent)]
    Framework(#[from] rocketbufs::RecvError),
}

/// A broker could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The connection is down; connect again.
    #[error("the connection to the broker is down: {0}")]
    Down(String),
    /// The broker did not answer.
    #[error("the broker did not answer within {waited:?}")]
    TimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
    /// The broker's answer is none of this version.
    #[error("the broker's answer cannot be read ({0}); update the older of the two")]
    Malformed(DecodeError),
    /// The broker's list does not end.
    #[error("the broker's list does not end; it is another program, or broken")]
    Endless,
    /// The broker answered another question.
    #[error("the broker's answer to request {request} is of another kind; update the older of the two")]
    Unexpected {
        /// The request.
        request: u32,
    },
}

fn still_missing(subscribers: u32) -> String {
    match subscribers {
        0 => String::new(),
        1 => "; 1 more subscriber must come (min_subscribers)".into(),
        more => format!("; {more} more subscribers must come (min_subscribers)"),
    }
}

/// The broker has limits of the same names.
fn whose(error: &BufferError) -> &'static str {
    match error {
        BufferError::Memory(_) | BufferError::TooMany(_) => {
            "; this process has settings of its own, and this is none of the broker's"
        }
        _ => "",
    }
}

fn why(last_error: &Option<String>) -> String {
    last_error.as_ref().map_or_else(String::new, |why| format!(" (not connected: {why})"))
}
