//! Servers that take live video from encoders and write it into the streams of a dissemination node.
//!
//! | Encoder | Address |
//! |---|---|
//! | RTMP, RTMPS (OBS, ffmpeg, GStreamer): H.264 and AAC; HEVC and AV1 by enhanced RTMP | `rtmp://HOST/live/NAME?key=KEY` |
//! | HLS by PUT (`ffmpeg -f hls -method PUT`), MPEG-TS or fragmented MP4 | `http://:KEY@HOST/live/NAME/index.m3u8` |
//! | files by POST, one after the other | `http://HOST/live/NAME?key=KEY` |
//!
//! RTMP and MPEG-TS are remuxed to CMAF parts as they arrive; segments of fragmented MP4 are passed on as they are. The bytes go into
//! chunks of [`rblive`], which disseminates them to the delivery nodes.

#![forbid(unsafe_code)]

mod access;
mod bitrate;
mod counters;
mod encoder;
mod hook;
mod http_server;
mod ladder;
mod master;
mod output;
mod query;
mod rate;
mod registry;
mod remarks;
pub mod rtmp;
mod rtmp_server;
mod server;
mod settings;
mod stream;
mod timelines;
mod ts_file;
mod upload;

pub use crate::settings::{IngestLimits, IngestSettings, User};
pub use counters::IngestCounters;
pub use encoder::Encoder;
pub use hook::HookSettings;
pub use ladder::LadderRule;
pub use remarks::{FailedEncoder, Failures, Remarks};
pub use server::{Ingest, IngestAddresses, IngestError};
