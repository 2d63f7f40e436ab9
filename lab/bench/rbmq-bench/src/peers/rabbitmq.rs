//! RabbitMQ: as much of AMQP 0-9-1 as publishing and consuming without acknowledgement take.
//!
//! ```text
//!   exchange "bench" (direct) ──routing key = topic──▶ one queue per subscriber, exclusive, in memory
//!
//!   frame        type u8 · channel u16 · size u32 · size bytes · 0xCE            (big endian)
//!   a message    METHOD basic.publish or basic.deliver · HEADER body size · BODY payload
//! ```
//!
//! The largest frame is agreed to be larger than any message, so that each has one body frame.

use std::{fs, io, io::Write, net::TcpStream, path::Path};

use benchkit::server::Start;
use testkit::own_port;

use super::{
    message::{Accepted, Next, Protocol, topic_name},
    socket::Reader,
};
use crate::error::BenchError;

/// The protocol.
pub const PROTOCOL: Protocol = Protocol { name: "rabbitmq", parse: next };

/// Ends every frame.
pub const FRAME_END: u8 = 0xCE;

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;

/// Bytes of a frame before its content.
const FRAME_HEAD: usize = 7;

/// Above the largest message that a bench may have.
const FRAME_MAX: u32 = 32 << 20;

const EXCHANGE: &str = "bench";

/// Methods by class and number.
type Method = (u16, u16);
const CONNECTION_START: Method = (10, 10);
const CONNECTION_START_OK: Method = (10, 11);
const CONNECTION_TUNE: Method = (10, 30);
const CONNECTION_TUNE_OK: Method = (10, 31);
const CONNECTION_OPEN: Method = (10, 40);
const CONNECTION_OPEN_OK: Method = (10, 41);
const CHANNEL_OPEN: Method = (20, 10);
const CHANNEL_OPEN_OK: Method = (20, 11);
const EXCHANGE_DECLARE: Method = (40, 10);
const EXCHANGE_DECLARE_OK: Method = (40, 11);
const QUEUE_DECLARE: Method = (50, 10);
const QUEUE_DECLARE_OK: Method = (50, 11);
const QUEUE_BIND: Method = (50, 20);
const QUEUE_BIND_OK: Method = (50, 21);
const BASIC_CONSUME: Method = (60, 20);
const BASIC_CONSUME_OK: Method = (60, 21);
const BASIC_PUBLISH: Method = (60, 40);
const BASIC_DELIVER: Method = (60, 60);
const BASIC_ACK: Method = (60, 80);
const CONFIRM_SELECT: Method = (85, 10);
const CONFIRM_SELECT_OK: Method = (85, 11);

/// The server as the bench starts it: in a folder of its own, queues in memory.
///
/// `epmd`, Erlang's name service, would keep running; the bench runs another one on `epmd_port` and ends it. With `limits` the
/// largest frame is the server's default.
pub fn start(program: &Path, folder: &Path, port: u16, epmd_port: u16, limits: bool) -> io::Result<Start> {
    let frame_max = if limits { String::new() } else { format!("frame_max = {FRAME_MAX}\n") };
    let nodes_port = own_port();
    let config = folder.join("rabbitmq.conf");
    let plugins = folder.join("enabled_plugins");
    fs::write(
        &config,
        format!(
            "listeners.tcp.1 = 127.0.0.1:{port}\n{frame_max}heartbeat = 0\n\
             tcp_listen_options.nodelay = true\ndisk_free_limit.absolute = 1MB\n\
             collect_statistics = none\nlog.file.level = error\n"
        ),
    )?;
    fs::write(&plugins, "[].")?;
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let env = [
        ("HOME", at("")),
        ("RABBITMQ_NODENAME", format!("bench{port}@localhost")),
        ("RABBITMQ_CONFIG_FILE", at("rabbitmq.conf")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", at("enabled_plugins")),
        ("RABBITMQ_MNESIA_BASE", at("mnesia")),
        ("RABBITMQ_LOG_BASE", at("log")),
        ("RABBITMQ_PID_FILE", at("pid")),
        ("RABBITMQ_NODE_PORT", port.to_string()),
        // Its default is 20,000 above the other one, which there need not be.
        ("RABBITMQ_DIST_PORT", nodes_port.to_string()),
        ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".to_owned()),
        ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}".to_owned()),
        ("ERL_EPMD_PORT", epmd_port.to_string()),
        // Makes the script become the server instead of waiting for it.
        ("RUNNING_UNDER_SYSTEMD", "1".to_owned()),
    ];
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Start { program: program.to_owned(), args: Vec::new(), env })
}

fn frame(to: &mut Vec<u8>, kind: u8, channel: u16, size: usize) {
    to.push(kind);
    to.extend_from_slice(&channel.to_be_bytes());
    to.extend_from_slice(&(size as u32).to_be_bytes());
}

fn short_string(to: &mut Vec<u8>, text: &str) {
    to.push(text.len() as u8);
    to.extend_from_slice(text.as_bytes());
}

/// A method's whole frame; connection methods go over channel 0, all others over 1.
fn method(which: Method, arguments: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut content = Vec::new();
    content.extend_from_slice(&which.0.to_be_bytes());
    content.extend_from_slice(&which.1.to_be_bytes());
    arguments(&mut content);
    let mut bytes = Vec::new();
    frame(&mut bytes, METHOD, u16::from(which.0 != 10), content.len());
    bytes.extend_from_slice(&content);
    bytes.push(FRAME_END);
    bytes
}

/// `basic.publish`, the header, and the head of the body's frame.
#[inline]
pub fn begin(to: &mut Vec<u8>, topic: &str, size: usize) {
    frame(to, METHOD, 1, 4 + 2 + 1 + EXCHANGE.len() + 1 + topic.len() + 1);
    to.extend_from_slice(&BASIC_PUBLISH.0.to_be_bytes());
    to.extend_from_slice(&BASIC_PUBLISH.1.to_be_bytes());
    to.extend_from_slice(&[0, 0]);
    short_string(to, EXCHANGE);
    short_string(to, topic);
    to.extend_from_slice(&[0, FRAME_END]);
    frame(to, HEADER, 1, 14);
    to.extend_from_slice(&60_u16.to_be_bytes());
    to.extend_from_slice(&[0, 0]);
    to.extend_from_slice(&(size as u64).to_be_bytes());
    to.extend_from_slice(&[0, 0, FRAME_END]);
    frame(to, BODY, 1, size);
}

/// Connects as far as an open channel. Returns the content of the server's first method.
fn open(socket: &mut TcpStream) -> Result<Vec<u8>, BenchError> {
    socket.write_all(b"AMQP\x00\x00\x09\x01")?;
    let start = answer(socket, CONNECTION_START)?;
    socket.write_all(&method(CONNECTION_START_OK, |to| {
        to.extend_from_slice(&0_u32.to_be_bytes());
        short_string(to, "PLAIN");
        let login = b"\x00guest\x00guest";
        to.extend_from_slice(&(login.len() as u32).to_be_bytes());
        to.extend_from_slice(login);
        short_string(to, "en_US");
    }))?;
    // Channels, then the largest frame that the server takes; it refuses connections that ask for larger ones.
    let tune = answer(socket, CONNECTION_TUNE)?;
    let offered =
        tune.get(2..6).and_then(|bytes| bytes.first_chunk()).map(|bytes| u32::from_be_bytes(*bytes));
    let frame_max = offered.unwrap_or(FRAME_MAX).min(FRAME_MAX);
    socket.write_all(&method(CONNECTION_TUNE_OK, |to| {
        to.extend_from_slice(&16_u16.to_be_bytes());
        to.extend_from_slice(&frame_max.to_be_bytes());
        to.extend_from_slice(&0_u16.to_be_bytes());
    }))?;
    let vhost = method(CONNECTION_OPEN, |to| {
        short_string(to, "/");
        to.extend_from_slice(&[0, 0]);
    });
    ask(socket, &vhost, CONNECTION_OPEN_OK)?;
    ask(socket, &method(CHANNEL_OPEN, |to| to.push(0)), CHANNEL_OPEN_OK)?;
    let declare = method(EXCHANGE_DECLARE, |to| {
        to.extend_from_slice(&[0, 0]);
        short_string(to, EXCHANGE);
        short_string(to, "direct");
        to.extend_from_slice(&[0, 0, 0, 0, 0]);
    });
    ask(socket, &declare, EXCHANGE_DECLARE_OK)?;
    Ok(start)
}

pub fn open_publisher(socket: &mut TcpStream, confirm: bool) -> Result<(), BenchError> {
    open(socket)?;
    if confirm {
        ask(socket, &method(CONFIRM_SELECT, |to| to.push(0)), CONFIRM_SELECT_OK)?;
    }
    Ok(())
}

pub fn open_subscriber(socket: &mut TcpStream, topics: &[u8]) -> Result<(), BenchError> {
    /// Exclusive and deleted with its connection.
    const EXCLUSIVE_AUTO_DELETE: u8 = 0b0_1100;
    const NO_ACK: u8 = 0b0010;
    open(socket)?;
    let declare = method(QUEUE_DECLARE, |to| {
        to.extend_from_slice(&[0, 0, 0, EXCLUSIVE_AUTO_DELETE, 0, 0, 0, 0]);
    });
    let declared = ask(socket, &declare, QUEUE_DECLARE_OK)?;
    let queue = declared.get(1..1 + usize::from(*declared.first().unwrap_or(&0)));
    let queue = queue.and_then(|name| std::str::from_utf8(name).ok());
    let queue = queue.ok_or_else(|| PROTOCOL.malformed(&declared))?;
    for topic in topics {
        let bind = method(QUEUE_BIND, |to| {
            to.extend_from_slice(&[0, 0]);
            short_string(to, queue);
            short_string(to, EXCHANGE);
            short_string(to, &topic_name(*topic));
            to.extend_from_slice(&[0, 0, 0, 0, 0]);
        });
        ask(socket, &bind, QUEUE_BIND_OK)?;
    }
    let consume = method(BASIC_CONSUME, |to| {
        to.extend_from_slice(&[0, 0]);
        short_string(to, queue);
        short_string(to, "bench");
        to.extend_from_slice(&[NO_ACK, 0, 0, 0, 0]);
    });
    ask(socket, &consume, BASIC_CONSUME_OK)?;
    Ok(())
}

pub fn version(socket: &mut TcpStream) -> Result<String, BenchError> {
    // An entry of the table of server properties: a short string, the type of a long string, and that.
    const KEY: &[u8] = b"\x07versionS";
    let start = open(socket)?;
    let found = start.windows(KEY.len()).position(|bytes| bytes == KEY).map(|at| at + KEY.len());
    let version = found.and_then(|at| {
        let len = u32::from_be_bytes(*start.get(at..)?.first_chunk()?) as usize;
        std::str::from_utf8(start.get(at + 4..at + 4 + len)?).ok()
    });
    version.map(str::to_owned).ok_or_else(|| PROTOCOL.malformed(&start))
}

fn ask(socket: &mut TcpStream, request: &[u8], wanted: Method) -> Result<Vec<u8>, BenchError> {
    socket.write_all(request)?;
    answer(socket, wanted)
}

/// The arguments of the next method, which has to be `wanted`. Nothing is read that comes behind it.
fn answer(socket: &mut TcpStream, wanted: Method) -> Result<Vec<u8>, BenchError> {
    let mut reader = Reader::small();
    let head = reader.exactly(socket, FRAME_HEAD)?;
    let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    if head[0] != METHOD || !(4..=64 << 10).contains(&size) {
        return Err(PROTOCOL.malformed(&head));
    }
    let content = reader.exactly(socket, size + 1)?;
    let which = (u16::from_be_bytes([content[0], content[1]]), u16::from_be_bytes([content[2], content[3]]));
    if which != wanted || content[size] != FRAME_END {
        return Err(PROTOCOL.malformed(&content));
    }
    Ok(content[4..size].to_vec())
}

/// A whole frame at `at`: its kind, its content, and where it ends. Nothing inside if it is incomplete.
#[inline]
fn frame_at(data: &[u8], at: usize) -> Option<Option<(u8, &[u8], usize)>> {
    let Some(head) = data.get(at..at + FRAME_HEAD) else { return Some(None) };
    let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
    if size > FRAME_MAX {
        return None;
    }
    let from = at + FRAME_HEAD;
    let end = from + size as usize;
    match data.get(end) {
        None => Some(None),
        Some(&FRAME_END) => Some(Some((head[0], &data[from..end], end + 1))),
        Some(_) => None,
    }
}

#[inline]
pub fn next(data: &[u8]) -> Option<Next<'_>> {
    let Some((kind, content, at)) = frame_at(data, 0)? else { return Some(Next::More) };
    if kind == HEARTBEAT {
        return Some(Next::ignored(at));
    }
    let (&class, rest) = content.split_first_chunk::<2>()?;
    let (&number, arguments) = rest.split_first_chunk::<2>()?;
    match (kind, (u16::from_be_bytes(class), u16::from_be_bytes(number))) {
        (METHOD, BASIC_DELIVER) => delivery(data, arguments, at),
        (METHOD, BASIC_ACK) => {
            let (&number, rest) = arguments.split_first_chunk::<8>()?;
            let accepted =
                Accepted::Number { number: u64::from_be_bytes(number), and_before: *rest.first()? != 0 };
            Some(Next::Other { len: at, answer: None, accepted })
        }
        _ => None,
    }
}

/// A short string at the front, and the bytes after it.
#[inline]
fn split_short_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len))
}

/// The delivery whose method has these arguments; its header's frame begins at `at`.
#[inline]
fn delivery<'b>(data: &'b [u8], arguments: &'b [u8], at: usize) -> Option<Next<'b>> {
    let (_consumer, rest) = split_short_string(arguments)?;
    // The delivery's number, and whether it comes again.
    let (_exchange, rest) = split_short_string(rest.get(9..)?)?;
    let (topic, _) = split_short_string(rest)?;
    let Some((kind, header, at)) = frame_at(data, at)? else { return Some(Next::More) };
    let size = u64::from_be_bytes(*header.get(4..)?.first_chunk()?);
    if kind != HEADER {
        return None;
    }
    if size == 0 {
        return Some(Next::Message { topic, payload: &[], len: at });
    }
    let Some((kind, payload, len)) = frame_at(data, at)? else { return Some(Next::More) };
    (kind == BODY && payload.len() as u64 == size).then_some(Next::Message { topic, payload, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A delivery as the server sends it, number 7.
    fn delivered(topic: &str, payload: &[u8]) -> Vec<u8> {
        let mut bytes = method(BASIC_DELIVER, |to| {
            short_string(to, "bench");
            to.extend_from_slice(&7_u64.to_be_bytes());
            to.push(0);
            short_string(to, EXCHANGE);
            short_string(to, topic);
        });
        let mut published = Vec::new();
        begin(&mut published, topic, payload.len());
        let (_, _, publish) = frame_at(&published, 0).unwrap().unwrap();
        bytes.extend_from_slice(&published[publish..]);
        bytes.extend_from_slice(payload);
        bytes.push(FRAME_END);
        bytes
    }

    #[test]
    fn a_delivery_is_parsed_wherever_it_is_cut() {
        let bytes = delivered("bench.004", b"hello");
        for cut in 0..bytes.len() {
            assert_eq!(next(&bytes[..cut]), Some(Next::More), "{cut}");
        }
        let message = Next::Message { topic: b"bench.004", payload: b"hello", len: bytes.len() };
        assert_eq!(next(&[&bytes[..], b"more"].concat()), Some(message));
    }

    #[test]
    fn acknowledgements_name_their_message() {
        let ack = method(BASIC_ACK, |to| {
            to.extend_from_slice(&300_u64.to_be_bytes());
            to.push(1);
        });
        let accepted = Accepted::Number { number: 300, and_before: true };
        assert_eq!(next(&ack), Some(Next::Other { len: ack.len(), answer: None, accepted }));
    }

    #[test]
    fn oversized_messages_are_refused() {
        assert_eq!(next(&method((60, 50), |_| {})), None);
        assert_eq!(next(&[METHOD, 0, 1, 0xFF, 0, 0, 0, 0]), None);
        let mut wrong_end = method(BASIC_ACK, |to| to.extend_from_slice(&[0; 9]));
        *wrong_end.last_mut().unwrap() = 0;
        assert_eq!(next(&wrong_end), None);
        let mut two_bodies = delivered("bench.004", b"hello");
        let at = two_bodies.len() - 5 - 1 - FRAME_HEAD - 1 - 2 - 1;
        two_bodies[at] = 9;
        assert_eq!(next(&two_bodies), None);
    }
}
