//! The worker threads.

use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use rocketnet::Transport;

use crate::state::{BorrowedReactor, Worker, become_worker, nanos_since};
use crate::worker::Reactor;
use crate::worker::caller_send::run_shared;

/// Starts a worker thread, pinned to a core if `tcp_thread_pinning` is set. With `lends` its reactor can be
/// borrowed while it sleeps.
pub(crate) fn spawn<T: Transport + Send + 'static>(
    mut reactor: Reactor<T>,
    shared: &Arc<Worker>,
    started: Instant,
    pin: Option<usize>,
    lends: bool,
) -> io::Result<JoinHandle<()>> {
    let name = format!("rocket-{}", shared.index);
    let shared = shared.clone();
    let pollable = reactor.transport_mut().pollable().filter(|_| lends);
    threads::spawn(name, move || {
        become_worker();
        if let Some(index) = pin {
            pin_to_core(index);
        }
        let clock = || nanos_since(started);
        let Some(sleeps_on) = pollable else {
            while reactor.run_once(&clock) {}
            return;
        };
        let reactor = Arc::new(Mutex::new(reactor));
        let borrowed: Weak<Mutex<dyn BorrowedReactor>> =
            Arc::downgrade(&(reactor.clone() as Arc<Mutex<dyn BorrowedReactor>>));
        shared.lend(borrowed, started, sleeps_on.clone());
        while run_shared(&reactor, &shared, &*sleeps_on, &clock) {}
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
