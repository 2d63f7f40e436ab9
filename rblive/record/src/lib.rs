//! Recordings of live video: a recorder, and the folders in which it keeps streams.
//!
//! The recorder is one more reader of the rings of [`rblive`]. It delays no writer: if it is too slow, its chunks are overwritten, and
//! the segment becomes a gap of the recording, which is counted and logged.
//!
//! ```text
//!   rblive ─▶ Recorder::take ─▶ queue of references ─▶ thread: ring ─▶ file ─▶ still whole? ─▶ playlist
//!
//!   FOLDER/live+camera/20261125T214822Z/index.m3u8       all renditions
//!                                       about.json       name, length, size
//!                                       1/media.m3u8     a VOD playlist, complete at any moment
//!                                       1/init-77.mp4, 1/0.m4s, 1/1.m4s …
//! ```
//!
//! A recording on disk can be played by any player at any time: each segment and each playlist is written under another name, and gets
//! its own name by `rename`. So a segment is complete or absent, whenever the process is killed, and a playlist lists only existing
//! segments. A recorder that is restarted soon continues the recording behind a discontinuity.
//!
//! [`Store`] finds and opens the files, for the server that plays them back.

#![deny(unsafe_code)]

mod counters;
mod in_place;
mod layout;
mod queue;
mod recorder;
mod recording;
mod recordings;
mod retention;
mod settings;
mod store;
mod stream;

pub use crate::settings::{RecordRule, SettingsError};
pub use counters::RecordCounters;
pub use layout::{File, Place};
pub use recorder::{RecordError, Recorder};
pub use recording::About;
pub use store::Store;
