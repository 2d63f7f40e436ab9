//! The payloads of RTMP's audio and video messages, which are those of FLV tags: H.264 and AAC, and by enhanced RTMP also HEVC and AV1.

use bytes::Bytes;

use crate::codec::{ConfigError, audio_config, video_config};
use crate::unit::{AccessUnit, AudioCodec, Input, Media, TICKS_PER_SECOND, TrackConfig, Unwrap, VideoCodec};

const TICKS_PER_MILLISECOND: i64 = TICKS_PER_SECOND / 1000;
/// The bits of a timestamp. Some encoders wrap after 31 bits of milliseconds, which are 24 days, and others after 32. The period of 31
/// bits suits both, since that of 32 bits is twice as long.
const CLOCK_BITS: u32 = 31;
const AAC: u8 = 10;
const AVC: u8 = 7;
const KEY_FRAME: u8 = 1;
const COMMAND_FRAME: u8 = 5;

/// Why a payload is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlvError {
    /// The payload ends too early or has an impossible value.
    #[error("the encoder sent a damaged {0} message")]
    Damaged(&'static str),
    /// Nothing here plays the codec.
    #[error("the encoder's video codec {0} is not supported; H.264, HEVC and AV1 are")]
    VideoCodec(Fourcc),
    /// Nothing here plays the codec.
    #[error("the encoder's audio codec {0} is not supported; AAC is")]
    AudioCodec(Fourcc),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A codec's code: four characters, or a number in old messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fourcc {
    /// Of enhanced RTMP.
    Characters([u8; 4]),
    /// Of FLV.
    Number(u8),
}

impl std::fmt::Display for Fourcc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Characters(characters) => write!(f, "{}", characters.escape_ascii()),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// Turns the messages of one publisher into [`Input`].
#[derive(Debug)]
pub struct Demuxer {
    clock: Unwrap,
    video: Option<VideoCodec>,
    audio: bool,
}

impl Default for Demuxer {
    fn default() -> Self {
        Self::new()
    }
}

impl Demuxer {
    /// A demuxer for one publisher.
    pub fn new() -> Self {
        Self { clock: Unwrap::new(CLOCK_BITS), video: None, audio: false }
    }

    /// Reads an audio message with its timestamp in milliseconds. `None`: nothing in it is played.
    ///
    /// # Errors
    /// [`FlvError`]: the publisher cannot be understood.
    pub fn audio(&mut self, timestamp: u32, payload: &Bytes) -> Result<Option<Input>, FlvError> {
        const DAMAGED: FlvError = FlvError::Damaged("audio");
        // Encoders end a stream with an empty message.
        let Some(&head) = payload.first() else { return Ok(None) };
        let (configures, at) = match head >> 4 {
            AAC => (*payload.get(1).ok_or(DAMAGED)? == 0, 2),
            9 => {
                let fourcc = four(payload, 1).ok_or(DAMAGED)?;
                if fourcc != *b"mp4a" {
                    return Err(FlvError::AudioCodec(Fourcc::Characters(fourcc)));
                }
                match head & 15 {
                    0 => (true, 5),
                    1 => (false, 5),
                    _ => return Ok(None),
                }
            }
            number => return Err(FlvError::AudioCodec(Fourcc::Number(number))),
        };
        let data = payload.slice(at.min(payload.len())..);
        // An encoder that does not know its configuration yet sends an empty one before it, as ffmpeg does that copies MPEG-TS.
        if data.is_empty() {
            return Ok(None);
        }
        if configures {
            self.audio = true;
            return Ok(Some(Input::Config(TrackConfig::Audio(audio_config(AudioCodec::Aac, data)?))));
        }
        if !self.audio {
            return Ok(None);
        }
        let time = self.time(timestamp);
        Ok(Some(Input::Unit(AccessUnit { media: Media::Audio, dts: time, pts: time, key: true, data })))
    }

    /// Reads a video message with its timestamp in milliseconds. `None`: nothing in it is played.
    ///
    /// # Errors
    /// [`FlvError`]: the publisher cannot be understood.
    pub fn video(&mut self, timestamp: u32, payload: &Bytes) -> Result<Option<Input>, FlvError> {
        let Some(&head) = payload.first() else { return Ok(None) };
        let frame = head >> 4 & 7;
        if frame == COMMAND_FRAME {
            return Ok(None);
        }
        let tag = if head & 0x80 != 0 { enhanced(head & 15, payload)? } else { legacy(head & 15, payload)? };
        let Some(Tag { codec, configures, offset_ms, at }) = tag else { return Ok(None) };
        let data = payload.slice(at.min(payload.len())..);
        if data.is_empty() {
            return Ok(None);
        }
        if configures {
            self.video = Some(codec);
            return Ok(Some(Input::Config(TrackConfig::Video(video_config(codec, data)?))));
        }
        if self.video != Some(codec) {
            return Ok(None);
        }
        let dts = self.time(timestamp);
        let pts = dts + i64::from(offset_ms) * TICKS_PER_MILLISECOND;
        Ok(Some(Input::Unit(AccessUnit { media: Media::Video, dts, pts, key: frame == KEY_FRAME, data })))
    }

    fn time(&mut self, timestamp: u32) -> i64 {
        self.clock.extend(u64::from(timestamp)).saturating_mul(TICKS_PER_MILLISECOND)
    }
}

/// The head of a video message.
struct Tag {
    codec: VideoCodec,
    configures: bool,
    offset_ms: i32,
    at: usize,
}

const DAMAGED_VIDEO: FlvError = FlvError::Damaged("video");

fn legacy(number: u8, payload: &[u8]) -> Result<Option<Tag>, FlvError> {
    // 12 is HEVC as some encoders sent it before there was enhanced RTMP.
    let codec = match number {
        AVC => VideoCodec::H264,
        12 => VideoCodec::Hevc,
        _ => return Err(FlvError::VideoCodec(Fourcc::Number(number))),
    };
    let offset_ms = signed_24(payload, 2).ok_or(DAMAGED_VIDEO)?;
    Ok(match payload[1] {
        0 => Some(Tag { codec, configures: true, offset_ms: 0, at: 5 }),
        1 => Some(Tag { codec, configures: false, offset_ms, at: 5 }),
        _ => None,
    })
}

fn enhanced(kind: u8, payload: &[u8]) -> Result<Option<Tag>, FlvError> {
    let fourcc = four(payload, 1).ok_or(DAMAGED_VIDEO)?;
    let codec = match &fourcc {
        b"avc1" => VideoCodec::H264,
        b"hvc1" => VideoCodec::Hevc,
        b"av01" => VideoCodec::Av1,
        _ => return Err(FlvError::VideoCodec(Fourcc::Characters(fourcc))),
    };
    Ok(match kind {
        0 => Some(Tag { codec, configures: true, offset_ms: 0, at: 5 }),
        1 if codec != VideoCodec::Av1 => {
            let offset_ms = signed_24(payload, 5).ok_or(DAMAGED_VIDEO)?;
            Some(Tag { codec, configures: false, offset_ms, at: 8 })
        }
        1 | 3 => Some(Tag { codec, configures: false, offset_ms: 0, at: 5 }),
        _ => None,
    })
}

fn four(payload: &[u8], at: usize) -> Option<[u8; 4]> {
    payload.get(at..)?.first_chunk().copied()
}

fn signed_24(payload: &[u8], at: usize) -> Option<i32> {
    let [high, middle, low] = *payload.get(at..)?.first_chunk()?;
    Some(i32::from_be_bytes([high, middle, low, 0]) >> 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_on_where_an_encoder_begins_anew_after_31_or_32_bits() {
        let configuration = Bytes::from_static(&[0xAF, 0, 0x11, 0x90]);
        let frame = Bytes::from_static(&[0xAF, 1, 0x21]);
        // ffmpeg leaves out the highest bit, others count on.
        for (before, after) in [(0x7FFF_FFF0, 0x10), (0x7FFF_FFF0, 0x8000_0010), (0xFFFF_FFF0, 0x10)] {
            let mut demuxer = Demuxer::new();
            demuxer.audio(before, &configuration).unwrap();
            let mut time = |timestamp| match demuxer.audio(timestamp, &frame).unwrap() {
                Some(Input::Unit(unit)) => unit.dts / TICKS_PER_MILLISECOND,
                other => panic!("{other:?}"),
            };
            assert_eq!(-time(before) + time(after), 0x20, "{before:x} {after:x}");
        }
    }
}
