//! The requests of buffers, subscriptions and ends to a worker. A request names everything by number, so it can be made
//! anywhere; the commands of the application's handles contain requests.

use std::time::Duration;

use crate::ground::types::{Bid, Nanos, WireId};
use crate::proto::{CloseCode, Subscribe};
use crate::state::RateLimits;

/// A request to a worker, see [the module](self).
pub(crate) enum Request {
    /// Close a connection with BYE.
    Close {
        conn: u64,
        code: CloseCode,
        why: String,
    },
    /// Send a control message of the application, which counts as `cost` bytes in the limit.
    Control {
        conn: u64,
        message: Vec<u8>,
        cost: usize,
    },
    /// Limit the bytes per second of a connection.
    SetRateLimits {
        conn: u64,
        limits: RateLimits,
    },
    /// Leave a subscription of this end.
    Leave {
        conn: u64,
        wire: WireId,
    },
    /// Resume a subscription of this end, for which the application has released its data.
    Resume {
        conn: u64,
        bid: Bid,
    },
    /// Pass on the changed readers that follow the ring of the subscription with this slot.
    PassWatchers {
        slot: u32,
    },
    /// Answer a subscription of a peer that was parked until its buffer's log was known.
    Unpark(Parked),
    /// A ring does not rest any more.
    Activated(Activated),
    /// No thread attends the followed rings any more ([`RIn::attend`](crate::RIn::attend)).
    Unattend,
    /// Run a job on the worker's thread.
    Run(Job),
    /// Check the deadlines again at this time.
    LookAt(Nanos),
    Shutdown {
        grace: Duration,
    },
}

/// A call of the application's code, which must not run on the thread that caused it.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A subscription that waits until its buffer's log is known.
pub(crate) struct Parked {
    pub(crate) conn: u64,
    pub(crate) subscribe: Subscribe,
}

/// Why a ring does not rest any more.
pub(crate) enum Activated {
    /// The application writes the buffer with this slot.
    Written(u32),
    /// In the buffer with this slot a hold moved, so that more memory can be released.
    HoldMoved(u32),
    /// The ring that rested at this place is gone. `slot` is the number of its owner.
    Gone { slot: u32, place: u64 },
}
