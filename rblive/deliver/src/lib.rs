//! The web server of a delivery node: playlists and segments for viewers, straight from the rings of [`rblive`].
//!
//! ```text
//!   rblive ─▶ Catalog::take ─▶ streams ─▶ playlists (HLS, DASH), built when they are asked for
//!                                └─▶ references into rings ─▶ encrypted ─▶ still there? ─▶ socket
//! ```
//!
//! Media is encrypted from where it arrived. After the encryption and before the write, the server asks the ring whether the bytes
//! were overwritten meanwhile: a response that cannot be finished ends with an error, and never has mixed bytes. Addresses:
//!
//! | Address | What |
//! |---|---|
//! | `/` | a page that lists the streams and plays them |
//! | `/live/NAME/index.m3u8`, `/live/NAME/manifest.mpd` | all renditions of a stream, for HLS and DASH |
//! | `/live/NAME/poster.mp4` | the newest key frame, as a video of one frame |
//! | `/live/NAME/RENDITION/media.m3u8` | the playlist of a rendition |
//! | `/live/NAME/RENDITION/12.m4s`, `12.3.m4s` | a segment, a part of it (`.ts` for MPEG-TS) |
//! | `/live/NAME/whep` | offers of WebRTC (POST), if the node has it |
//! | `/vod`, `/vod/NAME/BEGIN/index.m3u8` | the list of recordings, and one of them, from files |
//! | `/streams`, `/metrics`, `/health`, `/ready` | for programs |

#![deny(unsafe_code)]

mod addresses;
mod answer;
pub mod assets;
mod catalog;
mod counters;
mod elsewhere;
mod file;
mod http1;
mod http2;
mod kept;
mod link;
mod live;
mod metrics;
mod pages;
mod playlist_cache;
mod poster;
#[doc(hidden)]
pub mod probe;
mod server;
mod settings;
mod tls;
pub mod token;
mod webrtc;

pub use crate::settings::{Patience, Settings};
pub use catalog::{Catalog, StreamStatus};
pub use elsewhere::{Elsewhere, OtherNode, Redirect};
pub use server::{Server, Setup, StartError};
pub use tls::TlsError;
