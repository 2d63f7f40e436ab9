//! Gateways: clients of other systems publish to and subscribe to topics of an RBMQ broker, in their own protocols (paper 2, section 5).
//!
//! ```text
//!   clients ──▶ floor: connections, TLS, log of frames ──▶ protocol: RESP, MQTT ──▶ bus: publisher and subscriber of the broker
//!           ◀── ranges of the log of frames, one cursor each ◀── each message framed once ◀──
//! ```
//!
//! A gateway is one thread, which owns its listener, its connections and its tables. A protocol is a machine without I/O
//! (`protocol::Protocol`): it gets bytes and messages, and says what is to be sent and published. Gateways run in the process of their broker
//! ([`Gateways::start`]), or beside it ([`Gateways::start_beside`]).
#![forbid(unsafe_code)]

#[cfg(test)]
mod double;
mod floor;
mod gateways;
pub mod mqtt;
mod protocol;
pub mod resp;
mod way;
pub mod websocket;

pub use gateways::{Gateway, GatewayError, Gateways};
pub use way::Link;
