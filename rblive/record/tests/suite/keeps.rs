//! Everything that was written is kept, byte for byte, and what was overtaken is a gap.

use std::sync::atomic::Ordering::Relaxed;

use rblive::content::{Container, Flags, Header, Kind};
use rblive_record::{File, Place, RecordRule};

use crate::lab::{Lab, Written, folder, media, playlist, rule, segment};

#[test]
fn every_byte_is_kept_of_two_renditions() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    let written = Written { renditions: 2, ..Written::new(&lab, "live/cam") };
    written.segments(0..5, 3000);
    let abouts = lab.store().list(None, 10);
    assert_eq!((abouts.len(), abouts[0].segments, abouts[0].gaps), (1, 5, 0));
    assert!((abouts[0].seconds - 5.0).abs() < 1e-9 && abouts[0].bytes == 2 * (5 * 3000 + 2), "{abouts:?}");
    let folder = folder(root.path(), &abouts[0]);
    let index = std::fs::read_to_string(folder.join("index.m3u8")).unwrap();
    assert!(index.contains("\n1/media.m3u8\n") && index.contains("\n2/media.m3u8\n"), "{index}");
    for rendition in 1..=2 {
        let own = folder.join(rendition.to_string());
        let (files, text) = playlist(&own);
        assert_eq!(files, ["0.m4s", "1.m4s", "2.m4s", "3.m4s", "4.m4s"]);
        assert!(!text.contains("DISCONTINUITY") && text.matches("EXT-X-MAP").count() == 1, "{text}");
        for (number, file) in (0..).zip(&files) {
            assert_eq!(std::fs::read(own.join(file)).unwrap(), segment(rendition, number, 3000));
        }
    }
    let place = |file| Place { stream: "live/cam".into(), begin: abouts[0].begin.clone(), file };
    assert!(lab.store().open(&place(File::Segment(2, 4, rblive_media::rendition::Container::Cmaf))).is_ok());
    assert!(lab.store().open(&place(File::Segment(2, 5, rblive_media::rendition::Container::Cmaf))).is_err());
    // A link is not followed, wherever it leads.
    std::fs::remove_file(folder.join("1/3.m4s")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("1/3.m4s")).unwrap();
    assert!(lab.store().open(&place(File::Segment(1, 3, rblive_media::rendition::Container::Cmaf))).is_err());
}

/// Whatever the umask: the user of the node alone reads streams, which viewers may need tokens for.
#[test]
fn recordings_are_for_their_user() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("kept");
    let lab = Lab::new(rule(&root));
    Written::new(&lab, "live/a").segments(0..2, 1000);
    let files = testkit::files_for_their_user(&root);
    assert!(files > 4, "segments, playlists and the description: {files}");
}

#[test]
fn only_the_streams_of_a_rule_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(RecordRule { streams: "live/*".into(), ..rule(root.path()) });
    let other = Written::new(&lab, "test/a");
    other.describe();
    other.part(1, 0, 0, 100);
    other.part(1, 0, 1, 100);
    Written::new(&lab, "live/a").segments(0..2, 1000);
    let abouts = lab.store().list(None, 10);
    assert_eq!(abouts.iter().map(|about| about.name.as_str()).collect::<Vec<_>>(), ["live/a"]);
    assert!(lab.store().list(Some("test/a"), 10).is_empty());
}

#[test]
fn transport_streams_are_kept_as_they_are() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    let written = Written { container: Container::Ts, part_target_us: None, ..Written::new(&lab, "a") };
    for sequence in 0..3 {
        written.describe();
        let header = Header {
            flags: Flags::INDEPENDENT | Flags::FIRST_PART | Flags::LAST_PART,
            rendition: 1,
            sequence,
            duration_us: 1_000_000,
            start_us: sequence * 1_000_000,
            ..Header::new(Kind::Media)
        };
        written.write(header, &media(1, sequence, 0, 1880));
        lab.until("the segment is kept", |counters| counters.segments.load(Relaxed) == sequence + 1);
    }
    let folder = folder(root.path(), &lab.store().list(None, 1)[0]).join("1");
    let (files, text) = playlist(&folder);
    assert_eq!(files, ["0.ts", "1.ts", "2.ts"]);
    assert!(!text.contains("EXT-X-MAP") && text.contains("EXT-X-VERSION:3"), "{text}");
    assert_eq!(std::fs::read(folder.join("2.ts")).unwrap(), media(1, 2, 0, 1880));
}

/// The ingesting node splits files that are larger than a chunk.
#[test]
fn transport_streams_of_several_chunks_a_segment_are_kept_whole() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    let part_target_us = Some(1_000_000);
    let written = Written { container: Container::Ts, part_target_us, ..Written::new(&lab, "a") };
    written.segments(0..3, 3000);
    let folder = folder(root.path(), &lab.store().list(None, 1)[0]).join("1");
    assert_eq!(playlist(&folder).0, ["0.ts", "1.ts", "2.ts"]);
    for number in 0..3 {
        assert_eq!(std::fs::read(folder.join(format!("{number}.ts"))).unwrap(), segment(1, number, 3000));
    }
}

#[test]
fn lost_parts_and_lost_segments_are_gaps() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    let written = Written::new(&lab, "a");
    written.segments(0..2, 1000);
    // Of segment 2 the second part is lost, of segment 3 all.
    written.describe();
    written.part(1, 2, 0, 500);
    written.segments(4..6, 1000);
    lab.until("both are gaps, and the others are kept", |counters| {
        (counters.gaps.load(Relaxed), counters.segments.load(Relaxed)) == (2, 4)
    });
    let folder = folder(root.path(), &lab.store().list(None, 1)[0]).join("1");
    let (files, text) = playlist(&folder);
    assert_eq!(files, ["0.m4s", "1.m4s", "2.m4s", "3.m4s", "4.m4s", "5.m4s"]);
    assert_eq!(text.matches("#EXT-X-GAP\n").count(), 2);
    assert!(
        text.contains("#EXT-X-VERSION:8\n") && text.contains("#EXT-X-GAP\n#EXTINF:1.000000,\n3.m4s\n"),
        "{text}"
    );
    assert_eq!(std::fs::read(folder.join("5.m4s")).unwrap(), segment(1, 5, 1000));
}

#[test]
fn an_overtaken_recorder_has_gaps_and_no_mixed_bytes() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    let written = Written::new(&lab, "a");
    written.segments(0..1, 40_000);
    // Faster than the recorder, sooner or later: the ring has eight chunks.
    let until = std::time::Instant::now() + crate::lab::WAIT;
    let mut count = 1;
    while lab.recorder.counters().overtaken.load(Relaxed) == 0 {
        assert!(
            std::time::Instant::now() < until,
            "the recorder is overtaken: {:?}",
            lab.recorder.counters()
        );
        (count..count + 2000).for_each(|number| written.segment(number, 60_000));
        count += 2000;
        lab.until("everything was looked at", |counters| counters.waiting.load(Relaxed) == 0);
    }
    written.segment(count, 1000);
    let last = |text: &str| text.lines().rev().nth(1).map(|file| file.to_owned());
    loop {
        let about = lab.store().list(None, 1).remove(0);
        let folder = folder(root.path(), &about).join("1");
        let (files, text) = playlist(&folder);
        let newest = last(&text).unwrap();
        let bytes = std::fs::read(folder.join(&newest)).unwrap_or_default();
        if bytes == segment(1, count, 1000) {
            let mut wrong = Vec::new();
            let mut whole = 0;
            for file in &files[..files.len() - 1] {
                let Ok(bytes) = std::fs::read(folder.join(file)) else { continue };
                let found = (0..count).find(|number| {
                    let size = if *number == 0 { 40_000 } else { 60_000 };
                    bytes.len() == size
                        && bytes[..64] == media(1, *number, 0, 64)
                        && bytes == segment(1, *number, size)
                });
                whole += 1;
                wrong.extend(found.is_none().then(|| file.clone()));
            }
            assert!(whole > 0 && wrong.is_empty(), "mixed bytes: {wrong:?}");
            return;
        }
        assert!(std::time::Instant::now() < until, "the recorder catches up: {newest}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
