//! Topics that are published to.

use std::ffi::{c_char, c_void};

use libc::iovec;
use rbmq::{Framing, Publisher, TopicOptions, TopicWriter};

use crate::conn::function;
use crate::raw::{Versioned, answer, array, bytes, iovec_bytes, options, put, rb_bool, set, text, timeout};
use crate::rbmq::attributes::{attributes_of, rbmq_attributes};
use crate::rbmq::publisher::{rbmq_fill_fn, rbmq_publisher};
use crate::rbmq::writing::Writing;
use crate::status::rb_status::{RB_ERR_ARGUMENT, RB_FULL};
use crate::status::{Failure, call, rb_status};
use crate::table::{exclusive, insert, kinds, shared, take};

/// Publishes to one topic. One thread uses it at a time.
pub struct rbmq_topic(());

kinds! { rbmq_topic => Topic, 21, "topic"; }

/// Records, each a message with its length.
pub const RBMQ_FRAMING_RECORDS: u32 = 0;
/// Plain bytes, a stream without boundaries.
pub const RBMQ_FRAMING_RAW: u32 = 1;
/// Records of many publishers; only brokers write such topics.
pub const RBMQ_FRAMING_MERGED: u32 = 2;

/// A framing as C sees it.
pub(crate) fn framing(framing: Framing) -> u32 {
    match framing {
        Framing::Records => RBMQ_FRAMING_RECORDS,
        Framing::Raw => RBMQ_FRAMING_RAW,
        Framing::Merged => RBMQ_FRAMING_MERGED,
    }
}

pub(crate) type Topic = Writing<TopicWriter>;

/// How a topic is opened. Zeros are defaults: `rbmq_topic_options options = {.size = sizeof options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_topic_options {
    /// `sizeof(rbmq_topic_options)`.
    pub size: usize,
    /// The capacity of the topic's ring, in this process and at the broker, in bytes; 0: `buffers.size_bytes`.
    pub ring_bytes: u64,
    /// The largest delivery in bytes, including 4 bytes of header for each record; 0: a quarter of the ring.
    pub max_delivery_bytes: u64,
    /// `RBMQ_FRAMING_RECORDS` or `RBMQ_FRAMING_RAW`.
    pub framing: u32,
    /// How long opening waits for the broker, in nanoseconds; 0: 10 s, below 0: without a limit.
    pub open_timeout_ns: i64,
    /// Keeps records in this process until they are delivered, and not only until the broker has them: a broker that dies
    /// loses nothing.
    pub keep_until_delivered: rb_bool,
    /// The least number of subscribers. While there are fewer, publishing waits, and nothing is confirmed as delivered.
    pub min_subscribers: u32,
    /// The most confirmations that wait at a time; 0: 65,536.
    pub max_confirmations: usize,
}

// SAFETY: integers and an `rb_bool`, and the first field is the size.
unsafe impl Versioned for rbmq_topic_options {}

pub(crate) fn topic_options(given: *const rbmq_topic_options) -> Result<TopicOptions, Failure> {
    let given = options(given, "the topic's options")?;
    let framing = match given.framing {
        RBMQ_FRAMING_RECORDS => Framing::Records,
        RBMQ_FRAMING_RAW => Framing::Raw,
        other => return Err(Failure::of(RB_ERR_ARGUMENT, format!("{other} is no framing to publish with"))),
    };
    let mut made = TopicOptions::default()
        .framing(framing)
        .keep_until_delivered(given.keep_until_delivered.is_set())
        .min_subscribers(given.min_subscribers);
    set!(made, given: ring_bytes, max_delivery_bytes, max_confirmations);
    if given.open_timeout_ns != 0 {
        made = made.open_timeout(timeout(given.open_timeout_ns));
    }
    Ok(made)
}

/// Opens a topic, and waits until the broker has taken it. `options` may be NULL.
///
/// `*out` is the caller's, until `rbmq_topic_close` or `rbmq_topic_free`; it keeps the connection open. Any thread. Fails with
/// `RB_ERR_NAME`, `RB_ERR_MEMORY`, `RB_ERR_TOO_MANY` or `RB_ERR_REFUSED`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_publisher_topic(
    publisher: *const rbmq_publisher,
    name: *const c_char,
    given: *const rbmq_topic_options,
    out: *mut *mut rbmq_topic,
) -> rb_status {
    answer(out, "the place for the topic", || {
        let publisher = shared::<Publisher>(publisher)?;
        let writer = publisher.topic_with(text(name, "the topic's name")?, topic_options(given)?)?;
        insert(Writing::new(writer))
    })
}

/// Publishes one record, waiting at most `timeout_ns` while the ring is full. `*end` gets the position behind the record, for
/// `rbmq_topic_confirm`; `end` may be NULL.
///
/// The record is copied. One thread uses a topic at a time. `RB_TIMED_OUT`: nothing was published. Fails with `RB_ERR_TOO_LARGE`,
/// `RB_ERR_WRONG_FRAMING`, `RB_ERR_REFUSED`, `RB_ERR_TOO_FEW`, or `RB_ERR_BUSY` while a batch is open.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_publish(
    topic: *mut rbmq_topic,
    record: *const c_void,
    len: usize,
    timeout_ns: i64,
    end: *mut u64,
) -> rb_status {
    call(|| {
        let record = bytes(record, len, "the record")?;
        put(end, exclusive::<Topic>(topic)?.writer()?.publish_timeout(record, timeout(timeout_ns))?);
        Ok(())
    })
}

/// As `rbmq_topic_publish`, with what the record says about its content. `attributes` may be NULL, and is read during the call. Fails also with
/// `RB_ERR_ARGUMENT` for texts that are not UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_publish_with(
    topic: *mut rbmq_topic,
    attributes: *const rbmq_attributes,
    record: *const c_void,
    len: usize,
    timeout_ns: i64,
    end: *mut u64,
) -> rb_status {
    call(|| {
        let (attributes, record) = (attributes_of(attributes)?, bytes(record, len, "the record")?);
        let mut topic = exclusive::<Topic>(topic)?;
        let writer = topic.writer()?;
        put(end, writer.publish_with_timeout(&attributes, record, timeout(timeout_ns))?);
        Ok(())
    })
}

/// Publishes `count` records, as many in each delivery as fit: for tiny messages, as a call costs more than a message. Waits at
/// most `timeout_ns` for each delivery. `*published` gets how many were published, also if the call fails or times out; `*end`
/// the position behind the last one. Both may be NULL.
///
/// One thread uses a topic at a time. Fails as `rbmq_topic_publish`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_publish_many(
    topic: *mut rbmq_topic,
    records: *const iovec,
    count: usize,
    timeout_ns: i64,
    published: *mut usize,
    end: *mut u64,
) -> rb_status {
    call(|| {
        put(published, 0);
        let records = array(records, count, "the array of records")?;
        let mut topic = exclusive::<Topic>(topic)?;
        let mut done = 0;
        while done < records.len() {
            let (more, position) = publish_some(topic.writer()?, &records[done..], timeout_ns)?;
            done += more;
            put(published, done);
            put(end, position);
        }
        Ok(())
    })
}

/// Publishes the first records in one delivery. Returns how many, and the position behind them.
fn publish_some(
    writer: &mut TopicWriter,
    records: &[iovec],
    timeout_ns: i64,
) -> Result<(usize, u64), Failure> {
    let most = writer.max_delivery_bytes() as usize;
    let (mut count, mut size) = (0, 0_usize);
    for record in records {
        let with_header = record.iov_len.saturating_add(4);
        if count > 0 && size.saturating_add(with_header) > most {
            break;
        }
        (count, size) = (count + 1, size.saturating_add(with_header));
    }
    if count == 1 {
        return Ok((1, writer.publish_timeout(iovec_bytes(&records[0])?, timeout(timeout_ns))?));
    }
    let mut batch = writer.batch_timeout(size as u64, timeout(timeout_ns))?;
    let mut added = 0;
    // In a topic of a space not all may fit, since each has the name of the topic.
    while added < count && batch.push(iovec_bytes(&records[added])?) {
        added += 1;
    }
    if added > 0 {
        return Ok((added, batch.deliver()?));
    }
    drop(batch);
    Ok((1, writer.publish_timeout(iovec_bytes(&records[0])?, timeout(timeout_ns))?))
}

/// Publishes plain bytes, in a topic with `RBMQ_FRAMING_RAW`. Bytes that do not fit into one delivery make several. Waits without
/// a limit while the ring is full. One thread uses a topic at a time. Fails as `rbmq_topic_publish`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_publish_raw(
    topic: *mut rbmq_topic,
    data: *const c_void,
    len: usize,
    end: *mut u64,
) -> rb_status {
    call(|| {
        put(end, exclusive::<Topic>(topic)?.writer()?.publish_raw(bytes(data, len, "the data")?)?);
        Ok(())
    })
}

/// Publishes raw bytes without a copy: `fill(ctx, to, capacity)` writes them into `capacity` bytes of the ring, inside this call,
/// and returns how many it wrote. Waits at most `timeout_ns` while the ring is full. `*filled` gets what `fill` returned; below 0,
/// nothing was published. `filled` may be NULL. One thread uses a topic at a time, and `fill` must not use it.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_fill_raw(
    topic: *mut rbmq_topic,
    capacity: usize,
    timeout_ns: i64,
    fill: rbmq_fill_fn,
    ctx: *mut c_void,
    filled: *mut isize,
) -> rb_status {
    call(|| {
        let fill = function(fill)?;
        let mut topic = exclusive::<Topic>(topic)?;
        let result = topic.writer()?.fill_raw(capacity as u64, timeout(timeout_ns), |to| {
            let wrote = fill(ctx, to.as_mut_ptr().cast(), to.len());
            usize::try_from(wrote).map(|wrote| wrote.min(to.len())).map_err(|_| wrote)
        })?;
        put(filled, result.map_or_else(|failed| failed, |wrote| wrote as isize));
        Ok(())
    })
}

/// Begins a delivery of many records, with room for `room` bytes of records and their headers of 4 bytes. Waits at most
/// `timeout_ns` while the ring is full. Until it is delivered or cancelled, other calls on the topic fail with `RB_ERR_BUSY`.
///
/// One thread uses a topic at a time. Fails as `rbmq_topic_publish`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_batch(topic: *mut rbmq_topic, room: u64, timeout_ns: i64) -> rb_status {
    call(|| exclusive::<Topic>(topic)?.begin(room, timeout_ns))
}

/// Adds a record to the open batch; `RB_FULL`, and nothing is added, if there is no room. The record is copied. One thread uses a
/// topic at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_batch_push(
    topic: *mut rbmq_topic,
    record: *const c_void,
    len: usize,
) -> rb_status {
    call(|| {
        let record = bytes(record, len, "the record")?;
        let added = exclusive::<Topic>(topic)?.batch()?.push(record);
        if added { Ok(()) } else { Err(Failure::outcome(RB_FULL)) }
    })
}

/// As `rbmq_topic_batch_push`, with what the record says about its content. `attributes` may be NULL, and is read during the call.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_batch_push_with(
    topic: *mut rbmq_topic,
    attributes: *const rbmq_attributes,
    record: *const c_void,
    len: usize,
) -> rb_status {
    call(|| {
        let (attributes, record) = (attributes_of(attributes)?, bytes(record, len, "the record")?);
        let added = exclusive::<Topic>(topic)?.batch()?.push_with(&attributes, record);
        if added { Ok(()) } else { Err(Failure::outcome(RB_FULL)) }
    })
}

/// Adds any number of encoded records (a length of 4 bytes, little endian, and as many bytes, for each) to the open batch as one
/// copy; `RB_FULL`, and nothing is added, if there is no room. They are not checked: malformed ones are errors at the subscribers.
/// One thread uses a topic at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_batch_push_encoded(
    topic: *mut rbmq_topic,
    records: *const c_void,
    len: usize,
) -> rb_status {
    call(|| {
        let records = bytes(records, len, "the records")?;
        let added = exclusive::<Topic>(topic)?.batch()?.push_encoded(records);
        if added { Ok(()) } else { Err(Failure::outcome(RB_FULL)) }
    })
}

/// Publishes the open batch. `*end` gets the position behind it; `end` may be NULL. In a topic of a space other writers may have taken the
/// room: then the call waits as long as the one that began the batch was allowed to, and after `RB_TIMED_OUT` the batch is open as before.
/// One thread uses a topic at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_batch_deliver(topic: *mut rbmq_topic, end: *mut u64) -> rb_status {
    call(|| {
        put(end, exclusive::<Topic>(topic)?.deliver()?);
        Ok(())
    })
}

/// Drops the open batch, and publishes nothing. Does nothing if none is open. One thread uses a topic at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_batch_cancel(topic: *mut rbmq_topic) -> rb_status {
    call(|| {
        exclusive::<Topic>(topic)?.cancel();
        Ok(())
    })
}

/// The state of a topic.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_topic_info {
    /// The largest delivery in bytes.
    pub max_delivery_bytes: u64,
    /// The position behind the last published record.
    pub position: u64,
    /// The number of subscribers, as last reported by the broker.
    pub subscribers: u32,
}

/// The state of the topic. One thread uses a topic at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_get_info(topic: *mut rbmq_topic, info: *mut rbmq_topic_info) -> rb_status {
    answer(info, "the place for the state", || {
        let mut topic = exclusive::<Topic>(topic)?;
        let writer = topic.writer()?;
        let (max_delivery_bytes, position) = (writer.max_delivery_bytes(), writer.position());
        Ok(rbmq_topic_info { max_delivery_bytes, position, subscribers: writer.subscribers() })
    })
}

/// Waits until the topic has `count` subscribers, at most `timeout_ns`. They receive everything that is published from then on.
/// One thread uses a topic at a time. Fails with `RB_ERR_REFUSED`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_wait_subscribers(
    topic: *mut rbmq_topic,
    count: u32,
    timeout_ns: i64,
) -> rb_status {
    call(|| Ok(exclusive::<Topic>(topic)?.writer()?.wait_subscribers(count, timeout(timeout_ns))?))
}

/// Waits until the broker has everything that was published, at most `timeout_ns`. One thread uses a topic at a time. Fails with
/// `RB_ERR_REFUSED`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_flush(topic: *mut rbmq_topic, timeout_ns: i64) -> rb_status {
    call(|| Ok(exclusive::<Topic>(topic)?.writer()?.flush(timeout(timeout_ns))?))
}

/// Closes the topic: waits until the broker has everything and the end of the topic, at most `timeout_ns`, and frees the handle in
/// any case. `RB_TIMED_OUT`: the broker is away, and the topic was closed without waiting further.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_close(topic: *mut rbmq_topic, timeout_ns: i64) -> rb_status {
    call(|| Ok(take::<Topic>(topic)?.into_writer().close_timeout(timeout(timeout_ns))?))
}

/// Closes the topic without waiting, and frees the handle. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_free(topic: *mut rbmq_topic) -> rb_status {
    call(|| if topic.is_null() { Ok(()) } else { take::<Topic>(topic).map(drop) })
}
