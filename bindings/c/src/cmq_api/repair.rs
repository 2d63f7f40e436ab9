//! Queues that recover lost messages: replay and replacement.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use bytes::Bytes;
use cmq::strategy::repair::{Policy, Repair, RepairConfig};

use crate::cmq_api::message::{cmq_key, cmq_message, give};
use crate::cmq_api::options::{cmq_options, config};
use crate::raw::{Versioned, answer, bytes, get, get_mut, options, place, put, set, text, timeout};
use crate::status::rb_status::{RB_ERR_ARGUMENT, RB_TIMED_OUT};
use crate::status::{Failure, call, rb_status};
use crate::table::{free_shared, insert, kinds, shared};

/// A queue that recovers lost messages. Any number of threads may use it.
pub struct cmq_repair(());

type ByteRepair = Repair<Vec<u8>>;

kinds! { cmq_repair => ByteRepair, 36, "repairing queue"; }

/// A lost message is sent again, while it is in the history of its key.
pub const CMQ_REPAIR_REPLAY: u32 = 0;
/// The newest message of its slot is sent in place of a lost one. Older ones are not sent again.
pub const CMQ_REPAIR_REPLACE: u32 = 1;

/// The settings of a queue that recovers lost messages. Zeros are defaults: `cmq_repair_options options = {.size = sizeof options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_repair_options {
    /// `sizeof(cmq_repair_options)`.
    pub size: usize,
    /// The replacement of a lost message: `CMQ_REPAIR_…`.
    pub policy: u32,
    /// The messages in the history of each key, or the slots that are kept for each key; 0: 1,024.
    pub kept: usize,
    /// How often one message is sent again; 0: 3.
    pub max_repairs: u32,
    /// How long a receiver waits for an answer before it asks the same sender again, in nanoseconds; 0: 100 ms.
    pub request_interval_ns: i64,
    /// Keys sent to, and senders received from, that are remembered; 0: 4,096.
    pub max_peers: usize,
}

// SAFETY: integers, and the first field is the size.
unsafe impl Versioned for cmq_repair_options {}

fn repair_config(given: *const cmq_repair_options) -> Result<RepairConfig, Failure> {
    let given = options(given, "the repair's options")?;
    let kept = if given.kept == 0 { 1024 } else { given.kept };
    let policy = match given.policy {
        CMQ_REPAIR_REPLAY => Policy::Replay { history: kept },
        CMQ_REPAIR_REPLACE => Policy::Replace { slots: kept },
        other => return Err(Failure::of(RB_ERR_ARGUMENT, format!("{other} is no policy of repair"))),
    };
    let mut made = RepairConfig::default().policy(policy);
    set!(made, given: max_repairs, max_peers; request_interval = request_interval_ns);
    Ok(made)
}

/// A message of a queue that recovers lost ones.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_repaired {
    /// The message.
    pub message: cmq_message,
    /// The slot: the subject of the message.
    pub slot: u64,
    /// The number of the message, among those of this sender for this key.
    pub number: u64,
    /// Whether the message takes the place of a lost one, and so is out of order.
    pub repaired: bool,
}

/// Opens a queue at a local address that recovers lost messages; both ends must be such queues. `options` and `repairs` may be NULL.
///
/// `*out` is the caller's, until `cmq_repair_free`. Any thread. Fails as `cmq_new_rq`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_repair_new(
    address: *const c_char,
    given: *const cmq_options,
    repairs: *const cmq_repair_options,
    out: *mut *mut cmq_repair,
) -> rb_status {
    answer(out, "the place for the queue", || {
        let repairs = repair_config(repairs)?;
        let queue = cmq::new_rq_with(text(address, "the address")?, config(given)?)?;
        insert(ByteRepair::new(queue, repairs))
    })
}

/// Queues a message about `slot` for a key. With `CMQ_REPAIR_REPLACE` a later message about the same slot replaces it. Never waits.
///
/// The message is copied. Any thread. `RB_FULL` if too many bytes wait, or too many keys are remembered. Fails with
/// `RB_ERR_TOO_LARGE` or `RB_ERR_ADDRESS`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_repair_push(
    repair: *const cmq_repair,
    key: *const cmq_key,
    slot: u64,
    message: *const c_void,
    len: usize,
) -> rb_status {
    call(|| {
        let key = get(key, "the key")?;
        let message = bytes(message, len, "the message")?.to_vec();
        Ok(shared::<ByteRepair>(repair)?.push((key.addr()?, key.id), slot, &message)?)
    })
}

/// Tells the receiver of a key how many messages there are, so that it notices the loss of the last ones. For when no further message
/// follows for a while. Any thread. Fails as `cmq_repair_push`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_repair_notify_end(repair: *const cmq_repair, key: *const cmq_key) -> rb_status {
    call(|| {
        let key = get(key, "the key")?;
        Ok(shared::<ByteRepair>(repair)?.notify_end((key.addr()?, key.id))?)
    })
}

/// The next message, waiting at most `timeout_ns`; `RB_TIMED_OUT` if none came. Lost messages are requested and sent again inside this
/// call, so senders must call it too.
///
/// `received->message` is the caller's, until `cmq_message_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_repair_pop(
    repair: *const cmq_repair,
    received: *mut cmq_repaired,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(received, "the place for the message")?;
        let limit = timeout(timeout_ns).unwrap_or(Duration::MAX);
        let popped = shared::<ByteRepair>(repair)?.pop_timeout(limit);
        let popped = popped.ok_or(Failure::outcome(RB_TIMED_OUT))?;
        let place = get_mut(received, "the place for the message")?;
        (place.slot, place.number, place.repaired) = (popped.slot, popped.number, popped.repaired);
        give(&raw mut place.message, Bytes::from(popped.message), popped.from)
    })
}

/// The messages of all senders that are missing now, and those that were missing and do not come any more: they are lost, or were
/// replaced. Either place may be NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_repair_counts(
    repair: *const cmq_repair,
    missing: *mut u64,
    unrecoverable: *mut u64,
) -> rb_status {
    call(|| {
        let repair = shared::<ByteRepair>(repair)?;
        put(missing, repair.missing());
        put(unrecoverable, repair.unrecoverable());
        Ok(())
    })
}

/// The address of the queue, with the mailbox 0. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_repair_local_addr(repair: *const cmq_repair, key: *mut cmq_key) -> rb_status {
    answer(key, "the place for the key", || {
        Ok(cmq_key::of(shared::<ByteRepair>(repair)?.queue().local_addr(), 0))
    })
}

/// Frees the handle of a queue that recovers lost messages. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_repair_free(repair: *mut cmq_repair) -> rb_status {
    call(|| if repair.is_null() { Ok(()) } else { free_shared::<ByteRepair>(repair) })
}
