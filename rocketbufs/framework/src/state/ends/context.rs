//! The state that a context's handles share with its workers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::command::{Command, Worker};
use crate::config::Config;
use crate::ground::lock::lock;
use crate::state::error::ContextError;
use crate::state::{ContextInner, Entropy, ROutShared, Request, WorkerShared, is_worker};

/// The workers of a context, and its rOuts.
pub(crate) struct ContextShared {
    pub(crate) inner: Arc<ContextInner>,
    pub(crate) workers: Vec<Arc<Worker>>,
    pub(crate) routs: Mutex<Vec<Weak<ROutShared>>>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    stopping: AtomicBool,
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
}
