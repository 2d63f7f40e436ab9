//! The journal: whatever is cut or damaged, the group goes on, and nothing unacknowledged is lost.

use std::fs;
use std::path::{Path, PathBuf};

use rbmq_groups::{Changes, Group, Journal, Limits, Settings, folder};

fn settings() -> Settings {
    Settings { ack_ms: 1000, max_attempts: 3, dead_letter: "dead".into(), ordered: true }
}

/// Works with a group whose journal is in a folder. Returns what was acknowledged, in order.
fn work(dir: &Path) -> Vec<u64> {
    let (mut journal, recovered) = Journal::open(dir).expect("a new journal");
    assert!(recovered.saved.is_none());
    let mut group = Group::new(settings(), 7, 0, Limits::default());
    (0..6).for_each(|n| group.offer(n * 10, 10, (n % 2) as u32, n * 10 + 10));
    journal.save(&group, 7).expect("the disk works");
    let mut acked = Vec::new();
    (6..12).for_each(|n| group.offer(n * 10, 10, 0, n * 10 + 10));
    assert!(group.join(1, 4));
    for round in 0..5 {
        while let Some(handout) = group.take(0) {
            if handout.position % 30 == 0 {
                group.nack(1, handout.attempt(), 5000, 0);
            } else {
                group.ack(1, handout.attempt(), 120);
                acked.push(handout.position);
            }
        }
        journal.write(&group.take_changes()).expect("the disk works");
        if round == 2 {
            journal.save(&group, 7).expect("the disk works");
        }
    }
    // Four were given back, and one waits for an earlier one of its key.
    assert_eq!(acked.len(), 7);
    acked
}

pub(super) fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(from).expect("the folder") {
        let path = entry.expect("a file").path();
        fs::copy(&path, to.path().join(path.file_name().expect("a name"))).expect("it is copied");
    }
    to
}

pub(super) fn segment(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir).expect("the folder").map(|entry| entry.expect("a file").path());
    files.filter(|path| path.extension().is_some_and(|end| end == "seg")).max().expect("a segment")
}

/// What another process hands out of the journal in a folder; none: it begins anew. Also whether damage was told.
fn left(dir: &Path) -> Option<(Vec<u64>, bool)> {
    let (_journal, recovered) = Journal::open(dir).ok()?;
    let is_told = recovered.damaged_bytes > 0;
    let mut group =
        recovered.group(Limits::default()).unwrap_or_else(|| Group::new(settings(), 7, 0, Limits::default()));
    for n in (0..12).filter(|n| n * 10 >= group.next()).collect::<Vec<_>>() {
        group.offer(n * 10, 10, 0, n * 10 + 10);
    }
    assert!(group.join(1, 100));
    let mut left = Vec::new();
    while let Some(handout) = group.take(0) {
        left.push(handout.position);
        group.ack(1, handout.attempt(), 120);
    }
    left.sort_unstable();
    Some((left, is_told))
}

#[test]
fn another_process_goes_on_where_the_first_was_killed() {
    let dir = tempfile::tempdir().expect("a folder");
    let acked = work(dir.path());
    let (left, is_told) = left(dir.path()).expect("it opens");
    let expected: Vec<u64> = (0..12).map(|n| n * 10).filter(|position| !acked.contains(position)).collect();
    assert_eq!((left, is_told), (expected, false));
}

/// Changes every byte of the journal. `change` makes the file with the change at a byte.
fn at_every_byte(is_cut: bool) {
    let dir = tempfile::tempdir().expect("a folder");
    let acked = work(dir.path());
    let never: Vec<u64> = (0..12).map(|n| n * 10).filter(|position| !acked.contains(position)).collect();
    let whole = fs::read(segment(dir.path())).expect("the segment");
    let begin = 0;
    for at in begin..whole.len() {
        let copied = copy(dir.path());
        let mut bytes = whole.clone();
        if is_cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 0x55;
        }
        fs::write(segment(copied.path()), bytes).expect("it is written");
        let Some((left, is_told)) = left(copied.path()) else {
            panic!("byte {at}: the journal does not open")
        };
        assert!(
            never.iter().all(|position| left.contains(position)),
            "byte {at}: a message is lost: {left:?}"
        );
        let again = left.len() > never.len();
        assert!(is_told || !again, "byte {at}: {left:?} come again, and nobody is told");
    }
}

#[test]
fn a_journal_that_is_cut_at_any_byte_loses_no_message_and_says_so() {
    at_every_byte(true);
}

#[test]
fn a_journal_that_is_damaged_at_any_byte_loses_no_message_and_says_so() {
    at_every_byte(false);
}

#[test]
fn the_journal_does_not_grow() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut journal, _) = Journal::open(dir.path()).expect("a new journal");
    let mut group = Group::new(Settings::default(), 7, 0, Limits::default());
    assert!(group.join(1, 1000));
    journal.save(&group, 7).expect("the disk works");
    let (mut next, mut most) = (0, 0);
    for _ in 0..3000 {
        for _ in 0..500 {
            group.offer(next, 10, 0, next + 10);
            next += 10;
        }
        while let Some(handout) = group.take(0) {
            group.ack(1, handout.attempt(), u64::MAX);
        }
        journal.write(&group.take_changes()).expect("the disk works");
        if journal.wants_save() {
            journal.save(&group, 7).expect("the disk works");
            journal.sync().expect("the disk works");
        }
        most = most.max(journal.file_bytes());
    }
    assert!(most < 16 << 20, "{most} bytes");
    drop(journal);
    let (_, recovered) = Journal::open(dir.path()).expect("it opens");
    let group = recovered.group(Limits::default()).expect("a group");
    // What was read since the group was saved is read again, and not handed out again.
    assert!(group.pending() == 0 && group.next() <= next);
}

#[test]
fn what_was_done_ahead_of_a_saved_group_does_not_come_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut journal, _) = Journal::open(dir.path()).expect("a new journal");
    let group = Group::new(Settings::default(), 7, 0, Limits::default());
    journal.save(&group, 7).expect("the disk works");
    journal.write(&Changes { done: vec![20], failed: vec![(10, 2)] }).expect("the disk works");
    drop(journal);
    let (mut journal, recovered) = Journal::open(dir.path()).expect("it opens");
    let group = recovered.group(Limits::default()).expect("a group");
    // Saved again before it has read so far.
    journal.save(&group, 7).expect("the disk works");
    drop(journal);
    let (_, recovered) = Journal::open(dir.path()).expect("it opens");
    let mut group = recovered.group(Limits::default()).expect("a group");
    (0..4).for_each(|n| group.offer(n * 10, 10, 0, n * 10 + 10));
    assert!(group.join(1, 10));
    let all: Vec<_> = std::iter::from_fn(|| group.take(0)).map(|h| (h.position, h.attempt)).collect();
    assert_eq!(all, [(0, 1), (10, 3), (30, 1)]);
}

#[test]
fn a_saved_group_that_is_cut_takes_nothing_with_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut journal, _) = Journal::open(dir.path()).expect("a new journal");
    let group = Group::new(settings(), 7, 0, Limits::default());
    journal.save(&group, 7).expect("the disk works");
    journal.write(&Changes { done: vec![20, 40], failed: Vec::new() }).expect("the disk works");
    drop(journal);
    let before = fs::read(segment(dir.path())).expect("the segment").len();
    let (mut journal, recovered) = Journal::open(dir.path()).expect("it opens");
    let group = recovered.group(Limits::default()).expect("a group");
    // The group has not read so far, and is saved with what it knows of that.
    journal.save(&group, 7).expect("the disk works");
    drop(journal);
    let whole = fs::read(segment(dir.path())).expect("the segment");
    for at in before.min(whole.len())..=whole.len() {
        let copied = copy(dir.path());
        fs::write(segment(copied.path()), &whole[..at]).expect("it is written");
        let (left, _) = left(copied.path()).expect("it opens");
        assert!(!left.contains(&20) && !left.contains(&40), "byte {at}: {left:?}");
    }
}

#[test]
fn a_group_that_begins_anew_has_no_journal_of_before() {
    let above = tempfile::tempdir().expect("a folder");
    let dir = above.path().join("g");
    work(&dir);
    let anew = Group::new(Settings::default(), 8, 40, Limits::default());
    folder::replace(&dir, &anew, 9).expect("the disk works");
    let names = || fs::read_dir(above.path()).expect("a folder").count();
    assert_eq!(names(), 1);
    let (journal, recovered) = Journal::open(&dir).expect("it opens");
    drop(journal);
    let saved = recovered.saved.expect("a group");
    assert_eq!((saved.generation, saved.epoch, saved.next, recovered.since.len()), (8, 9, 40, 0));
    assert!(saved.pending.is_empty());
    folder::remove(&dir).expect("the disk works");
    assert_eq!(names(), 0);
}

#[test]
fn a_process_that_is_killed_leaves_a_journal_or_none() {
    let next = |dir: &Path| {
        let (_journal, recovered) = Journal::open(dir).expect("it opens");
        recovered.saved.map(|saved| saved.next)
    };
    let folders = |names: &[&str]| {
        let above = tempfile::tempdir().expect("a folder");
        for (n, name) in names.iter().enumerate() {
            let group = Group::new(Settings::default(), 8, n as u64 + 1, Limits::default());
            let (mut journal, _) = Journal::open(&above.path().join(name)).expect("a new journal");
            journal.save(&group, 9).expect("the disk works");
        }
        folder::repair(above.path()).expect("the disk works");
        let mut left: Vec<String> = fs::read_dir(above.path())
            .expect("a folder")
            .map(|entry| entry.expect("a name").file_name().into_string().expect("a name"))
            .collect();
        left.sort();
        let next = next(&above.path().join("g"));
        (left, next)
    };
    let whole = vec!["g".to_owned()];
    // The new one is not whole; it is; the old one is away; the new one is in its place; a journal is removed.
    assert_eq!(folders(&["g", ".new-g"]), (whole.clone(), Some(1)));
    assert_eq!(folders(&[".old-g", ".new-g"]), (whole.clone(), Some(2)));
    assert_eq!(folders(&["g", ".old-g"]), (whole, Some(1)));
    assert_eq!(folders(&[".old-g"]), (Vec::new(), None));
    assert_eq!(folders(&[".new-g"]), (Vec::new(), None));
}
