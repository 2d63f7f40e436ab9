//! How far a topic was copied to its archive: a file beside the topic's log.
//!
//! The file has three positions, of 20 digits each. The archive ends between the first two, unless another broker writes it too. So an archive
//! whose last bytes the disk has removed is known again, also by a restarted broker. What is below the third may be missing in the archive.
//!
//! The file is written before each batch. It is synced only when the third position changes: after a crash of the machine the bytes themselves
//! are compared.

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

/// What the file says.
pub(crate) struct Copied {
    path: PathBuf,
    /// Opened with the first batch.
    file: Option<File>,
    /// The positions between which the archive ends.
    range: Option<RangeInclusive<Position>>,
    missing_below: Position,
}

impl Copied {
    /// Reads the file. A file that is missing or damaged says nothing.
    pub(crate) fn open(path: &Path) -> Self {
        let text = GivenFile::open(path).and_then(|file| file.text(MAX_FILE_BYTES)).ok();
        let numbers = text.and_then(|text| {
            // Some files have a fourth number, and an older program has written over the first bytes of some of these: its end is a line of its own.
            let numbers: Result<Vec<Position>, _> = text.lines().next()?.split(' ').map(str::parse).collect();
            let mut numbers = numbers.ok()?;
            if numbers.len() == 4 {
                numbers.pop();
            }
            <[Position; 3]>::try_from(numbers).ok()
        });
        let range = numbers.map(|[from, to, _]| from..=to);
        let missing_below = numbers.map_or(0, |[.., missing]| missing);
        Self { path: path.to_owned(), file: None, range, missing_below }
    }

    /// Where the archive ends at least, if this folder's broker is the only one that writes it. None: nothing is known.
    pub(crate) fn start(&self) -> Option<Position> {
        self.range.as_ref().map(|range| *range.start())
    }

    /// What is below may be missing in the archive.
    pub(crate) fn missing_below(&self) -> Position {
        self.missing_below
    }

    /// Whether the archive of this folder can end here.
    pub(crate) fn includes(&self, end: Position) -> bool {
        self.range.as_ref().is_some_and(|range| range.contains(&end))
    }

    /// Notes a range before the archive gets its bytes, and that what is below `missing_below` may be missing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn note(
        &mut self,
        range: RangeInclusive<Position>,
        missing_below: Position,
    ) -> io::Result<()> {
        let missing_below = missing_below.max(self.missing_below);
        let has_more_missing = missing_below > self.missing_below;
        if self.range.as_ref() == Some(&range) && !has_more_missing {
            return Ok(());
        }
        let (file, is_first) = match self.file.take() {
            Some(file) => (file, false),
            None => (private_files::to_write().truncate(false).open(&self.path)?, true),
        };
        let file = self.file.insert(file);
        let text = format!("{:020} {:020} {missing_below:020}\n", range.start(), range.end());
        file.write_all_at(text.as_bytes(), 0)?;
        if is_first {
            file.set_len(text.len() as u64)?;
        }
        if has_more_missing {
            file.sync_data()?;
        }
        (self.range, self.missing_below) = (Some(range), missing_below);
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
        copied.note(0..=u64::MAX, 5).unwrap();
        copied.note(7..=100, 0).unwrap();
        for copied in [copied, Copied::open(&path)] {
            assert_eq!([6, 7, 100, 101].map(|end| copied.includes(end)), [false, true, true, false]);
            assert_eq!((copied.start(), copied.missing_below()), (Some(7), 5));
        }
        for damaged in ["", "7", "7 7", "7 7 x\n", "7 7 7 7 7", "7 7 7 x", "\0\0 \0"] {
            std::fs::write(&path, damaged).unwrap();
            let copied = Copied::open(&path);
            assert!(!copied.includes(7) && copied.start().is_none(), "{damaged:?}");
        }
    }

    /// A file with a fourth number is read, also after an older program has written its three over it, and is one of three then.
    #[test]
    fn a_file_with_a_fourth_number_becomes_one_of_three() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let long = format!("{:020} {:020} {:020} {:020}\n", 7, 9, 5, 12);
        let mixed = format!("{:020} {:020} {:020}\n{}", 7, 9, 5, &long[63..]);
        assert_eq!(mixed.len(), 84);
        for text in [long, mixed] {
            std::fs::write(&path, text).unwrap();
            let mut copied = Copied::open(&path);
            assert_eq!((copied.start(), copied.missing_below()), (Some(7), 5));
            copied.note(8..=10, 6).unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text, format!("{:020} {:020} {:020}\n", 8, 10, 6));
        }
    }
}
