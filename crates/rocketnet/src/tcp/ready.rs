//! What the kernel tells is ready: asked by whoever polls, or before that by a thread that sleeps without the transport.
//!
//! ```text
//!   sleeping thread      wait: epoll_wait ─▶ told, with the number of polls before
//!   poll                 take: nobody polled since? ─▶ what was told; else, or without, epoll_wait of its own
//! ```
//!
//! So a thread that sleeps and then polls makes one system call and not two. What was told before another poll may be about
//! a socket that is no more; it is thrown away, as the kernel tells again what is still so (level-triggered).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags as Flags};

use crate::contract::Pollable;

/// The token of the waker in the epoll set; connections have their ids, which are below [`LISTENER`].
pub(super) const WAKER: u64 = u64::MAX;
/// The token of the doorbell by which writers of followed rings wake this end.
pub(super) const DOORBELL: u64 = u64::MAX - 1;
/// The bit that marks the token of a listener.
pub(super) const LISTENER: u64 = 1 << 63;
/// Ready descriptors handled in one poll.
const READY_PER_POLL: usize = 256;

/// Tokens and flags.
pub(super) type Told = Vec<(u64, Flags)>;

pub(super) struct Ready {
    epoll: OwnedFd,
    /// Counts polls.
    polls: AtomicU64,
    /// What a sleeping thread was told, and how many polls there had been when it went to sleep.
    told: Mutex<(u64, Told)>,
}

impl Ready {
    pub fn new() -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self {
            epoll,
            polls: AtomicU64::new(0),
            told: Mutex::new((0, Vec::with_capacity(READY_PER_POLL))),
        })
    }

    /// One poll begins: swaps what was told since the last one into `ready`, which is empty. False if there is nothing.
    pub fn take(&self, ready: &mut Told) -> bool {
        let polls = self.polls.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.0 == polls {
            std::mem::swap(&mut told.1, ready);
        }
        told.1.clear();
        !ready.is_empty()
    }

    /// One poll begins that is about what was told before: what a waker was told meanwhile may be old when it is over.
    pub fn pass(&self) {
        self.polls.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks the kernel; waits at most so long (none: until there is something).
    pub fn ask(&self, timeout: Option<Duration>, ready: &mut Told) {
        let mut buffer = [const { MaybeUninit::uninit() }; READY_PER_POLL];
        ready.extend(self.ask_kernel(timeout, &mut buffer));
    }

    fn ask_kernel(
        &self,
        timeout: Option<Duration>,
        buffer: &mut [MaybeUninit<epoll::Event>],
    ) -> impl Iterator<Item = (u64, Flags)> {
        // A timeout beyond what the kernel's type holds is as good as none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let told = match epoll::wait(&self.epoll, buffer, timeout.as_ref()) {
            Ok((told, _)) => &*told,
            Err(rustix::io::Errno::INTR) => &[],
            // Only a descriptor that is no epoll set, or foreign memory, can cause others.
            Err(e) => {
                tracing::error!(error = %e, "waiting for events failed");
                &[]
            }
        };
        told.iter().map(|event| (event.data.u64(), event.flags))
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
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.0 = polls;
        told.1.clear();
        told.1.extend(ready);
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
    fn what_a_sleeper_was_told_is_taken_once() {
        let (ready, _pipe) = one_ready();
        let mut told = Told::new();
        assert!(!ready.take(&mut told));
        ready.wait(Duration::from_secs(10));
        assert!(ready.take(&mut told));
        assert_eq!(told, [(TOKEN, Flags::IN)]);
        told.clear();
        assert!(!ready.take(&mut told));
    }

    #[test]
    fn what_was_told_before_another_poll_is_thrown_away() {
        let (ready, _pipe) = one_ready();
        let mut told = Told::new();
        ready.take(&mut told);
        ready.wait(Duration::from_secs(10));
        // Somebody polled while it slept.
        ready.polls.fetch_add(1, Ordering::Relaxed);
        assert!(!ready.take(&mut told), "{told:?}");
        ready.ask(Some(Duration::ZERO), &mut told);
        assert_eq!(told, [(TOKEN, Flags::IN)], "the kernel tells again what is still so");
    }
}
