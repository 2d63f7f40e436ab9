//! HTTP PUT and POST: files as ffmpeg's HLS output sends them, and chunks.
//!
//! The files of a stream are written one after the other. The client that began to publish writes as it sends, so that viewers get the
//! parts of a file before its end. A client that is slow holds nobody up:
//!
//! ```text
//!   the own client   sends ████████████  writes as it sends; what it sends while another file is written is kept until then
//!   another client   sends ████████ all of it is kept, then ▌ is written at once
//! ```
//!
//! The own client and the others have one file each that is kept. Where the memory for it ends, the own client is read no further until its
//! turn, and another client is refused.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use data_encoding::BASE64_NOPAD;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use locks::{Mutex, MutexGuard};
use peers::{BrowserFields, ForeignPage, Place, Proxies};
use rblive::ChunkError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use crate::access::{Claim, Refusal};
use crate::counters::IngestCounters;
use crate::master::{self, MasterError};
use crate::output::OutputError;
use crate::rate::Rate;
use crate::registry::{Gone, Publisher, Registry};
use crate::stream::StreamFailure;
use crate::upload::{LastFile, MAX_PLAYLIST, Upload, UploadFailure};

type Answer = Response<Full<Bytes>>;

/// The largest head of a request in bytes, and what a connection buffers of a body.
const HEAD_BYTES: usize = 16 << 10;
/// The beginning of a field with a key. A browser adds no such field by itself, as it does a password (`Basic`).
const BEARER: &[u8] = b"Bearer ";
/// The size of the pieces in which a body is kept.
const PIECE_BYTES: usize = HEAD_BYTES;
/// The largest bodies that are kept at once until they can be written.
const KEPT_BODIES: usize = 2;
/// How long an upload may stand still while another file of the same client waits. Not so short that a lost packet is no progress.
const PATIENCE: Duration = Duration::from_secs(1);

/// Streams that are published by requests.
pub(crate) struct HttpStreams {
    registry: Arc<Registry>,
    proxies: Proxies,
    open: Mutex<HashMap<String, Arc<Slot>>>,
    /// The bytes that are free for bodies that cannot be written yet.
    room: Arc<Semaphore>,
}

/// A stream that is published by requests.
#[derive(Default)]
struct Slot {
    /// `None` before the publisher is accepted, and after it has left. Whoever writes holds it, and the own client while it sends.
    files: Arc<AsyncMutex<Option<Files>>>,
    /// Held by the other client and by the own one whose body is kept.
    keeps: [AsyncMutex<()>; 2],
    /// `None` before the publisher is accepted.
    clients: Mutex<Option<Clients>>,
    /// The bytes that were written.
    written: AtomicU64,
    /// Ends an upload that stands still.
    hurry: Notify,
    /// Tells that a publisher was accepted.
    begun: Notify,
}

/// The clients that write to a stream.
struct Clients {
    /// The name of the stream.
    name: String,
    /// The client whose files are written as they come: the one that began to publish, or the one that goes on without it.
    own: Claim,
    /// When that one has last sent something.
    at: Instant,
    /// The client that the hook allowed last.
    allowed: Claim,
}

/// The files of a stream.
struct Files {
    publisher: Publisher,
    last: Option<LastFile>,
    rate: Rate,
    touched: Instant,
}

/// A body of a request, which has limits.
struct Body<'a> {
    body: Incoming,
    most: usize,
    bytes: usize,
    idle: Duration,
    counters: &'a IngestCounters,
    /// The connection.
    peer: &'a Place,
    /// What came before it could be written, and its memory.
    kept: Kept,
    room: Option<OwnedSemaphorePermit>,
    is_whole: bool,
}

/// Bytes that are kept, in pieces of one size: a buffer that grows may take twice what is in it, and for a moment three times.
#[derive(Default)]
struct Kept {
    pieces: VecDeque<BytesMut>,
    bytes: usize,
}

impl Kept {
    /// Copies bytes: a small piece would hold the buffer in which it came.
    fn push(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len();
        while !bytes.is_empty() {
            let free = |piece: &BytesMut| PIECE_BYTES - piece.len();
            if self.pieces.back().is_none_or(|last| free(last) == 0) {
                self.pieces.push_back(BytesMut::with_capacity(PIECE_BYTES));
            }
            let Some(last) = self.pieces.back_mut() else { return };
            let (now, rest) = bytes.split_at(bytes.len().min(free(last)));
            last.extend_from_slice(now);
            bytes = rest;
        }
    }

    /// Takes the first piece.
    fn pop(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop_front()?.freeze();
        self.bytes -= piece.len();
        Some(piece)
    }
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum RequestFailure {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Page(#[from] ForeignPage),
    #[error(transparent)]
    Upload(#[from] UploadFailure),
    #[error(transparent)]
    Master(#[from] MasterError),
    #[error("the body has more than {0} bytes, the most of a playlist or of limits.body_bytes")]
    TooLarge(usize),
    #[error("the encoder sends more than limits.bytes_per_second = {0}")]
    Rate(u64),
    #[error("the body stopped for longer than limits.idle_ms")]
    Slow,
    #[error("the body broke off")]
    Broken,
    #[error("the body stood still, and the next file of the encoder waits for it")]
    HoldsUp,
    #[error("too many files wait for others of their streams; send this one again")]
    NoRoom,
}

impl RequestFailure {
    fn status(&self) -> StatusCode {
        match self {
            Self::Refused(Refusal::Key) => StatusCode::UNAUTHORIZED,
            Self::Refused(Refusal::Hook(_) | Refusal::Ended)
            | Self::Upload(UploadFailure::Gone(Gone::Ended))
            | Self::Page(_) => StatusCode::FORBIDDEN,
            Self::Refused(Refusal::Attempts) => StatusCode::TOO_MANY_REQUESTS,
            Self::Refused(Refusal::Name) => StatusCode::NOT_FOUND,
            Self::Refused(Refusal::Busy | Refusal::Ladder(_) | Refusal::Foreign(_))
            | Self::Upload(UploadFailure::Gone(Gone::Replaced)) => StatusCode::CONFLICT,
            Self::TooLarge(_)
            | Self::Upload(UploadFailure::Playlist | UploadFailure::Stream(StreamFailure::TooLarge { .. }))
            | Self::Upload(UploadFailure::Stream(StreamFailure::Output(OutputError::Chunk(
                ChunkError::TooLarge { .. },
            )))) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Refused(Refusal::Stream(_) | Refusal::NoHook)
            | Self::Upload(UploadFailure::Stream(StreamFailure::Output(OutputError::Chunk(_)))) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Upload(UploadFailure::Stream(
                StreamFailure::OnlyTs | StreamFailure::Apart | StreamFailure::Several,
            )) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Rate(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Slow | Self::HoldsUp => StatusCode::REQUEST_TIMEOUT,
            Self::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
            Self::Upload(_) | Self::Master(_) | Self::Broken => StatusCode::BAD_REQUEST,
        }
    }
}

/// Serves a connection until it ends. An encoder that does not read the answers to its pushes is no failure: ffmpeg never waits for
/// an answer.
pub(crate) async fn serve<S>(
    socket: S,
    address: IpAddr,
    streams: Arc<HttpStreams>,
    place: Arc<Place>,
) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let idle = Duration::from_millis(streams.registry.settings.limits.idle_ms);
    let has_answered = Arc::new(AtomicBool::new(false));
    let answered = has_answered.clone();
    let service = service_fn(move |request| {
        let (streams, answered, place) = (streams.clone(), answered.clone(), place.clone());
        async move {
            answered.store(false, Ordering::Relaxed);
            let answer = whole(streams, address, request, place).await;
            answered.store(true, Ordering::Relaxed);
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    // ffmpeg closes a connection right after its body, and waits for no answer.
    http.half_close(true).timer(TokioTimer::new()).header_read_timeout(idle).max_buf_size(HEAD_BYTES);
    let ended = http.serve_connection(TokioIo::new(socket), service).await;
    let is_left = |error: &hyper::Error| {
        let of_request = error.is_parse() || error.is_incomplete_message() || error.is_timeout();
        has_answered.load(Ordering::Relaxed) && !of_request
    };
    match ended {
        Err(error) if is_left(&error) => {
            tracing::debug!(%address, "an encoder did not wait for its answer: {error}");
            Ok(())
        }
        ended => ended,
    }
}

/// Answers in a task of its own, so that the received bytes of a body are used even if the connection is closed meanwhile.
async fn whole(
    streams: Arc<HttpStreams>,
    address: IpAddr,
    request: Request<Incoming>,
    place: Arc<Place>,
) -> Answer {
    let answered = tokio::spawn(async move { streams.answer(request, address, &place).await }).await;
    answered
        .unwrap_or_else(|_| answer(StatusCode::INTERNAL_SERVER_ERROR, "the server has an error; see its log"))
}

fn answer(status: StatusCode, text: &str) -> Answer {
    let body = if text.is_empty() { String::new() } else { format!("{text}\n") };
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Basic realm=\"rblive\"");
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

/// The proof that a request shows: `?key=KEY`, `Authorization: Bearer KEY`, or user and password of `Authorization: Basic`.
fn claim(request: &Request<Incoming>, address: IpAddr) -> Claim {
    let (user, key) = shown(request).unwrap_or_default();
    Claim { user, key, is_user: false, address, protocol: "http" }
}

fn shown(request: &Request<Incoming>) -> Option<(Option<String>, Option<String>)> {
    if let Some(key) = crate::query::value(request.uri().query().unwrap_or(""), "key") {
        return Some((None, Some(key)));
    }
    let header = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    if let Some(key) = header.strip_prefix("Bearer ") {
        return Some((None, Some(key.to_owned())));
    }
    // Some clients leave the padding out.
    let encoded = header.strip_prefix("Basic ")?.trim_end_matches('=');
    let decoded = BASE64_NOPAD.decode(encoded.as_bytes()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((Some(user.to_owned()).filter(|user| !user.is_empty()), Some(password.to_owned())))
}

impl HttpStreams {
    pub(crate) fn new(registry: Arc<Registry>, proxies: Proxies) -> Arc<Self> {
        let most = registry.settings.limits.body_bytes.saturating_mul(KEPT_BODIES);
        let room = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { registry, proxies, open: Mutex::default(), room })
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>, address: IpAddr, peer: &Place) -> Answer {
        let address = self.proxies.client(address, request.headers().get_all("x-forwarded-for"));
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        if !matches!(method, Method::PUT | Method::POST | Method::DELETE) {
            return answer(StatusCode::METHOD_NOT_ALLOWED, "PUT, POST and DELETE are answered here");
        }
        let Some((stream, file)) = place(&method, &path) else {
            return answer(StatusCode::NOT_FOUND, "streams are at /live/STREAM/FILE");
        };
        let claim = claim(&request, address);
        match self.request(request, &claim, stream, file, peer).await {
            Ok(()) => answer(StatusCode::CREATED, ""),
            Err(failure) => {
                let status = failure.status();
                let reason = format!("{}: {failure}", text::short(stream));
                self.registry.counters.failures.note(address, "http", &reason);
                let log = |more| {
                    let (stream, file) = (text::short(stream), text::short(file));
                    tracing::warn!(%stream, %file, %address, %status, more, "a request was refused: {failure}");
                };
                match failure {
                    RequestFailure::Refused(_) | RequestFailure::Page(_) => {
                        self.registry.count_refusal();
                        self.registry.line(peer, log);
                    }
                    _ => self.registry.failed(peer, log),
                }
                answer(status, &failure.to_string())
            }
        }
    }

    async fn request(
        self: &Arc<Self>,
        request: Request<Incoming>,
        claim: &Claim,
        stream: &str,
        file: &str,
        peer: &Place,
    ) -> Result<(), RequestFailure> {
        self.check_page(&request)?;
        let access = &self.registry.access;
        if request.method() == Method::DELETE {
            // Old segments leave the stream's buffer by themselves. The key is checked all the same.
            access.check(stream, claim).await?;
            peer.known();
            return Ok(());
        }
        let playlist = file.ends_with(".m3u8");
        let mut body = self.body(request, playlist, peer)?;
        if playlist {
            access.check(stream, claim).await?;
            peer.known();
            return self.playlist(stream, claim, body).await;
        }
        let (slot, mut held) = self.files(stream, claim, &mut body).await?;
        let Some(files) = held.as_mut() else { return Err(RequestFailure::Broken) };
        if files.publisher.is_gone() {
            let publisher = self.registry.publish_again(stream, claim).await?;
            slot.begin(&publisher, claim);
            (files.publisher, files.last) = (publisher, None);
        }
        files.touched = Instant::now();
        if slot.writes(claim, body.idle) {
            files.publisher.renew(claim);
        }
        let taken = self.upload(&slot, files, file, body).await;
        files.touched = Instant::now();
        slot.writes(claim, Duration::MAX);
        taken
    }

    /// Refuses what a browser sends for a page of another web site. Encoders are no browsers, and their addresses may have any name. Behind a
    /// proxy the own page may seem foreign; one that shows a key in a field is none, since a browser asks before it sends that elsewhere, and
    /// is refused then.
    fn check_page(&self, request: &Request<Incoming>) -> Result<(), ForeignPage> {
        let Registry { settings, access, .. } = &*self.registry;
        let fields = BrowserFields::of(|name| request.headers().get(name).map(HeaderValue::as_bytes));
        let shown = request.headers().get(AUTHORIZATION);
        let shows_key = !access.is_open() && shown.is_some_and(|own| own.as_bytes().starts_with(BEARER));
        if !shows_key {
            fields.check_site()?;
        }
        match fields.is_of_page() && access.is_open() {
            true => fields.check_name([settings.http.as_str(), settings.https.as_str()], "set ingest.keys"),
            false => Ok(()),
        }
    }

    /// Receives a playlist. A media playlist has nothing that its segments lack; a multivariant playlist names renditions.
    async fn playlist(&self, stream: &str, claim: &Claim, mut body: Body<'_>) -> Result<(), RequestFailure> {
        let mut text = Vec::new();
        while let Some(bytes) = body.next().await? {
            text.extend_from_slice(&bytes);
        }
        let renditions = master::renditions(stream, &String::from_utf8_lossy(&text))?;
        if !renditions.is_empty() {
            self.registry.declare(stream, &renditions, claim).await?;
        }
        Ok(())
    }

    /// The files of a stream, with its publisher. The first request begins to publish; others wait for it. The right of each client is
    /// decided while the stream is not locked, so that clients without the right do not delay the publisher.
    async fn files(
        self: &Arc<Self>,
        stream: &str,
        claim: &Claim,
        body: &mut Body<'_>,
    ) -> Result<(Arc<Slot>, OwnedMutexGuard<Option<Files>>), RequestFailure> {
        let access = &self.registry.access;
        access.check(stream, claim).await?;
        body.peer.known();
        loop {
            let slot = self.lock().entry(stream.to_owned()).or_default().clone();
            let Some(mut held) = self.turn(&slot, stream, claim, body).await? else { continue };
            if !self.lock().get(stream).is_some_and(|current| Arc::ptr_eq(current, &slot)) {
                // The publisher has left meanwhile.
                continue;
            }
            if held.is_some() {
                return Ok((slot, held));
            }
            let publisher = match self.registry.publish(stream, claim).await {
                Ok(publisher) => publisher,
                Err(refusal) => {
                    self.lock().remove(stream);
                    return Err(refusal.into());
                }
            };
            tracing::info!(stream = publisher.name, "an encoder publishes by HTTP");
            slot.begin(&publisher, claim);
            let rate = Rate::new(self.registry.settings.limits.bytes_per_second);
            *held = Some(Files { publisher, last: None, rate, touched: Instant::now() });
            tokio::spawn(expire(Arc::downgrade(self), stream.to_owned(), slot.clone()));
            return Ok((slot, held));
        }
    }

    /// Waits for the turn of a client. `None`: another one has begun to publish meanwhile.
    async fn turn(
        &self,
        slot: &Slot,
        stream: &str,
        claim: &Claim,
        body: &mut Body<'_>,
    ) -> Result<Option<OwnedMutexGuard<Option<Files>>>, RequestFailure> {
        let mut begun = pin!(slot.begun.notified());
        begun.as_mut().enable();
        let Some(is_own) = slot.is_own(claim) else {
            // Nothing is kept of clients that the hook may refuse.
            let first = first_of(slot.files.clone().lock_owned(), begun).await;
            return Ok(first.ok().filter(|held| held.is_none()));
        };
        self.ask(slot, stream, claim).await?;
        self.wait(slot, is_own, body).await.map(Some)
    }

    /// Asks the hook about a client that is not the one that it allowed last.
    async fn ask(&self, slot: &Slot, stream: &str, claim: &Claim) -> Result<(), Refusal> {
        let access = &self.registry.access;
        let is_allowed = |own: &Option<Clients>| own.as_ref().is_none_or(|own| own.allowed.is_same(claim));
        if !access.asks_for_each() || is_allowed(&slot.clients.lock()) {
            return Ok(());
        }
        let name = access.ask(stream, claim).await?;
        match slot.clients.lock().as_mut() {
            Some(own) if own.name == name => own.allowed = claim.clone(),
            Some(_) => return Err(Refusal::Busy),
            None => {}
        }
        Ok(())
    }

    /// Waits until a client may write. What it sends meanwhile is kept; another client than the stream's own one has sent its whole file
    /// before it writes.
    async fn wait(
        &self,
        slot: &Slot,
        is_own: bool,
        body: &mut Body<'_>,
    ) -> Result<OwnedMutexGuard<Option<Files>>, RequestFailure> {
        let (mut turn, keeps) =
            (pin!(slot.files.clone().lock_owned()), slot.keeps[usize::from(is_own)].lock());
        if !is_own {
            let _keeps = timeout(body.idle, keeps).await.map_err(|_| Refusal::Busy)?;
            if !body.keep(&self.room).await? {
                return Err(RequestFailure::NoRoom);
            }
            // The own client may send one file for as long as it likes.
            return timeout(body.idle, turn).await.map_err(|_| Refusal::Busy.into());
        }
        let _keeps = match first_of(&mut turn, keeps).await {
            Ok(held) => return Ok(held),
            Err(keeps) => keeps,
        };
        match first_of(&mut turn, body.keep(&self.room)).await {
            Ok(held) => return Ok(held),
            Err(kept) => _ = kept?,
        }
        loop {
            let before = slot.written.load(Ordering::Relaxed);
            if let Ok(held) = timeout(PATIENCE, &mut turn).await {
                return Ok(held);
            }
            if slot.written.load(Ordering::Relaxed) == before {
                slot.hurry.notify_waiters();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Slot>>> {
        self.open.lock()
    }

    /// The body of a request, if it does not announce more than it may have.
    fn body<'a>(
        &'a self,
        request: Request<Incoming>,
        playlist: bool,
        peer: &'a Place,
    ) -> Result<Body<'a>, RequestFailure> {
        let limits = &self.registry.settings.limits;
        let most = if playlist { MAX_PLAYLIST.min(limits.body_bytes) } else { limits.body_bytes };
        let length = request.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > most as u64) {
            return Err(RequestFailure::TooLarge(most));
        }
        let idle = Duration::from_millis(limits.idle_ms);
        let (body, counters) = (request.into_body(), &*self.registry.counters);
        let (kept, room) = (Kept::default(), None);
        Ok(Body { body, most, bytes: 0, idle, counters, peer, kept, room, is_whole: false })
    }

    /// Receives a file. A transport stream is read as it arrives.
    async fn upload(
        &self,
        slot: &Slot,
        files: &mut Files,
        name: &str,
        mut body: Body<'_>,
    ) -> Result<(), RequestFailure> {
        let Files { publisher, last, rate, .. } = files;
        let mut upload = Upload::begin(publisher, name, last.take())?;
        let mut hurry = pin!(slot.hurry.notified());
        hurry.as_mut().enable();
        let taken = async {
            loop {
                let next = first_of(body.next(), hurry.as_mut()).await;
                let Some(data) = next.map_err(|()| RequestFailure::HoldsUp)?? else { break };
                slot.written.fetch_add(data.len() as u64, Ordering::Relaxed);
                if !rate.allows(data.len()) {
                    return Err(RequestFailure::Rate(self.registry.settings.limits.bytes_per_second));
                }
                upload.push(&data)?;
            }
            Ok(upload.end()?)
        };
        let taken = taken.await;
        let stream_failed = matches!(taken, Err(RequestFailure::Upload(UploadFailure::Stream(_))));
        *last = upload.last(taken.is_ok(), stream_failed);
        taken
    }
}

/// Waits for one of two futures, and asks `one` first.
async fn first_of<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> Result<A, B> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => other.as_mut().poll(context).map(Err),
    })
    .await
}

impl Slot {
    /// Whether the files of a client are written as they come. `None`: nobody publishes.
    fn is_own(&self, claim: &Claim) -> Option<bool> {
        self.clients.lock().as_ref().map(|clients| clients.own.is_same(claim))
    }

    /// A client has begun to publish.
    fn begin(&self, publisher: &Publisher, claim: &Claim) {
        let (name, at) = (publisher.name.clone(), Instant::now());
        *self.clients.lock() = Some(Clients { name, own: claim.clone(), at, allowed: claim.clone() });
        self.begun.notify_waiters();
    }

    /// A client writes. It takes the place of the own one that has sent nothing for so long: its address may have changed. Returns whether
    /// the client is the own one then.
    fn writes(&self, claim: &Claim, silence: Duration) -> bool {
        let mut clients = self.clients.lock();
        let Some(clients) = clients.as_mut() else { return false };
        let is_own = clients.own.is_same(claim) || clients.at.elapsed() > silence;
        if is_own {
            (clients.own, clients.at) = (claim.clone(), Instant::now());
        }
        is_own
    }
}

impl Body<'_> {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, RequestFailure> {
        if let Some(piece) = self.kept.pop() {
            return Ok(Some(piece));
        }
        (self.kept, self.room) = (Kept::default(), None);
        if self.is_whole { Ok(None) } else { self.receive().await }
    }

    /// Receives bytes and keeps them, to the end of the body or of its memory. Returns whether the body is whole. No body takes more memory
    /// than it leaves to the others, so that there is always some.
    async fn keep(&mut self, room: &Arc<Semaphore>) -> Result<bool, RequestFailure> {
        while !self.is_whole && self.kept.bytes <= room.available_permits() {
            let Some(bytes) = self.receive().await? else {
                self.is_whole = true;
                break;
            };
            // Kept in any case, since it is received: no more than a connection buffers.
            self.kept.push(&bytes);
            self.is_whole = self.body.is_end_stream();
            let size = bytes.len().try_into().unwrap_or(u32::MAX);
            let Ok(taken) = room.clone().try_acquire_many_owned(size) else { break };
            match &mut self.room {
                Some(own) => own.merge(taken),
                None => self.room = Some(taken),
            }
        }
        Ok(self.is_whole)
    }

    /// Receives the next bytes; `None` at the end.
    async fn receive(&mut self) -> Result<Option<Bytes>, RequestFailure> {
        loop {
            let frame = timeout(self.idle, self.body.frame()).await.map_err(|_| RequestFailure::Slow)?;
            let Some(frame) = frame else { return Ok(None) };
            let Ok(data) = frame.map_err(|_| RequestFailure::Broken)?.into_data() else { continue };
            self.bytes += data.len();
            if self.bytes > self.most {
                return Err(RequestFailure::TooLarge(self.most));
            }
            IngestCounters::count(&self.counters.bytes, data.len() as u64);
            return Ok(Some(data));
        }
    }
}

/// Ends the publishing of a stream once there were no requests for `idle_ms`.
async fn expire(streams: Weak<HttpStreams>, name: String, slot: Arc<Slot>) {
    loop {
        let mut held = slot.files.lock().await;
        let (Some(streams), Some(files)) = (streams.upgrade(), held.as_ref()) else { return };
        let until = files.touched + Duration::from_millis(streams.registry.settings.limits.idle_ms);
        if until <= Instant::now() {
            tracing::info!(stream = name, "the encoder sends no more requests");
            streams.lock().remove(&name);
            *held = None;
            return;
        }
        drop((streams, held));
        sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_bytes_take_no_more_memory_than_one_piece_beside_them() {
        let mut kept = Kept::default();
        let all: Vec<u8> = (0..300_000_u32).map(|at| (at * 7 + at / 256) as u8).collect();
        let mut rest = &all[..];
        for size in [1, 100, PIECE_BYTES, 3 * PIECE_BYTES + 5, 8000].into_iter().cycle() {
            let (now, later) = rest.split_at(size.min(rest.len()));
            kept.push(now);
            rest = later;
            let taken: usize = kept.pieces.iter().map(BytesMut::capacity).sum();
            assert!(taken < kept.bytes + PIECE_BYTES, "{taken} for {}", kept.bytes);
            if rest.is_empty() {
                break;
            }
        }
        let read: Vec<u8> = std::iter::from_fn(|| kept.pop()).flatten().collect();
        assert!(read == all && kept.bytes == 0);
    }
}
