//! The common form of every input: tracks with a configuration, and access units.

use bytes::Bytes;

/// Ticks in a second, of all times in this crate's inputs: the clock of MPEG-TS.
pub const TICKS_PER_SECOND: i64 = 90_000;

/// The two tracks of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Media {
    /// The picture.
    Video,
    /// The sound.
    Audio,
}

/// A video codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VideoCodec {
    /// H.264, AVC.
    H264,
    /// H.265, HEVC.
    Hevc,
    /// AV1.
    Av1,
}

/// An audio codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AudioCodec {
    /// AAC.
    Aac,
    /// AC-3, Dolby Digital.
    Ac3,
    /// E-AC-3, Dolby Digital Plus.
    EAc3,
}

/// The configuration of a video track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoConfig {
    /// The codec.
    pub codec: VideoCodec,
    /// The decoder configuration record: the content of `avcC`, `hvcC` or `av1C`.
    pub record: Bytes,
    /// The codec as in RFC 6381.
    pub name: String,
    /// Width in pixels, 0 if unknown.
    pub width: u32,
    /// Height in pixels, 0 if unknown.
    pub height: u32,
    /// Frames in 1,000 seconds as the encoder declares them, 0 if it does not.
    pub frames_per_1000_s: u32,
}

/// The configuration of an audio track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AudioConfig {
    /// The codec.
    pub codec: AudioCodec,
    /// The `AudioSpecificConfig`, or the content of `dac3` or `dec3`.
    pub record: Bytes,
    /// The codec as in RFC 6381.
    pub name: String,
    /// Samples per second of a channel, of the core stream. Not 0.
    pub sample_rate: u32,
    /// Channels.
    pub channels: u16,
    /// Samples of a frame.
    pub frame_samples: u32,
}

/// The configuration of a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrackConfig {
    /// Of the video track.
    Video(VideoConfig),
    /// Of the audio track.
    Audio(AudioConfig),
}

impl TrackConfig {
    /// Video or audio.
    pub fn media(&self) -> Media {
        match self {
            Self::Video(_) => Media::Video,
            Self::Audio(_) => Media::Audio,
        }
    }
}

/// A frame of video or audio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessUnit {
    /// The track.
    pub media: Media,
    /// The decoding time in ticks, unwrapped: see [`TICKS_PER_SECOND`].
    pub dts: i64,
    /// The presentation time in ticks.
    pub pts: i64,
    /// Whether decoding can begin here. Always true for audio.
    pub key: bool,
    /// The frame as MP4 stores it: NAL units with their lengths, OBUs, a raw AAC frame, or a frame of AC-3.
    pub data: Bytes,
}

/// An item that a demuxer finds, in the order of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The tracks that the stream announces.
    Tracks {
        /// The stream has a video track.
        video: bool,
        /// The stream has an audio track.
        audio: bool,
    },
    /// The configuration of a track, for the units that follow. The configuration may be repeated without a change.
    Config(TrackConfig),
    /// A frame.
    Unit(AccessUnit),
}

/// Extends timestamps of few bits to 64 bits. The tracks of a stream share one `Unwrap`, so that their times stay close together.
#[derive(Debug, Clone)]
pub struct Unwrap {
    bits: u32,
    last: Option<i64>,
}

impl Unwrap {
    /// For timestamps of `bits` bits, 2 to 62.
    pub fn new(bits: u32) -> Self {
        assert!((2..=62).contains(&bits), "between two and 62 bits");
        Self { bits, last: None }
    }

    /// The extended timestamp: the one closest to the timestamp before.
    pub fn extend(&mut self, raw: u64) -> i64 {
        let raw = (raw & ((1 << self.bits) - 1)) as i64;
        let extended = self.last.map_or(raw, |last| last.saturating_add(self.difference(raw, last)));
        self.last = Some(extended);
        extended
    }

    /// `a - b` as the shortest way around the circle.
    pub fn difference(&self, a: i64, b: i64) -> i64 {
        let shift = 64 - self.bits;
        (a.wrapping_sub(b) << shift) >> shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_go_on_over_the_wrap_and_may_step_back() {
        let mut unwrap = Unwrap::new(33);
        let top = (1u64 << 33) - 3000;
        assert_eq!(unwrap.extend(top), top as i64);
        assert_eq!(unwrap.extend(600), top as i64 + 3600);
        assert_eq!(unwrap.extend(top + 10), top as i64 + 10);
        assert_eq!(unwrap.extend(90_000), top as i64 + 93_000);
    }
}
