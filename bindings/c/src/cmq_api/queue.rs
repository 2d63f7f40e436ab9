//! Queues and mailboxes.

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::time::Duration;

use bytes::Bytes;
use cmq::{Cmq, Key, Mailbox, MessageStream, OpenError, PushError};
use libc::iovec;

use crate::cmq_api::message::{cmq_key, cmq_message, give};
use crate::cmq_api::options::{cmq_options, config};
use crate::cmq_api::readiness::Readiness;
use crate::cmq_api::security::cmq_public_key;
use crate::conn::function;
use crate::failures::failures;
use crate::raw::{answer, array, array_mut, bytes, get, iovec_bytes, place, put, text, timeout};
use crate::status::rb_status::*;
use crate::status::{Failure, Outcome, call, call_number, rb_status};
use crate::table::{free_shared, insert, kinds, shared};

/// A message queue at an address. Any number of threads may use it.
pub struct cmq_queue(());
/// A source of messages: a queue, or a mailbox.
pub(crate) trait Messages {
    fn pop_now(&self) -> Option<(Bytes, Key)>;
    fn pop_within(&self, limit: Duration) -> Option<(Bytes, Key)>;
    fn choose(&self, limit: Duration, wanted: impl FnMut(&Bytes, &Key) -> bool) -> Option<(Bytes, Key)>;
    fn stream(&self) -> MessageStream<'_, Bytes>;
}

/// Messages, and the descriptor that says that there are some.
pub(crate) struct Source<T> {
    pub(crate) from: T,
    readiness: Readiness,
}

/// A queue, whose messages are those of all mailboxes that are not open.
pub(crate) type Queue = Source<Cmq<Bytes>>;

kinds! {
    cmq_queue => Queue, 30, "queue";
}

failures! {
    OpenError: |e| match &e {
        OpenError::Bind(error) if error.kind() == std::io::ErrorKind::AddrInUse => RB_ERR_ADDRESS_IN_USE,
        OpenError::Bind(_) => RB_ERR_ADDRESS,
        OpenError::Config(_) => RB_ERR_CONFIG,
        _ => RB_ERR_SYSTEM,
    };
    PushError: |e| match &e {
        PushError::Full => RB_FULL,
        PushError::TooLarge { .. } => RB_ERR_TOO_LARGE,
        PushError::Address | PushError::Multicast => RB_ERR_ADDRESS,
        PushError::ReliableOff => RB_ERR_CONFIG,
        _ => RB_ERR_OTHER,
    };
}

/// Opens a queue at a local address such as "0.0.0.0:4711" (paper, `newRq`). Port 0 takes a free port. `options` may be NULL.
///
/// `*out` is the caller's, until `cmq_free`. Any thread. Fails with `RB_ERR_ADDRESS_IN_USE`, `RB_ERR_ADDRESS`, `RB_ERR_CONFIG` (also if
/// a file with a key cannot be used), `RB_ERR_ARGUMENT` or `RB_ERR_SYSTEM`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_new_rq(
    address: *const c_char,
    given: *const cmq_options,
    out: *mut *mut cmq_queue,
) -> rb_status {
    answer(out, "the place for the queue", || {
        let cmq = cmq::new_raw_rq(text(address, "the address")?, config(given)?)?;
        insert(Source::new(cmq))
    })
}

/// Frees the queue's handle. Pending messages are sent at once, and each receiver learns the number of messages, when the handles of
/// its mailboxes are freed too. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_free(queue: *mut cmq_queue) -> rb_status {
    call(|| if queue.is_null() { Ok(()) } else { free_shared::<Queue>(queue) })
}

/// Queues a message for a key (paper, `cwPush`); it leaves with its batch. Never waits. The message is copied.
///
/// Any thread. `RB_FULL` if too many bytes wait to be sent. Fails with `RB_ERR_TOO_LARGE` or `RB_ERR_ADDRESS`; nothing is sent then.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_cw_push(
    queue: *const cmq_queue,
    key: *const cmq_key,
    message: *const c_void,
    len: usize,
) -> rb_status {
    call(|| {
        let key = get(key, "the key")?;
        let message = bytes(message, len, "the message")?;
        Ok(shared::<Queue>(queue)?.from.push_bytes((key.addr()?, key.id), message)?)
    })
}

/// Queues `count` messages for a key, as `cmq_cw_push` does one after the other. `*pushed` gets how many, also if the call fails;
/// `pushed` may be NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_cw_push_many(
    queue: *const cmq_queue,
    key: *const cmq_key,
    messages: *const iovec,
    count: usize,
    pushed: *mut usize,
) -> rb_status {
    call(|| {
        put(pushed, 0);
        let key = get(key, "the key")?;
        let to = Key::from((key.addr()?, key.id));
        let queue = shared::<Queue>(queue)?;
        for (before, message) in array(messages, count, "the messages")?.iter().enumerate() {
            queue.from.push_bytes(to, iovec_bytes(message)?)?;
            put(pushed, before + 1);
        }
        Ok(())
    })
}

macro_rules! messages {
    ($($type:ty),*) => {
        $(impl Messages for $type {
            #[inline]
            fn pop_now(&self) -> Option<(Bytes, Key)> {
                self.cw_pop()
            }

            #[inline]
            fn pop_within(&self, limit: Duration) -> Option<(Bytes, Key)> {
                self.pop_timeout(limit)
            }

            fn choose(&self, limit: Duration, wanted: impl FnMut(&Bytes, &Key) -> bool) -> Option<(Bytes, Key)> {
                if limit.is_zero() { self.pop_where(wanted) } else { self.pop_where_timeout(limit, wanted) }
            }

            fn stream(&self) -> MessageStream<'_, Bytes> {
                self.stream()
            }
        })*
    };
}
messages!(Cmq<Bytes>, Mailbox<Bytes>);

impl<T: Messages> Source<T> {
    pub(crate) fn new(from: T) -> Self {
        Self { from, readiness: Readiness::default() }
    }

    /// Hands the next message to `give`.
    #[inline(always)]
    pub(crate) fn pop(&self, timeout_ns: i64, give: impl FnOnce(Bytes, Key) -> Outcome) -> Outcome {
        if let Some((bytes, from)) = self.readiness.found() {
            return give(bytes, from);
        }
        let popped = match timeout_ns {
            0 => self.from.pop_now(),
            _ => self.from.pop_within(timeout(timeout_ns).unwrap_or(Duration::MAX)),
        };
        match popped {
            Some((bytes, from)) => give(bytes, from),
            None => Err(self.empty()),
        }
    }

    #[cold]
    fn empty(&self) -> Failure {
        self.readiness.emptied(self.from.stream());
        Failure::outcome(RB_TIMED_OUT)
    }

    /// Fills the places with messages: waits for the first one only.
    pub(crate) fn pop_many(&self, places: &mut [cmq_message], count: *mut usize, timeout_ns: i64) -> Outcome {
        let mut limit = timeout_ns;
        for (before, place) in places.iter_mut().enumerate() {
            match self.pop(limit, |bytes, from| give(place, bytes, from)) {
                Err(failure) if before > 0 && failure.status() == RB_TIMED_OUT => break,
                outcome => outcome?,
            }
            put(count, before + 1);
            limit = 0;
        }
        Ok(())
    }

    /// Hands the oldest message that the caller's function accepts to the caller.
    pub(crate) fn pop_where(
        &self,
        wanted: cmq_wanted_fn,
        ctx: *mut c_void,
        message: *mut cmq_message,
        timeout_ns: i64,
    ) -> Outcome {
        place(message, "the place for the message")?;
        let wanted = function(wanted)?;
        let wants = |bytes: &Bytes, from: &Key| {
            let (data, len) = (bytes.as_ptr().cast(), bytes.len());
            let from = cmq_key::of(from.addr, from.id);
            let shown = cmq_message { data, len, from, memory: std::ptr::null_mut() };
            wanted(ctx, &raw const shown)
        };
        let popped = self.from.choose(timeout(timeout_ns).unwrap_or(Duration::MAX), wants);
        let (bytes, from) = popped.ok_or(Failure::outcome(RB_TIMED_OUT))?;
        give(message, bytes, from)
    }

    pub(crate) fn fd(&self) -> Result<RawFd, Failure> {
        self.readiness.fd(self.from.stream())
    }
}

/// The next message, if there is one (paper, `cwPop`), of any mailbox that was not opened with `cmq_mailbox_open`. Never waits:
/// `RB_TIMED_OUT` if there is none.
///
/// `*message` is the caller's, until `cmq_message_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_cw_pop(queue: *const cmq_queue, message: *mut cmq_message) -> rb_status {
    cmq_pop(queue, message, 0)
}

/// As `cmq_cw_pop`, waiting at most `timeout_ns`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_pop(queue: *const cmq_queue, message: *mut cmq_message, timeout_ns: i64) -> rb_status {
    call(|| {
        place(message, "the place for the message")?;
        shared::<Queue>(queue)?.pop(timeout_ns, |bytes, from| give(message, bytes, from))
    })
}

/// The next messages: waits at most `timeout_ns` for one, and takes at most `max` that are there. `*count` gets how many.
///
/// The messages are the caller's, until `cmq_messages_free`. Any thread. `RB_TIMED_OUT` if none came.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_pop_many(
    queue: *const cmq_queue,
    messages: *mut cmq_message,
    max: usize,
    count: *mut usize,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(count, "the place for the number of messages")?;
        put(count, 0);
        let places = array_mut(messages, max, "the place for the messages")?;
        shared::<Queue>(queue)?.pop_many(places, count, timeout_ns)
    })
}

/// A callback that says whether a message is wanted. `message` is valid until the callback returns, and is not to be freed.
pub type cmq_wanted_fn = Option<extern "C" fn(ctx: *mut c_void, message: *const cmq_message) -> bool>;

/// The oldest message that `wanted` accepts (a selective receive), waiting at most `timeout_ns`. The other messages stay in their
/// order. `wanted` runs inside this call, and must not use the queue.
///
/// `*message` is the caller's, until `cmq_message_free`. Any thread. Not to be combined with `cmq_fd`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_pop_where(
    queue: *const cmq_queue,
    wanted: cmq_wanted_fn,
    ctx: *mut c_void,
    message: *mut cmq_message,
    timeout_ns: i64,
) -> rb_status {
    call(|| shared::<Queue>(queue)?.pop_where(wanted, ctx, message, timeout_ns))
}

/// A descriptor that is readable while `cmq_cw_pop` would return a message, for an event loop, which only polls it. When it is
/// readable, pop until `RB_TIMED_OUT`: only then it is not readable any more. Returns a status below 0 if it fails.
///
/// The descriptor belongs to the library and lives as long as the queue's handle. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_fd(queue: *const cmq_queue) -> c_int {
    call_number(|| shared::<Queue>(queue)?.fd())
}

/// The number of messages that wait in the common mailbox. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_waiting(queue: *const cmq_queue, count: *mut usize) -> rb_status {
    answer(count, "the place for the number", || Ok(shared::<Queue>(queue)?.from.waiting()))
}

/// Sends all pending messages now. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_flush(queue: *const cmq_queue) -> rb_status {
    call(|| shared::<Queue>(queue).map(|queue| queue.from.flush()))
}

/// Sends all pending messages now and closes all streams: each receiver learns the number of messages, those of the reliable mode once
/// everything is confirmed or given up. Later messages begin new streams. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_finish(queue: *const cmq_queue) -> rb_status {
    call(|| shared::<Queue>(queue).map(|queue| queue.from.finish()))
}

/// The address of this queue, with the mailbox 0. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_local_addr(queue: *const cmq_queue, key: *mut cmq_key) -> rb_status {
    answer(key, "the place for the key", || Ok(cmq_key::of(shared::<Queue>(queue)?.from.local_addr(), 0)))
}

/// The random name of the queue, which each of its datagrams carries. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_epoch(queue: *const cmq_queue, epoch: *mut u64) -> rb_status {
    answer(epoch, "the place for the name", || Ok(shared::<Queue>(queue)?.from.epoch()))
}

/// The public key of the queue at an address (the mailbox of `at` counts for nothing), while there is a session with it: what came
/// from there is its. `RB_TIMED_OUT` if there is no session, also if this queue does not encrypt. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_peer_key(
    queue: *const cmq_queue,
    at: *const cmq_key,
    key: *mut cmq_public_key,
) -> rb_status {
    answer(key, "the place for the key", || {
        let at = get(at, "the address")?.addr()?;
        let found = shared::<Queue>(queue)?.from.peer_key(at);
        Ok(found.ok_or(Failure::outcome(RB_TIMED_OUT))?.into())
    })
}
