//! Encoders whose key frames are uneven: playlists announce the length of the first segment for ever, so no other one rounds to more.

use rblive_media::segmenter::{Oddity, Segmenter, SegmenterConfig};
use rblive_media::timeline::Timeline;
use rblive_media::unit::{Input, Media, TICKS_PER_SECOND, TrackConfig};

use crate::live::{VIDEO_FRAME, aac, covered, frames, h264, pushed, seconds, video_and_audio};

const S: i64 = TICKS_PER_SECOND;

/// The lengths of segments of a minute with key frames at these times, in tenths of a second, and then every ten seconds.
fn lengths(timeline: Timeline, keys: &[i64], has_sound: bool, is_there: impl Fn(i64) -> bool) -> Vec<f64> {
    let mut segmenter = Segmenter::with_timeline(SegmenterConfig::default(), timeline);
    segmenter.push(Input::Tracks { video: true, audio: has_sound }).unwrap();
    segmenter.push(Input::Config(TrackConfig::Video(h264()))).unwrap();
    if has_sound {
        segmenter.push(Input::Config(TrackConfig::Audio(aac()))).unwrap();
    }
    let is_key = |time: i64| keys.iter().any(|key| key * S / 10 == time) || time % (10 * S) == 0;
    let all = frames(60 * S).filter(|(media, time, _)| match media {
        Media::Video => is_there(time / VIDEO_FRAME),
        Media::Audio => has_sound,
    });
    let all = all.map(|(media, time, _)| (media, time, media == Media::Audio || is_key(time)));
    let parts = pushed(&mut segmenter, all);
    let leading = if has_sound { Media::Audio } else { Media::Video };
    assert!(covered(&parts, leading) > 59.5, "nothing is missing");
    assert!(segmenter.take_oddities().iter().any(|own| matches!(own, Oddity::KeyFrames(4_000..))));
    seconds(&parts)
}

#[test]
fn no_segment_is_longer_than_the_first_one() {
    let uneven = [20, 44, 64, 140, 161, 187];
    for has_sound in [true, false] {
        for (keys, first) in [(&uneven[..], 2.0), (&uneven[1..], 4.4), (&[28, 90], 2.8), (&[], 10.0)] {
            for missing in [i64::MAX, 7, 5] {
                let is_there = |at: i64| at % missing != 3 && at % missing != 4 || missing == i64::MAX;
                let all = lengths(Timeline::alone(0, 0), keys, has_sound, is_there);
                assert!((all[0] - first).abs() < 0.1, "{keys:?}: {all:?}");
                let announced = first.round();
                assert!(all.iter().all(|own| own.round() <= announced), "{keys:?}, {missing}: {all:?}");
                let cut_early = all.iter().filter(|own| **own < 1.0).count();
                assert!(cut_early <= 6, "segments are as long as they may be: {all:?}");
            }
        }
    }
}

/// An encoder with a distance of 2.4 s announces two seconds, and is not cut.
#[test]
fn even_segments_are_cut_at_key_frames_alone() {
    for distance in [48, 61, 62] {
        let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
        video_and_audio(&mut segmenter);
        let all = frames(60 * S).map(|(media, time, _)| {
            (media, time, media == Media::Audio || time / VIDEO_FRAME % distance == 0)
        });
        let parts = pushed(&mut segmenter, all);
        assert!(parts.iter().filter(|part| part.index == 0).all(|part| part.independent), "{distance}");
        assert_eq!(segmenter.take_oddities(), [], "{distance}");
    }
}

/// Segments of pictures with key frames at these frames of 25 in a second: whether each begins with a key frame.
fn independent(keys: &[i64], end: i64) -> Vec<bool> {
    let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
    video_and_audio(&mut segmenter);
    let all = frames(end * VIDEO_FRAME)
        .map(|(media, time, _)| (media, time, media == Media::Audio || keys.contains(&(time / VIDEO_FRAME))));
    let parts = pushed(&mut segmenter, all);
    parts.iter().filter(|part| part.index == 0).map(|part| part.independent).collect()
}

#[test]
fn the_next_key_frame_begins_a_segment_again() {
    // Two seconds, and then ten.
    let far: Vec<i64> = [0, 50].into_iter().chain((0..5).map(|at| 300 + at * 250)).collect();
    let all = independent(&far, 1550);
    assert_eq!(all.iter().filter(|own| **own).count(), far.len(), "{all:?}");
    // One frame more than usual, once.
    let once: Vec<i64> = (0..50).map(|at| at * 60 + i64::from(at > 1)).collect();
    let all = independent(&once, 3000);
    assert_eq!(all.iter().filter(|own| !**own).count(), 1, "{all:?}");
    // Two seconds, and then always 2.44: the distance is known after the first one.
    let longer: Vec<i64> = [0].into_iter().chain((0..50).map(|at| 50 + at * 61)).collect();
    let all = independent(&longer, 3000);
    assert_eq!(all.iter().filter(|own| !**own).count(), 1, "{all:?}");
    // A change of the scene.
    let scene: Vec<i64> = [0, 100, 200, 237].into_iter().chain((1..9).map(|at| 237 + at * 100)).collect();
    let all = independent(&scene, 1100);
    assert!(all.iter().filter(|own| !**own).count() <= 1, "{all:?}");
}

#[test]
fn a_picture_that_stays_ends_no_segment_late() {
    for alone in [true, false] {
        for (from, missing) in (80..99).flat_map(|from| [(from, 40), (from, 120), (from, 230)]) {
            let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
            segmenter.push(Input::Tracks { video: true, audio: !alone }).unwrap();
            segmenter.push(Input::Config(TrackConfig::Video(h264()))).unwrap();
            if !alone {
                segmenter.push(Input::Config(TrackConfig::Audio(aac()))).unwrap();
            }
            let is_there = |at: i64| !(from..from + missing).contains(&at);
            let all = frames(20 * S).filter(|(media, time, _)| match media {
                Media::Video => is_there(time / VIDEO_FRAME),
                Media::Audio => !alone,
            });
            let own = seconds(&pushed(&mut segmenter, all));
            assert!(own.iter().all(|own| own.round() <= 2.0), "{from}, {missing}, {alone}: {own:?}");
        }
    }
}

#[test]
fn pictures_or_sound_that_pause_are_no_distance_of_key_frames() {
    for media in [Media::Video, Media::Audio] {
        let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
        let is_video = media == Media::Video;
        let config = if is_video { TrackConfig::Video(h264()) } else { TrackConfig::Audio(aac()) };
        segmenter.push(Input::Tracks { video: is_video, audio: !is_video }).unwrap();
        segmenter.push(Input::Config(config)).unwrap();
        let all = frames(30 * S).filter(|own| own.0 == media && !(8 * S + 9_000..16 * S).contains(&own.1));
        pushed(&mut segmenter, all);
        assert_eq!(segmenter.take_oddities(), [], "{media:?}");
    }
}

#[test]
fn sound_goes_on_in_segments_of_the_first_length_while_the_pictures_are_frozen() {
    let is_there = |at: i64| !(6 * 25 + 40..16 * 25).contains(&at);
    let all = lengths(Timeline::alone(0, 0), &[20, 40, 60], true, is_there);
    assert!(all.iter().all(|own| own.round() <= 2.0), "{all:?}");
}

#[test]
fn a_stream_that_another_encoder_continues_keeps_its_length() {
    let timeline = Timeline::shared(0, 0);
    let all = [1, 2]
        .map(|id| lengths(timeline.rendition(id), if id == 1 { &[20, 40] } else { &[] }, true, |_| true));
    assert!(all.iter().flatten().all(|own| own.round() <= 2.0), "{all:?}");
}
