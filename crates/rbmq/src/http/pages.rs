//! What there is to ask for, and the answers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Request, Response, StatusCode};

use super::Counters;
use super::metrics::{Memory, Scrape};
use crate::broker::Watch;

/// A broker whose thread does not answer for so long is not well.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

const JSON: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const INDEX: &str = "\
rbmq

/metrics  for Prometheus
/health   whether the broker lives
/ready    whether it takes clients
/topics   the topics as JSON
";

/// Answers requests about one broker.
pub(super) struct Pages {
    watch: Watch,
    counters: Arc<Counters>,
    /// What was told last, so that no sum falls.
    memory: Mutex<Memory>,
}

type Answer = Response<Full<Bytes>>;

impl Pages {
    pub(super) fn new(watch: Watch, counters: Arc<Counters>) -> Self {
        Self { watch, counters, memory: Mutex::default() }
    }

    pub(super) fn answer<B>(&self, request: &Request<B>) -> Answer {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = refuse(StatusCode::METHOD_NOT_ALLOWED, "there is only GET and HEAD");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match request.uri().path() {
            "/" => page(StatusCode::OK, "text/plain; charset=utf-8", INDEX.to_owned()),
            "/metrics" => self.metrics(),
            "/health" => self.health(),
            "/ready" => self.ready(),
            "/topics" => self.topics(),
            _ => refuse(StatusCode::NOT_FOUND, "there is /metrics, /health, /ready and /topics"),
        }
    }

    fn metrics(&self) -> Answer {
        let Some(census) = self.watch.census(ANSWER_WITHIN) else { return no_answer() };
        let scrape = {
            let mut memory = self.memory.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let counters = &self.counters;
            let http = [&counters.requests, &counters.refused_connections].map(|c| c.load(Ordering::Relaxed));
            Scrape::take(&self.watch, census, http, &mut memory)
        };
        match scrape.encode() {
            Ok(text) => page(StatusCode::OK, OPEN_METRICS, text),
            Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written"),
        }
    }

    /// It lives if the thread that owns its tables answers.
    fn health(&self) -> Answer {
        if !self.watch.is_alive(ANSWER_WITHIN) {
            return no_answer();
        }
        json(StatusCode::OK, &serde_json::json!({ "healthy": true, "version": env!("CARGO_PKG_VERSION") }))
    }

    fn ready(&self) -> Answer {
        let draining = self.watch.is_draining();
        let status = if draining { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        json(status, &serde_json::json!({ "ready": !draining, "draining": draining }))
    }

    fn topics(&self) -> Answer {
        let Some(topics) = self.watch.topics(ANSWER_WITHIN) else { return no_answer() };
        let (memory, _) = self.watch.ring_bytes();
        json(StatusCode::OK, &serde_json::json!({ "ring_memory_bytes": memory, "topics": topics }))
    }
}

fn no_answer() -> Answer {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "the broker does not answer, or has ended")
}

fn refuse(status: StatusCode, why: &str) -> Answer {
    json(status, &serde_json::json!({ "error": why }))
}

fn json(status: StatusCode, value: &serde_json::Value) -> Answer {
    page(status, JSON, format!("{value}\n"))
}

fn page(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    // What was true a moment ago is of no use, and a browser must not guess what it is.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
