//! Workers of groups, and their messages.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use rbmq::{GroupBuilder, GroupMessage, GroupWorker, Subscriber};
use rocketbufs::{Config, Context};

use crate::handles::{rb_config, rb_context};
use crate::raw::{
    Versioned, answer, duration, nanos, optional_text, options, place, put, rb_bool, set, text, timeout,
};
use crate::rbmq::login::{login_of, rbmq_login};
use crate::status::rb_status::{RB_ERR_ARGUMENT, RB_TIMED_OUT};
use crate::status::{Failure, call, call_number, rb_status};
use crate::table::{exclusive, insert, kinds, take};

/// Receives messages of a group, and reconnects by itself. One thread uses it at a time.
pub struct rbmq_group_worker(());
/// A message that a worker of a group has. Any thread may use it, one at a time, also when the worker is gone.
pub struct rbmq_group_message(());

kinds! {
    rbmq_group_worker => GroupWorker, 37, "worker";
    rbmq_group_message => GroupMessage, 38, "message of a group";
}

/// Options of a worker, and of the group that it makes if there is none. Zeros are defaults:
/// `rbmq_group_options options = {.size = sizeof options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_group_options {
    /// `sizeof(rbmq_group_options)`.
    pub size: usize,
    /// The name in the broker's log; NULL: none.
    pub name: *const c_char,
    /// The most messages that this worker has at a time: those that wait here, and those whose handles are neither acknowledged, given back
    /// nor freed; 0: 100.
    pub credit: u32,
    /// Of a new group: a message whose attempts have failed so many times goes to `dead_letters`; 0: it comes again without a limit.
    pub max_attempts: u16,
    /// Of a new group: messages with the same key are handed out one after the other, in the order of the log.
    pub ordered: rb_bool,
    /// Of a new group: it begins with the next message that is published, and not with the oldest one that is kept.
    pub from_newest: rb_bool,
    /// Of a new group: how long a worker may have a message before others get it, in nanoseconds, at least 1 ms and at most 49 days; 0: 30 s.
    pub ack_time_ns: i64,
    /// Of a new group: the kept topic of messages that have failed, which a publisher has made; NULL: none. Together with `max_attempts`.
    pub dead_letters: *const c_char,
    /// The configuration for a context of the worker's own; NULL: the default. Read during the call.
    pub config: *const rb_config,
    /// Shares the memory and the threads of this context; NULL: a context of the worker's own.
    pub context: *const rb_context,
    /// The login of the client; NULL: none. Read during the call.
    pub login: *const rbmq_login,
}

// SAFETY: integers, pointers and `rb_bool`s, and the first field is the size.
unsafe impl Versioned for rbmq_group_options {}

/// A message of a group: valid as long as its handle.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_group_content {
    /// The content.
    pub data: *const c_void,
    /// The number of bytes.
    pub len: usize,
    /// The attributes of the message, for `rbmq_attributes_read`; no bytes if it has none.
    pub attributes: *const c_void,
    /// The number of bytes.
    pub attributes_len: usize,
    /// The position in the log of the topic: the name of the message among those of the group.
    pub position: u64,
    /// 1, or more if earlier attempts have failed.
    pub attempt: u16,
}

/// The builder of a worker with these options.
fn builder(group: &str, given: &rbmq_group_options) -> Result<GroupBuilder, Failure> {
    let mut client = Subscriber::builder().login(login_of(given.login)?);
    if let Some(name) = optional_text(given.name, "the name")? {
        client = client.name(name);
    }
    if !given.config.is_null() {
        client = client.config(exclusive::<Config>(given.config)?.clone());
    }
    if !given.context.is_null() {
        client = client.context(&*crate::table::shared::<Context>(given.context)?);
    }
    let mut builder =
        client.group(group).ordered(given.ordered.is_set()).from_newest(given.from_newest.is_set());
    set!(builder, given: credit; ack_time = ack_time_ns);
    match (given.max_attempts, optional_text(given.dead_letters, "the dead-letter topic")?) {
        (0, None) => Ok(builder),
        (attempts @ 1.., Some(topic)) => Ok(builder.dead_letters(attempts, topic)),
        _ => Err(Failure::new(
            RB_ERR_ARGUMENT,
            "max_attempts and dead_letters belong together: set both or none",
        )),
    }
}

/// Joins a group of workers that share a kept topic, at a broker such as "127.0.0.1:7411": each message goes to one of them, until it is
/// acknowledged. The group is made, with the options of this call, if it does not exist. Waits until the broker answers, at most
/// `session.connect_timeout_ms` for the connection and for the group each. `options` may be NULL. The name of a group has 1 to 64 letters,
/// digits, and `.`, `_` and `-`.
///
/// `*out` is the caller's, until `rbmq_group_worker_close` or `rbmq_group_worker_free`. Any thread. Fails as `rbmq_subscriber_connect`; with
/// `RB_ERR_NAME` for a topic or a group, with `RB_ERR_REFUSED` if the broker says no (the topic is not kept or has had no publisher yet, the
/// user may not subscribe to it, the broker is a member of a cluster, a limit), and with `RB_ERR_DOWN` if the broker knows no groups.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_join(
    address: *const c_char,
    topic: *const c_char,
    group: *const c_char,
    given: *const rbmq_group_options,
    out: *mut *mut rbmq_group_worker,
) -> rb_status {
    call(|| {
        place(out, "the place for the worker")?;
        let given = options(given, "the group's options")?;
        let builder = builder(text(group, "the group")?, &given)?;
        put(out, insert(builder.join(text(address, "the address")?, text(topic, "the topic")?)?)?);
        Ok(())
    })
}

/// The next message, waiting at most `timeout_ns`. A broker that is away is waited for; one attempt to connect may take longer than the
/// time-out. The calls that wait are those that connect again: call one of them now and then.
///
/// `*message` is the caller's, until `rbmq_group_message_ack`, `…_nack`, `…_release` or `…_free`. Workers are for one thread at a time.
/// `RB_TIMED_OUT` if nothing came. Fails with `RB_ERR_REFUSED` for good: the group was deleted, or the user may not read the topic any more.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_worker_recv(
    worker: *mut rbmq_group_worker,
    message: *mut *mut rbmq_group_message,
    timeout_ns: i64,
) -> rb_status {
    answer(message, "the place for the message", || {
        let received = exclusive::<GroupWorker>(worker)?.recv(timeout(timeout_ns))?;
        insert(received.ok_or(Failure::outcome(RB_TIMED_OUT))?)
    })
}

/// Waits until everything that was acknowledged is in the broker's journal, so that a broker that is killed does not forget it; at most
/// `timeout_ns`.
///
/// Workers are for one thread at a time. `RB_TIMED_OUT`: the acknowledgements are told again when the broker answers. Fails with
/// `RB_ERR_IN_VAIN`, once, if acknowledgements do not count, since the group was reset or the broker has no room for them; or as
/// `rbmq_group_worker_recv`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_worker_flush(worker: *mut rbmq_group_worker, timeout_ns: i64) -> rb_status {
    call(|| Ok(exclusive::<GroupWorker>(worker)?.flush(timeout(timeout_ns))?))
}

/// The time for which a worker may have a message, in nanoseconds: that of the group, also if `ack_time_ns` of the options is another one. One
/// thread uses a worker at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_worker_ack_time(
    worker: *const rbmq_group_worker,
    ack_time_ns: *mut i64,
) -> rb_status {
    answer(ack_time_ns, "the place for the time", || Ok(nanos(exclusive::<GroupWorker>(worker)?.ack_time())))
}

/// 1 if there is a connection and the group is joined, 0 if not; below 0 is a status. Workers are for one thread at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_worker_is_joined(worker: *const rbmq_group_worker) -> c_int {
    call_number(|| Ok(exclusive::<GroupWorker>(worker)?.is_joined().into()))
}

/// Gives back what was not received, waits until the broker has everything that was acknowledged, at most 2 s for each, and frees the
/// handle in any case. A message that was received and has no word yet is a failed attempt.
///
/// Workers are for one thread at a time. Outcomes and errors as of `rbmq_group_worker_flush`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_worker_close(worker: *mut rbmq_group_worker) -> rb_status {
    call(|| Ok(take::<GroupWorker>(worker)?.close()?))
}

/// As `rbmq_group_worker_close`, without an error and within 0.7 s. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_worker_free(worker: *mut rbmq_group_worker) -> rb_status {
    call(|| if worker.is_null() { Ok(()) } else { take::<GroupWorker>(worker).map(drop) })
}

/// The content of a message. The pointers in `*content` are valid until the message is acknowledged, given back or freed. One thread uses a message
/// at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_message_get(
    message: *const rbmq_group_message,
    content: *mut rbmq_group_content,
) -> rb_status {
    answer(content, "the place for the content", || {
        let message = exclusive::<GroupMessage>(message)?;
        let attributes = message.attributes.attributes();
        Ok(rbmq_group_content {
            data: message.bytes.as_ptr().cast(),
            len: message.bytes.len(),
            attributes: attributes.as_bytes().as_ptr().cast(),
            attributes_len: attributes.len(),
            position: message.position,
            attempt: message.attempt,
        })
    })
}

/// The message is done, and does not come again. Frees the message, and returns at once: `rbmq_group_worker_flush` waits until the broker has
/// it. Any thread, one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_message_ack(message: *mut rbmq_group_message) -> rb_status {
    call(|| take::<GroupMessage>(message).map(GroupMessage::ack))
}

/// The message is not done: an attempt has failed. Others, or this worker, get it after `delay_ns`, at most 12 hours. Frees the message. Any
/// thread, one at a time. Fails with `RB_ERR_ARGUMENT`, and the message is there as before, if the delay is negative.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_message_nack(message: *mut rbmq_group_message, delay_ns: i64) -> rb_status {
    call(|| {
        let delay: Duration = duration(delay_ns, "delay_ns")?;
        take::<GroupMessage>(message).map(|message| message.nack(delay))
    })
}

/// The worker gets `time_ns` from now on for the message, at most 12 hours. Without effect if its time was over already. Any thread, one at a
/// time. Fails with `RB_ERR_ARGUMENT` if the time is negative.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_message_extend(message: *const rbmq_group_message, time_ns: i64) -> rb_status {
    call(|| {
        let time = duration(time_ns, "time_ns")?;
        exclusive::<GroupMessage>(message).map(|message| message.extend(time))
    })
}

/// The worker has not begun with the message and gives it back, which is no failed attempt. Frees the message. Any thread, one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_message_release(message: *mut rbmq_group_message) -> rb_status {
    call(|| take::<GroupMessage>(message).map(GroupMessage::release))
}

/// Frees a message without a word about it: others get it when the time of the group is over, which is a failed attempt. NULL does nothing.
/// Any thread, one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_group_message_free(message: *mut rbmq_group_message) -> rb_status {
    call(|| if message.is_null() { Ok(()) } else { take::<GroupMessage>(message).map(drop) })
}
