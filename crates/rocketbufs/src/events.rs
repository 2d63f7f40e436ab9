//! The events that both ends report to their applications.

use crate::error::{DownReason, RefusedError};
use crate::proto::{End, Ending, Item};
use crate::state::SubscriberProgress;
use crate::types::{Bid, Epoch, Policy, Position};
use crate::view::InView;

/// The data and events of [`RIn::recv`](crate::RIn::recv), in order within a buffer.
#[derive(Debug)]
#[non_exhaustive]
pub enum InEvent {
    /// One or several whole deliveries.
    Data(InView),
    /// A subscription was accepted; its data begins at `start`.
    Subscribed {
        /// The buffer.
        bid: Bid,
        /// The writer's log.
        epoch: Epoch,
        /// The first position that is sent.
        start: Position,
    },
    /// A durable slot was asked for (a name and a hold time), and the sender has none: all are taken, or the
    /// buffer allows none. The position is not held while this end is offline; the data arrives all the same.
    /// Reported each time that the subscription is accepted this way.
    NotDurable {
        /// The buffer.
        bid: Bid,
    },
    /// The log continues at `to`; the range before it is lost.
    Lost {
        /// The buffer.
        bid: Bid,
        /// The first missing position.
        from: Position,
        /// The first position after the hole.
        to: Position,
    },
    /// The writer destroyed the buffer; the log is complete.
    Closed {
        /// The buffer.
        bid: Bid,
        /// The end of its log.
        end: Position,
    },
    /// The writer does not return; every complete delivery was received.
    Gone {
        /// The buffer.
        bid: Bid,
        /// The end of the last complete delivery.
        end: Position,
    },
    /// The writer was restarted and has another log. Subscribe again to receive it.
    Restarted {
        /// The buffer.
        bid: Bid,
        /// The epoch of the new log.
        epoch: Epoch,
    },
    /// The sender refused or ended the subscription.
    Refused {
        /// The buffer.
        bid: Bid,
        /// The reason.
        error: RefusedError,
    },
    /// The sender waits for these confirmations. Reported only with
    /// [`ConfirmMode::Relayed`](crate::ConfirmMode::Relayed).
    #[doc(hidden)]
    ConfirmRequested {
        /// The buffer.
        bid: Bid,
        /// Everything below must be delivered; 0: nothing.
        delivered: Position,
        /// Everything below must be consumed; 0: nothing.
        consumed: Position,
    },
    /// A control message of the peer's application. Only from [`RIn::recv`](crate::RIn::recv), while no
    /// [`RIn::set_control_msg_cb`](crate::RIn::set_control_msg_cb) is set.
    Control {
        /// The message.
        message: Vec<u8>,
    },
    /// The connection is down; [`RIn::resume`](crate::RIn::resume) continues over another one.
    ConnDown {
        /// The reason, and which end closed the connection.
        reason: DownReason,
    },
}

impl InEvent {
    /// Returns the buffer of an event that belongs to one.
    pub(crate) fn bid(&self) -> Option<Bid> {
        match self {
            Self::Data(view) => Some(view.bid()),
            Self::Subscribed { bid, .. }
            | Self::NotDurable { bid }
            | Self::Lost { bid, .. }
            | Self::Closed { bid, .. }
            | Self::Gone { bid, .. }
            | Self::Restarted { bid, .. }
            | Self::Refused { bid, .. }
            | Self::ConfirmRequested { bid, .. } => Some(*bid),
            Self::ConnDown { .. } | Self::Control { .. } => None,
        }
    }
}

/// The events of an rOut.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OutEvent {
    /// A peer subscribed.
    Subscribed {
        /// The connection.
        conn: u64,
        /// The buffer.
        bid: Bid,
        /// The subscription's name, if it has one.
        name: Vec<u8>,
        /// The first position that is sent.
        start: Position,
        /// Whether the subscription continues with this log. Otherwise it begins here, and confirms nothing
        /// below `start`.
        resumed: bool,
    },
    /// A subscription ended.
    Unsubscribed {
        /// The connection.
        conn: u64,
        /// The buffer.
        bid: Bid,
        /// The subscription's name, if it has one.
        name: Vec<u8>,
        /// The reason.
        why: String,
    },
    /// A subscriber was too slow for its policy, or was lapped, and does not get this range.
    Dropped {
        /// The connection.
        conn: u64,
        /// The buffer.
        bid: Bid,
        /// The first lost position.
        from: Position,
        /// One past the last lost position.
        to: Position,
        /// The policy.
        policy: Policy,
    },
    /// A slow subscriber was disconnected, by its policy or for making no progress while others waited.
    TooSlow {
        /// The connection, which is closed.
        conn: u64,
        /// The buffer.
        bid: Bid,
        /// The policy.
        policy: Policy,
        /// The lag in bytes.
        lag_bytes: u64,
    },
    /// The hold time of a durable subscription is over before it resumed: its position is released, and it
    /// counts no more.
    DurableExpired {
        /// The buffer.
        bid: Bid,
    },
    /// A connection is down.
    ConnDown {
        /// The connection.
        conn: u64,
        /// The reason.
        reason: DownReason,
    },
    /// The condition of [`OutBuffer::notify_progress`](crate::OutBuffer::notify_progress) has become true.
    Progress {
        /// The buffer.
        bid: Bid,
    },
    /// A delivery with a context has landed at every subscriber that was present. Only from
    /// [`ROut::recv_event`](crate::ROut::recv_event), while no
    /// [`ROut::set_data_out_cb`](crate::ROut::set_data_out_cb) is set.
    DataOut {
        /// The buffer.
        bid: Bid,
        /// The context that [`ROut::deliver`](crate::ROut::deliver) was given.
        context: u64,
    },
    /// A subscriber has reported its positions. Only from [`ROut::recv_event`](crate::ROut::recv_event),
    /// while no [`ROut::set_subscriber_progress_cb`](crate::ROut::set_subscriber_progress_cb) is set.
    SubscriberProgress(Box<SubscriberProgress>),
    /// A control message of a peer's application. Only from [`ROut::recv_event`](crate::ROut::recv_event),
    /// while no [`ROut::set_control_msg_cb`](crate::ROut::set_control_msg_cb) is set.
    Control {
        /// The connection.
        conn: u64,
        /// The message.
        message: Vec<u8>,
    },
    /// So many events before the next one were dropped, since the application did not receive them in time.
    Missed {
        /// The number of dropped events.
        events: u64,
    },
    /// The log of a spliced buffer has ended (closed or gone), and every present subscriber has all of it.
    Ended {
        /// The buffer.
        bid: Bid,
    },
}

impl OutEvent {
    /// Returns the connection of an event whose connection may still be up.
    pub(crate) fn conn(&self) -> Option<u64> {
        match self {
            Self::Subscribed { conn, .. }
            | Self::Unsubscribed { conn, .. }
            | Self::Dropped { conn, .. }
            | Self::TooSlow { conn, .. } => Some(*conn),
            _ => None,
        }
    }
}

/// Converts an item that is not data to its event.
pub(crate) fn event_of(bid: Bid, item: Item) -> InEvent {
    match item {
        Item::Lost(from, to) => InEvent::Lost { bid, from, to },
        Item::Ending(Ending::End(End::Closed(end))) => InEvent::Closed { bid, end },
        Item::Ending(Ending::End(End::Gone(end))) => InEvent::Gone { bid, end },
        Item::Ending(Ending::Restarted(epoch)) => InEvent::Restarted { bid, epoch },
        Item::Ending(Ending::Refused(error)) => InEvent::Refused { bid, error },
        // Data is never passed here: both callers handle it first.
        Item::Data(from, to) | Item::Payload { from, to, .. } => InEvent::Lost { bid, from, to },
    }
}

/// The events of a connection: [`ConnEvent::Up`] at most once, then [`ConnEvent::Down`] once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnEvent {
    /// Both ends have accepted the connection.
    Up,
    /// The connection is down and does not come back.
    Down {
        /// The reason, and which end closed the connection.
        reason: DownReason,
    },
}
