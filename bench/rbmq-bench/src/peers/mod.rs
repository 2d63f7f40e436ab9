//! The systems that people would pick instead: their servers as they come, and clients that speak their protocols
//! directly.
//!
//! A client library would put its own cost into every figure, and there would be another one for each system. Here
//! all clients are made of the same parts: publishers write bytes that were encoded beforehand (or encode message
//! by message into a buffer), subscribers read 256 KiB at a time, compare by the block (or parse message by
//! message), and check every byte. What differs is in one file per system: what is around a payload, what is said
//! at the beginning, and how what arrives is parsed.

mod mosquitto;
mod nats;
mod publish;
mod rabbitmq;
mod redis;
mod server;
mod socket;
mod subscribe;

use std::net::TcpStream;

pub use publish::publish;
pub use server::{Servers, guard};
pub use socket::{Reader, connect, server_of};
pub use subscribe::subscribe;

use super::{BenchError, System};

/// A system whose server is somebody else's, by the protocol that it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Redis' publish and subscribe.
    Redis,
    /// NATS without its streams.
    Nats,
    /// RabbitMQ over AMQP 0-9-1.
    Rabbitmq,
}

/// What is at the front of the bytes that a server sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<'b> {
    /// A message.
    Message {
        /// The topic, as it is called at this system.
        topic: &'b [u8],
        /// What was published.
        payload: &'b [u8],
        /// Bytes of it all.
        len: usize,
    },
    /// Something else.
    Other {
        /// Its bytes.
        len: usize,
        /// What the server wants to hear.
        answer: Option<&'static [u8]>,
        /// What it says about messages that were published.
        accepted: Accepted,
    },
    /// The rest is still to come.
    More,
}

/// What a server says about messages that were published.
#[derive(Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Nothing.
    No,
    /// It has one more.
    One,
    /// It has this one, and all before it if `and_before`.
    Number {
        /// The message's number, from 1.
        number: u64,
        /// Whether those before it are meant too.
        and_before: bool,
    },
}

impl Next<'_> {
    fn ignored(len: usize) -> Next<'static> {
        Next::Other { len, answer: None, accepted: Accepted::No }
    }
}

/// The name that topic number `number` has at the peers. All are equally long.
pub fn topic_name(number: u8) -> String {
    format!("bench.{number:03}")
}

/// The number of a topic that `topic_name` made.
pub fn topic_number(name: &[u8]) -> Option<u8> {
    std::str::from_utf8(name.strip_prefix(b"bench.")?).ok()?.parse().ok()
}

impl Peer {
    /// The peer that a system is, if it is one.
    pub fn of(system: System) -> Option<Peer> {
        match system {
            System::Rbmq | System::Relay => None,
            System::Redis | System::RedisThreads | System::RedisServers => Some(Peer::Redis),
            System::Nats => Some(Peer::Nats),
            System::Rabbitmq => Some(Peer::Rabbitmq),
        }
    }

    /// Its name on the command line and in the rows.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Redis => "redis",
            Peer::Nats => "nats",
            Peer::Rabbitmq => "rabbitmq",
        }
    }

    /// What a publisher writes before and after a payload.
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

    #[inline]
    fn begin(self, to: &mut Vec<u8>, topic: &str, size: usize) {
        match self {
            Peer::Redis => redis::begin(to, topic, size),
            Peer::Nats => nats::begin(to, topic, size),
            Peer::Rabbitmq => rabbitmq::begin(to, topic, size),
        }
    }

    fn end(self) -> &'static [u8] {
        match self {
            Peer::Redis | Peer::Nats => b"\r\n",
            Peer::Rabbitmq => &[rabbitmq::FRAME_END],
        }
    }

    /// What a subscriber finds before and after a payload, where that is always the same.
    pub fn delivered_around(self, topic: u8, size: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        let prefix = match self {
            Peer::Redis => redis::delivered(&topic_name(topic), size),
            Peer::Nats => nats::delivered(topic, &topic_name(topic), size),
            // Deliveries are numbered.
            Peer::Rabbitmq => return None,
        };
        Some((prefix, self.end().to_vec()))
    }

    /// Says on a new connection what a publisher has to say. With `confirm` the server will answer each message.
    ///
    /// # Errors
    /// The connection failed, or the server says something else than it should.
    pub fn open_publisher(self, socket: &mut TcpStream, confirm: bool) -> Result<(), BenchError> {
        match self {
            Peer::Redis => redis::open_publisher(socket, confirm),
            Peer::Nats => nats::open(socket, confirm),
            Peer::Rabbitmq => rabbitmq::open_publisher(socket, confirm),
        }
    }

    /// Says on a new connection what a subscriber has to say, and waits until no message can be missed any more.
    /// What arrives is read through `reader`, which may have some of the first messages afterwards.
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
        }
    }

    /// Asks a server for its version; fails while it is not ready.
    ///
    /// # Errors
    /// As `open_publisher`.
    pub fn version(self, socket: &mut TcpStream) -> Result<String, BenchError> {
        match self {
            Peer::Redis => redis::version(socket),
            Peer::Nats => nats::version(socket),
            Peer::Rabbitmq => rabbitmq::version(socket),
        }
    }

    /// Looks at the front of what arrived, whatever that is.
    ///
    /// # Errors
    /// The bytes are not this protocol's, or the server reports an error.
    #[inline]
    pub fn next(self, data: &[u8]) -> Result<Next<'_>, BenchError> {
        let next = match self {
            Peer::Redis => redis::next(data),
            Peer::Nats => nats::next(data),
            Peer::Rabbitmq => rabbitmq::next(data),
        };
        next.ok_or_else(|| self.malformed(data))
    }

    fn malformed(self, data: &[u8]) -> BenchError {
        let shown = &data[..data.len().min(120)];
        BenchError::PeerSaid { peer: self.name(), said: shown.escape_ascii().to_string() }
    }
}

/// A decimal number, most significant digit first: faster than the general formatting, as client libraries are.
#[inline]
fn push_number(to: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    to.extend_from_slice(&digits[at..]);
}

/// Reads a decimal number at the front, up to 18 digits. Returns it and how many digits there were.
#[inline]
fn number(data: &[u8]) -> Option<(usize, usize)> {
    let digits = data.iter().take(18).take_while(|byte| byte.is_ascii_digit()).count();
    let value = data[..digits].iter().fold(0, |value, digit| value * 10 + usize::from(digit - b'0'));
    (digits > 0).then_some((value, digits))
}

/// The line at the front, without its end, and the bytes with it; none if there is no end within `most` bytes.
fn line(data: &[u8], most: usize) -> Option<(&[u8], usize)> {
    let end = data[..data.len().min(most)].windows(2).position(|pair| pair == b"\r\n")?;
    Some((&data[..end], end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [Peer; 3] = [Peer::Redis, Peer::Nats, Peer::Rabbitmq];

    #[test]
    fn names_and_numbers_of_topics() {
        assert_eq!((0..=255).find(|&n| topic_number(topic_name(n).as_bytes()) != Some(n)), None);
        assert_eq!(topic_number(b"bench.256"), None);
        assert_eq!(topic_number(b"other.001"), None);
    }

    #[test]
    fn numbers_are_decimal() {
        let mut text = Vec::new();
        for n in [0, 7, 10, 524_288, usize::MAX] {
            push_number(&mut text, n);
            text.push(b' ');
        }
        assert_eq!(text, format!("0 7 10 524288 {} ", usize::MAX).as_bytes());
        assert_eq!(number(b"524288\r"), Some((524_288, 6)));
        assert_eq!(number(b"x"), None);
    }

    #[test]
    fn what_is_encoded_is_what_is_around_a_payload() {
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
    fn what_is_delivered_is_parsed_wherever_it_is_cut() {
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
        fn no_bytes_make_a_parser_panic_or_go_past_the_end(data: Vec<u8>, which in 0..3_usize) {
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
