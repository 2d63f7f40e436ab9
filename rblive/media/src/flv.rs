//! The payloads of RTMP's audio and video messages, which are those of FLV tags: H.264 and AAC, and by enhanced RTMP also HEVC and AV1.
//!
//! Enhanced RTMP has messages of several tracks. One picture and one sound are played here: those of messages of a single track, and
//! track 0 of others. What additional tracks have, and in which codecs, is not looked at.

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
/// The kinds of packets of enhanced RTMP that have another head: that of several tracks, in messages of sound and of pictures, and that of
/// additions to the packet behind them.
const SOUND_TRACKS: u8 = 5;
const PICTURE_TRACKS: u8 = 6;
const ADDITIONS: u8 = 7;

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
        let (configures, data) = match head >> 4 {
            AAC => (*payload.get(1).ok_or(DAMAGED)? == 0, payload.slice(2..)),
            9 => {
                let packet = Packet::read(payload, SOUND_TRACKS).ok_or(DAMAGED)?;
                let Some(Packet { kind: kind @ (0 | 1), codec, data }) = packet else { return Ok(None) };
                if codec != *b"mp4a" {
                    return Err(FlvError::AudioCodec(Fourcc::Characters(codec)));
                }
                (kind == 0, data)
            }
            number => return Err(FlvError::AudioCodec(Fourcc::Number(number))),
        };
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
        let tag = if head & 0x80 != 0 { enhanced(payload)? } else { legacy(head & 15, payload)? };
        let Some(Tag { codec, configures, offset_ms, data }) = tag else { return Ok(None) };
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

/// A video message.
struct Tag {
    codec: VideoCodec,
    configures: bool,
    offset_ms: i32,
    data: Bytes,
}

const DAMAGED_VIDEO: FlvError = FlvError::Damaged("video");

fn legacy(number: u8, payload: &Bytes) -> Result<Option<Tag>, FlvError> {
    // 12 is HEVC as some encoders sent it before there was enhanced RTMP.
    let codec = match number {
        AVC => VideoCodec::H264,
        12 => VideoCodec::Hevc,
        _ => return Err(FlvError::VideoCodec(Fourcc::Number(number))),
    };
    let offset_ms = signed_24(payload, 2).ok_or(DAMAGED_VIDEO)?;
    let data = payload.slice(5..);
    Ok(match payload[1] {
        0 => Some(Tag { codec, configures: true, offset_ms: 0, data }),
        1 => Some(Tag { codec, configures: false, offset_ms, data }),
        _ => None,
    })
}

fn enhanced(payload: &Bytes) -> Result<Option<Tag>, FlvError> {
    let packet = Packet::read(payload, PICTURE_TRACKS).ok_or(DAMAGED_VIDEO)?;
    let Some(Packet { kind: kind @ (0 | 1 | 3), codec, data }) = packet else { return Ok(None) };
    let codec = match &codec {
        b"avc1" => VideoCodec::H264,
        b"hvc1" => VideoCodec::Hevc,
        b"av01" => VideoCodec::Av1,
        _ => return Err(FlvError::VideoCodec(Fourcc::Characters(codec))),
    };
    if kind == 1 && codec != VideoCodec::Av1 {
        let offset_ms = signed_24(&data, 0).ok_or(DAMAGED_VIDEO)?;
        return Ok(Some(Tag { codec, configures: false, offset_ms, data: data.slice(3..) }));
    }
    Ok(Some(Tag { codec, configures: kind == 0, offset_ms: 0, data }))
}

/// A packet of enhanced RTMP.
struct Packet {
    kind: u8,
    codec: [u8; 4],
    data: Bytes,
}

impl Packet {
    /// Reads a message in which packets of kind `tracks` have several tracks. `None`: it is damaged. `Some(None)`: it has nothing of the track
    /// that is played.
    fn read(payload: &Bytes, tracks: u8) -> Option<Option<Self>> {
        let (mut kind, mut at) = (payload.first()? & 15, 1);
        while kind == ADDITIONS {
            let (size, bytes) = match *payload.get(at)? {
                u8::MAX => (usize::from(u16::from_be_bytes(*payload.get(at + 1..)?.first_chunk()?)), 3),
                size => (usize::from(size), 1),
            };
            at += bytes + size + 1;
            kind = payload.get(at)? & 15;
            at += 1;
        }
        match kind {
            0 | 1 | 3 => {
                let codec = four(payload, at)?;
                Some(Some(Self { kind, codec, data: payload.slice(at + 4..) }))
            }
            _ if kind == tracks => Self::first_track(payload, at),
            _ => Some(None),
        }
    }

    /// Reads the tracks of a message, whose head is at `at`: one track (form 0), several of one codec (1), or each with its codec (2).
    fn first_track(payload: &Bytes, mut at: usize) -> Option<Option<Self>> {
        let head = *payload.get(at)?;
        let (form, kind) = (head >> 4, head & 15);
        if form > 2 {
            return Some(None);
        }
        at += 1;
        let mut codec = [0; 4];
        if form < 2 {
            codec = four(payload, at)?;
            at += 4;
        }
        while at < payload.len() {
            if form == 2 {
                codec = four(payload, at)?;
                at += 4;
            }
            let id = *payload.get(at)?;
            at += 1;
            let end = match form {
                0 => payload.len(),
                _ => {
                    let [high, middle, low] = *payload.get(at..)?.first_chunk()?;
                    at += 3;
                    at + u32::from_be_bytes([0, high, middle, low]) as usize
                }
            };
            payload.get(at..end)?;
            if id == 0 {
                return Some(Some(Self { kind, codec, data: payload.slice(at..end) }));
            }
            at = end;
        }
        Some(None)
    }
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

    const AVC_CONFIG: &[u8] = &[
        1, 0x42, 0xC0, 0x0B, 0xFF, 0xE1, 0, 24, 0x67, 0x42, 0xC0, 0x0B, 0xDA, 0x0A, 0x37, 0xE4, 0xC0, 0x44,
        0, 0, 3, 0, 4, 0, 0, 3, 0, 0xC8, 0x3C, 0x50, 0xAA, 0x80, 1, 0, 4, 0x68, 0xCE, 0x0F, 0xC8,
    ];

    fn joined(parts: &[&[u8]]) -> Bytes {
        parts.concat().into()
    }

    fn unit(input: Option<Input>) -> Option<Vec<u8>> {
        match input? {
            Input::Unit(unit) => Some(unit.data.to_vec()),
            _ => Some(b"configuration".to_vec()),
        }
    }

    /// What the encoder's first track has is played, in each form of message, and no codec of another track ends the stream.
    #[test]
    fn the_first_track_is_played_and_others_are_left_out() {
        let configured = || Some(b"configuration".to_vec());
        let (slice, size) = (b"slice".to_vec(), &[0u8, 0, 5][..]);
        let long = &[&[7, 0xFF, 0, 0xFF][..], &[0; 256], &[0x01]].concat();
        let mut demuxer = Demuxer::new();
        let mut video = |head: u8, parts: &[&[u8]]| {
            unit(demuxer.video(0, &joined(&[&[&[head][..]], parts].concat())).unwrap())
        };
        assert_eq!(video(0x96, &[&[0x00], b"avc1", &[1], AVC_CONFIG]), None, "another track");
        assert_eq!(video(0x96, &[&[0x00], b"vp09", &[1], b"?"]), None, "another track of another codec");
        assert_eq!(video(0x96, &[&[0x00], b"avc1", &[0], AVC_CONFIG]), configured());
        assert_eq!(video(0x91, &[b"avc1", &[0; 3], &slice]), Some(slice.clone()));
        assert_eq!(
            video(0x97, &[&[2, 0, 0, 9, 0x01], b"avc1", &[0; 3], &slice]),
            Some(slice.clone()),
            "with nanoseconds"
        );
        assert_eq!(
            video(0x97, &[&long[1..], b"avc1", &[0; 3], &slice]),
            Some(slice.clone()),
            "with a long addition"
        );
        assert_eq!(
            video(0x97, &[&[0, 0, 0x06, 0x03], b"avc1", &[0], &slice]),
            Some(slice.clone()),
            "with both"
        );
        let several = [b"vp09", &[1][..], size, b"other", b"avc1", &[0], size, &slice];
        assert_eq!(
            video(0x96, &[&[&[0x23][..]], &several[..]].concat()),
            Some(slice.clone()),
            "each with its codec"
        );
        let several = [&[1][..], size, b"other", &[0], size, &slice, &[2], size, b"third"];
        assert_eq!(
            video(0x96, &[&[&[0x13][..], b"avc1"], &several[..]].concat()),
            Some(slice),
            "of one codec"
        );
        for (head, rest) in [(0x94, &b"avc1\x02"[..]), (0x98, b"?"), (0x96, b"\x30"), (0xD1, b"?")] {
            assert_eq!(video(head, &[rest]), None, "of a newer encoder: {head:x}");
        }
        let mut audio = |parts: &[&[u8]]| unit(demuxer.audio(0, &joined(parts)).unwrap());
        assert_eq!(audio(&[&[0x95, 0x00], b"Opus", &[1], b"OpusHead"]), None);
        assert_eq!(audio(&[&[0x95, 0x00], b"mp4a", &[0], &[0x11, 0x90]]), configured());
        assert_eq!(audio(&[&[0x97, 0, 0, 0x01], b"mp4a", b"sound"]), Some(b"sound".to_vec()));
        assert_eq!(audio(&[&[0x94], &[0, 2]]), None);
    }

    #[test]
    fn damage_and_codecs_that_nobody_plays_are_errors() {
        let mut demuxer = Demuxer::new();
        for bad in
            [&[0x97][..], &[0x97, 0xFF, 0], &[0x97, 0, 0], &[0x96], &[0x96, 0x00, b'a'], &[0x91, b'a', b'v']]
        {
            assert_eq!(demuxer.video(0, &joined(&[bad])).unwrap_err(), FlvError::Damaged("video"), "{bad:?}");
        }
        let short = joined(&[&[0x96, 0x11], b"avc1", &[1, 0, 0, 9], b"short"]);
        assert_eq!(demuxer.video(0, &short).unwrap_err(), FlvError::Damaged("video"));
        let other = demuxer.video(0, &joined(&[&[0x90], b"vp09", b"?"])).unwrap_err();
        assert_eq!(other, FlvError::VideoCodec(Fourcc::Characters(*b"vp09")));
        let other = demuxer.audio(0, &joined(&[&[0x95, 0], b"Opus", &[0], b"?"])).unwrap_err();
        assert_eq!(other, FlvError::AudioCodec(Fourcc::Characters(*b"Opus")));
    }

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
