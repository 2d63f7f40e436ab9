//! The events of rOuts and connections.

use crate::ground::types::{Bid, Policy, Position};
use crate::state::SubscriberProgress;
use crate::state::error::DownReason;

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
