//! Logs in memory: buffers of rOuts and their subscribers, and subscriptions of this end. A spliced subscription
//! fills a buffer.

mod buffer;
mod subscription;

pub use buffer::Traffic;
pub(crate) use buffer::{
    Buffer, BufferOwner, DurableCursor, Leaving, OwnedName, SubscriptionStatus, Upstream, held_at,
};
pub(crate) use subscription::{
    Followed, Readable, ReceiveMemory, SubscriptionNews, SubscriptionOwner, SubscriptionShared,
    SubscriptionState, downstream_of,
};
