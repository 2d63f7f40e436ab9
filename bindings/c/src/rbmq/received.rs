//! The messages, batches and events that a subscriber receives.

use std::ffi::{c_char, c_void};

use rbmq::{MessageRef, Notice};
use rocketbufs::Epoch;

use crate::kept::Kept;
use crate::raw::rb_id128;

/// A message in the memory where it landed: valid until the next call on the subscriber.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_message {
    /// The content: a record, or in a raw topic the bytes that arrived together.
    pub data: *const c_void,
    /// The number of bytes.
    pub len: usize,
    /// The topic, without a zero at its end: print it with `%.*s`.
    pub topic: *const c_char,
    /// The bytes of the topic.
    pub topic_len: usize,
    /// The log of its publisher.
    pub epoch: rb_id128,
    /// The position at which to resume behind this message.
    pub end: u64,
    /// In a merged topic: the number of the publisher; -1 otherwise.
    pub publisher: i64,
    /// What the message says about its content, for `rbmq_attributes_read`; no bytes if it says nothing.
    pub attributes: *const c_void,
    /// The number of bytes.
    pub attributes_len: usize,
}

/// Whole deliveries of one buffer, in the memory where they landed: valid until the batch is consumed.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rbmq_batch {
    /// All bytes, including the headers of records.
    pub data: *const c_void,
    /// The number of bytes.
    pub len: usize,
    /// The topic, without a zero at its end: print it with `%.*s`.
    pub topic: *const c_char,
    /// The bytes of the topic.
    pub topic_len: usize,
    /// `RBMQ_FRAMING_…`.
    pub framing: u32,
    /// The log of the publisher.
    pub epoch: rb_id128,
    /// The position of the first byte.
    pub position: u64,
    /// The position behind the last byte, at which to resume.
    pub end: u64,
}

/// A record of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_record {
    /// The content.
    pub data: *const c_void,
    /// The number of bytes.
    pub len: usize,
    /// The position behind the record, for `rbmq_subscriber_batch_consume_part`.
    pub end: u64,
    /// In a merged topic: the number of the publisher; -1 otherwise.
    pub publisher: i64,
    /// What the record says about its content, for `rbmq_attributes_read`; no bytes if it says nothing.
    pub attributes: *const c_void,
    /// The number of bytes.
    pub attributes_len: usize,
}

/// The kinds of batches and events that a subscriber gets. More kinds may be added: ignore those that you do not know.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum rbmq_event_kind {
    /// Messages: `batch`, as of `rbmq_subscriber_next_batch`.
    RBMQ_EVENT_BATCH = 1,
    /// The subscription of a buffer is active: `topic`, `epoch`, `from` (the first position that will come).
    RBMQ_EVENT_JOINED = 2,
    /// Messages are lost: `topic`, `epoch`, `from`, `to`.
    RBMQ_EVENT_LOST = 3,
    /// The publisher closed the topic: `topic`, `epoch`, `to` (the end of its log).
    RBMQ_EVENT_CLOSED = 4,
    /// The publisher died, or was offline for too long: `topic`, `epoch`, `to` (the end of the last complete delivery).
    RBMQ_EVENT_GONE = 5,
    /// The broker refused a request or ended a subscription: `topic` (NULL if it is about several), `text`.
    RBMQ_EVENT_REFUSED = 6,
    /// The broker limits an option: `text`.
    RBMQ_EVENT_OPTION_CLAMPED = 7,
    /// The connection is lost; the subscriber reconnects by itself: `text`.
    RBMQ_EVENT_DISCONNECTED = 8,
    /// The connection is back.
    RBMQ_EVENT_RECONNECTED = 9,
    /// An event that this version of the library cannot describe.
    #[default]
    RBMQ_EVENT_OTHER = 10,
    /// A merged topic has another log after a restart of its broker, from which messages may be missing: `topic`, `epoch`.
    RBMQ_EVENT_LOG_REPLACED = 11,
}

/// An event of a subscriber. Its texts are valid until this thread's next call that receives something.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rbmq_event {
    /// The kind of the event.
    pub kind: rbmq_event_kind,
    /// Messages.
    pub batch: rbmq_batch,
    /// The topic; NULL if the event is about none. Of a batch, see there.
    pub topic: *const c_char,
    /// A reason, for people; NULL if there is none.
    pub text: *const c_char,
    /// A publisher's log.
    pub epoch: rb_id128,
    /// A position.
    pub from: u64,
    /// One past the last position of a range.
    pub to: u64,
}

impl rbmq_message {
    pub(crate) fn of(received: &MessageRef<'_>) -> Self {
        let topic = received.topic.as_str();
        Self {
            data: received.bytes.as_ptr().cast(),
            len: received.bytes.len(),
            topic: topic.as_ptr().cast(),
            topic_len: topic.len(),
            epoch: received.epoch.0.into(),
            end: received.end,
            publisher: received.publisher.map_or(-1, i64::from),
            attributes: received.attributes.as_bytes().as_ptr().cast(),
            attributes_len: received.attributes.len(),
        }
    }
}

pub(crate) fn empty(kind: rbmq_event_kind) -> rbmq_event {
    rbmq_event { kind, ..Default::default() }
}

pub(crate) fn notice_event(notice: Notice, kept: &mut Kept) -> rbmq_event {
    use rbmq_event_kind::*;
    let mut about = |kind, topic: &rbmq::TopicName, epoch: Epoch, from, to| rbmq_event {
        topic: kept.text(topic.as_str()),
        epoch: epoch.0.into(),
        from,
        to,
        ..empty(kind)
    };
    match notice {
        Notice::Joined { topic, epoch, start } => about(RBMQ_EVENT_JOINED, &topic, epoch, start, 0),
        Notice::Lost { topic, epoch, from, to } => about(RBMQ_EVENT_LOST, &topic, epoch, from, to),
        Notice::Closed { topic, epoch, end } => about(RBMQ_EVENT_CLOSED, &topic, epoch, 0, end),
        Notice::Gone { topic, epoch, end } => about(RBMQ_EVENT_GONE, &topic, epoch, 0, end),
        Notice::LogReplaced { topic, epoch } => about(RBMQ_EVENT_LOG_REPLACED, &topic, epoch, 0, 0),
        Notice::Refused { topic, reason } => rbmq_event {
            topic: topic.map_or(std::ptr::null(), |topic| kept.text(topic.as_str())),
            text: kept.text(&reason),
            ..empty(RBMQ_EVENT_REFUSED)
        },
        Notice::OptionClamped(text) => {
            rbmq_event { text: kept.text(&text), ..empty(RBMQ_EVENT_OPTION_CLAMPED) }
        }
        Notice::Disconnected(why) => rbmq_event { text: kept.text(&why), ..empty(RBMQ_EVENT_DISCONNECTED) },
        Notice::Reconnected => empty(RBMQ_EVENT_RECONNECTED),
        _ => empty(RBMQ_EVENT_OTHER),
    }
}
