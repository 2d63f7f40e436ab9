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

mod callback;
pub mod config;
mod conn;
mod context;
pub mod error;
pub mod event_queue;
#[cfg(feature = "tokio")]
mod event_stream;
mod events;
pub mod fields;
mod in_event;
pub mod inspect;
mod limits;
mod listener;
#[doc(hidden)]
pub mod lock;
mod options;
mod out_buffer;
mod out_segment;
#[doc(hidden)]
pub mod planted;
#[doc(hidden)]
pub mod proto;
#[cfg(feature = "tokio")]
#[doc(hidden)]
pub mod readiness;
#[doc(hidden)]
pub mod relay;
mod rin;
mod rout;
mod segment;
mod state;
mod times;
mod types;
mod view;
#[doc(hidden)]
pub mod worker;

pub use config::Config;
pub use conn::Conn;
pub use context::Context;
pub use error::{DownReason, SegmentError, WaitError};
#[cfg(feature = "tokio")]
pub use event_stream::{EventSource, EventStream};
pub use events::{ConnEvent, OutEvent};
pub use in_event::InEvent;
pub use limits::{Admitted, Asking, BlockTimeout, PolicySet, SubscriptionLimits};
pub use listener::Listener;
pub use options::{BufferOptions, ConfirmMode, SubscribeOptions};
pub use out_buffer::{OutBuffer, OutWriter, Room};
pub use out_segment::OutSegment;
#[doc(inline)]
pub use proto::{CloseCode, Coverage, Start};
pub use rin::{InRead, InReader, RIn, Subscription};
pub use rocketnet::{Carrier, PeerIdentity, UnixPeer};
pub use rocketring::Lapped;
pub use rout::ROut;
pub use state::{
    Budget, ConfirmedPositions, ForeignConnection, ForeignReason, Progress, RateLimit, RateLimits, RateUsage,
    SubscriberProgress,
};
pub use types::{Bid, Epoch, Nanos, Policy, Position, ProgressLevel};
pub use view::{BufSeg, InView, RangeRef};
