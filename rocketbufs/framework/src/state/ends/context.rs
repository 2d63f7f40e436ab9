//! The state that a context's handles share with its workers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::command::{Command, Worker};
use crate::config::Config;
use crate::ground::lock::lock;
use crate::state::error::ContextError;
use crate::state::{ContextInner, EndsWithContext, Entropy, ROutShared, Request, WorkerShared, is_worker};

/// The workers of a context, and its rOuts.
pub(crate) struct ContextShared {
    pub(crate) inner: Arc<ContextInner>,
    pub(crate) workers: Vec<Arc<Worker>>,
    pub(crate) routs: Mutex<Vec<Weak<ROutShared>>>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    stopping: AtomicBool,
    /// The number of workers that have not ended.
    running: AtomicUsize,
    dependents: Mutex<Vec<Weak<dyn EndsWithContext>>>,
}

impl ContextShared {
    pub(crate) fn new(config: Config, workers: usize, entropy: Entropy) -> Result<Arc<Self>, ContextError> {
        let slots = config.limits.max_buffers;
        let workers = (0..workers)
            .map(|index| Worker::new(index, slots).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()
            .map_err(ContextError::Thread)?;
        let links = workers.iter().map(|worker| worker.clone() as Arc<WorkerShared>).collect();
        Ok(Arc::new(Self {
            running: AtomicUsize::new(workers.len()),
            dependents: Mutex::default(),
            inner: ContextInner::new(config, links, entropy)?,
            workers,
            routs: Mutex::default(),
            threads: Mutex::default(),
            stopping: AtomicBool::new(false),
        }))
    }

    /// Sends a command to the worker of a connection.
    pub(crate) fn send(&self, conn: u64, command: Command) {
        self.workers[self.inner.worker_of(conn)].send(command);
    }

    pub(crate) fn stop(&self, grace: Duration) {
        if self.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        self.each_dependent(|dependent| dependent.on_shutdown());
        for worker in &self.workers {
            worker.request(Request::Shutdown { grace });
        }
        // A callback that drops the last handle runs on a worker, which cannot join itself.
        if is_worker() {
            return;
        }
        for thread in lock(&self.threads).drain(..) {
            // A worker that panicked has already reported the reason.
            let _ = thread.join();
        }
    }

    /// Tells `dependent` of the end of this context, at once if it has begun.
    pub(crate) fn add_dependent(&self, dependent: Weak<dyn EndsWithContext>) {
        let mut dependents = lock(&self.dependents);
        if dependents.len() == dependents.capacity() {
            dependents.retain(|known| known.strong_count() > 0);
        }
        dependents.push(dependent.clone());
        drop(dependents);
        // An end that begins after this finds the new one in the list.
        if let Some(dependent) = dependent.upgrade() {
            if self.stopping.load(Ordering::Acquire) {
                dependent.on_shutdown();
            }
            if self.inner.is_over() {
                dependent.on_end();
            }
        }
    }

    fn each_dependent(&self, tell: impl Fn(&dyn EndsWithContext)) {
        let dependents = lock(&self.dependents).clone();
        dependents.iter().filter_map(Weak::upgrade).for_each(|dependent| tell(&*dependent));
    }

    /// A worker has ended. After the last one no call waits any more: peers have heard that the connections end, so that the
    /// end of a buffer here tells nobody that its log was complete.
    pub(crate) fn worker_ended(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.inner.end();
        let routs: Vec<_> = lock(&self.routs).iter().filter_map(Weak::upgrade).collect();
        routs.iter().for_each(|rout| rout.end());
        self.each_dependent(|dependent| dependent.on_end());
    }
}
