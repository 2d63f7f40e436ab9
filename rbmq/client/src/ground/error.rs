//! Errors, one type for each operation. Time-outs are outcomes that an application expects.

use std::time::Duration;

use rocketbufs::error::{BufferError, ConnError, ContextError, RecvError};

use crate::ground::level::ConfirmLevel;
use crate::wire::{
    CredentialsError, DecodeError, FilterError, Framing, RefuseCode, SpaceError, TopicError, TopicFilter,
    TopicName, UnpackError,
};

/// Why a client is over: nothing that belongs to it works any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Closed,
    ShutDown,
}

/// Why a topic takes nothing more.
pub(crate) enum TopicEnd {
    Over(Over),
    Refused(RefuseCode, String),
}

impl TopicEnd {
    pub(crate) fn of_open(self, topic: TopicName) -> TopicOpenError {
        match self {
            Self::Over(Over::Closed) => TopicOpenError::Closed { topic },
            Self::Over(Over::ShutDown) => TopicOpenError::ShutDown { topic },
            Self::Refused(code, reason) => TopicOpenError::Refused { topic, code, reason },
        }
    }

    pub(crate) fn of_publish(self) -> PublishError {
        match self {
            Self::Over(Over::Closed) => PublishError::Closed,
            Self::Over(Over::ShutDown) => PublishError::ShutDown,
            Self::Refused(_, reason) => PublishError::Refused { reason },
        }
    }

    pub(crate) fn of_wait(self, topic: TopicName) -> PublisherWaitError {
        match self {
            Self::Over(Over::Closed) => PublisherWaitError::Closed { topic },
            Self::Over(Over::ShutDown) => PublisherWaitError::ShutDown { topic },
            Self::Refused(_, reason) => PublisherWaitError::Refused { topic, reason },
        }
    }
}

/// A client could not connect to a broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// This process lacks memory or threads, or its configuration is not valid.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// No broker answers at the address, or it does not accept this client.
    #[error("cannot connect to the broker at {addr}: {source}")]
    Broker {
        /// The address.
        addr: String,
        /// The reason.
        source: ConnError,
    },
    /// The name of the user, the password or the token is empty or too long. The broker was not asked.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// A password or token would leave this machine without encryption. The broker was not asked.
    #[error(
        "no password or token is sent to {addr}: the connection leaves this machine and is not encrypted, so everybody on the way \
         could read it; use TLS, or allow it for a network that you trust (allow_plaintext, --insecure)"
    )]
    Plaintext {
        /// The address.
        addr: String,
    },
    /// A broker names another one, to which a password or token is not sent. That one was not asked.
    #[error(
        "no password or token is sent to {addr}, which the broker at {home} names: the connection is not encrypted, or leads to this machine; \
         use TLS, or connect to several addresses that include this one"
    )]
    Named {
        /// The address.
        addr: String,
        /// The addresses to which the client was told to connect.
        home: String,
    },
    /// The name of a durable subscriber is empty or too long.
    #[error("the name of a durable subscriber has 1 to {max} bytes; this one has {bytes}")]
    DurableName {
        /// The length of the name.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The system refuses a thread.
    #[error("cannot start the thread that reconnects: {0}")]
    Thread(std::io::Error),
    /// The system has no random numbers. Every client has one as its identity.
    #[error("no random numbers: {0}")]
    Random(String),
}

/// A topic could not be opened for publishing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopicOpenError {
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] TopicError),
    /// The pattern of a space is no filter.
    #[error(transparent)]
    Pattern(#[from] FilterError),
    /// The pattern is none of a space.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// This process has no memory for the buffer, or too many buffers.
    #[error("no buffer for topic '{topic}' here at the publisher: {source}{}", whose(source))]
    Buffer {
        /// The topic.
        topic: TopicName,
        /// The reason.
        source: BufferError,
    },
    /// The broker refuses the topic.
    #[error("the broker refused topic '{topic}': {reason}")]
    Refused {
        /// The topic.
        topic: TopicName,
        /// The kind of the reason.
        code: RefuseCode,
        /// The reason, for people.
        reason: String,
    },
    /// The broker did not answer in time.
    #[error("the broker did not take topic '{topic}' within {waited:?}{}", not_connected(.last_error))]
    TimedOut {
        /// The topic.
        topic: TopicName,
        /// The time-out.
        waited: Duration,
        /// Why there is no connection; none if the connection is up.
        last_error: Option<String>,
    },
    /// The publisher was closed.
    #[error("topic '{topic}' is not opened: the publisher was closed")]
    Closed {
        /// The topic.
        topic: TopicName,
    },
    /// The context of the publisher was shut down.
    #[error("topic '{topic}' is not opened: the context was shut down")]
    ShutDown {
        /// The topic.
        topic: TopicName,
    },
}

/// A record was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The record does not fit into a delivery of this topic.
    #[error(
        "a record of {size} bytes is too large: with its header of 4 a delivery of this topic has at most \
             {max}; have the broker take larger messages (broker.max_message_bytes), or open the topic with a larger \
             max_delivery_bytes"
    )]
    TooLarge {
        /// The size of the record.
        size: u64,
        /// The largest delivery in bytes.
        max: u64,
    },
    /// The topic's ring stayed full: a subscriber that blocks publishers is slow, or the broker is away. Nothing was published.
    #[error("the topic's buffer stayed full: a subscriber is slow, or the broker is away{}", not_connected(.last_error))]
    TimedOut {
        /// Why there is no connection; none if the connection is up.
        last_error: Option<String>,
    },
    /// The topic has fewer subscribers than [`TopicOptions::min_subscribers`](crate::TopicOptions::min_subscribers). Nothing
    /// was published.
    #[error("the topic has {present} subscribers; at least {wanted} are required (min_subscribers){}", not_connected(.last_error))]
    TooFewSubscribers {
        /// The number of subscribers.
        present: u32,
        /// The required number.
        wanted: u32,
        /// Why there is no connection; none if the connection is up.
        last_error: Option<String>,
    },
    /// The broker refuses the topic (after a reconnect).
    #[error("the broker refused the topic: {reason}")]
    Refused {
        /// The reason, for people.
        reason: String,
    },
    /// A topic has either records or raw bytes.
    #[error("this topic was opened for {opened}; open it for {wanted} to publish them")]
    WrongFraming {
        /// The framing of the topic.
        opened: Framing,
        /// The framing of the call.
        wanted: Framing,
    },
    /// The topic is not in the space of the writer.
    #[error("topic '{topic}' is not in the space '{space}': open it by its name")]
    NotInSpace {
        /// The topic.
        topic: TopicName,
        /// The pattern of the space.
        space: TopicFilter,
    },
    /// The attributes name a topic, which only the writer does.
    #[error("the attributes of a record in a space name the topic '{topic}'; the call says the topic")]
    TopicInAttributes {
        /// The topic in the attributes.
        topic: String,
    },
    /// The publisher of the topic was closed. Close it after its topics.
    #[error("nothing is published: the publisher was closed")]
    Closed,
    /// The context of the publisher was shut down.
    #[error("nothing is published: the context was shut down")]
    ShutDown,
    /// The framework cannot write. The text has the reason.
    #[error("{0}")]
    Buffer(String),
}

/// A publisher waited in vain for subscribers or for its broker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublisherWaitError {
    /// The topic has too few subscribers.
    #[error("topic '{topic}' has {present} of {wanted} subscribers after {waited:?}")]
    TooFewSubscribers {
        /// The topic.
        topic: TopicName,
        /// The number of subscribers.
        present: u32,
        /// The wanted number.
        wanted: u32,
        /// The time-out.
        waited: Duration,
    },
    /// The broker does not have everything.
    #[error(
        "the broker does not have everything of topic '{topic}' after {waited:?}: confirmed up to position \
         {confirmed} of {end}{}", not_connected(.last_error)
    )]
    NotAccepted {
        /// The topic.
        topic: TopicName,
        /// The broker has everything below this position.
        confirmed: u64,
        /// The end of the published records.
        end: u64,
        /// The time-out.
        waited: Duration,
        /// Why there is no connection; none if the connection is up.
        last_error: Option<String>,
    },
    /// The broker refuses the topic (after a reconnect).
    #[error("the broker refused topic '{topic}': {reason}")]
    Refused {
        /// The topic.
        topic: TopicName,
        /// The reason, for people.
        reason: String,
    },
    /// The publisher was closed, possibly before the broker had everything.
    #[error("topic '{topic}': the publisher was closed; close its topics before")]
    Closed {
        /// The topic.
        topic: TopicName,
    },
    /// The context of the publisher was shut down, possibly before the broker had everything.
    #[error("topic '{topic}': the context was shut down")]
    ShutDown {
        /// The topic.
        topic: TopicName,
    },
}

/// Records were not confirmed. Everything below `confirmed` is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// The confirmation did not come in time: a subscriber is slow, or the broker is away. The confirmation may still come.
    #[error(
        "topic '{topic}': position {position} was not {level} within {waited:?}; confirmed up to {confirmed}{}{}{}",
        still_missing(*.missing), disk_fails(.disk_failure), not_connected(.last_error)
    )]
    TimedOut {
        /// The topic.
        topic: TopicName,
        /// The level.
        level: ConfirmLevel,
        /// The position that was waited for.
        position: u64,
        /// The confirmed position.
        confirmed: u64,
        /// The time-out.
        waited: Duration,
        /// How many subscribers are missing to [`TopicOptions::min_subscribers`](crate::TopicOptions::min_subscribers).
        missing: u32,
        /// Why there is no connection; none if the connection is up.
        last_error: Option<String>,
        /// Why the broker's disk takes nothing at the moment, for the levels of the disk; none if it works.
        disk_failure: Option<String>,
    },
    /// Fewer subscribers have the records than [`TopicOptions::min_subscribers`](crate::TopicOptions::min_subscribers)
    /// requires: some left for good, and their successors began later. This level confirms nothing beyond before
    /// [`TopicWriter::accept_lost`](crate::TopicWriter::accept_lost). Publish the records again if others need them.
    #[error(
        "topic '{topic}': {} bytes (positions {from} to {to}) are {level} by {subscribers} subscribers, and {wanted} are \
         required (min_subscribers): publish them again, or make subscribers durable. Confirmed up to {confirmed}",
        to - from
    )]
    TooFew {
        /// The topic.
        topic: TopicName,
        /// The level.
        level: ConfirmLevel,
        /// The confirmed position.
        confirmed: u64,
        /// The first position that too few subscribers have.
        from: u64,
        /// The end of the range.
        to: u64,
        /// How many subscribers have the range, as far as is known.
        subscribers: u32,
        /// The required number.
        wanted: u32,
    },
    /// A broker died with accepted records that the publisher no longer keeps. They will never be confirmed. This level
    /// confirms nothing beyond before [`TopicWriter::accept_lost`](crate::TopicWriter::accept_lost).
    #[error(
        "topic '{topic}': {} bytes were lost before they were {level} (positions {from} to {to}): the broker that had \
         them died, and the publisher no longer keeps them; keep_until_delivered keeps them. Confirmed up to {confirmed}",
        to - from
    )]
    Lost {
        /// The topic.
        topic: TopicName,
        /// The level.
        level: ConfirmLevel,
        /// The confirmed position.
        confirmed: u64,
        /// The first lost position.
        from: u64,
        /// The end of the loss.
        to: u64,
    },
    /// The broker refuses the topic.
    #[error("the broker refused topic '{topic}': {reason}; {level} up to {confirmed}")]
    Refused {
        /// The topic.
        topic: TopicName,
        /// The level.
        level: ConfirmLevel,
        /// The confirmed position.
        confirmed: u64,
        /// The reason, for people.
        reason: String,
    },
    /// The broker confirms nothing about its disk: it does not keep the topic (`keep = true`), or its disk lost a part of what was
    /// stored. Only with the levels of the disk and the archive.
    #[error("topic '{topic}' will not be {level}: {reason}; {level} up to {confirmed}")]
    NotStored {
        /// The topic.
        topic: TopicName,
        /// The level.
        level: ConfirmLevel,
        /// The confirmed position.
        confirmed: u64,
        /// Whether the disk lost a part of what was stored. Older brokers do not say so.
        lost: bool,
        /// The reason, for people.
        reason: String,
    },
    /// The topic or its publisher was closed before the confirmation came.
    #[error("topic '{topic}' was closed; {level} up to {confirmed}: wait for confirmations before closing")]
    Closed {
        /// The topic.
        topic: TopicName,
        /// The level.
        level: ConfirmLevel,
        /// The confirmed position.
        confirmed: u64,
    },
    /// The context was shut down before the confirmation came.
    #[error("topic '{topic}': the context was shut down; {level} up to {confirmed}")]
    ShutDown {
        /// The topic.
        topic: TopicName,
        /// The level.
        level: ConfirmLevel,
        /// The confirmed position.
        confirmed: u64,
    },
    /// The position is behind the last published record.
    #[error("topic '{topic}': position {position} was not published; the topic ends at {end}")]
    NotPublished {
        /// The topic.
        topic: TopicName,
        /// The position.
        position: u64,
        /// The end of the published records.
        end: u64,
    },
    /// Too many confirmations wait. Wait for some of them first, or confirm only every tenth record: confirmations are
    /// cumulative.
    #[error("topic '{topic}': {waiting} confirmations wait; the limit (max_confirmations) is {limit}")]
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
    /// Adds the state of the connection and the number of missing subscribers to a time-out.
    pub(crate) fn explained(self, why: Option<String>, missing: u32) -> Self {
        match self {
            Self::TimedOut { topic, level, position, confirmed, waited, disk_failure, .. } => {
                Self::TimedOut {
                    topic,
                    level,
                    position,
                    confirmed,
                    waited,
                    missing,
                    last_error: why,
                    disk_failure,
                }
            }
            other => other,
        }
    }
}

/// A topic could not be subscribed to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeTopicError {
    /// The text is neither the name of a topic nor a filter.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The context of the subscriber was shut down.
    #[error("the context was shut down")]
    ShutDown,
}

/// Receiving failed, or messages are missing. Unless [`ReceiveError::is_final`], the next call continues to receive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Messages of a topic are lost: this subscriber was too slow for its policy, or offline for too long.
    #[error("topic '{topic}': {} bytes were lost (positions {from} to {to}); read faster, use a larger ring, or the policy 'block'", to - from)]
    Lost {
        /// The topic.
        topic: TopicName,
        /// The first lost position.
        from: u64,
        /// The first position after the loss.
        to: u64,
    },
    /// A publisher died without closing its topic. Messages that it had not sent are missing. Only with
    /// [`SubscriberBuilder::until_ended`](crate::SubscriberBuilder::until_ended).
    #[error(
        "topic '{topic}': a publisher is gone and did not close the topic; the last complete delivery ended at {end}"
    )]
    Gone {
        /// The topic.
        topic: TopicName,
        /// The end of its log.
        end: u64,
    },
    /// The broker refused a request or ended a subscription.
    #[error("{}{reason}", of_topic(.topic))]
    Refused {
        /// The topic; none if the refusal is about a request for several.
        topic: Option<TopicName>,
        /// The reason, for people.
        reason: String,
    },
    /// A publisher of records wrote other bytes, or in a merged topic the broker did. The malformed bytes are skipped.
    #[error("topic '{topic}': {error}")]
    Malformed {
        /// The topic.
        topic: TopicName,
        /// The position and the kind of the malformed bytes.
        error: UnpackError,
    },
    /// Another subscriber took over the durable name of this one. The client does not reconnect.
    #[error("the connection to the broker is over: {0}")]
    TakenOver(String),
    /// Another thread ended the wait by [`Interrupter::interrupt`](crate::Interrupter::interrupt). Nothing is lost.
    #[error("another thread ended the wait; the next call goes on")]
    Interrupted,
    /// A task cannot wait: it does not run in a runtime of tokio with an I/O driver, or the process has no descriptor left.
    #[error("the task cannot wait for messages: {0}")]
    Runtime(String),
    /// The context of the subscriber was shut down. Everything that came before was received.
    #[error("the context was shut down")]
    ShutDown,
    /// A call that waits was made from a callback.
    #[error(transparent)]
    Framework(rocketbufs::error::RecvError),
}

impl From<RecvError> for ReceiveError {
    fn from(error: RecvError) -> Self {
        match error {
            RecvError::ShutDown => Self::ShutDown,
            other => Self::Framework(other),
        }
    }
}

impl ReceiveError {
    #[cfg(feature = "tokio")]
    pub(crate) fn runtime(why: impl ToString) -> Self {
        Self::Runtime(why.to_string())
    }

    /// Whether every later call fails with the same error.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::TakenOver(_) | Self::ShutDown)
    }
}

/// A broker could not be observed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The connection is down. Connect again.
    #[error("the connection to the broker is down: {0}")]
    Down(String),
    /// The broker did not answer in time.
    #[error("the broker did not answer within {waited:?}")]
    TimedOut {
        /// The time-out.
        waited: Duration,
    },
    /// The answer of the broker cannot be decoded.
    #[error("the broker's answer cannot be read ({0}); update the older of the two")]
    Malformed(DecodeError),
    /// The list of the broker does not end.
    #[error("the broker's list does not end; it is another program, or broken")]
    Endless,
    /// The answer of the broker has another type than the request.
    #[error("the broker's answer to request {request} is of another kind; update the older of the two")]
    Unexpected {
        /// The number of the request.
        request: u32,
    },
}

fn disk_fails(failure: &Option<String>) -> String {
    failure.as_ref().map_or_else(String::new, |why| format!("; the broker's disk takes nothing: {why}"))
}

fn still_missing(subscribers: u32) -> String {
    match subscribers {
        0 => String::new(),
        1 => "; 1 more subscriber must come (min_subscribers)".into(),
        more => format!("; {more} more subscribers must come (min_subscribers)"),
    }
}

/// The broker has limits with the same names as the publisher's.
fn whose(error: &BufferError) -> &'static str {
    match error {
        BufferError::Memory(_) | BufferError::TooMany(_) => {
            "; this process has settings of its own, and this is none of the broker's"
        }
        _ => "",
    }
}

fn of_topic(topic: &Option<TopicName>) -> String {
    topic.as_ref().map_or_else(String::new, |topic| format!("topic '{topic}': "))
}

fn not_connected(last_error: &Option<String>) -> String {
    last_error.as_ref().map_or_else(String::new, |why| format!(" (not connected: {why})"))
}
