//! Streams, recorders and publishers that return.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rblive_record::{RecordRule, Recorder};

use crate::lab::{Lab, Written, folder, kept, media, playlist, rule, segment};

#[test]
fn a_recorder_that_returns_continues_the_recording() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    let written = Written::new(&lab, "a");
    written.segments(0..3, 1000);
    // The open segment has one part, and is left out.
    written.part(1, 3, 0, 500);
    lab.until("all was written", |counters| counters.waiting.load(Relaxed) == 0);
    lab.stop();
    let lab = Lab::new(rule(root.path()));
    Written::new(&lab, "a").segments(50..52, 1000);
    let abouts = lab.store().list(None, 10);
    assert_eq!(abouts.len(), 1);
    let folder = folder(root.path(), &abouts[0]).join("1");
    let (files, text) = playlist(&folder);
    assert_eq!(text.matches("#EXT-X-DISCONTINUITY\n").count(), 1, "{text}");
    let after = text.split_once("#EXT-X-DISCONTINUITY\n").unwrap().1;
    assert!(after.starts_with("#EXT-X-PROGRAM-DATE-TIME:"), "{text}");
    assert_eq!((after.matches("#EXTINF").count(), files.len()), (2, 5));
    assert_eq!(std::fs::read(folder.join(&files[2])).unwrap(), segment(1, 2, 1000));
    assert_eq!(std::fs::read(folder.join(files.last().unwrap())).unwrap(), segment(1, 51, 1000));
    assert_eq!(
        abouts[0].bytes,
        std::fs::read_dir(&folder)
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name() != "media.m3u8")
            .map(|entry| entry.metadata().unwrap().len())
            .sum::<u64>()
    );
}

#[test]
fn a_stream_that_returns_late_has_another_recording() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(RecordRule { rejoin_ms: 0, ..rule(root.path()) });
    let written = Written::new(&lab, "a");
    written.segments(0..2, 1000);
    written.end();
    lab.until("the recording has ended", |counters| counters.streams.load(Relaxed) == 0);
    Written::new(&lab, "a").segments(0..3, 1000);
    let abouts = lab.store().list(Some("a"), 10);
    assert_eq!(abouts.iter().map(|about| about.segments).collect::<Vec<_>>(), [3, 2], "the newest is first");
}

#[test]
fn an_encoder_that_returns_soon_continues_the_recording() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    let written = Written::new(&lab, "a");
    written.segments(0..2, 1000);
    written.end();
    // Another stream of the same name: the encoder's node was restarted.
    Written::new(&lab, "a").segments(0..2, 1000);
    let abouts = lab.store().list(None, 10);
    assert_eq!((abouts.len(), abouts[0].segments), (1, 4));
    let (_, text) = playlist(&folder(root.path(), &abouts[0]).join("1"));
    assert_eq!(text.matches("#EXT-X-DISCONTINUITY\n").count(), 1, "{text}");
}

#[test]
fn a_long_recording_is_followed_by_another_one() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(RecordRule { longest_ms: 3000, ..rule(root.path()) });
    let written = Written { renditions: 2, ..Written::new(&lab, "a") };
    written.segments(0..8, 1000);
    let mut abouts = lab.store().list(None, 10);
    abouts.reverse();
    assert_eq!(abouts.iter().map(|about| about.segments).collect::<Vec<_>>(), [3, 3, 2]);
    let mut number = 0;
    for about in &abouts {
        for rendition in 1..=2 {
            let own = folder(root.path(), about).join(rendition.to_string());
            let (files, text) = playlist(&own);
            assert!(!text.contains("DISCONTINUITY"), "{text}");
            for (sequence, file) in (number..).zip(&files) {
                assert_eq!(std::fs::read(own.join(file)).unwrap(), segment(rendition, sequence, 1000));
            }
        }
        number += about.segments;
    }
}

#[test]
fn a_folder_has_one_recorder() {
    let root = tempfile::tempdir().unwrap();
    let first = Recorder::start(vec![rule(root.path())]).unwrap();
    let error = Recorder::start(vec![rule(root.path())]).unwrap_err().to_string();
    assert!(error.contains("another process"), "{error}");
    drop(first);
    assert!(Recorder::start(vec![rule(root.path())]).is_ok());
}

#[test]
fn what_is_left_of_a_removed_recording_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let half = root.path().join("a/20200101T000000Z/1");
    std::fs::create_dir_all(&half).unwrap();
    std::fs::write(half.join("0.m4s"), b"x").unwrap();
    let foreign = root.path().join("a/notes");
    std::fs::create_dir_all(&foreign).unwrap();
    drop(Recorder::start(vec![rule(root.path())]).unwrap());
    assert!(!half.exists() && foreign.exists());
}

#[test]
fn a_damaged_recording_is_left_alone_and_another_one_begins() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    Written::new(&lab, "a").segments(0..2, 1000);
    lab.stop();
    let lab = Lab::new(rule(root.path()));
    let first = lab.store().list(None, 1).remove(0);
    let list = folder(root.path(), &first).join("1/media.m3u8");
    std::fs::write(&list, "#EXTM3U\nrubbish\n").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    Written::new(&lab, "a").segments(0..2, 1000);
    assert_eq!(lab.store().list(None, 10).len(), 2);
    assert_eq!(std::fs::read_to_string(list).unwrap(), "#EXTM3U\nrubbish\n");
}

/// The beginning of the segment at which a source ends can be played, and nobody has more of it at this address.
#[test]
fn what_has_come_of_the_last_segment_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    let written = Written::new(&lab, "a");
    written.segments(0..2, 1000);
    written.part(1, 2, 0, 500);
    written.end();
    lab.until("it is kept", |counters| kept(counters) >= 3);
    let folder = folder(root.path(), &lab.store().list(None, 1)[0]).join("1");
    let (files, text) = playlist(&folder);
    assert!(files.len() == 3 && !text.contains("GAP"), "{text}");
    assert_eq!(std::fs::read(folder.join(&files[2])).unwrap(), media(1, 2, 0, 500));
}
