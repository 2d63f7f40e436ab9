//! The formats of live video, without I/O: what encoders send, and what players fetch.
//!
//! Functions here take bytes and return bytes. Sockets, clocks and rings belong to `rblive-ingest` and `rblive-deliver`.

#![forbid(unsafe_code)]

pub mod dash;
pub mod hls;
pub mod rendition;
pub mod track;

mod civil;
