//! The reliable mode, without I/O: acknowledged, repeated, in order for each key, with congestion and flow control.
//!
//! ```text
//!   Outbound                                                          Inbound
//!   key ──▶ stream of messages ────────┐                            ┌─▶ stream of messages, in order ──▶ mailbox
//!   key ──▶ stream ────────────────────┼─▶ link ── segments ─▶ link ┼─▶ stream ──▶ …
//!                                      │   numbers, round trip,     │
//!                                      │   window     ◀── ranges, credits
//! ```
//!
//! A lost segment delays only its own key. A segment that is sent again has a new number, so an acknowledgement always shows which of
//! the copies arrived.
//!
//! | Module | Subject |
//! |---|---|
//! | [`outbound`] | all links of a sender |
//! | `link` | an address: the state that its keys share |
//! | `out_stream` | a key: bytes until they are acknowledged, messages until they are confirmed |
//! | `sent` | segments on their way, and which are lost |
//! | `rtt`, `cubic` | the round trip time, the window and the pace |
//! | [`inbound`] | all links of a receiver |
//! | `ranges` | numbers that have arrived |
//! | `records` | messages in a stream |
//! | `postponed` | streams that wait for room at the receiver |
//! | `shares` | the memory and the keys that each host has |

mod cubic;
pub mod inbound;
mod link;
mod out_stream;
pub mod outbound;
mod postponed;
mod ranges;
mod records;
mod rtt;
mod sent;
mod shares;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_room;
#[cfg(test)]
mod tests_share;
#[cfg(test)]
mod tests_time;

pub use link::Flight;
pub use out_stream::Fate;
