//! Streams with several renditions: one recording, whose renditions have segments with the same numbers and times.

use std::path::{Path, PathBuf};

use rblive::content::{Header, Kind};
use rblive_record::RecordRule;

use crate::lab::{Lab, Written, folder, kept, playlist, rule, segment};

/// The folder of the only recording.
fn only(lab: &Lab, root: &Path) -> PathBuf {
    let abouts = lab.store().list(None, 10);
    assert_eq!(abouts.len(), 1, "{abouts:?}");
    folder(root, &abouts[0])
}

/// Dates, durations and discontinuities, in order: of all renditions the same. Returns the numbers of the gaps of each.
fn gaps(recording: &Path, renditions: u16) -> Vec<Vec<usize>> {
    let mut common: Option<Vec<String>> = None;
    let index = std::fs::read_to_string(recording.join("index.m3u8")).unwrap();
    assert_eq!(index.matches("#EXT-X-STREAM-INF:").count(), usize::from(renditions), "{index}");
    let of = |rendition: u16| {
        let (files, text) = playlist(&recording.join(rendition.to_string()));
        let is_common = |line: &&str| line.starts_with("#EXTINF") || *line == "#EXT-X-DISCONTINUITY";
        let own: Vec<_> = text.lines().filter(is_common).map(str::to_owned).collect();
        let wanted = common.get_or_insert_with(|| own.clone());
        assert_eq!(own, *wanted, "{text}");
        let is_there = |file: &String| recording.join(rendition.to_string()).join(file).is_file();
        (0..).zip(&files).filter(|(_, file)| !is_there(file)).map(|(number, _)| number).collect()
    };
    (1..=renditions).map(of).collect()
}

#[test]
fn a_rendition_that_leaves_and_returns_has_gaps_meanwhile() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    let two = Written { renditions: 2, ..Written::new(&lab, "live/cam") };
    two.segments(10..13, 1000);
    let one = Written { absent: 2, ..two };
    one.segments(13..25, 1000);
    let recording = only(&lab, root.path());
    let (meanwhile, _) = playlist(&recording.join("2"));
    assert_eq!(meanwhile.len(), 7, "the newest eight may still come");
    Written { absent: 0, ..one }.segments(25..27, 1000);
    assert_eq!(gaps(&recording, 2), [vec![], (3..15).collect()]);
    let about = lab.store().list(None, 1).remove(0);
    assert_eq!((about.segments, about.gaps, about.renditions.len()), (17, 0, 2));
    assert_eq!(std::fs::read(recording.join("2/16.m4s")).unwrap(), segment(2, 26, 1000));
    let (_, text) = playlist(&recording.join("2"));
    assert_eq!(text.matches("#EXT-X-PROGRAM-DATE-TIME").count(), 2, "a date after the gaps: {text}");
}

#[test]
fn a_rendition_that_joins_late_has_gaps_before() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    let one = Written { renditions: 2, absent: 1, ..Written::new(&lab, "a") };
    one.segments(0..4, 1000);
    Written { absent: 0, ..one }.segments(4..6, 1000);
    let recording = only(&lab, root.path());
    assert_eq!(gaps(&recording, 2), [vec![0, 1, 2, 3], vec![]]);
    let (_, text) = playlist(&recording.join("1"));
    let (before, after) = text.split_once("#EXT-X-MAP").unwrap();
    assert_eq!((before.matches("#EXT-X-GAP\n").count(), after.matches("#EXTINF").count()), (4, 2), "{text}");
}

#[test]
fn after_returns_all_renditions_have_the_discontinuity_at_one_place() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    let written = Written { renditions: 2, ..Written::new(&lab, "a") };
    written.segments(0..2, 1000);
    lab.stop();
    // The node and its recorder return; a rendition does so later than the other.
    let lab = Lab::new(rule(root.path()));
    let one = Written { renditions: 2, absent: 1, ..Written::new(&lab, "a") };
    one.segments(70..72, 1000);
    let recording = only(&lab, root.path());
    let index = std::fs::read_to_string(recording.join("index.m3u8")).unwrap();
    assert!(
        index.contains("\n1/media.m3u8\n"),
        "the rendition of the process before is still there: {index}"
    );
    let both = Written { absent: 0, ..one };
    both.segments(72..74, 1000);
    assert_eq!(gaps(&recording, 2), [vec![2, 3], vec![]]);
    let (_, text) = playlist(&recording.join("1"));
    assert_eq!(text.matches("#EXT-X-DISCONTINUITY\n").count(), 1, "{text}");
    // A rendition is ahead of the other when the source is replaced: a segment here, none there.
    let before = kept(lab.recorder.counters());
    both.part(1, 74, 0, 500);
    both.part(1, 74, 1, 500);
    both.write(Header::new(Kind::End), b"");
    lab.rs.destroy_stream(both.id).unwrap();
    Written { renditions: 2, ..Written::new(&lab, "a") }.segments(0..2, 1000);
    lab.until("both segments of both renditions are kept too", |counters| kept(counters) >= before + 5);
    assert_eq!(gaps(&recording, 2), [vec![2, 3], vec![6]]);
}

/// The next recording has begun in one rendition while the other has still to write a whole segment of the one before.
#[test]
fn a_rendition_that_is_behind_when_the_next_recording_begins_loses_nothing() {
    use std::sync::atomic::Ordering::Relaxed;
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(RecordRule { longest_ms: 4000, ..rule(root.path()) });
    let written = Written { renditions: 2, ..Written::new(&lab, "a") };
    written.segments(10..12, 1000);
    for (rendition, numbers) in [(1, 12..16), (2, 12..16)] {
        for number in numbers {
            let before = lab.recorder.counters().segments.load(Relaxed);
            written.part(rendition, number, 0, 500);
            written.part(rendition, number, 1, 500);
            lab.until("the segment is kept", |counters| counters.segments.load(Relaxed) == before + 1);
        }
    }
    written.segments(16..17, 1000);
    let abouts = lab.store().list(None, 10);
    let kept: Vec<_> = abouts.iter().rev().map(|own| (own.segments, own.gaps)).collect();
    assert_eq!(kept, [(4, 0), (3, 0)]);
    for about in &abouts {
        assert_eq!(gaps(&folder(root.path(), about), 2), [vec![], vec![]] as [Vec<usize>; 2]);
    }
}

#[test]
fn limits_count_and_remove_all_renditions_together() {
    let root = tempfile::tempdir().unwrap();
    // An eighth of it is one recording: 128 KiB, of which each second takes 20 kB in both renditions.
    let lab = Lab::new(RecordRule { max_stream_bytes: 1 << 20, ..rule(root.path()) });
    let written = Written { renditions: 2, ..Written::new(&lab, "a") };
    written.segments(0..70, 10_000);
    let abouts = lab.store().list(None, 100);
    assert!((7..=9).contains(&abouts.len()), "the oldest have made room: {}", abouts.len());
    for about in &abouts {
        let recording = folder(root.path(), about);
        assert_eq!(gaps(&recording, 2), [vec![], vec![]] as [Vec<usize>; 2]);
        assert!(about.segments <= 7 && about.bytes <= 150_000, "{about:?}");
    }
    let total: u64 = abouts.iter().map(|about| about.bytes).sum();
    assert!(total <= (1 << 20) + 20_000, "{total}");
}
