//! Messages that are filled in the memory that they are sent from.

use std::ffi::c_void;

use rbmq::MessageSegment;

use crate::raw::{get, get_mut, place, put};
use crate::rbmq::attributes::{attributes_of, rbmq_attributes};
use crate::rbmq::topic::{Topic, rbmq_topic};
use crate::status::rb_status::RB_ERR_SHORT_DELIVER;
use crate::status::{Failure, Outcome, call, rb_status};
use crate::table::{exclusive, insert, kinds, take};

/// Room for a message, between `rbmq_topic_claim` and `rbmq_topic_publish_segment`. One thread uses it at a time.
pub struct rbmq_claim(());

kinds! { rbmq_claim => MessageSegment, 26, "message's segment"; }

/// Room for one message, in the memory that the message is sent from.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_segment {
    /// The memory to fill: the caller's until the message is published. Its content is arbitrary until it is written.
    pub data: *mut c_void,
    /// The number of bytes.
    pub len: usize,
    /// The handle of the room; NULL after the message was published.
    pub claim: *mut rbmq_claim,
}

const NOTHING: rbmq_segment =
    rbmq_segment { data: std::ptr::null_mut(), len: 0, claim: std::ptr::null_mut() };

/// Hands a segment to the caller.
fn open(to: *mut rbmq_segment, mut segment: MessageSegment) -> Outcome {
    let bytes = segment.bytes_mut();
    // The bytes stay where they are when the segment moves.
    let (data, len) = (bytes.as_mut_ptr().cast(), bytes.len());
    put(to, rbmq_segment { data, len, claim: insert(segment)? });
    Ok(())
}

/// Room for one message of `bytes` bytes: a record, or in a raw topic plain bytes. Waits at most `timeout_ns` while the ring is full.
///
/// The memory of `*segment` is the caller's until `rbmq_topic_publish_segment` or `rbmq_topic_return_segment`; any thread may fill it.
/// Several may be open: messages become visible in the order in which their room was taken, and later messages wait for it. One thread
/// uses a topic at a time. Outcomes and errors as of `rbmq_topic_publish`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_claim(
    topic: *mut rbmq_topic,
    bytes: u64,
    timeout_ns: i64,
    segment: *mut rbmq_segment,
) -> rb_status {
    call(|| {
        place(segment, "the place for the segment")?;
        let mut topic = exclusive::<Topic>(topic)?;
        open(segment, topic.writer()?.claim(bytes, crate::raw::timeout(timeout_ns))?)
    })
}

/// As `rbmq_topic_claim`, for a message with attributes: `bytes` bytes are for its content. `attributes` may be NULL, and is read during the
/// call.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_claim_with(
    topic: *mut rbmq_topic,
    attributes: *const rbmq_attributes,
    bytes: u64,
    timeout_ns: i64,
    segment: *mut rbmq_segment,
) -> rb_status {
    call(|| {
        place(segment, "the place for the segment")?;
        let attributes = attributes_of(attributes)?;
        let mut topic = exclusive::<Topic>(topic)?;
        open(segment, topic.writer()?.claim_with(&attributes, bytes, crate::raw::timeout(timeout_ns))?)
    })
}

/// Publishes the first `bytes` bytes of a segment as a message. Only the newest open segment can be published with fewer bytes than it
/// has. `*end` gets the position behind the message; `end` may be NULL. Never waits.
///
/// `*segment` is nothing afterwards. One thread uses a topic at a time. Fails with `RB_ERR_SHORT_DELIVER` for a segment of another topic,
/// for more bytes than there are, and for fewer bytes of a segment that is not the newest: `*segment` is then still the caller's.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_publish_segment(
    topic: *mut rbmq_topic,
    segment: *mut rbmq_segment,
    bytes: u64,
    end: *mut u64,
) -> rb_status {
    call(|| publish(topic, segment, Some(bytes), end))
}

/// Gives the newest open segment back, and publishes nothing. One thread uses a topic at a time. Fails as
/// `rbmq_topic_publish_segment`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_topic_return_segment(topic: *mut rbmq_topic, segment: *mut rbmq_segment) -> rb_status {
    call(|| publish(topic, segment, None, std::ptr::null_mut()))
}

fn publish(topic: *mut rbmq_topic, segment: *mut rbmq_segment, bytes: Option<u64>, end: *mut u64) -> Outcome {
    let mut topic = exclusive::<Topic>(topic)?;
    let writer = topic.writer()?;
    let claimed = take::<MessageSegment>(get(segment, "the segment's structure")?.claim)?;
    put(segment, NOTHING);
    let error = match writer.publish_segment(claimed, bytes) {
        Ok(position) => {
            put(end, position);
            return Ok(());
        }
        Err(error) => error,
    };
    match error.segment {
        Some(back) => {
            let failure = Failure::of(RB_ERR_SHORT_DELIVER, &error.error);
            open(segment, back)?;
            Err(failure)
        }
        None => Err(error.error.into()),
    }
}

/// Frees a segment that was not published, and makes `*segment` nothing. The topic cannot publish further unless the segment was the
/// newest: give it back instead, while the topic is there. An empty segment does nothing. Any thread, one at a time.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_segment_free(segment: *mut rbmq_segment) -> rb_status {
    call(|| {
        let segment = get_mut(segment, "the segment's structure")?;
        let claim = std::mem::replace(segment, NOTHING).claim;
        if claim.is_null() { Ok(()) } else { take::<MessageSegment>(claim).map(drop) }
    })
}
