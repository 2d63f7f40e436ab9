//! A thread that notices the lost connections of all clients of the process.
//!
//! The thread exists while there are clients. The thread sleeps in epoll on the descriptors of the connections' events.
//!
//! A fork copies the watches of the parent, possibly in the middle of a change, and not the thread. A child process therefore
//! has watches of its own.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use rbmq_wire::sync::lock;
use rocketbufs::{Conn, ConnEvent, DownReason};
use rustix::event::epoll;
use tracing::warn;

/// The pause after an error of epoll.
const RETRY: Duration = Duration::from_secs(1);

/// The reaction to a lost connection. Must not wait.
pub(crate) trait OnDown: Send + 'static {
    fn on_down(self, why: DownReason);
}

struct Watched {
    conn: Conn,
    on_down: Box<dyn FnOnce(DownReason) + Send>,
}

#[derive(Default)]
struct Watches {
    /// By a number that is given once.
    watched: HashMap<u64, Watched>,
    next: u64,
    /// The descriptor in which the thread sleeps; none while there is no thread.
    epoll: Option<OwnedFd>,
}

/// The watches of one process.
struct Process {
    id: u32,
    watches: Mutex<Watches>,
    /// The child in which this memory is, after a fork.
    child: OnceLock<Box<Process>>,
}

impl Process {
    fn new(id: u32) -> Self {
        Self { id, watches: Mutex::default(), child: OnceLock::new() }
    }
}

/// The watches of this process. The watches of its parents are not touched: their lock may be held for ever.
fn watches() -> MutexGuard<'static, Watches> {
    static FIRST: OnceLock<Process> = OnceLock::new();
    let id = std::process::id();
    let mut process = FIRST.get_or_init(|| Process::new(id));
    while process.id != id {
        process = process.child.get_or_init(|| Box::new(Process::new(id)));
    }
    lock(&process.watches)
}

/// Calls `on_down` once, when the connection is down. Returns at once.
///
/// # Errors
/// The process has no descriptor or no thread left. The connection is not watched then.
pub(crate) fn add(conn: &Conn, on_down: impl OnDown) -> io::Result<()> {
    let mut present = watches();
    let number = present.next;
    let new = match &present.epoll {
        Some(_) => None,
        None => Some(epoll::create(epoll::CreateFlags::CLOEXEC)?),
    };
    let Some(epoll) = new.as_ref().or(present.epoll.as_ref()) else { return Ok(()) };
    epoll::add(epoll, conn.pollable()?, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    if let Some(epoll) = new {
        let sleeps_on = epoll.try_clone()?;
        threads::spawn("rbmq-watch", move || run(&sleeps_on))?;
        present.epoll = Some(epoll);
    }
    present.next += 1;
    let on_down = Box::new(move |why| on_down.on_down(why));
    present.watched.insert(number, Watched { conn: conn.clone(), on_down });
    Ok(())
}

fn run(epoll: &OwnedFd) {
    let mut ready = Vec::with_capacity(64);
    loop {
        ready.clear();
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut ready), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                warn!("lost connections are noticed late: {error}");
                std::thread::sleep(RETRY);
            }
        }
        ready.iter().for_each(|event| take_events(epoll, event.data.u64()));
        let mut present = watches();
        if present.watched.is_empty() {
            present.epoll = None;
            return;
        }
    }
}

/// Takes the events of a connection.
fn take_events(epoll: &OwnedFd, number: u64) {
    let Some(conn) = watches().watched.get(&number).map(|watched| watched.conn.clone()) else { return };
    while let Ok(Some(event)) = conn.recv_event(Some(Duration::ZERO)) {
        if let ConnEvent::Down { reason } = event {
            let _ = conn.pollable().map(|descriptor| epoll::delete(epoll, descriptor));
            let watched = watches().watched.remove(&number);
            if let Some(watched) = watched {
                (watched.on_down)(reason);
            }
            return;
        }
    }
}
