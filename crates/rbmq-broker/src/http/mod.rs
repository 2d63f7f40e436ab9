//! The HTTP endpoint of a broker: metrics, health, topics.
//!
//! ```text
//!   scraper ──▶ the endpoint's thread: hyper on a runtime of one thread
//!                 ├─ /metrics ─▶ a request to the broker's thread for its tables; positions are read directly
//!                 ├─ /health, /ready
//!                 └─ /topics
//! ```
//!
//! The metrics cost nothing per message. A scrape visits the existing topics, buffers and subscriptions, and asks the subscribers
//! that have not confirmed everything for their positions. A client must send its request within a time-out, and a connection
//! lives at most [`MAX_CONNECTION_TIME`]. There are at most `http.max_connections` connections.

mod metrics;
mod pages;
mod process;
mod token;

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rocketnet::LogLimiter;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

use crate::{HttpSettings, Watch};
use pages::{Counters, Pages};
use token::Token;

/// The longest life of a connection. A client that reads an answer more slowly is disconnected.
pub const MAX_CONNECTION_TIME: Duration = Duration::from_secs(60);

/// The largest head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// The largest number of fields in the head of a request.
const MAX_HEADERS: usize = 64;

/// The pause after a connection that the system could not accept, usually for lack of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// Why an endpoint cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The endpoint cannot listen on its address.
    #[error("cannot listen for HTTP on {addr}: {source}; choose another address (http.listen, --http)")]
    Listen {
        /// The configured address.
        addr: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The token cannot be used.
    #[error("cannot use the token of http.token_file, {path}: {source}")]
    Token {
        /// The configured file.
        path: String,
        /// The problem.
        source: std::io::Error,
    },
    /// The system refused a thread or descriptors.
    #[error("cannot start the HTTP endpoint: {0}")]
    Start(std::io::Error),
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
#[derive(Debug)]
pub struct Endpoint {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Starts an endpoint on `settings.listen`.
    ///
    /// # Errors
    /// The address is in use or not an address of this machine, or the system refuses a thread.
    pub fn start(watch: Watch, settings: &HttpSettings) -> Result<Self, EndpointError> {
        Self::start_with_log(watch, settings, Arc::default())
    }

    /// As [`Endpoint::start`], for a program that drops lines of its log when their reader is slow. The program counts the
    /// dropped lines in `dropped` (metric `rbmq_log_lines_dropped_total`).
    ///
    /// # Errors
    /// As for [`Endpoint::start`].
    pub fn start_with_log(
        watch: Watch,
        settings: &HttpSettings,
        dropped: Arc<AtomicU64>,
    ) -> Result<Self, EndpointError> {
        let path = &settings.token_file;
        let token =
            Token::read(path).map_err(|source| EndpointError::Token { path: path.clone(), source })?;
        let refused = |source| EndpointError::Listen { addr: settings.listen.clone(), source };
        let listener = TcpListener::bind(&settings.listen).map_err(refused)?;
        listener.set_nonblocking(true).map_err(EndpointError::Start)?;
        let addr = listener.local_addr().map_err(EndpointError::Start)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(EndpointError::Start)?;
        let (stop, stopped) = oneshot::channel();
        let settings = settings.clone();
        let serve = move || {
            runtime.block_on(async move {
                tokio::spawn(accept(listener, (watch, token), settings, dropped));
                // A dropped sender stops the endpoint too.
                let _ = stopped.await;
            });
        };
        let thread = std::thread::Builder::new().name("rbmq-http".into()).spawn(serve);
        let thread = thread.map_err(EndpointError::Start)?;
        Ok(Self { addr, stop: Some(stop), thread: Some(thread) })
    }

    /// The address in use.
    pub fn addr(&self) -> SocketAddr {
        self.addr
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

async fn accept(
    listener: TcpListener,
    (watch, token): (Watch, Token),
    settings: HttpSettings,
    dropped: Arc<AtomicU64>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("the HTTP endpoint cannot start: {error}"),
    };
    let slots = Arc::new(Semaphore::new(settings.max_connections));
    let counters = Arc::new(Counters { log_lines_dropped: dropped, ..Counters::default() });
    let pages = Arc::new(Pages::new((watch, token), counters.clone()));
    let mut refusals = LogLimiter::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if let Some(more) = refusals.allow(Instant::now()) {
                    tracing::warn!(more, "cannot accept an HTTP connection: {error}; trying again soon");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            counters.refused_connections.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let (pages, timeout) = (pages.clone(), settings.header_timeout());
        tokio::spawn(async move {
            // After an error or a time-out the connection is closed, and nothing else is to do.
            let _ = tokio::time::timeout(MAX_CONNECTION_TIME, serve(stream, pages, timeout)).await;
            drop(slot);
        });
    }
}

async fn serve(stream: TcpStream, pages: Arc<Pages>, header_timeout: Duration) {
    let service = service_fn(move |request| {
        let answer = pages.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
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
