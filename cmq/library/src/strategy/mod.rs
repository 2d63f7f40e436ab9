//! The paper's message passing strategies, built on queues.
//!
//! * [`request`]: requests with a time-out and retries; a pending call is the paper's *future*.
//! * [`repair`]: *replay* of lost messages from a history, or their *replacement* by the newest value.
//! * Multicast is part of the queue: see [`Multicast`](crate::Multicast).
//!
//! A strategy has no thread of its own: it works when the application calls it.

pub mod repair;
pub mod request;
