//! Buffers and their writers.

use std::ffi::c_void;

use libc::iovec;
use rocketbufs::{OutBuffer, OutWriter, Progress, SegmentError};

use crate::handles::{rb_buffer, rb_writer};
use crate::options::{level, limits, rb_limits};
use crate::out_events::rb_coverage;
use crate::raw::{
    answer, array, array_mut, bytes, copied, iovec_bytes, nanos, pieces, place, put, rb_id128, timeout,
};
use crate::rout::{context_of, rb_traffic};
use crate::segment::{SegmentReserve, SegmentWriter, deliver, open, rb_buf_seg};
use crate::status::rb_status::{RB_ERR_NOT_ANSWERED, RB_FULL, RB_TIMED_OUT};
use crate::status::{Failure, Outcome, call, rb_status};
use crate::table::{exclusive, free_shared, insert, shared, take};

/// The id of a buffer. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_bid(buffer: *const rb_buffer, bid: *mut u32) -> rb_status {
    answer(bid, "the place for the id", || Ok(shared::<OutBuffer>(buffer)?.bid()))
}

/// A free segment of exactly `size` bytes, to be filled and delivered. Waits for room at most `timeout_ns`.
///
/// The memory of `*seg` is the caller's until `rb_buffer_deliver`. Several segments may be open; they become visible in the
/// order in which they were taken. Any thread. `RB_FULL` if there is no room and the time-out is 0, `RB_TIMED_OUT` if there was
/// none in time. Fails with `RB_ERR_TOO_LARGE`, `RB_ERR_CLOSED`, `RB_ERR_SPLICED`, `RB_ERR_WRITER_TAKEN`, `RB_ERR_EMPTY`,
/// `RB_ERR_TOO_MANY` (open segments) or `RB_ERR_SEGMENT_LOST`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_segment(
    buffer: *const rb_buffer,
    size: u64,
    timeout_ns: i64,
    seg: *mut rb_buf_seg,
) -> rb_status {
    call(|| {
        place(seg, "the place for the segment")?;
        open(seg, shared::<OutBuffer>(buffer)?.segment(size, timeout(timeout_ns))?, None)
    })
}

/// Makes the first `size` bytes of a segment one delivery; size 0 gives the segment back. `delivery`, if it is not NULL, comes
/// back in the data-out callback when the delivery has landed with every subscriber. `*end` gets the end of the delivery; `end`
/// may be NULL. Never waits.
///
/// The memory is the library's again, and `*seg` is nothing. Any thread. After `RB_ERR_SHORT_DELIVER`, `RB_ERR_TOO_LARGE` and
/// `RB_ERR_FOREIGN` the segment is still the caller's, and `*seg` was updated. After `RB_ERR_CLOSED` and `RB_ERR_TOO_MANY`
/// (contexts) it is gone.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_deliver(
    buffer: *const rb_buffer,
    seg: *mut rb_buf_seg,
    size: u64,
    delivery: *mut c_void,
    end: *mut u64,
) -> rb_status {
    call(|| {
        let buffer = shared::<OutBuffer>(buffer)?;
        deliver(seg, end, None, |segment| buffer.deliver(segment, size, context_of(delivery)))
    })
}

/// Takes the right to write, which only one writer has: no lock for each delivery. Until the writer is freed,
/// `rb_buffer_segment` fails with `RB_ERR_WRITER_TAKEN`.
///
/// `*out` is the caller's, until `rb_writer_free`. Any thread. Fails with `RB_ERR_WRITER_TAKEN`, `RB_ERR_SPLICED` or
/// `RB_ERR_CLOSED`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_writer(buffer: *const rb_buffer, out: *mut *mut rb_writer) -> rb_status {
    answer(out, "the place for the writer", || {
        let writer = shared::<OutBuffer>(buffer)?.writer()?;
        insert(SegmentWriter { writer, reserve: SegmentReserve::new() })
    })
}

/// Sets what subscriptions may ask for from now on; NULL allows everything. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_set_limits(buffer: *const rb_buffer, allowed: *const rb_limits) -> rb_status {
    call(|| {
        shared::<OutBuffer>(buffer)?.set_limits(limits(allowed)?);
        Ok(())
    })
}

/// How far a buffer is confirmed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_confirmed_positions {
    /// Everything below is in the memory of every subscriber.
    pub landed: u64,
    /// Everything below is in the memory of every last receiver of a chain.
    pub delivered: u64,
    /// Everything below was released by every such receiver.
    pub consumed: u64,
    /// The receivers that the positions speak for.
    pub coverage: rb_coverage,
    /// Connected subscriptions, and durable ones that are offline. Without any, everything written counts as confirmed.
    pub subscriptions: usize,
}

/// How far the buffer is confirmed, and for which receivers. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_confirmed(
    buffer: *const rb_buffer,
    confirmed: *mut rb_confirmed_positions,
) -> rb_status {
    answer(confirmed, "the place for the positions", || {
        let now = shared::<OutBuffer>(buffer)?.confirmed();
        let (landed, delivered, consumed) = (now.landed, now.delivered, now.consumed);
        let (coverage, subscriptions) = (now.coverage.into(), now.subscriptions);
        Ok(rb_confirmed_positions { landed, delivered, consumed, coverage, subscriptions })
    })
}

/// Waits until everything below `position` is confirmed at `level` (`RB_LEVEL_…`) by every subscriber present, at most
/// `timeout_ns`. Any thread, and not inside a callback. `RB_TIMED_OUT`: `rb_buffer_confirmed` says how far it is.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_wait(
    buffer: *const rb_buffer,
    at_level: u32,
    position: u64,
    timeout_ns: i64,
) -> rb_status {
    call(|| Ok(shared::<OutBuffer>(buffer)?.wait(level(at_level)?, position, timeout(timeout_ns))?))
}

/// Asks the subscribers to report as soon as `position` is confirmed at `level`, without waiting for it. The reports come by
/// the subscriber-progress callback or event. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_request_confirm(
    buffer: *const rb_buffer,
    at_level: u32,
    position: u64,
) -> rb_status {
    call(|| {
        shared::<OutBuffer>(buffer)?.request_confirm(level(at_level)?, position);
        Ok(())
    })
}

/// Reports `RB_OUT_PROGRESS` once, when there is room for the segment that `RB_FULL` refused last, or the buffer has ended. For
/// writers that must not wait. The last call of `rb_buffer_notify_…` for a buffer counts. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_notify_room(buffer: *const rb_buffer) -> rb_status {
    call(|| shared::<OutBuffer>(buffer).map(|buffer| buffer.notify_progress(Progress::Room)))
}

/// Reports `RB_OUT_PROGRESS` once, when every present subscriber has released everything below `position`, or the buffer has
/// ended. The last call of `rb_buffer_notify_…` for a buffer counts. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_notify_consumed(buffer: *const rb_buffer, position: u64) -> rb_status {
    call(|| shared::<OutBuffer>(buffer).map(|buffer| buffer.notify_progress(Progress::Consumed(position))))
}

/// Waits until every subscriber present has everything that was delivered and, of a destroyed buffer, has heard that this was
/// all; at most `timeout_ns`. Without a subscriber it returns at once. Any thread, and not inside a callback.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_drain(buffer: *const rb_buffer, timeout_ns: i64) -> rb_status {
    call(|| Ok(shared::<OutBuffer>(buffer)?.drain(timeout(timeout_ns))?))
}

/// Ends the buffer: its subscribers get the rest and then `RB_IN_CLOSED`. `*end` gets the end of its log; `end` may be
/// NULL. A second call changes nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_destroy(buffer: *const rb_buffer, end: *mut u64) -> rb_status {
    call(|| {
        put(end, shared::<OutBuffer>(buffer)?.destroy());
        Ok(())
    })
}

/// Frees a buffer's handle, which does not end the buffer. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_free(buffer: *mut rb_buffer) -> rb_status {
    call(|| if buffer.is_null() { Ok(()) } else { free_shared::<OutBuffer>(buffer) })
}

/// The state of a buffer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_buffer_info {
    /// The log's name.
    pub epoch: rb_id128,
    /// Where this ring's part of the log begins.
    pub start: u64,
    /// The end of the written bytes.
    pub head: u64,
    /// The end of the last complete delivery.
    pub boundary: u64,
    /// The first position that is still there.
    pub tail: u64,
    /// How far the writer may write now.
    pub horizon: u64,
    /// Bytes of the ring.
    pub capacity_bytes: u64,
    /// Bytes of history that are kept although nobody holds them.
    pub retain_bytes: u64,
    /// Bytes of the largest delivery.
    pub max_delivery_bytes: u64,
    /// The number of subscriptions.
    pub subscribers: usize,
    /// Whether the log has ended.
    pub ended: bool,
    /// The traffic of the buffer so far.
    pub traffic: rb_traffic,
}

/// The state of the buffer. Any thread. Fails with `RB_ERR_NOT_ANSWERED` if it is spliced and its subscription was not answered
/// yet.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_get_info(buffer: *const rb_buffer, info: *mut rb_buffer_info) -> rb_status {
    answer(info, "the place for the state", || {
        let now = shared::<OutBuffer>(buffer)?.info();
        let now =
            now.ok_or_else(|| Failure::new(RB_ERR_NOT_ANSWERED, "the subscription was not answered yet"))?;
        Ok(copied!(now => rb_buffer_info {
            epoch: now.epoch.0.into(), start, head, boundary, tail, horizon, capacity_bytes, retain_bytes, max_delivery_bytes,
            subscribers, ended, traffic: now.traffic.into(),
        }))
    })
}

/// The longest name of a subscription, in bytes.
pub const RB_MAX_NAME_BYTES: usize = 255;

/// One subscription of a buffer, or a place that is kept for a durable one.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_subscriber_info {
    /// Its connection; 0 if it is offline.
    pub conn: u64,
    /// Whether it is offline: its place is kept for `expires_in_ns`.
    pub offline: bool,
    /// `RB_POLICY_…`.
    pub policy: u32,
    /// Where it began; 0 if it is offline.
    pub start: u64,
    /// Everything below was given to the transport; 0 if it is offline.
    pub sent: u64,
    /// Everything below is in its memory.
    pub landed: u64,
    /// Everything below is in the memory of all receivers behind it.
    pub delivered: u64,
    /// Everything below was released by its application.
    pub consumed: u64,
    /// Bytes of the log that it was not yet sent; 0 if it is offline.
    pub lag_bytes: u64,
    /// Bytes that it lost by its policy; 0 if it is offline.
    pub dropped_bytes: u64,
    /// Whether it holds the writer, at `retains_from`.
    pub retains: bool,
    /// Where it holds the writer.
    pub retains_from: u64,
    /// How long it has released nothing, in nanoseconds; 0 if it is offline.
    pub idle_ns: i64,
    /// How long its place is still kept, in nanoseconds, if it is offline.
    pub expires_in_ns: i64,
    /// The bytes of its name.
    pub name_len: usize,
    /// Its name, with a zero behind it.
    pub name: [u8; 256],
}

fn name(of: &[u8]) -> (usize, [u8; 256]) {
    let mut name = [0; 256];
    let len = of.len().min(RB_MAX_NAME_BYTES);
    name[..len].copy_from_slice(&of[..len]);
    (len, name)
}

fn present(info: &rocketbufs::inspect::SubscriberInfo) -> rb_subscriber_info {
    let (name_len, name) = name(&info.name);
    copied!(info => rb_subscriber_info {
        conn, offline: false, policy: info.policy as u32, start, sent, landed, delivered, consumed, lag_bytes, dropped_bytes,
        retains: info.retains_from.is_some(), retains_from: info.retains_from.unwrap_or(0), idle_ns: nanos(info.idle),
        expires_in_ns: 0, name_len: name_len, name: name,
    })
}

fn offline(info: &rocketbufs::inspect::DurableCursorInfo) -> rb_subscriber_info {
    let (name_len, name) = name(&info.name);
    copied!(info => rb_subscriber_info {
        conn: 0, offline: true, policy: info.policy as u32, start: 0, sent: 0, landed, delivered, consumed, lag_bytes: 0,
        dropped_bytes: 0, retains: info.retains_from.is_some(), retains_from: info.retains_from.unwrap_or(0), idle_ns: 0,
        expires_in_ns: nanos(info.expires_in), name_len: name_len, name: name,
    })
}

/// The subscriptions of the buffer, and the places that are kept for durable ones that are offline: at most `capacity` of them
/// into `infos`, and `*count` gets how many there are. `infos` may be NULL if `capacity` is 0. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_subscribers(
    buffer: *const rb_buffer,
    infos: *mut rb_subscriber_info,
    capacity: usize,
    count: *mut usize,
) -> rb_status {
    call(|| {
        let buffer = shared::<OutBuffer>(buffer)?;
        let mut all: Vec<_> = buffer.subscribers().iter().map(present).collect();
        all.extend(buffer.durable_cursors().iter().map(offline));
        let infos = array_mut(infos, capacity, "the place for the subscriptions")?;
        infos.iter_mut().zip(&all).for_each(|(info, one)| *info = *one);
        put(count, all.len());
        Ok(())
    })
}

/// The number of connected subscriptions of the buffer: `rb_buffer_subscribers` lists those that are offline too. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_subscriber_count(buffer: *const rb_buffer, count: *mut usize) -> rb_status {
    answer(count, "the place for the number", || Ok(shared::<OutBuffer>(buffer)?.subscriber_count()))
}

/// Asks the subscribers how far they are; a later look shows their answers. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_buffer_refresh_subscribers(buffer: *const rb_buffer) -> rb_status {
    call(|| shared::<OutBuffer>(buffer).map(|buffer| buffer.refresh_subscribers()))
}

/// Copies `len` bytes into one delivery, waiting for room at most `timeout_ns`. `*end` gets the end of the delivery; `end` may be
/// NULL.
///
/// One thread uses a writer at a time. `RB_FULL` if there is no room and the time-out is 0, `RB_TIMED_OUT` if there was none in
/// time: nothing was written then. Fails as `rb_buffer_segment`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_writer_append(
    writer: *mut rb_writer,
    data: *const c_void,
    len: usize,
    timeout_ns: i64,
    end: *mut u64,
) -> rb_status {
    call(|| {
        let writer = &mut exclusive::<SegmentWriter>(writer)?.writer;
        let data = bytes(data, len, "the data")?;
        match writer.append(&[data]) {
            Ok(position) => put(end, position),
            Err(SegmentError::Full) => put(end, wait_append(writer, &[data], timeout_ns)?),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    })
}

/// As `append`, which had no room, with a time-out.
#[cold]
fn wait_append(writer: &mut OutWriter, parts: &[&[u8]], timeout_ns: i64) -> Result<u64, Failure> {
    if timeout_ns == 0 {
        return Err(Failure::outcome(RB_FULL));
    }
    Ok(writer.append_blocking(parts, timeout(timeout_ns))?)
}

/// As `rb_writer_append`, of a delivery that is made of `count` parts.
#[unsafe(no_mangle)]
pub extern "C" fn rb_writer_appendv(
    writer: *mut rb_writer,
    parts: *const iovec,
    count: usize,
    timeout_ns: i64,
    end: *mut u64,
) -> rb_status {
    call(|| {
        let writer = &mut exclusive::<SegmentWriter>(writer)?.writer;
        pieces(parts, count, |parts| {
            match writer.append(parts) {
                Ok(position) => put(end, position),
                Err(SegmentError::Full) => put(end, wait_append(writer, parts, timeout_ns)?),
                Err(error) => return Err(error.into()),
            }
            Ok(())
        })
    })
}

/// Copies `count` deliveries of one part each: for tiny messages, as one call costs more than a message. Waits for room at most
/// `timeout_ns` for each. `*appended` gets how many were written, also if the call fails or times out; `*end` the end of the
/// last one. Both may be NULL.
///
/// One thread uses a writer at a time. Fails as `rb_writer_append`.
#[unsafe(no_mangle)]
pub extern "C" fn rb_writer_append_many(
    writer: *mut rb_writer,
    deliveries: *const iovec,
    count: usize,
    timeout_ns: i64,
    appended: *mut usize,
    end: *mut u64,
) -> rb_status {
    call(|| {
        put(appended, 0);
        let writer = &mut exclusive::<SegmentWriter>(writer)?.writer;
        for (before, delivery) in array(deliveries, count, "the array of deliveries")?.iter().enumerate() {
            let data = iovec_bytes(delivery)?;
            let position = match writer.append(&[data]) {
                Ok(position) => position,
                Err(SegmentError::Full) => wait_append(writer, &[data], timeout_ns)?,
                Err(error) => return Err(error.into()),
            };
            put(end, position);
            put(appended, before + 1);
        }
        Ok(())
    })
}

/// A segment to fill; see `rb_buffer_segment`. One thread uses a writer at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rb_writer_segment(
    writer: *mut rb_writer,
    size: u64,
    timeout_ns: i64,
    seg: *mut rb_buf_seg,
) -> rb_status {
    call(|| {
        place(seg, "the place for the segment")?;
        let SegmentWriter { writer, reserve } = &mut *exclusive::<SegmentWriter>(writer)?;
        open(seg, writer.segment(size, timeout(timeout_ns))?, Some(reserve))
    })
}

/// Makes the first `size` bytes of a segment one delivery; see `rb_buffer_deliver`. One thread uses a writer at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rb_writer_deliver(
    writer: *mut rb_writer,
    seg: *mut rb_buf_seg,
    size: u64,
    delivery: *mut c_void,
    end: *mut u64,
) -> rb_status {
    call(|| {
        let SegmentWriter { writer, reserve } = &mut *exclusive::<SegmentWriter>(writer)?;
        deliver(seg, end, Some(reserve), |segment| writer.deliver(segment, size, context_of(delivery)))
    })
}

/// The end of the written bytes, and how many bytes could be appended now without waiting. Either place may be NULL. One
/// thread uses a writer at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rb_writer_info(writer: *mut rb_writer, head: *mut u64, free_bytes: *mut u64) -> rb_status {
    call(|| {
        let writer = &exclusive::<SegmentWriter>(writer)?.writer;
        put(head, writer.head());
        put(free_bytes, writer.free_bytes());
        Ok(())
    })
}

/// Notes the time, so that `RB_START_AGO` finds later deliveries. Workers note the time where there are subscribers. One
/// thread uses a writer at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rb_writer_note_time(writer: *mut rb_writer) -> rb_status {
    call(|| exclusive::<SegmentWriter>(writer).map(|writer| writer.writer.note_time()))
}

/// Gives the right to write back to the buffer, and frees the handle. NULL does nothing. Fails with `RB_ERR_BUSY` while another
/// thread uses the writer.
#[unsafe(no_mangle)]
pub extern "C" fn rb_writer_free(writer: *mut rb_writer) -> rb_status {
    call(|| -> Outcome {
        if writer.is_null() { Ok(()) } else { take::<SegmentWriter>(writer).map(drop) }
    })
}

/// An outcome of waiting, for calls that say more with it.
pub(crate) const fn timed_out() -> Failure {
    Failure::outcome(RB_TIMED_OUT)
}
