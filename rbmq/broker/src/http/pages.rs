//! The pages of the endpoint.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use access::TokenRefused;
use hyper::header::{ACCEPT, ALLOW, CONNECTION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Method, Request, StatusCode};
use locks::Mutex;
use peers::ForeignPage;

use super::answer::{Answer, json, page, refuse};
use super::metrics::{Counts, LastScrape, Scrape};
use crate::Watch;

/// A broker whose thread doesn't answer within this time is unhealthy.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

const INDEX: &str = "\
rbmq

/metrics  for Prometheus
/health   whether the broker is alive
/ready    whether the broker accepts clients
/topics   the topics as JSON
";

/// The same for the console.
const INDEX_OF_CONSOLE: &str = "\
/ui       the console, for browsers
/api/v1   what it asks: /api/v1/openapi.json
";

/// The counters of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) refused_connections: AtomicU64,
    pub(super) wrong_tokens: AtomicU64,
    /// The program that writes the log counts these.
    pub(super) log_lines_dropped: Arc<AtomicU64>,
}

impl Counters {
    fn read(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            requests: read(&self.requests),
            refused_connections: read(&self.refused_connections),
            wrong_tokens: read(&self.wrong_tokens),
            log_lines_dropped: read(&self.log_lines_dropped),
        }
    }
}

/// Answers requests about one broker.
pub(super) struct Pages {
    watch: Watch,
    counters: Arc<Counters>,
    /// The sums of the last scrape, so that no sum decreases.
    last: Mutex<LastScrape>,
    has_console: bool,
}

/// Why a client is refused.
pub(super) enum Denied {
    /// The request does not show the token.
    Token(TokenRefused),
    /// The client's certificate does not give it the right to the page, for this reason.
    Right(String),
    /// A browser may have sent the request for a foreign page.
    Page(ForeignPage),
}

/// Whether a page is for probes: it tells nothing of topics and clients.
pub(super) fn is_probe(path: &str) -> bool {
    matches!(path, "/health" | "/ready")
}

impl Pages {
    pub(super) fn new(watch: Watch, counters: Arc<Counters>, has_console: bool) -> Self {
        Self { watch, counters, last: Mutex::default(), has_console }
    }

    /// The answer to a request; `admitted`: whether its client may have the page.
    pub(super) fn answer<B>(&self, request: &Request<B>, admitted: Result<(), Denied>) -> Answer {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        if let Err(denied) = admitted {
            return refused(denied);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are available");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match request.uri().path() {
            "/" => page(StatusCode::OK, "text/plain; charset=utf-8", self.index()),
            "/metrics" => self.metrics(takes_open_metrics(request)),
            "/health" => self.health(),
            "/ready" => self.ready(),
            "/topics" => self.topics(),
            _ => refuse(StatusCode::NOT_FOUND, "the pages are /metrics, /health, /ready and /topics"),
        }
    }

    fn index(&self) -> String {
        [INDEX, if self.has_console { INDEX_OF_CONSOLE } else { "" }].concat()
    }

    fn metrics(&self, open: bool) -> Answer {
        let Some(census) = self.watch.census(ANSWER_WITHIN) else { return no_answer() };
        let scrape = {
            let mut last = self.last.lock();
            Scrape::take(&self.watch, census, self.counters.read(), &mut last)
        };
        match scrape.encode() {
            Ok(text) if open => page(StatusCode::OK, OPEN_METRICS, text),
            Ok(text) => page(StatusCode::OK, CLASSIC, classic(&text)),
            Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written"),
        }
    }

    /// The broker is alive if the thread with its tables answers.
    fn health(&self) -> Answer {
        if !self.watch.is_alive(ANSWER_WITHIN) {
            return no_answer();
        }
        json(StatusCode::OK, &serde_json::json!({ "healthy": true, "version": env!("CARGO_PKG_VERSION") }))
    }

    fn ready(&self) -> Answer {
        let draining = self.watch.is_draining();
        let gateways = self.watch.gateways().into_iter();
        let stopped: Vec<_> = gateways.filter(|of| !of.is_serving()).map(|of| of.name()).collect();
        let ready = !draining && stopped.is_empty();
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut answer = serde_json::json!({ "ready": ready, "draining": draining });
        if !stopped.is_empty() {
            answer["stopped_gateways"] = stopped.into();
        }
        // Other topics and clients are served.
        let unavailable = self.watch.unavailable_topics();
        if unavailable > 0 {
            answer["unavailable_topics"] = unavailable.into();
        }
        if let Some(reason) = self.watch.cluster().and_then(|cluster| cluster.degraded) {
            answer["degraded_cluster"] = reason.into();
        }
        json(status, &answer)
    }

    fn topics(&self) -> Answer {
        let Some(topics) = self.watch.topics(ANSWER_WITHIN) else { return no_answer() };
        let (memory, _) = self.watch.ring_bytes();
        json(StatusCode::OK, &serde_json::json!({ "ring_memory_bytes": memory, "topics": topics }))
    }
}

pub(super) fn refused(denied: Denied) -> Answer {
    match denied {
        Denied::Token(why @ TokenRefused::TooMany { wait }) => {
            let mut answer = refuse(StatusCode::TOO_MANY_REQUESTS, &why.to_string());
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
            answer
        }
        Denied::Token(why) => {
            let mut answer = refuse(StatusCode::UNAUTHORIZED, &why.to_string());
            answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            answer
        }
        Denied::Right(why) => refuse(StatusCode::FORBIDDEN, &why),
        Denied::Page(why) => refuse(StatusCode::FORBIDDEN, &why.to_string()),
    }
}

/// The answer to a client without TLS. Its connection ends, so that it asks again as it should.
pub(super) fn only_https() -> Answer {
    let mut answer = refuse(StatusCode::BAD_REQUEST, "this endpoint is encrypted: use https:// (http.tls)");
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// Whether the client accepts OpenMetrics, as Prometheus does.
fn takes_open_metrics<B>(request: &Request<B>) -> bool {
    let mut accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("application/openmetrics-text"))
}

/// Converts OpenMetrics to the older text format, for tools that know only this one: the names of counters end with `_total` in all
/// lines, and there is no end mark.
fn classic(open: &str) -> String {
    let is_counter = |line: &str| line.starts_with("# TYPE ") && line.ends_with(" counter");
    let counters: HashSet<&str> =
        open.lines().filter(|line| is_counter(line)).filter_map(|line| line.split(' ').nth(2)).collect();
    let mut text = String::with_capacity(open.len());
    for line in open.lines().filter(|line| *line != "# EOF") {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", what, name, rest] if counters.contains(name) => {
                text.push_str(&format!("# {what} {name}_total {rest}\n"));
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

fn no_answer() -> Answer {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "the broker does not answer, or has stopped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_names_counters_as_their_samples() {
        let open = "# HELP a_bytes All bytes # TYPE\n# TYPE a_bytes counter\na_bytes_total{x=\"# TYPE y counter\"} 1\n\
                    # HELP b Some\n# TYPE b gauge\nb 2\n# EOF\n";
        let expected = "# HELP a_bytes_total All bytes # TYPE\n# TYPE a_bytes_total counter\n\
                        a_bytes_total{x=\"# TYPE y counter\"} 1\n# HELP b Some\n# TYPE b gauge\nb 2\n";
        assert_eq!(classic(open), expected);
    }
}
