//! Requests and answers, independent of the version of HTTP.

use std::borrow::Cow;

use bytes::Bytes;
use rblive::ChunkRef;

use crate::file::FilePart;

/// The fields of a request that the pages use.
#[derive(Debug, Default, Clone)]
pub(crate) struct Request {
    pub path: String,
    pub query: String,
    pub if_none_match: Option<String>,
    pub range: Option<String>,
    pub if_range: Option<String>,
    /// The fields that a page of another site wants to send.
    pub asked_fields: Option<String>,
    /// The fields `X-Forwarded-For`.
    pub forwarded_for: Vec<Vec<u8>>,
    /// The offer of a viewer by WebRTC. No other request has a body.
    pub body: Bytes,
}

impl Request {
    /// A request for the path of an address, without escapes that mean nothing: `%61` is `a`.
    pub fn of(path: &str, query: &str) -> Self {
        Self { path: plain(path), query: query.to_owned(), ..Self::default() }
    }
}

/// The path with letters, digits and `-._~` instead of their escapes, which are the same (RFC 3986, 6.2.2.2).
fn plain(path: &str) -> String {
    let mut parts = path.split('%');
    let mut plain = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok());
        match code.filter(|code| code.is_ascii_alphanumeric() || b"-._~".contains(code)) {
            Some(code) => plain.extend([char::from(code)].into_iter().chain(part[2..].chars())),
            None => plain.extend(['%'].into_iter().chain(part.chars())),
        }
    }
    plain
}

/// How long an answer may be kept by caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Not at all: the content may change at any time.
    No,
    /// Seconds.
    For(u32),
    /// Forever: the address never has other bytes.
    Forever,
}

/// The body of an answer.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    Bytes(Bytes),
    /// Chunks in the memory of a ring, in this order.
    Ring(Vec<ChunkRef>),
    /// A part of a file.
    File(FilePart),
}

impl Body {
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Ring(chunks) => chunks.iter().map(ChunkRef::size).sum(),
            Self::File(part) => part.len(),
        }
    }
}

/// An answer to a request.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub status: u16,
    pub kind: &'static str,
    pub cache: Cache,
    pub etag: Option<String>,
    /// Fields that few answers have.
    pub more: Vec<(&'static str, String)>,
    pub ranges: bool,
    pub body: Body,
}

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

const METHODS: &str = "GET, HEAD, OPTIONS";

/// Where offers of WebRTC are answered.
const METHODS_OF_PEERS: &str = "POST, DELETE, OPTIONS";

/// The longest list of fields that is answered to a browser.
const MAX_ASKED: usize = 1024;

impl Answer {
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.push('\n');
        Self::of(status, TEXT, Cache::No, text.into_bytes())
    }

    pub fn of(status: u16, kind: &'static str, cache: Cache, body: impl Into<Bytes>) -> Self {
        let body = Body::Bytes(body.into());
        Self { status, kind, cache, etag: None, more: Vec::new(), ranges: false, body }
    }

    /// The answer to a browser that asks what a page of another site may do: all that viewers may, with any fields, as nothing here is
    /// decided by a field that only a certain site can send.
    pub fn methods(request: &Request, is_for_peers: bool) -> Self {
        let asked = request.asked_fields.clone().filter(|asked| asked.len() <= MAX_ASKED);
        let asked = asked.unwrap_or_else(|| "range, if-none-match".to_owned());
        let methods = if is_for_peers { METHODS_OF_PEERS } else { METHODS };
        let more = vec![
            ("allow", methods.to_owned()),
            ("access-control-allow-methods", methods.to_owned()),
            ("access-control-allow-headers", asked),
        ];
        Self { more, ..Self::of(204, "text/plain", Cache::No, "") }
    }

    /// The answer to a request with another method.
    pub fn not_allowed(is_for_peers: bool) -> Self {
        let (methods, text) = match is_for_peers {
            true => (METHODS_OF_PEERS, "viewers by WebRTC may POST an offer, and DELETE their session"),
            false => (METHODS, "viewers may GET, HEAD and OPTIONS"),
        };
        Self { more: vec![("allow", methods.to_owned())], ..Self::text(405, text) }
    }

    /// The way to the page of a stream.
    pub fn see(location: String) -> Self {
        Self { more: vec![("location", location)], ..Self::text(302, "the page plays the stream") }
    }

    /// The way to the same address at another node. It is asked for again each time, since that node may be gone then.
    pub fn moved(location: String) -> Self {
        Self { more: vec![("location", location)], ..Self::text(307, "another node has the stream") }
    }

    /// The header fields of the answer, but for those of the connection and the length.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        let fixed: &[(&'static str, &'static str)] = match self.status {
            204 => &[("access-control-max-age", "86400")],
            429 => &[("retry-after", "1")],
            503 => &[("retry-after", "2")],
            _ => &[],
        };
        let cache = match self.cache {
            Cache::No => "no-cache".into(),
            Cache::For(seconds) => format!("max-age={seconds}").into(),
            Cache::Forever => "max-age=3600, immutable".into(),
        };
        let always = [
            ("content-type", self.kind),
            ("access-control-allow-origin", "*"),
            ("access-control-expose-headers", "content-length, content-range, etag"),
            ("x-content-type-options", "nosniff"),
        ];
        let more = self.more.iter().map(|(name, value)| (*name, value.as_str()));
        let owned = self.etag.iter().map(|etag| ("etag", etag.as_str())).chain(more);
        let ranges = self.ranges.then_some(("accept-ranges", "bytes"));
        let all = always.into_iter().chain(fixed.iter().copied()).chain(owned).chain(ranges);
        all.map(|(name, value)| (name, Cow::Borrowed(value))).chain([("cache-control", cache)])
    }

    /// The answer to this request: 304 if the client has it, 206 for a range of it.
    pub fn for_request(mut self, request: &Request) -> Self {
        if self.status != 200 {
            return self;
        }
        let asked = request.if_none_match.as_deref().unwrap_or("");
        if let Some(etag) = &self.etag
            && asked.split(',').any(|own| own.trim() == "*" || own.trim().trim_start_matches("W/") == etag)
        {
            (self.status, self.body) = (304, Body::Bytes(Bytes::new()));
            return self;
        }
        // A range of something else, or of what cannot be compared, is of no use (RFC 9110, 13.1.5).
        let is_same = request.if_range.as_ref().is_none_or(|own| Some(own) == self.etag.as_ref());
        let Some(range) = request.range.as_deref().filter(|_| self.ranges && is_same) else { return self };
        let whole = self.body.len();
        match part_of(range, whole) {
            Asked::Everything => self,
            Asked::Part(from, to) => {
                self.status = 206;
                self.more.push(("content-range", format!("bytes {from}-{}/{whole}", to - 1)));
                self.body = cut(self.body, from, to);
                self
            }
            Asked::Nothing => {
                let mut answer = Self::text(416, format!("the segment has {whole} bytes"));
                answer.more.push(("content-range", format!("bytes */{whole}")));
                answer
            }
        }
    }
}

enum Asked {
    Everything,
    Part(usize, usize),
    Nothing,
}

/// Reads a `Range` field with one range. Any other field is ignored, as RFC 9110 has it (14.2).
fn part_of(range: &str, whole: usize) -> Asked {
    let Some((from, to)) = range.strip_prefix("bytes=").and_then(|own| own.split_once('-')) else {
        return Asked::Everything;
    };
    let number = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<usize>().ok()).flatten()
    };
    let (from, to) = match (from, number(from), to, number(to)) {
        ("", _, _, Some(last)) => (whole - last.min(whole), whole),
        (_, Some(from), "", _) => (from, whole),
        (_, Some(from), _, Some(to)) if from <= to => (from, to.saturating_add(1).min(whole)),
        _ => return Asked::Everything,
    };
    if from < to { Asked::Part(from, to) } else { Asked::Nothing }
}

fn cut(body: Body, from: usize, to: usize) -> Body {
    let chunks = match body {
        Body::Bytes(bytes) => return Body::Bytes(bytes.slice(from..to)),
        Body::File(part) => return Body::File(part.cut(from, to)),
        Body::Ring(chunks) => chunks,
    };
    let mut at = 0;
    let mut parts = Vec::new();
    for chunk in chunks {
        let (begin, end) = (from.max(at), to.min(at + chunk.size()));
        if begin < end {
            parts.push(chunk.part(begin - at..end - at));
        }
        at += chunk.size();
    }
    Body::Ring(parts)
}
