//! How far a topic was copied to its archive: a file beside the topic's log.
//!
//! The file has three positions, of 20 digits each, and behind them a number that stands for the store. The archive ends between the first two, unless another broker writes it too. So an archive
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
    /// The number of the store. None: it is not known.
    store: Option<u64>,
    /// The file does not name this store yet.
    is_moved: bool,
}

/// A number for a store, which another one hardly has (FNV-1a). None: the store has no name.
fn number(store: &str) -> Option<u64> {
    let add = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    (!store.is_empty()).then(|| store.bytes().fold(0xcbf2_9ce4_8422_2325, add))
}

impl Copied {
    /// Reads the file. A file that is missing or damaged says nothing.
    pub(crate) fn open(path: &Path) -> Self {
        let text = GivenFile::open(path).and_then(|file| file.text(MAX_FILE_BYTES)).ok();
        let numbers = text.and_then(|text| {
            let numbers: Result<Vec<u64>, _> = text.trim_end().split(' ').map(str::parse).collect();
            match numbers.ok()?[..] {
                // Earlier versions do not name the store.
                [from, to, missing] => Some(([from, to, missing], None)),
                [from, to, missing, store] => Some(([from, to, missing], Some(store))),
                _ => None,
            }
        });
        let range = numbers.map(|([from, to, _], _)| from..=to);
        let missing_below = numbers.map_or(0, |([.., missing], _)| missing);
        let store = numbers.and_then(|(_, store)| store);
        Self { path: path.to_owned(), file: None, range, missing_below, store, is_moved: false }
    }

    /// The archive is in this store from now on. Whether what is in the file is of the same one.
    pub(crate) fn is_in(&mut self, store: &str) -> bool {
        let store = number(store);
        let is_same = store.is_some() && store == self.store;
        (self.store, self.is_moved) = (store, self.is_moved || store != self.store);
        is_same
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
        if self.range.as_ref() == Some(&range) && !has_more_missing && !self.is_moved {
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => private_files::to_write().truncate(false).open(&self.path)?,
        };
        let file = self.file.insert(file);
        let mut text = format!("{:020} {:020} {missing_below:020}", range.start(), range.end());
        self.store.iter().for_each(|store| text.push_str(&format!(" {store:020}")));
        text.push('\n');
        file.write_all_at(text.as_bytes(), 0)?;
        if self.is_moved {
            // The file of a store with a name is longer.
            file.set_len(text.len() as u64)?;
            self.is_moved = false;
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
    fn a_store_is_known_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut is_in = |store: &str| {
            let mut copied = Copied::open(&path);
            let is_same = copied.is_in(store);
            copied.note(7..=7, 3).unwrap();
            is_same
        };
        assert_eq!(
            ["a", "a", "b", "b", "", "", "a"].map(&mut is_in),
            [false, true, false, true, false, false, false]
        );
        // That of an earlier version.
        std::fs::write(&path, "7 7 3\n").unwrap();
        assert!(!is_in("a") && is_in("a"));
        let copied = Copied::open(&path);
        assert_eq!((copied.start(), copied.missing_below()), (Some(7), 3));
    }

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
}
