//! Mailboxes: the messages for one integer.

use std::ffi::{c_int, c_void};

use bytes::Bytes;
use cmq::Mailbox;

use crate::cmq_api::message::{cmq_message, give};
use crate::cmq_api::queue::{Queue, Source, cmq_queue, cmq_wanted_fn};
use crate::raw::{answer, array_mut, place, put};
use crate::status::{call, call_number, rb_status};
use crate::table::{free_shared, insert, kinds, shared, take};

/// The messages for one integer. Any number of threads may use it.
pub struct cmq_mailbox(());

/// A mailbox, which its close takes away.
pub(crate) type OpenMailbox = Source<Mailbox<Bytes>>;

kinds! { cmq_mailbox => OpenMailbox, 31, "mailbox"; }

/// Opens a mailbox of its own for an integer: messages for it that arrive from now on are popped there.
///
/// `*out` is the caller's, until `cmq_mailbox_close` or `cmq_mailbox_free`; it keeps the queue alive. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_open(
    queue: *const cmq_queue,
    id: u32,
    out: *mut *mut cmq_mailbox,
) -> rb_status {
    answer(out, "the place for the mailbox", || {
        let mailbox = shared::<Queue>(queue)?.from.mailbox(id);
        insert(Source::new(mailbox))
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
        shared::<OpenMailbox>(mailbox)?.pop(timeout_ns, |bytes, from| give(message, bytes, from))
    })
}

/// The next messages of the mailbox, as `cmq_pop_many`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_pop_many(
    mailbox: *const cmq_mailbox,
    messages: *mut cmq_message,
    max: usize,
    count: *mut usize,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(count, "the place for the number of messages")?;
        put(count, 0);
        let places = array_mut(messages, max, "the place for the messages")?;
        shared::<OpenMailbox>(mailbox)?.pop_many(places, count, timeout_ns)
    })
}

/// The oldest message of the mailbox that `wanted` accepts, as `cmq_pop_where`: `wanted` must not use the queue or the mailbox. Any
/// thread. Not to be combined with `cmq_mailbox_fd`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_pop_where(
    mailbox: *const cmq_mailbox,
    wanted: cmq_wanted_fn,
    ctx: *mut c_void,
    message: *mut cmq_message,
    timeout_ns: i64,
) -> rb_status {
    call(|| shared::<OpenMailbox>(mailbox)?.pop_where(wanted, ctx, message, timeout_ns))
}

/// The number of messages that wait in the mailbox. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_waiting(mailbox: *const cmq_mailbox, count: *mut usize) -> rb_status {
    answer(count, "the place for the number", || Ok(shared::<OpenMailbox>(mailbox)?.from.waiting()))
}

/// The integer of the mailbox. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_id(mailbox: *const cmq_mailbox, id: *mut u32) -> rb_status {
    answer(id, "the place for the integer", || Ok(shared::<OpenMailbox>(mailbox)?.from.id()))
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
