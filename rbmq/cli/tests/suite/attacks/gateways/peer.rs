//! A hostile client, and what it is answered.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};

use testkit::LONG;

use super::{Begin, Case, connect};

/// The question behind an exchange, and its answer.
const LAST_WORD: &[u8] = b"*2\r\n$4\r\nPING\r\n$9\r\nlast word\r\n";
const PINGREQ: &[u8] = &[0xC0, 0];
const PING_FRAME: &[u8] = &[0x89, 0x84, 0, 0, 0, 0, b'l', b'a', b's', b't'];

/// A good request for WebSocket.
pub const REQUEST: &str = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// So many answers are shown; of more, the last one.
const SHOWN: usize = 3;

pub struct Peer {
    stream: TcpStream,
    bytes: Vec<u8>,
    at: usize,
}

impl Peer {
    pub fn connect(addr: &str, begin: Begin) -> Self {
        static CLIENTS: AtomicU32 = AtomicU32::new(0);
        let stream = TcpStream::connect(addr).expect("the gateway listens");
        stream.set_read_timeout(Some(LONG)).expect("a time");
        stream.set_write_timeout(Some(LONG)).expect("a time");
        stream.set_nodelay(true).expect("a socket");
        let mut peer = Self { stream, bytes: Vec::new(), at: 0 };
        match begin {
            Begin::Mqtt(version) => {
                let client = format!("attacker-{}", CLIENTS.fetch_add(1, Ordering::Relaxed));
                peer.send(&connect(version, &client));
                let (kind, connack) = peer.packet().expect("CONNACK");
                assert_eq!((kind, connack[1]), (0x20, 0));
            }
            Begin::Web => {
                peer.send(REQUEST.as_bytes());
                assert!(peer.head().is_some_and(|head| head.starts_with("HTTP/1.1 101 ")));
            }
            Begin::Redis | Begin::Stranger | Begin::Request => {}
        }
        peer
    }

    /// Sends bytes. The gateway may close the connection in the middle.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends the bytes of an exchange, and says what the answers are, and whether the connection goes on.
    pub fn answer(&mut self, case: &Case) -> String {
        let mut writer = self.stream.try_clone().expect("a socket");
        std::thread::scope(|scope| {
            // What is large is not taken before answers are read.
            scope.spawn(move || {
                let _ = writer.write_all(&case.bytes);
                let _ = match case.begin {
                    _ if case.ends => writer.shutdown(Shutdown::Write),
                    Begin::Redis => writer.write_all(LAST_WORD),
                    Begin::Stranger | Begin::Mqtt(_) => writer.write_all(PINGREQ),
                    Begin::Request | Begin::Web => writer.write_all(PING_FRAME),
                };
            });
            self.answers(case.begin)
        })
    }

    fn answers(&mut self, mut begin: Begin) -> String {
        let (mut all, mut end) = (Vec::new(), "closed");
        while let Some(answer) = self.next(begin) {
            if answer.starts_with("HTTP/1.1 101 ") {
                begin = Begin::Web;
            }
            if answer == "the last word" {
                end = "goes on";
                break;
            }
            // Of several pings, any number is answered.
            if answer != "pong" {
                all.push(answer);
            }
        }
        let _ = self.stream.shutdown(Shutdown::Both);
        let (count, last) = (all.len(), all.last().cloned().unwrap_or_default());
        match count {
            0 => end.to_owned(),
            1..=SHOWN => format!("{}; {end}", all.join(", ")),
            _ => format!("{count} answers, the last {last}; {end}"),
        }
    }

    /// The next answer, shown; none at the end.
    fn next(&mut self, begin: Begin) -> Option<String> {
        match begin {
            Begin::Redis => self.reply(),
            Begin::Stranger | Begin::Mqtt(_) => self.packet().map(|(kind, body)| shown(kind, &body)),
            Begin::Request => self.head().map(|head| head.lines().next().unwrap_or_default().to_owned()),
            Begin::Web => self.frame(),
        }
    }

    /// The next bytes; none at the end.
    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.bytes.len() - self.at < count {
            self.more()?;
        }
        self.at += count;
        Some(self.bytes[self.at - count..self.at].to_vec())
    }

    fn more(&mut self) -> Option<()> {
        let mut more = [0; 16 << 10];
        match self.stream.read(&mut more) {
            Ok(0) => None,
            Ok(count) => {
                self.bytes.drain(..self.at);
                self.at = 0;
                self.bytes.extend_from_slice(&more[..count]);
                Some(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the gateway hangs"),
            Err(_) => None,
        }
    }

    /// The bytes before an end, without it.
    fn before(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            let rest = &self.bytes[self.at..];
            if let Some(found) = rest.windows(end.len()).position(|bytes| bytes == end) {
                let taken = rest[..found].to_vec();
                self.at += found + end.len();
                return Some(taken);
            }
            self.more()?;
        }
    }

    /// An answer of HTTP, without its content.
    fn head(&mut self) -> Option<String> {
        let head = String::from_utf8(self.before(b"\r\n\r\n")?).expect("text");
        let content = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        self.take(content.unwrap_or(0))?;
        Some(head)
    }

    /// A reply of RESP.
    fn reply(&mut self) -> Option<String> {
        let line = self.before(b"\r\n")?;
        assert!(!line.contains(&b'\n') && !line.is_empty(), "a line in a line: {}", line.escape_ascii());
        let line = line.escape_ascii().to_string().replace("\\'", "'").replace("\\\"", "\"");
        let count = line[1..].parse::<i64>().unwrap_or(-1);
        Some(match (line.as_bytes()[0], usize::try_from(count)) {
            (b'$', Ok(count)) => {
                let content = self.take(count + 2)?;
                let content = &content[..count];
                if content == b"last word" {
                    return Some("the last word".to_owned());
                }
                format!("\"{}\"", content[..count.min(40)].escape_ascii())
            }
            (b'*' | b'>' | b'~', Ok(count)) => {
                let all = (0..count).map(|_| self.reply()).collect::<Option<Vec<_>>>()?;
                if all.last().is_some_and(|last| last == "the last word") {
                    return Some("the last word".to_owned());
                }
                format!("[{}]", all[..count.min(4)].join(" "))
            }
            (b'%', Ok(count)) => {
                (0..2 * count).try_for_each(|_| self.reply().map(drop))?;
                format!("%{count}")
            }
            _ => line,
        })
    }

    /// A packet of MQTT: its first byte, and what follows the length.
    pub fn packet(&mut self) -> Option<(u8, Vec<u8>)> {
        let first = self.take(1)?[0];
        let (mut length, mut shift) = (0, 0);
        loop {
            let digit = self.take(1)?[0];
            length |= usize::from(digit & 0x7F) << shift;
            shift += 7;
            if digit & 0x80 == 0 {
                return Some((first, self.take(length)?));
            }
        }
    }

    /// A frame of WebSocket.
    fn frame(&mut self) -> Option<String> {
        let head = self.take(2)?;
        assert!(head[1] & 0x80 == 0, "a mask");
        let length = match head[1] {
            126 => self.take(2)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
            short => usize::from(short),
        };
        let content = self.take(length)?;
        Some(match (head[0], content.as_slice()) {
            (0x8A, b"last") => "the last word".to_owned(),
            (0x8A, _) => "pong".to_owned(),
            (0x88, []) => "close without a code".to_owned(),
            (0x88, [high, low, ..]) => format!("close {}", u16::from_be_bytes([*high, *low])),
            (0x82, [kind, _, rest @ ..]) => shown(*kind, rest),
            (first, _) => format!("a frame {first:#x}"),
        })
    }
}

/// A packet with its reason code.
fn shown(first: u8, body: &[u8]) -> String {
    let code = |at: usize| body.get(at).map_or(String::new(), |code| format!(" {code:#04x}"));
    match first >> 4 {
        2 => format!("CONNACK{}", code(1)),
        3 => "PUBLISH".to_owned(),
        4 => format!("PUBACK{}", code(2)),
        5 => format!("PUBREC{}", code(2)),
        6 => format!("PUBREL{}", code(2)),
        7 => format!("PUBCOMP{}", code(2)),
        9 => format!("SUBACK{}", code(body.len() - 1)),
        11 => format!("UNSUBACK{}", code(body.len() - 1)),
        13 => "the last word".to_owned(),
        14 => format!("DISCONNECT{}", code(0)),
        other => format!("a packet of kind {other}"),
    }
}
