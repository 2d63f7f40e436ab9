//! The file beside an output file that says which bytes of which log are in it.
//!
//! ```text
//!   out            the data, of which the first `length` bytes are accounted for
//!   out.rbmq-state rbmq-state 1
//!                  topic news
//!                  length 123456
//!                  log 0123456789abcdef0123456789abcdef 130000
//! ```
//!
//! Length and positions are replaced together, by a rename. Whatever moment the process ends at, the file says a
//! length and exactly the positions that belong to it: started again, the output is cut to that length and receiving
//! goes on there. It does not survive a power failure that forgets what was written, as it does not call fsync.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rocketbufs::{Epoch, Position};

/// What the state file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Recorded {
    pub(super) topic: String,
    /// Bytes of the output that are accounted for.
    pub(super) length: u64,
    /// How far each log is in the output.
    pub(super) logs: BTreeMap<Epoch, Position>,
}

/// What the name of an output file has behind it where its state is kept.
pub(super) const STATE_SUFFIX: &str = ".rbmq-state";

/// Where the state of an output file is kept.
pub(super) fn path_of(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(STATE_SUFFIX);
    name.into()
}

impl Recorded {
    /// Reads a state file; none if there is none.
    pub(super) fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text)
                .map(Some)
                .ok_or_else(|| io::Error::other("it is not a state file of rbmq; remove it to start over")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != "rbmq-state 1" {
            return None;
        }
        let mut recorded =
            Self { topic: lines.next()?.strip_prefix("topic ")?.to_owned(), ..Self::default() };
        recorded.length = lines.next()?.strip_prefix("length ")?.parse().ok()?;
        for line in lines {
            let (epoch, position) = line.strip_prefix("log ")?.split_once(' ')?;
            let epoch = Epoch(u128::from_str_radix(epoch, 16).ok()?);
            recorded.logs.insert(epoch, position.parse().ok()?);
        }
        Some(recorded)
    }

    fn text(&self) -> String {
        let mut text = format!("rbmq-state 1\ntopic {}\nlength {}\n", self.topic, self.length);
        for (epoch, position) in &self.logs {
            text.push_str(&format!("log {epoch} {position}\n"));
        }
        text
    }

    /// Replaces the state file.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        fs::File::create(&new)?.write_all(self.text().as_bytes())?;
        fs::rename(&new, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_of(&dir.path().join("out"));
        assert_eq!(Recorded::read(&path).unwrap(), None);
        let recorded = Recorded {
            topic: "a b".into(),
            length: 7,
            logs: [(Epoch(1), 2), (Epoch(u128::MAX), u64::MAX)].into(),
        };
        recorded.write(&path).unwrap();
        assert_eq!(Recorded::read(&path).unwrap(), Some(recorded));
    }

    #[test]
    fn refuses_what_is_no_state() {
        for text in [
            "",
            "rbmq-state 2\n",
            "rbmq-state 1\ntopic x\nlength -1\n",
            "rbmq-state 1\ntopic x\nlength 1\nlog 1\n",
        ] {
            assert_eq!(Recorded::parse(text), None, "{text:?}");
        }
    }
}
