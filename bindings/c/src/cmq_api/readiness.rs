//! A descriptor that is readable while a mailbox has messages.
//!
//! ```text
//!   fd      register a waker ──────────────────────────┐
//!   arrival                     wake: write the eventfd │ readable
//!   pop     messages … none: read the eventfd, register a waker again, look once more
//! ```

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use cmq::{Key, MessageStream};
use futures_core::Stream;

use crate::status::Failure;
use crate::status::rb_status::RB_ERR_SYSTEM;

/// Writes to the descriptor when a message arrives.
struct Bell(OwnedFd);

impl Bell {
    fn new() -> std::io::Result<Self> {
        // SAFETY: creates a descriptor, which nothing else owns.
        let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if made < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: as above.
        Ok(Self(unsafe { std::os::fd::FromRawFd::from_raw_fd(made) }))
    }

    fn ring(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: writes eight bytes of this function's. A counter that is full is readable already.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn silence(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: reads eight bytes into this function's. A counter of zero fails, and is as wanted.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

struct Armed {
    bell: Arc<Bell>,
    waker: Waker,
    /// A message that was taken when the waker was registered.
    found: Mutex<Option<(Bytes, Key)>>,
}

/// The descriptor of a mailbox, once the program has asked for it.
#[derive(Default)]
pub(crate) struct Readiness {
    armed: OnceLock<Armed>,
}

impl Readiness {
    /// The descriptor.
    pub(crate) fn fd(&self, messages: MessageStream<'_, Bytes>) -> Result<RawFd, Failure> {
        if self.armed.get().is_none() {
            let bell = Arc::new(Bell::new().map_err(|error| Failure::of(RB_ERR_SYSTEM, error))?);
            let waker = Waker::from(bell.clone());
            let armed = self.armed.get_or_init(|| Armed { bell, waker, found: Mutex::new(None) });
            armed.arm(messages);
        }
        let armed = self.armed.get().ok_or_else(|| Failure::new(RB_ERR_SYSTEM, "no descriptor"))?;
        Ok(BorrowedFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&armed.bell.0)))
    }

    /// A message that was taken before.
    #[inline]
    pub(crate) fn found(&self) -> Option<(Bytes, Key)> {
        self.armed.get()?.found.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A pop found nothing: from here on the descriptor is not readable until a message arrives.
    pub(crate) fn emptied(&self, messages: MessageStream<'_, Bytes>) {
        if let Some(armed) = self.armed.get() {
            armed.bell.silence();
            armed.arm(messages);
        }
    }
}

impl Armed {
    fn arm(&self, mut messages: MessageStream<'_, Bytes>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.is_some() {
            return self.bell.ring();
        }
        // Arrived meanwhile: readable at once.
        if let Poll::Ready(message) = Pin::new(&mut messages).poll_next(&mut Context::from_waker(&self.waker))
        {
            *found = message;
            self.bell.ring();
        }
    }
}
