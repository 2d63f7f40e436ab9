//! NATS: its text protocol, without streams or acknowledgements of delivery.
//!
//! ```text
//!   publisher   PUB bench.000 8 ␍␊ payload ␍␊
//!   subscriber  MSG bench.000 1 8 ␍␊ payload ␍␊      the second word is the subscription's number
//! ```

use std::{io::Write, net::TcpStream, path::Path};

use benchkit::server::Start;

use super::{
    message::{Accepted, Next, Protocol, line, number, push_number, topic_name},
    socket::Reader,
};
use crate::{error::BenchError, systems::Setup};

/// The protocol.
pub const PROTOCOL: Protocol = Protocol { name: "nats", parse: next };

/// The longest line that is not a message; the server's INFO has under 1 KiB.
const LINE: usize = 8192;
/// The longest line before a message's payload.
const HEAD: usize = 128;

/// The server as the bench starts it; without `limits` large messages pass, and slow subscribers stay: a replay at full speed has more
/// before it than the server allows.
pub fn start(program: &Path, folder: &Path, port: u16, setup: &Setup) -> std::io::Result<Start> {
    let config = folder.join("nats.conf");
    let mut text = format!("listen: 127.0.0.1:{port}\nping_interval: \"1h\"\n");
    if !setup.limits {
        let pending: u64 = if setup.keep { 4 << 30 } else { 1 << 30 };
        text += &format!("max_payload: 33554432\nmax_pending: {pending}\nwrite_deadline: \"60s\"\n");
    }
    if setup.keep {
        text += &format!("jetstream {{ store_dir: {:?} }}\n", folder.join("stream"));
    }
    std::fs::write(&config, text)?;
    let args = vec!["-c".to_owned(), config.to_string_lossy().into_owned()];
    Ok(Start { program: program.to_owned(), args, env: Vec::new() })
}

#[inline]
pub fn begin(to: &mut Vec<u8>, topic: &str, size: usize) {
    to.extend_from_slice(b"PUB ");
    to.extend_from_slice(topic.as_bytes());
    to.push(b' ');
    push_number(to, size);
    to.extend_from_slice(b"\r\n");
}

/// Topic number n is subscription number n + 1.
pub fn delivered(number: u8, topic: &str, size: usize) -> Vec<u8> {
    format!("MSG {topic} {} {size}\r\n", u16::from(number) + 1).into_bytes()
}

pub fn open(socket: &mut TcpStream, confirm: bool) -> Result<(), BenchError> {
    let mut reader = Reader::small();
    reader.expect(PROTOCOL, socket, |next| matches!(next, Next::Other { .. }))?;
    let options = format!("{{\"verbose\":{confirm},\"pedantic\":false,\"lang\":\"rust\",\"version\":\"0\"}}");
    socket.write_all(format!("CONNECT {options}\r\nPING\r\n").as_bytes())?;
    if confirm {
        // +OK for CONNECT.
        reader.expect(PROTOCOL, socket, |next| matches!(next, Next::Other { .. }))?;
    }
    reader.expect(PROTOCOL, socket, |next| matches!(next, Next::Other { .. }))
}

pub fn open_subscriber(socket: &mut TcpStream, reader: &mut Reader, topics: &[u8]) -> Result<(), BenchError> {
    open(socket, false)?;
    for topic in topics {
        let (name, number) = (topic_name(*topic), u16::from(*topic) + 1);
        socket.write_all(format!("SUB {name} {number}\r\n").as_bytes())?;
    }
    socket.write_all(b"PING\r\n")?;
    let pong = |next: &Next<'_>| matches!(next, Next::Other { answer: None, .. });
    reader.expect(PROTOCOL, socket, pong)
}

#[inline]
pub fn next(data: &[u8]) -> Option<Next<'_>> {
    if data.starts_with(b"MSG ") {
        return message(data);
    }
    match line(data, LINE) {
        Some((b"PING", len)) => Some(Next::Other { len, answer: Some(b"PONG\r\n"), accepted: Accepted::No }),
        Some((b"+OK", len)) => Some(Next::Other { len, answer: None, accepted: Accepted::One }),
        Some((line, len)) if line == b"PONG" || line.starts_with(b"INFO ") => Some(Next::ignored(len)),
        None if data.len() < LINE => Some(Next::More),
        _ => None,
    }
}

/// Names here have no spaces, and all of them one length, but nothing relies on it.
#[inline]
fn message(data: &[u8]) -> Option<Next<'_>> {
    const TOPIC: usize = 4;
    let head = &data[..data.len().min(HEAD)];
    let more = || if head.len() < HEAD { Some(Next::More) } else { None };
    let Some(topic_len) = head[TOPIC..].iter().position(|byte| *byte == b' ') else { return more() };
    let at = TOPIC + topic_len + 1;
    let Some(sid_len) = head[at..].iter().position(|byte| *byte == b' ') else { return more() };
    let at = at + sid_len + 1;
    let Some((len, digits)) = number(&head[at..]) else {
        return if head.len() == at { more() } else { None };
    };
    let from = at + digits + 2;
    let end = from + len;
    if data.len() < end + 2 {
        return Some(Next::More);
    }
    let framed = &data[from - 2..from] == b"\r\n" && &data[end..end + 2] == b"\r\n";
    let topic = &data[TOPIC..TOPIC + topic_len];
    framed.then_some(Next::Message { topic, payload: &data[from..end], len: end + 2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_the_server_sends() {
        assert_eq!(delivered(9, "bench.009", 34), b"MSG bench.009 10 34\r\n");
        let sent = b"MSG bench.009 10 5\r\nhello\r\nMSG";
        let message = Next::Message { topic: b"bench.009", payload: b"hello", len: 27 };
        assert_eq!(next(sent), Some(message));
    }

    #[test]
    fn other_lines_are_distinguished() {
        assert!(matches!(next(b"PING\r\n"), Some(Next::Other { answer: Some(_), len: 6, .. })));
        assert!(matches!(next(b"+OK\r\n+"), Some(Next::Other { accepted: Accepted::One, len: 5, .. })));
        assert_eq!(next(b"INFO {}\r\n"), Some(Next::ignored(9)));
        assert_eq!(next(b"-ERR 'Unknown Protocol Operation'\r\n"), None);
        assert_eq!(next(b"MSG a 1 x\r\n"), None);
        assert_eq!(next(b"MSG a 1 2\r\nhello\r\n"), None);
        assert_eq!(next(&[b'x'; LINE]), None);
    }
}
