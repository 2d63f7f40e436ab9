//! The events of an rIn.

use crate::ground::types::{Bid, Epoch, Position};
use crate::proto::{End, Ending, Item};
use crate::state::error::{DownReason, RefusedError};
use crate::state::view::InView;

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
