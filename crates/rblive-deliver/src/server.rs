//! The server: threads, connections, limits.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::catalog::Catalog;
use crate::counters::Counters;
use crate::http1::{self, Wire};
use crate::http2;
use crate::pages::Pages;
use crate::settings::Settings;
use crate::tls::{Certificates, TlsError};

/// The pause after a connection that the system could not accept, usually for lack of descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The time between two looks for streams that ended.
const SWEEP: Duration = Duration::from_millis(500);

/// Encrypted bytes that wait for the socket. A piece and the head of its answer fit into it.
const TLS_BUFFER: usize = 256 << 10;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server cannot listen on its address.
    #[error("cannot listen for viewers on {addr}: {source}; choose another address")]
    Listen {
        /// The configured address.
        addr: String,
        /// The system's error.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system refused threads.
    #[error("cannot start the threads that serve viewers: {0}")]
    Threads(io::Error),
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
    certificates: Arc<Certificates>,
    runtime: Option<Runtime>,
}

impl Server {
    /// Starts a server that serves the streams of `catalog`.
    ///
    /// # Errors
    /// [`StartError`]: the address is in use, the certificate cannot be read, or the system refuses threads.
    pub fn start(settings: Settings, catalog: Arc<Catalog>) -> Result<Self, StartError> {
        let certificates = Arc::new(Certificates::load(settings.tls.clone())?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(settings.threads.max(1))
            .thread_name("rblive-deliver")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let refused = |source| StartError::Listen { addr: settings.listen.clone(), source };
        let listener = runtime.block_on(TcpListener::bind(&settings.listen)).map_err(refused)?;
        let addr = listener.local_addr().map_err(refused)?;
        let pages = Arc::new(Pages { catalog, settings, counters: Counters::default() });
        runtime.spawn(sweep(pages.clone()));
        runtime.spawn(accept(listener, pages, certificates.clone()));
        Ok(Self { addr, certificates, runtime: Some(runtime) })
    }

    /// The address in use.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Reads the files of the certificate again. Connections that exist keep theirs.
    ///
    /// # Errors
    /// The files cannot be used; the server goes on with what it has.
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

/// Removes streams some time after their end.
async fn sweep(pages: Arc<Pages>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        pages.catalog.sweep(pages.settings.keep_ended);
    }
}

/// The connections of each address.
type Addresses = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// A connection's place in the table of addresses.
struct Place(Addresses, IpAddr);

impl Place {
    fn take(addresses: &Addresses, addr: IpAddr, most: usize) -> Option<Self> {
        let mut table = addresses.lock();
        let count = table.entry(addr).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Self(addresses.clone(), addr))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.0.lock();
        if let Some(count) = table.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                table.remove(&self.1);
            }
        }
    }
}

async fn accept(listener: TcpListener, pages: Arc<Pages>, certificates: Arc<Certificates>) {
    let slots = Arc::new(Semaphore::new(pages.settings.max_connections.min(Semaphore::MAX_PERMITS)));
    let addresses = Addresses::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("cannot accept a viewer's connection: {error}; trying again soon");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let place = Place::take(&addresses, peer.ip(), pages.settings.max_connections_per_address);
        let (Some(place), Ok(slot)) = (place, slots.clone().try_acquire_owned()) else {
            Counters::add(&pages.counters.refused);
            continue;
        };
        Counters::add(&pages.counters.connections);
        let (pages, config) = (pages.clone(), certificates.current());
        tokio::spawn(async move {
            Counters::add(&pages.counters.open);
            // Small answers leave at once. Where that cannot be set, they leave a little later.
            let _ = stream.set_nodelay(true);
            serve(stream, config.map(TlsAcceptor::from), &pages).await;
            pages.counters.open.fetch_sub(1, Ordering::Relaxed);
            drop((slot, place));
        });
    }
}

async fn serve(stream: TcpStream, tls: Option<TlsAcceptor>, pages: &Arc<Pages>) {
    let Some(acceptor) = tls else {
        if let Err(error) = http1::serve(Wire::Plain(stream, Vec::new()), pages).await {
            tracing::debug!("a viewer's connection ended: {error}");
        }
        return;
    };
    let mut stream = match timeout(pages.settings.head_timeout, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        _ => return Counters::add(&pages.counters.handshakes_failed),
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        if let Err(error) = http2::serve(stream, pages.clone()).await {
            tracing::debug!("a viewer's connection ended: {error}");
        }
        return;
    }
    stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
    if let Err(error) = http1::serve(Wire::Tls(Box::new(stream)), pages).await {
        tracing::debug!("a viewer's connection ended: {error}");
    }
}
