//! What the handles of a context share with its workers.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rocketring::{PeerMapper, Pool, PoolConfig, PoolError, Ring, RingConfig};

use super::{Command, ROutShared, WorkerShared, is_worker};
use crate::callback::Callback;
use crate::config::{Config, TransportKind};
use crate::error::ContextError;
use crate::lock::lock;
use crate::types::Nanos;

/// Where a context gets random numbers from: the system, or a seed in the simulator.
pub(crate) type Entropy = Box<dyn FnMut() -> u128 + Send>;

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
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    stopping: AtomicBool,
    /// How many callbacks are set.
    callbacks: AtomicUsize,
    callbacks_in_calls: AtomicBool,
    /// There was a subscription that loses something if what comes for it is not read at once.
    keeps_up: AtomicBool,
    /// Where the workers' time begins.
    pub(crate) started: Instant,
}

/// Numbers of things that can be pending on a worker (buffers and inbound subscriptions).
#[derive(Default)]
struct Slots {
    free: Vec<u32>,
    used: u32,
}

impl ContextInner {
    pub(crate) fn new(
        config: Config,
        workers: usize,
        mut entropy: Entropy,
    ) -> Result<Arc<Self>, ContextError> {
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

    /// Callbacks may run on a thread of the application that does a worker's work.
    pub(crate) fn allow_callbacks_in_calls(&self) {
        self.callbacks_in_calls.store(true, Ordering::Relaxed);
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

    pub(crate) fn stop(&self, grace: Duration) {
        if self.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        for worker in &self.workers {
            worker.send(Command::Shutdown { grace });
        }
        // A callback that drops the last handle runs on a worker, which cannot wait for itself.
        if is_worker() {
            return;
        }
        for thread in lock(&self.threads).drain(..) {
            // A worker that panicked has already told why.
            let _ = thread.join();
        }
    }
}
