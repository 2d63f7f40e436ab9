//! Several renditions of one stream: their segments have numbers and times in common, whenever which of them begins or returns.

use bytes::Bytes;
use rblive_media::segmenter::{Part, Segmenter, SegmenterConfig};
use rblive_media::timeline::Timeline;
use rblive_media::unit::{AccessUnit, Input, Media, TICKS_PER_SECOND, TrackConfig, VideoCodec, VideoConfig};

use crate::live::aac;

const FRAME: i64 = TICKS_PER_SECOND / 25;
const FIRST: u64 = 500;

/// A rendition with a key frame in each second.
struct Rendition {
    segmenter: Segmenter,
    parts: Vec<Part>,
    media: Media,
}

impl Rendition {
    fn new(shared: &Timeline, id: u16, media: Media) -> Self {
        let config = SegmenterConfig { part_ms: 500, ..SegmenterConfig::default() };
        let segmenter = Segmenter::with_timeline(config, shared.rendition(id));
        let mut new = Self { segmenter, parts: Vec::new(), media };
        new.configure();
        new
    }

    fn configure(&mut self) {
        let video = TrackConfig::Video(VideoConfig {
            codec: VideoCodec::H264,
            record: Bytes::from_static(b"record"),
            name: "avc1.64001f".to_owned(),
            width: 160,
            height: 90,
            frames_per_1000_s: 25_000,
        });
        let audio = TrackConfig::Audio(aac());
        let is_video = self.media == Media::Video;
        self.push(Input::Tracks { video: is_video, audio: !is_video });
        self.push(Input::Config(if is_video { video } else { audio }));
    }

    fn push(&mut self, input: Input) {
        self.segmenter.push(input).unwrap();
        while let Some(part) = self.segmenter.next_part() {
            self.parts.push(part);
        }
    }

    /// Pushes the frames of these seconds of the encoder's clock, which is ahead by `ahead` ticks.
    fn seconds(&mut self, seconds: std::ops::Range<i64>, ahead: i64) {
        let step = if self.media == Media::Video { FRAME } else { 1920 };
        let mut time = (seconds.start * TICKS_PER_SECOND + step - 1) / step * step;
        while time < seconds.end * TICKS_PER_SECOND {
            let key = self.media == Media::Audio || time % TICKS_PER_SECOND == 0;
            let data = Bytes::from_static(b"frame");
            self.push(Input::Unit(AccessUnit {
                media: self.media,
                dts: time + ahead,
                pts: time + ahead,
                key,
                data,
            }));
            time += step;
        }
    }

    fn finish(&mut self) {
        self.segmenter.finish();
        while let Some(part) = self.segmenter.next_part() {
            self.parts.push(part);
        }
    }

    /// The numbers of segments, and where they begin, in milliseconds.
    fn segments(&self) -> Vec<(u64, u64)> {
        let first = self.parts.iter().filter(|part| part.index == 0);
        first.map(|part| (part.sequence - FIRST, part.start_us / 1000)).collect()
    }

    /// The timelines of segments, and the segments with which one begins.
    fn timelines(&self) -> (Vec<u64>, Vec<u64>) {
        let first = || self.parts.iter().filter(|part| part.index == 0);
        let begins = self.parts.iter().filter(|part| part.discontinuity).map(|part| part.sequence - FIRST);
        (first().map(|part| part.timeline).collect(), begins.collect())
    }
}

#[test]
fn a_rendition_that_comes_later_joins_a_segment_of_the_others() {
    let shared = Timeline::shared(FIRST, 1);
    let (mut high, mut low) =
        (Rendition::new(&shared, 1, Media::Video), Rendition::new(&shared, 2, Media::Video));
    high.seconds(100..103, 0);
    // Its first key frame is in the middle of a segment of the other.
    low.seconds(103..107, 0);
    high.seconds(103..109, 0);
    low.seconds(107..109, 0);
    high.finish();
    low.finish();
    assert_eq!(high.segments(), [(0, 0), (1, 2000), (2, 4000), (3, 6000), (4, 8000)]);
    assert_eq!(low.segments(), [(2, 4000), (3, 6000), (4, 8000)]);
    assert_eq!((high.timelines(), low.timelines()), ((vec![1; 5], vec![]), (vec![1; 3], vec![])));
    assert!(!shared.is_uneven());
}

#[test]
fn a_rendition_that_was_away_leaves_a_hole_and_begins_no_timeline() {
    let shared = Timeline::shared(FIRST, 1);
    let (mut high, mut low) =
        (Rendition::new(&shared, 1, Media::Video), Rendition::new(&shared, 2, Media::Video));
    for from in [0, 2] {
        high.seconds(from..from + 2, 7);
        low.seconds(from..from + 2, 7);
    }
    low.finish();
    high.seconds(4..10, 7);
    low.configure();
    low.seconds(9..12, 7);
    high.seconds(10..12, 7);
    high.finish();
    low.finish();
    assert_eq!(low.segments(), [(0, 0), (1, 2000), (5, 10_000)]);
    assert_eq!(high.segments().last(), Some(&(5, 10_000)));
    assert_eq!((high.timelines(), low.timelines()), ((vec![1; 6], vec![]), (vec![1; 3], vec![])));
}

#[test]
fn a_rendition_that_pauses_leaves_a_hole() {
    let shared = Timeline::shared(FIRST, 1);
    let (mut high, mut low) =
        (Rendition::new(&shared, 1, Media::Video), Rendition::new(&shared, 2, Media::Video));
    high.seconds(0..10, 0);
    low.seconds(0..3, 0);
    low.seconds(7..10, 0);
    low.finish();
    assert_eq!(low.segments(), [(0, 0), (1, 2000), (4, 8000)]);
    assert!(low.parts.iter().all(|part| part.duration_us < 600_000), "no frame lasts for the hole");
}

#[test]
fn an_encoder_that_starts_over_begins_a_timeline_in_all_renditions_at_once() {
    let shared = Timeline::shared(FIRST, 1);
    let (mut high, mut low) =
        (Rendition::new(&shared, 1, Media::Video), Rendition::new(&shared, 2, Media::Video));
    high.seconds(0..5, 0);
    low.seconds(0..5, 0);
    for rendition in [&mut high, &mut low] {
        rendition.finish();
        rendition.configure();
    }
    high.seconds(0..4, 0);
    low.seconds(0..4, 0);
    high.finish();
    low.finish();
    assert_eq!(high.segments(), [(0, 0), (1, 2000), (2, 4000), (3, 5000), (4, 7000)]);
    assert_eq!(low.segments(), high.segments());
    assert_eq!(high.timelines(), (vec![1, 1, 1, 2, 2], vec![3]));
    assert_eq!(low.timelines(), high.timelines());
}

#[test]
fn sound_alone_follows_the_pictures() {
    let shared = Timeline::shared(FIRST, 1);
    let (mut video, mut audio) =
        (Rendition::new(&shared, 1, Media::Video), Rendition::new(&shared, 2, Media::Audio));
    for second in 0..200 {
        // Either may be ahead.
        let (first, then) = if second % 3 == 0 { (&mut audio, &mut video) } else { (&mut video, &mut audio) };
        first.seconds(second..second + 1, 0);
        then.seconds(second..second + 1, 0);
    }
    video.finish();
    audio.finish();
    let (video, audio) = (video.segments(), audio.segments());
    assert_eq!((video.len(), audio.len()), (100, 100));
    for (own, other) in video.iter().zip(&audio) {
        assert!(own.0 == other.0 && own.1.abs_diff(other.1) < 100, "{own:?} and {other:?}");
    }
    assert!(!shared.is_uneven());
}

#[test]
fn renditions_with_other_key_frames_are_taken_and_noticed() {
    let shared = Timeline::shared(FIRST, 1);
    let (mut high, mut low) =
        (Rendition::new(&shared, 1, Media::Video), Rendition::new(&shared, 2, Media::Video));
    for second in 0..20 {
        high.seconds(second..second + 1, 0);
        // Half a second later.
        low.seconds(second..second + 1, TICKS_PER_SECOND / 2);
    }
    high.finish();
    low.finish();
    assert!(low.segments().len() >= 6, "{:?}", low.segments());
    assert!(shared.is_uneven() && !shared.is_uneven(), "told once");
}

/// Segments with one number cover the same time at 25 and 50 pictures in a second, also where they are cut between key frames.
#[test]
fn renditions_of_other_frame_rates_are_cut_at_the_same_times() {
    for keys in [&[0, 2000, 12_000][..], &[0, 2000, 6800], &[0, 2000, 4480, 6960], &[0, 2000, 14_120]] {
        for order in 0..3 {
            let shared = Timeline::shared(FIRST, 1);
            let mut both = [1, 2].map(|id| Rendition::new(&shared, id, Media::Video));
            let last = keys[keys.len() - 1];
            let apart = last - keys[keys.len() - 2];
            let is_key = |ms: i64| keys.contains(&ms) || ms > last && (ms - last) % apart == 0;
            for at in 0..(120_000 / 40) {
                let ranks = if (at + order) % (order + 1) == 0 { [0, 1] } else { [1, 0] };
                for own in ranks {
                    for ms in if own == 0 { vec![at * 40] } else { vec![at * 40, at * 40 + 20] } {
                        let (dts, key) = (ms * 90, is_key(ms));
                        let unit =
                            AccessUnit { media: Media::Video, dts, pts: dts, key, data: "frame".into() };
                        both[own].push(Input::Unit(unit));
                    }
                }
            }
            let [slow, fast] = both.map(|mut own| {
                own.finish();
                own.segments()
            });
            assert!(!shared.is_uneven(), "{keys:?}, {order}: {slow:?} {fast:?}");
            assert_eq!(slow.len(), fast.len());
            for (own, other) in slow.iter().zip(&fast) {
                assert!(own.0 == other.0 && own.1.abs_diff(other.1) <= 200, "{own:?} and {other:?}");
            }
        }
    }
}

/// Sound alone may be cut before a key frame that comes late, but the pictures are cut at their key frames.
#[test]
fn sound_alone_cuts_no_pictures() {
    for apart in [51, 55, 60] {
        let shared = Timeline::shared(FIRST, 1);
        let (mut video, mut audio) =
            (Rendition::new(&shared, 1, Media::Video), Rendition::new(&shared, 2, Media::Audio));
        for at in 0..120 * 50 {
            let dts = at * FRAME / 2;
            let unit = |media, dts, key| AccessUnit { media, dts, pts: dts, key, data: "frame".into() };
            video.push(Input::Unit(unit(Media::Video, dts, at % (2 * apart) == 0)));
            for dts in (dts..dts + FRAME / 2).filter(|dts| dts % 1920 == 0) {
                audio.push(Input::Unit(unit(Media::Audio, dts, true)));
            }
        }
        let first = video.parts.iter().filter(|part| part.index == 0);
        let all: Vec<_> = first.map(|part| part.independent).collect();
        // The first distance is not known before it is over.
        assert!(all.iter().filter(|own| !**own).count() <= 1 && all.len() > 40, "{apart}: {all:?}");
    }
}

#[test]
fn parts_that_one_stream_did_not_take_do_not_reach_another() {
    let mut rendition = Rendition::new(&Timeline::shared(FIRST, 0), 1, Media::Video);
    rendition.seconds(0..3, 0);
    rendition.segmenter.end_timeline();
    rendition.segmenter.move_to(Timeline::shared(2 * FIRST, 0).rendition(1));
    rendition.parts.clear();
    rendition.seconds(3..6, 0);
    assert_eq!(rendition.parts.first().map(|part| part.numbers().sequence), Some(2 * FIRST));
}
