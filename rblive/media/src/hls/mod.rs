//! HLS: media playlists, also with low latency, and multivariant playlists (RFC 8216 and its revision "bis").

mod directives;
mod media;
mod multivariant;
mod vod;

pub use directives::{DirectiveError, Directives};
pub(crate) use media::seconds;
pub use media::{MediaPlaylist, Report};
pub use multivariant::{Measured, multivariant_playlist};
pub use vod::{MAX_VOD_BYTES, MAX_VOD_SEGMENTS, VodError, VodPlaylist, VodSegment, with_query};

/// A number as playlists have it in addresses: no sign, no leading zeros. So each resource has one address.
pub fn decimal<N: std::str::FromStr + std::fmt::Display>(text: &str) -> Option<N> {
    text.parse().ok().filter(|number: &N| number.to_string() == text)
}

/// The media type of playlists.
pub const MEDIA_TYPE: &str = "application/vnd.apple.mpegurl";
