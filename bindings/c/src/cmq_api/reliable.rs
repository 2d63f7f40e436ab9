//! The reliable mode: messages that are sent until the receiving queue confirms them.

use std::ffi::c_void;
use std::time::Duration;

use cmq::{Fate, Key, Undelivered};

use crate::cmq_api::message::cmq_key;
use crate::cmq_api::queue::{Queue, cmq_queue};
use crate::cmq_api::reason::cmq_reason;
use crate::raw::{bytes, get, place, put, timeout};
use crate::status::rb_status::{RB_ERR_ARGUMENT, RB_ERR_UNDELIVERED, RB_TIMED_OUT};
use crate::status::{Failure, Outcome, call, rb_status};
use crate::table::shared;

/// The outcome of a message of the reliable mode.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum cmq_message_fate {
    /// The key has no message with this number, or is forgotten.
    CMQ_FATE_UNKNOWN = 0,
    /// The message is on its way.
    CMQ_FATE_PENDING = 1,
    /// The receiving queue has the message, and all earlier ones of its key.
    CMQ_FATE_CONFIRMED = 2,
    /// The message was given up. The message may have arrived all the same.
    CMQ_FATE_FAILED = 3,
}

/// A fate as C has it, with the reason of a failure.
fn in_c(fate: Option<Fate>) -> (cmq_message_fate, cmq_reason) {
    use cmq_message_fate::*;
    match fate {
        Some(Fate::Pending) => (CMQ_FATE_PENDING, cmq_reason::CMQ_REASON_NONE),
        Some(Fate::Confirmed) => (CMQ_FATE_CONFIRMED, cmq_reason::CMQ_REASON_NONE),
        Some(Fate::Failed(why)) => (CMQ_FATE_FAILED, why.into()),
        _ => (CMQ_FATE_UNKNOWN, cmq_reason::CMQ_REASON_NONE),
    }
}

impl From<Undelivered> for Failure {
    fn from(why: Undelivered) -> Self {
        Failure::of(RB_ERR_UNDELIVERED, why)
    }
}

fn key_of(key: *const cmq_key) -> Result<Key, Failure> {
    let key = get(key, "the key")?;
    Ok((key.addr()?, key.id).into())
}

/// Queues a message of the reliable mode for a key. The queue sends the message until the receiving queue confirms it, and
/// the receiver pops the messages of a key in their order. Both queues have `cmq_options.reliable`. Never waits. The
/// message is copied.
///
/// `*number` gets the number of the message among the reliable ones of its key, for `cmq_fate` and `cmq_wait_confirmed`; `number` may be
/// NULL. Any thread. `RB_FULL` if too many bytes wait to be confirmed. Fails with `RB_ERR_TOO_LARGE`, `RB_ERR_ADDRESS`, or
/// `RB_ERR_CONFIG` if the mode is off; nothing is sent then.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_push_reliable(
    queue: *const cmq_queue,
    key: *const cmq_key,
    message: *const c_void,
    len: usize,
    number: *mut u64,
) -> rb_status {
    call(|| {
        let key = key_of(key)?;
        let message = bytes(message, len, "the message")?;
        put(number, shared::<Queue>(queue)?.from.push_reliable_bytes(key, message)?);
        Ok(())
    })
}

/// The outcome of a message of the reliable mode: its key, and the number that `cmq_push_reliable` gave. Never waits.
///
/// `*fate` gets it, and `*why` the reason if the message was given up; `why` may be NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_fate(
    queue: *const cmq_queue,
    key: *const cmq_key,
    number: u64,
    fate: *mut cmq_message_fate,
    why: *mut cmq_reason,
) -> rb_status {
    call(|| {
        place(fate, "the place for the fate")?;
        let found = in_c(shared::<Queue>(queue)?.from.fate(key_of(key)?, number));
        put(fate, found.0);
        put(why, found.1);
        Ok(())
    })
}

/// Waits until a message of the reliable mode is confirmed, at most `timeout_ns`, and sends all pending messages before. `RB_OK`: the
/// receiving queue has the message. `RB_TIMED_OUT`: it is still on its way.
///
/// Any thread. Fails with `RB_ERR_UNDELIVERED` if the message was given up: the text and `cmq_fate` say why. `RB_ERR_ARGUMENT` if the key
/// has no message with this number, or is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_wait_confirmed(
    queue: *const cmq_queue,
    key: *const cmq_key,
    number: u64,
    timeout_ns: i64,
) -> rb_status {
    call(|| decided(shared::<Queue>(queue)?.from.wait_confirmed(key_of(key)?, number, timeout(timeout_ns))))
}

/// The result of waiting for the confirmation of one message.
fn decided(fate: Option<Fate>) -> Outcome {
    match fate {
        Some(Fate::Confirmed) => Ok(()),
        Some(Fate::Failed(why)) => Err(why.into()),
        Some(_) => Err(Failure::outcome(RB_TIMED_OUT)),
        None => {
            Err(Failure::new(RB_ERR_ARGUMENT, "the key has no message with this number, or is forgotten"))
        }
    }
}

/// Waits until each message of the reliable mode is confirmed or given up, at most `timeout_ns`, and sends all pending messages before.
/// `RB_TIMED_OUT` if some are neither. The counters (`cmq_get_stats`) and events say which were given up. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_wait_all_confirmed(queue: *const cmq_queue, timeout_ns: i64) -> rb_status {
    call(|| {
        let limit: Option<Duration> = timeout(timeout_ns);
        let all = shared::<Queue>(queue)?.from.wait_all_confirmed(limit);
        all.then_some(()).ok_or(Failure::outcome(RB_TIMED_OUT))
    })
}
