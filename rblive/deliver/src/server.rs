//! The server: threads, connections, limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use peers::{LogLimiter, PlaceLimits, Places, Proxies};
use rblive_record::Store;
use rblive_webrtc::Hub;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::addresses::{Addresses, Place, Refused};
use crate::catalog::Catalog;
use crate::counters::Counters;
use crate::elsewhere::Elsewhere;
use crate::http1;
use crate::http2;
use crate::kept::Kept;
use crate::link::{self, Link};
use crate::pages::{OFFERS_AT_ONCE, Pages};
use crate::settings::{Patience, Settings};
use crate::tls::{Certificates, TlsError, certificates};

/// The pause after a connection that the system could not accept, usually for lack of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The most threads that wait for the disk, for recordings that are not in memory, or read offers.
const MAX_DISK_THREADS: usize = 32;

/// The time between two sweeps, which remove ended streams.
const SWEEP: Duration = Duration::from_millis(500);

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server cannot listen on its address.
    #[error("cannot listen for viewers on {addr} (deliver.listen): {source}; choose another address")]
    Listen {
        /// The configured address.
        addr: String,
        /// The system's error.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An entry of `proxies` is wrong.
    #[error("deliver.proxies: {0}")]
    Proxies(String),
    /// The system refused threads.
    #[error("cannot start the threads that serve viewers: {0}")]
    Threads(io::Error),
}

/// The parts that a server works together with.
#[derive(Debug, Default)]
pub struct Setup {
    /// How long the server waits.
    pub patience: Patience,
    /// Other nodes, to which viewers are sent.
    pub elsewhere: Option<Arc<Elsewhere>>,
    /// Viewers by WebRTC, whose offers the server takes.
    pub peers: Option<Arc<Hub>>,
}

/// A running delivery server. Dropping it closes all connections.
///
/// ```
/// use std::sync::Arc;
/// use rblive_deliver::{Catalog, Server, Settings};
/// let catalog = Arc::new(Catalog::default());
/// let settings = Settings { listen: "127.0.0.1:0".into(), threads: 1, ..Settings::default() };
/// let server = Server::start(settings, catalog.clone())?;
/// println!("streams are listed at https://{}/", server.addr());
/// # Ok::<(), rblive_deliver::StartError>(())
/// ```
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    pages: Arc<Pages>,
    certificates: Arc<Certificates>,
    runtime: Option<Runtime>,
}

impl Server {
    /// Starts a server that serves the streams of `catalog`.
    ///
    /// # Errors
    /// [`StartError`]: the address is in use, the certificate cannot be read, or the system refuses threads.
    pub fn start(settings: Settings, catalog: Arc<Catalog>) -> Result<Self, StartError> {
        Self::start_with(settings, Patience::default(), catalog)
    }

    /// Starts a server that works together with other parts of a node.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub fn start_as(settings: Settings, catalog: Arc<Catalog>, setup: Setup) -> Result<Self, StartError> {
        Self::launch(settings, catalog, setup)
    }

    /// Starts a server that waits as long as `patience` says.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub fn start_with(
        settings: Settings,
        patience: Patience,
        catalog: Arc<Catalog>,
    ) -> Result<Self, StartError> {
        Self::launch(settings, catalog, Setup { patience, ..Setup::default() })
    }

    fn launch(settings: Settings, catalog: Arc<Catalog>, setup: Setup) -> Result<Self, StartError> {
        let Setup { patience, elsewhere, peers } = setup;
        let certificates = Arc::new(certificates(&settings)?);
        let proxies = Proxies::new(&settings.proxies).map_err(StartError::Proxies)?;
        let workers = match settings.threads {
            0 => std::thread::available_parallelism().map_or(1, Into::into),
            workers => workers,
        };
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder
            .worker_threads(workers)
            .max_blocking_threads(MAX_DISK_THREADS)
            .thread_name("rblive-deliver")
            .enable_all();
        let runtime = threads::without_signals(|| builder.build()).map_err(StartError::Threads)?;
        let refused = |source| StartError::Listen { addr: settings.listen.clone(), source };
        let listener = runtime.block_on(TcpListener::bind(&settings.listen)).map_err(refused)?;
        let addr = listener.local_addr().map_err(refused)?;
        let pages = {
            let kept = Kept::new(Store::new(settings.kept.clone()));
            let (counters, started) = (Counters::default(), Instant::now());
            let offers = Arc::new(Semaphore::new(OFFERS_AT_ONCE));
            Arc::new(Pages { catalog, settings, patience, counters, kept, started, elsewhere, peers, offers })
        };
        let mut limits = PlaceLimits::new(pages.settings.max_connections, "deliver.max_connections");
        limits.of_host_setting = "deliver.max_connections_per_address";
        if pages.settings.max_connections_per_address > 0 {
            limits.of_host = pages.settings.max_connections_per_address;
        }
        let places = Places::new(limits, |line| tracing::warn!("{line}"));
        let addresses = Arc::new(Addresses::new(places, pages.settings.max_requests_per_address, proxies));
        runtime.spawn(sweep(pages.clone(), addresses.clone()));
        runtime.spawn(accept(listener, pages.clone(), certificates.clone(), addresses));
        Ok(Self { addr, pages, certificates, runtime: Some(runtime) })
    }

    /// The address in use.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The bytes of media that were sent so far.
    pub fn media_bytes(&self) -> u64 {
        self.pages.counters.media_bytes.load(Ordering::Relaxed)
    }

    /// Reads the files of the certificate again. Connections that exist keep theirs.
    ///
    /// # Errors
    /// The files cannot be used; the server keeps the certificate that it has.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.certificates.reload()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Ends streams whose sources do not return, and removes streams some time after their end. Removes addresses without connections.
async fn sweep(pages: Arc<Pages>, addresses: Arc<Addresses>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        addresses.sweep();
        let linger = Duration::from_millis(pages.settings.linger_ms);
        pages.catalog.sweep(pages.settings.keep_ended, linger);
    }
}

async fn accept(
    listener: TcpListener,
    pages: Arc<Pages>,
    certificates: Arc<Certificates>,
    addresses: Arc<Addresses>,
) {
    let (mut failures, mut too_often) = (LogLimiter::default(), LogLimiter::default());
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(more) = failures.allow(Instant::now()) {
                    tracing::warn!(more, "cannot accept a viewer's connection: {error}; trying again soon");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let place = match addresses.place(peer.ip()) {
            Ok(place) => place,
            Err(why) => {
                Counters::add(&pages.counters.refused);
                if why == Refused::TooOften
                    && let Some(more) = too_often.allow(Instant::now())
                {
                    let address = peer.ip();
                    tracing::warn!(%address, more, "a connection was refused, as deliver.max_requests_per_address says");
                }
                continue;
            }
        };
        Counters::add(&pages.counters.connections);
        let (pages, config) = (pages.clone(), certificates.current());
        tokio::spawn(async move {
            Counters::add(&pages.counters.open);
            // Small answers leave at once. Where that cannot be set, they leave a little later.
            let _ = stream.set_nodelay(true);
            let held = place.place.clone();
            if held.while_held(serve(stream, config, &pages, place)).await.is_none() {
                Counters::add(&pages.counters.made_room);
            }
            pages.counters.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn serve(socket: TcpStream, tls: Option<Arc<ServerConfig>>, pages: &Arc<Pages>, mut place: Place) {
    place.reached = socket.local_addr().ok().map(|own| own.ip());
    let (link, is_http2) = match tls {
        None => (Link::plain(socket), false),
        Some(config) => match timeout(pages.patience.head, link::accept(socket, config)).await {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(error)) => {
                tracing::debug!("a viewer's TLS handshake failed: {error}");
                return Counters::add(&pages.counters.handshakes_failed);
            }
            Err(_) => return Counters::add(&pages.counters.handshakes_failed),
        },
    };
    let served = match is_http2 {
        true => http2::serve(link, pages.clone(), place).await,
        false => http1::serve(link, pages, place).await,
    };
    if let Err(error) = served {
        tracing::debug!("a viewer's connection ended: {error}");
    }
}
