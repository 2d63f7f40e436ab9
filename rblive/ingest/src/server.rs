//! Listeners, connections, and the threads that serve them.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use peers::{LogLimiter, Place, PlaceLimits, Places, Proxies};
use rblive::RsManager;
use rustls::ServerConfig;
use tls13::{Credentials, LoadError, Reloadable, SettingNames, Versions};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::access::Access;
use crate::counters::IngestCounters;
use crate::encoder::Encoder;
use crate::http_server::{self, HttpStreams};
use crate::ladder::LadderRule;
use crate::registry::Registry;
use crate::rtmp_server;
use crate::settings::IngestSettings;

/// Why the servers did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IngestError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({setting}): {error}")]
    Listen {
        /// The setting of the address.
        setting: &'static str,
        /// The address.
        address: String,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The system gave no threads.
    #[error("the system gives no threads: {0}")]
    Threads(std::io::Error),
    /// The certificate or the key cannot be used.
    #[error(transparent)]
    Certificate(#[from] LoadError),
    /// A setting of users, of the web-hook, of proxies or of ladders is wrong.
    #[error("{0}")]
    Access(String),
}

/// The protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Rtmp,
    Http,
}

/// The addresses that are listened on, with the ports that the system chose for port 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IngestAddresses {
    /// RTMP.
    pub rtmp: Option<SocketAddr>,
    /// RTMP over TLS.
    pub rtmps: Option<SocketAddr>,
    /// HTTP.
    pub http: Option<SocketAddr>,
    /// HTTPS.
    pub https: Option<SocketAddr>,
}

/// The running servers. Dropping them closes all connections; the streams end after `linger_ms`, or with the manager.
///
/// ```
/// use rblive::{Config, RsManager};
/// use rblive_ingest::{Ingest, IngestSettings};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let manager = RsManager::new(Config::default())?;
/// let settings = IngestSettings { rtmp: "127.0.0.1:0".into(), ..IngestSettings::default() };
/// let ingest = Ingest::start(manager, settings)?;
/// println!("encoders push to rtmp://{}/live/NAME", ingest.addresses().rtmp.unwrap());
/// # Ok(())
/// # }
/// ```
pub struct Ingest {
    addresses: IngestAddresses,
    registry: Arc<Registry>,
    certificates: Option<Arc<Certificates>>,
    runtime: Option<Runtime>,
}

/// The certificate of rtmps and https.
type Certificates = Reloadable<Arc<ServerConfig>>;

/// The time between two looks at the publishers.
const LOOK: Duration = Duration::from_secs(1);

/// How long an encoder may resume a session: some connect anew for each file.
const RESUMPTION: Duration = Duration::from_secs(3600);

fn certificates(settings: &IngestSettings) -> Result<Certificates, LoadError> {
    let names = SettingNames { cert: "ingest.certificate", key: "ingest.private_key", ..SettingNames::TLS };
    let file = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| path.clone());
    let (cert, key) = (file(&settings.certificate), file(&settings.private_key));
    let credentials = Credentials { cert, key, names, resumption: RESUMPTION, ..Credentials::default() };
    Reloadable::new(move || {
        let missing = || LoadError::Incomplete {
            set: "ingest.rtmps or ingest.https",
            unset: credentials.names.cert,
            reason: "a listener with TLS shows a certificate",
        };
        // Cameras, and the proxies of some distributions, speak 1.2.
        credentials.server_of(Versions::Tls12And13)?.ok_or_else(missing)
    })
}

/// State that all listeners share.
struct Shared {
    registry: Arc<Registry>,
    http: Arc<HttpStreams>,
    places: Places,
    /// Those in front of HTTP.
    proxies: Proxies,
}

impl Ingest {
    /// Starts the servers on threads of their own. Streams are created in `manager` as encoders come.
    ///
    /// # Errors
    /// [`IngestError`]; nothing listens then.
    pub fn start(manager: RsManager, settings: IngestSettings) -> Result<Self, IngestError> {
        let needs_tls = !settings.rtmps.is_empty() || !settings.https.is_empty();
        let tls = needs_tls.then(|| certificates(&settings)).transpose()?.map(Arc::new);
        let access = Access::new(&settings).map_err(IngestError::Access)?;
        let proxies = Proxies::new(&settings.proxies)
            .map_err(|wrong| IngestError::Access(format!("ingest.proxies: {wrong}")))?;
        settings.ladders.iter().try_for_each(LadderRule::check).map_err(IngestError::Access)?;
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("rblive-ingest").enable_all();
        let runtime = threads::without_signals(|| builder.build()).map_err(IngestError::Threads)?;
        if access.is_open() {
            tracing::warn!("no stream keys, users or hook are configured: whoever connects may publish");
        }
        let mut limits = PlaceLimits::new(settings.limits.connections, "ingest.limits.connections");
        if settings.limits.connections_per_address > 0 {
            limits.of_host = settings.limits.connections_per_address;
            limits.of_host_setting = "ingest.limits.connections_per_address";
        }
        let places = Places::new(limits, |line| tracing::warn!("{line}"));
        let registry = Registry::new(manager, settings.clone(), access);
        runtime.spawn(look(Arc::downgrade(&registry)));
        let http = HttpStreams::new(registry.clone(), proxies.clone());
        let shared = Arc::new(Shared { http, registry: registry.clone(), places, proxies });
        let listen = |setting, address: &str, protocol, tls| -> Result<_, IngestError> {
            if address.is_empty() {
                return Ok(None);
            }
            let refused = |error| IngestError::Listen { setting, address: address.to_owned(), error };
            let listener = runtime.block_on(TcpListener::bind(address)).map_err(refused)?;
            let bound = listener.local_addr().map_err(refused)?;
            runtime.spawn(accept(listener, shared.clone(), protocol, tls));
            Ok(Some(bound))
        };
        let addresses = IngestAddresses {
            rtmp: listen("ingest.rtmp", &settings.rtmp, Protocol::Rtmp, None)?,
            rtmps: listen("ingest.rtmps", &settings.rtmps, Protocol::Rtmp, tls.clone())?,
            http: listen("ingest.http", &settings.http, Protocol::Http, None)?,
            https: listen("ingest.https", &settings.https, Protocol::Http, tls.clone())?,
        };
        Ok(Self { addresses, registry, certificates: tls, runtime: Some(runtime) })
    }

    /// Where the servers listen.
    pub fn addresses(&self) -> IngestAddresses {
        self.addresses
    }

    /// Reads the files of the certificate again. Connections that exist keep theirs.
    ///
    /// # Errors
    /// The files cannot be used; the servers keep the certificate that they have.
    pub fn reload(&self) -> Result<(), IngestError> {
        Ok(self.certificates.as_ref().map_or(Ok(()), |own| own.reload())?)
    }

    /// Returns the counters of the servers.
    pub fn counters(&self) -> &IngestCounters {
        &self.registry.counters
    }

    /// Lists the encoders that publish, by the names of their streams.
    ///
    /// ```
    /// # use rblive::{Config, RsManager};
    /// # use rblive_ingest::{Ingest, IngestSettings};
    /// # let ingest = Ingest::start(RsManager::new(Config::default())?, IngestSettings::default())?;
    /// for encoder in ingest.encoders() {
    ///     println!("{} publishes {}: {}", encoder.address, encoder.name, encoder.media.codecs);
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn encoders(&self) -> Vec<Encoder> {
        self.registry.encoders()
    }

    /// Ends the encoder with this [number](Encoder::number), whose client may not publish the stream again for a minute. The stream waits
    /// `linger_ms` for another one. Returns the name under which the encoder published; `None`: there is no such encoder.
    pub fn end_encoder(&self, number: u64) -> Option<String> {
        let _entered = self.runtime.as_ref().map(Runtime::enter);
        self.registry.end_encoder(number)
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Looks at the publishers from time to time.
async fn look(registry: Weak<Registry>) {
    while let Some(registry) = registry.upgrade() {
        registry.look();
        drop(registry);
        sleep(LOOK).await;
    }
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    protocol: Protocol,
    tls: Option<Arc<Certificates>>,
) {
    let mut failures = LogLimiter::default();
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly. Waiting connections stay in the system's queue meanwhile.
                if let Some(more) = failures.allow(Instant::now()) {
                    tracing::warn!(more, "a connection could not be accepted: {error}");
                }
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let counters = &shared.registry.counters;
        let (now, is_proxy) = (Instant::now(), protocol == Protocol::Http && shared.proxies.has(peer.ip()));
        let places = &shared.places;
        let place = if is_proxy { places.enter_proxy(peer.ip(), now) } else { places.enter(peer.ip(), now) };
        let Ok(place) = place else {
            IngestCounters::count(&counters.turned_away, 1);
            continue;
        };
        IngestCounters::count(&counters.connections, 1);
        let (shared, tls) = (shared.clone(), tls.clone());
        tokio::spawn(async move {
            let place = Arc::new(place);
            match place.while_held(connection(socket, peer, &shared, protocol, tls, &place)).await {
                Some(Ok(())) => {}
                Some(Err(reason)) => {
                    let name = if protocol == Protocol::Rtmp { "rtmp" } else { "http" };
                    shared.registry.counters.failures.note(peer.ip(), name, &reason);
                    shared.registry.failed(&place, |more| {
                        tracing::warn!(%peer, ?protocol, more, "a connection was closed: {reason}");
                    });
                }
                None => IngestCounters::count(&shared.registry.counters.made_room, 1),
            }
        });
    }
}

async fn connection(
    socket: TcpStream,
    peer: SocketAddr,
    shared: &Shared,
    protocol: Protocol,
    tls: Option<Arc<Certificates>>,
    place: &Arc<Place>,
) -> Result<(), String> {
    // Answers are small and are waited for.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%peer, "no TCP_NODELAY: {error}");
    }
    match tls {
        None => serve(socket, peer.ip(), shared, protocol, place).await,
        Some(tls) => {
            let idle = Duration::from_millis(shared.registry.settings.limits.idle_ms);
            match timeout(idle, TlsAcceptor::from(tls.current()).accept(socket)).await {
                Ok(Ok(socket)) => serve(socket, peer.ip(), shared, protocol, place).await,
                Ok(Err(error)) => Err(format!("the TLS handshake failed: {error}")),
                Err(_) => Err("the peer did not finish the TLS handshake in time".to_owned()),
            }
        }
    }
}

async fn serve<S>(
    socket: S,
    address: IpAddr,
    shared: &Shared,
    protocol: Protocol,
    place: &Arc<Place>,
) -> Result<(), String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    match protocol {
        Protocol::Rtmp => rtmp_server::serve(socket, address, shared.registry.clone(), place)
            .await
            .map_err(|e| e.to_string()),
        Protocol::Http => http_server::serve(socket, address, shared.http.clone(), place.clone())
            .await
            .map_err(|e| e.to_string()),
    }
}
