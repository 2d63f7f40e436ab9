//! Control calls over HTTP, and metrics.
//!
//! | Call | What it does |
//! |---|---|
//! | `GET /` | a page for people, whose files need no token |
//! | `GET /streams` | the streams that the node sends and receives, its nodes, and its encoders, as JSON |
//! | `GET /history?since=MS` | rates and ages of the last ten minutes, after a moment in milliseconds since 1970, as JSON |
//! | `GET /encoders` | the encoders that publish, what they do wrong, and those that were refused or failed lately, as JSON |
//! | `DELETE /encoders/NUMBER` | ends an encoder, whose client may not publish the stream again for a minute |
//! | `PUT /streams/ID/nodes/NODE` | sends a stream to a node |
//! | `DELETE /streams/ID/nodes/NODE` | stops sending the stream to the node |
//! | `GET /metrics` | metrics for Prometheus |
//! | `GET /health` | `ok` |
//! | `GET /ready` | `ok`, and what does not work in the cluster |

mod history;
mod metrics;
mod state;

use std::convert::Infallible;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use access::{BearerToken, Source, TokenRefused};
use commands::Failure;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use locks::Mutex;
use peers::{BrowserFields, ForeignPage, LogLimiter, Place, PlaceLimits, Places, Proxies};
use rblive::{NodeId, RsId, RsManager, StreamError};
use rblive_deliver::assets::{Asset, LOOK};
use rblive_ingest::Ingest;
use rblive_record::Recorder;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use self::history::History;
use super::cluster::member::Member;
use super::config::Control;

/// The longest time for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The longest life of a connection.
const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// The largest head of a request in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// The pause after a connection that the system could not accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// The files of the page.
const PAGE: [Asset; 7] = [
    LOOK[0],
    LOOK[1],
    LOOK[2],
    Asset::new("/", include_str!("assets/control.html")),
    Asset::new("/control.css", include_str!("assets/control.css")),
    Asset::new("/control.js", include_str!("assets/control.js")),
    Asset::new("/plot.js", web::PLOT),
];

type Answer = Response<Full<Bytes>>;

/// The parts of a node that calls may ask, as far as it has them.
#[derive(Default)]
pub struct Parts {
    pub ingest: Option<Arc<Ingest>>,
    pub recorder: Option<Arc<Recorder>>,
    pub member: Option<Arc<Member>>,
    /// The address of the page for viewers.
    pub viewers: Option<String>,
}

/// A running endpoint. Dropping it stops the endpoint.
pub struct Endpoint {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Starts an endpoint on a thread of its own.
    pub fn start(rs: RsManager, parts: Parts, settings: &Control) -> Result<Self, Failure> {
        let Parts { ingest, recorder, member, viewers } = parts;
        let listen = &settings.listen;
        let refused =
            |error| Failure::Failed(format!("cannot listen for HTTP on {listen} (control.listen): {error}"));
        let listener = TcpListener::bind(listen).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(refused)?;
        let (stop, stopped) = oneshot::channel();
        let history = History::default();
        let names = [std::slice::from_ref(listen), &settings.names].concat();
        let token = token_of(&settings.token)?;
        let proxies = Proxies::new(&settings.proxies)
            .map_err(|wrong| Failure::Failed(format!("control.proxies: {wrong}")))?;
        let refusals = Refusals::default();
        let limits = PlaceLimits::new(settings.max_connections, "control.max_connections");
        let places = Places::new(limits, |line| tracing::warn!("{line}"));
        let calls = Arc::new(Calls {
            rs,
            ingest,
            recorder,
            member,
            viewers,
            names,
            proxies,
            token,
            refusals,
            history,
            places,
        });
        let serve = move || {
            runtime.block_on(async move {
                tokio::spawn(accept(listener, calls.clone()));
                tokio::spawn(remember(calls));
                // A dropped sender stops the endpoint too.
                let _ = stopped.await;
            });
        };
        let thread = threads::spawn("rblive-http", serve);
        Ok(Self { address, stop: Some(stop), thread: Some(thread.map_err(refused)?) })
    }

    /// The address in use.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}

async fn remember(calls: Arc<Calls>) {
    let mut next = tokio::time::interval(history::EVERY);
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        next.tick().await;
        calls.history.sample(&calls.rs);
    }
}

async fn accept(listener: TcpListener, calls: Arc<Calls>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("the control endpoint cannot start: {error}"),
    };
    let mut failures = LogLimiter::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (now, address) = (Instant::now(), peer.ip());
                let place = match calls.proxies.has(address) {
                    true => calls.places.enter_proxy(address, now),
                    false => calls.places.enter(address, now),
                };
                let Ok(place) = place else { continue };
                let calls = calls.clone();
                tokio::spawn(async move {
                    let served = serve(stream, peer.ip(), calls, &place);
                    // After an error, or to make room, the connection is closed, and nothing else is to do.
                    let _ = place.while_held(tokio::time::timeout(CONNECTION_TIME, served)).await;
                });
            }
            Err(error) => {
                if let Some(more) = failures.allow(Instant::now()) {
                    tracing::warn!(more, "a control connection was not accepted: {error}");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, client: IpAddr, calls: Arc<Calls>, place: &Place) {
    let service = service_fn(move |request: Request<Incoming>| {
        let uri = request.uri();
        let client = calls.proxies.client(client, request.headers().get_all("x-forwarded-for"));
        let call = Call {
            method: request.method(),
            path: uri.path(),
            query: uri.query(),
            shown: request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes),
            client,
            browser: BrowserFields::of(|name| request.headers().get(name).map(HeaderValue::as_bytes)),
        };
        let shows_page =
            PAGE.iter().any(|asset| asset.path == call.path) || ["/health", "/ready"].contains(&call.path);
        let answer = calls.answer(call);
        // The page and the probe are for everybody, so they prove nothing.
        if !shows_page && answer.status().is_success() {
            place.known();
        }
        async move { Ok::<_, Infallible>(answer) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("a control connection ended: {error}");
    }
}

/// The token of the settings, if calls need one.
fn token_of(token: &str) -> Result<Option<BearerToken>, Failure> {
    let token = Some(token).filter(|token| !token.is_empty()).map(BearerToken::new).transpose();
    token.map_err(|weak| Failure::Failed(format!("control.token is too weak: {weak}")))
}

/// What somebody asks.
struct Call<'a> {
    method: &'a Method,
    path: &'a str,
    query: Option<&'a str>,
    /// The field `Authorization`.
    shown: Option<&'a [u8]>,
    client: IpAddr,
    browser: BrowserFields<'a>,
}

/// The calls that were refused, and the limit of lines about them.
#[derive(Default)]
struct Refusals {
    wrong_tokens: AtomicU64,
    foreign_pages: AtomicU64,
    lines: Mutex<LogLimiter>,
}

impl Refusals {
    fn count(&self, counter: &AtomicU64, client: IpAddr, why: &dyn Display) {
        counter.fetch_add(1, Ordering::Relaxed);
        let line = self.lines.lock().allow(Instant::now());
        if let Some(more) = line {
            tracing::warn!(%client, more, "refused at the control page: {why}");
        }
    }
}

/// The parts of the node that answer calls.
struct Calls {
    rs: RsManager,
    ingest: Option<Arc<Ingest>>,
    recorder: Option<Arc<Recorder>>,
    member: Option<Arc<Member>>,
    viewers: Option<String>,
    /// The address as it was configured, and the further names of the endpoint.
    names: Vec<String>,
    proxies: Proxies,
    /// `None`: no call needs it.
    token: Option<BearerToken>,
    refusals: Refusals,
    history: History,
    places: Places,
}

impl Calls {
    fn answer(&self, call: Call<'_>) -> Answer {
        let Call { method, path, query, .. } = call;
        if let Some(answer) = self.probe(path).filter(|_| method == Method::GET) {
            return answer;
        }
        if let Err(foreign) = self.check_page(&call) {
            self.refusals.count(&self.refusals.foreign_pages, call.client, &foreign);
            return text(StatusCode::FORBIDDEN, format!("{foreign}\n"));
        }
        if let Some(asset) = PAGE.iter().find(|asset| asset.path == path && method == Method::GET) {
            return answer(StatusCode::OK, asset.kind, asset.text);
        }
        if let Err(why) = self.check_token(&call) {
            return refused(why);
        }
        let parts: Vec<_> = path.trim_matches('/').split('/').collect();
        match (method, parts.as_slice()) {
            (&Method::GET, ["metrics"]) => {
                answer(StatusCode::OK, "text/plain; version=0.0.4", self.metrics())
            }
            (&Method::GET, ["streams"]) => {
                let state = state::of(&self.rs, self.ingest.as_deref(), self.viewers.as_deref());
                answer(StatusCode::OK, "application/json", format!("{state}\n"))
            }
            (&Method::GET, ["history"]) => match since(query) {
                Some(since) => {
                    let samples = self.history.since(since);
                    answer(StatusCode::OK, "application/json", format!("{samples}\n"))
                }
                None => text(StatusCode::BAD_REQUEST, "since is a number of milliseconds\n".to_owned()),
            },
            (&Method::GET, ["encoders"]) if let Some(ingest) = &self.ingest => {
                answer(StatusCode::OK, "application/json", format!("{}\n", state::encoders(ingest)))
            }
            (&Method::DELETE, ["encoders", number]) => self.end_encoder(number, call.client),
            (&Method::PUT | &Method::DELETE, ["streams", id, "nodes", node]) => {
                self.change(method == Method::PUT, id, node)
            }
            (
                _,
                ["" | "metrics" | "streams" | "history" | "health" | "ready"]
                | ["streams", _, "nodes", _]
                | ["encoders", _],
            ) => text(StatusCode::METHOD_NOT_ALLOWED, "no such method here\n".to_owned()),
            _ => text(
                StatusCode::NOT_FOUND,
                "there are /, /streams, /encoders, /history, /metrics, /health and /ready\n".to_owned(),
            ),
        }
    }

    /// The answer to a probe, which needs no token. Whoever asks need not know more; the log says why.
    fn probe(&self, path: &str) -> Option<Answer> {
        let is_degraded = || self.member.as_ref().is_some_and(|member| member.status().degraded.is_some());
        let said = match path {
            "/ready" if is_degraded() => "ok; degraded: cluster\n",
            "/health" | "/ready" => "ok\n",
            _ => return None,
        };
        Some(text(StatusCode::OK, said.to_owned()))
    }

    fn metrics(&self) -> String {
        let mut page = metrics::page(&self.rs, self.ingest.as_deref().map(Ingest::counters));
        let refused = [&self.refusals.wrong_tokens, &self.refusals.foreign_pages];
        let refused = refused.map(|counter| counter.load(Ordering::Relaxed));
        metrics::control(&mut page, refused, self.places.counts());
        self.recorder.iter().for_each(|own| metrics::recorder(&mut page, own.counters()));
        self.member.iter().for_each(|own| metrics::cluster(&mut page, &own.status(), own.nodes()));
        page
    }

    /// Asks for the token, if there is one. A call without a token guesses nothing: that is how browsers begin.
    fn check_token(&self, call: &Call<'_>) -> Result<(), TokenRefused> {
        let Some(token) = &self.token else { return Ok(()) };
        let checked = token.check(call.shown, Source::Address(call.client.into()), Instant::now());
        checked.inspect_err(|why| {
            if *why != TokenRefused::Missing {
                self.refusals.count(&self.refusals.wrong_tokens, call.client, why);
            }
        })
    }

    /// Refuses what a browser sends for a page of another web site. Such a page has no token to show, so where one is asked for, that is
    /// enough: behind a proxy the page's own calls may look foreign.
    fn check_page(&self, call: &Call<'_>) -> Result<(), ForeignPage> {
        if self.token.is_some() {
            return Ok(());
        }
        if !call.method.is_safe() {
            call.browser.check_site()?;
        }
        call.browser.check_name(self.names.iter().map(String::as_str), "add it to control.names")
    }

    /// Ends an encoder.
    fn end_encoder(&self, number: &str, client: IpAddr) -> Answer {
        let Ok(number) = number.parse() else {
            return text(StatusCode::BAD_REQUEST, "an encoder is named by its number\n".to_owned());
        };
        match self.ingest.as_ref().and_then(|ingest| ingest.end_encoder(number)) {
            Some(stream) => {
                tracing::warn!(%client, stream, "an operator has ended the encoder");
                text(StatusCode::OK, String::new())
            }
            None => text(StatusCode::NOT_FOUND, format!("no encoder has the number {number}\n")),
        }
    }

    /// Adds or removes a node of a stream.
    fn change(&self, add: bool, id: &str, node: &str) -> Answer {
        let (Ok(id), Ok(node)) = (id.parse::<RsId>(), node.parse::<NodeId>()) else {
            let said = "a stream is named by the 16 digits of its id, a node by its number\n";
            return text(StatusCode::BAD_REQUEST, said.to_owned());
        };
        let done = match add {
            true => self.rs.set_outbound(node, id).map(|()| true),
            false => self.rs.remove_outbound(node, id),
        };
        match done {
            Ok(true) => text(StatusCode::OK, String::new()),
            Ok(false) => text(StatusCode::NOT_FOUND, format!("node {node} does not get this stream\n")),
            Err(error @ (StreamError::NoSuchStream(_) | StreamError::NoSuchNode(_))) => {
                text(StatusCode::NOT_FOUND, format!("{error}\n"))
            }
            Err(error) => text(StatusCode::CONFLICT, format!("{error}\n")),
        }
    }
}

/// The answer to a call without the token of `control.token`.
fn refused(why: TokenRefused) -> Answer {
    let TokenRefused::TooMany { wait } = why else {
        return text(StatusCode::UNAUTHORIZED, format!("{why} (control.token)\n"));
    };
    let mut answer = text(StatusCode::TOO_MANY_REQUESTS, format!("{why}\n"));
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
    answer
}

/// The time after which samples are wanted. `None`: all samples.
fn since(query: Option<&str>) -> Option<u64> {
    let mut given = query.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("since="));
    given.next().map_or(Some(0), |since| since.parse().ok())
}

fn text(status: StatusCode, body: String) -> Answer {
    answer(status, "text/plain; charset=utf-8", body)
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // The buttons of the page are pressed on the page alone, not below something else that a foreign page shows over them.
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("frame-ancestors 'none'"));
    answer
}

#[cfg(test)]
mod tests {
    use rblive::Config;
    use rblive_ingest::IngestCounters;
    use rblive_record::RecordCounters;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";
    const BEARER: &str = "Bearer 0123456789abcdef";

    fn calls(token: &str) -> Calls {
        let rs = RsManager::new(Config::default()).unwrap();
        let names = ["127.0.0.1:7480", "control.example.org"].map(str::to_owned).to_vec();
        let token = token_of(token).unwrap();
        let (refusals, history) = (Refusals::default(), History::default());
        let places = Places::new(PlaceLimits::new(9, "control.max_connections"), |_| ());
        Calls {
            rs,
            ingest: None,
            recorder: None,
            member: None,
            viewers: None,
            names,
            proxies: Proxies::default(),
            token,
            refusals,
            history,
            places,
        }
    }

    /// A call of nobody in particular.
    fn get(path: &str) -> Call<'_> {
        let (client, browser) = (IpAddr::from([192, 0, 2, 7]), BrowserFields::default());
        Call { method: &Method::GET, path, query: None, shown: None, client, browser }
    }

    #[test]
    fn a_stream_is_given_to_a_node_and_taken_away() {
        let calls = calls("");
        let id = calls.rs.create_stream("a").unwrap();
        let status =
            |method: Method, path: &str| calls.answer(Call { method: &method, ..get(path) }).status();
        let path = format!("/streams/{id}/nodes/1");
        assert_eq!(status(Method::DELETE, &path), StatusCode::NOT_FOUND);
        assert_eq!(status(Method::PUT, &path), StatusCode::OK);
        assert_eq!(calls.rs.outbound()[0].nodes, [1]);
        assert_eq!(status(Method::DELETE, &path), StatusCode::OK);
        assert!(calls.rs.outbound()[0].nodes.is_empty());
        assert_eq!(status(Method::PUT, &format!("/streams/{id}/nodes/9")), StatusCode::NOT_FOUND);
        assert_eq!(status(Method::PUT, "/streams/x/nodes/1"), StatusCode::BAD_REQUEST);
        assert_eq!(status(Method::POST, &path), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(status(Method::GET, "/nothing"), StatusCode::NOT_FOUND);
        assert!(metrics::page(&calls.rs, None).contains("rblive_sent_streams 1\n"));
    }

    #[test]
    fn no_row_of_the_metrics_is_there_twice() {
        let calls = calls("");
        for _ in 0..2 {
            let id = calls.rs.create_stream("a").unwrap();
            calls.rs.set_outbound(1, id).unwrap();
        }
        while calls.rs.inbound().len() < 2 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let counters = IngestCounters::default();
        let mut page = metrics::page(&calls.rs, Some(&counters));
        metrics::recorder(&mut page, &RecordCounters::default());
        assert!(page.contains("rblive_ingest_publishers_total 0\n"), "{page}");
        let mut rows: Vec<_> = page
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.rsplit_once(' ').unwrap().0)
            .collect();
        let all = rows.len();
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(rows.len(), all, "{page}");
    }

    #[test]
    fn a_token_is_asked_for() {
        let calls = calls(TOKEN);
        let status = |shown: Option<&str>| {
            calls.answer(Call { shown: shown.map(str::as_bytes), ..get("/streams") }).status()
        };
        assert_eq!(status(None), StatusCode::UNAUTHORIZED);
        assert_eq!(status(Some("Bearer 0123456789abcdeF")), StatusCode::UNAUTHORIZED);
        assert_eq!(status(Some(BEARER)), StatusCode::OK);
        // The page asks for the token.
        for path in ["/health", "/", "/control.js", "/theme.css"] {
            assert_eq!(calls.answer(get(path)).status(), StatusCode::OK, "{path}");
        }
        assert_eq!(calls.answer(get("/history")).status(), StatusCode::UNAUTHORIZED);
    }

    #[test]
    fn a_host_that_guesses_the_token_waits() {
        let calls = calls(TOKEN);
        let ask = |client: u8, shown: &str| {
            let client = IpAddr::from([192, 0, 2, client]);
            calls.answer(Call { shown: Some(shown.as_bytes()), client, ..get("/streams") })
        };
        let guesses: Vec<_> = (0..100).map(|n| ask(1, &format!("Bearer guess {n}")).status()).collect();
        let looked_at = guesses.iter().filter(|status| **status == StatusCode::UNAUTHORIZED).count();
        assert!(looked_at < 15, "{guesses:?}");
        let late = ask(1, "Bearer guess");
        assert_eq!(late.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(late.headers().contains_key(RETRY_AFTER));
        assert_eq!(calls.refusals.wrong_tokens.load(Ordering::Relaxed), 101);
        for client in [1, 2] {
            assert_eq!(ask(client, BEARER).status(), StatusCode::OK, "the token cannot be guessed");
        }
    }

    #[test]
    fn foreign_web_pages_neither_read_nor_change_anything() {
        let (open, closed) = (calls(""), calls(TOKEN));
        let id = open.rs.create_stream("a").unwrap();
        let path = format!("/streams/{id}/nodes/1");
        let ask =
            |calls: &Calls, method: Method, path: &str, shown: Option<&str>, fields: &[(&str, &str)]| {
                let browser = BrowserFields::of(|name| {
                    fields.iter().find(|own| own.0 == name).map(|own| own.1.as_bytes())
                });
                let shown = shown.map(str::as_bytes);
                calls.answer(Call { method: &method, shown, browser, ..get(path) }).status()
            };
        let status = |calls: &Calls, method, path: &str, fields: &[(&str, &str)]| {
            ask(calls, method, path, Some(BEARER), fields)
        };
        // A page whose own name leads to this machine.
        let rebound = [("host", "evil.example:7480"), ("sec-fetch-site", "same-origin")];
        for (method, path) in [(Method::GET, "/streams"), (Method::GET, "/"), (Method::PUT, &path)] {
            assert_eq!(status(&open, method, path, &rebound), StatusCode::FORBIDDEN, "{path}");
        }
        assert_eq!(status(&closed, Method::GET, "/streams", &rebound), StatusCode::OK, "it has the token");
        assert_eq!(status(&open, Method::GET, "/health", &rebound), StatusCode::OK);
        let host = ("host", "127.0.0.1:7480");
        for foreign in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
            let fields = [host, foreign];
            assert_eq!(status(&open, Method::DELETE, &path, &fields), StatusCode::FORBIDDEN, "{foreign:?}");
            let refused = ask(&closed, Method::DELETE, &path, None, &fields);
            assert_eq!(refused, StatusCode::UNAUTHORIZED, "{foreign:?}");
        }
        assert!(open.rs.outbound()[0].nodes.is_empty());
        assert_eq!(open.refusals.foreign_pages.load(Ordering::Relaxed), 5);
        assert_eq!(
            status(&open, Method::PUT, &path, &[host, ("origin", "http://127.0.0.1:7480")]),
            StatusCode::OK
        );
    }

    #[test]
    fn proxies_may_keep_the_host_or_put_their_own_there() {
        let (open, closed) = (calls(""), calls(TOKEN));
        let status = |calls: &Calls, shown: Option<&str>, fields: &[(&str, &str)]| {
            let browser =
                BrowserFields::of(|name| fields.iter().find(|own| own.0 == name).map(|own| own.1.as_bytes()));
            let id = calls.rs.create_stream("a").unwrap();
            let path = format!("/streams/{id}/nodes/1");
            let shown = shown.map(str::as_bytes);
            calls.answer(Call { method: &Method::PUT, shown, browser, ..get(&path) }).status()
        };
        let origin = ("origin", "http://control.example.org");
        assert_eq!(status(&open, None, &[("host", "control.example.org"), origin]), StatusCode::OK);
        // Without TLS, a browser does not say the site.
        let other = [("host", "127.0.0.1:7480"), origin];
        assert_eq!(status(&open, None, &other), StatusCode::FORBIDDEN);
        assert_eq!(status(&closed, Some(BEARER), &other), StatusCode::OK);
    }

    /// A proxy may show the page below any path.
    #[test]
    fn the_page_has_relative_addresses_only() {
        for asset in &PAGE {
            for rooted in ["=\"/", "from '/", "fetch('/", "call('/", "call(`/", "url(/"] {
                assert!(!asset.text.contains(rooted), "{}: {rooted}", asset.path);
            }
        }
    }

    #[test]
    fn no_page_shows_the_control_page_in_a_frame() {
        let answer = calls("").answer(get("/"));
        assert_eq!(answer.headers()[X_FRAME_OPTIONS], "DENY");
        assert_eq!(answer.headers()[CONTENT_SECURITY_POLICY], "frame-ancestors 'none'");
    }

    #[test]
    fn the_history_is_asked_for_from_a_moment_on() {
        let calls = calls("");
        let status = |query| calls.answer(Call { query, ..get("/history") }).status();
        assert_eq!(status(None), StatusCode::OK);
        assert_eq!(status(Some("since=1760000000000")), StatusCode::OK);
        assert_eq!(status(Some("since=yesterday")), StatusCode::BAD_REQUEST);
    }
}
