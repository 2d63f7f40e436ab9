//! The client library: [`Publisher`] and [`Subscriber`], which reconnect by themselves.
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

mod batch;
mod builder;
mod confirm;
mod current;
mod error;
mod feed;
mod ledger;
pub(crate) mod link;
mod lowered;
mod notice;
mod observer;
mod output_state;
mod places;
mod publisher;
mod subscriber;
mod wanted;
mod writer;

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
pub use writer::{Batch as WriteBatch, TopicWriter};
