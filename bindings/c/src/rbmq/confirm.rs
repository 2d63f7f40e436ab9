//! Confirmations of published records.

use std::ffi::c_char;

use rbmq::{ConfirmLevel, Confirmation, Confirmed};

use crate::raw::{answer, copy_out, put, timeout};
use crate::rbmq::topic::{Topic, rbmq_topic};
use crate::status::rb_status::{RB_ERR_ARGUMENT, RB_TIMED_OUT};
use crate::status::{Failure, call, rb_status};
use crate::table::{exclusive, free_shared, insert, kinds, shared};

/// A confirmation that was begun. Any number of threads may use it.
pub struct rbmq_confirmation(());

kinds! { rbmq_confirmation => Confirmation, 22, "confirmation"; }

/// The records are in the broker's memory. They are lost if the broker dies.
pub const RBMQ_LEVEL_ACCEPTED: u32 = 0;
/// The records are in the memory of every subscriber that had a place when the broker accepted them.
pub const RBMQ_LEVEL_DELIVERED: u32 = 1;
/// Every such subscriber has consumed the records.
pub const RBMQ_LEVEL_CONSUMED: u32 = 2;
/// The records are in the file of a topic that the broker keeps (`keep = true`), and survive the death of the broker. Other topics fail
/// with `RB_ERR_REFUSED`. This level says nothing about subscribers.
pub const RBMQ_LEVEL_STORED: u32 = 3;
/// The records are on the disk (`fdatasync`) of a topic that the broker keeps, and survive a crash of its machine.
pub const RBMQ_LEVEL_SYNCED: u32 = 4;
/// The records are in the archive below the disk of a topic that has one, and survive the broker's machine. Other topics fail with
/// `RB_ERR_REFUSED`.
pub const RBMQ_LEVEL_ARCHIVED: u32 = 5;

/// The outcome of a confirmation.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_confirmed {
    /// `RBMQ_LEVEL_…`.
    pub level: u32,
    /// Everything below is confirmed: the position that was asked for, or a later one.
    pub position: u64,
    /// The number of subscribers that the confirmation covers. 0: no subscriber was required to have the records, or the level is one of
    /// the disk.
    pub subscribers: u32,
    /// The number of subscribers that left after the broker accepted the position.
    pub left: u32,
    /// How often, since then, a subscriber lost records.
    pub lost: u32,
}

impl From<Confirmed> for rbmq_confirmed {
    fn from(confirmed: Confirmed) -> Self {
        let Confirmed { level, position, subscribers, left, lost } = confirmed;
        Self { level: level as u32, position, subscribers, left, lost }
    }
}

pub(crate) fn level(value: u32) -> Result<ConfirmLevel, Failure> {
    let known = ConfirmLevel::ALL.into_iter().find(|level| *level as u32 == value);
    known.ok_or_else(|| Failure::of(RB_ERR_ARGUMENT, format!("{value} is no level of confirmation")))
}

/// Waits until everything below `position`, which `rbmq_topic_publish` returned, is confirmed at `level` (`RBMQ_LEVEL_…`), at most
/// `timeout_ns`. `confirmed` may be NULL.
///
/// One thread uses a topic at a time. `RB_TIMED_OUT`: the text says how far it is confirmed, and the confirmation may still come.
/// Fails with `RB_ERR_LOST`, `RB_ERR_TOO_FEW`, `RB_ERR_REFUSED`, `RB_ERR_NOT_PUBLISHED` or `RB_ERR_TOO_MANY`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_confirm(
    topic: *mut rbmq_topic,
    position: u64,
    at_level: u32,
    timeout_ns: i64,
    confirmed: *mut rbmq_confirmed,
) -> rb_status {
    call(|| {
        let mut topic = exclusive::<Topic>(topic)?;
        put(confirmed, topic.writer()?.confirm(position, level(at_level)?, timeout(timeout_ns))?.into());
        Ok(())
    })
}

/// Begins a confirmation of everything below `position`, without waiting for it.
///
/// `*out` is the caller's, until `rbmq_confirmation_free`. One thread uses a topic at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_confirmation(
    topic: *mut rbmq_topic,
    position: u64,
    at_level: u32,
    out: *mut *mut rbmq_confirmation,
) -> rb_status {
    answer(out, "the place for the confirmation", || {
        let mut topic = exclusive::<Topic>(topic)?;
        insert(topic.writer()?.confirmation(position, level(at_level)?))
    })
}

/// Waits for the result of a confirmation, at most `timeout_ns`; with 0 it only looks. `confirmed` may be NULL. Any thread. Fails as
/// `rbmq_topic_confirm`, and with `RB_ERR_CLOSED` if the topic was closed before.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_confirmation_wait(
    confirmation: *const rbmq_confirmation,
    confirmed: *mut rbmq_confirmed,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        let confirmation = shared::<Confirmation>(confirmation)?;
        let result = match timeout_ns {
            0 => confirmation.try_get().ok_or(Failure::outcome(RB_TIMED_OUT))?,
            _ => confirmation.wait(timeout(timeout_ns)),
        };
        put(confirmed, result?.into());
        Ok(())
    })
}

/// Frees a confirmation, which has no effect on the records. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_confirmation_free(confirmation: *mut rbmq_confirmation) -> rb_status {
    call(|| if confirmation.is_null() { Ok(()) } else { free_shared::<Confirmation>(confirmation) })
}

/// The position below which everything is confirmed at `level`. One thread uses a topic at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_confirmed(
    topic: *mut rbmq_topic,
    at_level: u32,
    position: *mut u64,
) -> rb_status {
    answer(position, "the place for the position", || {
        Ok(exclusive::<Topic>(topic)?.writer()?.confirmed(level(at_level)?))
    })
}

/// Why the broker's disk takes nothing of a kept topic at the moment, as far as the broker has said; an empty text if it works. As
/// `snprintf` would write it. One thread uses a topic at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_disk_failure(
    topic: *mut rbmq_topic,
    to: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> rb_status {
    call(|| {
        let failure = exclusive::<Topic>(topic)?.writer()?.disk_failure().unwrap_or_default();
        copy_out(failure.as_bytes(), to, capacity, len)
    })
}

/// Accepts a loss after `RB_ERR_LOST` or `RB_ERR_TOO_FEW`: confirmations of `level` continue behind the lost range, which `*from`
/// and `*to` get; both may be NULL. Does nothing, and gives an empty range, if nothing is lost. One thread uses a topic at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_accept_lost(
    topic: *mut rbmq_topic,
    at_level: u32,
    from: *mut u64,
    to: *mut u64,
) -> rb_status {
    call(|| {
        let lost = exclusive::<Topic>(topic)?.writer()?.accept_lost(level(at_level)?).unwrap_or((0, 0));
        put(from, lost.0);
        put(to, lost.1);
        Ok(())
    })
}
