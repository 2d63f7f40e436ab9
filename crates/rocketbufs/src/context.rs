//! The memory and the threads of a process.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rocketnet::Transport;
use rocketnet::tcp::{Carry, Tcp, TcpConfig};
use rocketnet_rdma::{Rdma, RdmaAndTcp, RdmaConfig};
use rocketring::{PeerMapper, Pool, PoolConfig, PoolError, Ring, RingConfig};

use crate::callback::Callback;
use crate::config::{Config, RdmaSettings, TcpSettings, TransportKind};
use crate::core::incoming::transport_connections;
use crate::core::{Command, Core};
use crate::error::ContextError;
use crate::lock::lock;
use crate::rout::ROutShared;
use crate::types::Nanos;
use crate::worker::{self, WorkerShared};

/// Where a context gets random numbers from: the system, or a seed in the simulator.
pub(crate) type Entropy = Box<dyn FnMut() -> u128 + Send>;

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
    pub(crate) handle: Arc<Handle>,
}

/// Stops the threads when the last of the application's handles goes.
pub(crate) struct Handle {
    pub(crate) inner: Arc<ContextInner>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.inner.stop(Duration::ZERO);
    }
}

/// What the workers share with the handles.
pub(crate) struct ContextInner {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    /// What of other processes' memory is mapped.
    pub(crate) maps: PeerMapper,
    pub(crate) instance: u128,
    pub(crate) workers: Vec<Arc<WorkerShared>>,
    pub(crate) routs: Mutex<Vec<Weak<ROutShared>>>,
    slots: Mutex<Slots>,
    entropy: Mutex<Entropy>,
    next_conn: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stopping: AtomicBool,
    /// How many callbacks are set.
    callbacks: AtomicUsize,
    callbacks_in_calls: AtomicBool,
    /// There was a subscription that loses something if what comes for it is not read at once.
    keeps_up: AtomicBool,
    /// Where the workers' time begins.
    started: Instant,
}

/// Numbers of things that can be pending on a worker (buffers and inbound subscriptions).
#[derive(Default)]
struct Slots {
    free: Vec<u32>,
    used: u32,
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
        let core = Core::new(inner.clone(), shared.clone(), Arc::downgrade(&self.handle), transport);
        let pin = inner.config.tcp.tcp_thread_pinning.then_some(shared.index);
        let inline = inner.config.tcp.inline_idle_us > 0;
        worker::spawn(core, shared, (inner.started, pin, inline)).map_err(ContextError::Thread)
    }

    /// A context without threads, whose workers the caller drives with [`Core::turn`]; time and randomness come from
    /// outside.
    #[doc(hidden)]
    pub fn manual<T: Transport>(
        config: Config,
        workers: usize,
        entropy: Entropy,
        mut transport: impl FnMut(Arc<rocketring::Waker>) -> T,
    ) -> Result<(Self, Vec<Core<T>>), ContextError> {
        let inner = ContextInner::new(config, workers, entropy)?;
        let context = Self { handle: Arc::new(Handle { inner: inner.clone() }) };
        let core = |shared: &Arc<WorkerShared>| {
            let transport = transport(shared.token.waker().clone());
            Core::new(inner.clone(), shared.clone(), Arc::downgrade(&context.handle), transport)
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
    /// a buffer ([`Blocking::For`](crate::Blocking::For)), inside that call: such a thread then does a worker's work instead of
    /// waiting for it, which saves hand-overs between threads. Callbacks must not need what such a thread holds (a lock, say).
    /// Without callbacks it is always so; with callbacks, unless this was called, they run on worker threads only. One that is set while a thread
    /// waits so may run there once more: set callbacks first.
    pub fn allow_callbacks_in_calls(&self) {
        self.handle.inner.callbacks_in_calls.store(true, Ordering::Relaxed);
    }

    /// Says goodbye to every peer, gives what is queued at most `grace` to leave, and stops the threads.
    pub fn shutdown(&self, grace: Duration) {
        self.handle.inner.stop(grace);
    }

    pub(crate) fn inner(&self) -> &Arc<ContextInner> {
        &self.handle.inner
    }
}

impl ContextInner {
    fn new(config: Config, workers: usize, mut entropy: Entropy) -> Result<Arc<Self>, ContextError> {
        let pool = Pool::new(PoolConfig {
            reservation_bytes: config.buffers.reservation_bytes,
            max_bytes: config.buffers.max_ring_bytes,
        })
        .map_err(ContextError::Memory)?;
        let maps = PeerMapper::new(config.shm.max_shared_rings, config.shm.max_shared_bytes);
        let slots = config.limits.max_buffers;
        let workers = (0..workers)
            .map(|index| WorkerShared::new(index, slots).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(ContextError::Thread)?;
        let instance = entropy();
        Ok(Arc::new(Self {
            config,
            pool,
            maps,
            instance,
            workers,
            routs: Mutex::default(),
            slots: Mutex::default(),
            entropy: Mutex::new(entropy),
            next_conn: AtomicU64::new(1),
            threads: Mutex::default(),
            stopping: AtomicBool::new(false),
            callbacks: AtomicUsize::new(0),
            callbacks_in_calls: AtomicBool::new(false),
            keeps_up: AtomicBool::new(false),
            started: Instant::now(),
        }))
    }

    /// A ring that others may subscribe to: where they may be on this machine, in memory that they can map.
    pub(crate) fn ring_for_others(&self, config: RingConfig) -> Result<Ring, PoolError> {
        match self.config.transport {
            TransportKind::Tcp => self.pool.ring(config),
            TransportKind::Shm | TransportKind::Auto | TransportKind::Rdma => self.pool.shared_ring(config),
        }
    }

    /// The workers' time, where there are threads: for what is shown to people.
    pub(crate) fn now(&self) -> Nanos {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Sets a callback of the application: its threads that do a worker's work stop doing that, unless callbacks may run
    /// there.
    pub(crate) fn set_callback<F: ?Sized>(&self, place: &Callback<F>, callback: Box<F>) {
        // Counted first: no thread of the application runs the callback by mistake.
        self.callbacks.fetch_add(1, Ordering::Relaxed);
        self.look_who_drives();
        if place.set(callback) {
            self.callbacks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes a callback of the application, and waits for a call that runs on another thread.
    pub(crate) fn unset_callback<F: ?Sized>(&self, place: &Callback<F>) {
        if place.unset() {
            self.callbacks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// There is a subscription with another policy than `block`: whoever does a worker's work and then has its own to do
    /// reads nothing meanwhile, for none of the worker's connections, which costs such a subscription.
    pub(crate) fn note_keeps_up(&self) {
        self.keeps_up.store(true, Ordering::Relaxed);
        self.look_who_drives();
    }

    /// What [`ContextInner::may_drive`] says has changed, before this: whoever works and may not any more sees it.
    fn look_who_drives(&self) {
        if !self.may_drive() {
            self.workers.iter().for_each(|worker| worker.token.wake());
        }
    }

    /// Whether a callback is set.
    pub(crate) fn has_callbacks(&self) -> bool {
        self.callbacks.load(Ordering::Relaxed) > 0
    }

    /// Whether a thread that waits may do a worker's work, callbacks included.
    pub(crate) fn may_drive(&self) -> bool {
        let callbacks = !self.has_callbacks() || self.callbacks_in_calls.load(Ordering::Relaxed);
        callbacks && !self.keeps_up.load(Ordering::Relaxed)
    }

    pub(crate) fn random(&self) -> u128 {
        (lock(&self.entropy))()
    }

    /// A new connection's number and the worker that will own it: workers take turns.
    pub(crate) fn place_conn(&self) -> (u64, usize) {
        let id = self.next_conn.fetch_add(1, Ordering::Relaxed);
        (id, self.worker_of(id))
    }

    /// The worker that owns a connection.
    pub(crate) fn worker_of(&self, conn: u64) -> usize {
        (conn as usize) % self.workers.len()
    }

    /// A number under which something can be pending; none if `max_buffers` are in use.
    pub(crate) fn take_slot(&self) -> Option<u32> {
        let mut slots = lock(&self.slots);
        slots.free.pop().or_else(|| {
            let slot = slots.used;
            ((slot as usize) < self.config.limits.max_buffers).then(|| {
                slots.used += 1;
                slot
            })
        })
    }

    pub(crate) fn free_slot(&self, slot: u32) {
        lock(&self.slots).free.push(slot);
    }

    fn stop(&self, grace: Duration) {
        if self.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        for worker in &self.workers {
            worker.send(Command::Shutdown { grace });
        }
        // A callback that drops the last handle runs on a worker, which cannot wait for itself.
        if worker::is_worker() {
            return;
        }
        for thread in lock(&self.threads).drain(..) {
            // A worker that panicked has already told why.
            let _ = thread.join();
        }
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
