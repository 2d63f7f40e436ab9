//! Limits, and a disk that is full.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use rblive_record::RecordRule;

use crate::lab::{Lab, Written, folder, playlist, rule, segment};

fn bytes_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let one = |entry: std::fs::DirEntry| match entry.path().is_dir() {
        true => bytes_of(&entry.path()),
        false => entry.metadata().map_or(0, |found| found.len()),
    };
    entries.map(one).sum()
}

#[test]
fn the_oldest_recordings_make_room() {
    let root = tempfile::tempdir().unwrap();
    let limits = RecordRule { max_stream_bytes: 1 << 20, max_bytes: 3 << 19, ..rule(root.path()) };
    let lab = Lab::new(limits);
    let (a, b) = (Written::new(&lab, "a"), Written::new(&lab, "b"));
    for number in 0..40 {
        a.segments(number..number + 1, 50_000);
        b.segments(number..number + 1, 50_000);
        assert!(bytes_of(&root.path().join("a")) < (1 << 20) + 100_000);
        assert!(bytes_of(root.path()) < (3 << 19) + 200_000);
    }
    let counters = lab.recorder.counters();
    assert!(counters.removed.load(Relaxed) > 10 && counters.gaps.load(Relaxed) == 0, "{counters:?}");
    let segments: u64 = lab.store().list(None, 1000).iter().map(|about| about.bytes).sum();
    assert_eq!(segments, counters.kept_bytes.load(Relaxed));
    // The newest segment is there.
    let newest = folder(root.path(), &lab.store().list(Some("a"), 1)[0]).join("1");
    let (files, _) = playlist(&newest);
    assert_eq!(std::fs::read(newest.join(files.last().unwrap())).unwrap(), segment(1, 39, 50_000));
}

#[test]
fn where_all_recordings_grow_segments_are_left_out() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(RecordRule { max_stream_bytes: 1 << 20, max_bytes: 1 << 20, ..rule(root.path()) });
    let names: Vec<String> = (0..12).map(|index| format!("s{index}")).collect();
    let all: Vec<_> = names.iter().map(|name| Written::new(&lab, name)).collect();
    for number in 0..3 {
        for own in &all {
            own.segments(number..number + 1, 40_000);
        }
    }
    let counters = lab.recorder.counters();
    assert!(counters.over_limit.load(Relaxed) > 0, "{counters:?}");
    assert!(counters.kept_bytes.load(Relaxed) < (1 << 20) + 40_000 * 12, "{counters:?}");
    for about in lab.store().list(None, 100) {
        playlist(&folder(root.path(), &about).join("1"));
    }
}

#[test]
fn old_recordings_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let lab = Lab::new(rule(root.path()));
    Written::new(&lab, "a").segments(0..2, 1000);
    lab.stop();
    let recording = std::fs::read_dir(root.path().join("a")).unwrap().next().unwrap().unwrap().path();
    let then = SystemTime::now() - Duration::from_secs(3600);
    for file in std::fs::read_dir(recording.join("1")).unwrap().flatten() {
        std::fs::File::options().write(true).open(file.path()).unwrap().set_modified(then).unwrap();
    }
    let lab = Lab::new(RecordRule { max_age_ms: 7_200_000, ..rule(root.path()) });
    assert_eq!(lab.store().list(None, 10).len(), 1);
    lab.stop();
    let lab = Lab::new(RecordRule { max_age_ms: 1_800_000, ..rule(root.path()) });
    lab.until("it is removed", |counters| counters.removed.load(Relaxed) == 1);
    assert!(!root.path().join("a").exists());
}

/// A file system of two megabytes, unmounted at the end.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=2m", "small"]).arg(folder.path()).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_makes_gaps_and_what_was_kept_stays() {
    let Some(small) = Small::mount() else {
        writeln!(std::io::stderr(), "SKIPPED: a full disk (mounting a small file system needs root)")
            .expect("standard error");
        return;
    };
    let root = small.0.path();
    let lab = Lab::new(rule(root));
    let written = Written::new(&lab, "a");
    written.segments(0..4, 50_000);
    let ballast = root.join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    written.segments(4..8, 50_000);
    let counters = lab.recorder.counters();
    assert!(counters.write_errors.load(Relaxed) > 0 && counters.gaps.load(Relaxed) == 4, "{counters:?}");
    let folder = folder(root, &lab.store().list(None, 1)[0]).join("1");
    let (files, _) = playlist(&folder);
    assert!(files.len() >= 4, "the playlist is whole: {files:?}");
    std::fs::remove_file(ballast).unwrap();
    written.segments(8..10, 50_000);
    let (files, text) = playlist(&folder);
    assert_eq!((files.len(), text.matches("#EXT-X-GAP\n").count()), (10, 4), "{text}");
    assert_eq!(std::fs::read(folder.join("9.m4s")).unwrap(), segment(1, 9, 50_000));
    lab.stop();
}
