//! An output file that a later run continues.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use commands::Failure;
use rbmq::{DeferredBatch, OutputState, TopicName};
use rocketbufs::{Epoch, Position};
use sha2::{Digest, Sha256};

/// Written bytes are recorded after this time, or when no message waits.
pub(super) const RECORD_AFTER: Duration = Duration::from_millis(50);

/// This many written bytes are recorded at once, so that their space in the ring is released.
pub(super) const RECORD_BYTES: u64 = 256 << 10;

/// How long to wait for the lock of a process that was killed a moment ago, and how often to try.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// An output file and its state.
pub(super) struct OutputFile {
    /// None while the file is closed in favour of others.
    file: Option<File>,
    path: PathBuf,
    state_path: PathBuf,
    recorded: OutputState,
    /// Written bytes that are not recorded yet.
    pending: Pending,
    /// So many logs of spaces have a run here that is not complete: nothing is recorded meanwhile.
    open_runs: usize,
    /// Whether to sync the file before recording.
    durable: bool,
}

#[derive(Default)]
struct Pending {
    bytes: u64,
    /// How many of the last bytes do not count yet.
    loose: u64,
    logs: HashMap<Epoch, Position>,
    /// Logs that have ended.
    ended: Vec<Epoch>,
    deferred: HashMap<Epoch, DeferredBatch>,
    since: Option<Instant>,
}

/// Most bytes of a file's name that says the whole topic, and how many of them longer ones begin with. File systems take
/// 255 bytes, of which the state's name needs some.
const MAX_NAME_BYTES: usize = 200;
const CUT_NAME_BYTES: usize = 180;

/// The name of a topic's file in a directory of outputs. Each topic has another name, and no name is the name of a state
/// file: special characters are written as `%` and two digits, and so is a dot that would make the name a state file's. Long
/// names are cut and end in a cryptographic hash, so that no one can choose two topics with the same file.
pub(super) fn file_name(topic: &TopicName) -> String {
    let mut name = String::new();
    for (at, byte) in topic.as_str().bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && at > 0);
        match plain {
            true => name.push(char::from(byte)),
            false => name.push_str(&escaped(byte)),
        }
    }
    if OutputState::is_state_name(&name)
        && let Some(at) = name.rfind('.')
    {
        name.replace_range(at..=at, &escaped(b'.'));
    }
    if name.len() > MAX_NAME_BYTES {
        name.truncate(CUT_NAME_BYTES);
        name.push('%');
        // Half of it: 2^64 names would have to be tried for two that are the same.
        let hash = Sha256::digest(topic.as_str());
        name.extend(hash.iter().take(16).map(|byte| format!("{byte:02x}")));
    }
    name
}

fn escaped(byte: u8) -> String {
    format!("%{byte:02X}")
}

impl OutputFile {
    /// Opens a new output, or continues one as its state file says. `durable`: syncs the file before recording.
    pub(super) fn open(path: &Path, topic: &TopicName, durable: bool) -> Result<Self, Failure> {
        let state_path = OutputState::path_of(path);
        // First, so that an error names the given path, and the lock covers both files.
        let file = open_to_write(path, true)?;
        let recorded = OutputState::read(&state_path).map_err(|e| cannot("read", &state_path, &e))?;
        let length = file.metadata().map_err(|e| cannot("read", path, &e))?.len();
        let recorded = match recorded {
            None if length > 0 => {
                return Err(Failure::Failed(format!(
                    "{} has {length} bytes and no state file {}; remove it or choose another file",
                    path.display(),
                    state_path.display()
                )));
            }
            None => OutputState::new(topic.as_str()),
            Some(recorded) => recorded,
        };
        if recorded.topic != topic.as_str() {
            return Err(Failure::Failed(format!(
                "{} was written from topic '{}', not '{topic}'; choose another file",
                path.display(),
                recorded.topic
            )));
        }
        if length < recorded.length {
            return Err(Failure::Failed(format!(
                "{} has {length} bytes, but {} records {}; another program changed it, or the machine crashed without --sync: \
                 remove both to start over",
                path.display(),
                state_path.display(),
                recorded.length
            )));
        }
        file.set_len(recorded.length).map_err(|e| cannot("cut", path, &e))?;
        recorded.write(&state_path, durable).map_err(|e| cannot("write", &state_path, &e))?;
        let (file, path, pending) = (Some(file), path.to_owned(), Pending::default());
        Ok(Self { file, path, state_path, recorded, pending, open_runs: 0, durable })
    }

    /// The positions at which the logs continue; none for a new file.
    pub(super) fn positions(&self) -> Option<Vec<(Epoch, Position)>> {
        let positions = self.recorded.positions();
        (!positions.is_empty()).then_some(positions)
    }

    /// Closes the descriptor. The next write opens it again.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// A log begins at a position, unless its position is known.
    pub(super) fn begin(&mut self, epoch: Epoch, start: Position) {
        if self.recorded.position(epoch).is_none() && !self.pending.logs.contains_key(&epoch) {
            self.pending.logs.insert(epoch, start);
            self.pending.since.get_or_insert_with(Instant::now);
        }
    }

    /// A log has ended.
    pub(super) fn end(&mut self, epoch: Epoch) {
        self.pending.ended.push(epoch);
        self.pending.since.get_or_insert_with(Instant::now);
    }

    /// Writes bytes. They count after [`OutputFile::reached`].
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.opened()?.write_all(bytes).map_err(|e| cannot("write", &self.path, &e))?;
        self.pending.bytes += bytes.len() as u64;
        self.pending.loose += bytes.len() as u64;
        Ok(())
    }

    /// The file. Opens it if it was closed, and checks that no other program changed its length since.
    fn opened(&mut self) -> Result<&File, Failure> {
        match self.file {
            Some(ref file) => Ok(file),
            None => {
                let file = open_to_write(&self.path, false)?;
                let expected = self.recorded.length + self.pending.bytes;
                match file.metadata().map_err(|e| cannot("read", &self.path, &e))?.len() {
                    length if length == expected => Ok(self.file.insert(file)),
                    length => Err(Failure::Failed(format!(
                        "{} has {length} bytes, not {expected}: another program writes to it",
                        self.path.display()
                    ))),
                }
            }
        }
    }

    /// The written bytes, except for the last `loose` ones, are everything of the log below `position`. The batch is consumed
    /// once that is recorded.
    pub(super) fn reached(
        &mut self,
        epoch: Epoch,
        position: Position,
        loose: u64,
        batch: DeferredBatch,
    ) -> Result<(), Failure> {
        self.pending.logs.insert(epoch, position);
        self.pending.deferred.insert(epoch, batch);
        self.pending.loose = loose;
        let since = *self.pending.since.get_or_insert_with(Instant::now);
        if self.pending.bytes >= RECORD_BYTES || since.elapsed() >= RECORD_AFTER {
            self.record()?;
        }
        Ok(())
    }

    /// Whether the file has what is at a position of a log of a space.
    pub(super) fn has(&self, epoch: Epoch, position: Position) -> bool {
        let reached = self.pending.logs.get(&epoch).copied().or_else(|| self.recorded.position(epoch));
        reached.is_some_and(|reached| reached > position)
    }

    /// The first messages of a run of a space are written, and more of the run follows.
    pub(super) fn begin_run(&mut self) {
        self.open_runs += 1;
    }

    /// The run is complete, or its log has ended in the middle of it.
    pub(super) fn end_run(&mut self, reached: Option<(Epoch, Position)>) {
        self.open_runs -= 1;
        self.pending.logs.extend(reached);
        self.pending.loose = 0;
        self.pending.since.get_or_insert_with(Instant::now);
    }

    /// Whether nothing can be recorded now.
    pub(super) fn is_in_run(&self) -> bool {
        self.open_runs > 0
    }

    /// Whether written bytes are not recorded yet.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.since.is_some()
    }

    /// Records written bytes, and consumes their messages.
    pub(super) fn record(&mut self) -> Result<(), Failure> {
        if !self.is_pending() || self.is_in_run() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        // Loose bytes are cut off when the file is continued, and come again.
        (self.pending.bytes, self.pending.loose) = (pending.loose, pending.loose);
        self.recorded.length += pending.bytes - pending.loose;
        pending.logs.into_iter().for_each(|(epoch, position)| self.recorded.reached(epoch, position));
        pending.ended.into_iter().for_each(|epoch| self.recorded.end(epoch));
        if self.durable && pending.bytes > 0 {
            self.opened()?.sync_data().map_err(|e| cannot("write", &self.path, &e))?;
        }
        let written = self.recorded.write(&self.state_path, self.durable);
        written.map_err(|e| cannot("write", &self.state_path, &e))?;
        for (epoch, batch) in pending.deferred {
            match self.recorded.position(epoch) {
                Some(position) => batch.consume_up_to(position),
                None => batch.consume(),
            }
        }
        Ok(())
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot {what} {}: {error}", path.display()))
}

/// Opens a file and locks it against other processes.
fn open_to_write(path: &Path, create: bool) -> Result<File, Failure> {
    // Checked before it is opened: opening a pipe waits for a reader.
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(Failure::Failed(format!(
            "{} is not a regular file and cannot be continued; without --output messages go to standard output",
            path.display()
        )));
    }
    let opened = OpenOptions::new().append(true).create(create).open(path);
    let file = opened.map_err(|e| cannot("write", path, &e))?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(LOCK_RETRY)
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::Failed(format!(
                    "another process writes to {}; wait for its end or choose another file",
                    path.display()
                )));
            }
            // Some file systems have no locks. There the user must not start two writers.
            Ok(()) | Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_files_are_safe_and_differ() {
        let name = |topic: &str| file_name(&topic.parse().unwrap());
        assert_eq!(name("news-1.txt"), "news-1.txt");
        assert_eq!(name("../x"), "%2E.%2Fx");
        assert_eq!(name("a/b"), "a%2Fb");
        assert_ne!(name("a%2Fb"), name("a/b"));
        assert_eq!(name("a.rbmq-state"), "a%2Erbmq-state");
        assert_eq!(name("a.rbmq-state.new"), "a.rbmq-state%2Enew");
        assert_eq!(name("rbmq-state.new"), "rbmq-state.new");
        let long = "%C3%A4".repeat(30) + "%808af9c4e582aa2671a5b26e943b85bb";
        assert_eq!(name(&"ä".repeat(127)), long);
    }

    #[test]
    fn long_names_of_equal_weak_hashes_differ() {
        // Both were cut to the same 180 bytes and 32 bits of FNV-1a.
        let topics = ["jcgbmrtp", "krjvvapw"].map(|end| "e".repeat(230) + end);
        assert_ne!(file_name(&topics[0].parse().unwrap()), file_name(&topics[1].parse().unwrap()));
    }

    /// Names of topics that are made to meet each other's files.
    fn topic() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            6 => prop::sample::select(vec!["a", ".", "%", "/", "-", "2E", "new", "ä", "%2E", "rbmq-state"]),
            4 => prop::sample::select(vec![".rbmq-state", ".rbmq-state.new", ".new"]),
        ];
        let parts = prop::collection::vec(part, 1..6).prop_map(|parts| parts.concat());
        (prop_oneof![9 => Just(0_usize), 1 => 150_usize..181], parts)
            .prop_map(|(n, end)| "x".repeat(n) + &end)
    }

    proptest! {
        #[test]
        fn no_file_of_a_topic_is_one_of_another(one in topic(), other in topic()) {
            prop_assume!(one != other);
            let files = |topic: &str| {
                let output = PathBuf::from(file_name(&topic.parse().unwrap()));
                let state = OutputState::path_of(&output);
                let new = PathBuf::from(format!("{}.new", state.display()));
                [output, state, new]
            };
            let (one, other) = (files(&one), files(&other));
            prop_assert!(one.iter().all(|file| !other.contains(file)), "{one:?} and {other:?}");
            prop_assert!(one.iter().all(|file| file.as_os_str().len() <= 255), "{one:?}");
        }
    }
}
