//! HTTP/1.1 for viewers: requests without bodies, and answers that go from the ring into TLS records.
//!
//! A library for HTTP takes bodies as plain slices, and writes them before it asks for more. Here a piece is encrypted, then checked,
//! and only then written, so that a viewer never gets bytes that were overwritten meanwhile, not even in a response that is cut.

use std::fmt::Write as _;
use std::io;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use locks::Mutex;
use rblive::ChunkRef;
use rblive_media::hls::decimal;
use rblive_webrtc::MAX_BYTES;
use tokio::time::timeout;

use crate::addresses::Place;
use crate::answer::{Answer, Body, Request};
use crate::counters::Counters;
use crate::file::FilePart;
use crate::link::{Link, PIECE};
use crate::pages::{Pages, Watching};
use crate::settings::GRACE;
use crate::webrtc::takes_body;

/// The largest head of a request.
const MAX_HEAD: usize = 16 << 10;

/// The most fields of a request.
const MAX_FIELDS: usize = 64;

/// Why a body is refused.
pub(crate) const NO_BODY: &str = "a viewer's request has no body, or it is an offer of at most 64 KiB";

/// A request that was read, or the answer to a request that is refused.
#[expect(
    clippy::large_enum_variant,
    reason = "a head is moved once, and a box would cost each request an allocation"
)]
pub(crate) enum Head {
    /// `body`: the bytes of the body that follows, which only offers of WebRTC have.
    Request {
        method: String,
        request: Request,
        keep: bool,
        bytes: usize,
        body: usize,
    },
    Refused(u16, &'static str),
    Partial,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(mut link: Link, pages: &Pages, place: Place) -> io::Result<()> {
    let watching = Mutex::new(Watching::of(place));
    let mut buffer = Vec::new();
    loop {
        let Some(head) = read_head(&mut link, &mut buffer, pages).await? else {
            return link.close(GRACE).await;
        };
        let (method, request, keep) = match head {
            Head::Request { body: 1.., .. } if pages.peers.is_none() => {
                refuse(&mut link, pages, 413, NO_BODY, &watching).await?;
                return link.close(GRACE).await;
            }
            Head::Request { method, mut request, keep, bytes, body } => {
                buffer.drain(..bytes);
                if !read_body(&mut link, &mut buffer, body, pages).await? {
                    return Ok(());
                }
                request.body = Bytes::from(buffer.drain(..body).collect::<Vec<_>>());
                buffer.shrink_to(MAX_HEAD);
                (method, request, keep)
            }
            Head::Refused(status, why) => {
                refuse(&mut link, pages, status, why, &watching).await?;
                return link.close(GRACE).await;
            }
            Head::Partial => return Ok(()),
        };
        let answer = pages.answer(&method, &request, &watching).await;
        send(&mut link, pages, &method, answer, keep, &watching).await?;
        if !keep {
            return link.close(GRACE).await;
        }
    }
}

async fn refuse(
    link: &mut Link,
    pages: &Pages,
    status: u16,
    why: &'static str,
    watching: &Mutex<Watching>,
) -> io::Result<()> {
    pages.counters.answered(status);
    send(link, pages, "GET", Answer::text(status, why), false, watching).await
}

/// Reads the next head. `None`: the client is gone, or silent for too long.
async fn read_head(link: &mut Link, buffer: &mut Vec<u8>, pages: &Pages) -> io::Result<Option<Head>> {
    if buffer.is_empty() && !matches!(timeout(pages.patience.idle, link.read(buffer)).await, Ok(Ok(1..))) {
        return Ok(None);
    }
    let whole = async {
        loop {
            match parse(buffer) {
                Head::Partial if buffer.len() >= MAX_HEAD => {
                    return Ok(Head::Refused(431, "the head of the request is too long"));
                }
                Head::Partial if link.read(buffer).await? == 0 => return Ok(Head::Partial),
                Head::Partial => {}
                head => return Ok(head),
            }
        }
    };
    match timeout(pages.patience.head, whole).await {
        Ok(head) => head.map(Some),
        Err(_) => Ok(Some(Head::Refused(408, "the request took too long"))),
    }
}

/// Reads a body into the buffer. False: the client is gone, or takes too long.
async fn read_body(link: &mut Link, buffer: &mut Vec<u8>, body: usize, pages: &Pages) -> io::Result<bool> {
    let whole = async {
        while buffer.len() < body {
            if link.read(buffer).await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    };
    timeout(pages.patience.head, whole).await.unwrap_or(Ok(false))
}

/// Reads the head of a request.
pub(crate) fn parse(buffer: &[u8]) -> Head {
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
    let fields = |name: &'static str| {
        let own = parsed.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        own.map(|field| field.value)
    };
    let all = |name| {
        fields(name).filter_map(|value| std::str::from_utf8(value).ok()).map(str::trim).collect::<Vec<_>>()
    };
    match (http11, all("host").len()) {
        (true, 1) | (false, 0 | 1) => {}
        _ => return Head::Refused(400, "the request needs one Host"),
    }
    let body = body_bytes(&all("content-length"));
    let has_coding = parsed.headers.iter().any(|field| field.name.eq_ignore_ascii_case("transfer-encoding"));
    let target = path_of(target);
    let (path, query) = target.map_or(("", ""), |own| own.split_once('?').unwrap_or((own, "")));
    let is_taken = |bytes: &usize| !has_coding && (*bytes == 0 || takes_body(method, path));
    let Some(body) = body.filter(is_taken) else {
        return Head::Refused(413, NO_BODY);
    };
    if target.is_none() {
        return Head::Refused(400, "the address must begin with /");
    }
    let connection = all("connection").join(",").to_ascii_lowercase();
    let says = |word: &str| connection.split(',').any(|own| own.trim() == word);
    let keep = if http11 { !says("close") } else { says("keep-alive") };
    let first = |name| all(name).first().map(|value| (*value).to_owned());
    let request = Request {
        if_none_match: first("if-none-match"),
        range: first("range"),
        if_range: first("if-range"),
        asked_fields: first("access-control-request-headers"),
        forwarded_for: fields("x-forwarded-for").map(<[u8]>::to_owned).collect(),
        ..Request::of(path, query)
    };
    Head::Request { method: method.to_owned(), request, keep, bytes, body }
}

/// The bytes of a body, as the fields about its length say. `None`: they say nothing that is taken.
fn body_bytes(lengths: &[&str]) -> Option<usize> {
    match lengths {
        [length] if *length != "0" => decimal(length).filter(|bytes| *bytes <= MAX_BYTES),
        all => all.iter().all(|length| *length == "0").then_some(0),
    }
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
    link: &mut Link,
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
    link.put(head.as_bytes())?;
    match answer.body {
        _ if method == "HEAD" || answer.status == 304 => {}
        Body::Bytes(bytes) => {
            for piece in bytes.chunks(PIECE) {
                link.put(piece)?;
                flush(link, pages).await?;
            }
        }
        Body::Ring(chunks) => send_chunks(link, pages, &chunks, watching).await?,
        Body::File(part) => send_file(link, pages, part).await?,
    }
    flush(link, pages).await
}

/// Sends memory of rings. The bytes of a piece are written together, also from several chunks.
async fn send_chunks(
    link: &mut Link,
    pages: &Pages,
    chunks: &[ChunkRef],
    watching: &Mutex<Watching>,
) -> io::Result<()> {
    let mut room = PIECE;
    for chunk in chunks {
        let mut at = 0;
        while at < chunk.size() {
            let to = chunk.size().min(at + room);
            if let Err(error) = link.put_ring(&chunk.part(at..to)) {
                Counters::add(&pages.counters.overtaken);
                link.abort();
                return Err(error);
            }
            room -= to - at;
            if room == 0 {
                flush(link, pages).await?;
                tokio::task::coop::consume_budget().await;
                room = PIECE;
            }
            pages.counters.media_bytes.fetch_add((to - at) as u64, Ordering::Relaxed);
            at = to;
        }
        watching.lock().sent(chunk.size());
    }
    Ok(())
}

/// Sends a part of a file. After an error the client gets less than was announced.
async fn send_file(link: &mut Link, pages: &Pages, mut part: FilePart) -> io::Result<()> {
    let mut piece = vec![0; PIECE.min(part.len())];
    loop {
        match part.read(&mut piece).await {
            Ok(0) => return Ok(()),
            Ok(count) => {
                link.put(&piece[..count])?;
                flush(link, pages).await?;
                tokio::task::coop::consume_budget().await;
                pages.counters.media_bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
            Err(error) => {
                link.abort();
                return Err(error);
            }
        }
    }
}

/// Writes the buffered bytes, within the time that a viewer has for them.
async fn flush(link: &mut Link, pages: &Pages) -> io::Result<()> {
    let limit = pages.settings.time_for(PIECE);
    let result = link.flush(limit).await;
    if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut) {
        Counters::add(&pages.counters.too_slow);
        link.abort();
    }
    result
}

fn reason(status: u16) -> &'static str {
    hyper::StatusCode::from_u16(status).ok().and_then(|own| own.canonical_reason()).unwrap_or("")
}
