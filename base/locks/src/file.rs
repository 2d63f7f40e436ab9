//! A lock on a file or folder, against other processes.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process;

/// A file, or an open folder, that is locked against other processes until this value is dropped, or the process ends.
///
/// The lock belongs to what `open` made, and a child of `fork` has a copy of that: until it runs another program, or for its whole life. So
/// closing the file would not free the lock. The drop does, but not that of the copy in a child.
///
/// ```
/// use std::fs::{self, File};
/// use locks::FileLock;
/// let path = std::env::temp_dir().join(format!("locks-{}", std::process::id()));
/// let file = File::create(&path)?;
/// let copy = file.try_clone()?; // As a fork copies it.
/// let lock = FileLock::try_exclusive(file)?;
/// assert!(lock.is_some() && FileLock::try_exclusive(File::open(&path)?)?.is_none());
/// drop(lock);
/// assert!(FileLock::try_exclusive(File::open(&path)?)?.is_some());
/// # drop(copy);
/// fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FileLock {
    file: File,
    /// The process that has the lock.
    process: u32,
}

impl FileLock {
    /// Waits until no other process has the lock, and takes it.
    ///
    /// # Errors
    /// The error of the system: some file systems have no locks.
    pub fn exclusive(file: File) -> io::Result<Self> {
        file.lock()?;
        Ok(Self { file, process: process::id() })
    }

    /// Takes the lock. `None`: another process has it.
    ///
    /// # Errors
    /// As [`exclusive`](Self::exclusive).
    pub fn try_exclusive(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file, process: process::id() })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The locked file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl AsFd for FileLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if process::id() == self.process {
            // Without an effect where the file is closed anyway.
            let _ = self.file.unlock();
        }
    }
}
