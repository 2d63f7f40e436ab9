//! The reports of a subscription to its application: data, holes and the end, in order.

use crate::ground::types::{Epoch, Position};
use crate::proto::{End, RefusedError};

/// The next thing that a subscription reports, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A range of whole deliveries.
    Data(Position, Position),
    /// One delivery of an overwritable buffer: its payload.
    Payload {
        /// The first position of the payload.
        from: Position,
        /// One past the last position of the payload.
        to: Position,
        /// The start of the next delivery.
        next: Position,
    },
    /// A range that the subscription does not get.
    Lost(Position, Position),
    /// The end, after all data.
    Ending(Ending),
}

/// How a subscription ends. The end is reported after all data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The log ends.
    End(End),
    /// The writer was restarted and has another log.
    Restarted(Epoch),
    /// The sender or this end refused the subscription.
    Refused(RefusedError),
}

impl Ending {
    /// Returns the end for the subscribers of a splice, whose data ends at `boundary`.
    pub fn downstream(&self, boundary: Position) -> End {
        match self {
            Self::End(end) => *end,
            Self::Restarted(_) | Self::Refused(_) => End::Gone(boundary),
        }
    }
}
