//! Buffers, and subscriptions of this end.

mod buffer;
mod subscription;

pub use buffer::Traffic;
pub(crate) use buffer::{Activated, Buffer, DurableCursor, Known, Leaving, SubscriptionStatus, held_at};
pub(crate) use subscription::{Followed, InState, InboundShared, Readable, ReceiveMemory, downstream_of};
