//! The work that a connection leaves to the reactor: effects on other connections, and on the connection's existence.

use crate::ground::types::WireId;
use crate::proto::{CloseCode, Message, ReceiveError};
use crate::state::Command;
use crate::state::error::DownReason;

/// An effect that the reactor executes before the connection continues.
pub(super) enum ReactorAction {
    /// Close the connection.
    Close(CloseCode, String),
    /// End the connection without BYE.
    Down(DownReason),
    /// End a subscription that is too slow, and its connection.
    TooSlow { wire: WireId, lag: u64, rule: &'static str },
    /// End a subscription whose receiver has no room for deliveries of this size. Its connection goes on.
    Outgrown { wire: WireId, max_delivery: u64 },
    /// Forward confirmations to the sender of the subscription with this slot, and handle the message again.
    Forward(u32, Box<Message>),
    /// Execute the commands that waited until the connection was up, and handle messages that came before
    /// them.
    Up(Vec<Command>, Vec<Message>),
}

/// The result of an event: what the connection could not do by itself.
pub(super) type Outcome = Result<(), ReactorAction>;

impl ReactorAction {
    /// Closes the connection of a peer that broke the protocol.
    pub(super) fn protocol(why: impl ToString) -> Self {
        Self::Close(CloseCode::Protocol, why.to_string())
    }
}

impl From<ReceiveError> for ReactorAction {
    fn from(error: ReceiveError) -> Self {
        Self::protocol(error)
    }
}
