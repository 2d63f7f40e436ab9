//! The crate `redis` with its blocking connection: a pipeline of `PUBLISH` commands, and a subscription.

use std::io;

use benchkit::library::{self, End};
use redis::{Client, Connection, ConnectionAddr, IntoConnectionInfo, Pipeline, PubSub, io::tcp::TcpSettings};

use crate::version_of;

/// A pipeline is sent when it has this many commands,
const COMMANDS: usize = 128;
/// or this many bytes.
const BYTES: usize = 64 * 1024;

/// The library in this way.
pub struct Pipelined;

/// A pipeline and its connection.
pub struct Publisher {
    connection: Connection,
    topic: String,
    pipeline: Pipeline,
    commands: usize,
    bytes: usize,
}

/// A connection that receives.
pub struct Subscriber(PubSub<'static>);

/// A client for the server at this address. `TCP_NODELAY` is off by default.
pub fn client(end: &End) -> io::Result<Client> {
    let (host, port) = end.addr.split_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let port = port.parse().map_err(io::Error::other)?;
    let info = ConnectionAddr::Tcp(host.to_owned(), port).into_connection_info().map_err(io::Error::other)?;
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    Client::open(info).map_err(io::Error::other)
}

impl library::Library for Pipelined {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn version(&self) -> String {
        version_of("redis")
    }

    async fn publisher(&self, end: &End, topic: &str) -> io::Result<Publisher> {
        let connection = client(end)?.get_connection().map_err(io::Error::other)?;
        Ok(Publisher {
            connection,
            topic: topic.to_owned(),
            pipeline: Pipeline::new(),
            commands: 0,
            bytes: 0,
        })
    }

    async fn subscriber(&self, end: &End, topic: &str) -> io::Result<Subscriber> {
        let connection = client(end)?.get_connection().map_err(io::Error::other)?;
        // The subscription borrows the connection; both live as long as this process.
        let connection: &'static mut Connection = Box::leak(Box::new(connection));
        let mut subscription = connection.as_pubsub();
        subscription.subscribe(topic).map_err(io::Error::other)?;
        Ok(Subscriber(subscription))
    }
}

impl library::Publisher for Publisher {
    async fn publish(&mut self, message: &[u8]) -> io::Result<()> {
        self.pipeline.publish(&self.topic, message).ignore();
        self.commands += 1;
        self.bytes += message.len();
        if self.commands == COMMANDS || self.bytes >= BYTES {
            library::Publisher::flush(self).await?;
        }
        Ok(())
    }

    /// Sends the pipeline and waits for its replies.
    async fn flush(&mut self) -> io::Result<()> {
        if self.commands > 0 {
            self.pipeline.exec(&mut self.connection).map_err(io::Error::other)?;
            self.pipeline.clear();
            (self.commands, self.bytes) = (0, 0);
        }
        Ok(())
    }
}

impl library::Subscriber for Subscriber {
    async fn receive<R>(&mut self, each: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let message = self.0.get_message().map_err(io::Error::other)?;
        Ok(each(message.get_payload_bytes()))
    }
}
