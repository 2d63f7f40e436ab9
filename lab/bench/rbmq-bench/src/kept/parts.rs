//! The parts that the systems of `rbmq-bench kept` share: messages, servers, sockets.

use std::fs;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use benchkit::folder::Folder;
use benchkit::server::{Group, Start};
use benchkit::sys;
use testkit::own_port;

use crate::error::BenchError;

/// How long a server may take to listen.
pub(super) const START_WITHIN: Duration = Duration::from_secs(20);
/// A server that says nothing for so long has failed.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Bytes that are read or written at once.
pub(super) const BUFFER: usize = 256 << 10;
/// Messages that a publisher may have unconfirmed.
pub(super) const UNCONFIRMED: u64 = 16_384;
/// Confirmed messages for which the publisher gets room at once.
pub(super) const CREDIT: u64 = 256;

/// The messages of a measurement: each begins with its number.
pub(super) struct Messages {
    pub(super) count: u64,
    pub(super) payload: Vec<u8>,
}

impl Messages {
    pub(super) fn new(count: u64, size: u32) -> Self {
        Self { count, payload: vec![b'.'; size as usize] }
    }

    pub(super) fn numbered(&mut self, number: u64) -> &[u8] {
        self.payload[..8].copy_from_slice(&number.to_le_bytes());
        &self.payload
    }

    /// # Errors
    /// The message is not the one with this number.
    pub(super) fn check(&self, number: u64, bytes: &[u8]) -> Result<(), BenchError> {
        let is_it = bytes.len() == self.payload.len() && bytes[..8] == number.to_le_bytes();
        if is_it { Ok(()) } else { Err(BenchError::WrongByte { topic: 0, after_messages: number }) }
    }
}

/// A server with its files, which go with it.
pub struct Server {
    pub(super) group: Group,
    port: u16,
    _folder: Folder,
}

impl Server {
    /// Starts a program that listens at a port. `start`: its arguments, from the folder for its files and the port.
    pub(super) fn start(
        parent: &Path,
        name: &'static str,
        start: impl Fn(&Path, u16) -> Start,
    ) -> Result<Self, BenchError> {
        let path = fs::canonicalize(parent)?.join(format!("rbmq-bench-kept-{}", std::process::id()));
        let folder = Folder::make(path)?;
        let port = own_port();
        let group = Group::start(&start(folder.path(), port), folder.path(), "log")?;
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if begun.elapsed() > START_WITHIN {
                let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
                return Err(BenchError::ServerFailed { peer: name, log });
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { group, port, _folder: folder })
    }

    pub(super) fn connect(&self) -> Result<TcpStream, BenchError> {
        let socket = TcpStream::connect(self.addr())?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_WITHIN))?;
        socket.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(socket)
    }

    /// Where it listens.
    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Processor time of the server so far.
    pub fn cpu_s(&self) -> f64 {
        sys::group_cpu_s(self.group.id())
    }
}

/// Bytes of a socket that were not used yet.
pub(super) struct Incoming {
    pub(super) socket: TcpStream,
    pub(super) bytes: Vec<u8>,
    pub(super) used: usize,
}

impl Incoming {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, bytes: Vec::with_capacity(BUFFER), used: 0 }
    }

    /// Waits for more bytes.
    pub(super) fn fill(&mut self) -> Result<(), BenchError> {
        self.bytes.drain(..self.used);
        self.used = 0;
        let filled = self.bytes.len();
        self.bytes.resize(filled + BUFFER, 0);
        let read = self.socket.read(&mut self.bytes[filled..])?;
        self.bytes.truncate(filled + read);
        if read == 0 { Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()) } else { Ok(()) }
    }

    /// The next line, without its end.
    pub(super) fn line(&mut self) -> Result<String, BenchError> {
        loop {
            let rest = &self.bytes[self.used..];
            if let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..end]).into_owned();
                self.used += end + 2;
                return Ok(line);
            }
            self.fill()?;
        }
    }

    /// The next bytes and the end of their line.
    pub(super) fn exact(&mut self, count: usize) -> Result<&[u8], BenchError> {
        while self.bytes.len() - self.used < count + 2 {
            self.fill()?;
        }
        let at = self.used;
        self.used += count + 2;
        Ok(&self.bytes[at..at + count])
    }
}

/// Writes each message behind `head` and with the end of a line, and reads an answer to each by `answer`, in a thread of its own. At
/// most [`UNCONFIRMED`] are without an answer.
pub(super) fn pipeline(
    mut socket: TcpStream,
    mut answers: Incoming,
    messages: &mut Messages,
    head: &str,
    answer: fn(&mut Incoming) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let count = messages.count;
    let (confirmed, confirms) = mpsc::sync_channel((UNCONFIRMED / CREDIT) as usize);
    let reader = thread::spawn(move || -> Result<(), BenchError> {
        for number in 1..=count {
            answer(&mut answers)?;
            // The writer ends after an error of its own.
            if number % CREDIT == 0 && confirmed.send(()).is_err() {
                break;
            }
        }
        Ok(())
    });
    let (mut text, mut credits) = (Vec::with_capacity(BUFFER), UNCONFIRMED / CREDIT);
    for number in 0..count {
        text.extend_from_slice(head.as_bytes());
        text.extend_from_slice(messages.numbered(number));
        text.extend_from_slice(b"\r\n");
        if (number + 1) % CREDIT != 0 {
            continue;
        }
        credits = credits - 1 + confirms.try_iter().count() as u64;
        if text.len() >= BUFFER / 4 || credits == 0 {
            socket.write_all(&text)?;
            text.clear();
        }
        if credits == 0 {
            match confirms.recv() {
                Ok(()) => credits = 1,
                Err(mpsc::RecvError) => break,
            }
        }
    }
    socket.write_all(&text)?;
    let ended = || BenchError::Io(std::io::Error::other("the thread that reads answers has ended"));
    reader.join().map_err(|_| ended())?
}

/// Both halves of a measurement.
pub(super) trait Kept {
    /// Publishes all messages, until the server has confirmed the last.
    fn write(&self, server: &Server, messages: &mut Messages) -> Result<(), BenchError>;
    /// Receives all messages from the oldest on.
    fn replay(&self, server: &Server, messages: &Messages) -> Result<(), BenchError>;
}
