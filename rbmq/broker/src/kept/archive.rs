//! The contract of an archive: where the logs of kept topics go on below the oldest position of the disk, as in Apache Kafka or an
//! object store.

use std::ops::Range;
use std::sync::Arc;

use rbmq_wire::TopicName;
use rocketbufs::{Epoch, Position};

/// A log that an archive shall have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchivedLog {
    /// The topic, to be shown to people. Several logs can have the same topic, one after the other or at several brokers.
    pub topic: TopicName,
    /// The random name of the log. No other log has it.
    pub epoch: Epoch,
    /// Where an archive begins that has nothing of the log: the oldest position on the disk.
    pub first: Position,
}

/// The most letters of a topic in the names that archives make. Kafka allows 249 for all.
const MAX_LETTERS: usize = 120;

impl ArchivedLog {
    /// A log that begins here on the disk.
    pub fn new(topic: TopicName, epoch: Epoch, first: Position) -> Self {
        Self { topic, epoch, first }
    }

    /// The topic in the letters, digits, `-` and `_` that names in every archive may have. Two topics can have the same; their logs have not.
    pub fn letters(&self) -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        self.topic.as_str().chars().take(MAX_LETTERS).map(letter).collect()
    }
}

/// Why an archive does not do what it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The archive does not answer, or has no room. The same call may succeed later.
    #[error("{0}")]
    Down(String),
    /// The archive will not take or give this log before the configuration or its contents change. The broker stops asking.
    #[error("{0}")]
    Refused(String),
}

/// The answer of an archive to a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveRead {
    /// So many bytes were copied, at least one. More may follow.
    Bytes(usize),
    /// Nothing, and there never will be: the log goes on here.
    Hole {
        /// The end of the hole.
        to: Position,
    },
    /// The position was removed: the archive begins here, with a batch.
    Removed {
        /// The first position that is there.
        first: Position,
    },
    /// The archive ends here or before.
    End,
}

/// Keeps logs beyond the disk of the broker: see [`Parts::archive`](crate::Parts::archive). The calls come from
/// threads of their own that may wait, but not for ever.
pub trait Archive: Send + Sync {
    /// Opens a log, or makes it. The same log may be opened again. A call that asks a store several times ends before the next time
    /// when `is_stopped`: the broker stops, and waits for it.
    ///
    /// # Errors
    /// [`ArchiveError`].
    fn open(
        &self,
        log: &ArchivedLog,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Arc<dyn ArchiveLog>, ArchiveError>;

    /// The name of the log that a topic has at all brokers of a cluster, one after the other. A topic without one gets this name: of brokers
    /// that ask at the same time, all hear the same.
    ///
    /// # Errors
    /// [`ArchiveError`]. An archive with which no broker can go on where another one has stopped refuses it.
    fn name_of(&self, cluster: &str, topic: &TopicName, new: Epoch) -> Result<Epoch, ArchiveError> {
        let _ = (cluster, topic, new);
        Err(ArchiveError::Refused(
            "with this archive no broker can go on where another one has stopped".into(),
        ))
    }
}

/// A log in an archive. Readers and one writer may call at the same time.
pub trait ArchiveLog: Send + Sync {
    /// The positions that the archive has, as far as it knows without asking anybody.
    fn kept(&self) -> Range<Position>;

    /// Appends a batch at a position. Bytes below the end are there already and dropped, positions between the end and the batch
    /// become a hole; a batch without bytes is only the end of a hole. The bytes are kept when the call returns. After an error they
    /// may be kept or not, also in part: the caller appends them again.
    ///
    /// A log begins with the beginning of a batch: where the archive removes old bytes, it removes whole batches.
    ///
    /// # Errors
    /// [`ArchiveError`].
    fn append(&self, position: Position, bytes: &[u8]) -> Result<(), ArchiveError>;

    /// Appends a batch with a note, which is kept with it, whole or not at all.
    ///
    /// # Errors
    /// [`ArchiveError`].
    fn append_with(&self, position: Position, bytes: &[u8], note: &[u8]) -> Result<(), ArchiveError> {
        let _ = note;
        self.append(position, bytes)
    }

    /// The note of the last batch, as far as it is known without asking anybody. Empty: it has none.
    fn note(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Keeps a note for the end of the log, whose last batch has none, as that of a log which could not go on elsewhere before. One that is there stays.
    ///
    /// # Errors
    /// [`ArchiveError`].
    fn note_end(&self, note: &[u8]) -> Result<(), ArchiveError> {
        let _ = note;
        Ok(())
    }

    /// The note of the end of the log: that of the last batch, or else the one of [`note_end`](Self::note_end), which the archive is asked for.
    ///
    /// # Errors
    /// [`ArchiveError`].
    fn noted(&self) -> Result<Vec<u8>, ArchiveError> {
        Ok(self.note())
    }

    /// Copies bytes from a position on, as many as there are and have room, across batches.
    ///
    /// # Errors
    /// [`ArchiveError`].
    fn read(&self, position: Position, out: &mut [u8]) -> Result<ArchiveRead, ArchiveError>;
}
