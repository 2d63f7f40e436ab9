//! Why a request is not answered: a status, a text for people, and when another try makes sense.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};

use super::due::NoAnswer;
use super::query::WrongQuery;
use crate::http::answer::{Answer, refuse};

/// A problem.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) why: String,
    retry_after: Option<Duration>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, why: &str) -> Self {
        Self { status, why: why.to_owned(), retry_after: None }
    }

    pub(super) fn wrong(why: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    pub(super) fn unauthorized(why: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, why)
    }

    pub(super) fn forbidden(why: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, why)
    }

    pub(super) fn missing(why: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, why)
    }

    pub(super) fn too_many(why: &str, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..Self::new(StatusCode::TOO_MANY_REQUESTS, why) }
    }

    pub(super) fn unavailable(why: &str, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, why) }
    }

    /// The answer to the request.
    pub(super) fn answer(&self) -> Answer {
        let mut answer = refuse(self.status, &self.why);
        if let Some(wait) = self.retry_after {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        }
        answer
    }
}

impl From<WrongQuery> for Problem {
    fn from(wrong: WrongQuery) -> Self {
        Self::wrong(&wrong.0)
    }
}

impl From<NoAnswer> for Problem {
    fn from(_: NoAnswer) -> Self {
        Self::unavailable("the broker does not answer, or has stopped", Duration::from_secs(1))
    }
}
