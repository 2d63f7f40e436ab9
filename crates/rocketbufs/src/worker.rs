//! The threads that own connections.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use rocketnet::Transport;
use rocketring::{PendingSet, Sleeper};

use crate::context::lock;
use crate::core::{Command, Core};
use crate::types::Nanos;

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is a worker: it runs callbacks and must never wait for itself.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// What others see of a worker: where to leave work, and how to wake it.
pub(crate) struct WorkerShared {
    pub(crate) index: usize,
    pub(crate) sleeper: Arc<Sleeper>,
    pub(crate) pending: PendingSet,
    mailbox: Mutex<Mailbox>,
    has_mail: AtomicBool,
}

#[derive(Default)]
struct Mailbox {
    commands: VecDeque<Command>,
    /// The worker is gone: commands come to nothing.
    closed: bool,
}

impl WorkerShared {
    pub(crate) fn new(index: usize, slots: usize) -> io::Result<Self> {
        Ok(Self {
            index,
            sleeper: Arc::new(Sleeper::new()?),
            pending: PendingSet::new(slots),
            mailbox: Mutex::default(),
            has_mail: AtomicBool::new(false),
        })
    }

    /// Leaves a command; the worker takes them in order. Without a worker it is dropped: what it holds would never
    /// be let go of, and who waits for its answer would wait for ever.
    pub(crate) fn send(&self, command: Command) {
        let mut mailbox = lock(&self.mailbox);
        if mailbox.closed {
            drop(mailbox);
            return command.refuse();
        }
        mailbox.commands.push_back(command);
        drop(mailbox);
        self.has_mail.store(true, Ordering::SeqCst);
        self.sleeper.wake();
    }

    /// Says that a slot has something to do. Costs a fence and a load while it is already said.
    pub(crate) fn mark(&self, slot: u32) {
        if self.pending.mark(slot) {
            self.sleeper.wake();
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.has_mail.load(Ordering::SeqCst) || !self.pending.is_empty()
    }

    pub(crate) fn take_mail(&self) -> VecDeque<Command> {
        if !self.has_mail.swap(false, Ordering::SeqCst) {
            return VecDeque::new();
        }
        std::mem::take(&mut lock(&self.mailbox).commands)
    }

    /// The worker is gone. What it was still to do is dropped, outside the lock: that may send again.
    pub(crate) fn close(&self) {
        let mut mailbox = lock(&self.mailbox);
        mailbox.closed = true;
        let commands = std::mem::take(&mut mailbox.commands);
        drop(mailbox);
        commands.into_iter().for_each(Command::refuse);
    }
}

/// Starts a worker thread, pinned to a core if asked (`tcp_thread_pinning`).
pub(crate) fn spawn<T: Transport + Send + 'static>(
    mut core: Core<T>,
    started: Instant,
    pin: Option<usize>,
) -> io::Result<JoinHandle<()>> {
    let name = format!("rocket-{}", core.index());
    std::thread::Builder::new().name(name).spawn(move || {
        IS_WORKER.set(true);
        if let Some(index) = pin {
            pin_to_core(index);
        }
        let clock = || started.elapsed().as_nanos() as Nanos;
        while core.run_once(&clock) {}
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
