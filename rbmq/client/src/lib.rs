//! RBMQ's client library: publish and subscribe to topics, in memory, on RocketBufs (paper 1, section 4.1).
//!
//! A broker receives the topics of publishers and forwards them to subscribers. Its memory holds the newest bytes of each
//! topic, and it never parses a message. This crate has [`Publisher`] and [`Subscriber`], which reconnect by themselves, and
//! [`Observer`]. The broker is `rbmq serve`, or the crate `rbmq-broker` inside any program.
//!
//! ```text
//!  publish ──▶ ring here ══════▶ broker ══════▶ ring here ──▶ recv, next_batch
//!              stays when the                   stays when the
//!              connection is lost               connection is lost
//! ```
//!
//! ```
//! use std::time::Duration;
//! use rbmq::{Publisher, Subscriber};
//! use rbmq_broker::{Broker, BrokerConfig};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut config = BrokerConfig::default();
//! # config.broker.listen = "127.0.0.1:0".into();
//! let broker = Broker::start(config)?;
//!
//! let publisher = Publisher::connect(&broker.addr())?;
//! let mut news = publisher.topic("news")?;
//! let mut subscriber = Subscriber::connect(&broker.addr())?;
//! subscriber.subscribe("news")?;
//!
//! news.wait_subscribers(1, Some(Duration::from_secs(10)))?;
//! news.publish(b"hello")?;
//! let message = subscriber.recv(Some(Duration::from_secs(10)))?.expect("it was published");
//! assert_eq!(message.bytes, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Coming from Redis, NATS or MQTT
//!
//! | There | Here |
//! |---|---|
//! | A client publishes and subscribes. | A [`Publisher`] and a [`Subscriber`] have a connection each. |
//! | `publish(topic, message)` | [`Publisher::topic`] opens a topic once; [`TopicWriter::publish`] has no topic. |
//! | A full queue is an error, or grows. | The ring has a fixed size: `publish` waits, and [`TopicWriter::publish_timeout`] has a limit. |
//! | Patterns: `news.*`, `news.>`, `news/+`, `news/#` | `news/+` and `news/#`, as in MQTT ([`Subscriber::subscribe`]) |
//! | Messages before the subscription are lost. | The same, unless the subscription starts earlier ([`StartFrom`]). |
//! | Retained message | [`StartFrom::Last`] |
//! | Slow consumers are disconnected, or lose messages. | Publishers wait by default; [`SlowPolicy`] has the other ways. |
//! | A loss is silent. | Every loss is a [`Notice::Lost`], and an error of the calls that return messages. ([`Notice::LogReplaced`]: a possible loss.) |
//! | Acknowledgements, quality of service | [`TopicWriter::confirm`]: accepted, delivered or consumed; stored or synced |
//! | Manual acknowledgement | [`Batch::defer`] and [`DeferredBatch::consume`] |
//! | Work queue, consumer group | [`SubscriberBuilder::group`]: workers share a kept topic and acknowledge each message |
//! | Durable consumer, persistent session | [`SubscriberBuilder::durable`], while the broker lives |
//! | `unsubscribe`, `flush`, `drain` | [`Subscriber::unsubscribe`], [`TopicWriter::flush`], [`TopicWriter::close`] |
//!
//! # What waits, and how long
//!
//! - Time-outs are `Option<Duration>`, for the whole call: `None` is no limit, and `Some(Duration::ZERO)` tries once.
//! - `connect` waits for the broker's answer (`session.connect_timeout_ms`, 5 s), and fails at once if no broker listens.
//!   Afterwards a lost connection is no error: the library reconnects, after 100 ms at first and 5 s at most.
//! - `publish` waits only while the ring is full, `recv` only while no message is there. A call that succeeds without waiting
//!   makes no system call, except to wake a sleeping thread.
//! - `close` waits at most 10 s; `close_timeout` has another limit. Dropping never waits.
//! - An event loop waits for [`Publisher::pollable`] and [`Subscriber::pollable`] and calls with a time-out of zero.
//!
//! # Threads
//!
//! All types are `Send`. [`Publisher`] and [`Confirmation`] are `Sync`. [`TopicWriter`] and [`Subscriber`] are used by one
//! thread at a time; an [`Interrupter`] ends the wait of a subscriber from another one. One thread of the process notices the lost
//! connections of all clients, and a client that reconnects has a thread while it does. The context of a client has worker threads;
//! [`SubscriberBuilder::context`] shares a context among clients. None of them holds a lock while it waits for the network.
//!
//! # Tasks
//!
//! [`TopicWriter::publish_async`] and its siblings wait in a task of any async runtime, and so does a [`Confirmation`]. The
//! feature `tokio` adds connecting, opening topics and receiving, also as a `Stream`. A task that waits costs no thread, and all
//! of these calls are cancel-safe.
//!
//! # Reconnecting
//!
//! The buffers of a publisher outlive its connections: the topics are named again over a new one, and the broker resumes them.
//! The subscriptions of a subscriber resume in the same way. At a broker that was restarted, a subscriber subscribes anew, at the
//! positions up to which it had handed out each publisher's log.
#![forbid(unsafe_code)]

mod api;
mod connection;
mod ground;
mod state;
mod subscriptions;

/// RBMQ's encoding on top of RocketBufs: the hello, the control messages and the records ([`rbmq_wire`]).
pub mod wire {
    pub use rbmq_wire::{
        ATTRIBUTES_HEADER_BYTES, Attribute, AttributeTooLong, Attributes, AttributesBuf, AttributesError,
        BlockReason, BrokerSummary, BufferStage, BufferStats, Control, Credentials, CredentialsError,
        DecodeError, FilterError, Framing, GROUP_HEADER_BYTES, GatewayStats, GroupAction, GroupJoin,
        GroupMessage, GroupName, GroupNameError, GroupStats, Hello, LimitStats, MAX_ATTRIBUTE_BYTES,
        MAX_ATTRIBUTES_BYTES, MAX_CLIENT_NAME_BYTES, MAX_GROUP_NAME_BYTES, MAX_MARKS, MAX_PASSWORD_BYTES,
        MAX_RECORD_BYTES, MAX_TOPIC_BYTES, Mark, MarkKind, Observe, Piece, RECORD_HEADER_BYTES,
        RUN_HEADER_BYTES, Record, RecordError, RecordFault, Records, RefuseCode, Rejection, ReplayFrom, Role,
        Run, RunError, Runs, Secret, SlowestSubscriber, Space, SpaceError, SubscribeLimits,
        SubscriptionSortKey, SubscriptionStats, Topic, TopicError, TopicFilter, TopicName, TopicStats,
        Unpack, UnpackError, push_record, push_record_with, record_header, record_header_with, run_header,
    };
}

pub use api::group::{GroupBuilder, GroupMessage, GroupStart, GroupWorker, Groups};
pub use api::observer::{BufferDetail, Observer, ObserverBuilder, TopicDetail};
pub use api::publisher::{Publisher, PublisherBuilder, TopicOptions};
pub use api::space_writer::{SpaceBatch, SpaceWriter};
pub use api::subscriber::{Interrupter, Messages, Subscriber};
#[cfg(feature = "tokio")]
pub use api::subscriber_tasks::MessageStream;
pub use api::writer::{TopicWriter, WriteBatch};
pub use ground::error::{
    ConfirmError, ConnectError, ObserveError, PublishError, PublisherWaitError, ReceiveError,
    SubscribeTopicError, TopicOpenError,
};
pub use ground::group_error::GroupError;
pub use ground::level::{ConfirmLevel, Confirmed};
pub use ground::login::Login;
pub use ground::options::{SlowPolicy, StartFrom, SubscriberBuilder};
pub use ground::output_state::OutputState;
pub use state::batch::{Batch, DeferredBatch, Message, MessageRef, OwnedBatch};
pub use state::confirm::{ConfirmResult, Confirmation};
pub use state::event::{Event, Notice, PublisherEvent, RefusedFilter};
pub use state::message_segment::{MessageSegment, SegmentNotPublished};
#[doc(hidden)]
pub use state::space_reader::PlacesInSpace;
pub use wire::{
    Attribute, AttributeTooLong, Attributes, AttributesBuf, BlockReason, BrokerSummary, BufferStage,
    BufferStats, FilterError, Framing, GatewayStats, GroupStats, LimitStats, RefuseCode, SlowestSubscriber,
    Space, SubscriptionStats, TopicError, TopicFilter, TopicName, TopicStats,
};
