//! Exposes how this server reads a viewer's bytes, for tests and fuzzing.

use bytes::Bytes;
use rblive_media::hls::Directives;

use crate::answer::{Answer, Cache};
use crate::http1::{Head, parse};
use crate::live;

/// A request as the server understands it.
#[derive(Debug)]
pub struct Understood {
    /// The bytes of its head.
    pub bytes: usize,
    /// The path and the query.
    pub target: (String, String),
    /// The stream that the path names, and the only path below it that names the same resource.
    pub stream: Option<(String, String)>,
    /// The directives of a playlist.
    pub directives: Option<Directives>,
    /// The status for a body that is there, and the bytes of it that are sent.
    pub answer: (u16, Vec<u8>),
}

/// Reads a request over HTTP/1.1. None: it is refused, or not complete.
pub fn read(bytes: &[u8], body: &'static [u8]) -> Option<Understood> {
    let Head::Request { request, bytes, .. } = parse(bytes) else { return None };
    let stream = request.path.strip_prefix("/live/").and_then(live::parse);
    let stream = stream.map(|(name, target)| (name.to_owned(), format!("/live/{name}/{}", target.file())));
    let directives = Directives::parse(&request.query).ok();
    let answer = Answer { ranges: true, ..Answer::of(200, "video/mp4", Cache::No, Bytes::from_static(body)) };
    let answer = answer.for_request(&request);
    let sent = match answer.body {
        crate::answer::Body::Bytes(bytes) => bytes.to_vec(),
        crate::answer::Body::Ring(_) | crate::answer::Body::File(_) => Vec::new(),
    };
    Some(Understood {
        bytes,
        target: (request.path, request.query),
        stream,
        directives,
        answer: (answer.status, sent),
    })
}
