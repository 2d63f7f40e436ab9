//! The paper's message passing strategies, as parts to build with.
//!
//! * [`request`]: requests with a store of those outstanding and a timeout, and the *futures* that stand for their
//!   answers: looked at when needed, answered, lost, or still open;
//! * [`repair`]: *replay* of what was lost, from a history, or its *replacement* by what is true now;
//! * multicast needs no part of its own: see [`Multicast`](crate::Multicast).
//!
//! None of them has a thread: they work when the application calls them.

pub mod repair;
pub mod request;
