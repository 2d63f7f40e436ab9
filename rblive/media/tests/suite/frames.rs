//! The frames of a media segment are those of which it was made.

use bytes::Bytes;
use rblive_media::fmp4::InitSegment;
use rblive_media::segmenter::{Segmenter, SegmenterConfig};
use rblive_media::unit::{AccessUnit, Input, Media, TrackConfig};

use crate::live::{aac, frames, h264};

/// An `avcC` with the parameter sets of a picture of 160x90.
const RECORD: &[u8] = &[
    1, 0x42, 0xC0, 0x0B, 0xFF, 0xE1, 0, 24, 0x67, 0x42, 0xC0, 0x0B, 0xDA, 0x0A, 0x37, 0xE4, 0xC0, 0x44, 0, 0,
    3, 0, 4, 0, 0, 3, 0, 0xC8, 0x3C, 0x50, 0xAA, 0x80, 1, 0, 4, 0x68, 0xCE, 0x0F, 0x2C,
];

#[test]
fn the_frames_of_parts_are_those_of_the_encoder() {
    let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
    let mut video = h264();
    video.record = RECORD.into();
    segmenter.push(Input::Tracks { video: true, audio: true }).unwrap();
    segmenter.push(Input::Config(TrackConfig::Video(video))).unwrap();
    segmenter.push(Input::Config(TrackConfig::Audio(aac()))).unwrap();
    let mut sent = Vec::new();
    for (media, dts, key) in frames(4 * 90_000) {
        let data = Bytes::from(format!("{media:?} {dts}"));
        // Pictures are shown two frames after they are decoded.
        let pts = if media == Media::Video { dts + 7_200 } else { dts };
        let unit = AccessUnit { media, dts, pts, key, data };
        segmenter.push(Input::Unit(unit.clone())).unwrap();
        sent.push(unit);
    }
    segmenter.finish();
    let parts: Vec<_> = std::iter::from_fn(|| segmenter.next_part()).collect();
    let init = InitSegment::parse(&parts[0].init).unwrap();
    let mut got = Vec::new();
    for part in &parts {
        let bytes = Bytes::from(part.to_vec());
        let whole = init.frames(&bytes).unwrap();
        assert_eq!(whole.len(), (part.video_frames + part.audio_frames) as usize);
        for cut in 0..bytes.len() {
            assert!(
                init.frames(&bytes.slice(..cut)).is_ok_and(|few| few.is_empty())
                    || init.frames(&bytes.slice(..cut)).is_err()
            );
        }
        got.extend(whole);
    }
    for media in [Media::Video, Media::Audio] {
        let of =
            |all: &[AccessUnit]| all.iter().filter(|own| own.media == media).cloned().collect::<Vec<_>>();
        assert_eq!(of(&got), of(&sent), "{media:?}");
    }
}
