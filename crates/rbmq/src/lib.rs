//! RBMQ: topic-based publish and subscribe in memory, on RocketBufs (paper 1, section 4.1).
//!
//! A broker takes publishers' topics in and gives them to subscribers; its memory holds the last bytes of each topic,
//! and it never looks at a message. [`Publisher`] and [`Subscriber`] are the client library, [`Broker`] a broker
//! inside any program, `rbmq` the command.
//!
//! ```
//! use std::time::Duration;
//! use rbmq::{Broker, BrokerConfig, Publisher, Subscriber};
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
//! news.wait_subscribers(1, Duration::from_secs(10))?;
//! news.publish(b"hello")?;
//! let message = subscriber.recv(Duration::from_secs(10))?.expect("it was published");
//! assert_eq!(message.bytes, b"hello");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod broker;
pub mod client;
pub mod http;

/// RBMQ's own bytes on top of RocketBufs: the hello, the control messages and the records ([`rbmq_wire`]).
pub mod wire {
    pub use rbmq_wire::{
        BrokerSummary, BufferStage, BufferStats, Control, DecodeError, FilterError, Framing, Hello, Holds,
        MAX_CLIENT_NAME_BYTES, MAX_TOPIC_BYTES, Observe, Piece, Place, RECORD_HEADER_BYTES, RUN_HEADER_BYTES,
        RecordError, Records, RefuseCode, Role, Run, RunError, Runs, Slowest, SubscriptionStats, Terms,
        Topic, TopicError, TopicFilter, TopicName, TopicStats, Unpack, UnpackError, push_record,
        record_header, run_header,
    };
}

pub use broker::{Broker, BrokerConfig, BrokerError, BrokerSettings, Ingest, Rule, Rules, UpstreamSettings};
pub use client::{
    Batch, BufferDetail, ConfirmError, Confirmation, Confirmed, ConnectError, Item, Kept, Level, Message,
    MessageRef, Notice, ObserveError, Observer, OutputState, PublishError, Publisher, PublisherBuilder,
    PublisherWaitError, ReceiveError, StartFrom, SubscribeTopicError, Subscriber, SubscriberBuilder,
    TopicDetail, TopicOpenError, TopicOptions, TopicWriter, WriteBatch,
};
pub use wire::{
    BrokerSummary, BufferStage, BufferStats, FilterError, Framing, Holds, Slowest, SubscriptionStats,
    TopicError, TopicFilter, TopicName, TopicStats,
};
