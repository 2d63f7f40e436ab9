//! The journal of a group: the group as a whole now and then, and between that what has happened.
//!
//! ```text
//!   saved │ changes │ changes │ … │ saved │ changes │ …
//!   └ kept until two newer ones are on the disk, so that damage of one is made good by the one before
//! ```
//!
//! A batch is whole or not there, so a process that is killed leaves a group that was. What damage takes is told: acknowledgements
//! that are lost let their messages come again, and nothing else. So a group of named consumers goes on before the first lost part.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use seglog::storage::{OsStorage, Storage};
use seglog::{AppendError, FileError, Log, OpenError, Options, Read, ReadError, SyncError, SyncPolicy};

use crate::consumers::{Consumers, are_operations};
use crate::group::{Group, Limits};
use crate::state::{Batch, Changes, MAX_BATCH, Saved};

/// Bytes of a segment file: what is below the last two saved groups is removed in segments.
const SEGMENT_BYTES: u64 = 4 << 20;

/// Bytes of changes before the group is saved again; twice a saved group, if that is more.
const SAVE_AFTER: u64 = 1 << 20;

/// The most bytes of changes before the group is saved again: a saved group has room for what they say.
const SAVE_AFTER_AT_MOST: u64 = MAX_BATCH as u64 / 4;

/// So many segments that cannot be used are set aside when a journal is opened.
const MAX_SET_ASIDE: usize = 16;

/// What is behind the name of a segment that was set aside.
const SET_ASIDE: &str = "damaged";

/// The longest time until an acknowledgement is on the disk. A killed process loses none.
const SYNC: Duration = Duration::from_millis(500);

/// The journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process uses it, or the files cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The files cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The disk takes nothing more. The next call tries again.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The disk has not kept what it took.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// A file cannot be removed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A folder cannot be made, renamed or removed.
    #[error(transparent)]
    Folder(#[from] std::io::Error),
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    log: Log,
    /// Where the last two saved groups begin.
    saved: [u64; 2],
    /// Where the last one ends.
    saved_end: u64,
    saved_bytes: u64,
    /// What is below the first of the last two saved groups is not removed yet.
    is_unreleased: bool,
}

/// What a journal had.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The last saved group that is whole. None: the journal is new, or has none any more.
    pub saved: Option<Saved>,
    /// What has happened since.
    pub since: Vec<Changes>,
    /// The last group of named consumers, if the journal is of one: the name of its log, and the operations that make it. An empty part stands for one
    /// that is lost.
    pub consumers: Option<(u128, Vec<Vec<u8>>)>,
    /// Bytes of the journal that are damaged or were not on the disk. Acknowledgements in them are not known, so their messages come
    /// again.
    pub damaged_bytes: u64,
    /// The folder.
    pub dir: PathBuf,
}

impl Recovered {
    /// A part of the journal is lost.
    fn lack(&mut self) {
        if let Some((_, operations)) = &mut self.consumers {
            operations.push(Vec::new());
        }
    }

    /// The group, if the journal had one.
    pub fn group(self, limits: Limits) -> Option<Group> {
        Some(Group::restore(self.saved?, self.since, limits))
    }

    /// The group of named consumers, if the journal had one, and the name of its log. `began_ms`: when this process began to have it, in milliseconds
    /// since 1970.
    pub fn group_of_consumers(&self, began_ms: u64) -> Option<(u128, Consumers)> {
        let (epoch, operations) = self.consumers.as_ref()?;
        Some((*epoch, Consumers::restore(operations, began_ms)))
    }
}

impl Journal {
    /// Opens a journal, or makes it.
    ///
    /// # Errors
    /// Another process uses it, or the files cannot be used.
    pub fn open(dir: &Path) -> Result<(Self, Recovered), JournalError> {
        Self::open_on(Arc::new(OsStorage), dir)
    }

    /// The same on another storage.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_on(storage: Arc<dyn Storage>, dir: &Path) -> Result<(Self, Recovered), JournalError> {
        let options = Options::default()
            .segment_bytes(SEGMENT_BYTES)
            .max_batch(MAX_BATCH)
            .sync(SyncPolicy::Interval(SYNC))
            .open_segments(1);
        let (log, set_aside) = open_log(&storage, dir, &options)?;
        let recovery = log.recovery();
        let unsynced = recovery.unsynced.end.saturating_sub(recovery.unsynced.start);
        let damaged_bytes = recovery.damaged_bytes() + recovery.torn_bytes + unsynced + set_aside;
        let mut recovered = Recovered { damaged_bytes, dir: dir.to_owned(), ..Recovered::default() };
        let (mut saved, mut saved_end, mut reader) = ([log.first(); 2], log.first(), log.reader());
        let mut position = log.first();
        loop {
            position = match reader.read(position)? {
                Read::Batch(batch) => {
                    match Batch::decode(&batch.bytes) {
                        Some(Batch::Saved(whole)) => {
                            (saved, saved_end) = ([saved[1], batch.position], batch.end());
                            (recovered.saved, recovered.since) = (Some(whole), Vec::new());
                        }
                        Some(Batch::Changes(changes)) => recovered.since.push(changes),
                        Some(Batch::Consumers(epoch, whole)) if are_operations(&whole) => {
                            (saved, saved_end) = ([saved[1], batch.position], batch.end());
                            recovered.consumers = Some((epoch, vec![whole]));
                        }
                        Some(Batch::ConsumerChanges(changes)) if are_operations(&changes) => {
                            if let Some((_, operations)) = &mut recovered.consumers {
                                operations.push(changes);
                            }
                        }
                        _ => {
                            recovered.damaged_bytes += batch.bytes.len() as u64;
                            recovered.lack();
                        }
                    }
                    batch.end()
                }
                Read::Hole(hole) => {
                    recovered.lack();
                    hole.range.end
                }
                Read::Removed { first } => first,
                _ => break,
            };
        }
        recovered.damaged_bytes = recovered.damaged_bytes.max(log.stats().damaged_bytes + set_aside);
        Ok((Self { log, saved, saved_end, saved_bytes: 0, is_unreleased: false }, recovered))
    }

    /// Writes what has happened. When this returns, a killed process does not forget it.
    ///
    /// # Errors
    /// The disk takes nothing. The changes are to be written again.
    pub fn write(&mut self, changes: &Changes) -> Result<(), JournalError> {
        settle(self.log.append(&changes.encode()).map(drop))?;
        self.release()
    }

    /// The same for named consumers. They note that the journal has it. Nothing is removed: see [`Journal::tidy`].
    ///
    /// # Errors
    /// The disk takes nothing, and nothing is noted.
    pub fn write_consumers(&mut self, group: &mut Consumers) -> Result<(), JournalError> {
        if let Some(changes) = group.changes() {
            settle(self.log.append(changes).map(drop))?;
            group.written();
        }
        Ok(())
    }

    /// Whether there is something for [`Journal::tidy`].
    pub fn is_untidy(&self) -> bool {
        self.is_unreleased
    }

    /// Removes one file that is not needed any more, as soon as what replaces it is on the disk.
    ///
    /// # Errors
    /// The file cannot be removed. The next call tries again.
    pub fn tidy(&mut self) -> Result<(), JournalError> {
        if self.is_unreleased && self.log.durable() >= self.saved_end {
            self.is_unreleased = self.log.release_one(self.saved[0])?;
        }
        Ok(())
    }

    /// Removes what is not needed any more, as soon as what replaces it is on the disk.
    fn release(&mut self) -> Result<(), JournalError> {
        if self.is_unreleased && self.log.durable() >= self.saved_end {
            self.is_unreleased = false;
            self.log.release(self.saved[0])?;
        }
        Ok(())
    }

    /// Whether the group is to be saved as a whole, so that the journal does not grow.
    pub fn wants_save(&self) -> bool {
        self.log.end().saturating_sub(self.saved_end)
            > SAVE_AFTER.max(2 * self.saved_bytes).min(SAVE_AFTER_AT_MOST)
    }

    /// Saves the group as a whole, whose changes were all written, and removes what is not needed any more.
    ///
    /// # Errors
    /// The disk takes nothing, and the journal goes on as it was.
    pub fn save(&mut self, group: &Group, epoch: u128) -> Result<(), JournalError> {
        self.put_whole(&group.save(epoch).encode())
    }

    /// The same for named consumers.
    ///
    /// # Errors
    /// As [`Journal::save`].
    pub fn save_consumers(&mut self, group: &Consumers, epoch: u128) -> Result<(), JournalError> {
        self.put_whole(&group.save(epoch))
    }

    fn put_whole(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        let begin = self.log.end();
        settle(self.log.append(bytes).map(drop))?;
        self.saved = [self.saved[1], begin];
        (self.saved_end, self.saved_bytes) = (self.log.end(), bytes.len() as u64);
        self.is_unreleased = true;
        self.log.sync_soon();
        Ok(())
    }

    /// Writes everything to the disk, and removes what is not needed then.
    ///
    /// # Errors
    /// The disk has not kept everything.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.log.sync()?;
        self.release()
    }

    /// The bytes of its files.
    pub fn file_bytes(&self) -> u64 {
        self.log.stats().file_bytes
    }
}

/// Opens the log. A last segment whose header is damaged is set aside, since nobody can tell what it has; those before it count. Returns the
/// bytes of what was set aside.
fn open_log(storage: &Arc<dyn Storage>, dir: &Path, options: &Options) -> Result<(Log, u64), JournalError> {
    let mut bytes = 0;
    for _ in 0..MAX_SET_ASIDE {
        match Log::open_on(storage.clone(), dir, options.clone()) {
            Err(OpenError::Corrupt { path, .. }) => {
                bytes += std::fs::metadata(&path)?.len().max(1);
                std::fs::rename(&path, path.with_added_extension(SET_ASIDE))?;
            }
            other => return Ok((other?, bytes)),
        }
    }
    Ok((Log::open_on(storage.clone(), dir, options.clone())?, bytes))
}

/// A batch that is in the log and not on the disk yet is appended: the log repairs itself with the next one.
fn settle(appended: Result<(), AppendError>) -> Result<(), JournalError> {
    match appended {
        Err(AppendError::NotDurable { .. }) => Ok(()),
        other => Ok(other?),
    }
}
