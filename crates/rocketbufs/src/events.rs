//! What the two ends tell their applications.

use crate::error::{DownReason, RefusedError};
use crate::proto::End;
use crate::state::{Ending, Item, SubscriberProgress};
use crate::types::{Bid, Epoch, Policy, Position};
use crate::view::InView;

/// What [`RIn::recv`](crate::RIn::recv) returns, in order within a buffer.
#[derive(Debug)]
#[non_exhaustive]
pub enum InEvent {
    /// One or several whole deliveries.
    Data(InView),
    /// A subscription was answered; its data begins at `start`.
    Subscribed {
        /// The buffer.
        bid: Bid,
        /// The writer's log.
        epoch: Epoch,
        /// First position that will come.
        start: Position,
    },
    /// A place was asked for (a name and a hold), and the sender can keep none while this end is away: as many are
    /// taken as may be, or it keeps none of this buffer. Told each time that the subscription is answered so; the data
    /// comes all the same.
    NoPlace {
        /// The buffer.
        bid: Bid,
    },
    /// The log goes on at `to`; what lies between is gone.
    Lost {
        /// The buffer.
        bid: Bid,
        /// First position that is missing.
        from: Position,
        /// First position that is there again.
        to: Position,
    },
    /// The buffer was destroyed by its writer; this was all of it.
    Closed {
        /// The buffer.
        bid: Bid,
        /// The end of its log.
        end: Position,
    },
    /// The writer is gone for good; this was all that is complete.
    Gone {
        /// The buffer.
        bid: Bid,
        /// The end of the last complete delivery.
        end: Position,
    },
    /// The writer was restarted: its log is another one. Subscribe again to receive it.
    Restarted {
        /// The buffer.
        bid: Bid,
        /// The new log.
        epoch: Epoch,
    },
    /// The subscription was refused, or ended by the sender.
    Refused {
        /// The buffer.
        bid: Bid,
        /// Why.
        error: RefusedError,
    },
    /// The sender waits until these are confirmed; told only with [`ConfirmMode::Relayed`](crate::ConfirmMode::Relayed).
    Asked {
        /// The buffer.
        bid: Bid,
        /// Everything below is to be delivered; 0: nothing.
        delivered: Position,
        /// Everything below is to be consumed; 0: nothing.
        consumed: Position,
    },
    /// A control message of the application at the other end. Only by [`RIn::recv`](crate::RIn::recv), while no
    /// [`RIn::set_control_msg_cb`](crate::RIn::set_control_msg_cb) is set.
    Control {
        /// The message.
        message: Vec<u8>,
    },
    /// The connection is down; [`RIn::resume`](crate::RIn::resume) goes on over another one.
    ConnDown {
        /// Why, and which end brought it down.
        reason: DownReason,
    },
}

impl InEvent {
    /// The buffer that it is of, if it is of one.
    pub(crate) fn bid(&self) -> Option<Bid> {
        match self {
            Self::Data(view) => Some(view.bid()),
            Self::Subscribed { bid, .. }
            | Self::NoPlace { bid }
            | Self::Lost { bid, .. }
            | Self::Closed { bid, .. }
            | Self::Gone { bid, .. }
            | Self::Restarted { bid, .. }
            | Self::Refused { bid, .. }
            | Self::Asked { bid, .. } => Some(*bid),
            Self::ConnDown { .. } | Self::Control { .. } => None,
        }
    }
}

/// What happens to an rOut.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum OutEvent {
    /// Somebody subscribed.
    Subscribed {
        /// By which connection.
        conn: u64,
        /// The buffer.
        bid: Bid,
        /// The subscription's name, if it has one.
        name: Vec<u8>,
        /// First position that it gets.
        start: Position,
        /// Whether it goes on with this log, or begins with it: then what lies below `start` is not confirmed by it.
        resumed: bool,
    },
    /// A subscription ended.
    Unsubscribed {
        /// By which connection.
        conn: u64,
        /// The buffer.
        bid: Bid,
        /// The subscription's name, if it has one.
        name: Vec<u8>,
        /// Why.
        why: String,
    },
    /// A subscriber was too slow for its policy, or lapped: it will not get this range.
    Dropped {
        /// By which connection.
        conn: u64,
        /// The buffer.
        bid: Bid,
        /// First position that is lost.
        from: Position,
        /// One past the last.
        to: Position,
        /// The policy.
        policy: Policy,
    },
    /// A subscriber was disconnected for being slow, by its policy or for making no progress while others waited.
    TooSlow {
        /// Its connection, which is closed.
        conn: u64,
        /// The buffer.
        bid: Bid,
        /// The policy.
        policy: Policy,
        /// How far it was behind.
        lag_bytes: u64,
    },
    /// A place that was kept for a named subscription is given up, as nobody came back for it in time: it counts no more.
    PlaceOver {
        /// The buffer.
        bid: Bid,
    },
    /// A connection is down.
    ConnDown {
        /// Which.
        conn: u64,
        /// Why.
        reason: DownReason,
    },
    /// What [`OutBuffer::notify_progress`](crate::OutBuffer::notify_progress) was asked for holds.
    Progress {
        /// The buffer.
        bid: Bid,
    },
    /// A delivery that was given a context has landed with every subscriber that was there. Only by
    /// [`ROut::recv_event`](crate::ROut::recv_event), where no [`ROut::set_data_out_cb`](crate::ROut::set_data_out_cb) is set.
    DataOut {
        /// The buffer.
        bid: Bid,
        /// What [`ROut::deliver`](crate::ROut::deliver) was given.
        context: u64,
    },
    /// A subscriber has told how far it is. Only by [`ROut::recv_event`](crate::ROut::recv_event), where no
    /// [`ROut::set_subscriber_progress_cb`](crate::ROut::set_subscriber_progress_cb) is set.
    SubscriberProgress(Box<SubscriberProgress>),
    /// A control message of the application at another end. Only by [`ROut::recv_event`](crate::ROut::recv_event), where no
    /// [`ROut::set_control_msg_cb`](crate::ROut::set_control_msg_cb) is set.
    Control {
        /// By which connection.
        conn: u64,
        /// The message.
        message: Vec<u8>,
    },
    /// So many events before the next one were dropped, as nobody took them.
    Missed {
        /// How many.
        events: u64,
    },
    /// A spliced buffer's log has ended (closed or gone) and every subscriber present has all of it.
    Ended {
        /// The buffer.
        bid: Bid,
    },
}

impl OutEvent {
    /// The connection that it is about, while that may still be up.
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

/// The event that tells an item which is not data.
pub(crate) fn event_of(bid: Bid, item: Item) -> InEvent {
    match item {
        Item::Lost(from, to) => InEvent::Lost { bid, from, to },
        Item::Ending(Ending::End(End::Closed(end))) => InEvent::Closed { bid, end },
        Item::Ending(Ending::End(End::Gone(end))) => InEvent::Gone { bid, end },
        Item::Ending(Ending::Restarted(epoch)) => InEvent::Restarted { bid, epoch },
        Item::Ending(Ending::Refused(error)) => InEvent::Refused { bid, error },
        // Data never comes here: both callers take it out first.
        Item::Data(from, to) | Item::Payload { from, to, .. } => InEvent::Lost { bid, from, to },
    }
}

/// What happens to a connection: [`ConnEvent::Up`] at most once, then [`ConnEvent::Down`] once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnEvent {
    /// Both ends have accepted the connection.
    Up,
    /// The connection is down for good.
    Down {
        /// Why, and which end brought it down.
        reason: DownReason,
    },
}
