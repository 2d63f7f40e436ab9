//! Encoders with timestamps that no encoder should have: whatever comes, parts are in order, the timeline goes on, segments end, and
//! what waits is bounded.

use bytes::Bytes;
use proptest::prelude::*;
use rblive_media::segmenter::{Part, Segmenter, SegmenterConfig, SegmenterError};
use rblive_media::unit::{AccessUnit, Input, Media, TICKS_PER_SECOND, TrackConfig, VideoCodec, VideoConfig};

use crate::live::aac;

fn video(name: &str) -> Input {
    Input::Config(TrackConfig::Video(VideoConfig {
        codec: VideoCodec::H264,
        record: Bytes::copy_from_slice(name.as_bytes()),
        name: name.to_owned(),
        width: 160,
        height: 90,
        frames_per_1000_s: 0,
    }))
}

fn audio() -> Input {
    Input::Config(TrackConfig::Audio(aac()))
}

fn unit(media: Media, dts: i64, pts: i64, key: bool) -> Input {
    Input::Unit(AccessUnit { media, dts, pts, key, data: Bytes::from_static(b"frame") })
}

/// Takes the parts that are there, and checks that they go on where the ones before ended.
fn parts(segmenter: &mut Segmenter, all: &mut Vec<Part>) {
    while let Some(part) = segmenter.next_part() {
        if let Some(before) = all.last() {
            let next =
                if before.last { (before.sequence + 1, 0) } else { (before.sequence, before.index + 1) };
            assert_eq!((part.sequence, part.index), next);
            let end = before.start_us + u64::from(before.duration_us);
            assert!(part.start_us + 1 >= end, "{} after {end}", part.start_us);
            assert!(part.start_us <= end + 1 || before.last, "a segment has no hole");
        }
        assert!(part.duration_us > 0 && part.size() > 0);
        all.push(part);
    }
}

/// One thing that an encoder does.
#[derive(Debug, Clone)]
enum Step {
    /// So many frames, this far apart, with this offset of presentation, and a key frame after each so many.
    Frames {
        media: Media,
        count: u16,
        step: i64,
        offset: i64,
        keys: u16,
    },
    /// The clock jumps.
    Jump(i64),
    Configure(u8),
    Tracks(bool, bool),
    Finish,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(3000_i64),
        1 => Just(0),
        1 => Just(1),
        1 => -9000_i64..9000,
        1 => Just(30 * TICKS_PER_SECOND),
        1 => Just(3600 * TICKS_PER_SECOND),
    ];
    let offset = prop_oneof![2 => Just(0), 2 => -9000_i64..9000, 1 => any::<i32>().prop_map(i64::from)];
    let media = prop_oneof![2 => Just(Media::Video), 1 => Just(Media::Audio)];
    let frames = (media, 1..200_u16, step, offset, prop_oneof![Just(1_u16), Just(25), Just(u16::MAX)]);
    let frames = frames.prop_map(|(media, count, step, offset, keys)| Step::Frames {
        media,
        count,
        step,
        offset,
        keys,
    });
    let jump = prop_oneof![
        -2 * TICKS_PER_SECOND..2 * TICKS_PER_SECOND,
        any::<i32>().prop_map(i64::from),
        Just(1 << 33),
        Just(-(1 << 33)),
        any::<i64>().prop_map(|jump| jump >> 8),
    ];
    let one = prop_oneof![
        12 => frames,
        3 => jump.prop_map(Step::Jump),
        2 => (0..3_u8).prop_map(Step::Configure),
        1 => any::<(bool, bool)>().prop_map(|(video, audio)| Step::Tracks(video, audio)),
        1 => Just(Step::Finish),
    ];
    prop::collection::vec(one, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_parts_are_in_order_and_nothing_is_kept_for_long(steps in steps()) {
        let config = SegmenterConfig::default();
        let most = u64::from(config.max_segment_ms) * 1000;
        let (mut segmenter, mut all, mut clock, mut pushed) = (Segmenter::new(config, 7), Vec::new(), 0_i64, 0_u64);
        segmenter.push(video("avc1.42c00b")).unwrap();
        for step in steps {
            match step {
                Step::Frames { media, count, step, offset, keys } => for at in 0..count {
                    clock = clock.saturating_add(step).clamp(-(1 << 60), 1 << 60);
                    let key = media == Media::Audio || at % keys == 0;
                    segmenter.push(unit(media, clock, clock + offset, key)).unwrap();
                    pushed += 1;
                },
                Step::Jump(by) => clock = clock.saturating_add(by).clamp(-(1 << 60), 1 << 60),
                Step::Configure(0) => segmenter.push(audio()).unwrap(),
                Step::Configure(1) => segmenter.push(video("avc1.42c00c")).unwrap(),
                Step::Configure(_) => segmenter.push(video("avc1.42c00b")).unwrap(),
                Step::Tracks(video, audio) => segmenter.push(Input::Tracks { video, audio }).unwrap(),
                Step::Finish => segmenter.finish(),
            }
            parts(&mut segmenter, &mut all);
        }
        segmenter.finish();
        parts(&mut segmenter, &mut all);
        let frames: u64 = all.iter().map(|part| u64::from(part.video_frames + part.audio_frames)).sum();
        prop_assert_eq!(frames + segmenter.dropped(), pushed, "each frame is in a part, or counted");
        for part in &all {
            prop_assert!(!part.discontinuity || part.index == 0, "a timeline begins with a segment");
            // The last frame of a part lasts until the next one, which comes within a jump.
            prop_assert!(u64::from(part.duration_us) <= most + 11_000_000, "{} us", part.duration_us);
        }
    }
}

#[test]
fn frames_that_wait_for_a_track_are_bounded() {
    let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
    segmenter.push(Input::Tracks { video: true, audio: true }).unwrap();
    segmenter.push(video("avc1.42c00b")).unwrap();
    let mut all = Vec::new();
    for _ in 0..100_000 {
        // The clock of this encoder stands still, and its sound does not come.
        segmenter.push(unit(Media::Video, 0, 0, true)).unwrap();
        parts(&mut segmenter, &mut all);
    }
    let frames: u64 = all.iter().map(|part| u64::from(part.video_frames)).sum();
    assert!(frames + segmenter.dropped() > 50_000, "{frames} frames came out");
    // Without a configuration, nothing can be played, and nothing is kept.
    let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
    for _ in 0..100_000 {
        segmenter.push(unit(Media::Video, 0, 0, true)).unwrap();
    }
    assert!(segmenter.dropped() > 90_000);
}

#[test]
fn a_stream_without_key_frames_is_cut_and_an_hour_between_frames_is_a_discontinuity() {
    let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
    let mut all = Vec::new();
    segmenter.push(Input::Tracks { video: true, audio: false }).unwrap();
    segmenter.push(video("avc1.42c00b")).unwrap();
    for at in 0..25 * 60 {
        segmenter.push(unit(Media::Video, at * 3600, at * 3600, at == 0)).unwrap();
    }
    parts(&mut segmenter, &mut all);
    assert_eq!(all.iter().filter(|part| part.last).count(), 5, "segments of ten seconds");
    assert!(all.iter().filter(|part| part.independent).count() == 1);
    let later = 25 * 60 * 3600 + 3600 * TICKS_PER_SECOND;
    for at in 0..25 * 4 {
        segmenter.push(unit(Media::Video, later + at * 3600, later + at * 3600, at % 25 == 0)).unwrap();
    }
    segmenter.finish();
    parts(&mut segmenter, &mut all);
    assert_eq!(all.iter().filter(|part| part.discontinuity).count(), 1);
    assert!(all.iter().all(|part| part.duration_us < 1_000_000));
}

#[test]
fn too_many_bytes_within_a_part_are_the_encoders_fault() {
    let config = SegmenterConfig { max_pending_bytes: 1000, ..SegmenterConfig::default() };
    let mut segmenter = Segmenter::new(config, 0);
    segmenter.push(Input::Tracks { video: true, audio: false }).unwrap();
    segmenter.push(video("avc1.42c00b")).unwrap();
    let mut pushed = (0..300).map(|_| segmenter.push(unit(Media::Video, 0, 0, true)));
    let error = pushed.find_map(Result::err).expect("the limit is reached");
    assert_eq!(error, SegmenterError::TooMuch(1000));
    assert!(error.to_string().starts_with("the encoder sent more than"));
}
