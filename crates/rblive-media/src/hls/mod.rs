//! HLS: media playlists, also with low latency, and multivariant playlists (RFC 8216 and its revision "bis").

mod directives;
mod media;
mod multivariant;

pub use directives::{DirectiveError, Directives};
pub(crate) use media::seconds;
pub use media::{MediaPlaylist, Report};
pub use multivariant::multivariant_playlist;

/// The media type of playlists.
pub const MEDIA_TYPE: &str = "application/vnd.apple.mpegurl";
