//! The crate `redis` with its connection manager, which sends the commands of many callers on one connection, and an
//! asynchronous subscription.

use std::{future::Future, io, pin::Pin};

use benchkit::library::{self, End};
use futures_util::{StreamExt, stream::FuturesOrdered};
use redis::{
    AsyncCommands, RedisResult,
    aio::{ConnectionManager, ConnectionManagerConfig, PubSubStream},
};

use crate::{redis_pipelined::client, version_of};

/// Calls that wait for their replies at the same time: one call after the other would wait for a round trip each. The
/// manager's buffer (50 by default) has room for all of them: calls that wait for space may overtake each other.
const CALLS: usize = 256;

/// The library in this way.
pub struct Manager;

/// The manager and the calls under way.
pub struct Publisher {
    manager: ConnectionManager,
    topic: String,
    calls: FuturesOrdered<Call>,
}

/// A call returns how many subscribers got the message.
type Call = Pin<Box<dyn Future<Output = RedisResult<u64>> + Send>>;

/// A stream of messages.
pub struct Subscriber(PubSubStream);

impl library::Library for Manager {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn version(&self) -> String {
        version_of("redis")
    }

    async fn publisher(&self, end: &End, topic: &str) -> io::Result<Publisher> {
        let config = ConnectionManagerConfig::new().set_pipeline_buffer_size(CALLS);
        let manager =
            client(end)?.get_connection_manager_with_config(config).await.map_err(io::Error::other)?;
        Ok(Publisher { manager, topic: topic.to_owned(), calls: FuturesOrdered::new() })
    }

    async fn subscriber(&self, end: &End, topic: &str) -> io::Result<Subscriber> {
        let mut subscription = client(end)?.get_async_pubsub().await.map_err(io::Error::other)?;
        subscription.subscribe(topic).await.map_err(io::Error::other)?;
        Ok(Subscriber(subscription.into_on_message()))
    }
}

impl Publisher {
    async fn await_one(&mut self) -> io::Result<()> {
        self.calls.next().await.transpose().map(drop).map_err(io::Error::other)
    }
}

impl library::Publisher for Publisher {
    async fn publish(&mut self, message: &[u8]) -> io::Result<()> {
        let (mut manager, topic, message) = (self.manager.clone(), self.topic.clone(), message.to_vec());
        // Without tokio's budget for a task, which would interrupt calls before they are sent, and change their order.
        let call = tokio::task::unconstrained(async move { manager.publish(topic, message).await });
        self.calls.push_back(Box::pin(call));
        if self.calls.len() >= CALLS { self.await_one().await } else { Ok(()) }
    }

    /// Waits for the replies of all calls.
    async fn flush(&mut self) -> io::Result<()> {
        while !self.calls.is_empty() {
            self.await_one().await?;
        }
        Ok(())
    }
}

impl library::Subscriber for Subscriber {
    async fn receive<R>(&mut self, each: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let message = self.0.next().await.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(each(message.get_payload_bytes()))
    }
}
