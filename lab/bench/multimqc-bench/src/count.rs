//! The number of stored messages, in a file that `multimqc-bench write` reads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The file with the number.
pub struct Count(File);

impl Count {
    pub fn create(path: &Path) -> io::Result<Count> {
        let count = Count(File::create(path)?);
        count.set(0)?;
        Ok(count)
    }

    /// Writes the number, always with as many digits.
    pub fn set(&self, number: u64) -> io::Result<()> {
        self.0.write_all_at(format!("{number:020}\n").as_bytes(), 0)
    }
}
