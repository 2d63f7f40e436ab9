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
use crate::conn::function;
use crate::failures::failures;
use crate::raw::{array, array_mut, bytes, get, iovec_bytes, place, put, text, timeout};
use crate::status::rb_status::*;
use crate::status::{Failure, Outcome, call, call_number, rb_status};
use crate::table::{free_shared, insert, kinds, shared, take};

/// A message queue at an address. Any number of threads may use it.
pub struct cmq_queue(());
/// The messages for one integer. Any number of threads may use it.
pub struct cmq_mailbox(());
/// What messages are popped from.
pub(crate) trait Messages {
    fn pop_now(&self) -> Option<(Bytes, Key)>;
    fn pop_within(&self, limit: Duration) -> Option<(Bytes, Key)>;
    fn stream(&self) -> MessageStream<'_, Bytes>;
}

/// Messages, and the descriptor that says that there are some.
pub(crate) struct Source<T> {
    pub(crate) from: T,
    readiness: Readiness,
}

/// A queue, whose messages are those of all mailboxes that are not open.
pub(crate) type Queue = Source<Cmq<Bytes>>;
/// A mailbox, which its close takes away.
pub(crate) type OpenMailbox = Source<Mailbox<Bytes>>;

kinds! {
    cmq_queue => Queue, 30, "queue";
    cmq_mailbox => OpenMailbox, 31, "mailbox";
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
        PushError::Address => RB_ERR_ADDRESS,
        _ => RB_ERR_OTHER,
    };
}

/// Opens a queue at a local address such as "0.0.0.0:4711" (paper, `newRq`). Port 0 takes a free port. `options` may be NULL.
///
/// `*out` is the caller's, until `cmq_free`. Any thread. Fails with `RB_ERR_ADDRESS_IN_USE`, `RB_ERR_ADDRESS`, `RB_ERR_CONFIG` or
/// `RB_ERR_SYSTEM`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_new_rq(
    address: *const c_char,
    given: *const cmq_options,
    out: *mut *mut cmq_queue,
) -> rb_status {
    call(|| {
        place(out, "the place for the queue")?;
        let cmq = cmq::new_raw_rq(text(address, "the address")?, config(given)?)?;
        put(out, insert(Source::new(cmq))?);
        Ok(())
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

            fn stream(&self) -> MessageStream<'_, Bytes> {
                self.stream()
            }
        })*
    };
}
messages!(Cmq<Bytes>, Mailbox<Bytes>);

impl<T: Messages> Source<T> {
    fn new(from: T) -> Self {
        Self { from, readiness: Readiness::default() }
    }

    /// Hands the next message to `give`.
    #[inline(always)]
    fn pop(&self, timeout_ns: i64, give: impl FnOnce((Bytes, Key)) -> Outcome) -> Outcome {
        if let Some(found) = self.readiness.found() {
            return give(found);
        }
        let popped = match timeout_ns {
            0 => self.from.pop_now(),
            _ => self.from.pop_within(timeout(timeout_ns).unwrap_or(Duration::MAX)),
        };
        match popped {
            Some(popped) => give(popped),
            None => Err(self.empty()),
        }
    }

    #[cold]
    fn empty(&self) -> Failure {
        self.readiness.emptied(self.from.stream());
        Failure::outcome(RB_TIMED_OUT)
    }

    fn fd(&self) -> Result<RawFd, Failure> {
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
        shared::<Queue>(queue)?.pop(timeout_ns, |popped| give(message, popped))
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
        let queue = shared::<Queue>(queue)?;
        let mut limit = timeout_ns;
        for (before, place) in places.iter_mut().enumerate() {
            match queue.pop(limit, |popped| give(place, popped)) {
                Err(failure) if before > 0 && failure.status() == RB_TIMED_OUT => break,
                outcome => outcome?,
            }
            put(count, before + 1);
            limit = 0;
        }
        Ok(())
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
    call(|| {
        place(message, "the place for the message")?;
        let wanted = function(wanted)?;
        let queue = shared::<Queue>(queue)?;
        let wants = |bytes: &Bytes, from: &Key| {
            let (data, len) = (bytes.as_ptr().cast(), bytes.len());
            let from = cmq_key::of(from.addr, from.id);
            let shown = cmq_message { data, len, from, memory: std::ptr::null_mut() };
            wanted(ctx, &raw const shown)
        };
        let limit = timeout(timeout_ns).unwrap_or(Duration::MAX);
        let popped = match limit.is_zero() {
            true => queue.from.pop_where(wants),
            false => queue.from.pop_where_timeout(limit, wants),
        };
        give(message, popped.ok_or(Failure::outcome(RB_TIMED_OUT))?)
    })
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
    call(|| {
        place(count, "the place for the number")?;
        put(count, shared::<Queue>(queue)?.from.waiting());
        Ok(())
    })
}

/// Sends all pending messages now. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_flush(queue: *const cmq_queue) -> rb_status {
    call(|| {
        shared::<Queue>(queue)?.from.flush();
        Ok(())
    })
}

/// Sends all pending messages now and closes all streams: each receiver learns the number of messages. Later messages begin new
/// streams. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_finish(queue: *const cmq_queue) -> rb_status {
    call(|| {
        shared::<Queue>(queue)?.from.finish();
        Ok(())
    })
}

/// The address of this queue, with the mailbox 0. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_local_addr(queue: *const cmq_queue, key: *mut cmq_key) -> rb_status {
    call(|| {
        place(key, "the place for the key")?;
        put(key, cmq_key::of(shared::<Queue>(queue)?.from.local_addr(), 0));
        Ok(())
    })
}

/// Opens a mailbox of its own for an integer: messages for it that arrive from now on are popped there.
///
/// `*out` is the caller's, until `cmq_mailbox_close` or `cmq_mailbox_free`; it keeps the queue alive. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_open(
    queue: *const cmq_queue,
    id: u32,
    out: *mut *mut cmq_mailbox,
) -> rb_status {
    call(|| {
        place(out, "the place for the mailbox")?;
        let mailbox = shared::<Queue>(queue)?.from.mailbox(id);
        put(out, insert(Source::new(mailbox))?);
        Ok(())
    })
}

/// The next message of the mailbox, waiting at most `timeout_ns`. `*message` is the caller's, until `cmq_message_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_pop(
    mailbox: *const cmq_mailbox,
    message: *mut cmq_message,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(message, "the place for the message")?;
        shared::<OpenMailbox>(mailbox)?.pop(timeout_ns, |popped| give(message, popped))
    })
}

/// As `cmq_fd`, of the mailbox. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_fd(mailbox: *const cmq_mailbox) -> c_int {
    call_number(|| shared::<OpenMailbox>(mailbox)?.fd())
}

/// Closes the mailbox, drops the messages that wait there, and frees the handle: messages for its integer are popped with
/// `cmq_cw_pop` from now on. Fails with `RB_ERR_BUSY` while another call uses the mailbox.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_close(mailbox: *mut cmq_mailbox) -> rb_status {
    call(|| {
        drop(take::<OpenMailbox>(mailbox)?.from.close());
        Ok(())
    })
}

/// Frees the handle of a mailbox, which stays open. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_free(mailbox: *mut cmq_mailbox) -> rb_status {
    call(|| if mailbox.is_null() { Ok(()) } else { free_shared::<OpenMailbox>(mailbox) })
}
