//! The unreliable mode, without I/O: messages leave in batches, and each is sent once. The receiver counts and reports what is lost.
//!
//! ```text
//!   Batcher                                                             Receiver
//!   key ──▶ open batch ──┐                                         ┌─▶ stream ── in order, or after a wait ──▶ mailbox
//!   key ──▶ open batch ──┼─▶ destination: numbers ── datagrams ──▶ ┤      └ gaps: missing messages, until they are lost
//!   key ──▶ open batch ──┘                                         └─▶ fragments of a large message
//! ```
//!
//! | Module | Subject |
//! |---|---|
//! | `batcher` | the sending machine: pushed messages, until their batch leaves |
//! | `open_batch` | the batch of one key, while it fills |
//! | `destinations` | the streams that batches leave in |
//! | [`receiver`] | the receiving machine |
//! | `stream` | the message numbers of one sender |
//! | `gaps` | deadlines of missing messages |
//! | `reassembly` | fragmented messages |

pub(crate) mod batcher;
mod destinations;
#[cfg(test)]
mod fragment_tests;
mod gaps;
#[cfg(test)]
mod hostile_tests;
mod open_batch;
mod reassembly;
pub mod receiver;
mod stream;
#[cfg(test)]
mod tests;
