//! The state that all objects of a context share: the configuration, the memory, and the ways to the workers.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rocketring::{PeerMapper, Pool, PoolConfig, PoolError, Ring, RingConfig};

use super::request::Request;
use super::worker::WorkerShared;
use crate::config::{Config, TransportKind};
use crate::ground::callback::Callback;
use crate::ground::lock::lock;
use crate::ground::types::Nanos;
use crate::state::error::{ContextError, RecvError};

/// The source of a context's random numbers: the system, or a seed in the simulator.
pub(crate) type Entropy = Box<dyn FnMut() -> u128 + Send>;

/// What ends with its context, and must learn of the end. An owner that is dropped is forgotten.
pub trait EndsWithContext: Send + Sync {
    /// The context is being shut down: its connections still send what is queued, and take nothing new.
    fn on_shutdown(&self) {}

    /// All workers have ended. Whoever waits must look again.
    fn on_end(&self) {}
}

/// See [the module](self).
pub(crate) struct ContextInner {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    /// The mapped memory of other processes.
    pub(crate) maps: PeerMapper,
    pub(crate) instance: u128,
    pub(crate) workers: Vec<Arc<WorkerShared>>,
    slots: Mutex<Slots>,
    entropy: Mutex<Entropy>,
    next_conn: AtomicU64,
    /// The number of callbacks that are set.
    callbacks: AtomicUsize,
    callbacks_in_calls: AtomicBool,
    /// Whether there was a subscription that loses data if arrivals are not read at once.
    has_lossy: AtomicBool,
    /// Whether rings for local peers can be mapped by other processes even though `transport` is TCP.
    shares_rings: AtomicBool,
    /// Whether all workers have ended.
    over: AtomicBool,
    /// The origin of the workers' time.
    pub(crate) started: Instant,
}

/// The numbers of buffers and subscription subscriptions that can be pending on a worker.
#[derive(Default)]
struct Slots {
    free: Vec<u32>,
    used: u32,
}

impl ContextInner {
    pub(crate) fn new(
        config: Config,
        workers: Vec<Arc<WorkerShared>>,
        mut entropy: Entropy,
    ) -> Result<Arc<Self>, ContextError> {
        let pool = Pool::new(PoolConfig {
            reservation_bytes: config.buffers.reservation_bytes,
            max_bytes: config.buffers.max_ring_bytes,
        })
        .map_err(ContextError::Memory)?;
        let maps = PeerMapper::new(config.shm.max_shared_rings, config.shm.max_shared_bytes);
        let instance = entropy();
        Ok(Arc::new(Self {
            config,
            pool,
            maps,
            instance,
            workers,
            slots: Mutex::default(),
            entropy: Mutex::new(entropy),
            next_conn: AtomicU64::new(1),
            callbacks: AtomicUsize::new(0),
            callbacks_in_calls: AtomicBool::new(false),
            has_lossy: AtomicBool::new(false),
            shares_rings: AtomicBool::new(false),
            over: AtomicBool::new(false),
            started: Instant::now(),
        }))
    }

    /// All workers have ended. Release pairs with the Acquire of [`ContextInner::is_over`].
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Returns whether all workers have ended, so that nothing happens any more that a call could wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// What a call that waited got. After the end of the context, nothing is an error.
    pub(crate) fn or_shut_down<T>(&self, got: Option<T>) -> Result<Option<T>, RecvError> {
        if got.is_none() && self.is_over() { Err(RecvError::ShutDown) } else { Ok(got) }
    }

    /// Processes of this machine may map the rings for local peers that follow. A ring that another thread makes at the same time may be of either
    /// kind.
    pub(crate) fn share_rings(&self) {
        self.shares_rings.store(true, Ordering::Relaxed);
    }

    /// Creates a ring for subscribers, in memory that other processes can map if they may be on this machine.
    pub(crate) fn ring_for_others(&self, config: RingConfig) -> Result<Ring, PoolError> {
        match self.config.transport {
            TransportKind::Tcp => self.pool.ring(config),
            _ => self.pool.shared_ring(config),
        }
    }

    /// As [`Self::ring_for_others`], or for this process alone, where a ring is larger than those of its kind at first.
    pub(crate) fn ring_beside_others(
        &self,
        config: RingConfig,
        is_for_others: bool,
    ) -> Result<Ring, PoolError> {
        match is_for_others && self.config.transport != TransportKind::Tcp {
            true => self.pool.shared_ring_beside_others(config),
            false => self.pool.ring_beside_others(config),
        }
    }

    /// The same, in memory that local peers can map even though `transport` is TCP, if there may be some.
    pub(crate) fn ring_for_local_peers(&self, config: RingConfig) -> Result<Ring, PoolError> {
        match self.shares_rings.load(Ordering::Relaxed) {
            true => self.pool.shared_ring(config),
            false => self.ring_for_others(config),
        }
    }

    /// Returns the workers' time where there are threads, for display.
    pub(crate) fn now(&self) -> Nanos {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Sets a callback. Application threads stop doing a worker's work, unless callbacks may run there.
    pub(crate) fn set_callback<F: ?Sized>(&self, place: &Callback<F>, callback: Box<F>) {
        self.count_callback();
        if place.set(callback) {
            self.callbacks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sets a callback, and waits for a call of the earlier one on another thread.
    pub(crate) fn replace_callback<F: ?Sized>(&self, place: &Callback<F>, callback: Box<F>) {
        self.count_callback();
        if place.replace(callback) {
            self.callbacks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts a callback before it is set, so that no application thread runs it by mistake.
    fn count_callback(&self) {
        self.callbacks.fetch_add(1, Ordering::Relaxed);
        self.stop_callers();
    }

    /// Removes a callback, and waits for a call of it on another thread.
    pub(crate) fn unset_callback<F: ?Sized>(&self, place: &Callback<F>) {
        if place.unset() {
            self.callbacks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Records a subscription with another policy than `block`. A thread that does a worker's work and then
    /// its own reads nothing meanwhile for any of the worker's connections, which such a subscription pays
    /// with lost data.
    pub(crate) fn note_lossy(&self) {
        self.has_lossy.store(true, Ordering::Relaxed);
        self.stop_callers();
    }

    /// Wakes the threads that must stop doing a worker's work after [`ContextInner::callers_may_run`] has changed.
    fn stop_callers(&self) {
        if !self.callers_may_run() {
            self.workers.iter().for_each(|worker| worker.token.wake());
        }
    }

    /// Allows callbacks on an application thread that does a worker's work.
    pub(crate) fn allow_callbacks_in_calls(&self) {
        self.callbacks_in_calls.store(true, Ordering::Relaxed);
    }

    /// Returns whether any callback is set.
    pub(crate) fn has_callbacks(&self) -> bool {
        self.callbacks.load(Ordering::Relaxed) > 0
    }

    /// Returns whether a waiting thread may do a worker's work, callbacks included.
    pub(crate) fn callers_may_run(&self) -> bool {
        let callbacks = !self.has_callbacks() || self.callbacks_in_calls.load(Ordering::Relaxed);
        callbacks && !self.has_lossy.load(Ordering::Relaxed)
    }

    pub(crate) fn random(&self) -> u128 {
        (lock(&self.entropy))()
    }

    /// Returns a new connection's number. Workers own connections in round-robin order.
    pub(crate) fn new_conn(&self) -> u64 {
        self.next_conn.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the worker that owns a connection.
    pub(crate) fn worker_of(&self, conn: u64) -> usize {
        (conn as usize) % self.workers.len()
    }

    /// Returns the worker that owns a connection, as everything below the commands sees it.
    pub(crate) fn worker(&self, conn: u64) -> &WorkerShared {
        &self.workers[self.worker_of(conn)]
    }

    /// Runs a job on a worker.
    pub(crate) fn run_on_worker(&self, job: impl FnOnce() + Send + 'static) {
        self.workers[0].request(Request::Run(Box::new(job)));
    }

    /// Takes a number for something that can be pending; `None` if `max_buffers` are in use.
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
}
