//! Sound that ends, pauses, comes late or is another one: viewers have both tracks all the time.

use bytes::Bytes;
use rblive_media::segmenter::{Oddity, Part, Segmenter, SegmenterConfig};
use rblive_media::unit::{AccessUnit, AudioCodec, AudioConfig, Input, Media, TICKS_PER_SECOND, TrackConfig};

use crate::live::{
    AUDIO_FRAME, VIDEO_FRAME, aac, covered, frames, h264, heard, pushed, runs, seconds, video_and_audio,
};

const S: i64 = TICKS_PER_SECOND;

fn new() -> Segmenter {
    Segmenter::new(SegmenterConfig::default(), 0)
}

fn breaks(parts: &[Part]) -> usize {
    parts.iter().filter(|part| part.discontinuity).count()
}

/// Checks that each segment begins with a key frame, and that no part but the last one of a segment is long.
fn well_cut(parts: &[Part]) {
    assert!(parts.iter().filter(|part| part.index == 0).all(|part| part.independent));
    assert!(parts.iter().filter(|part| part.index > 0).all(|part| !part.independent));
    assert!(parts.iter().all(|part| part.duration_us <= 301_000), "parts have their length");
}

#[test]
fn silence_is_in_the_place_of_sound_that_ends() {
    let mut segmenter = new();
    let parts = heard(&mut segmenter, frames(20 * S).filter(|own| own.0 == Media::Video || own.1 < 6 * S));
    well_cut(&parts);
    assert!(covered(&parts, Media::Audio) > 19.9 && covered(&parts, Media::Video) > 19.9);
    assert_eq!((breaks(&parts), segmenter.take_oddities()), (0, vec![Oddity::Silence]));
    assert!(segmenter.take_oddities().is_empty(), "told once");
}

#[test]
fn silence_fills_a_pause_and_sound_goes_on_after_it() {
    for pause in [S / 5, S, 3 * S, 8 * S] {
        let mut segmenter = new();
        let is_there = |time| !(6 * S..6 * S + pause).contains(&time);
        let parts =
            heard(&mut segmenter, frames(20 * S).filter(|own| own.0 == Media::Video || is_there(own.1)));
        well_cut(&parts);
        assert!(covered(&parts, Media::Audio) > 19.9, "{pause}");
        let frames: u32 = parts.iter().map(|part| part.audio_frames).sum();
        assert!(i64::from(frames) >= (20 * S - pause) / AUDIO_FRAME - 2, "{frames} after {pause}");
        assert_eq!(breaks(&parts), 0);
    }
}

/// What comes late has no silence in its place for ever.
#[test]
fn sound_that_is_always_late_is_heard() {
    let mut segmenter = new();
    let mut late: Vec<_> = frames(30 * S).collect();
    late.sort_by_key(|(media, time, _)| time + if *media == Media::Audio { 6 * S / 5 } else { 0 });
    let parts = heard(&mut segmenter, late.into_iter());
    let frames: u32 = parts.iter().map(|part| part.audio_frames).sum();
    assert!(i64::from(frames) > 26 * S / AUDIO_FRAME, "{frames}");
    assert!(covered(&parts, Media::Audio) > 28.5);
}

/// The times of a mux say that the sound belongs to earlier pictures, although its first frame comes after them.
#[test]
fn sound_behind_the_pictures_keeps_its_times() {
    let mut segmenter = new();
    let mut late: Vec<_> = frames(40 * S).collect();
    late.sort_by_key(|(media, time, _)| time + if *media == Media::Audio { 7 * S / 2 } else { 0 });
    let parts = heard(&mut segmenter, late.into_iter());
    let end = parts.iter().flat_map(|part| runs(&part.to_vec(), Media::Audio)).last();
    let (begin, length) = end.expect("sound");
    assert!((39.9..40.1).contains(&(begin + length)), "{begin} {length}");
    let frames: u32 = parts.iter().map(|part| part.audio_frames).sum();
    assert!(i64::from(frames) > 24 * S / AUDIO_FRAME, "{frames}");
}

/// The mux of GStreamer gives no frame an earlier time than the one before has. The encoder's sound comes after later pictures at times, and then
/// has their time.
#[test]
fn sound_with_the_time_of_later_pictures_has_no_hole_before_it() {
    for late in 1..=14 {
        for from in [AUDIO_FRAME, 3 * AUDIO_FRAME, 6 * S + S / 10] {
            let until = from + late * VIDEO_FRAME;
            let mut muxed: Vec<_> = frames(20 * S).collect();
            let waits = |media, time| media == Media::Audio && (from..until).contains(&time);
            muxed.sort_by_key(|(media, time, _)| if waits(*media, *time) { until } else { *time });
            let mut newest = 0;
            for (_, time, _) in &mut muxed {
                newest = newest.max(*time);
                *time = newest;
            }
            let parts = heard(&mut new(), muxed.into_iter());
            let sound: Vec<_> = parts.iter().flat_map(|part| runs(&part.to_vec(), Media::Audio)).collect();
            let heard: u32 = parts.iter().map(|part| part.audio_frames).sum();
            let length: f64 = sound.iter().map(|(_, length)| length).sum();
            let own = f64::from(heard) * 1024.0 / 48_000.0;
            assert!(
                (length - own).abs() < 1e-6,
                "{length} s of sound in {own} s, {late} pictures later at {from}"
            );
            let (begin, last) = sound.last().expect("sound");
            assert!((begin + last - 20.0).abs() < 0.03, "{begin} {last}, {late} pictures later at {from}");
        }
    }
}

fn late(segmenter: &mut Segmenter, config: AudioConfig, at: i64) -> Vec<Part> {
    segmenter.push(Input::Config(TrackConfig::Video(h264()))).unwrap();
    let mut parts = Vec::new();
    for (media, dts, key) in frames(20 * S).filter(|own| own.0 == Media::Video || own.1 >= at) {
        if media == Media::Audio {
            // Encoders repeat it.
            segmenter.push(Input::Config(TrackConfig::Audio(config.clone()))).unwrap();
        }
        let data = Bytes::from_static(b"frame");
        segmenter.push(Input::Unit(AccessUnit { media, dts, pts: dts, key, data })).unwrap();
        parts.extend(std::iter::from_fn(|| segmenter.next_part()));
    }
    segmenter.finish();
    parts.extend(std::iter::from_fn(|| segmenter.next_part()));
    parts
}

#[test]
fn announced_sound_that_comes_late_is_silence_until_then() {
    let other = AudioConfig { record: Bytes::from_static(&[0x12, 0x08]), channels: 1, ..aac() };
    for (config, discontinuities) in [(aac(), 0), (other, 1)] {
        let mut segmenter = new();
        segmenter.push(Input::Tracks { video: true, audio: true }).unwrap();
        let parts = late(&mut segmenter, config, 5 * S);
        well_cut(&parts);
        assert_eq!(breaks(&parts), discontinuities);
        assert!(seconds(&parts).iter().all(|own| (1.9..2.1).contains(own)), "{:?}", seconds(&parts));
        assert!(covered(&parts, Media::Audio) > 19.8);
        assert_eq!(segmenter.take_oddities(), [Oddity::Silence]);
    }
}

#[test]
fn sound_that_nobody_announced_begins_with_a_key_frame() {
    let mut segmenter = new();
    segmenter.push(Input::Tracks { video: true, audio: false }).unwrap();
    let parts = late(&mut segmenter, aac(), 5 * S);
    well_cut(&parts);
    assert_eq!((breaks(&parts), segmenter.take_oddities()), (1, vec![Oddity::LateTrack]));
    assert!(seconds(&parts).iter().all(|own| (1.9..2.1).contains(own)), "{:?}", seconds(&parts));
}

#[test]
fn pictures_that_are_announced_are_waited_for() {
    let mut segmenter = new();
    segmenter.push(Input::Tracks { video: true, audio: true }).unwrap();
    segmenter.push(Input::Config(TrackConfig::Audio(aac()))).unwrap();
    let unit = |media, dts| {
        Input::Unit(AccessUnit { media, dts, pts: dts, key: true, data: Bytes::from_static(b"frame") })
    };
    for at in 0..3 * S / AUDIO_FRAME {
        segmenter.push(unit(Media::Audio, at * AUDIO_FRAME)).unwrap();
    }
    assert!(segmenter.next_part().is_none());
    segmenter.push(Input::Config(TrackConfig::Video(h264()))).unwrap();
    segmenter.push(unit(Media::Video, 3 * S)).unwrap();
    segmenter.finish();
    assert_eq!(segmenter.next_part().map(|part| part.tracks.len()), Some(2));
}

/// The codec of the sound changes in the middle of a group of pictures.
#[test]
fn another_configuration_is_in_force_from_the_next_key_frame_on() {
    let mut segmenter = new();
    video_and_audio(&mut segmenter);
    let mut parts = Vec::new();
    for (media, dts, key) in frames(10 * S) {
        if media == Media::Audio && dts > 5 * S {
            let config = AudioConfig {
                name: "mp4a.40.5".to_owned(),
                record: Bytes::from_static(&[0x2B, 0x11, 0x88]),
                ..aac()
            };
            segmenter.push(Input::Config(TrackConfig::Audio(config))).unwrap();
        }
        let data = Bytes::from_static(b"frame");
        segmenter.push(Input::Unit(AccessUnit { media, dts, pts: dts, key, data })).unwrap();
        parts.extend(std::iter::from_fn(|| segmenter.next_part()));
    }
    well_cut(&parts);
    let begins: Vec<_> = parts.iter().filter(|part| part.discontinuity).map(|part| part.start_us).collect();
    assert_eq!(begins, [6_000_000]);
}

/// The camera is off, and no key frame comes any more with which another configuration could begin.
#[test]
fn another_configuration_is_in_force_without_pictures() {
    for at in [8 * S, 5 * S + S / 2] {
        let mut segmenter = new();
        video_and_audio(&mut segmenter);
        let mut parts = Vec::new();
        for (media, dts, key) in frames(20 * S).filter(|own| own.0 == Media::Audio || own.1 < 5 * S) {
            if media == Media::Audio && dts > at {
                let config = AudioConfig { record: Bytes::from_static(&[0x12, 0x08]), channels: 1, ..aac() };
                segmenter.push(Input::Config(TrackConfig::Audio(config))).unwrap();
            }
            let data = Bytes::from_static(b"frame");
            segmenter.push(Input::Unit(AccessUnit { media, dts, pts: dts, key, data })).unwrap();
            parts.extend(std::iter::from_fn(|| segmenter.next_part()));
        }
        segmenter.finish();
        parts.extend(std::iter::from_fn(|| segmenter.next_part()));
        assert!(parts.iter().all(|part| part.duration_us <= 301_000), "parts have their length");
        let begins: Vec<_> =
            parts.iter().filter(|part| part.discontinuity).map(|part| part.start_us).collect();
        let late = begins.iter().all(|begin| *begin < at as u64 * 1_000_000 / S as u64 + 2_000_000);
        assert!(begins.len() == 1 && late, "{begins:?}");
        let heard: u32 = parts.iter().map(|part| part.audio_frames).sum();
        assert!(i64::from(heard) > 18 * S / AUDIO_FRAME, "{heard}");
    }
}

#[test]
fn sound_goes_on_in_parts_of_their_length_while_the_pictures_are_frozen() {
    let mut segmenter = new();
    let is_there =
        |time| !(4 * S + 2 * S / 5..5 * S + 3 * S / 5).contains(&time) && !(11 * S..16 * S).contains(&time);
    let parts = heard(&mut segmenter, frames(20 * S).filter(|own| own.0 == Media::Audio || is_there(own.1)));
    assert!(parts.iter().all(|part| part.duration_us <= 301_000), "parts have their length");
    let first = parts.iter().filter(|part| part.start_us == 5_600_000).map(|part| part.video_frames);
    assert_eq!(first.collect::<Vec<_>>(), [7], "the frame after a long one is as long as others");
    assert!(covered(&parts, Media::Audio) > 19.8);
    assert!(covered(&parts, Media::Video) > 12.9, "the last picture lasts");
    assert!(parts.iter().all(|part| part.video_frames > 0 || !part.independent));
}

/// A player takes no part that is longer than announced, so that the parts behind it are lost for its viewers.
#[test]
fn parts_have_their_length_when_pictures_are_dropped() {
    for has_sound in [true, false] {
        let mut segmenter = new();
        segmenter.push(Input::Tracks { video: true, audio: has_sound }).unwrap();
        segmenter.push(Input::Config(TrackConfig::Video(h264()))).unwrap();
        if has_sound {
            segmenter.push(Input::Config(TrackConfig::Audio(aac()))).unwrap();
        }
        let is_there = |time: i64| time / VIDEO_FRAME % 50 % 9 != 7;
        let all =
            frames(20 * S).filter(|own| if own.0 == Media::Audio { has_sound } else { is_there(own.1) });
        let pictures = (0..20 * S / VIDEO_FRAME).filter(|at| is_there(at * VIDEO_FRAME)).count();
        let parts = pushed(&mut segmenter, all);
        well_cut(&parts);
        assert_eq!(parts.iter().map(|part| part.video_frames as usize).sum::<usize>(), pictures);
        assert_eq!((breaks(&parts), seconds(&parts).len()), (0, 10));
        assert!(covered(&parts, Media::Video) > 19.8);
    }
}

#[test]
fn sound_without_silence_of_its_codec_is_told() {
    let mut segmenter = new();
    let ac3 = AudioConfig { codec: AudioCodec::Ac3, name: "ac-3".to_owned(), ..aac() };
    segmenter.push(Input::Tracks { video: true, audio: true }).unwrap();
    segmenter.push(Input::Config(TrackConfig::Video(h264()))).unwrap();
    segmenter.push(Input::Config(TrackConfig::Audio(ac3))).unwrap();
    let parts = pushed(&mut segmenter, frames(10 * S).filter(|own| own.0 == Media::Video || own.1 < 4 * S));
    assert!(covered(&parts, Media::Audio) < 4.1);
    assert_eq!(segmenter.take_oddities(), [Oddity::NoSound]);
}

#[test]
fn key_frames_that_are_far_apart_are_told() {
    let mut segmenter = new();
    let parts = heard(
        &mut segmenter,
        frames(25 * S).map(|(media, time, key)| (media, time, key && (media == Media::Audio || time == 0))),
    );
    assert_eq!(parts.iter().filter(|part| part.independent).count(), 1);
    assert_eq!(segmenter.take_oddities()[0], Oddity::KeyFrames(10_000));
    assert!(Oddity::KeyFrames(10_480).to_string().starts_with("key frames are 10.4 s apart"));
    for oddity in Oddity::ALL {
        assert!(oddity.to_string().len() > 80 && oddity.name().len() < 12);
    }
}
