//! Encoders whose clocks jump, differ, or have an odd time now and then: viewers go on with pictures and sound.

use bytes::Bytes;
use rblive_media::segmenter::{Part, Segmenter, SegmenterConfig};
use rblive_media::timeline::Timeline;
use rblive_media::unit::{AccessUnit, Input, Media, TICKS_PER_SECOND, TrackConfig};

use crate::live::{AUDIO_FRAME, VIDEO_FRAME, covered, frames, heard, seconds, video_and_audio};

const S: i64 = TICKS_PER_SECOND;

/// The segments of 20 seconds of pictures and sound whose times `stamp` makes of the true ones.
fn played(stamp: impl Fn(Media, i64) -> i64) -> Vec<Part> {
    let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
    heard(&mut segmenter, frames(20 * S).map(|(media, time, key)| (media, stamp(media, time), key)))
}

/// Checks that nothing is missing of 20 seconds, and that segments have two seconds. Returns how many timelines have begun.
fn whole(parts: &[Part]) -> usize {
    let lengths: Vec<f64> = seconds(parts);
    let ends_well = lengths.iter().take(lengths.len() - 1).all(|own| (1.9..2.6).contains(own));
    assert!(ends_well && lengths.len() >= 9, "{lengths:?}");
    let [video, audio]: [u32; 2] =
        [parts.iter().map(|part| part.video_frames).sum(), parts.iter().map(|part| part.audio_frames).sum()];
    assert!(i64::from(video) >= 20 * S / VIDEO_FRAME - 3, "{video} pictures");
    assert!(i64::from(audio) >= 20 * S / AUDIO_FRAME - 3, "{audio} frames of sound");
    assert!(parts.iter().all(|part| part.duration_us <= 450_000), "no part is long");
    parts.iter().filter(|part| part.discontinuity).count()
}

#[test]
fn an_odd_time_now_and_then_costs_nothing() {
    for off in [-9800 * S, 5000 * S, 4 * S, -4 * S] {
        let odd = |media, time| {
            let is_odd = media == Media::Video && time % (2 * S) == 5 * VIDEO_FRAME;
            time + 20_000 * S + if is_odd { off } else { 0 }
        };
        let parts = played(odd);
        assert_eq!(whole(&parts), 0, "{off}");
        assert!(covered(&parts, Media::Video) > 19.8 && covered(&parts, Media::Audio) > 19.8, "{off}");
    }
}

#[test]
fn two_odd_times_one_after_the_other_and_odd_sound_cost_nothing() {
    let parts = played(|media, time| match (media, time % (2 * S) / VIDEO_FRAME) {
        (Media::Video, 7) => time + 900 * S,
        (Media::Video, 8) => time - 900 * S,
        (Media::Audio, 20) => time - 70 * S,
        _ => time + 1000 * S,
    });
    assert_eq!(whole(&parts), 0);
}

#[test]
fn tracks_of_two_clocks_are_placed_beside_each_other() {
    for off in [3 * S, -3 * S, 3600 * S, -900 * S] {
        let parts = played(|media, time| time + 1000 * S + if media == Media::Audio { off } else { 0 });
        assert_eq!(whole(&parts), 0, "{off}");
        assert!(covered(&parts, Media::Audio) > 19.5, "{off}");
    }
}

#[test]
fn a_track_whose_clock_begins_anew_goes_on_beside_the_other() {
    for (moved, by) in
        [(Media::Video, -6 * S), (Media::Audio, -6 * S), (Media::Video, 9 * S), (Media::Audio, 60 * S)]
    {
        let parts = played(|media, time| time + if media == moved && time >= 6 * S { by } else { 0 });
        assert_eq!(whole(&parts), 0, "{moved:?} {by}");
        assert!(covered(&parts, Media::Audio) > 19.5, "{moved:?} {by}");
    }
    // Two clocks from the beginning, of which one begins anew.
    let parts = played(|media, time| match media {
        Media::Audio => time + 3600 * S,
        Media::Video => {
            if time < 6 * S {
                time
            } else {
                time - 6 * S
            }
        }
    });
    assert_eq!(whole(&parts), 0);
}

#[test]
fn an_encoder_whose_clock_jumps_is_one_discontinuity() {
    for by in [-6 * S, 9 * S, 60 * S, 100_000 * S] {
        // In the middle of a group of pictures.
        let parts = played(|_, time| time + if time >= 7 * S { by } else { 0 });
        assert_eq!(whole(&parts), 1, "{by}");
        assert!(covered(&parts, Media::Video) > 19.8 && covered(&parts, Media::Audio) > 19.8, "{by}");
    }
}

/// Sound is laid end to end: what steps back by itself would be late for ever.
#[test]
fn an_encoder_whose_clock_steps_back_a_little_keeps_sound_and_pictures_together() {
    for by in [S / 5, 4 * S / 10, S / 2, S] {
        let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
        let all =
            frames(20 * S).map(|(media, time, key)| (media, time - if time >= 7 * S { by } else { 0 }, key));
        let parts = heard(&mut segmenter, all);
        let [video, audio] = [Media::Video, Media::Audio].map(|media| covered(&parts, media));
        assert!((video - audio).abs() < 0.1, "{by}: pictures until {video}, sound until {audio}");
        assert!(video > 19.8, "nothing is missing");
        assert!(parts.iter().filter(|part| part.discontinuity).count() <= 1);
        assert!(!segmenter.take_oddities().is_empty(), "{by}");
    }
}

/// Some encoders send the time at which a picture is shown where that of its decoding belongs.
#[test]
fn pictures_that_are_out_of_order_are_no_jump() {
    let order = [0, 4, 2, 1, 3];
    let stamp = |media, time: i64| match (media, time / VIDEO_FRAME) {
        (Media::Video, at) if at % 50 >= 10 => (at / 5 * 5 + order[(at % 5) as usize]) * VIDEO_FRAME,
        _ => time,
    };
    let parts = played(stamp);
    assert_eq!(whole(&parts), 0);
    assert!((covered(&parts, Media::Video) - covered(&parts, Media::Audio)).abs() < 0.1);
}

#[test]
fn a_track_that_returns_after_a_minute_has_its_place() {
    let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
    let with_hole =
        frames(90 * S).filter(|(media, time, _)| *media == Media::Video || !(6 * S..70 * S).contains(time));
    let parts = heard(&mut segmenter, with_hole);
    assert_eq!(parts.iter().filter(|part| part.discontinuity).count(), 0);
    assert!(seconds(&parts).iter().rev().skip(1).all(|own| (1.9..2.1).contains(own)));
}

/// Encoders that go on for ever with times at random have no clock, and nothing waits for ever.
#[test]
fn times_at_random_are_taken_as_they_come() {
    let mut random = 1_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 30) as i64
    };
    let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
    let at_random: Vec<_> = frames(20 * S).map(|(media, _, key)| (media, next(), key)).collect();
    let parts = heard(&mut segmenter, at_random.into_iter());
    assert!(parts.iter().map(|part| part.video_frames).sum::<u32>() > 400);
}

/// Of several renditions, each hole and each jump begins with the encoder's times again.
#[test]
fn several_renditions_ignore_odd_times_and_follow_jumps() {
    let shared = Timeline::shared(0, 0);
    let mut all = [1, 2].map(|id| {
        let mut segmenter = Segmenter::with_timeline(SegmenterConfig::default(), shared.rendition(id));
        video_and_audio(&mut segmenter);
        (segmenter, Vec::new())
    });
    for (media, time, key) in frames(20 * S) {
        for (id, (segmenter, parts)) in all.iter_mut().enumerate() {
            let odd =
                if id == 1 && media == Media::Video && time % S == 9 * VIDEO_FRAME { 700 * S } else { 0 };
            let dts = time + odd + if time >= 10 * S { 500 * S } else { 0 };
            let data = Bytes::from_static(b"frame");
            segmenter.push(Input::Unit(AccessUnit { media, dts, pts: dts, key, data })).unwrap();
            while let Some(part) = segmenter.next_part() {
                parts.push(part);
            }
        }
    }
    let begins = |parts: &[Part]| -> Vec<_> {
        let first = parts.iter().filter(|part| part.index == 0);
        first.map(|part| (part.sequence, part.timeline, part.start_us / 1000)).collect()
    };
    let [high, low] = all.map(|(_, parts)| begins(&parts));
    assert_eq!(high, low);
    assert_eq!(high.iter().map(|own| own.1).max(), Some(1), "one discontinuity: {high:?}");
}

#[test]
fn sound_alone_may_jump() {
    let mut segmenter = Segmenter::new(SegmenterConfig::default(), 0);
    segmenter.push(Input::Tracks { video: false, audio: true }).unwrap();
    segmenter.push(Input::Config(TrackConfig::Audio(crate::live::aac()))).unwrap();
    let sound = frames(20 * S).filter(|own| own.0 == Media::Audio);
    let parts = crate::live::pushed(
        &mut segmenter,
        sound.map(|(media, time, key)| (media, time + if time > 7 * S { 90 * S } else { 0 }, key)),
    );
    assert_eq!(parts.iter().filter(|part| part.discontinuity).count(), 1);
    assert!(covered(&parts, Media::Audio) > 19.8);
}
