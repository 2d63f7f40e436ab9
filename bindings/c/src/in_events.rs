//! Data and events of an rIn.

use std::ffi::{c_char, c_void};

use rocketbufs::InEvent;

use crate::conn::rb_down;
use crate::failures::of_refusal;
use crate::kept::{Kept, with_kept};
use crate::raw::{get_mut, rb_id128};
use crate::status::Outcome;
use crate::view::{give, rb_data};

/// The kinds of data and events that an rIn receives. More kinds may be added: ignore those that you do not know, and free
/// their view.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum rb_in_kind {
    /// One or several whole deliveries: `data`. The caller consumes or frees `data.view`.
    RB_IN_DATA = 1,
    /// A subscription was accepted: `bid`, `epoch`, `from` (the first position that is sent).
    RB_IN_SUBSCRIBED = 2,
    /// The sender has no place for a durable subscription, whose data arrives all the same: `bid`.
    RB_IN_NOT_DURABLE = 3,
    /// A range is lost: `bid`, `from`, `to`.
    RB_IN_LOST = 4,
    /// The writer destroyed the buffer; the log is complete: `bid`, `to` (its end).
    RB_IN_CLOSED = 5,
    /// The writer does not return: `bid`, `to` (the end of the last complete delivery).
    RB_IN_GONE = 6,
    /// The writer was restarted and has another log; subscribe again to receive it: `bid`, `epoch`.
    RB_IN_RESTARTED = 7,
    /// The sender refused or ended the subscription: `bid`, `status` (`RB_ERR_…`), `text`.
    RB_IN_REFUSED = 8,
    /// A control message of the peer: `message`, `message_len`. Only while there is no callback for it.
    RB_IN_CONTROL = 9,
    /// The connection is down: `down`. `rb_rin_resume` continues over another one.
    RB_IN_CONN_DOWN = 10,
    /// An event that this version of the library cannot describe.
    #[default]
    RB_IN_OTHER = 11,
}

/// Data or an event of an rIn. The description of its kind says which fields have a meaning.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rb_in_event {
    /// The kind of the event.
    pub kind: rb_in_kind,
    /// The buffer.
    pub bid: u32,
    /// Received bytes.
    pub data: rb_data,
    /// The writer's log.
    pub epoch: rb_id128,
    /// A position.
    pub from: u64,
    /// One past the last position of a range.
    pub to: u64,
    /// Why a subscription was refused.
    pub status: i32,
    /// A reason, for people.
    pub text: *const c_char,
    /// A control message.
    pub message: *const c_void,
    /// The bytes of the message.
    pub message_len: usize,
    /// Why a connection is down.
    pub down: rb_down,
}

#[inline]
fn empty(kind: rb_in_kind, bid: u32) -> rb_in_event {
    rb_in_event { kind, bid, ..Default::default() }
}

/// Writes data or an event to its place in memory of the caller. The memory behind the thread's last event stays while data
/// comes.
#[inline(always)]
pub(crate) fn put_in_event(place: *mut rb_in_event, event: InEvent) -> Outcome {
    let place = get_mut(place, "the place for the event")?;
    if let InEvent::Data(view) = event {
        *place = empty(rb_in_kind::RB_IN_DATA, view.bid());
        place.data = give(view)?;
    } else {
        *place = with_kept(|kept| in_event(event, kept));
    }
    Ok(())
}

/// An event that is not data, as C sees it. `kept` owns what it points at.
pub(crate) fn in_event(event: InEvent, kept: &mut Kept) -> rb_in_event {
    use rb_in_kind::*;
    match event {
        InEvent::Subscribed { bid, epoch, start } => {
            rb_in_event { epoch: epoch.0.into(), from: start, ..empty(RB_IN_SUBSCRIBED, bid) }
        }
        InEvent::NotDurable { bid } => empty(RB_IN_NOT_DURABLE, bid),
        InEvent::Lost { bid, from, to } => rb_in_event { from, to, ..empty(RB_IN_LOST, bid) },
        InEvent::Closed { bid, end } => rb_in_event { to: end, ..empty(RB_IN_CLOSED, bid) },
        InEvent::Gone { bid, end } => rb_in_event { to: end, ..empty(RB_IN_GONE, bid) },
        InEvent::Restarted { bid, epoch } => {
            rb_in_event { epoch: epoch.0.into(), ..empty(RB_IN_RESTARTED, bid) }
        }
        InEvent::Refused { bid, error } => {
            let (status, text) = (of_refusal(&error) as i32, kept.text(&error.to_string()));
            rb_in_event { status, text, ..empty(RB_IN_REFUSED, bid) }
        }
        InEvent::Control { message } => {
            let (message, message_len) = kept.message(message);
            rb_in_event { message, message_len, ..empty(RB_IN_CONTROL, 0) }
        }
        InEvent::ConnDown { reason } => {
            rb_in_event { down: rb_down::of(&reason, kept), ..empty(RB_IN_CONN_DOWN, 0) }
        }
        _ => empty(RB_IN_OTHER, 0),
    }
}
