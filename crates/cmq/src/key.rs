//! Whom a message is for, and whom it came from.

use std::fmt;
use std::net::SocketAddr;

/// The paper's key: an address and an integer. For a push it names the receiving queue and the mailbox there; for a pop
/// it names who sent the message and the mailbox it was sent to. So whoever answers pushes to the key that it popped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The address of the other queue. A multicast address reaches every queue that joined it.
    pub addr: SocketAddr,
    /// The mailbox at the receiving end, for example the id of a process.
    pub id: u32,
}

impl Key {
    /// A key of these two.
    pub fn new(addr: SocketAddr, id: u32) -> Key {
        Key { addr, id }
    }
}

impl From<(SocketAddr, u32)> for Key {
    fn from((addr, id): (SocketAddr, u32)) -> Key {
        Key { addr, id }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.addr, self.id)
    }
}
