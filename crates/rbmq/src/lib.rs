//! RBMQ: topic-based publish and subscribe in memory, on RocketBufs (paper 1, section 4.1).
//!
//! A broker takes publishers' topics in and gives them to subscribers; its memory holds the last bytes of each topic,
//! and it never looks at a message. This is the client library: [`Publisher`] and [`Subscriber`], which reconnect by
//! themselves, and [`Observer`]. The broker is `rbmq serve`, or the crate `rbmq-broker` inside any program.
//!
//! ```text
//!  publish ──▶ ring here ══════▶ broker ══════▶ ring here ──▶ next_batch, recv
//!              stays when the                   stays when the
//!              connection is lost               connection is lost
//! ```
//!
//! A publisher's rOut and its buffers outlive its connections: on a new one the topics are named again and the broker
//! goes on where it stopped. A subscriber's rIn resumes in the same way; at a broker that was itself restarted it
//! subscribes anew, at the positions up to which it had handed out each publisher's log.
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
//! news.wait_subscribers(1, Duration::from_secs(10))?;
//! news.publish(b"hello")?;
//! let message = subscriber.recv(Duration::from_secs(10))?.expect("it was published");
//! assert_eq!(message.bytes, b"hello");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod batch;
mod builder;
mod confirm;
mod current;
mod error;
mod feed;
mod ledger;
mod link;
mod lowered;
mod notice;
mod observer;
mod output_state;
mod places;
mod publisher;
mod subscriber;
mod wanted;
mod writer;

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

pub use batch::{Batch, Kept, Message, MessageRef};
pub use builder::SubscriberBuilder;
pub use confirm::{Confirmation, Confirmed, Level};
pub use error::{
    ConfirmError, ConnectError, ObserveError, PublishError, PublisherWaitError, ReceiveError,
    SubscribeTopicError, TopicOpenError,
};
pub use feed::StartFrom;
pub use notice::{Item, Notice};
pub use observer::{BufferDetail, Observer, TopicDetail};
pub use output_state::OutputState;
pub use publisher::{Publisher, PublisherBuilder, TopicOptions};
pub use subscriber::{Messages, Subscriber};
pub use wire::{
    BrokerSummary, BufferStage, BufferStats, FilterError, Framing, Holds, Slowest, SubscriptionStats,
    TopicError, TopicFilter, TopicName, TopicStats,
};
pub use writer::{Batch as WriteBatch, TopicWriter};
