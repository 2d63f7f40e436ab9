//! Encoders that are made up: pictures and sound as they come from one, without a codec, and what the parts have of them.

use bytes::Bytes;
use rblive_media::segmenter::{Part, Segmenter};
use rblive_media::unit::{
    AccessUnit, AudioCodec, AudioConfig, Input, Media, TICKS_PER_SECOND, TrackConfig, VideoCodec, VideoConfig,
};

/// 25 pictures in a second.
pub const VIDEO_FRAME: i64 = TICKS_PER_SECOND / 25;
/// 1024 samples of 48,000 in a second.
pub const AUDIO_FRAME: i64 = 1920;

pub fn h264() -> VideoConfig {
    VideoConfig {
        codec: VideoCodec::H264,
        record: Bytes::from_static(b"record"),
        name: "avc1.42c00b".to_owned(),
        width: 160,
        height: 90,
        frames_per_1000_s: 25_000,
    }
}

pub fn aac() -> AudioConfig {
    AudioConfig {
        codec: AudioCodec::Aac,
        record: Bytes::from_static(&[0x11, 0x90]),
        name: "mp4a.40.2".to_owned(),
        sample_rate: 48_000,
        channels: 2,
        frame_samples: 1024,
    }
}

/// The frames of an encoder until `end`, as it sends them: a key frame every two seconds.
pub fn frames(end: i64) -> impl Iterator<Item = (Media, i64, bool)> {
    let video = (0..end / VIDEO_FRAME).map(|at| (Media::Video, at * VIDEO_FRAME, at % 50 == 0));
    let audio = (0..end / AUDIO_FRAME).map(|at| (Media::Audio, at * AUDIO_FRAME, true));
    let mut all: Vec<_> = video.chain(audio).collect();
    all.sort_by_key(|(_, time, _)| *time);
    all.into_iter()
}

/// Announces and configures both tracks.
pub fn video_and_audio(segmenter: &mut Segmenter) {
    segmenter.push(Input::Tracks { video: true, audio: true }).unwrap();
    segmenter.push(Input::Config(TrackConfig::Video(h264()))).unwrap();
    segmenter.push(Input::Config(TrackConfig::Audio(aac()))).unwrap();
}

/// The parts of a stream with both tracks.
pub fn heard(segmenter: &mut Segmenter, frames: impl Iterator<Item = (Media, i64, bool)>) -> Vec<Part> {
    video_and_audio(segmenter);
    pushed(segmenter, frames)
}

/// The parts of these frames, to their end.
pub fn pushed(segmenter: &mut Segmenter, frames: impl Iterator<Item = (Media, i64, bool)>) -> Vec<Part> {
    let mut parts = Vec::new();
    for (media, dts, key) in frames {
        let data = Bytes::from_static(b"frame");
        segmenter.push(Input::Unit(AccessUnit { media, dts, pts: dts, key, data })).unwrap();
        parts.extend(std::iter::from_fn(|| segmenter.next_part()));
    }
    segmenter.finish();
    parts.extend(std::iter::from_fn(|| segmenter.next_part()));
    parts
}

/// The lengths of segments in seconds.
pub fn seconds(parts: &[Part]) -> Vec<f64> {
    let mut all: Vec<(u64, f64)> = Vec::new();
    for part in parts {
        let own = f64::from(part.duration_us) / 1e6;
        match all.last_mut().filter(|(sequence, _)| *sequence == part.sequence) {
            Some((_, length)) => *length += own,
            None => all.push((part.sequence, own)),
        }
    }
    all.into_iter().map(|(_, length)| length).collect()
}

/// How many seconds of a track a player can play without a hole from the first part on.
pub fn covered(parts: &[Part], media: Media) -> f64 {
    let mut end = None;
    for (begin, length) in parts.iter().flat_map(|part| runs(&part.to_vec(), media)) {
        let reached = *end.get_or_insert(begin);
        // Times have been rounded, and sound is in whole frames where its configuration changes.
        if (begin - reached).abs() > 0.022 {
            break;
        }
        end = Some(begin + length);
    }
    end.unwrap_or(0.0)
}

/// Where the samples of a part begin, and how long they are, in seconds.
pub fn runs(part: &[u8], media: Media) -> Vec<(f64, f64)> {
    let scale = if media == Media::Video { TICKS_PER_SECOND as f64 } else { 48_000.0 };
    let mut all = Vec::new();
    for (kind, moof) in boxes(part).filter(|(kind, _)| kind == b"moof") {
        assert_eq!(&kind, b"moof");
        for (_, traf) in boxes(moof).filter(|(kind, _)| kind == b"traf") {
            let of =
                |wanted: &[u8; 4]| boxes(traf).find(|(kind, _)| kind == wanted).expect("traf has the box").1;
            let word = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
            let id = if media == Media::Video { 1 } else { 2 };
            if word(of(b"tfhd"), 4) != id {
                continue;
            }
            let time = u64::from_be_bytes(of(b"tfdt")[4..12].try_into().unwrap()) as f64;
            let trun = of(b"trun");
            let durations = (0..word(trun, 4) as usize).map(|at| f64::from(word(trun, 12 + at * 16)));
            all.push((time / scale, durations.sum::<f64>() / scale));
        }
    }
    all
}

fn boxes(bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let size = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        let (own, after) = rest.split_at_checked(size)?;
        rest = after;
        Some((own[4..8].try_into().ok()?, &own[8..]))
    })
}
