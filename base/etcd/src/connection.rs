//! A connection that speaks as much of HTTP/1.1 as etcd's gateway needs: one request after the other, and answers by length, in chunks, or up to the end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::endpoint::Endpoint;
use super::error::{TOO_LONG, senseless};

/// The largest head of an answer, and the longest line in a body of chunks.
const MAX_HEAD: usize = 16 << 10;
const MAX_FIELDS: usize = 64;
/// The shortest time that the system takes for a limit.
const SHORTEST: Duration = Duration::from_millis(1);

/// The beginning of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Where a redirect leads.
    pub(crate) location: Option<String>,
}

/// How far the body of an answer was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// So many bytes are left.
    Length(u64),
    /// The size of a chunk comes next.
    Size,
    /// So many bytes of a chunk are left.
    Chunk(u64),
    /// The end of the line behind a chunk comes next.
    ChunkEnd,
    /// Fields behind the last chunk.
    Trailer,
    /// The body ends with the connection.
    ToEnd,
    Done,
}

pub(crate) struct Connection {
    stream: BufReader<Stream>,
    host: String,
    body: Body,
    /// The line that is being read, of which a part may have come.
    line: Vec<u8>,
    /// Whether another request may follow.
    stays: bool,
}

enum Stream {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

/// A socket whose calls end at a time.
struct Timed {
    socket: TcpStream,
    until: Instant,
}

impl Timed {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).max(SHORTEST)
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()))?;
        self.socket.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    fn timed(&mut self) -> &mut Timed {
        match self {
            Self::Plain(timed) => timed,
            Self::Tls(tls) => &mut tls.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(timed) => timed.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(timed) => timed.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(timed) => timed.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

impl Connection {
    /// Connects.
    pub(crate) fn open(
        endpoint: &Endpoint,
        tls: Option<&Arc<ClientConfig>>,
        until: Instant,
    ) -> io::Result<Self> {
        let left = until.saturating_duration_since(Instant::now());
        let addresses = peers::resolve_host_within(&endpoint.host, endpoint.port, left);
        let addresses = addresses.map_err(io::Error::other)?;
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let mut connect = |address| {
            let left = until.saturating_duration_since(Instant::now()).max(SHORTEST);
            TcpStream::connect_timeout(address, left).map_err(|error| failure = error).ok()
        };
        let Some(socket) = addresses.iter().find_map(&mut connect) else { return Err(failure) };
        socket.set_nodelay(true)?;
        let timed = Timed { socket, until };
        let stream = match tls {
            None => Stream::Plain(timed),
            Some(config) => {
                let name = ServerName::try_from(endpoint.host.clone()).map_err(io::Error::other)?;
                let tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                Stream::Tls(Box::new(StreamOwned::new(tls, timed)))
            }
        };
        let (stream, host) = (BufReader::new(stream), endpoint.authority());
        Ok(Self { stream, host, body: Body::Done, line: Vec::new(), stays: true })
    }

    /// The time at which reads and writes end.
    pub(crate) fn set_end(&mut self, until: Instant) {
        self.stream.get_mut().timed().until = until;
    }

    /// Whether another request may follow: the answer before was read to its end.
    pub(crate) fn is_free(&self) -> bool {
        self.stays && self.body == Body::Done
    }

    /// Sends a request, and reads the head of its answer.
    pub(crate) fn request(&mut self, path: &str, body: &str, token: Option<&str>) -> io::Result<Head> {
        let (host, length) = (&self.host, body.len());
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
        );
        // A member that has lost the majority answers with an error, and a watch of it ends.
        request += "Grpc-Metadata-hasleader: true\r\n";
        if let Some(token) = token {
            request += &format!("Authorization: {token}\r\n");
        }
        request += "\r\n";
        request += body;
        self.stays = false;
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.stream.get_mut().flush()?;
        self.head()
    }

    fn head(&mut self) -> io::Result<Head> {
        let mut text = Vec::new();
        loop {
            self.read_line()?;
            let is_last = matches!(self.line[..], [b'\r', b'\n'] | [b'\n']);
            text.append(&mut self.line);
            if is_last {
                break;
            }
            if text.len() > MAX_HEAD {
                return Err(senseless("the head of the answer is too long"));
            }
        }
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut head = httparse::Response::new(&mut fields);
        match head.parse(&text) {
            Ok(httparse::Status::Complete(_)) => {}
            _ => return Err(senseless("it is not HTTP/1.1")),
        }
        let field = |name: &str| {
            let field = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
            field.map(|field| String::from_utf8_lossy(field.value).trim().to_owned())
        };
        self.body = match (field("Transfer-Encoding"), field("Content-Length")) {
            (Some(encoding), _) if encoding.eq_ignore_ascii_case("chunked") => Body::Size,
            (Some(_), _) => return Err(senseless("an unknown Transfer-Encoding")),
            (None, Some(length)) => {
                let length = length.parse().map_err(|_| senseless("a wrong Content-Length"))?;
                if length == 0 { Body::Done } else { Body::Length(length) }
            }
            (None, None) => Body::ToEnd,
        };
        let closes = field("Connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        self.stays = head.version == Some(1) && !closes && self.body != Body::ToEnd;
        Ok(Head { status: head.code.unwrap_or_default(), location: field("Location") })
    }

    /// Reads a line into `line`, which may have its beginning.
    fn read_line(&mut self) -> io::Result<()> {
        let room = (MAX_HEAD - self.line.len().min(MAX_HEAD)) as u64;
        (&mut self.stream).take(room).read_until(b'\n', &mut self.line)?;
        match self.line.last() {
            Some(b'\n') => Ok(()),
            _ if self.line.len() >= MAX_HEAD => Err(senseless("a line of the answer is too long")),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Appends bytes of the body, at least one unless it has ended. After an error of time the call may be repeated.
    pub(crate) fn read_some(&mut self, out: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match self.body {
                Body::Done => return Ok(0),
                Body::Length(left) | Body::Chunk(left) => {
                    let bytes = self.take(left, out)?;
                    if bytes == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.body = match (self.body, left - bytes as u64) {
                        (Body::Length(_), 0) => Body::Done,
                        (Body::Length(_), left) => Body::Length(left),
                        (_, 0) => Body::ChunkEnd,
                        (_, left) => Body::Chunk(left),
                    };
                    return Ok(bytes);
                }
                Body::ToEnd => {
                    let bytes = self.take(u64::MAX, out)?;
                    if bytes == 0 {
                        self.body = Body::Done;
                    }
                    return Ok(bytes);
                }
                Body::Size | Body::ChunkEnd | Body::Trailer => {
                    self.read_line()?;
                    let line = std::mem::take(&mut self.line);
                    self.body = self.after(line.trim_ascii())?;
                }
            }
        }
    }

    /// What comes behind a line of a body in chunks.
    fn after(&self, line: &[u8]) -> io::Result<Body> {
        match self.body {
            Body::ChunkEnd if line.is_empty() => Ok(Body::Size),
            Body::ChunkEnd => Err(senseless("a chunk is longer than it says")),
            Body::Trailer if line.is_empty() => Ok(Body::Done),
            Body::Trailer => Ok(Body::Trailer),
            _ => {
                let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
                let size = std::str::from_utf8(digits.trim_ascii()).ok();
                let size = size.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                match size.ok_or_else(|| senseless("a chunk without a size"))? {
                    0 => Ok(Body::Trailer),
                    size => Ok(Body::Chunk(size)),
                }
            }
        }
    }

    fn take(&mut self, most: u64, out: &mut Vec<u8>) -> io::Result<usize> {
        let there = self.stream.fill_buf()?;
        let bytes = there.len().min(usize::try_from(most).unwrap_or(usize::MAX));
        out.extend_from_slice(&there[..bytes]);
        self.stream.consume(bytes);
        Ok(bytes)
    }

    /// Reads the rest of the body, which may have so many bytes.
    pub(crate) fn read_all(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while self.read_some(&mut body)? > 0 {
            if body.len() > most {
                return Err(senseless(format!("{TOO_LONG} {most} bytes")));
            }
        }
        Ok(body)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.stream.get_ref() {
            Stream::Plain(timed) => timed.socket.as_fd(),
            Stream::Tls(tls) => tls.sock.socket.as_fd(),
        }
    }
}
