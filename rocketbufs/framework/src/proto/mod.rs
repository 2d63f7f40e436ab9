//! The protocol without I/O: messages, and the state machines that decide what to send.
//!
//! This layer touches no socket, clock or random source. [`Message`] is the wire format. [`PeerSubscription`]
//! is one subscription at its sender, [`ReceiveSubscription`] is one at its receiver, and [`Session`] decides
//! whether the peer is alive, and [`Pauses`] when a delivering thread may send. The same machines run on real transports and in the simulator.

mod codec;
mod coverage;
mod credit;
mod message;
mod receive_subscription;
mod refused;
mod send_subscription;
mod session;

pub use coverage::{Coverage, CoveragePart, CoverageParts, MAX_COVERAGE_PARTS};
pub use credit::{Asked, AskedLevels, Credit, CreditError, PeerCoverage};
pub use message::{
    CloseCode, GROWS, Hello, MAGIC, MAX_HELLO_BYTES, MAX_NAME_BYTES, MAX_TEXT_BYTES, MIN_VERSION, Message,
    RefuseCode, Start, Subscribe, Subscribed, VERSION,
};
pub use receive_subscription::{
    AllocationStep, Answer, Attachment, BudgetNote, CreditAllocation, CreditReport, Downstream, Drained,
    Ending, GrantLimit, Item, LogEnd, Need, ReceiveConfig, ReceiveCursor, ReceiveError, ReceiveLog,
    ReceiveSubscription, RingPositions, Share, SubscribeOver, Suspension, TooMuch,
};
pub use refused::RefusedError;
pub use send_subscription::{
    Begin, CallerSend, End, Enqueue, KnownPositions, LagAction, Origin, PeerSubscription, SendConfig,
    SendCursor, Step,
};
pub use session::{Pauses, Session, SessionConfig, Tick, choose_version};
