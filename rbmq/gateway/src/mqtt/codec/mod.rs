//! The packets of MQTT 3.1.1 and 5, borrowed from the bytes that a client sent.
//!
//! ```text
//!   bytes ── split ──▶ Frame: first byte, body ── decode ──▶ Packet: slices of the body ── encode ──▶ the same packet
//! ```
//!
//! The codec is written by hand. Crates exist, but one owns its packets (an allocation for each), one is abandoned, one brings a runtime; and a
//! gateway has to parse a PUBLISH out of the receive buffer itself, which is where all bytes are. What remains is small, and every check of the
//! specifications is in one place: reserved bits, lengths, UTF-8 without U+0000, packet ids that are not 0, properties in the packets that may have
//! them, each once, and a limit for those that repeat.

mod encode;
mod error;
mod frame;
mod packet;
mod property;
mod read;
pub mod reason;
mod write;

pub use error::{DecodeError, Version};
pub use frame::{Frame, decode, split};
pub use packet::{
    Ack, AckKind, Answer, Connack, Connect, Ending, Filters, Packet, Publish, Request, SubscribeOptions,
    WantedFilter, Will,
};
pub use property::{MAX_USER_PROPERTIES, Place, Properties, Property};

#[cfg(test)]
mod tests;
