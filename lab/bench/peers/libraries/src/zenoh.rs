//! `zenoh` with a router between the ends, as `zenohd` is one: the same crate in another mode, without plug-ins.
//!
//! A publisher drops messages by default when the network is slower. Here it waits (`CongestionControl::Block`), as in
//! zenoh's own examples of throughput: with drops there is no rate without losses.

use std::{io, time::Duration};

use benchkit::library::{self, End};
use testkit::own_port;
use zenoh::{
    Config, Session, handlers::FifoChannelHandler, pubsub::Publisher as Declared,
    pubsub::Subscriber as Declaration, qos::CongestionControl, sample::Sample,
};

use crate::version_of;

/// How often a publisher checks whether the router has reported a subscriber.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// The router forwards subscriptions without an acknowledgement. After this time they are in force.
const DECLARED_WITHIN: Duration = Duration::from_millis(100);

/// The library.
pub struct Zenoh;

/// A declared publisher; its session lives as long.
pub struct Publisher {
    publisher: Declared<'static>,
    _session: Session,
}

/// A declared subscriber with the default channel; its session lives as long.
pub struct Subscriber {
    subscriber: Declaration<FifoChannelHandler<Sample>>,
    _session: Session,
}

/// The error, as an input and output error.
fn failed(error: zenoh::Error) -> io::Error {
    io::Error::other(error)
}

async fn session(mode: &str, way: &str, addr: &str) -> zenoh::Result<Session> {
    let mut config = Config::default();
    config.insert_json5("mode", &format!("\"{mode}\""))?;
    config.insert_json5(way, &format!("[\"tcp/{addr}\"]"))?;
    config.insert_json5("scouting/multicast/enabled", "false")?;
    zenoh::open(config).await
}

/// Runs a router until standard input ends: `ready ADDRESS`.
///
/// # Errors
/// The router did not start.
pub async fn route() -> io::Result<()> {
    let addr = format!("127.0.0.1:{}", own_port());
    let _router = session("router", "listen/endpoints", &addr).await.map_err(failed)?;
    println!("ready {addr}");
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

impl library::Library for Zenoh {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn version(&self) -> String {
        version_of("zenoh")
    }

    async fn publisher(&self, end: &End, topic: &str) -> io::Result<Publisher> {
        let session = session("client", "connect/endpoints", &end.addr).await.map_err(failed)?;
        let publisher =
            session.declare_publisher(topic.to_owned()).congestion_control(CongestionControl::Block);
        let publisher = publisher.await.map_err(failed)?;
        while !publisher.matching_status().await.map_err(failed)?.matching() {
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(Publisher { publisher, _session: session })
    }

    async fn subscriber(&self, end: &End, topic: &str) -> io::Result<Subscriber> {
        let session = session("client", "connect/endpoints", &end.addr).await.map_err(failed)?;
        let subscriber = session.declare_subscriber(topic.to_owned()).await.map_err(failed)?;
        tokio::time::sleep(DECLARED_WITHIN).await;
        Ok(Subscriber { subscriber, _session: session })
    }
}

impl library::Publisher for Publisher {
    async fn publish(&mut self, message: &[u8]) -> io::Result<()> {
        self.publisher.put(message).await.map_err(failed)
    }
}

impl library::Subscriber for Subscriber {
    async fn receive<R>(&mut self, each: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let sample = self.subscriber.recv_async().await.map_err(failed)?;
        Ok(each(&sample.payload().to_bytes()))
    }
}
