//! The formats of live video that encoders send and that players fetch, without I/O.
//!
//! Functions here take bytes and return bytes. Sockets, clocks and rings belong to `rblive-ingest` and `rblive-deliver`.

#![forbid(unsafe_code)]

pub mod civil;
mod cmaf;
pub mod codec;
pub mod dash;
pub mod flv;
pub mod fmp4;
pub mod hls;
pub mod rendition;
pub mod segmenter;
pub mod timeline;
pub mod ts;
pub mod unit;
pub mod window;
