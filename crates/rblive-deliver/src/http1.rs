//! HTTP/1.1 for viewers: requests without bodies, and answers that go from the ring into TLS records.
//!
//! A library for HTTP takes bodies as plain slices, and writes them before it asks for more. Here a piece is encrypted, then checked,
//! and only then written: a viewer never gets bytes that were overwritten meanwhile, not even in a response that is cut.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rblive::ChunkRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::answer::{Answer, Body, Request};
use crate::counters::Counters;
use crate::in_place;
use crate::pages::{Pages, Watching};

/// The largest head of a request.
const MAX_HEAD: usize = 16 << 10;

/// The most fields of a request.
const MAX_FIELDS: usize = 64;

/// Bytes that are encrypted and written at once: four TLS records.
pub(crate) const PIECE: usize = 64 << 10;

/// The time that a viewer has for a piece, whatever its rate.
const GRACE: Duration = Duration::from_secs(5);

/// A viewer's connection.
pub(crate) enum Wire {
    /// The bytes wait for the next flush.
    Plain(TcpStream, Vec<u8>),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A request that was read, or the answer to one that cannot be.
enum Head {
    Request { method: String, request: Request, keep: bool, bytes: usize },
    Refused(u16, &'static str),
    Partial,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(mut wire: Wire, pages: &Pages) -> io::Result<()> {
    let watching = Mutex::new(Watching::default());
    let mut buffer = Vec::new();
    loop {
        let Some(head) = read_head(&mut wire, &mut buffer, pages).await? else { return wire.close().await };
        let (method, request, keep) = match head {
            Head::Request { method, request, keep, bytes } => {
                buffer.drain(..bytes);
                (method, request, keep)
            }
            Head::Refused(status, why) => {
                pages.counters.answered(status);
                send(&mut wire, pages, "GET", Answer::text(status, why), false, &watching).await?;
                return wire.close().await;
            }
            Head::Partial => return Ok(()),
        };
        let answer = pages.answer(&method, &request, &watching).await;
        send(&mut wire, pages, &method, answer, keep, &watching).await?;
        if !keep {
            return wire.close().await;
        }
    }
}

/// Reads the next head. `None`: the client is gone, or silent for too long.
async fn read_head(wire: &mut Wire, buffer: &mut Vec<u8>, pages: &Pages) -> io::Result<Option<Head>> {
    if buffer.is_empty()
        && !matches!(timeout(pages.settings.idle_timeout, wire.read(buffer)).await, Ok(Ok(1..)))
    {
        return Ok(None);
    }
    let whole = async {
        loop {
            match parse(buffer) {
                Head::Partial if buffer.len() >= MAX_HEAD => {
                    return Ok(Head::Refused(431, "the head of the request is too long"));
                }
                Head::Partial if wire.read(buffer).await? == 0 => return Ok(Head::Partial),
                Head::Partial => {}
                head => return Ok(head),
            }
        }
    };
    match timeout(pages.settings.head_timeout, whole).await {
        Ok(head) => head.map(Some),
        Err(_) => Ok(Some(Head::Refused(408, "the request took too long"))),
    }
}

fn parse(buffer: &[u8]) -> Head {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    let bytes = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Head::Partial,
        Err(httparse::Error::TooManyHeaders) => return Head::Refused(431, "the request has too many fields"),
        Err(httparse::Error::Version) => return Head::Refused(505, "this server speaks HTTP/1.1 and HTTP/2"),
        Err(_) => return Head::Refused(400, "this is no HTTP request"),
    };
    let (method, target) = (parsed.method.unwrap_or(""), parsed.path.unwrap_or(""));
    let http11 = parsed.version == Some(1);
    let all = |name: &str| {
        let own = parsed.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        own.filter_map(|field| std::str::from_utf8(field.value).ok()).map(str::trim).collect::<Vec<_>>()
    };
    match (http11, all("host").len()) {
        (true, 1) | (false, 0 | 1) => {}
        _ => return Head::Refused(400, "the request needs one Host"),
    }
    let lengths = all("content-length");
    if parsed.headers.iter().any(|field| field.name.eq_ignore_ascii_case("transfer-encoding"))
        || lengths.iter().any(|length| *length != "0")
    {
        return Head::Refused(413, "a viewer's request has no body");
    }
    let Some(target) = path_of(target) else { return Head::Refused(400, "the address must begin with /") };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let connection = all("connection").join(",").to_ascii_lowercase();
    let says = |word: &str| connection.split(',').any(|own| own.trim() == word);
    let keep = if http11 { !says("close") } else { says("keep-alive") };
    let first = |name: &str| all(name).first().map(|value| (*value).to_owned());
    let request = Request {
        path: path.to_owned(),
        query: query.to_owned(),
        if_none_match: first("if-none-match"),
        range: first("range"),
    };
    Head::Request { method: method.to_owned(), request, keep, bytes }
}

/// The path of a request's target, which may be an absolute address.
fn path_of(target: &str) -> Option<&str> {
    let absolute = target.strip_prefix("http://").or_else(|| target.strip_prefix("https://"));
    match absolute {
        Some(rest) => Some(rest.find('/').map_or("/", |at| &rest[at..])),
        None if target == "*" => Some("/"),
        None => target.starts_with('/').then_some(target),
    }
}

async fn send(
    wire: &mut Wire,
    pages: &Pages,
    method: &str,
    answer: Answer,
    keep: bool,
    watching: &Mutex<Watching>,
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} {}\r\n", answer.status, reason(answer.status));
    for (name, value) in answer.fields() {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    if answer.status != 304 && answer.status != 204 {
        let _ = write!(head, "content-length: {}\r\n", answer.body.len());
    }
    if !keep {
        head.push_str("connection: close\r\n");
    }
    head.push_str("\r\n");
    wire.put(head.as_bytes())?;
    match answer.body {
        _ if method == "HEAD" || answer.status == 304 => {}
        Body::Bytes(bytes) => {
            for piece in bytes.chunks(PIECE) {
                wire.put(piece)?;
                flush(wire, pages).await?;
            }
        }
        Body::Ring(chunks) => {
            for chunk in chunks {
                send_chunk(wire, pages, &chunk).await?;
                watching.lock().sent(chunk.size());
            }
        }
    }
    flush(wire, pages).await?;
    if let Wire::Plain(_, waiting) = wire {
        // A viewer between two requests needs no memory.
        *waiting = Vec::new();
    }
    Ok(())
}

async fn send_chunk(wire: &mut Wire, pages: &Pages, chunk: &ChunkRef) -> io::Result<()> {
    let mut at = 0;
    while at < chunk.size() {
        let to = chunk.size().min(at + PIECE);
        if let Err(error) = wire.put_ring(&chunk.part(at..to)) {
            Counters::add(&pages.counters.overtaken);
            wire.abort();
            return Err(error);
        }
        flush(wire, pages).await?;
        pages.counters.media_bytes.fetch_add((to - at) as u64, std::sync::atomic::Ordering::Relaxed);
        at = to;
    }
    Ok(())
}

/// Writes what is buffered, as fast as a viewer must take it.
async fn flush(wire: &mut Wire, pages: &Pages) -> io::Result<()> {
    let rate = pages.settings.min_bytes_per_second.max(1);
    let limit = GRACE + Duration::from_secs_f64(PIECE as f64 / rate as f64);
    match timeout(limit, wire.flush()).await {
        Ok(result) => result,
        Err(_) => {
            Counters::add(&pages.counters.too_slow);
            wire.abort();
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

impl Wire {
    async fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        if buffer.capacity() == 0 {
            buffer.reserve(1 << 10);
        }
        match self {
            Self::Plain(stream, _) => stream.read_buf(buffer).await,
            Self::Tls(stream) => stream.read_buf(buffer).await,
        }
    }

    /// Takes bytes, to be written with the next flush.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(_, waiting) => waiting.extend_from_slice(bytes),
            Self::Tls(stream) => io::Write::write_all(&mut stream.get_mut().1.writer(), bytes)?,
        }
        Ok(())
    }

    /// Takes a piece of the ring: encrypted, or copied where nothing is encrypted. It was whole when this returns.
    fn put_ring(&mut self, piece: &ChunkRef) -> io::Result<()> {
        match self {
            Self::Tls(stream) => in_place::encrypt(stream.get_mut().1, piece),
            Self::Plain(_, waiting) => {
                let at = waiting.len();
                waiting.resize(at + piece.size(), 0);
                piece.copy_to(0, &mut waiting[at..]).map_err(io::Error::other)
            }
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream, waiting) => {
                stream.write_all(waiting).await?;
                waiting.clear();
                Ok(())
            }
            Self::Tls(stream) => stream.flush().await,
        }
    }

    async fn close(mut self) -> io::Result<()> {
        let shut = async {
            match &mut self {
                Self::Plain(stream, _) => stream.shutdown().await,
                Self::Tls(stream) => stream.shutdown().await,
            }
        };
        timeout(GRACE, shut).await.unwrap_or(Ok(()))
    }

    /// Closes the connection so that the client sees an error, and nothing of what is buffered.
    fn abort(&mut self) {
        let socket = match self {
            Self::Plain(stream, _) => stream,
            Self::Tls(stream) => stream.get_mut().0,
        };
        // If it fails, the client sees a response that is shorter than announced.
        let _ = socket.set_zero_linger();
    }
}

fn reason(status: u16) -> &'static str {
    hyper::StatusCode::from_u16(status).ok().and_then(|own| own.canonical_reason()).unwrap_or("")
}

/// Copies a piece of the ring for a protocol that needs bytes of its own.
pub(crate) fn copied(piece: &ChunkRef) -> io::Result<Bytes> {
    piece.to_vec().map(Bytes::from).map_err(io::Error::other)
}
