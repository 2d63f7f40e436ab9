//! The worker threads.

use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use rocketnet::Transport;

use crate::state::{Inline, Worker, become_worker, nanos_since};
use crate::worker::Reactor;
use crate::worker::caller_send::run_shared;

/// Starts a worker thread, pinned to a core if `tcp_thread_pinning` is set. With `inline` its core can be
/// borrowed while it sleeps.
pub(crate) fn spawn<T: Transport + Send + 'static>(
    mut core: Reactor<T>,
    shared: &Arc<Worker>,
    (started, pin, inline): (Instant, Option<usize>, bool),
) -> io::Result<JoinHandle<()>> {
    let name = format!("rocket-{}", shared.index);
    let shared = shared.clone();
    let pollable = core.transport_mut().pollable().filter(|_| inline);
    std::thread::Builder::new().name(name).spawn(move || {
        become_worker();
        if let Some(index) = pin {
            pin_to_core(index);
        }
        let clock = || nanos_since(started);
        let Some(sleeps_on) = pollable else {
            while core.run_once(&clock) {}
            return;
        };
        let core = Arc::new(Mutex::new(core));
        let borrowed: Weak<Mutex<dyn Inline>> = Arc::downgrade(&(core.clone() as Arc<Mutex<dyn Inline>>));
        shared.lend(borrowed, started, sleeps_on.clone());
        while run_shared(&core, &shared, &*sleeps_on, &clock) {}
    })
}

fn pin_to_core(index: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = rustix::thread::CpuSet::new();
    set.set(index % cores);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(worker = index, %error, "could not pin the worker thread to a core; it runs unpinned");
    }
}
