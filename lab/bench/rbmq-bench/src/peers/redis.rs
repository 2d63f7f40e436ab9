//! Redis: RESP version 2, `PUBLISH` and `SUBSCRIBE`.
//!
//! ```text
//!   publisher   *3 $7 PUBLISH $9 bench.000 $8 payload        with replies off nothing comes back
//!   subscriber  *3 $7 message $9 bench.000 $8 payload        (each item ends with CR LF)
//! ```

use std::{io::Write, net::TcpStream, path::Path};

use benchkit::{fleet::words, server::Start};

use super::{
    message::{Accepted, Next, Protocol, line, number, push_number, topic_name},
    socket::Reader,
};
use crate::{error::BenchError, systems::Setup};

/// The protocol.
pub const PROTOCOL: Protocol = Protocol { name: "redis", parse: next };

const PUBLISH: &[u8] = b"*3\r\n$7\r\nPUBLISH\r\n$";
const MESSAGE: &[u8] = b"*3\r\n$7\r\nmessage\r\n$";
const SUBSCRIBED: &[u8] = b"*3\r\n$9\r\nsubscribe\r\n$";

/// The longest line of the used part of the protocol.
const LINE: usize = 512;

/// The server as the bench starts it: without `keep` nothing is on disk, and without `limits` no slow subscriber is dropped.
/// `threads` threads read and write, the main thread included.
pub fn start(program: &Path, folder: &Path, port: u16, threads: usize, setup: &Setup) -> Start {
    let mut args: Vec<String> = Vec::new();
    let mut set = |more: &[&str]| args.extend(words(more));
    let kept = if setup.keep { "yes" } else { "no" };
    set(&["--bind", "127.0.0.1", "--daemonize", "no", "--databases", "1", "--loglevel", "warning"]);
    set(&["--save", "", "--appendonly", kept, "--appendfsync", "everysec"]);
    if !setup.limits {
        set(&["--client-output-buffer-limit", "pubsub 0 0 0"]);
    }
    set(&["--dir", &folder.to_string_lossy()]);
    if threads > 1 {
        // Redis allows at most 128 threads.
        set(&["--io-threads", &threads.min(128).to_string(), "--io-threads-do-reads", "yes"]);
    }
    match &setup.certificates {
        None => set(&["--port", &port.to_string()]),
        Some(folder) => {
            let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
            set(&["--port", "0", "--tls-port", &port.to_string(), "--tls-auth-clients", "no"]);
            set(&["--tls-cert-file", &file("server.pem"), "--tls-key-file", &file("server-key.pem")]);
            set(&["--tls-ca-cert-file", &file("ca.pem"), "--tls-protocols", "TLSv1.3"]);
        }
    }
    Start { program: program.to_owned(), args, env: Vec::new() }
}

#[inline]
pub fn begin(to: &mut Vec<u8>, topic: &str, size: usize) {
    to.extend_from_slice(PUBLISH);
    channel_and_length(to, topic, size);
}

pub fn delivered(topic: &str, size: usize) -> Vec<u8> {
    let mut prefix = MESSAGE.to_vec();
    channel_and_length(&mut prefix, topic, size);
    prefix
}

#[inline]
fn channel_and_length(to: &mut Vec<u8>, topic: &str, size: usize) {
    push_number(to, topic.len());
    to.extend_from_slice(b"\r\n");
    to.extend_from_slice(topic.as_bytes());
    to.extend_from_slice(b"\r\n$");
    push_number(to, size);
    to.extend_from_slice(b"\r\n");
}

pub fn open_publisher(socket: &mut TcpStream, confirm: bool) -> Result<(), BenchError> {
    ping(socket)?;
    if !confirm {
        // Has no answer.
        socket.write_all(b"CLIENT REPLY OFF\r\n")?;
    }
    Ok(())
}

pub fn open_subscriber(socket: &mut TcpStream, reader: &mut Reader, topics: &[u8]) -> Result<(), BenchError> {
    let names: Vec<String> = topics.iter().map(|topic| topic_name(*topic)).collect();
    socket.write_all(format!("SUBSCRIBE {}\r\n", names.join(" ")).as_bytes())?;
    for _ in topics {
        reader.expect(PROTOCOL, socket, |next| matches!(next, Next::Other { .. }))?;
    }
    Ok(())
}

fn ping(socket: &mut TcpStream) -> Result<(), BenchError> {
    socket.write_all(b"PING\r\n")?;
    Reader::small().expect(PROTOCOL, socket, |next| matches!(next, Next::Other { .. }))
}

#[inline]
pub fn next(data: &[u8]) -> Option<Next<'_>> {
    if data.starts_with(MESSAGE) {
        return message(data);
    }
    if MESSAGE.starts_with(data) || SUBSCRIBED.starts_with(data) {
        return Some(Next::More);
    }
    if data.starts_with(SUBSCRIBED) {
        return subscribed(data);
    }
    reply(data)
}

/// `$9 bench.000 $8 payload`, from behind the first `$`.
#[inline]
fn message(data: &[u8]) -> Option<Next<'_>> {
    let Some((topic, at)) = bulk(data, MESSAGE.len())? else { return Some(Next::More) };
    match data.get(at) {
        Some(b'$') => {}
        None => return Some(Next::More),
        Some(_) => return None,
    }
    let Some((payload, len)) = bulk(data, at + 1)? else { return Some(Next::More) };
    Some(Next::Message { topic, payload, len })
}

/// The bulk string whose length is at `at`, and its end; Some(None) if it is incomplete.
#[inline]
fn bulk(data: &[u8], at: usize) -> Option<Option<(&[u8], usize)>> {
    let Some((len, digits)) = number(&data[at..]) else {
        return if data.len() == at { Some(None) } else { None };
    };
    let from = at + digits + 2;
    let end = from + len;
    if data.len() < end + 2 {
        return Some(None);
    }
    let framed = &data[from - 2..from] == b"\r\n" && &data[end..end + 2] == b"\r\n";
    framed.then_some(Some((&data[from..end], end + 2)))
}

/// `$9 bench.000 :1`
fn subscribed(data: &[u8]) -> Option<Next<'_>> {
    let Some((_, at)) = bulk(data, SUBSCRIBED.len())? else { return Some(Next::More) };
    match line(&data[at..], LINE) {
        Some(([b':', ..], len)) => Some(Next::ignored(at + len)),
        Some(_) => None,
        None => Some(Next::More),
    }
}

/// The reply to a command: `+OK`, or `:2` if two subscribers get a message.
fn reply(data: &[u8]) -> Option<Next<'_>> {
    match (data.first()?, line(data, LINE)) {
        (b'+', Some((_, len))) => Some(Next::ignored(len)),
        (b':', Some((_, len))) => Some(Next::Other { len, answer: None, accepted: Accepted::One }),
        (b'+' | b':', None) if data.len() < LINE => Some(Next::More),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_the_server_sends() {
        let sent = b"*3\r\n$7\r\nmessage\r\n$9\r\nbench.001\r\n$5\r\nhello\r\n";
        assert_eq!(delivered("bench.001", 5), &sent[..sent.len() - 7]);
        let mut published = Vec::new();
        begin(&mut published, "bench.001", 5);
        assert_eq!(published, b"*3\r\n$7\r\nPUBLISH\r\n$9\r\nbench.001\r\n$5\r\n");
    }

    #[test]
    fn other_replies_are_distinguished() {
        assert_eq!(next(b"+PONG\r\n"), Some(Next::ignored(7)));
        let one = Next::Other { len: 4, answer: None, accepted: Accepted::One };
        assert_eq!(next(b":4\r\n:"), Some(one));
        assert_eq!(next(b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"), Some(Next::ignored(30)));
        for part in [&b""[..], b":", b"+PON", b"*3\r\n$9\r\nsubscr"] {
            assert!(matches!(next(part), Some(Next::More) | None), "{part:?}");
        }
        assert_eq!(next(b"-ERR unknown command\r\n"), None);
        assert_eq!(next(b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhello\r\n"), None);
    }
}
