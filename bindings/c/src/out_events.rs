//! The events of an rOut.

use std::ffi::{c_char, c_void};

use rocketbufs::Coverage;
use rocketbufs::{OutEvent, SubscriberProgress};

use crate::conn::rb_down;
use crate::kept::Kept;

/// The kinds of events of an rOut. More kinds may be added: ignore those that you do not know.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum rb_out_kind {
    /// A peer subscribed: `conn`, `bid`, `name`, `from` (the first position that is sent), `resumed`.
    RB_OUT_SUBSCRIBED = 1,
    /// A subscription ended: `conn`, `bid`, `name`, `text` (why).
    RB_OUT_UNSUBSCRIBED = 2,
    /// A subscriber does not get a range: `conn`, `bid`, `from`, `to`, `policy`.
    RB_OUT_DROPPED = 3,
    /// A slow subscriber was disconnected: `conn`, `bid`, `policy`, `count` (its lag in bytes).
    RB_OUT_TOO_SLOW = 4,
    /// The hold time of a durable subscription is over: `bid`.
    RB_OUT_DURABLE_EXPIRED = 5,
    /// A connection is down: `conn`, `down`.
    RB_OUT_CONN_DOWN = 6,
    /// The condition of `rb_buffer_notify_…` has become true: `bid`.
    RB_OUT_PROGRESS = 7,
    /// A delivery with a context has landed at every subscriber: `bid`, `delivery`. Only while there is no data-out callback.
    RB_OUT_DATA_OUT = 8,
    /// A subscriber has reported its positions: `conn`, `bid`, `progress`. Only while there is no callback for it.
    RB_OUT_SUBSCRIBER_PROGRESS = 9,
    /// A control message of a peer: `conn`, `message`, `message_len`. Only while there is no callback for it.
    RB_OUT_CONTROL = 10,
    /// `count` events before the next one were dropped, since they were not received in time.
    RB_OUT_MISSED = 11,
    /// The log of a spliced buffer has ended, and every present subscriber has all of it: `bid`.
    RB_OUT_ENDED = 12,
    /// An event that this version of the library cannot describe.
    #[default]
    RB_OUT_OTHER = 13,
}

/// The receivers that positions speak for.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rb_coverage {
    /// The receivers at the ends of all chains.
    pub receivers: u32,
    /// Such receivers that have gone and count no more.
    pub left: u32,
    /// How often such a receiver was told that it lost a range.
    pub lost: u32,
    /// All of these receivers have what is confirmed from here on.
    pub covered_from: u64,
}

impl From<Coverage> for rb_coverage {
    fn from(coverage: Coverage) -> Self {
        let Coverage { receivers, left, lost, covered_from, .. } = coverage;
        Self { receivers, left, lost, covered_from }
    }
}

/// The positions that one subscriber has confirmed.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rb_subscriber_progress {
    /// The buffer.
    pub bid: u32,
    /// The subscriber's connection.
    pub conn: u64,
    /// Everything below is in the subscriber's memory.
    pub landed: u64,
    /// Everything below is in the memory of every receiver downstream of it.
    pub delivered: u64,
    /// Everything below was released by every such receiver.
    pub consumed: u64,
    /// The receivers that the subscriber speaks for.
    pub coverage: rb_coverage,
}

/// An event of an rOut. The description of its kind says which fields have a meaning.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rb_out_event {
    /// The kind of the event.
    pub kind: rb_out_kind,
    /// The buffer.
    pub bid: u32,
    /// The number of the connection (`rb_conn_id`).
    pub conn: u64,
    /// A position.
    pub from: u64,
    /// One past the last position of a range.
    pub to: u64,
    /// A number.
    pub count: u64,
    /// `RB_POLICY_…`.
    pub policy: u32,
    /// Whether a subscription continues with this log.
    pub resumed: bool,
    /// The subscription's name.
    pub name: *const c_void,
    /// The bytes of the name.
    pub name_len: usize,
    /// A control message.
    pub message: *const c_void,
    /// The bytes of the message.
    pub message_len: usize,
    /// The context of a delivery.
    pub delivery: *mut c_void,
    /// A reason, for people.
    pub text: *const c_char,
    /// Why a connection is down.
    pub down: rb_down,
    /// The positions of a subscriber.
    pub progress: rb_subscriber_progress,
}

pub(crate) fn progress(reported: &SubscriberProgress) -> rb_subscriber_progress {
    let SubscriberProgress { bid, conn, landed, delivered, consumed, coverage, .. } = *reported;
    rb_subscriber_progress { bid, conn, landed, delivered, consumed, coverage: coverage.into() }
}

fn empty(kind: rb_out_kind) -> rb_out_event {
    rb_out_event { kind, ..Default::default() }
}

/// An event as C sees it. `kept` owns what it points at.
pub(crate) fn out_event(event: OutEvent, kept: &mut Kept) -> rb_out_event {
    use rb_out_kind::*;
    match event {
        OutEvent::Subscribed { conn, bid, name, start, resumed } => {
            let (name, name_len) = kept.message(name);
            rb_out_event { conn, bid, name, name_len, from: start, resumed, ..empty(RB_OUT_SUBSCRIBED) }
        }
        OutEvent::Unsubscribed { conn, bid, name, why } => {
            let (name, name_len) = kept.message(name);
            rb_out_event { conn, bid, name, name_len, text: kept.text(&why), ..empty(RB_OUT_UNSUBSCRIBED) }
        }
        OutEvent::Dropped { conn, bid, from, to, policy } => {
            rb_out_event { conn, bid, from, to, policy: policy as u32, ..empty(RB_OUT_DROPPED) }
        }
        OutEvent::TooSlow { conn, bid, policy, lag_bytes } => {
            rb_out_event { conn, bid, policy: policy as u32, count: lag_bytes, ..empty(RB_OUT_TOO_SLOW) }
        }
        OutEvent::DurableExpired { bid } => rb_out_event { bid, ..empty(RB_OUT_DURABLE_EXPIRED) },
        OutEvent::ConnDown { conn, reason } => {
            rb_out_event { conn, down: rb_down::of(&reason, kept), ..empty(RB_OUT_CONN_DOWN) }
        }
        OutEvent::Progress { bid } => rb_out_event { bid, ..empty(RB_OUT_PROGRESS) },
        OutEvent::DataOut { bid, context } => {
            let delivery = std::ptr::with_exposed_provenance_mut(context as usize);
            rb_out_event { bid, delivery, ..empty(RB_OUT_DATA_OUT) }
        }
        OutEvent::SubscriberProgress(reported) => {
            let (bid, conn, progress) = (reported.bid, reported.conn, progress(&reported));
            rb_out_event { bid, conn, progress, ..empty(RB_OUT_SUBSCRIBER_PROGRESS) }
        }
        OutEvent::Control { conn, message } => {
            let (message, message_len) = kept.message(message);
            rb_out_event { conn, message, message_len, ..empty(RB_OUT_CONTROL) }
        }
        OutEvent::Missed { events } => rb_out_event { count: events, ..empty(RB_OUT_MISSED) },
        OutEvent::Ended { bid } => rb_out_event { bid, ..empty(RB_OUT_ENDED) },
        _ => empty(RB_OUT_OTHER),
    }
}
