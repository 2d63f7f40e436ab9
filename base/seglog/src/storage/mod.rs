//! The needs of a log from a file system, as traits: [`OsStorage`] is the operating system's. The package `seglog-sim` has
//! one that fails, for tests.

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

#[allow(unsafe_code)]
mod map;
mod os;

pub use os::OsStorage;

/// The most parts of one write that Linux takes.
pub(crate) const MAX_PARTS: usize = 1024;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// To read an existing file.
    Read,
    /// To read and write an existing file.
    ReadWrite,
    /// To read and write a file that is empty: created, or emptied where it exists.
    Create,
}

/// Directories and files, a clock, and random numbers.
///
/// A change of a directory (a created, renamed or removed file) is durable after [`sync_dir`](Self::sync_dir) returned without an
/// error.
pub trait Storage: Debug + Send + Sync {
    /// Creates a directory and its parents, durably. An existing directory is no error.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// The names of the files in a directory, in any order.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;
    /// Renames a file; one of the new name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Open files stay readable.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes earlier changes of the directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Opens a file to read and write, makes it if it does not exist, and locks it until the returned value is dropped or the process
    /// ends. `None`: somebody else has the lock.
    fn lock(&self, path: &Path) -> io::Result<Option<Arc<dyn File>>>;
    /// A random number that changes when the machine starts, so that files have lost what was not synced; zeros if it is not known.
    fn boot(&self) -> [u8; 16];
    /// The time in milliseconds since 1970.
    fn now(&self) -> u64;
    /// The time in milliseconds since the machine started, also while it slept: no step of the clock changes it. By default a clock that
    /// makes no steps.
    fn steady(&self) -> u64 {
        self.now()
    }
    /// Fills a buffer with random bytes.
    fn random(&self, bytes: &mut [u8]) -> io::Result<()>;
}

/// An open file, closed when it is dropped.
pub trait File: Debug + Send + Sync {
    /// Bytes of the file.
    fn size(&self) -> io::Result<u64>;
    /// Reads at an offset. Fewer bytes than asked for are no error; 0 means that the file ends there.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes at an offset, in this order. Fewer bytes than asked for are no error.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes the content and the length durable. After an error nothing is known about what was written since the last success, and a
    /// later success does not cover it.
    fn sync(&self) -> io::Result<()>;
    /// Maps the first `len` bytes, which nobody changes as long as the result lives. `None` where files cannot be mapped.
    fn map(&self, len: usize) -> io::Result<Option<Bytes>>;
}

impl dyn File + '_ {
    /// Fills the buffer as far as the file goes.
    pub(crate) fn read_full(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes all parts.
    pub(crate) fn write_all(&self, mut parts: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match self.write_at(&parts[..parts.len().min(MAX_PARTS)], offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    IoSlice::advance_slices(&mut parts, n);
                    offset += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
