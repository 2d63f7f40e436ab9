//! HTTP PUT and POST: files as ffmpeg's HLS output sends them, and chunks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep_until, timeout};

use crate::registry::{IngestCounters, Publisher, Refusal, Registry};
use crate::stream::StreamFailure;

/// The longest playlist that is taken.
const MAX_PLAYLIST: usize = 1 << 20;

type Answer = Response<Full<Bytes>>;

/// Streams that are published by requests. Requests of one stream are taken one after the other.
pub(crate) struct HttpStreams {
    registry: Arc<Registry>,
    open: Mutex<HashMap<String, Arc<AsyncMutex<Files>>>>,
}

/// The files of a stream.
struct Files {
    publisher: Publisher,
    last_name: String,
    touched: Instant,
}

/// What a body is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Playlist,
    Ts,
    Mp4,
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum RequestFailure {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Stream(#[from] StreamFailure),
    #[error("the body has more than {0} bytes, the most that limits.body_bytes allows")]
    TooLarge(usize),
    #[error("the body stopped for longer than limits.idle_ms")]
    Slow,
    #[error("the body broke off")]
    Broken,
    #[error("the body is no MPEG transport stream, MP4 or playlist")]
    Format,
    #[error("another publisher has taken the stream")]
    Replaced,
}

impl RequestFailure {
    fn status(&self) -> StatusCode {
        match self {
            Self::Refused(Refusal::Key) => StatusCode::UNAUTHORIZED,
            Self::Refused(Refusal::Name) => StatusCode::NOT_FOUND,
            Self::Refused(Refusal::Busy) | Self::Replaced => StatusCode::CONFLICT,
            Self::Refused(Refusal::Stream(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Stream(_) | Self::Format | Self::Broken => StatusCode::BAD_REQUEST,
        }
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve<S>(socket: S, streams: Arc<HttpStreams>) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let idle = Duration::from_millis(streams.registry.settings.limits.idle_ms);
    let service = service_fn(move |request| {
        let streams = streams.clone();
        async move { Ok::<_, std::convert::Infallible>(whole(streams, request).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    // ffmpeg closes a connection right after its body, and waits for no answer.
    http.half_close(true).timer(TokioTimer::new()).header_read_timeout(idle);
    http.serve_connection(TokioIo::new(socket), service).await
}

/// Answers in a task of its own: what has arrived of a body is taken, also if the connection is closed meanwhile.
async fn whole(streams: Arc<HttpStreams>, request: Request<Incoming>) -> Answer {
    let answered = tokio::spawn(async move { streams.answer(request).await }).await;
    answered
        .unwrap_or_else(|_| answer(StatusCode::INTERNAL_SERVER_ERROR, "the server has an error; see its log"))
}

fn answer(status: StatusCode, text: &str) -> Answer {
    let body = if text.is_empty() { String::new() } else { format!("{text}\n") };
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let plain = hyper::header::HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    if status == StatusCode::UNAUTHORIZED {
        let scheme = hyper::header::HeaderValue::from_static("Basic realm=\"rblive\"");
        answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    answer
}

/// The stream and the file of `/live/STREAM/FILE`, or of `/live/STREAM` for POST.
fn place<'a>(method: &Method, path: &'a str) -> Option<(&'a str, &'a str)> {
    let rest = path.strip_prefix("/live/")?;
    if method == Method::POST {
        return Some((rest.trim_end_matches('/'), ""));
    }
    rest.rsplit_once('/').filter(|(stream, file)| !stream.is_empty() && !file.is_empty())
}

/// The key of a request: `?key=KEY`, `Authorization: Bearer KEY`, or the password of `Authorization: Basic`.
fn key(request: &Request<Incoming>) -> Option<String> {
    if let Some(key) = crate::query::value(request.uri().query().unwrap_or(""), "key") {
        return Some(key.to_owned());
    }
    let header = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    if let Some(key) = header.strip_prefix("Bearer ") {
        return Some(key.to_owned());
    }
    let decoded = base64(header.strip_prefix("Basic ")?.as_bytes())?;
    let text = String::from_utf8(decoded).ok()?;
    text.split_once(':').map(|(_, password)| password.to_owned())
}

/// Decodes base64 with or without padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for &character in text.iter().filter(|character| **character != b'=') {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

impl HttpStreams {
    pub(crate) fn new(registry: Arc<Registry>) -> Arc<Self> {
        Arc::new(Self { registry, open: Mutex::default() })
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        if !matches!(method, Method::PUT | Method::POST | Method::DELETE) {
            return answer(StatusCode::METHOD_NOT_ALLOWED, "PUT, POST and DELETE are answered here");
        }
        let Some((stream, file)) = place(&method, &path) else {
            return answer(StatusCode::NOT_FOUND, "streams are at /live/STREAM/FILE");
        };
        match self.request(request, &method, stream, file).await {
            Ok(()) => answer(StatusCode::CREATED, ""),
            Err(failure) => {
                let status = failure.status();
                if !matches!(failure, RequestFailure::Refused(_)) {
                    IngestCounters::count(&self.registry.counters.failed, 1);
                }
                tracing::warn!(stream, file, %status, "a request was refused: {failure}");
                answer(status, &failure.to_string())
            }
        }
    }

    async fn request(
        self: &Arc<Self>,
        request: Request<Incoming>,
        method: &Method,
        stream: &str,
        file: &str,
    ) -> Result<(), RequestFailure> {
        let key = key(&request);
        if method == Method::DELETE {
            // Old segments leave the stream's buffer by themselves. The key is checked all the same.
            let known = self.registry.settings.opens(stream, key.as_deref());
            return if known { Ok(()) } else { Err(Refusal::Key.into()) };
        }
        let limits = &self.registry.settings.limits;
        let length =
            request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > limits.body_bytes as u64) {
            return Err(RequestFailure::TooLarge(limits.body_bytes));
        }
        if file.ends_with(".m3u8") {
            if !self.registry.settings.opens(stream, key.as_deref()) {
                return Err(Refusal::Key.into());
            }
            return self.body(request, None).await;
        }
        let files = self.files(stream, key.as_deref())?;
        let mut files = files.lock().await;
        files.touched = Instant::now();
        if !file.is_empty() && files.last_name == file && !file.contains("init") {
            // The encoder repeats a request whose answer it did not get.
            return self.body(request, None).await;
        }
        let taken = self.body(request, Some(&files.publisher)).await;
        files.touched = Instant::now();
        file.clone_into(&mut files.last_name);
        taken
    }

    /// The publisher of a stream. The first request begins to publish.
    fn files(
        self: &Arc<Self>,
        stream: &str,
        key: Option<&str>,
    ) -> Result<Arc<AsyncMutex<Files>>, RequestFailure> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = open.get(stream) {
            if !self.registry.settings.opens(stream, key) {
                return Err(Refusal::Key.into());
            }
            return Ok(files.clone());
        }
        let publisher = self.registry.publish(stream, key)?;
        tracing::info!(stream, "an encoder publishes by HTTP");
        let files = Files { publisher, last_name: String::new(), touched: Instant::now() };
        let files = Arc::new(AsyncMutex::new(files));
        open.insert(stream.to_owned(), files.clone());
        tokio::spawn(expire(Arc::downgrade(self), stream.to_owned(), files.clone()));
        Ok(files)
    }

    /// Reads a body, and gives it to the publisher. A transport stream is passed on as it arrives.
    async fn body(
        &self,
        request: Request<Incoming>,
        publisher: Option<&Publisher>,
    ) -> Result<(), RequestFailure> {
        let limits = &self.registry.settings.limits;
        let max = if publisher.is_some() { limits.body_bytes } else { MAX_PLAYLIST.max(limits.body_bytes) };
        let mut body = request.into_body();
        let (mut total, mut format, mut kept) = (0, None, BytesMut::new());
        loop {
            let frame = timeout(Duration::from_millis(limits.idle_ms), body.frame()).await;
            let Some(frame) = frame.map_err(|_| RequestFailure::Slow)? else { break };
            let Ok(data) = frame.map_err(|_| RequestFailure::Broken)?.into_data() else { continue };
            total += data.len();
            if total > max {
                return Err(RequestFailure::TooLarge(max));
            }
            IngestCounters::count(&self.registry.counters.bytes, data.len() as u64);
            let Some(publisher) = publisher else { continue };
            if format == Some(Format::Ts) {
                publisher.with(|stream| stream.push_ts(&data)).ok_or(RequestFailure::Replaced)??;
                continue;
            }
            kept.extend_from_slice(&data);
            if format.is_none() && kept.len() >= 8 {
                format = Some(self::format(&kept).ok_or(RequestFailure::Format)?);
                if format == Some(Format::Ts) {
                    let begin = kept.split();
                    publisher.with(|stream| stream.push_ts(&begin)).ok_or(RequestFailure::Replaced)??;
                }
            }
        }
        let Some(publisher) = publisher else { return Ok(()) };
        match format {
            Some(Format::Playlist) => Ok(()),
            Some(Format::Ts) => {
                Ok(publisher.with(|stream| stream.end_of_ts()).ok_or(RequestFailure::Replaced)??)
            }
            Some(Format::Mp4) => Ok(publisher
                .with(|stream| stream.push_mp4(kept.freeze()))
                .ok_or(RequestFailure::Replaced)??),
            None => Err(RequestFailure::Format),
        }
    }
}

fn format(head: &[u8]) -> Option<Format> {
    match head {
        [0x47, ..] => Some(Format::Ts),
        [b'#', b'E', b'X', b'T', ..] => Some(Format::Playlist),
        [_, _, _, _, kind @ ..]
            if [b"ftyp", b"styp", b"moov", b"moof", b"sidx", b"free", b"prft"]
                .iter()
                .any(|known| kind.starts_with(&known[..])) =>
        {
            Some(Format::Mp4)
        }
        _ => None,
    }
}

/// Ends the publishing of a stream once there were no requests for `idle_ms`.
async fn expire(streams: Weak<HttpStreams>, name: String, files: Arc<AsyncMutex<Files>>) {
    loop {
        let touched = files.lock().await.touched;
        let Some(streams) = streams.upgrade() else { return };
        let until = touched + Duration::from_millis(streams.registry.settings.limits.idle_ms);
        if until <= Instant::now() {
            tracing::info!(stream = name, "the encoder sends no more requests");
            streams.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            return;
        }
        drop(streams);
        sleep_until(until).await;
    }
}
