//! HTTP/2 for viewers, by hyper. A response whose bytes were overwritten ends with RST_STREAM, and its connection goes on.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::header::{HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rblive::ChunkRef;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::answer::{Answer, Body, Request};
use crate::counters::Counters;
use crate::http1::{PIECE, copied};
use crate::pages::{Pages, Watching};

/// Requests of a connection that are answered at once.
const MAX_STREAMS: u32 = 32;

/// Bytes of a connection that wait for the client.
const MAX_BUFFERED: usize = 256 << 10;

pub(crate) async fn serve(stream: TlsStream<TcpStream>, pages: Arc<Pages>) -> Result<(), hyper::Error> {
    let watching = Arc::new(Mutex::new(Watching::default()));
    let (alive, settings) = (pages.settings.idle_timeout, pages.settings.clone());
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (pages, watching) = (pages.clone(), watching.clone());
        async move { Ok::<_, Infallible>(answer(&request, pages, watching).await) }
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(16 << 10)
        .max_send_buf_size(MAX_BUFFERED)
        .keep_alive_interval(alive)
        .keep_alive_timeout(settings.head_timeout)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

async fn answer(
    request: &hyper::Request<Incoming>,
    pages: Arc<Pages>,
    watching: Arc<Mutex<Watching>>,
) -> hyper::Response<Pieces> {
    let field = |name: &str| request.headers().get(name).and_then(|own| own.to_str().ok()).map(str::to_owned);
    let own = Request {
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or("").to_owned(),
        if_none_match: field("if-none-match"),
        range: field("range"),
    };
    let method = request.method().as_str();
    let answer = if HttpBody::is_end_stream(request.body()) {
        pages.answer(method, &own, &watching).await
    } else {
        pages.counters.answered(413);
        Answer::text(413, "a viewer's request has no body")
    };
    let fields = answer.fields();
    let (status, length) = (answer.status, answer.body.len());
    let body = if method == "HEAD" { Body::Bytes(Bytes::new()) } else { answer.body };
    let mut response = hyper::Response::new(Pieces::new(body, pages, watching));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    for (name, value) in fields {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    if status != 304 && status != 204 {
        response.headers_mut().insert("content-length", HeaderValue::from(length));
    }
    response
}

/// A body in pieces, each of which is checked after it was copied.
struct Pieces {
    ready: Option<Bytes>,
    chunks: VecDeque<ChunkRef>,
    pages: Arc<Pages>,
    watching: Arc<Mutex<Watching>>,
}

impl Pieces {
    fn new(body: Body, pages: Arc<Pages>, watching: Arc<Mutex<Watching>>) -> Self {
        let (ready, chunks) = match body {
            Body::Bytes(bytes) => (Some(bytes).filter(|bytes| !bytes.is_empty()), VecDeque::new()),
            Body::Ring(chunks) => (None, chunks.into_iter().filter(|chunk| chunk.size() > 0).collect()),
        };
        Self { ready, chunks, pages, watching }
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(bytes) = self.ready.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Some(chunk) = self.chunks.pop_front() else { return Poll::Ready(None) };
        let piece = chunk.size().min(PIECE);
        let result = copied(&chunk.part(0..piece));
        match &result {
            Ok(_) if piece < chunk.size() => self.chunks.push_front(chunk.part(piece..chunk.size())),
            Ok(_) => {}
            Err(_) => Counters::add(&self.pages.counters.overtaken),
        }
        if result.is_ok() {
            self.pages.counters.media_bytes.fetch_add(piece as u64, std::sync::atomic::Ordering::Relaxed);
            self.watching.lock().sent(piece);
        }
        Poll::Ready(Some(result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_none() && self.chunks.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let rest: usize = self.chunks.iter().map(ChunkRef::size).sum();
        SizeHint::with_exact((rest + self.ready.as_ref().map_or(0, Bytes::len)) as u64)
    }
}
