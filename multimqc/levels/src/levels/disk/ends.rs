//! The log of a topic, damaged in every way after each kind of stop: what was appended is there, or is a hole that the counters tell,
//! and no offset gets a second meaning.

use std::fs;

use seglog_sim::SimStorage;

use super::*;
use crate::stack::{Stack, Tail};

const TOPIC: TopicId = TopicId(3);

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    InOrder,
    Killed,
    Machine,
}

const STOPS: [Stop; 3] = [Stop::InOrder, Stop::Killed, Stop::Machine];

/// The files that a process left, and what they must have.
struct Left {
    stop: Stop,
    /// The folder of the files beside the log.
    folder: tempfile::TempDir,
    files: Vec<(PathBuf, Vec<u8>)>,
    /// The first offset of each message.
    messages: Vec<Offset>,
    /// The end of what must be there.
    kept: Offset,
}

fn config(folder: &std::path::Path) -> DiskConfig {
    // No thread syncs: the tests do.
    let sync_interval = Duration::from_secs(3600);
    DiskConfig { segment_bytes: 4096, sync_interval, ..DiskConfig::new(folder) }
}

/// A stack with this level alone.
struct Opened {
    stack: Stack,
    level: Arc<DiskLevel>,
}

fn open(disk: &SimStorage, folder: &std::path::Path) -> Result<Opened, String> {
    let level = DiskLevel::on(Arc::new(disk.clone()), config(folder)).expect("a level");
    let level = Arc::new(level);
    let stack = Stack::new(vec![Arc::clone(&level) as Arc<dyn Level>]).expect("a stack");
    stack.open(TOPIC, Epoch(9)).map_err(|error| error.to_string())?;
    Ok(Opened { stack, level })
}

fn byte(offset: Offset) -> u8 {
    (offset * 13 + offset / 251) as u8
}

fn append(stack: &Stack, length: u64) -> Offset {
    let head = stack.head(TOPIC).expect("open");
    let message: Vec<u8> = (head..head + length).map(byte).collect();
    stack.append(TOPIC, &mut std::iter::once(&message[..])).expect("room");
    head
}

/// Writes three segments, whose last messages are not synced, and stops.
fn write(stop: Stop) -> Left {
    let (disk, folder) = (SimStorage::new(3), tempfile::tempdir().expect("a folder"));
    let Opened { stack, level } = open(&disk, folder.path()).expect("a new log");
    let lengths = [700, 33, 900, 512, 8, 1000, 640].into_iter().cycle().take(17);
    let mut messages: Vec<Offset> = lengths.map(|length| append(&stack, length)).collect();
    // The mark of this sync reaches the disk.
    disk.advance(2000);
    level.sync().expect("a sync");
    let synced = stack.head(TOPIC).expect("open");
    messages.extend([77, 130].map(|length| append(&stack, length)));
    messages.push(stack.head(TOPIC).expect("open"));
    let kept = if stop == Stop::Machine { synced } else { messages[messages.len() - 1] };
    if stop == Stop::Machine {
        disk.crash();
    }
    if stop != Stop::InOrder {
        let files = files(&disk, folder.path());
        drop((stack, level));
        return Left { stop, folder, files, messages, kept };
    }
    drop((stack, level));
    let files = files(&disk, folder.path());
    Left { stop, folder, files, messages, kept }
}

fn files(disk: &SimStorage, directory: &std::path::Path) -> Vec<(PathBuf, Vec<u8>)> {
    let log = directory.join(folder(TOPIC));
    let names = disk.list(&log).expect("the folder");
    let contents = |name| {
        let path = log.join(name);
        disk.contents(&path).map(|bytes| (path, bytes))
    };
    names.into_iter().filter_map(contents).collect()
}

impl Left {
    /// The last two segments.
    fn segments(&self) -> Vec<usize> {
        let is = |at: &usize| self.files[*at].0.extension().is_some_and(|extension| extension == "seg");
        let all: Vec<usize> = (0..self.files.len()).filter(is).collect();
        assert!(all.len() >= 3, "{all:?}");
        all[all.len() - 2..].to_vec()
    }

    /// Opens the files where the process left them, with a change.
    fn opened(&self, change: impl FnOnce(&mut Vec<(PathBuf, Vec<u8>)>)) -> Result<Opened, String> {
        let (disk, mut files) = (SimStorage::new(4), self.files.clone());
        if self.stop == Stop::Machine {
            disk.crash();
        }
        change(&mut files);
        disk.create_dir(&self.folder.path().join(folder(TOPIC))).expect("a folder");
        files.into_iter().for_each(|(path, bytes)| disk.set_contents(path, bytes));
        let running = self.folder.path().join(format!("{}.running", folder(TOPIC)));
        match self.stop {
            Stop::InOrder => drop(fs::remove_file(running)),
            _ => fs::write(running, []).expect("a file"),
        }
        open(&disk, self.folder.path())
    }

    /// Checks what a stack has of the messages. Returns how many bytes are missing.
    fn check(&self, what: &str, opened: &Opened) -> u64 {
        let Opened { stack, level } = opened;
        let mut missing = 0;
        for ends in self.messages.windows(2).filter(|ends| ends[1] <= self.kept) {
            let mut bytes = vec![0; (ends[1] - ends[0]) as usize];
            let answer = stack.read(TOPIC, ends[0], &mut bytes).expect("open");
            let got = bytes[..answer.bytes].iter().zip(ends[0]..).all(|(own, at)| *own == byte(at));
            assert!(got, "{what}: bytes of the message at {}", ends[0]);
            if answer.bytes < bytes.len() {
                assert!(matches!(answer.tail, Tail::Hole(_)), "{what}: {:?} at {}", answer.tail, ends[0]);
                missing += (bytes.len() - answer.bytes) as u64;
            }
        }
        let damaged = level.counters(TOPIC).damaged;
        assert!(missing == 0 || damaged > 0, "{what}: {missing} bytes are missing, and nothing says so");
        let (head, seen) = (stack.head(TOPIC).expect("open"), self.messages[self.messages.len() - 1]);
        assert!(head >= seen, "{what}: {head} has a meaning already");
        missing
    }
}

/// Bytes between two places that are damaged. `SEGLOG_CASES` set: each place.
fn step() -> usize {
    if std::env::var_os("SEGLOG_CASES").is_some() { 1 } else { 41 }
}

/// Damages the last two segments at each place in a way. Returns how many bytes are missing in all cases together.
fn each_place(way: fn(&mut Vec<u8>, usize)) -> u64 {
    let mut missing = 0;
    for left in STOPS.map(write) {
        for segment in left.segments() {
            let (path, length) = (&left.files[segment].0, left.files[segment].1.len());
            for at in (0..length).step_by(step()).chain([length - 1]) {
                let what = format!("{:?}, byte {at} of {}", left.stop, path.display());
                match left.opened(|files| way(&mut files[segment].1, at)) {
                    Ok(opened) => missing += left.check(&what, &opened),
                    // The header of the segment says so itself.
                    Err(error) => assert!(at < 64, "{what}: {error}"),
                }
            }
        }
    }
    missing
}

#[test]
fn damage_takes_nothing_silently() {
    assert!(each_place(|file, at| file[at] ^= 0x10) > 0);
    assert!(each_place(Vec::truncate) > 0);
}

#[test]
fn bytes_that_were_added_take_nothing() {
    for left in STOPS.map(write) {
        let last = left.segments()[1];
        let own = left.files[last].1[64..].to_vec();
        for length in (1..400).step_by(step()) {
            for added in [vec![0; length], vec![0xa5; length], own[..length.min(own.len())].to_vec()] {
                let opened = left.opened(|files| files[last].1.extend(&added)).expect("it opens");
                assert_eq!(left.check(&format!("{:?}, {length} bytes more", left.stop), &opened), 0);
            }
        }
    }
}
