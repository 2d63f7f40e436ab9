//! An independent parser reads what was written.

use m3u8_rs::{MasterPlaylist, MediaPlaylist as Parsed, parse_master_playlist_res, parse_media_playlist_res};
use rblive_media::hls::{Measured, MediaPlaylist, Report, multivariant_playlist};
use rblive_media::rendition::{Audio, Container, Rendition, Video};
use rblive_media::window::{LiveWindow, NewPart};

use super::rules::check;
use super::windows::playlist;

pub fn part(sequence: u64, index: u32, discontinuity: bool) -> NewPart<()> {
    NewPart {
        sequence,
        index,
        start_us: sequence * 2_000_000 + u64::from(index) * 500_000,
        duration_us: 500_000,
        produced_ns: 1_760_000_000_000_000_000 + sequence * 2_000_000_000 + u64::from(index) * 500_000_000,
        independent: index == 0,
        discontinuity,
        timeline: None,
        last: index == 3,
        bytes: 10,
        init: 9,
        data: (),
    }
}

pub fn window(from: u64, segments: u64) -> LiveWindow<()> {
    let mut window = LiveWindow::new(2_000_000, 500_000);
    for sequence in from..from + segments {
        for index in 0..4 {
            window.push(part(sequence, index, sequence == from + 2 && index == 0));
        }
    }
    window.push(part(from + segments, 0, false));
    window
}

#[test]
fn media_playlists() {
    for (container, extension) in [(Container::Cmaf, "m4s"), (Container::Ts, "ts")] {
        for low_latency in [false, true] {
            let text = MediaPlaylist { container, ..playlist(low_latency) }.write(&window(100, 5));
            let parsed: Parsed = parse_media_playlist_res(text.as_bytes()).expect("a playlist");
            assert_eq!((parsed.media_sequence, parsed.target_duration, parsed.end_list), (100, 2, false));
            assert_eq!(parsed.segments.len(), 5);
            for (number, segment) in (100..).zip(&parsed.segments) {
                assert_eq!(segment.uri, format!("{number}.{extension}"));
                assert!((segment.duration - 2.0).abs() < 1e-6);
                assert_eq!(segment.discontinuity, number == 102);
                let date = segment.program_date_time.expect("a date").timestamp_millis();
                assert_eq!(date, 1_760_000_000_000 + (number - 100) * 2_000 + 200_000 - 500);
            }
            let map = parsed.segments[0].map.as_ref().map(|map| map.uri.as_str());
            assert_eq!(map, (container == Container::Cmaf).then_some("init-9.mp4"));
        }
    }
}

#[test]
fn low_latency_has_the_open_segment_reports_and_tokens() {
    let reports = [Report { uri: "../2/media.m3u8".into(), number: 105, part: 0 }];
    let text =
        MediaPlaylist { query: "?token=a.b", reports: &reports, ..playlist(true) }.write(&window(100, 5));
    for line in [
        "#EXT-X-PART:DURATION=0.500000,URI=\"105.0.m4s?token=a.b\",INDEPENDENT=YES",
        "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"105.1.m4s?token=a.b\"",
        "#EXT-X-RENDITION-REPORT:URI=\"../2/media.m3u8?token=a.b\",LAST-MSN=105,LAST-PART=0",
        "#EXT-X-MAP:URI=\"init-9.mp4?token=a.b\"",
        "104.m4s?token=a.b",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}\n{text}");
    }
}

#[test]
fn a_delta_playlist_skips_six_durations_before_the_end() {
    let long = window(1, 20);
    let text = MediaPlaylist { skip: true, ..playlist(true) }.write(&long);
    assert_eq!(check(&text).skipped, 14);
    assert!(!text.contains("EXT-X-MAP"), "the skipped segments have the same map");
}

#[test]
fn an_ended_stream_says_so() {
    let mut ended = window(1, 3);
    ended.end();
    let text = playlist(true).write(&ended);
    assert!(text.ends_with("#EXT-X-ENDLIST\n") && !text.contains("PRELOAD-HINT"));
    assert_eq!(parse_media_playlist_res(text.as_bytes()).unwrap().segments.len(), 4);
}

pub fn renditions() -> Vec<Measured> {
    let video = |id, bandwidth, height| {
        let video = Some(Video { width: height * 16 / 9, height, frames_per_1000_s: 29_970 });
        let own = Rendition { id, codecs: "avc1.64001f".into(), bandwidth, video, audio: None };
        (own, Some(bandwidth / 2))
    };
    let audio = Some(Audio { sample_rate: 48_000, channels: 2, language: String::new() });
    let sound = Rendition { id: 3, codecs: "mp4a.40.2".into(), bandwidth: 128_000, video: None, audio };
    vec![video(1, 4_000_000, 1080), video(2, 1_000_000, 360), (sound, Some(96_000))]
}

#[test]
fn multivariant_playlists() {
    let text = multivariant_playlist(&renditions(), "?token=x");
    let parsed: MasterPlaylist = parse_master_playlist_res(text.as_bytes()).expect("a playlist");
    let [high, low] = parsed.variants.as_slice() else { panic!("two variants: {text}") };
    assert_eq!((high.uri.as_str(), low.uri.as_str()), ("1/media.m3u8?token=x", "2/media.m3u8?token=x"));
    assert_eq!((high.bandwidth, low.bandwidth), (4_128_000, 1_128_000));
    assert_eq!((high.average_bandwidth, low.average_bandwidth), (Some(2_096_000), Some(596_000)));
    assert_eq!(high.codecs.as_deref(), Some("avc1.64001f,mp4a.40.2"));
    assert_eq!(high.resolution.map(|size| (size.width, size.height)), Some((1920, 1080)));
    assert_eq!((high.frame_rate, high.audio.as_deref()), (Some(29.97), Some("sound")));
    let [sound] = parsed.alternatives.as_slice() else { panic!("one alternative: {text}") };
    assert_eq!((sound.group_id.as_str(), sound.uri.as_deref()), ("sound", Some("3/media.m3u8?token=x")));
    let only_sound = multivariant_playlist(&renditions()[2..], "");
    let parsed = parse_master_playlist_res(only_sound.as_bytes()).unwrap();
    assert_eq!((parsed.variants.len(), parsed.alternatives.len()), (1, 0));
}
