//! Other systems for the same purpose: their servers with default settings, and clients that speak their protocols
//! directly.
//!
//! A client library would add its own cost to every figure, and each system has another library. Here
//! all clients are made of the same parts: publishers write bytes that were encoded beforehand (or encode message
//! by message into a buffer), subscribers read 256 KiB at a time, compare by the block (or parse message by
//! message), and check every byte. A file for each system has the differences: the bytes around a payload, the greeting,
//! and the parser.

mod message;
mod mosquitto;
mod mqtt;
mod nats;
mod publish;
mod rabbitmq;
mod redis;
mod server;
mod socket;
mod subscribe;

use std::net::TcpStream;

use benchkit::credit;
use message::Protocol;
pub use message::{Next, topic_name};
pub use publish::publish;
pub use server::{Guard, guard};
pub use socket::{Reader, connect, server_of};
pub use subscribe::subscribe;

use crate::{
    error::BenchError,
    systems::{Confirm, System},
};

/// A system of other makers, by the protocol of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Redis' publish and subscribe.
    Redis,
    /// NATS without its streams.
    Nats,
    /// RabbitMQ over AMQP 0-9-1.
    Rabbitmq,
    /// MQTT 3.1.1, QoS 0.
    Mqtt,
    /// The same with QoS 1: each message has an id, and the other end acknowledges it.
    MqttAcked,
}

/// Messages of a topic with QoS 1 that are under way: the gateway drops what waits for a subscriber beyond 1,000, and there are two topics.
const ACKED_UNDER_WAY: usize = 400;

impl Peer {
    /// The peer that a system is, if it is one.
    pub fn of(system: System) -> Option<Peer> {
        match system {
            System::Rbmq | System::Relay => None,
            System::Redis | System::RedisThreads | System::RedisServers | System::Resp => Some(Peer::Redis),
            System::Mqtt | System::Mosquitto => Some(Peer::Mqtt),
            System::Nats => Some(Peer::Nats),
            System::Rabbitmq => Some(Peer::Rabbitmq),
        }
    }

    /// The peer whose publishers get this confirmation.
    pub fn with(self, confirm: Confirm) -> Peer {
        match (self, confirm) {
            (Peer::Mqtt, Confirm::Accepted) => Peer::MqttAcked,
            _ => self,
        }
    }

    /// The bytes with which a message counts in what may be under way.
    fn weight(self, record: usize) -> usize {
        match self {
            Peer::MqttAcked => record.max(credit::WINDOW_BYTES / ACKED_UNDER_WAY),
            _ => record,
        }
    }

    /// The protocol, for code that is the same for all peers.
    fn protocol(self) -> Protocol {
        match self {
            Peer::Redis => redis::PROTOCOL,
            Peer::Nats => nats::PROTOCOL,
            Peer::Rabbitmq => rabbitmq::PROTOCOL,
            Peer::Mqtt | Peer::MqttAcked => mqtt::PROTOCOL,
        }
    }

    /// The bytes that a publisher writes before and after a payload.
    pub fn around(self, topic: u8, size: usize) -> (Vec<u8>, Vec<u8>) {
        let mut prefix = Vec::new();
        self.begin(&mut prefix, &topic_name(topic), size);
        (prefix, self.end().to_vec())
    }

    /// Appends one message as a publisher writes it.
    #[inline]
    pub fn encode(self, to: &mut Vec<u8>, topic: &str, payload: &[u8]) {
        self.begin(to, topic, payload.len());
        to.extend_from_slice(payload);
        to.extend_from_slice(self.end());
    }

    /// Numbers a whole encoded message, where messages have numbers.
    #[inline]
    fn number(self, message: &mut [u8], size: usize, number: u64) {
        if self == Peer::MqttAcked {
            mqtt::set_id(message, size, number);
        }
    }

    /// Appends the answer of a subscriber to a whole message, where it has to answer.
    #[inline]
    fn acknowledge(self, message: &[u8], size: usize, to: &mut Vec<u8>) {
        if self == Peer::MqttAcked {
            mqtt::acknowledge(message, size, to);
        }
    }

    #[inline]
    fn begin(self, to: &mut Vec<u8>, topic: &str, size: usize) {
        match self {
            Peer::Redis => redis::begin(to, topic, size),
            Peer::Nats => nats::begin(to, topic, size),
            Peer::Rabbitmq => rabbitmq::begin(to, topic, size),
            Peer::Mqtt => mqtt::begin(to, topic, size),
            Peer::MqttAcked => mqtt::begin_acked(to, topic, size),
        }
    }

    fn end(self) -> &'static [u8] {
        match self {
            Peer::Redis | Peer::Nats => b"\r\n",
            Peer::Rabbitmq => &[rabbitmq::FRAME_END],
            Peer::Mqtt | Peer::MqttAcked => b"",
        }
    }

    /// The bytes that a subscriber gets before and after a payload; None if they vary.
    pub fn delivered_around(self, topic: u8, size: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let prefix = match self {
            Peer::Redis => redis::delivered(&topic_name(topic), size),
            Peer::Nats => nats::delivered(topic, &topic_name(topic), size),
            Peer::Mqtt => mqtt::delivered(&topic_name(topic), size),
            // Deliveries are numbered.
            Peer::Rabbitmq | Peer::MqttAcked => return None,
        };
        Some((prefix, self.end().to_vec()))
    }

    /// Opens a new connection as a publisher. With `confirm` the server will answer each message.
    ///
    /// # Errors
    /// The connection failed, or the server sent an unexpected answer.
    pub fn open_publisher(self, socket: &mut TcpStream, confirm: bool) -> Result<(), BenchError> {
        match self {
            Peer::Redis => redis::open_publisher(socket, confirm),
            Peer::Nats => nats::open(socket, confirm),
            Peer::Rabbitmq => rabbitmq::open_publisher(socket, confirm),
            Peer::Mqtt | Peer::MqttAcked => mqtt::open(socket),
        }
    }

    /// Opens a new connection as a subscriber, and waits until the subscription is in force.
    /// Bytes are read through `reader`, which may have some of the first messages afterwards.
    ///
    /// # Errors
    /// As `open_publisher`.
    pub fn open_subscriber(
        self,
        socket: &mut TcpStream,
        reader: &mut Reader,
        topics: &[u8],
    ) -> Result<(), BenchError> {
        match self {
            Peer::Redis => redis::open_subscriber(socket, reader, topics),
            Peer::Nats => nats::open_subscriber(socket, reader, topics),
            Peer::Rabbitmq => rabbitmq::open_subscriber(socket, topics),
            Peer::Mqtt => mqtt::open_subscriber(socket, reader, topics, 0),
            Peer::MqttAcked => mqtt::open_subscriber(socket, reader, topics, 1),
        }
    }

    /// Parses the item at the front of the received bytes.
    ///
    /// # Errors
    /// The bytes are not this protocol's, or the server reports an error.
    #[inline]
    pub fn next(self, data: &[u8]) -> Result<Next<'_>, BenchError> {
        let next = match self {
            Peer::Redis => redis::next(data),
            Peer::Nats => nats::next(data),
            Peer::Rabbitmq => rabbitmq::next(data),
            Peer::Mqtt | Peer::MqttAcked => mqtt::next(data),
        };
        next.ok_or_else(|| self.protocol().malformed(data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [Peer; 5] = [Peer::Redis, Peer::Nats, Peer::Rabbitmq, Peer::Mqtt, Peer::MqttAcked];

    #[test]
    fn encoded_bytes_are_the_frame_around_a_payload() {
        for peer in PEERS {
            for size in [1, 8, 100, 70_000] {
                let (mut whole, suffix) = peer.around(3, size);
                let payload = vec![b'p'; size];
                whole.extend_from_slice(&payload);
                whole.extend_from_slice(&suffix);
                let mut encoded = Vec::new();
                peer.encode(&mut encoded, &topic_name(3), &payload);
                assert_eq!(encoded, whole);
            }
        }
    }

    #[test]
    fn delivered_bytes_are_parsed_wherever_they_are_cut() {
        for peer in [Peer::Redis, Peer::Nats] {
            let (mut whole, suffix) = peer.delivered_around(42, 9).unwrap();
            whole.extend_from_slice(b"\r\n$3 pay\r");
            whole.extend_from_slice(&suffix);
            for cut in 0..whole.len() {
                assert_eq!(peer.next(&whole[..cut]).unwrap(), Next::More, "{peer:?} {cut}");
            }
            let len = whole.len();
            whole.extend_from_slice(b"*3");
            let expected = Next::Message { topic: b"bench.042", payload: b"\r\n$3 pay\r", len };
            assert_eq!(peer.next(&whole).unwrap(), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_a_parser_panic_or_go_past_the_end(data: Vec<u8>, which in 0..PEERS.len()) {
            for front in [&b""[..], b"*3\r\n$7\r\nmessage\r\n$", b"MSG bench.001 1 ", b"\x01\x00\x01\x00\x00\x00"] {
                let data = [front, &data].concat();
                match PEERS[which].next(&data) {
                    Ok(Next::Message { len, .. } | Next::Other { len, .. }) => {
                        assert!(len > 0 && len <= data.len());
                    }
                    Ok(Next::More) | Err(_) => {}
                }
            }
        }
    }
}
