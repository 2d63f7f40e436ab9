//! What a subscriber is told besides messages.

use rocketbufs::{Epoch, Position};

use super::batch::Batch;
use super::error::ReceiveError;
use crate::wire::TopicName;

/// What [`Subscriber::next`](crate::Subscriber::next) returns.
#[derive(Debug)]
#[non_exhaustive]
pub enum Item<'s> {
    /// Messages.
    Batch(Batch<'s>),
    /// Something else that happened.
    Notice(Notice),
}

/// What happens to a subscriber besides messages, in order with the messages of the same buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A buffer of a topic is subscribed to; its messages begin at `start`.
    Joined {
        /// The topic.
        topic: TopicName,
        /// The log: its publisher's.
        epoch: Epoch,
        /// First position that will come.
        start: Position,
    },
    /// Bytes are gone; the log goes on at `to`.
    Lost {
        /// The topic.
        topic: TopicName,
        /// The log.
        epoch: Epoch,
        /// First position that is missing.
        from: Position,
        /// First position that is there again.
        to: Position,
    },
    /// The publisher closed the topic; this was all of its log.
    Closed {
        /// The topic.
        topic: TopicName,
        /// The log.
        epoch: Epoch,
        /// Its end.
        end: Position,
    },
    /// The publisher is gone for good without closing; this was all that is complete.
    Gone {
        /// The topic.
        topic: TopicName,
        /// The log.
        epoch: Epoch,
        /// The end of its last complete delivery.
        end: Position,
    },
    /// The broker refused something, or ended a subscription. In words.
    Refused(String),
    /// The broker gives less than was asked for (the hold or any place that is kept, the lag, the block time-out), here
    /// and in other topics of the same rule. In words.
    Lowered(String),
    /// The connection is lost; it is made again by itself.
    Disconnected(String),
    /// The connection is back.
    Reconnected,
}

impl Notice {
    /// What of this is an error for those who only want messages.
    pub(super) fn into_error(self) -> Option<ReceiveError> {
        match self {
            Self::Lost { topic, from, to, .. } => Some(ReceiveError::Lost { topic, from, to }),
            Self::Gone { topic, end, .. } => Some(ReceiveError::Gone { topic, end }),
            Self::Refused(reason) => Some(ReceiveError::Refused(reason)),
            Self::Joined { .. }
            | Self::Closed { .. }
            | Self::Lowered(_)
            | Self::Disconnected(_)
            | Self::Reconnected => None,
        }
    }
}
