//! HTTP/2 for viewers, by hyper. A response whose bytes were overwritten ends with RST_STREAM, and its connection continues.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::header::{HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use locks::Mutex;
use rblive::ChunkRef;
use rblive_webrtc::MAX_BYTES;

use crate::addresses::Place;
use crate::answer::{Answer, Body, Request};
use crate::counters::Counters;
use crate::file::FilePart;
use crate::http1::NO_BODY;
use crate::link::{Link, corked};
use crate::pages::{Pages, Watching};

mod guard;

use guard::{Activity, Guard, Sending, Verdict};

/// The most requests of a connection that are answered at the same time.
const MAX_STREAMS: u32 = 32;

/// Bytes of bodies that a client may send before they are read: the least of HTTP/2.
const MIN_WINDOW: u32 = 65_535;

/// Bytes of a response that wait for the client.
const MAX_BUFFERED: usize = 64 << 10;

/// Bytes of a ring that are copied at once. The copy is checked before a frame announces it, since a frame that was sent cannot be
/// withdrawn if its bytes were overwritten.
const PIECE: usize = 32 << 10;

/// Streams that the client reset before they were answered, and those that broke the protocol. With more, the connection ends.
const MAX_RESET: usize = 32;

pub(crate) async fn serve(link: Link, pages: Arc<Pages>, place: Place) -> io::Result<()> {
    let link = corked(link);
    let activity = Arc::new(Activity::default());
    let (patience, idle) = (pages.settings.time_for(PIECE), pages.patience.idle);
    let mut guard = Guard::new(link.clone(), activity.clone(), patience, idle);
    let watching = Arc::new(Mutex::new(Watching::of(place)));
    let own = pages.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (pages, watching, activity) = (own.clone(), watching.clone(), activity.clone());
        async move { Ok::<_, Infallible>(answer(request, pages, watching, activity).await) }
    });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(16 << 10)
        // Requests have no bodies, so clients need no room for them.
        .initial_connection_window_size(MIN_WINDOW)
        .initial_stream_window_size(MIN_WINDOW)
        .max_send_buf_size(MAX_BUFFERED)
        .max_pending_accept_reset_streams(MAX_RESET)
        .max_local_error_reset_streams(MAX_RESET)
        .keep_alive_interval(idle)
        .keep_alive_timeout(pages.patience.head)
        .serve_connection(TokioIo::new(link.clone()), service);
    let mut connection = pin!(connection);
    let mut is_closing = false;
    let ended = poll_fn(|cx| {
        while let Poll::Ready(verdict) = guard.poll(cx) {
            if verdict == Verdict::TooSlow || is_closing {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            connection.as_mut().graceful_shutdown();
            is_closing = true;
        }
        let step = connection.as_mut().poll(cx).map_err(io::Error::other);
        match link.poll_written(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => step,
        }
    })
    .await;
    if ended.is_err() {
        let counter = if link.is_flooded() { &pages.counters.floods } else { &pages.counters.too_slow };
        let timed_out = ended.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        if link.is_flooded() || timed_out {
            Counters::add(counter);
            link.abort();
        }
    }
    ended
}

/// Reads a body. `None`: it is too long, takes too long, or is cut.
async fn body_of(body: &mut Incoming, pages: &Pages) -> Option<Bytes> {
    let whole = async {
        let mut bytes = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            bytes.extend_from_slice(&frame.ok()?.into_data().unwrap_or_default());
            if bytes.len() > MAX_BYTES {
                return None;
            }
        }
        Some(bytes.into())
    };
    tokio::time::timeout(pages.patience.head, whole).await.ok().flatten()
}

async fn answer(
    mut request: hyper::Request<Incoming>,
    pages: Arc<Pages>,
    watching: Arc<Mutex<Watching>>,
    activity: Arc<Activity>,
) -> hyper::Response<Pieces> {
    let waiting = activity.request();
    let field = |name: &str| request.headers().get(name).and_then(|own| own.to_str().ok()).map(str::to_owned);
    let forwarded_for = request.headers().get_all("x-forwarded-for").iter();
    let mut own = Request {
        if_none_match: field("if-none-match"),
        range: field("range"),
        if_range: field("if-range"),
        asked_fields: field("access-control-request-headers"),
        forwarded_for: forwarded_for.map(|own| own.as_bytes().to_owned()).collect(),
        ..Request::of(request.uri().path(), request.uri().query().unwrap_or(""))
    };
    let method = request.method().clone();
    let method = method.as_str();
    let body = match HttpBody::is_end_stream(request.body()) {
        true => Some(Bytes::new()),
        false if pages.takes_body(method, &own.path) => body_of(request.body_mut(), &pages).await,
        false => None,
    };
    let answer = match body {
        Some(body) => {
            own.body = body;
            pages.answer(method, &own, &watching).await
        }
        None => {
            pages.counters.answered(413);
            Answer::text(413, NO_BODY)
        }
    };
    let (status, length) = (answer.status, answer.body.len());
    let mut response = hyper::Response::new(());
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    for (name, value) in answer.fields() {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    if status != 304 && status != 204 {
        response.headers_mut().insert("content-length", HeaderValue::from(length));
    }
    let body = if method == "HEAD" { Body::Bytes(Bytes::new()) } else { answer.body };
    drop(waiting);
    response.map(|()| Pieces::new(body, pages, watching, activity.response()))
}

/// A body in pieces, each of which is checked after it was copied.
struct Pieces {
    ready: Option<Bytes>,
    chunks: VecDeque<ChunkRef>,
    file: Option<FilePart>,
    /// The next piece of the file, while it is read.
    reading: Option<Reading>,
    pages: Arc<Pages>,
    watching: Arc<Mutex<Watching>>,
    sending: Sending,
}

/// Returns the piece, and the rest of the file.
type Reading = Pin<Box<dyn Future<Output = (io::Result<Bytes>, FilePart)> + Send>>;

async fn read(mut part: FilePart) -> (io::Result<Bytes>, FilePart) {
    let mut piece = vec![0; PIECE.min(part.len())];
    let read = part.read(&mut piece).await;
    let read = read.map(|count| {
        piece.truncate(count);
        Bytes::from(piece)
    });
    (read, part)
}

impl Pieces {
    fn new(body: Body, pages: Arc<Pages>, watching: Arc<Mutex<Watching>>, sending: Sending) -> Self {
        let (mut ready, mut chunks, mut file) = (None, VecDeque::new(), None);
        match body {
            Body::Bytes(bytes) => ready = Some(bytes).filter(|bytes| !bytes.is_empty()),
            Body::Ring(all) => chunks = all.into_iter().filter(|chunk| chunk.size() > 0).collect(),
            Body::File(part) => file = Some(part).filter(|part| part.len() > 0),
        }
        Self { ready, chunks, file, reading: None, pages, watching, sending }
    }

    /// The next piece of the file, if there is one.
    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(part) = self.file.take() {
            self.reading = Some(Box::pin(read(part)));
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let Poll::Ready((read, rest)) = reading.as_mut().poll(cx) else { return Poll::Pending };
        self.reading = None;
        self.file = Some(rest).filter(|rest| rest.len() > 0 && read.is_ok());
        if let Ok(bytes) = &read {
            self.pages.counters.media_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Poll::Ready(Some(read))
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.sending.goes_on();
        if let Some(bytes) = self.ready.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Some(chunk) = self.chunks.pop_front() else {
            return self.poll_file(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)));
        };
        let piece = chunk.size().min(PIECE);
        let result = chunk.part(0..piece).to_vec().map(Bytes::from).map_err(io::Error::other);
        match &result {
            Ok(_) if piece < chunk.size() => self.chunks.push_front(chunk.part(piece..chunk.size())),
            Ok(_) => {}
            Err(_) => Counters::add(&self.pages.counters.overtaken),
        }
        if result.is_ok() {
            self.pages.counters.media_bytes.fetch_add(piece as u64, Ordering::Relaxed);
            self.watching.lock().sent(piece);
        }
        Poll::Ready(Some(result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_none() && self.chunks.is_empty() && self.file.is_none() && self.reading.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.reading.is_some() {
            return SizeHint::default();
        }
        let file = self.file.as_ref().map_or(0, FilePart::len);
        let rest = self.chunks.iter().map(ChunkRef::size).sum::<usize>() + file;
        SizeHint::with_exact((rest + self.ready.as_ref().map_or(0, Bytes::len)) as u64)
    }
}
