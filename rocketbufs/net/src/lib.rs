//! RocketNet: transports that carry ranges of rings between processes.
//!
//! A transport does one thing: *write this range into the peer's ring of wire id `w`, and tell the peer*,
//! plus small ordered control messages (paper 1, section 3.5). A transport knows nothing of subscriptions, credit or
//! messages. The shape is RDMA's, because TCP, shared memory and a simulated network can imitate it and not the
//! other way round.
//!
//! ```text
//!   ring (source)                     one connection                      ring (destination)
//!  ┌────────────┐   write(w, from..to, more)     ┌──────────────────┐    ┌────────────┐
//!  │░░░▓▓▓▓▓▓░░░│ ─────────────────────────────▶ │ w → RingReceiver │ ─▶ │░░░▓▓▓▓▓▓░░░│
//!  └────────────┘   control(bytes) ────────────▶ └──────────────────┘    └────────────┘
//!                                                Event::Arrived / Control / Down
//! ```
//!
//! * [`contract`]: the trait [`Transport`], its events, promises and configuration;
//! * [`wire`]: the 8-byte header that a stream transport puts before each range;
//! * [`tcp`]: TCP, event driven; and, on one machine, shared memory: rings that the peer maps, announced over local sockets;
//! * [`slots`]: the table of a transport's connections;
//! * `conformance` (feature): the suite that every transport passes.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod slots;
pub mod tcp;
pub mod wire;

/// The switch of the planted bugs, by which the simulator proves that it finds them.
#[doc(hidden)]
pub use rocketring::planted;

pub use contract::{
    Accepted, Carrier, ConnId, Down, Event, NotWritten, Offered, PeerIdentity, Pollable, Promises, QueueFull,
    SourceRange, Transport, TransportError, UnixPeer, WireId,
};
pub use peers::LogLimiter;
