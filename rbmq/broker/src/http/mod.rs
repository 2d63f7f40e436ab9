//! The HTTP endpoint of a broker: metrics, health, topics, over HTTP or HTTPS.
//!
//! ```text
//!   scraper ──▶ the endpoint's thread: TLS, then hyper, on a runtime of one thread
//!                 ├─ /metrics ─▶ a request to the broker's thread for its tables; positions are read directly
//!                 ├─ /health, /ready
//!                 ├─ /topics
//!                 └─ /ui, /api/v1 ─▶ work that takes long is done on a second thread
//! ```
//!
//! The metrics cost nothing per message. A scrape visits the existing topics, buffers and subscriptions, and asks the subscribers
//! that have not confirmed everything for their positions. A client must make its handshake and send its request within time-outs, and
//! a connection lives at most [`MAX_CONNECTION_TIME`]. A client that shows a certificate gets the pages that its user may see
//! (`observation.rs`). The endpoint has at most `http.max_connections` connections. Where there is no room for
//! another one, one makes room that was given no page yet ([`Places`]).

mod answer;
mod console;
mod door;
mod metrics;
mod pages;
mod process;
#[cfg(not(feature = "https"))]
#[path = "no_tls.rs"]
mod tls;
#[cfg(feature = "https")]
mod tls;
mod token;

use std::convert::Infallible;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use access::TokenRefused;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use locks::Mutex;
use peers::{BrowserFields, ForeignPage, LogLimiter, PlaceLimits, Places};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::{BrokerConfig, HttpSettings, Watch};
use answer::Answer;
use console::Console;
pub use console::{ConsolePublisher, NotPublished, Publishing, ReloadCheck, Reloading};
use door::{Client, Door};
pub use door::{EndpointError, MAX_CONNECTION_TIME};
use pages::{Counters, Denied, Pages};
use tls::Tls;

/// The largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// The largest number of fields in the head of a request.
const MAX_HEADERS: usize = 64;

/// The first byte of a client that speaks TLS: the type of a record of the handshake.
const HANDSHAKE: u8 = 22;

/// The pause after a connection that the system could not accept, usually for lack of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// The parts that a program gives to an endpoint, beside the settings.
#[derive(Clone, Default)]
pub struct EndpointParts {
    /// The lines of its log that the program has dropped because their reader is slow (metric `rbmq_log_lines_dropped_total`).
    pub log_lines_dropped: Arc<AtomicU64>,
    /// Publishers for the users of the console, where `http.console` is `"write"`. None: nobody publishes there.
    pub publishing: Option<Arc<dyn Publishing>>,
    /// Reloads of the configuration, which the console shows before it asks for one. None: the console has neither.
    pub reloading: Option<Arc<dyn Reloading>>,
}

/// A running endpoint. Dropping it stops the endpoint.
///
/// ```
/// use rbmq_broker::http::Endpoint;
/// # use rbmq_broker::{Broker, BrokerConfig};
/// # let mut config = BrokerConfig::default();
/// # config.broker.listen = "127.0.0.1:0".into();
/// config.http.listen = "127.0.0.1:0".into();
/// let broker = Broker::start(config)?;
/// let endpoint = Endpoint::start(broker.watch(), &broker.config().http)?;
/// println!("metrics on http://{}/metrics", endpoint.addr());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Endpoint {
    addr: SocketAddr,
    door: Arc<Door>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Starts an endpoint on `settings.listen`.
    ///
    /// # Errors
    /// The address is in use or not an address of this machine, or the system refuses a thread.
    pub fn start(watch: Watch, settings: &HttpSettings) -> Result<Self, EndpointError> {
        Self::start_with(watch, settings, EndpointParts::default())
    }

    /// As [`Endpoint::start`], with parts of the program's own.
    ///
    /// # Errors
    /// As for [`Endpoint::start`].
    pub fn start_with(
        watch: Watch,
        settings: &HttpSettings,
        parts: EndpointParts,
    ) -> Result<Self, EndpointError> {
        let door = Arc::new(Door::open(&watch, settings)?);
        let refused = |source| EndpointError::Listen { addr: settings.listen.clone(), source };
        let listener = TcpListener::bind(&settings.listen).map_err(refused)?;
        listener.set_nonblocking(true).map_err(EndpointError::Start)?;
        let addr = listener.local_addr().map_err(EndpointError::Start)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_name("rbmq-console")
            .build()
            .map_err(EndpointError::Start)?;
        let (stop, stopped) = oneshot::channel();
        let EndpointParts { log_lines_dropped, publishing, reloading } = parts;
        let counters = Arc::new(Counters { log_lines_dropped, ..Counters::default() });
        let console = Console::open(watch.clone(), door.clone(), settings, publishing, reloading)
            .map_err(EndpointError::Start)?;
        let pages = Arc::new(Pages::new(watch, counters.clone(), console.is_some()));
        let shared = Arc::new(Shared {
            door: door.clone(),
            pages,
            console,
            counters,
            places: Places::new(PlaceLimits::new(settings.max_connections, "http.max_connections"), |line| {
                tracing::warn!("HTTP endpoint: {line}")
            }),
            failures: Mutex::default(),
            refusals: Mutex::default(),
        });
        let settings = settings.clone();
        let serve = move || {
            runtime.block_on(async move {
                if let Some(console) = &shared.console {
                    tokio::spawn(console.clone().forget());
                }
                tokio::spawn(accept(listener, shared, settings));
                // A dropped sender stops the endpoint too.
                let _ = stopped.await;
            });
            // Nobody waits for the work of the console, which may wait for the broker's thread.
            runtime.shutdown_background();
        };
        let thread = threads::spawn("rbmq-http", serve);
        let thread = thread.map_err(EndpointError::Start)?;
        Ok(Self { addr, door, stop: Some(stop), thread: Some(thread) })
    }

    /// The address in use.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Whether the endpoint speaks HTTPS.
    pub fn is_encrypted(&self) -> bool {
        self.door.tls.is_some()
    }

    /// Reads the token and the certificates again, for new requests and new connections.
    ///
    /// # Errors
    /// A file cannot be used. Nothing changes then.
    pub fn reload(&self) -> Result<(), EndpointError> {
        self.door.reload()
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("addr", &self.addr).finish_non_exhaustive()
    }
}

/// Whether the endpoint of a configuration is encrypted, after a look at its certificates.
///
/// # Errors
/// [`EndpointError::Tls`]: the files cannot be used, and the endpoint would not start.
pub fn check_certificates(config: &BrokerConfig) -> Result<bool, EndpointError> {
    let tls = Tls::open(&config.http, &config.framework.tls).map_err(EndpointError::Tls)?;
    Ok(tls.is_some())
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

/// The state that the connections of an endpoint share.
struct Shared {
    door: Arc<Door>,
    pages: Arc<Pages>,
    /// None: there is none.
    console: Option<Arc<Console>>,
    counters: Arc<Counters>,
    places: Places,
    /// Limits the lines about failed handshakes.
    failures: Mutex<LogLimiter>,
    /// Limits the lines about refused clients.
    refusals: Mutex<LogLimiter>,
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, settings: HttpSettings) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("the HTTP endpoint cannot start: {error}"),
    };
    let mut refusals = LogLimiter::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(more) = refusals.allow(Instant::now()) {
                    tracing::warn!(more, "cannot accept an HTTP connection: {error}; trying again soon");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let place = shared.places.enter(peer.ip(), Instant::now());
        let counts = shared.places.counts();
        let refused = counts.turned_away + counts.made_room;
        shared.counters.refused_connections.store(refused, Ordering::Relaxed);
        let Ok(place) = place else { continue };
        let (own, timeout) = (shared.clone(), settings.header_timeout());
        tokio::spawn(async move {
            let client = Client { place: &place, addr: peer, certificate: None };
            let served = tokio::time::timeout(MAX_CONNECTION_TIME, own.serve(stream, client, timeout));
            // After an error or a time-out, or to make room, the connection is closed, and nothing else is to do.
            let _ = place.while_held(served).await;
        });
    }
}

impl Shared {
    async fn serve(&self, stream: TcpStream, client: Client<'_>, header_timeout: Duration) {
        let peer = client.addr;
        let Some(tls) = &self.door.tls else {
            let answering = |request| self.answer(request, &client);
            return answer(stream, answering, header_timeout).await;
        };
        let handshake = async {
            let mut first = [0];
            match stream.peek(&mut first).await {
                Ok(1) if first != [HANDSHAKE] => Ok(Err(stream)),
                _ => tls.accept(stream).await.map(Ok),
            }
        };
        match tokio::time::timeout(header_timeout, handshake).await {
            Ok(Ok(Ok(stream))) => {
                let client = Client { certificate: tls::certificate(&stream), ..client };
                answer(stream, |request| self.answer(request, &client), header_timeout).await;
            }
            // A client without TLS is told so, in what it speaks.
            Ok(Ok(Err(stream))) => answer(stream, |_| async { pages::only_https() }, header_timeout).await,
            Ok(Err(error)) => self.log_failure(peer, &error.to_string()),
            Err(_) => self.log_failure(peer, "the client did not complete it in time"),
        }
    }

    async fn answer(&self, request: hyper::Request<Incoming>, client: &Client<'_>) -> Answer {
        match &self.console {
            Some(console) if Console::has(request.uri().path()) => {
                self.counters.requests.fetch_add(1, Ordering::Relaxed);
                match self.admit_to_console(&request, client) {
                    Ok(()) => console.answer(request, client).await,
                    Err(denied) => pages::refused(denied),
                }
            }
            _ => self.pages.answer(&request, self.admit(&request, client)),
        }
    }

    /// The console decides for itself who may have what. A foreign page learns nothing of a broker that asks nobody for anything.
    fn admit_to_console<B>(&self, request: &hyper::Request<B>, client: &Client<'_>) -> Result<(), Denied> {
        if self.door.token.lock().is_set() {
            return Ok(());
        }
        self.check_name(request).map_err(|foreign| {
            self.log_refusal(client.addr, &foreign.to_string());
            Denied::Page(foreign)
        })
    }

    /// Decides whether a client may have a page. The token is asked for first, if there is one, and then the right of the certificate's
    /// user. Without a certificate the token is enough.
    fn admit<B>(&self, request: &hyper::Request<B>, client: &Client<'_>) -> Result<(), Denied> {
        let (shown, is_asked) = {
            let token = self.door.token.lock();
            (token.check(request, client.addr), token.is_set())
        };
        if let Err(refused) = shown {
            self.count_refusal(client.addr, refused);
            return Err(Denied::Token(refused));
        }
        if !is_asked && !pages::is_probe(request.uri().path()) {
            self.check_name(request).map_err(|foreign| {
                self.log_refusal(client.addr, &foreign.to_string());
                Denied::Page(foreign)
            })?;
        }
        let by_token = is_asked && client.certificate.is_none();
        if let Some(observation) = self.door.observation.as_ref().filter(|_| !by_token) {
            // Probes stay unauthenticated, so that they take no place from a client with the right.
            if pages::is_probe(request.uri().path()) {
                return Ok(());
            }
            observation.check(client.addr, client.certificate.clone()).map_err(|denied| {
                self.log_refusal(client.addr, &denied.for_log);
                Denied::Right(denied.for_client)
            })?;
        }
        client.place.known();
        Ok(())
    }

    /// Refuses the request of a page whose own name leads to this endpoint. With TLS its browser has refused the certificate.
    fn check_name<B>(&self, request: &hyper::Request<B>) -> Result<(), ForeignPage> {
        let fields = BrowserFields::of(|name| request.headers().get(name).map(|value| value.as_bytes()));
        match self.door.tls {
            Some(_) => Ok(()),
            None => fields.check_name(self.door.names.iter().map(String::as_str), "add it to http.names"),
        }
    }

    /// A client that shows no token guesses nothing: that is how browsers begin.
    fn count_refusal(&self, peer: SocketAddr, refused: TokenRefused) {
        if refused != TokenRefused::Missing {
            self.counters.wrong_tokens.fetch_add(1, Ordering::Relaxed);
            self.log_refusal(peer, &refused.to_string());
        }
    }

    fn log_refusal(&self, peer: SocketAddr, why: &str) {
        if let Some(more) = self.refusals.lock().allow(Instant::now()) {
            tracing::warn!(more, %peer, "refused at the HTTP endpoint: {why}");
        }
    }

    fn log_failure(&self, peer: SocketAddr, why: &str) {
        if let Some(more) = self.failures.lock().allow(Instant::now()) {
            tracing::warn!(more, %peer, "a TLS handshake at the HTTP endpoint failed: {why}");
        }
    }
}

/// Answers the requests of a connection.
async fn answer<S: AsyncRead + AsyncWrite + Unpin, F: Future<Output = Answer>>(
    stream: S,
    page: impl Fn(hyper::Request<Incoming>) -> F,
    header_timeout: Duration,
) {
    let service = service_fn(|request| {
        let answer = page(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("an HTTP connection ended: {error}");
    }
}
