//! The object that a [`Waker`](crate::Waker) sleeps on: an eventfd, or under loom a counter with a condition variable.

#[cfg(not(loom))]
mod imp {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};

    #[derive(Debug)]
    pub(crate) struct Event(OwnedFd);

    impl Event {
        pub(crate) fn new() -> io::Result<Event> {
            Ok(Event(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        pub(crate) fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        /// Adds one. Cannot block: the counter would have to be near 2^64.
        pub(crate) fn add(&self) {
            // An eventfd of our own refuses a write only when its counter is full, and then it is readable anyway.
            let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
        }

        /// Takes all that was added; 0 if nothing was.
        pub(crate) fn take(&self) -> u64 {
            let mut count = [0; 8];
            rustix::io::read(&self.0, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
        }
    }
}

#[cfg(loom)]
mod imp {
    use std::io;

    use crate::sync::{Condvar, Mutex, lock};

    #[derive(Debug)]
    pub(crate) struct Event {
        count: Mutex<u64>,
        added: Condvar,
    }

    impl Event {
        pub(crate) fn new() -> io::Result<Event> {
            Ok(Event { count: Mutex::new(0), added: Condvar::new() })
        }

        pub(crate) fn add(&self) {
            *lock(&self.count) += 1;
            self.added.notify_all();
        }

        pub(crate) fn take(&self) -> u64 {
            std::mem::take(&mut lock(&self.count))
        }

        /// Stands in for `epoll_wait`: returns when the count is not zero.
        pub(crate) fn sleep(&self) {
            let mut count = lock(&self.count);
            while *count == 0 {
                count = self.added.wait(count).expect("a model's lock");
            }
        }
    }
}

pub(crate) use imp::Event;
