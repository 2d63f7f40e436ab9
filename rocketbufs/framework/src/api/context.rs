//! The memory and the threads of a process.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rocketnet::Transport;
use rocketnet::tcp::{Carry, ClientCertificates, Tcp, TcpConfig, Tls, TlsError, TlsSettings};
use rocketnet_rdma::{Rdma, RdmaAndTcp, RdmaConfig};

use crate::config::{Config, RdmaSettings, TcpSettings, TransportKind};
use crate::ground::lock::lock;
use crate::state::error::ContextError;
use crate::state::{ContextInner, ContextShared, EndsWithContext, Entropy, MeterClock, RateLimit, Worker};
use crate::worker::{Reactor, thread, transport_connections};

/// The memory pool, configuration and worker threads; one for each process is enough. A clone is another
/// handle. The threads stop when the last handle is dropped; an [`ROut`](crate::ROut), [`RIn`](crate::RIn),
/// [`Conn`](crate::Conn) or [`Listener`](crate::Listener) holds one too.
///
/// ```
/// use rocketbufs::{Config, Context};
/// let ctx = Context::new(Config::default())?;
/// assert_eq!(ctx.memory_in_use(), 0);
/// # Ok::<(), rocketbufs::error::ContextError>(())
/// ```
#[derive(Clone)]
pub struct Context {
    handle: Arc<Handle>,
}

/// Stops the threads when the application's last handle is dropped.
struct Handle {
    shared: Arc<ContextShared>,
    /// TLS of all workers, if it is on.
    tls: Option<Tls>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.stop(Duration::ZERO);
    }
}

impl Context {
    /// Creates the pool and starts the worker threads that the configuration asks for.
    ///
    /// # Errors
    /// The configuration is invalid, or the system refuses threads or descriptors.
    pub fn new(config: Config) -> Result<Self, ContextError> {
        config.validate().map_err(ContextError::Config)?;
        let workers = match (config.transport, config.tcp.tcp_num_threads) {
            (TransportKind::Rdma, _) => config.rdma.rdma_num_threads.max(1),
            (_, 0) => std::thread::available_parallelism().map_or(1, usize::from),
            (_, n) => n,
        };
        let entropy: Entropy = Box::new(system_entropy);
        let shared = ContextShared::new(config, workers.min(64), entropy)?;
        let inner = &shared.inner;
        let tls = tls(&inner.config).map_err(ContextError::Tls)?;
        let context = Self { handle: Arc::new(Handle { shared: shared.clone(), tls: tls.clone() }) };
        for worker in &shared.workers {
            let settings = TcpConfig { tls: tls.clone(), ..tcp_config(&inner.config) };
            let tcp = Tcp::with_maps(settings, worker.token.waker().clone(), inner.maps.clone());
            let tcp = tcp.map_err(ContextError::Transport)?;
            let thread = match inner.config.transport {
                TransportKind::Rdma => {
                    let rdma = Rdma::new(rdma_config(&inner.config), worker.token.waker().clone());
                    let both = rdma.and_then(|rdma| RdmaAndTcp::new(rdma, tcp));
                    context.spawn(worker, both.map_err(ContextError::Transport)?)?
                }
                _ => context.spawn(worker, tcp)?,
            };
            lock(&shared.threads).push(thread);
        }
        Ok(context)
    }

    /// Starts one worker with its transport.
    fn spawn<T: Transport + Send + 'static>(
        &self,
        worker: &Arc<Worker>,
        transport: T,
    ) -> Result<JoinHandle<()>, ContextError> {
        let inner = self.inner();
        let reactor = Reactor::new(self.handle.shared.clone(), worker.clone(), transport);
        let pin = inner.config.tcp.tcp_thread_pinning.then_some(worker.index);
        let lends = inner.config.tcp.inline_idle_us > 0;
        thread::spawn(reactor, worker, inner.started, pin, lends).map_err(ContextError::Thread)
    }

    /// Creates a context without threads. The caller drives its workers with [`Reactor::turn`], and supplies
    /// time and randomness.
    #[doc(hidden)]
    pub fn manual<T: Transport>(
        config: Config,
        workers: usize,
        entropy: Entropy,
        mut transport: impl FnMut(Arc<rocketring::Waker>) -> T,
    ) -> Result<(Self, Vec<Reactor<T>>), ContextError> {
        let shared = ContextShared::new(config, workers, entropy)?;
        let context = Self { handle: Arc::new(Handle { shared: shared.clone(), tls: None }) };
        let reactor = |worker: &Arc<Worker>| {
            let transport = transport(worker.token.waker().clone());
            Reactor::new(shared.clone(), worker.clone(), transport)
        };
        let reactors = shared.workers.iter().map(reactor).collect();
        Ok((context, reactors))
    }

    /// Returns the configuration in force.
    pub fn config(&self) -> &Config {
        &self.handle.shared.inner.config
    }

    /// Returns the bytes of all present rings (their capacities; memory is backed on first use).
    pub fn memory_in_use(&self) -> u64 {
        self.handle.shared.inner.pool.in_use_bytes()
    }

    /// Returns the number of mapped rings of other processes, and the sum of their capacities in bytes
    /// (transport `shm`).
    pub fn mapped(&self) -> (usize, u64) {
        self.handle.shared.inner.maps.in_use()
    }

    /// Returns the random 128-bit name of this process's endpoint, which every peer learns.
    pub fn instance(&self) -> u128 {
        self.handle.shared.inner.instance
    }

    /// Allows callbacks on application threads that wait in [`RIn::recv`](crate::RIn::recv), or for room in a
    /// buffer ([`OutBuffer::segment`](crate::OutBuffer::segment)), inside that call. Such a thread does a
    /// worker's work instead of waiting for it, which saves hand-overs between threads. Callbacks must not
    /// need anything that such a thread holds, such as a lock. Without callbacks, waiting threads always do
    /// this. With callbacks and without this call, callbacks run on worker threads only. A callback that is
    /// set while such a thread waits may run there once more, so set callbacks first.
    pub fn allow_callbacks_in_calls(&self) {
        self.handle.shared.inner.allow_callbacks_in_calls();
    }

    /// Reads the files of `[tls]` again. New connections use the new contents, and established ones go on. False if
    /// TLS is off.
    ///
    /// # Errors
    /// A file cannot be read or used. Nothing changes then.
    pub fn reload_tls(&self) -> Result<bool, TlsError> {
        let Some(tls) = &self.handle.tls else { return Ok(false) };
        tls.reload().map(|()| true)
    }

    /// Returns whether the bucket of a limit of this context's connections is full: a new limit would delay no less.
    pub fn is_rate_limit_full(&self, limit: &RateLimit) -> bool {
        limit.is_full(self.inner().now())
    }

    /// Returns the clock of the limits of this context's connections.
    #[doc(hidden)]
    pub fn meter_clock(&self) -> MeterClock {
        MeterClock::new(self.inner().started)
    }

    /// Sends BYE to every peer, gives queued data at most `grace` to leave, and stops the threads. Handles stay valid. What was
    /// received can still be taken; calls that would wait fail, and buffers take nothing more.
    pub fn shutdown(&self, grace: Duration) {
        self.handle.shared.stop(grace);
    }

    /// Tells `dependent` when this context is shut down, at once if it was.
    #[doc(hidden)]
    pub fn add_dependent(&self, dependent: Weak<dyn EndsWithContext>) {
        self.shared().add_dependent(dependent);
    }

    pub(crate) fn inner(&self) -> &Arc<ContextInner> {
        &self.handle.shared.inner
    }

    /// Returns the queues through which handles send their commands.
    pub(crate) fn shared(&self) -> &ContextShared {
        &self.handle.shared
    }

    /// Returns a reference for a callback that creates handles, and that must not keep the context alive.
    pub(crate) fn downgrade(&self) -> WeakContext {
        WeakContext(Arc::downgrade(&self.handle))
    }
}

/// A context as its own callbacks hold it: see [`Context::downgrade`].
pub(crate) struct WeakContext(Weak<Handle>);

impl WeakContext {
    /// Returns the context, unless its last handle is gone.
    pub(crate) fn upgrade(&self) -> Option<Context> {
        self.0.upgrade().map(|handle| Context { handle })
    }
}

fn system_entropy() -> u128 {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // The system's generator is not ready yet. This value is unique enough for names that only must not
        // repeat.
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        bytes =
            (time.map_or(0, |t| t.as_nanos()) ^ u128::from(std::process::id()).rotate_left(64)).to_le_bytes();
    }
    u128::from_le_bytes(bytes)
}

/// TLS as it is configured, if it is on. Reads its files.
fn tls(config: &Config) -> Result<Option<Tls>, TlsError> {
    let settings = &config.tls;
    if settings.mode != "require" {
        return Ok(None);
    }
    let path = |path: &Option<String>| path.as_ref().map(PathBuf::from);
    Tls::new(TlsSettings {
        cert: path(&settings.cert),
        key: path(&settings.key),
        ca: path(&settings.ca),
        crl: path(&settings.crl),
        client_certificates: match settings.client_certificates.as_str() {
            "require" => ClientCertificates::Require,
            "optional" => ClientCertificates::Optional,
            _ => ClientCertificates::None,
        },
        server_name: settings.server_name.clone(),
        resumption: Duration::from_secs(u64::from(settings.resumption_s)),
        max_handshakes: settings.max_handshakes,
    })
    .map(Some)
}

/// The names and numbers in `shm.server_users`.
fn server_users(config: &Config) -> Vec<String> {
    let list = config.shm.server_users.as_deref().unwrap_or_default();
    list.split(',').map(|user| user.trim().to_owned()).filter(|user| !user.is_empty()).collect()
}

fn tcp_config(config: &Config) -> TcpConfig {
    let TcpSettings {
        nodelay,
        congestion_control,
        send_buffer_bytes,
        receive_buffer_bytes,
        read_bytes,
        staging_bytes,
        tx_queue_bytes,
        backlog,
        user_timeout_ms,
        ..
    } = config.tcp.clone();
    let millis = |ms: u32| Duration::from_millis(u64::from(ms));
    TcpConfig {
        nodelay,
        congestion_control,
        send_buffer_bytes: send_buffer_bytes.map(|bytes| bytes as usize),
        receive_buffer_bytes: receive_buffer_bytes.map(|bytes| bytes as usize),
        read_bytes: read_bytes as usize,
        staging_bytes: staging_bytes as usize,
        tx_queue_bytes,
        backlog,
        user_timeout: (user_timeout_ms > 0).then(|| millis(user_timeout_ms)),
        connect_timeout: millis(config.session.connect_timeout_ms),
        max_control_bytes: config.limits.max_control_bytes as usize,
        max_connections: transport_connections(config),
        carry: match config.transport {
            TransportKind::Tcp => Carry::Tcp,
            TransportKind::Shm => Carry::Shm,
            TransportKind::Auto | TransportKind::Rdma => Carry::Auto,
        },
        other_users: config.shm.other_users,
        server_users: server_users(config),
        busy_polls: config.shm.busy_poll_us > 0,
        ..TcpConfig::default()
    }
}

fn rdma_config(config: &Config) -> RdmaConfig {
    let RdmaSettings {
        polling,
        send_depth,
        receive_depth,
        inline_bytes,
        outbox_bytes,
        tx_queue_bytes,
        ack_timeout,
        retries,
        ..
    } = config.rdma.clone();
    // The ranges of both values were checked, and fit into a byte.
    let byte = |n: u32| n.min(u32::from(u8::MAX)) as u8;
    let max_control_bytes = config.limits.max_control_bytes as usize;
    let defaults = RdmaConfig::default();
    RdmaConfig {
        send_depth,
        receive_depth,
        inline_bytes,
        outbox_bytes,
        tx_queue_bytes,
        tx_control_bytes: defaults.tx_control_bytes.max(4 * max_control_bytes),
        max_control_bytes,
        max_keys: config.limits.max_subscriptions_per_connection,
        max_connections: transport_connections(config),
        backlog: config.tcp.backlog,
        connect_timeout: Duration::from_millis(config.session.connect_timeout_ms.into()),
        ack_timeout: byte(ack_timeout),
        retries: byte(retries),
        polling,
    }
}
