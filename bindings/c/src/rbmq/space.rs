//! Spaces that are published to: all topics of a pattern, by one writer.

use std::ffi::{c_char, c_int, c_void};

use rbmq::{Publisher, SpaceWriter, TopicFilter, TopicName};

use crate::raw::{answer, bytes, copy_out, put, text, timeout};
use crate::rbmq::attributes::{attributes_of, rbmq_attributes};
use crate::rbmq::confirm::{level, rbmq_confirmation, rbmq_confirmed};
use crate::rbmq::publisher::rbmq_publisher;
use crate::rbmq::topic::{rbmq_topic_info, rbmq_topic_options, topic_options};
use crate::rbmq::writing::Writing;
use crate::status::rb_status::RB_FULL;
use crate::status::{Failure, call, call_number, rb_status};
use crate::table::{exclusive, insert, kinds, shared, take};

/// Publishes to the topics of a space: those of a pattern that the broker keeps in one log (`space = true` in its rule). One thread uses it at
/// a time.
pub struct rbmq_space(());

kinds! { rbmq_space => Space, 28, "space"; }

pub(crate) type Space = Writing<SpaceWriter>;

/// The name of a topic.
fn name(topic: *const c_char) -> Result<TopicName, Failure> {
    Ok(text(topic, "the topic's name")?.parse()?)
}

/// Opens a space by its pattern, such as "devices/#", and waits until the broker has taken it. `options` may be NULL; a space has records.
///
/// All writers of a publisher to a space, and those of its topics, share one buffer: positions, confirmations, room and the number of
/// subscribers are those of the log of the space. A writer costs nothing for each topic. `*out` is the caller's, until `rbmq_space_close` or
/// `rbmq_space_free`; it keeps the connection open. Any thread. Fails with `RB_ERR_NAME`, `RB_ERR_MEMORY`, `RB_ERR_TOO_MANY`, or
/// `RB_ERR_REFUSED`: the broker has no such space, among others.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_publisher_space(
    publisher: *const rbmq_publisher,
    pattern: *const c_char,
    given: *const rbmq_topic_options,
    out: *mut *mut rbmq_space,
) -> rb_status {
    answer(out, "the place for the space", || {
        let publisher = shared::<Publisher>(publisher)?;
        let writer =
            publisher.space_with(text(pattern, "the pattern of the space")?, topic_options(given)?)?;
        insert(Writing::new(writer))
    })
}

/// Publishes one record to a topic of the space, waiting at most `timeout_ns` while the ring is full. `attributes` may be NULL, and is read
/// during the call; it names no topic. `*end` gets the position behind the record, in the log of the space, for `rbmq_space_confirm`; `end`
/// may be NULL.
///
/// The record is copied. One thread uses a space at a time. `RB_TIMED_OUT`: nothing was published. Fails with `RB_ERR_NAME` for a topic that
/// is not in the space, with `RB_ERR_TOO_LARGE`, `RB_ERR_ARGUMENT`, `RB_ERR_REFUSED`, or `RB_ERR_BUSY` while a batch is open.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_publish_to(
    space: *mut rbmq_space,
    topic: *const c_char,
    attributes: *const rbmq_attributes,
    record: *const c_void,
    len: usize,
    timeout_ns: i64,
    end: *mut u64,
) -> rb_status {
    call(|| {
        let (topic, attributes) = (name(topic)?, attributes_of(attributes)?);
        let record = bytes(record, len, "the record")?;
        let mut space = exclusive::<Space>(space)?;
        let writer = space.writer()?;
        put(end, writer.publish_to_timeout(&topic, &attributes, record, timeout(timeout_ns))?);
        Ok(())
    })
}

/// Begins a delivery of records of any topics of the space, with room for `room` bytes of records and their headers of 4 bytes; with the
/// names of their topics they have at most `max_delivery_bytes`. Waits at most `timeout_ns` while the ring is full. Until it is delivered or
/// cancelled, other calls on the space fail with `RB_ERR_BUSY`.
///
/// A space is for one thread at a time. The errors are those of `rbmq_space_publish_to`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_batch(space: *mut rbmq_space, room: u64, timeout_ns: i64) -> rb_status {
    call(|| exclusive::<Space>(space)?.begin(room, timeout_ns))
}

/// Adds a record of a topic to the open batch; `RB_FULL`, and nothing is added, if there is no room. `attributes` may be NULL, and is read
/// during the call. The record is copied. One thread uses a space at a time. Fails as `rbmq_space_publish_to`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_batch_push(
    space: *mut rbmq_space,
    topic: *const c_char,
    attributes: *const rbmq_attributes,
    record: *const c_void,
    len: usize,
) -> rb_status {
    call(|| {
        let (topic, attributes) = (name(topic)?, attributes_of(attributes)?);
        let record = bytes(record, len, "the record")?;
        let added = exclusive::<Space>(space)?.batch()?.push(&topic, &attributes, record)?;
        if added { Ok(()) } else { Err(Failure::outcome(RB_FULL)) }
    })
}

/// Publishes the open batch. `*end` gets the position behind it; `end` may be NULL. Other writers of the log may have taken the room: then
/// the call waits as long as the one that began the batch was allowed to, and after `RB_TIMED_OUT` the batch is open as before. One thread
/// uses a space at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_batch_deliver(space: *mut rbmq_space, end: *mut u64) -> rb_status {
    call(|| {
        put(end, exclusive::<Space>(space)?.deliver()?);
        Ok(())
    })
}

/// Drops the open batch, and publishes nothing. Does nothing if none is open. One thread uses a space at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_batch_cancel(space: *mut rbmq_space) -> rb_status {
    call(|| {
        exclusive::<Space>(space)?.cancel();
        Ok(())
    })
}

/// 1 if a topic is in the space: the pattern matches it, and no earlier rule of the broker does; 0 if not; below 0 is a status. One thread
/// uses a space at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_contains(space: *mut rbmq_space, topic: *const c_char) -> c_int {
    call_number(|| Ok(exclusive::<Space>(space)?.writer()?.contains(&name(topic)?).into()))
}

/// 1 if every topic that a filter matches is in the space, 0 if not; below 0 is a status. One thread uses a space at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_covers(space: *mut rbmq_space, filter: *const c_char) -> c_int {
    call_number(|| {
        let filter: TopicFilter = text(filter, "the filter")?.parse()?;
        Ok(exclusive::<Space>(space)?.writer()?.covers(&filter).into())
    })
}

/// The state of the log of the space. One thread uses a space at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_get_info(space: *mut rbmq_space, info: *mut rbmq_topic_info) -> rb_status {
    answer(info, "the place for the state", || {
        let mut space = exclusive::<Space>(space)?;
        let writer = space.writer()?;
        let (max_delivery_bytes, position) = (writer.max_delivery_bytes(), writer.position());
        Ok(rbmq_topic_info { max_delivery_bytes, position, subscribers: writer.subscribers() })
    })
}

/// Waits until everything below `position`, which a call of this space returned, is confirmed at `level` (`RBMQ_LEVEL_…`), at most
/// `timeout_ns`. `confirmed` may be NULL. One thread uses a space at a time. Outcomes and errors as of `rbmq_topic_confirm`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_confirm(
    space: *mut rbmq_space,
    position: u64,
    at_level: u32,
    timeout_ns: i64,
    confirmed: *mut rbmq_confirmed,
) -> rb_status {
    call(|| {
        let mut space = exclusive::<Space>(space)?;
        put(confirmed, space.writer()?.confirm(position, level(at_level)?, timeout(timeout_ns))?.into());
        Ok(())
    })
}

/// Begins a confirmation of everything below `position`, without waiting for it.
///
/// `*out` is the caller's, until `rbmq_confirmation_free`. One thread uses a space at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_confirmation(
    space: *mut rbmq_space,
    position: u64,
    at_level: u32,
    out: *mut *mut rbmq_confirmation,
) -> rb_status {
    answer(out, "the place for the confirmation", || {
        let mut space = exclusive::<Space>(space)?;
        insert(space.writer()?.confirmation(position, level(at_level)?))
    })
}

/// The position below which everything is confirmed at `level`. One thread uses a space at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_confirmed(
    space: *mut rbmq_space,
    at_level: u32,
    position: *mut u64,
) -> rb_status {
    answer(position, "the place for the position", || {
        Ok(exclusive::<Space>(space)?.writer()?.confirmed(level(at_level)?))
    })
}

/// Why the broker's disk takes nothing of a kept space at the moment, as `rbmq_topic_disk_failure`. One thread uses a space at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_disk_failure(
    space: *mut rbmq_space,
    to: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> rb_status {
    call(|| {
        let failure = exclusive::<Space>(space)?.writer()?.disk_failure().unwrap_or_default();
        copy_out(failure.as_bytes(), to, capacity, len)
    })
}

/// Accepts a loss, as `rbmq_topic_accept_lost`, for all writers of the log. One thread uses a space at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_accept_lost(
    space: *mut rbmq_space,
    at_level: u32,
    from: *mut u64,
    to: *mut u64,
) -> rb_status {
    call(|| {
        let lost = exclusive::<Space>(space)?.writer()?.accept_lost(level(at_level)?).unwrap_or((0, 0));
        put(from, lost.0);
        put(to, lost.1);
        Ok(())
    })
}

/// Waits until the log of the space has `count` subscribers, at most `timeout_ns`. They receive everything that is published from then on.
/// A space is for one thread at a time. The error is `RB_ERR_REFUSED`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_wait_subscribers(
    space: *mut rbmq_space,
    count: u32,
    timeout_ns: i64,
) -> rb_status {
    call(|| Ok(exclusive::<Space>(space)?.writer()?.wait_subscribers(count, timeout(timeout_ns))?))
}

/// Waits until the broker has everything that was published, at most `timeout_ns`. One thread uses a space at a time. Fails with
/// `RB_ERR_REFUSED`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_flush(space: *mut rbmq_space, timeout_ns: i64) -> rb_status {
    call(|| Ok(exclusive::<Space>(space)?.writer()?.flush(timeout(timeout_ns))?))
}

/// Closes the writer: waits until the broker has everything, and if it is the last one of the log, its end, at most `timeout_ns`, and frees
/// the handle in any case. `RB_TIMED_OUT`: the broker is away, and the writer was closed without waiting further.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_close(space: *mut rbmq_space, timeout_ns: i64) -> rb_status {
    call(|| Ok(take::<Space>(space)?.into_writer().close_timeout(timeout(timeout_ns))?))
}

/// Closes the writer without waiting, and frees the handle. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_space_free(space: *mut rbmq_space) -> rb_status {
    call(|| if space.is_null() { Ok(()) } else { take::<Space>(space).map(drop) })
}
