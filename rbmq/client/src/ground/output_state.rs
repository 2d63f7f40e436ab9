//! The state file beside an output file: the logs, and their positions up to which the output has their messages.
//! `rbmq sub --output` keeps it.
//!
//! ```text
//!   out            the data; the state covers its first `length` bytes
//!   out.rbmq-state rbmq-state 1
//!                  topic news
//!                  length 123456
//!                  log 0123456789abcdef0123456789abcdef 130000
//!                  ended 89abcdef0123456789abcdef01234567 4096
//! ```
//!
//! A rename replaces length and positions together. At whatever moment the process ends, the file has a length and exactly
//! the positions that belong to it: the next process cuts the output to that length and continues at those positions. For a
//! crash of the machine, see [`OutputState::write`].
//!
//! A topic may have a log for each of thousands of publishers that come and go. Of the ended logs only the last are kept, in the
//! order in which they ended.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use private_files::GivenFile;
use rocketbufs::{Epoch, Position};

/// The largest state file in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The content of an output file, and the positions at which to continue.
///
/// ```
/// use rbmq::OutputState;
/// use rocketbufs::Epoch;
///
/// let mut state = OutputState::new("news");
/// state.length = 100;
/// state.reached(Epoch(7), 4096);
/// assert_eq!(OutputState::parse(&state.to_string()), Some(state));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputState {
    /// The topic of the output.
    pub topic: String,
    /// The bytes of the output that the positions cover.
    pub length: u64,
    /// The position of each log that may continue.
    logs: BTreeMap<Epoch, Position>,
    /// The positions of ended logs, in the order in which they ended.
    ended: VecDeque<(Epoch, Position)>,
}

impl OutputState {
    /// The suffix of an output file's name that makes the name of its state file.
    pub const SUFFIX: &'static str = ".rbmq-state";

    /// The suffix of a state file's name while it is written.
    const NEW: &'static str = ".new";

    /// The most ended logs that are kept. An ended log that is no longer kept is received again if a broker still offers it. Each
    /// log costs 55 bytes of the file.
    pub const MAX_ENDED: usize = 4096;

    /// The state of an empty output.
    pub fn new(topic: &str) -> Self {
        Self { topic: topic.to_owned(), ..Self::default() }
    }

    /// Where the state of an output file is kept.
    pub fn path_of(output: &Path) -> PathBuf {
        let mut name = output.as_os_str().to_owned();
        name.push(Self::SUFFIX);
        name.into()
    }

    /// Whether a file of this name may hold the state of another: no output may be called so.
    ///
    /// ```
    /// use rbmq::OutputState;
    ///
    /// assert!(OutputState::is_state_name("out.rbmq-state"));
    /// assert!(OutputState::is_state_name("out.rbmq-state.new"));
    /// assert!(!OutputState::is_state_name("out"));
    /// ```
    pub fn is_state_name(name: &str) -> bool {
        name.strip_suffix(Self::NEW).unwrap_or(name).ends_with(Self::SUFFIX)
    }

    /// Everything of a log below `position` is in the output.
    pub fn reached(&mut self, epoch: Epoch, position: Position) {
        if let Some(known) = self.logs.get_mut(&epoch) {
            *known = position;
            return;
        }
        self.ended.retain(|(ended, _)| *ended != epoch);
        self.logs.insert(epoch, position);
    }

    /// A log that is known has ended, and may be forgotten when many others have too.
    pub fn end(&mut self, epoch: Epoch) {
        if let Some(position) = self.logs.remove(&epoch) {
            self.ended.push_back((epoch, position));
            if self.ended.len() > Self::MAX_ENDED {
                self.ended.pop_front();
            }
        }
    }

    /// How far a log is in the output; none if nothing of it is, or it was forgotten.
    pub fn position(&self, epoch: Epoch) -> Option<Position> {
        let ended = || self.ended.iter().find(|(ended, _)| *ended == epoch).map(|(_, position)| *position);
        self.logs.get(&epoch).copied().or_else(ended)
    }

    /// The position at which to continue in each known log.
    pub fn positions(&self) -> Vec<(Epoch, Position)> {
        self.logs
            .iter()
            .map(|(epoch, position)| (*epoch, *position))
            .chain(self.ended.iter().copied())
            .collect()
    }

    /// Reads a state file; none if there is none.
    ///
    /// # Errors
    /// The file cannot be read, or is no state file.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        match GivenFile::open(path).and_then(|file| file.text(MAX_FILE_BYTES)) {
            Ok(text) => Self::parse(&text)
                .map(Some)
                .ok_or_else(|| io::Error::other("it is not a state file of rbmq; remove it to start over")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Parses the text of a state file; None if the text does not have the format of a state file. If a log is listed twice, its
    /// last position counts.
    pub fn parse(text: &str) -> Option<Self> {
        // A truncated file lacks the end of its last line.
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != "rbmq-state 1" {
            return None;
        }
        let mut state = Self::new(lines.next()?.strip_prefix("topic ")?);
        state.length = lines.next()?.strip_prefix("length ")?.parse().ok()?;
        for line in lines {
            let (word, rest) = line.split_once(' ')?;
            let (epoch, position) = rest.split_once(' ')?;
            let epoch = Epoch(u128::from_str_radix(epoch, 16).ok()?);
            state.reached(epoch, position.parse().ok()?);
            match word {
                "log" => {}
                "ended" => state.end(epoch),
                _ => return None,
            }
        }
        Some(state)
    }

    /// Replaces the state file. At whatever moment the process ends, either the old or the new file exists, and is complete.
    /// `durable`: this also holds when the machine crashes; the output's data must then be on the disk before
    /// (`File::sync_data`).
    ///
    /// # Errors
    /// The new file could not be written; the old one still exists.
    pub fn write(&self, path: &Path, durable: bool) -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(Self::NEW);
        let new = PathBuf::from(name);
        let mut file = File::create(&new)?;
        file.write_all(self.to_string().as_bytes())?;
        if durable {
            file.sync_all()?;
        }
        fs::rename(&new, path)?;
        match path.parent() {
            Some(dir) if durable => {
                let here = dir.as_os_str().is_empty();
                File::open(if here { Path::new(".") } else { dir })?.sync_all()
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for OutputState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rbmq-state 1\ntopic {}\nlength {}\n", self.topic, self.length)?;
        let logs = self.logs.iter().map(|(epoch, position)| ("log", epoch, position));
        let ended = self.ended.iter().map(|(epoch, position)| ("ended", epoch, position));
        logs.chain(ended).try_for_each(|(word, epoch, position)| writeln!(f, "{word} {epoch} {position}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = OutputState::path_of(&dir.path().join("out"));
        assert_eq!(OutputState::read(&path).unwrap(), None);
        let mut state = OutputState::new("a b");
        for (epoch, position) in [(1, 2), (u128::MAX, u64::MAX), (7, 0), (3, 9)] {
            state.reached(Epoch(epoch), position);
        }
        state.end(Epoch(7));
        state.end(Epoch(3));
        for durable in [false, true] {
            state.length += 7;
            state.write(&path, durable).unwrap();
            assert_eq!(OutputState::read(&path).unwrap().as_ref(), Some(&state));
        }
    }

    #[test]
    fn the_earliest_end_is_forgotten_first_and_a_resumable_topic_never() {
        let mut state = OutputState::new("t");
        state.reached(Epoch(0), 1);
        let last = OutputState::MAX_ENDED as u128 + 1;
        for n in 1..=last {
            state.reached(Epoch(n), 5);
            state.end(Epoch(n));
        }
        let position = |n: u128| state.position(Epoch(n));
        assert_eq!(
            (position(0), position(1), position(2), position(last)),
            (Some(1), None, Some(5), Some(5))
        );
        assert_eq!(state.positions().len(), OutputState::MAX_ENDED + 1);
        // An ended log that continues is kept.
        state.reached(Epoch(2), 6);
        assert_eq!(state.position(Epoch(2)), Some(6));
        assert_eq!(state.positions().len(), OutputState::MAX_ENDED + 1);
        state.end(Epoch(u128::MAX));
        assert_eq!(state.position(Epoch(u128::MAX)), None);
    }

    #[test]
    fn refuses_bytes_that_are_no_state() {
        for text in [
            "",
            "rbmq-state 2\n",
            "rbmq-state 1\ntopic x\nlength -1\n",
            "rbmq-state 1\ntopic x\nlength 1",
            "rbmq-state 1\ntopic x\nlength 1\nlog 1\n",
            "rbmq-state 1\ntopic x\nlength 1\nlog 1 12345",
            "rbmq-state 1\ntopic x\nlength 1\nlost 1 2\n",
        ] {
            assert_eq!(OutputState::parse(text), None, "{text:?}");
        }
    }
}
