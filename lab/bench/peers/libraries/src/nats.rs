//! `async-nats`: publish without acknowledgements (core NATS).
//!
//! The library keeps up to 65,536 messages for a subscription; when the program is slower, the library drops what comes
//! then. The server drops a connection that is too far behind, and the library connects again.

use std::io;

use async_nats::Client;
use benchkit::library::{self, End};
use bytes::Bytes;
use futures_util::StreamExt;

use crate::version_of;

/// The library.
pub struct Nats;

/// A client that publishes.
pub struct Publisher {
    client: Client,
    topic: String,
}

/// A stream of messages; its client lives as long.
pub struct Subscriber {
    messages: async_nats::Subscriber,
    _client: Client,
}

impl library::Library for Nats {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn version(&self) -> String {
        version_of("async-nats")
    }

    async fn publisher(&self, end: &End, topic: &str) -> io::Result<Publisher> {
        let client = async_nats::connect(&end.addr).await.map_err(io::Error::other)?;
        Ok(Publisher { client, topic: topic.to_owned() })
    }

    /// The server handles a connection's commands in order: once it has returned a message of this same connection, the
    /// subscription before it is in force.
    async fn subscriber(&self, end: &End, topic: &str) -> io::Result<Subscriber> {
        let client = async_nats::connect(&end.addr).await.map_err(io::Error::other)?;
        let messages = client.subscribe(topic.to_owned()).await.map_err(io::Error::other)?;
        let probe = client.new_inbox();
        let mut answer = client.subscribe(probe.clone()).await.map_err(io::Error::other)?;
        client.publish(probe, Bytes::new()).await.map_err(io::Error::other)?;
        answer.next().await.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(Subscriber { messages, _client: client })
    }
}

impl library::Publisher for Publisher {
    async fn publish(&mut self, message: &[u8]) -> io::Result<()> {
        let message = Bytes::copy_from_slice(message);
        self.client.publish(self.topic.clone(), message).await.map_err(io::Error::other)
    }
}

impl library::Subscriber for Subscriber {
    async fn receive<R>(&mut self, each: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let message = self.messages.next().await.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(each(&message.payload))
    }
}
