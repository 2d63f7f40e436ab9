//! The journal of a gateway: sessions and retained messages, which outlive the process.
//!
//! ```text
//!   sessions, retained ── changes ──▶ notes ── once a round, before clients are told ──▶ log (seglog)
//!                      ── everything, in pieces: a snapshot, when the log has grown ───▶    │
//!                      ◀──────────────── the last complete snapshot and what follows ───────┘
//! ```
//!
//! The notes of a round are one batch of the log, which a crash leaves whole or not at all. So a client is told nothing that the next
//! process would not know. A snapshot is some batches behind each other, and counts as soon as the last of them is there; then what was
//! before it is removed. What is noted while the log takes nothing is forgotten, and the next attempt is a snapshot: memory does not grow.
//!
//! A batch has a head of 8 bytes and entries ([`entry`]):
//!
//! | Offset | Bytes | What |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 1 | 0: changes; 1: a piece of a snapshot |
//! | 2 | 1 | of a snapshot: 1 the first piece, 2 the last one, 3 both |
//! | 3 | 1 | 0 |
//! | 4 | 4 | of a snapshot: the number of the piece, from 0 |

pub(super) mod entry;
mod notes;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use seglog::{AppendError, Log, OpenError, Options, Read, ReadError, SyncPolicy};
use tracing::{info, warn};

use entry::{Entries, Entry};
pub(super) use notes::Notes;

/// The version of the entries.
const VERSION: u8 = 1;

/// The bytes of a batch before its entries.
const HEAD: usize = 8;

const CHANGES: u8 = 0;
const SNAPSHOT: u8 = 1;
const FIRST: u8 = 1;
const LAST: u8 = 2;

/// Bytes of a segment file: what is below the last snapshot is removed in segments.
const SEGMENT_BYTES: u64 = 4 << 20;

/// A piece of a snapshot ends with the session or message that makes it so large.
const PIECE_BYTES: usize = 1 << 20;

/// Notes of so many bytes are written before the end of the round.
const MANY_BYTES: usize = 4 << 20;

/// Bytes behind a snapshot before the next one; twice the snapshot, if that is more.
const SNAPSHOT_AFTER: u64 = 16 << 20;

/// How long the log is left alone after it took nothing.
const RETRY: Duration = Duration::from_millis(500);

/// The journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// The log.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A newer program wrote it.
    #[error("{}: its version is {version}, and this program knows {VERSION}", dir.display())]
    Version {
        /// The folder.
        dir: PathBuf,
        /// The version.
        version: u8,
    },
}

/// A journal that is open.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    log: Log,
    notes: Notes,
    /// Where the last snapshot begins and ends; none: it has to be written first.
    snapshot: Option<(u64, u64)>,
    /// Bytes behind a snapshot before the next one, at least.
    snapshot_after: u64,
    /// When the log took nothing, and when it is tried again.
    failing: Option<(Instant, Instant)>,
}

/// What a batch of the journal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    Changes,
    Piece { number: u32, is_first: bool, is_last: bool },
}

/// What a reader of the journal meets.
pub(super) trait Replay {
    /// A batch begins.
    fn on_batch(&mut self, batch: Batch);
    /// Its next entry.
    fn on_entry(&mut self, entry: Entry<'_>);
    /// Bytes are damaged.
    fn on_damage(&mut self);
}

impl Journal {
    /// Opens a journal, or makes it. What is written is on the disk after `sync`.
    ///
    /// # Errors
    /// Another process uses it, or the files cannot be used.
    pub(crate) fn open(dir: &Path, sync: Duration) -> Result<Self, JournalError> {
        let options = Options::default()
            .segment_bytes(SEGMENT_BYTES)
            .max_batch(1 << 30)
            .sync(SyncPolicy::Interval(sync))
            .open_segments(1);
        let log = Log::open(dir, options)?;
        let recovery = log.recovery();
        let (damaged, torn) = (recovery.damaged_bytes(), recovery.torn_bytes);
        let unsynced = recovery.unsynced.end - recovery.unsynced.start;
        if damaged + unsynced > 0 {
            warn!(
                "{}: {damaged} bytes of the journal are damaged or missing, and {unsynced} were not on the disk when the machine \
                 stopped; sessions may miss messages or get them twice, and retained messages may be old",
                dir.display()
            );
        }
        if torn > 0 {
            info!("{}: {torn} bytes at the end were not written whole, and are cut", dir.display());
        }
        Ok(Self {
            dir: dir.to_owned(),
            log,
            notes: Notes::new(),
            snapshot: None,
            snapshot_after: SNAPSHOT_AFTER,
            failing: None,
        })
    }

    /// Snapshots come after fewer bytes.
    #[cfg(test)]
    pub(super) fn snapshot_after(mut self, bytes: u64) -> Self {
        self.snapshot_after = bytes;
        self
    }

    /// The bytes of its files.
    #[cfg(test)]
    pub(super) fn file_bytes(&self) -> u64 {
        self.log.stats().file_bytes
    }

    /// The folder.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where changes are noted.
    pub(super) fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Reads the journal from its beginning.
    pub(super) fn replay(&self, to: &mut impl Replay) -> Result<(), JournalError> {
        let (mut reader, mut position) = (self.log.reader(), self.log.first());
        loop {
            position = match reader.read(position)? {
                Read::Batch(batch) => {
                    self.replay_batch(&batch.bytes, to)?;
                    batch.end()
                }
                Read::Hole(hole) => {
                    to.on_damage();
                    hole.range.end
                }
                Read::Removed { first } => first,
                _ => return Ok(()),
            };
        }
    }

    fn replay_batch(&self, bytes: &[u8], to: &mut impl Replay) -> Result<(), JournalError> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
            to.on_damage();
            return Ok(());
        };
        let [version, kind, flags, _, number @ ..] = *head;
        if version > VERSION {
            return Err(JournalError::Version { dir: self.dir.clone(), version });
        }
        to.on_batch(match kind {
            SNAPSHOT => Batch::Piece {
                number: u32::from_le_bytes(number),
                is_first: flags & FIRST != 0,
                is_last: flags & LAST != 0,
            },
            _ => Batch::Changes,
        });
        let mut entries = Entries::of(rest);
        while let Some(entry) = entries.next() {
            to.on_entry(entry);
        }
        if !entries.is_empty() {
            to.on_damage();
        }
        Ok(())
    }

    /// Whether the log takes nothing.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// When the log is tried again; none: it works, or it is time.
    pub(super) fn waits_until(&self, now: Instant) -> Option<Instant> {
        self.failing.map(|(_, retry)| retry).filter(|retry| *retry > now)
    }

    /// Whether so much is noted that it is to be written.
    pub(super) fn has_many_notes(&self) -> bool {
        self.notes.len() >= MANY_BYTES
    }

    /// Whether the log has grown so much that a snapshot makes it smaller, or needs one.
    pub(super) fn wants_snapshot(&self) -> bool {
        let Some((begin, end)) = self.snapshot else { return true };
        self.log.end() - end > self.snapshot_after.max(2 * (end - begin))
    }

    /// Writes what was noted. Returns whether it is in the log.
    pub(super) fn write(&mut self, now: Instant) -> bool {
        if self.snapshot.is_none() {
            return false;
        }
        let bytes = self.notes.take();
        if bytes.is_empty() {
            return true;
        }
        let appended = self.append([VERSION, CHANGES, 0, 0], 0, &bytes);
        self.notes.give_back(bytes);
        self.settle(appended, now)
    }

    /// A snapshot is to be noted from here on.
    pub(super) fn begin_snapshot(&mut self) -> Pieces {
        self.snapshot = None;
        self.notes.begin_snapshot();
        Pieces { begin: self.log.end(), number: 0, failed: None }
    }

    /// Writes what was noted of a snapshot, if it is much.
    pub(super) fn go_on(&mut self, pieces: &mut Pieces) {
        if self.notes.len() >= PIECE_BYTES {
            self.write_piece(pieces, 0);
        }
    }

    /// Everything was noted. Returns whether the snapshot is in the log.
    pub(super) fn end_snapshot(&mut self, mut pieces: Pieces, now: Instant) -> bool {
        self.write_piece(&mut pieces, LAST);
        let begin = pieces.begin;
        if !self.settle(pieces.failed.map_or(Ok(()), Err), now) {
            return false;
        }
        self.snapshot = Some((begin, self.log.end()));
        if let Err(error) = self.log.release(begin) {
            warn!("{error}");
        }
        true
    }

    fn write_piece(&mut self, pieces: &mut Pieces, flags: u8) {
        let bytes = self.notes.take();
        if pieces.failed.is_none() {
            let flags = flags | if pieces.number == 0 { FIRST } else { 0 };
            pieces.failed = self.append([VERSION, SNAPSHOT, flags, 0], pieces.number, &bytes).err();
        }
        pieces.number += 1;
        self.notes.give_back(bytes);
    }

    fn append(&mut self, head: [u8; 4], number: u32, bytes: &[u8]) -> Result<(), AppendError> {
        match self.log.append_parts(self.log.end(), &[&head, &number.to_le_bytes(), bytes]) {
            // It is in the log, which repairs itself with the next batch.
            Err(error @ AppendError::NotDurable { .. }) => {
                warn!("{}: {error}", self.dir.display());
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// Tells people when the log fails, and when it works again.
    fn settle(&mut self, appended: Result<(), AppendError>, now: Instant) -> bool {
        let dir = self.dir.display();
        match (appended, self.failing) {
            (Ok(()), None) => return true,
            (Ok(()), Some((since, _))) => {
                let seconds = now.saturating_duration_since(since).as_secs();
                info!("{dir}: the journal works again, after {seconds} s");
                self.failing = None;
                return true;
            }
            (Err(error), None) => {
                warn!("{dir}: the clients of the gateway wait, as the journal takes nothing: {error}");
                self.failing = Some((now, now + RETRY));
            }
            (Err(_), Some((since, _))) => self.failing = Some((since, now + RETRY)),
        }
        self.snapshot = None;
        self.notes.pause();
        false
    }
}

/// A snapshot that is being written.
#[derive(Debug)]
pub(super) struct Pieces {
    begin: u64,
    number: u32,
    failed: Option<AppendError>,
}
