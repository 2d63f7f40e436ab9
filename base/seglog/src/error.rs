//! The errors of a log, one enum for each operation.

use std::io;
use std::path::{Path, PathBuf};

/// An operation on a file that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    /// The operation that was tried, as a verb.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The operating system's error.
    pub source: io::Error,
}

impl FileError {
    pub(crate) fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { action, path: path.to_owned(), source }
    }

    /// Whether the disk, or the quota of the user, is full: the operation can succeed when there is room again.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another writer, of this process or of another one, has the log open.
    #[error("{} has a writer already", .0.display())]
    Locked(PathBuf),
    /// The options contradict each other, or a value is out of its range.
    #[error("{0}")]
    Options(String),
    /// A segment has a format that this version does not know. A newer version wrote it.
    #[error("{} has format version {version}; this program reads version {}", path.display(), crate::format::VERSION)]
    Version {
        /// The segment.
        path: PathBuf,
        /// The version of its format.
        version: u16,
    },
    /// A file is not what its name says, and the log cannot go on without it.
    #[error("{}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The reason why the log cannot use the file.
        reason: String,
    },
    /// The directory has no log.
    #[error("{} has no segments", .0.display())]
    Missing(PathBuf),
    /// The operating system refused something.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a batch was not appended, or not made durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The batch is larger than [`Options::max_batch`](crate::Options). Split it.
    #[error("a batch of {len} bytes; max_batch is {max}")]
    TooLarge {
        /// Bytes of the batch.
        len: u64,
        /// The most bytes of a batch.
        max: u64,
    },
    /// The position lies below the end of the log: the log has these bytes, or has a hole there. Nothing was written.
    #[error("position {position} lies before the end of the log, {end}")]
    Overlap {
        /// The position that was asked for.
        position: u64,
        /// The end of the log.
        end: u64,
    },
    /// Positions end at 2^64 - 1.
    #[error("the batch would end past the last position")]
    PastTheEnd,
    /// The batch was not written, and nothing of it is in the log, which is as it was. Append it again, at once or when there is room
    /// ([`FileError::is_full`]).
    #[error("the batch was not appended: {source}; the log ends at {end}")]
    NotWritten {
        /// The end of the log.
        end: u64,
        /// The failed operation.
        source: FileError,
    },
    /// The batch is in the log, and readers see it, but it may not be on the disk. Do not append it again: the next append or
    /// [`Log::sync`](crate::Log::sync) writes it anew to another file.
    #[error("the log is not durable after {durable}: {source}")]
    NotDurable {
        /// The end of the log, which includes the batch.
        end: u64,
        /// The bytes below this position are on the disk.
        durable: u64,
        /// The failed operation.
        source: FileError,
    },
}

impl AppendError {
    /// Whether the disk, or the quota of the user, is full: try again when there is room.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::NotWritten { source, .. } | Self::NotDurable { source, .. } if source.is_full())
    }
}

/// A failed sync. Bytes below `durable` are on the disk. Nothing is promised of the bytes above until a later sync
/// succeeds, which first writes them anew to another file.
#[derive(Debug, thiserror::Error)]
#[error("the log is not durable after {durable}: {source}")]
pub struct SyncError {
    /// The bytes below this position are on the disk.
    pub durable: u64,
    /// The failed operation.
    pub source: FileError,
}

/// Why a wait for durability ended without it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The time is over.
    #[error("the log is durable up to {durable}, and the time is over")]
    Timeout {
        /// The bytes below this position are on the disk.
        durable: u64,
    },
    /// A sync failed meanwhile. The writer repairs this with its next append or sync; wait again for that.
    #[error("a sync failed; the log is durable up to {durable}")]
    SyncFailed {
        /// The bytes below this position are on the disk.
        durable: u64,
    },
    /// The writer closed the log before the position was durable.
    #[error("the log was closed; it is durable up to {durable}")]
    Closed {
        /// The bytes below this position are on the disk.
        durable: u64,
    },
}

/// A failed read. Damaged data is no error but a [`Hole`](crate::Hole).
#[derive(Debug, thiserror::Error)]
#[error("cannot read position {position}: {source}")]
pub struct ReadError {
    /// The position that was asked for.
    pub position: u64,
    /// The failed operation.
    pub source: FileError,
}
