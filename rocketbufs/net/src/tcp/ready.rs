//! The kernel's ready events: taken by the polling thread, or before that by a thread that sleeps without the transport.
//!
//! ```text
//!   sleeping thread      wait: epoll_wait ─▶ events, with the number of polls before
//!   poll                 take: no poll since? ─▶ those events; otherwise an epoll_wait of its own
//! ```
//!
//! So a thread that sleeps and then polls makes one system call and not two. Events from before another poll may be about a
//! socket that is closed. They are discarded, as the kernel reports again what is still ready (level-triggered).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags as Flags};

use crate::contract::Pollable;

/// The token of the waker in the epoll set. The token of a connection is its id, which is below [`LISTENER`].
pub(super) const WAKER: u64 = u64::MAX;
/// The token of the doorbell by which writers of followed rings wake this end.
pub(super) const DOORBELL: u64 = u64::MAX - 1;
/// The bit that marks the token of a listener.
pub(super) const LISTENER: u64 = 1 << 63;
/// Ready descriptors handled in one poll.
const READY_PER_POLL: usize = 256;

/// Tokens and flags.
pub(super) type ReadyEvents = Vec<(u64, Flags)>;

pub(super) struct Ready {
    epoll: OwnedFd,
    /// Counts polls.
    polls: AtomicU64,
    /// Events of a sleeping thread, and the number of polls when it went to sleep.
    events: Mutex<(u64, ReadyEvents)>,
}

impl Ready {
    pub fn new() -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            polls: AtomicU64::new(0),
            events: Mutex::new((0, Vec::with_capacity(READY_PER_POLL))),
        })
    }

    /// A poll begins: swaps the events since the last poll into `ready`, which is empty. False if there are none.
    pub fn take(&self, ready: &mut ReadyEvents) -> bool {
        let polls = self.polls.fetch_add(1, Ordering::Relaxed);
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.0 == polls {
            std::mem::swap(&mut events.1, ready);
        }
        events.1.clear();
        !ready.is_empty()
    }

    /// A poll of earlier events begins: events that a sleeping thread takes during the poll may be outdated when it ends.
    pub fn pass(&self) {
        self.polls.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks the kernel, and waits at most this long (None: until there is an event).
    pub fn ask(&self, timeout: Option<Duration>, ready: &mut ReadyEvents) {
        let mut buffer = [const { MaybeUninit::uninit() }; READY_PER_POLL];
        ready.extend(self.ask_kernel(timeout, &mut buffer));
    }

    fn ask_kernel(
        &self,
        timeout: Option<Duration>,
        buffer: &mut [MaybeUninit<epoll::Event>],
    ) -> impl Iterator<Item = (u64, Flags)> {
        // A timeout beyond the kernel's type is as good as none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let events = match epoll::wait(&self.epoll, buffer, timeout.as_ref()) {
            Ok((events, _)) => &*events,
            Err(rustix::io::Errno::INTR) => &[],
            // Other errors need a descriptor that is no epoll set, or invalid memory.
            Err(e) => {
                tracing::error!(error = %e, "waiting for events failed");
                &[]
            }
        };
        events.iter().map(|event| (event.data.u64(), event.flags))
    }
}

impl AsFd for Ready {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Pollable for Ready {
    fn wait(&self, within: Duration) {
        let polls = self.polls.load(Ordering::Relaxed);
        let mut buffer = [const { MaybeUninit::uninit() }; READY_PER_POLL];
        let ready = self.ask_kernel(Some(within), &mut buffer);
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.0 = polls;
        events.1.clear();
        events.1.extend(ready);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: u64 = 7;

    fn one_ready() -> (Ready, [OwnedFd; 2]) {
        let ready = Ready::new().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        epoll::add(&ready, &read, epoll::EventData::new_u64(TOKEN), Flags::IN).unwrap();
        rustix::io::write(&write, b"x").unwrap();
        (ready, [read, write])
    }

    #[test]
    fn a_notice_to_a_sleeper_is_taken_once() {
        let (ready, _pipe) = one_ready();
        let mut events = ReadyEvents::new();
        assert!(!ready.take(&mut events));
        ready.wait(Duration::from_secs(10));
        assert!(ready.take(&mut events));
        assert_eq!(events, [(TOKEN, Flags::IN)]);
        events.clear();
        assert!(!ready.take(&mut events));
    }

    #[test]
    fn a_notice_before_another_poll_is_thrown_away() {
        let (ready, _pipe) = one_ready();
        let mut events = ReadyEvents::new();
        ready.take(&mut events);
        ready.wait(Duration::from_secs(10));
        // Another thread polled while this one slept.
        ready.polls.fetch_add(1, Ordering::Relaxed);
        assert!(!ready.take(&mut events), "{events:?}");
        ready.ask(Some(Duration::ZERO), &mut events);
        assert_eq!(events, [(TOKEN, Flags::IN)], "the kernel reports again what is still ready");
    }
}
