//! The kernel's wake-ups: a BPF ring buffer whose descriptor can be polled.
//!
//! The contents of its records are not used: the woken thread checks all topics.
//!
//! ```text
//!   page 0    consumer position    written here
//!   page 1    producer position    written by the kernel
//!   page 2 …  records: length and flags u32, page u32, data, padded to 8 bytes
//! ```

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use crate::maps::WAKE_BYTES;
use crate::sys::{self, Mapping};

/// A record that is reserved but not complete.
const BUSY: u32 = 1 << 31;
/// A record's length, without its flags.
const LENGTH: u32 = !(3 << 30);
const RECORD_HEADER_BYTES: u64 = 8;

/// The reader of wake-ups, and a way to end its wait.
#[derive(Debug)]
pub(crate) struct Wakes {
    ring: OwnedFd,
    consumer: Mapping,
    producer: Mapping,
    page: usize,
    other: OwnedFd,
}

impl Wakes {
    pub(crate) fn new(ring: BorrowedFd<'_>) -> io::Result<Wakes> {
        let page = sys::page_bytes();
        // SAFETY: no memory is involved.
        let other = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if other < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Wakes {
            ring: ring.try_clone_to_owned()?,
            consumer: Mapping::new(ring, 0, page, true)?,
            producer: Mapping::new(ring, page, page + WAKE_BYTES, false)?,
            page,
            // SAFETY: a new descriptor, which nobody else owns.
            other: unsafe { OwnedFd::from_raw_fd(other) },
        })
    }

    /// Waits for a wake-up of the kernel or of [`Wakes::wake`].
    pub(crate) fn wait(&self, timeout: Duration) -> io::Result<()> {
        let wanted = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut fds = [wanted(&self.ring), wanted(&self.other)];
        let time = libc::timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: both arrays live during the call, and the signal mask is not changed.
        let ready = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, &time, std::ptr::null()) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        self.drain();
        Ok(())
    }

    /// Ends a wait, now or later.
    pub(crate) fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: `one` has 8 bytes. A full counter wakes as well.
        unsafe { libc::write(self.other.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes all complete records, so that the next wait sleeps.
    fn drain(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: `count` has 8 bytes. An empty counter changes nothing.
        unsafe { libc::read(self.other.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        // SAFETY: the first word of each page, as the kernel defines; both are aligned and only changed atomically.
        let (consumer, producer): (&AtomicU64, &AtomicU64) =
            unsafe { (self.consumer.at(0, 8).cast().as_ref(), self.producer.at(0, 8).cast().as_ref()) };
        let mut at = consumer.load(Relaxed);
        // Pairs with the kernel's release store.
        while at < producer.load(Acquire) {
            let offset = self.page + (at as usize & (WAKE_BYTES - 1));
            // SAFETY: records are aligned to 8 bytes, and their first word is written atomically.
            let length: &AtomicU32 = unsafe { self.producer.at(offset, 4).cast().as_ref() };
            let length = length.load(Acquire);
            if length & BUSY != 0 {
                break;
            }
            at += (u64::from(length & LENGTH) + RECORD_HEADER_BYTES).next_multiple_of(8);
        }
        consumer.store(at, Release);
    }
}
