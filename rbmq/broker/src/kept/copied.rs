//! How far a topic was copied to its archive: a file beside the topic's log.
//!
//! The file has two positions, of 20 digits each. The archive ends between them, unless another broker writes it too. So an archive whose
//! last bytes the disk has removed is known again, also by a restarted broker. The file is written before each batch and never synced: after
//! a crash of the machine the bytes themselves are compared.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use private_files::GivenFile;
use rocketbufs::Position;

/// The file's name in the folder of a topic.
pub(crate) const FILE: &str = "archive";

/// The largest file in bytes.
const MAX_FILE_BYTES: u64 = 1 << 10;

/// The positions between which the archive ends.
pub(crate) struct Copied {
    path: PathBuf,
    /// Opened with the first batch.
    file: Option<File>,
    range: Option<RangeInclusive<Position>>,
}

impl Copied {
    /// Reads the file. A file that is missing or damaged says nothing.
    pub(crate) fn open(path: &Path) -> Self {
        let range = GivenFile::open(path).and_then(|file| file.text(MAX_FILE_BYTES)).ok().and_then(|text| {
            let (from, to) = text.trim_end().split_once(' ')?;
            Some(from.parse().ok()?..=to.parse().ok()?)
        });
        Self { path: path.to_owned(), file: None, range }
    }

    /// Whether the archive of this folder can end here.
    pub(crate) fn includes(&self, end: Position) -> bool {
        self.range.as_ref().is_some_and(|range| range.contains(&end))
    }

    /// Notes a range before the archive gets its bytes.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn note(&mut self, range: RangeInclusive<Position>) -> io::Result<()> {
        if self.range.as_ref() == Some(&range) {
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => private_files::to_write().truncate(false).open(&self.path)?,
        };
        let file = self.file.insert(file);
        file.write_all_at(format!("{:020} {:020}\n", range.start(), range.end()).as_bytes(), 0)?;
        self.range = Some(range);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut copied = Copied::open(&path);
        assert!(!copied.includes(0));
        copied.note(0..=u64::MAX).unwrap();
        copied.note(7..=100).unwrap();
        for copied in [copied, Copied::open(&path)] {
            assert_eq!([6, 7, 100, 101].map(|end| copied.includes(end)), [false, true, true, false]);
        }
        for damaged in ["", "7", "7 x\n", "\0\0 \0"] {
            std::fs::write(&path, damaged).unwrap();
            assert!(!Copied::open(&path).includes(7), "{damaged:?}");
        }
    }
}
