//! The outputs of the receiving machines.

use super::shared_buffer::SharedBuffer;
use crate::event::Event;
use crate::key::Key;
use crate::wire::Messages;

/// How many of the delivered messages the sink dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Messages dropped because the mailbox was full.
    pub overflowed: u64,
    /// Messages dropped because they are not of the queue's type.
    pub undecodable: u64,
}

/// The room that a mailbox has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Messages.
    pub messages: usize,
    /// Bytes of messages.
    pub bytes: usize,
}

impl Room {
    /// Room for everything.
    pub const ALL: Room = Room { messages: usize::MAX, bytes: usize::MAX };

    /// True if this many messages fit, with this many bytes.
    pub fn fits(self, messages: usize, bytes: usize) -> bool {
        messages <= self.messages && bytes <= self.bytes
    }
}

/// Takes the outputs of the machine.
pub trait Sink {
    /// Takes messages of one sender for one mailbox, in order. They may keep parts of `buffer`, if there is
    /// one.
    fn deliver(&mut self, from: Key, messages: Messages<'_>, buffer: Option<&SharedBuffer>) -> Dropped;
    /// Takes an event.
    fn event(&mut self, event: Event);
    /// The room that the mailbox has. A message of the reliable mode waits until there is enough.
    fn room(&mut self, id: u32) -> Room {
        let _ = id;
        Room::ALL
    }
}
