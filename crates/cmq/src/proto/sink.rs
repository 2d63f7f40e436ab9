//! What the receiving machine gives: messages and events one by one, and what was counted.

use super::lent::Lent;
use crate::event::{Counts, Event};
use crate::key::Key;
use crate::wire::Messages;

/// What became of messages that were delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Dropped because the mailbox was full.
    pub overflowed: u64,
    /// Dropped because they are not of the queue's type.
    pub undecodable: u64,
}

/// Who takes what the machine gives.
pub trait Sink {
    /// Messages of one sender for one mailbox, in order; and what they lie in, if they may stay there.
    fn deliver(&mut self, from: Key, messages: Messages<'_>, lent: Option<&Lent>) -> Taken;
    /// Something happened.
    fn event(&mut self, event: Event);
}

/// What a [`Receiver`](super::receiver::Receiver) has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// For all senders, also those that were forgotten.
    pub counts: Counts,
    /// Datagrams that came.
    pub datagrams: u64,
    /// Those of them that were not of this protocol.
    pub malformed: u64,
    /// Incomplete messages that were given up.
    pub incomplete: u64,
    /// Streams that are remembered.
    pub senders: u64,
}
