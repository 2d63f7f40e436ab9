//! `rumqttc` with Mosquitto: MQTT 3.1.1 with quality of service 0, at most once, as the other systems.
//!
//! The library refuses packets above 10 KiB by default; the limit here is above the largest message.

use std::io;

use benchkit::library::{self, End};
use rumqttc::{AsyncClient, Event, EventLoop, Incoming, MqttOptions, NetworkOptions, QoS};

use crate::version_of;

/// The largest packet.
const PACKET_BYTES: usize = 32 << 20;

/// Requests that wait for the event loop.
const REQUESTS: usize = 1024;

/// The library.
pub struct Mqtt;

/// A client; a task runs its event loop.
pub struct Publisher {
    client: AsyncClient,
    topic: String,
}

/// An event loop; its client lives as long.
pub struct Subscriber {
    events: EventLoop,
    _client: AsyncClient,
}

impl library::Library for Mqtt {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn version(&self) -> String {
        version_of("rumqttc")
    }

    async fn publisher(&self, end: &End, topic: &str) -> io::Result<Publisher> {
        let (client, mut events) = connect(end, "publisher")?;
        until(&mut events, |incoming| matches!(incoming, Incoming::ConnAck(_))).await?;
        tokio::spawn(async move {
            loop {
                if let Err(error) = events.poll().await {
                    eprintln!("library-peers: the publisher's connection failed: {error}");
                    std::process::exit(1);
                }
            }
        });
        Ok(Publisher { client, topic: topic.to_owned() })
    }

    async fn subscriber(&self, end: &End, topic: &str) -> io::Result<Subscriber> {
        let (client, mut events) = connect(end, "subscriber")?;
        client.subscribe(topic, QoS::AtMostOnce).await.map_err(io::Error::other)?;
        until(&mut events, |incoming| matches!(incoming, Incoming::SubAck(_))).await?;
        Ok(Subscriber { events, _client: client })
    }
}

/// A client with a unique name. `TCP_NODELAY` is off by default.
fn connect(end: &End, what: &str) -> io::Result<(AsyncClient, EventLoop)> {
    let (host, port) = end.addr.split_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    let name = format!("{what}-{}", std::process::id());
    let mut options = MqttOptions::new(name, host, port.parse().map_err(io::Error::other)?);
    options.set_max_packet_size(PACKET_BYTES, PACKET_BYTES);
    let (client, mut events) = AsyncClient::new(options, REQUESTS);
    let mut network = NetworkOptions::new();
    network.set_tcp_nodelay(true);
    events.set_network_options(network);
    Ok((client, events))
}

async fn until(events: &mut EventLoop, is: impl Fn(&Incoming) -> bool) -> io::Result<()> {
    loop {
        match events.poll().await.map_err(io::Error::other)? {
            Event::Incoming(incoming) if is(&incoming) => return Ok(()),
            _ => {}
        }
    }
}

impl library::Publisher for Publisher {
    async fn publish(&mut self, message: &[u8]) -> io::Result<()> {
        self.client.publish(&self.topic, QoS::AtMostOnce, false, message).await.map_err(io::Error::other)
    }
}

impl library::Subscriber for Subscriber {
    async fn receive<R>(&mut self, each: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        loop {
            if let Event::Incoming(Incoming::Publish(message)) =
                self.events.poll().await.map_err(io::Error::other)?
            {
                return Ok(each(&message.payload));
            }
        }
    }
}
