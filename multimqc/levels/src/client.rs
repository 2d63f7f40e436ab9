//! Clients of the header form.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::log::Offset;
use crate::topic::{Epoch, TopicId};
use crate::wire::{
    Datagram, HEADER_BYTES, Header, IPV6_PAYLOAD_BYTES, Kind, MAX_PAYLOAD_BYTES, MTU_PAYLOAD_BYTES, Status,
};

/// How long a pull waits for its reply before it is sent again, and the limit that doubling this reaches.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Sends messages with numbers, so that the server can count losses. Messages are not confirmed.
#[derive(Debug)]
pub struct Pusher {
    socket: UdpSocket,
    header: Header,
    datagram: Vec<u8>,
}

/// Asks for ranges. A request is repeated until there is a reply.
#[derive(Debug)]
pub struct Puller {
    socket: UdpSocket,
    header: Header,
    max_reply_bytes: usize,
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// The reply to a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetched<'a> {
    /// Bytes from the asked offset on: at least one, perhaps fewer than asked for.
    Data(&'a [u8]),
    /// The byte was not written yet: the log ends here. A pull at [`MAX_OFFSET`](crate::MAX_OFFSET) asks for that.
    End(Offset),
    /// This many bytes are missing in the log.
    Hole(u64),
    /// This many bytes, or more, are older than the oldest kept byte.
    Gone(u64),
    /// The server does not have the topic.
    UnknownTopic,
    /// The log is a new one, with this epoch, which the next pull accepts. Offsets of the earlier log have no meaning in it.
    OtherEpoch(Epoch),
}

/// A socket that sends to `server` and receives only from there.
fn connect(server: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    Ok(socket)
}

fn header(kind: Kind, topic: TopicId) -> io::Result<Header> {
    let cookie = getrandom::u32().map_err(io::Error::other)?;
    let (offset, length, epoch) = (0, 0, Epoch::ANY);
    Ok(Header { kind, topic, status: Status::Data, cookie, sequence: 0, offset, length, epoch })
}

impl Pusher {
    /// A pusher to a topic of the server at this address.
    ///
    /// # Errors
    /// No socket could be made, or the address is of no use.
    pub fn connect(server: SocketAddr, topic: TopicId) -> io::Result<Pusher> {
        Ok(Pusher { socket: connect(server)?, header: header(Kind::Push, topic)?, datagram: Vec::new() })
    }

    /// The largest message: the bytes that a datagram holds beside its header.
    pub const MAX_MESSAGE_BYTES: usize = MAX_PAYLOAD_BYTES - HEADER_BYTES;

    /// Sends a message of 1 to [`Pusher::MAX_MESSAGE_BYTES`] bytes.
    ///
    /// # Errors
    /// The message has another size, or the system did not send it. An error that an earlier message caused (no socket at the server's
    /// port) is returned too. The message then counts as lost.
    pub fn push(&mut self, message: &[u8]) -> io::Result<()> {
        if message.is_empty() || message.len() > Pusher::MAX_MESSAGE_BYTES {
            let what = format!(
                "a message of {} bytes: it must have 1 to {}",
                message.len(),
                Pusher::MAX_MESSAGE_BYTES
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        self.header.length = message.len() as u32;
        self.datagram.clear();
        self.datagram.extend_from_slice(&self.header.encode());
        self.datagram.extend_from_slice(message);
        self.header.sequence = self.header.sequence.wrapping_add(1);
        self.socket.send(&self.datagram).map(drop)
    }
}

impl Puller {
    /// A puller of a topic of the server at this address. Its replies have at most [`MTU_PAYLOAD_BYTES`] bytes,
    /// over IPv6 [`IPV6_PAYLOAD_BYTES`].
    ///
    /// # Errors
    /// No socket could be made, or the address is of no use.
    pub fn connect(server: SocketAddr, topic: TopicId) -> io::Result<Puller> {
        Ok(Puller {
            socket: connect(server)?,
            header: header(Kind::Pull, topic)?,
            max_reply_bytes: if server.is_ipv4() { MTU_PAYLOAD_BYTES } else { IPV6_PAYLOAD_BYTES },
            request: Vec::new(),
            reply: vec![0; MAX_PAYLOAD_BYTES],
        })
    }

    /// The epoch of the log, once there was a reply.
    pub fn epoch(&self) -> Epoch {
        self.header.epoch
    }

    /// Asks for up to `length` bytes from `offset` on. `None`: there was no reply within `timeout` (which is `None` for no limit). The
    /// request is padded to the size of its reply, since a server sends no reply that is longer than its request.
    ///
    /// # Errors
    /// The socket failed. Nobody listens at the server's port: [`io::ErrorKind::ConnectionRefused`].
    pub fn fetch(
        &mut self,
        offset: Offset,
        length: usize,
        timeout: Option<Duration>,
    ) -> io::Result<Option<Fetched<'_>>> {
        let length = length.min(self.max_reply_bytes - HEADER_BYTES);
        self.header.sequence = self.header.sequence.wrapping_add(1);
        (self.header.offset, self.header.length) = (offset, length as u32);
        self.request.clear();
        self.request.extend_from_slice(&self.header.encode());
        self.request.resize(HEADER_BYTES + length, 0);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut wait = FIRST_WAIT;
        loop {
            self.socket.send(&self.request)?;
            let until = Instant::now() + wait;
            if let Some((header, bytes)) = self.receive(until.min(deadline.unwrap_or(until)))? {
                self.header.epoch = header.epoch;
                return Ok(Some(fetched(&header, &self.reply[HEADER_BYTES..HEADER_BYTES + bytes])));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
            wait = LONGEST_WAIT.min(2 * wait);
        }
    }

    /// Receives the reply to the last request, and the number of its bytes. `None`: no reply came before `until`.
    fn receive(&mut self, until: Instant) -> io::Result<Option<(Header, usize)>> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let size = match self.socket.recv(&mut self.reply) {
                Ok(size) => size,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Ok(Datagram { header, body }) = Datagram::parse(&self.reply[..size]) else { continue };
            let asked = &self.header;
            let place = header.offset == asked.offset || header.status == Status::End;
            let mine =
                (header.cookie, header.sequence, header.topic) == (asked.cookie, asked.sequence, asked.topic);
            if mine && place && header.kind == Kind::Reply && body.len() <= asked.length as usize {
                return Ok(Some((header, body.len())));
            }
        }
    }
}

fn fetched<'a>(header: &Header, bytes: &'a [u8]) -> Fetched<'a> {
    let length = header.length.into();
    match header.status {
        Status::Data => Fetched::Data(bytes),
        Status::End => Fetched::End(header.offset),
        Status::Hole => Fetched::Hole(length),
        Status::Gone => Fetched::Gone(length),
        Status::UnknownTopic => Fetched::UnknownTopic,
        Status::OtherEpoch => Fetched::OtherEpoch(header.epoch),
    }
}
