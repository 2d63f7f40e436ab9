//! The memory and the threads of a process.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rocketnet::Transport;
use rocketnet::tcp::{Carry, Tcp, TcpConfig};
use rocketnet_rdma::{Rdma, RdmaAndTcp, RdmaConfig};

use crate::config::{Config, RdmaSettings, TcpSettings, TransportKind};
use crate::error::ContextError;
use crate::lock::lock;
use crate::state::{ContextInner, Entropy, WorkerShared};
use crate::worker::{Reactor, thread, transport_connections};

/// Memory pool, configuration and worker threads; one in a process is enough. Cloning gives another handle; when the
/// last handle (an [`ROut`](crate::ROut), [`RIn`](crate::RIn), [`Conn`](crate::Conn) or
/// [`Listener`](crate::Listener) holds one too) is dropped, the threads stop.
///
/// ```
/// use rocketbufs::{Config, Context};
/// let ctx = Context::new(Config::default())?;
/// assert_eq!(ctx.memory_in_use(), 0);
/// # Ok::<(), rocketbufs::ContextError>(())
/// ```
#[derive(Clone)]
pub struct Context {
    handle: Arc<Handle>,
}

/// Stops the threads when the last of the application's handles goes.
struct Handle {
    inner: Arc<ContextInner>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.stop(Duration::ZERO);
    }
}

impl Context {
    /// Makes the pool and starts the worker threads that the configuration asks for.
    ///
    /// # Errors
    /// If the configuration is invalid or the system refuses threads or descriptors.
    pub fn new(config: Config) -> Result<Self, ContextError> {
        config.validate().map_err(ContextError::Config)?;
        let workers = match (config.transport, config.tcp.tcp_num_threads) {
            (TransportKind::Rdma, _) => config.rdma.rdma_num_threads.max(1),
            (_, 0) => std::thread::available_parallelism().map_or(1, usize::from),
            (_, n) => n,
        };
        let entropy: Entropy = Box::new(system_entropy);
        let inner = ContextInner::new(config, workers.min(64), entropy)?;
        let context = Self { handle: Arc::new(Handle { inner: inner.clone() }) };
        for shared in &inner.workers {
            let settings = tcp_config(&inner.config);
            let tcp = Tcp::with_maps(settings, shared.token.waker().clone(), inner.maps.clone());
            let tcp = tcp.map_err(ContextError::Transport)?;
            let thread = match inner.config.transport {
                TransportKind::Rdma => {
                    let rdma = Rdma::new(rdma_config(&inner.config), shared.token.waker().clone());
                    let both = rdma.and_then(|rdma| RdmaAndTcp::new(rdma, tcp));
                    context.spawn(shared, both.map_err(ContextError::Transport)?)?
                }
                _ => context.spawn(shared, tcp)?,
            };
            lock(&inner.threads).push(thread);
        }
        Ok(context)
    }

    /// Starts one worker with its transport.
    fn spawn<T: Transport + Send + 'static>(
        &self,
        shared: &Arc<WorkerShared>,
        transport: T,
    ) -> Result<JoinHandle<()>, ContextError> {
        let inner = self.inner();
        let core = Reactor::new(inner.clone(), shared.clone(), transport);
        let pin = inner.config.tcp.tcp_thread_pinning.then_some(shared.index);
        let inline = inner.config.tcp.inline_idle_us > 0;
        thread::spawn(core, shared, (inner.started, pin, inline)).map_err(ContextError::Thread)
    }

    /// A context without threads, whose workers the caller drives with [`Reactor::turn`]; time and randomness come from
    /// outside.
    #[doc(hidden)]
    pub fn manual<T: Transport>(
        config: Config,
        workers: usize,
        entropy: Entropy,
        mut transport: impl FnMut(Arc<rocketring::Waker>) -> T,
    ) -> Result<(Self, Vec<Reactor<T>>), ContextError> {
        let inner = ContextInner::new(config, workers, entropy)?;
        let context = Self { handle: Arc::new(Handle { inner: inner.clone() }) };
        let core = |shared: &Arc<WorkerShared>| {
            let transport = transport(shared.token.waker().clone());
            Reactor::new(inner.clone(), shared.clone(), transport)
        };
        let cores = inner.workers.iter().map(core).collect();
        Ok((context, cores))
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.handle.inner.config
    }

    /// Bytes of rings that exist now (their capacities; memory is backed on first use).
    pub fn memory_in_use(&self) -> u64 {
        self.handle.inner.pool.in_use_bytes()
    }

    /// Rings of other processes that are mapped now, and the sum of their capacities in bytes (transport `shm`).
    pub fn mapped(&self) -> (usize, u64) {
        self.handle.inner.maps.in_use()
    }

    /// Random 128-bit name of this process's endpoint, told to every peer.
    pub fn instance(&self) -> u128 {
        self.handle.inner.instance
    }

    /// Allows callbacks to run on any thread of the application that waits in [`RIn::recv`](crate::RIn::recv), or for room in
    /// a buffer ([`OutBuffer::segment`](crate::OutBuffer::segment)), inside that call: such a thread then does a worker's work instead of
    /// waiting for it, which saves hand-overs between threads. Callbacks must not need what such a thread holds (a lock, say).
    /// Without callbacks it is always so; with callbacks, unless this was called, they run on worker threads only. One that is set while a thread
    /// waits so may run there once more: set callbacks first.
    pub fn allow_callbacks_in_calls(&self) {
        self.handle.inner.allow_callbacks_in_calls();
    }

    /// Says goodbye to every peer, gives what is queued at most `grace` to leave, and stops the threads.
    pub fn shutdown(&self, grace: Duration) {
        self.handle.inner.stop(grace);
    }

    pub(crate) fn inner(&self) -> &Arc<ContextInner> {
        &self.handle.inner
    }

    /// For a callback that makes handles: it must not keep the context alive.
    pub(crate) fn downgrade(&self) -> WeakContext {
        WeakContext(Arc::downgrade(&self.handle))
    }
}

/// A context as seen by a callback of its own: see [`Context::downgrade`].
pub(crate) struct WeakContext(Weak<Handle>);

impl WeakContext {
    /// The context, unless its last handle is gone.
    pub(crate) fn upgrade(&self) -> Option<Context> {
        self.0.upgrade().map(|handle| Context { handle })
    }
}

fn system_entropy() -> u128 {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // Before the system's generator is ready; unique enough for names that only must not repeat.
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        bytes =
            (time.map_or(0, |t| t.as_nanos()) ^ u128::from(std::process::id()).rotate_left(64)).to_le_bytes();
    }
    u128::from_le_bytes(bytes)
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
    // The ranges of both were checked, and end below what a byte holds.
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
