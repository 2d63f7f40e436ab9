//! Why a topic is not kept.

use std::io;
use std::path::{Path, PathBuf};

use seglog::{AppendError, OpenError, ReadError};

use super::super::descriptors::TooFewDescriptors;

/// Why the log of a topic cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The log or the journal.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The log or the journal cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The journal cannot be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Another broker uses the folder.
    #[error("another broker uses {}", .0.display())]
    Locked(PathBuf),
    /// The system refuses a thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The rest of the descriptors is for clients.
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    /// The topic needs an archive, and has none.
    #[error("{0}")]
    Archive(String),
    /// A file of the folder.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The folder belongs to something else.
    #[error("{} is not the folder of a topic: {reason}", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// The reason why the folder cannot be used.
        reason: String,
    },
}

impl KeepError {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }
}
