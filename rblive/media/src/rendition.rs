//! A rendition of a stream: what a description, a playlist and a manifest say about it.

use serde::{Deserialize, Serialize};

use crate::unit::TrackConfig;

/// The container of the media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Container {
    /// Fragmented MP4 (CMAF): parts, and an initialisation segment for each rendition.
    Cmaf,
    /// MPEG transport stream: whole segments.
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

/// The picture of a rendition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Video {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Frames in 1,000 seconds: 29,970 for 29.97 frames per second. 0 if unknown.
    pub frames_per_1000_s: u32,
}

/// The sound of a rendition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audio {
    /// Samples per second of a channel.
    pub sample_rate: u32,
    /// Channels.
    pub channels: u16,
    /// The language as a tag of RFC 5646. Empty if unknown.
    #[serde(default)]
    pub language: String,
}

/// One encoding of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rendition {
    /// The id in the headers of its chunks, also its place in addresses. Not 0.
    pub id: u16,
    /// The codecs as in RFC 6381: `avc1.64001f,mp4a.40.2`. Empty if unknown.
    pub codecs: String,
    /// The peak rate in bits per second. 0 if unknown.
    pub bandwidth: u64,
    /// The picture, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub video: Option<Video>,
    /// The sound, if there is some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audio: Option<Audio>,
}

impl Rendition {
    /// A rendition with these tracks.
    pub fn of(id: u16, bandwidth: u64, tracks: &[TrackConfig]) -> Self {
        let (mut video, mut audio, mut codecs) = (None, None, Vec::new());
        for track in tracks {
            match track {
                TrackConfig::Video(own) => {
                    let (width, height, frames_per_1000_s) = (own.width, own.height, own.frames_per_1000_s);
                    video = Some(Video { width, height, frames_per_1000_s });
                    codecs.push(own.name.as_str());
                }
                TrackConfig::Audio(own) => {
                    let (sample_rate, channels) = (own.sample_rate, own.channels);
                    audio = Some(Audio { sample_rate, channels, language: String::new() });
                    codecs.push(own.name.as_str());
                }
            }
        }
        Self { id, codecs: codecs.join(","), bandwidth, video, audio }
    }

    /// Whether the rendition has sound and no picture.
    pub fn is_audio_only(&self) -> bool {
        self.video.is_none() && self.audio.is_some()
    }

    /// The pictures in 1,000 seconds, if they are known.
    pub(crate) fn frames_per_1000_s(&self) -> Option<u32> {
        self.video.map(|video| video.frames_per_1000_s).filter(|frames| *frames > 0)
    }
}

/// Returns `text` without the characters that end a quoted attribute of a playlist.
pub(crate) fn quotable(text: &str) -> String {
    text.chars().filter(|c| !text::is_hidden(*c) && *c != '"').collect()
}
