//! One thread notices the lost connections of all clients of the process.
//!
//! The thread exists while there are clients. It sleeps in epoll on the descriptors of the connections' events.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use rbmq_wire::sync::lock;
use rocketbufs::{Conn, ConnEvent, DownReason};
use rustix::event::epoll;
use tracing::warn;

/// What follows when a connection is lost. Must not wait.
pub(super) trait OnDown: Send + 'static {
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

static WATCHES: LazyLock<Mutex<Watches>> = LazyLock::new(Mutex::default);

/// Calls `on_down` once, when the connection is down. Returns at once.
///
/// # Errors
/// The process has no descriptor or no thread left. The connection is not watched then.
pub(super) fn add(conn: &Conn, on_down: impl OnDown) -> io::Result<()> {
    let mut watches = lock(&WATCHES);
    let number = watches.next;
    let new = match &watches.epoll {
        Some(_) => None,
        None => Some(epoll::create(epoll::CreateFlags::CLOEXEC)?),
    };
    let Some(epoll) = new.as_ref().or(watches.epoll.as_ref()) else { return Ok(()) };
    epoll::add(epoll, conn.pollable()?, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
    if let Some(epoll) = new {
        let sleeps_on = epoll.try_clone()?;
        std::thread::Builder::new().name("rbmq-watch".into()).spawn(move || run(&sleeps_on))?;
        watches.epoll = Some(epoll);
    }
    watches.next += 1;
    let on_down = Box::new(move |why| on_down.on_down(why));
    watches.watched.insert(number, Watched { conn: conn.clone(), on_down });
    Ok(())
}

fn run(epoll: &OwnedFd) {
    let mut ready = Vec::with_capacity(64);
    loop {
        ready.clear();
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut ready), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => warn!("lost connections are not noticed: {error}"),
        }
        ready.iter().for_each(|event| look(epoll, event.data.u64()));
        let mut watches = lock(&WATCHES);
        if watches.watched.is_empty() {
            watches.epoll = None;
            return;
        }
    }
}

/// Takes the events of a connection.
fn look(epoll: &OwnedFd, number: u64) {
    let Some(conn) = lock(&WATCHES).watched.get(&number).map(|watched| watched.conn.clone()) else { return };
    while let Ok(Some(event)) = conn.recv_event(Some(Duration::ZERO)) {
        if let ConnEvent::Down { reason } = event {
            let _ = conn.pollable().map(|descriptor| epoll::delete(epoll, descriptor));
            let watched = lock(&WATCHES).watched.remove(&number);
            if let Some(watched) = watched {
                (watched.on_down)(reason);
            }
            return;
        }
    }
}
