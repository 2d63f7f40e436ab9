//! Properties of a rendition, as playlists and manifests list them.

/// The format of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// Fragmented MP4 with an initialisation segment.
    Cmaf,
    /// MPEG transport stream.
    Ts,
}

impl Container {
    /// Returns the extension of segments.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Cmaf => "m4s",
            Self::Ts => "ts",
        }
    }
}

/// A rendition of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendition {
    /// Its id, also its place in addresses.
    pub id: u16,
    /// The codecs (RFC 6381), for example `avc1.64001f,mp4a.40.2`; empty if unknown.
    pub codecs: String,
    /// The highest bit rate, in bits per second.
    pub bandwidth: u64,
    /// The average bit rate of its segments, in bits per second; `None` if unknown.
    pub average_bandwidth: Option<u64>,
    /// Width and height of the picture; `None` of audio alone.
    pub resolution: Option<(u32, u32)>,
    /// Pictures per second; `None` if unknown.
    pub frame_rate: Option<f64>,
    /// Whether the rendition has sound and no picture.
    pub audio_only: bool,
}

/// Returns `text` without the characters that end a quoted attribute of a playlist.
pub(crate) fn quotable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && *c != '"').collect()
}
