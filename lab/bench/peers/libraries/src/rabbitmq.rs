//! `lapin` (AMQP 0-9-1) with RabbitMQ: a fanout exchange, and one exclusive queue in memory for each subscriber, consumed
//! without acknowledgements. Publishers ask for no confirms. The other systems offer the same: at most once.

use std::io;

use benchkit::library::{self, End};
use futures_util::StreamExt;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, Consumer, ExchangeKind,
    options::{
        BasicConsumeOptions, BasicPublishOptions, ExchangeDeclareOptions, QueueBindOptions,
        QueueDeclareOptions,
    },
    types::FieldTable,
};

use crate::version_of;

/// The library.
pub struct Rabbitmq;

/// A channel that publishes; its connection lives as long.
pub struct Publisher {
    channel: Channel,
    exchange: String,
    _connection: Connection,
}

/// A consumer; its channel and connection live as long.
pub struct Subscriber {
    consumer: Consumer,
    _channel: Channel,
    _connection: Connection,
}

impl library::Library for Rabbitmq {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn version(&self) -> String {
        version_of("lapin")
    }

    async fn publisher(&self, end: &End, topic: &str) -> io::Result<Publisher> {
        let exchange = exchange_of(topic);
        let (connection, channel) = open(end, &exchange).await.map_err(io::Error::other)?;
        Ok(Publisher { channel, exchange, _connection: connection })
    }

    async fn subscriber(&self, end: &End, topic: &str) -> io::Result<Subscriber> {
        let exchange = exchange_of(topic);
        let (connection, channel) = open(end, &exchange).await.map_err(io::Error::other)?;
        let consumer = consume(&channel, &exchange).await.map_err(io::Error::other)?;
        Ok(Subscriber { consumer, _channel: channel, _connection: connection })
    }
}

/// The exchange of a topic. The harness has another exchange, called `bench`, of another type.
fn exchange_of(topic: &str) -> String {
    format!("libraries-{topic}")
}

/// A connection and a channel; the exchange is there afterwards.
async fn open(end: &End, exchange: &str) -> lapin::Result<(Connection, Channel)> {
    let uri = format!("amqp://{}/%2f", end.addr);
    let connection = Connection::connect(&uri, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    let options = ExchangeDeclareOptions::default();
    channel.exchange_declare(exchange.into(), ExchangeKind::Fanout, options, FieldTable::default()).await?;
    Ok((connection, channel))
}

async fn consume(channel: &Channel, exchange: &str) -> lapin::Result<Consumer> {
    let own = QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare("".into(), own, FieldTable::default()).await?;
    let (name, none) = (queue.name(), FieldTable::default());
    channel.queue_bind(name.clone(), exchange.into(), "".into(), QueueBindOptions::default(), none).await?;
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    channel.basic_consume(name.clone(), "".into(), options, FieldTable::default()).await
}

impl library::Publisher for Publisher {
    async fn publish(&mut self, message: &[u8]) -> io::Result<()> {
        let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
        let exchange = self.exchange.as_str().into();
        let published = self.channel.basic_publish(exchange, "".into(), options, message, properties).await;
        // No confirms were asked for, so that there is nothing to wait for.
        published.map(drop).map_err(io::Error::other)
    }
}

impl library::Subscriber for Subscriber {
    async fn receive<R>(&mut self, each: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let delivery = self.consumer.next().await.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(each(&delivery.map_err(io::Error::other)?.data))
    }
}
