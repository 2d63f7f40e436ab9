//! Answers: their heads, and their bodies: a whole one, or a stream that ends by itself.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};

const JSON: &str = "application/json";

/// An answer.
pub(super) type Answer = Response<Body>;

/// A body that is made while it is sent.
pub(super) trait Stream: Send {
    /// The next bytes; none: the end.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// The body of an answer.
pub(super) enum Body {
    Whole(Full<Bytes>),
    Stream(Box<dyn Stream>),
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::Whole(Full::new(bytes.into()))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole).poll_frame(cx),
            Self::Stream(stream) => {
                stream.poll_bytes(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

pub(super) fn refuse(status: StatusCode, why: &str) -> Answer {
    json(status, &serde_json::json!({ "error": why }))
}

pub(super) fn json(status: StatusCode, value: &serde_json::Value) -> Answer {
    json_text(status, text::json(&value.to_string()).into_owned())
}

/// The same for a text that is JSON already.
pub(super) fn json_text(status: StatusCode, mut text: String) -> Answer {
    text.push('\n');
    page(status, JSON, text)
}

pub(super) fn page(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // Old answers are useless, and browsers must not guess the content type.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
