//! RocketBufs: buffers in memory that move between processes.
//!
//! A *buffer* is an endless log of bytes made by one writer, of which memory holds the newest part. An [`ROut`] makes
//! buffers and sends them to any number of [`RIn`]s; a broker takes an rIn's buffer into its rOut with
//! [`ROut::splice`], and the bytes go on without a copy. A line of configuration says which transport carries the bytes.
//!
//! ```text
//!   publisher                      broker                                  subscriber
//!  ┌─────────┐   Conn   ┌────────┐ splice ┌─────────┐   Conn   ┌────────┐
//!  │  ROut ══╪═════════▶│═ RIn ══╪═══════▶│═ ROut ══╪═════════▶│═ RIn   │
//!  └─────────┘          └────────┘        └─────────┘          └────────┘
//!    segment → deliver                                            view → consume
//! ```
//!
//! The types to learn:
//!
//! * [`Context`]: memory, configuration and worker threads of this process;
//! * [`Listener`] and [`Conn`]: connections between processes;
//! * [`ROut`] makes buffers, and each is an [`OutBuffer`]: get a segment, fill it in place, deliver it;
//! * [`RIn`] subscribes to buffers, and each is a [`Subscription`]: receive views of the data, by callback
//!   ([`RIn::set_data_in_cb`]) or synchronously ([`RIn::recv`]), and give them back.
//!
//! `ROut` and `RIn` have the calls of the papers by buffer id; the handles have the rest. For streams of small deliveries
//! there are [`OutWriter`] and [`InReader`], which take no lock for each of them. The conventions of all types (ownership,
//! time-outs, options, events, callbacks, errors) are in `docs/architecture/api.md`.
//!
//! Everything is flow controlled by default: a slow subscriber holds the writer ([`Policy::Block`]), or is treated as its
//! [`Policy`] says; every loss is reported. See [`RIn`] for a complete example. The protocol is in `docs/PROTOCOL.md`.

#![deny(unsafe_code)]

mod api;
pub mod config;
mod ground;
#[doc(hidden)]
pub mod proto;
mod state;
#[doc(hidden)]
pub mod worker;

pub use api::conn::Conn;
pub use api::context::Context;
#[cfg(feature = "tokio")]
pub use api::event_stream::{EventSource, EventStream};
pub use api::inspect;
pub use api::listener::Listener;
pub use api::out_buffer::{OutBuffer, OutWriter, Room};
#[doc(hidden)]
pub use api::relay;
pub use api::rin::{InRead, InReader, RIn, Subscription};
pub use api::rout::ROut;
pub use config::Config;
pub use ground::limits::{Admitted, Asking, BlockTimeout, PolicySet, SubscriptionLimits};
pub use ground::out_segment::OutSegment;
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub use ground::readiness;
pub use ground::types::{Bid, Epoch, Nanos, Policy, Position, ProgressLevel};
pub use ground::{event_queue, fields};
#[doc(hidden)]
pub use ground::{lock, planted};
#[doc(inline)]
pub use proto::{CloseCode, Coverage, Start};
pub use rocketnet::{Carrier, PeerIdentity, UnixPeer};
pub use rocketring::{GrowError, Lapped, PoolError};
#[doc(hidden)]
pub use state::EndsWithContext;
pub use state::error::{self, DownReason, SegmentError, WaitError};
pub use state::events::{ConnEvent, OutEvent};
pub use state::in_event::InEvent;
pub use state::options::{BufferOptions, ConfirmMode, GrowthCheck, SubscribeOptions};
pub use state::view::{BufSeg, InView, RangeRef};
pub use state::{
    Budget, ConfirmedPositions, ForeignConnection, ForeignReason, Progress, RateLimit, RateLimits, RateUsage,
    SubscriberProgress,
};
#[doc(hidden)]
pub use state::{Meter, MeterClock};
