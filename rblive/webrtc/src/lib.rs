//! Live video to browsers by WebRTC: one UDP port, one thread, and the viewers behind it.
//!
//! ```text
//!   POST offer ─▶ Hub::answer ─▶ Session (half open) ──┐
//!                                                      ▼ thread
//!   Source ─ news ─▶ Feed: H.264 behind start codes, at the pace at which it was made ─▶ sessions ─▶ RTP ─▶ port
//! ```
//!
//! Nothing here knows HTTP or rings. The owner of a stream is its [`Source`], and rings a [`Bell`] when there is more of it. All viewers of a
//! stream share the source and the frames; a datagram is encrypted for each. There is no queue for a viewer: what the system does not take is lost,
//! as on the way, and is sent again if the viewer asks in time. A viewer that loses too much gets nothing until the next key frame.
//!
//! ICE, DTLS, SRTP and RTP are those of str0m, which does no I/O.

#![forbid(unsafe_code)]

mod annexb;
mod clock;
mod counters;
mod engine;
mod feed;
mod hub;
mod offer;
mod port;
mod session;
mod settings;
mod shared;
mod source;

pub use crate::counters::Counters;
pub use crate::feed::REORDERED;
pub use crate::hub::{Answer, AnswerError, Hub, Offer, StartError};
pub use crate::offer::{MAX_BYTES, OfferError};
pub use crate::settings::Settings;
pub use crate::source::{Bell, News, Source, Watcher};
