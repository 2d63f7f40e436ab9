//! The journal of a gateway: sessions and retained messages, which outlive the process.
//!
//! ```text
//!   sessions, retained ── changes ──▶ notes ── once a round, before clients are told ──▶ log (seglog)
//!                      ── everything, in pieces: a snapshot, when the log has grown ───▶    │
//!                      ◀──────────────── the last complete snapshot and what follows ───────┘
//! ```
//!
//! A snapshot that makes the log smaller is written in steps, between the notes of rounds: what has changed meanwhile is in both, and the log is
//! as good as before until the last piece is there. A session is in one step. Before that, changes of it are not the snapshot's, and behind it they
//! are; a change of a session that began meanwhile is the snapshot's too. A message has one number in both.
//!
//! The notes of a round are one batch of the log, which a crash leaves whole or not at all. So a client is told nothing that the next
//! process would not know. A snapshot is some batches behind each other, and counts as soon as the last of them is there; what was before
//! it is removed as soon as it is on the disk. A snapshot that only makes the log smaller can fail, as on a full disk: then the log goes on
//! as it was. What is noted while the log takes nothing is forgotten, and the next attempt is a snapshot: memory does not grow.
//!
//! A batch has a head of 8 bytes and entries ([`entry`]):
//!
//! | Offset | Bytes | What |
//! |---|---|---|
//! | 0 | 1 | version, 3; 2 had no snapshots in steps, 1 no wills |
//! | 1 | 1 | 0: changes; 1: a piece of a snapshot |
//! | 2 | 1 | of a snapshot: 1 the first piece, 2 the last one, 3 both; of changes: 4, if a snapshot before them was given up; of both: 8, the snapshot is written in steps, and not complete before |
//! | 3 | 1 | 0 |
//! | 4 | 4 | of a snapshot: the number of the piece, from 0 |

pub(super) mod entry;
mod notes;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use seglog::storage::{OsStorage, Storage};
use seglog::{AppendError, Log, OpenError, Options, Read, ReadError, SyncPolicy};
use tracing::{info, warn};

use entry::{Entries, Entry};
pub(super) use notes::Notes;

/// The version of the entries.
const VERSION: u8 = 3;

/// The bytes of a batch before its entries.
const HEAD: usize = 8;

const CHANGES: u8 = 0;
const SNAPSHOT: u8 = 1;
const FIRST: u8 = 1;
const LAST: u8 = 2;
const GIVEN_UP: u8 = 4;
const JOINED: u8 = 8;

/// Bytes of a segment file: what is below the last snapshot is removed in segments.
const SEGMENT_BYTES: u64 = 4 << 20;

/// A piece of a snapshot ends with the session or message that makes it so large.
const PIECE_BYTES: usize = 1 << 20;

/// Notes of so many bytes are written before the end of the round.
const MANY_BYTES: usize = 4 << 20;

/// Bytes behind a snapshot before the next one; twice the snapshot, if that is more.
const SNAPSHOT_AFTER: u64 = 16 << 20;

/// How long the log is left alone after it took nothing: each time twice as long, up to [`MAX_RETRY`].
const RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Bytes of the disk that a snapshot leaves free, for what follows it.
const SPARE_BYTES: u64 = 8 << 20;

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
    /// What is before is not read.
    first: u64,
    notes: Notes,
    /// Where the last snapshot begins and ends; none: it has to be written first.
    snapshot: Option<(u64, u64)>,
    /// A snapshot that may not be on the disk yet: what is before it stays until it is.
    unreleased: Option<(u64, u64)>,
    /// Whether a snapshot is being written in steps.
    joined: bool,
    /// Bytes of changes since its last step.
    since_step: usize,
    /// Bytes behind a snapshot before the next one, at least.
    snapshot_after: u64,
    /// Bytes of a piece, at least.
    piece_bytes: usize,
    /// The log is not made smaller before its end is here: the last attempt failed.
    compact_at: u64,
    /// Whether pieces of that attempt are in the log.
    gave_up: bool,
    failing: Option<Failing>,
    /// The bytes that are free on the disk of a folder, if that is known.
    free: fn(&Path) -> Option<u64>,
}

/// The log takes nothing.
#[derive(Debug, Clone, Copy)]
struct Failing {
    since: Instant,
    /// When it is tried again.
    retry: Instant,
    /// How long after the last attempt that is.
    pause: Duration,
}

/// What a batch of the journal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// Changes. A snapshot that is not complete before them was given up, or its end is damaged.
    Changes {
        gave_up: bool,
        /// Within a snapshot that is written in steps.
        is_joined: bool,
    },
    Piece {
        number: u32,
        is_first: bool,
        is_last: bool,
        is_joined: bool,
    },
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

impl Pieces {
    /// Their bytes so far.
    pub(in crate::mqtt) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Journal {
    /// Opens a journal, or makes it. What is written is on the disk after `sync`.
    ///
    /// # Errors
    /// Another process uses it, or the files cannot be used.
    pub(crate) fn open(dir: &Path, sync: Duration) -> Result<Self, JournalError> {
        Self::open_on(Arc::new(OsStorage), dir, sync)
    }

    /// The same on another storage.
    pub(super) fn open_on(
        storage: Arc<dyn Storage>,
        dir: &Path,
        sync: Duration,
    ) -> Result<Self, JournalError> {
        let options = Options::default()
            .segment_bytes(SEGMENT_BYTES)
            .max_batch(1 << 30)
            .sync(SyncPolicy::Interval(sync))
            .open_segments(1);
        let log = Log::open_on(storage, dir, options)?;
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
            first: log.first(),
            log,
            notes: Notes::new(),
            snapshot: None,
            unreleased: None,
            joined: false,
            since_step: 0,
            snapshot_after: SNAPSHOT_AFTER,
            piece_bytes: PIECE_BYTES,
            compact_at: 0,
            gave_up: false,
            failing: None,
            free: free_bytes,
        })
    }

    /// Snapshots come after fewer bytes.
    #[cfg(test)]
    pub(super) fn snapshot_after(mut self, bytes: u64) -> Self {
        self.snapshot_after = bytes;
        self
    }

    /// Pieces of snapshots are so small.
    #[cfg(test)]
    pub(super) fn piece_bytes(mut self, bytes: usize) -> Self {
        self.piece_bytes = bytes;
        self
    }

    /// Reads from here on.
    #[cfg(test)]
    pub(super) fn first(mut self, first: u64) -> Self {
        self.first = self.first.max(first);
        self
    }

    /// Where the last snapshot begins that is complete: nothing before it is needed.
    #[cfg(test)]
    pub(super) fn needed_from(&self) -> u64 {
        self.snapshot.map_or(0, |(begin, _)| begin)
    }

    /// The disk has as many free bytes as this function says.
    #[cfg(test)]
    pub(super) fn free(mut self, free: fn(&Path) -> Option<u64>) -> Self {
        self.free = free;
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
        let (mut reader, mut position) = (self.log.reader(), self.first);
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
        let is_joined = flags & JOINED != 0;
        to.on_batch(match kind {
            SNAPSHOT => Batch::Piece {
                number: u32::from_le_bytes(number),
                is_first: flags & FIRST != 0,
                is_last: flags & LAST != 0,
                is_joined,
            },
            _ => Batch::Changes { gave_up: flags & GIVEN_UP != 0, is_joined },
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
        self.failing.map(|failing| failing.retry).filter(|retry| *retry > now)
    }

    /// Whether so much is noted that it is to be written.
    pub(super) fn has_many_notes(&self) -> bool {
        self.notes.len() >= MANY_BYTES
    }

    /// Whether the log has grown so much that a snapshot makes it smaller, or needs one.
    pub(super) fn wants_snapshot(&self) -> bool {
        let Some((begin, end)) = self.snapshot else { return true };
        let log_end = self.log.end();
        log_end >= self.compact_at && log_end - end > self.snapshot_after.max(2 * (end - begin))
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
        self.since_step += bytes.len();
        let flags = if self.gave_up { GIVEN_UP } else { 0 } | self.joined();
        let appended = self.append([VERSION, CHANGES, flags, 0], 0, &bytes);
        self.notes.give_back(bytes);
        self.settle(appended, now)
    }

    /// Whether a snapshot of at most so many bytes has room on the disk in any case.
    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        (self.free)(&self.dir).is_none_or(|free| free >= bytes + bytes / 8 + SPARE_BYTES)
    }

    /// A snapshot is to be noted from here on, or only measured.
    pub(super) fn begin_snapshot(&mut self, is_measured: bool) -> Pieces {
        self.notes.begin_snapshot();
        Pieces { begin: self.log.end(), number: 0, bytes: 0, is_measured, is_written: false, failed: None }
    }

    /// A snapshot is to be noted in steps from here on, after what was noted before is written.
    pub(super) fn join_snapshot(&mut self) -> Pieces {
        self.notes.join_snapshot();
        (self.joined, self.since_step) = (true, 0);
        Pieces {
            begin: self.log.end(),
            number: 0,
            bytes: 0,
            is_measured: false,
            is_written: false,
            failed: None,
        }
    }

    /// Whether a step has noted enough since there were so many bytes of pieces: as much as others have changed meanwhile, so that the snapshot ends.
    pub(super) fn is_step(&self, pieces: &Pieces, before: u64) -> bool {
        let bytes = pieces.bytes - before + self.notes.len() as u64;
        pieces.failed.is_some() || bytes >= self.piece_bytes.max(self.since_step) as u64
    }

    /// Writes what a step has noted. Returns the pieces so far; none if that was all, or nothing more is to be written.
    pub(super) fn end_step(&mut self, mut pieces: Pieces, is_all: bool, now: Instant) -> Option<Pieces> {
        self.since_step = 0;
        if is_all || self.notes.len() > 0 {
            self.write_piece(&mut pieces, if is_all { LAST } else { 0 });
        }
        if !is_all && pieces.failed.is_none() {
            return Some(pieces);
        }
        self.end_attempt(pieces, now);
        None
    }

    fn joined(&self) -> u8 {
        if self.joined { JOINED } else { 0 }
    }

    /// Writes what was noted of a snapshot, if it is much.
    pub(super) fn go_on(&mut self, pieces: &mut Pieces) {
        if self.notes.len() >= self.piece_bytes {
            self.write_piece(pieces, 0);
        }
    }

    /// Everything was noted of a snapshot that is measured. Returns whether it has room; then it is to be written.
    pub(super) fn end_measuring(&mut self, mut pieces: Pieces, now: Instant) -> bool {
        self.write_piece(&mut pieces, LAST);
        if self.has_room_for(pieces.bytes) {
            return true;
        }
        pieces.failed = Some(self.no_room(pieces.bytes));
        self.end_attempt(pieces, now);
        false
    }

    /// Everything was noted of a snapshot.
    pub(super) fn end_snapshot(&mut self, mut pieces: Pieces, now: Instant) {
        self.write_piece(&mut pieces, LAST);
        self.end_attempt(pieces, now);
    }

    fn end_attempt(&mut self, pieces: Pieces, now: Instant) {
        let Pieces { begin, failed, is_written, .. } = pieces;
        self.joined = false;
        let Some(error) = failed else {
            self.notes.end_snapshot();
            let end = self.log.end();
            (self.snapshot, self.unreleased) = (Some((begin, end)), Some((begin, end)));
            (self.gave_up, self.compact_at) = (false, 0);
            _ = self.settle(Ok(()), now);
            self.log.sync_soon();
            return;
        };
        let Some((old_begin, old_end)) = self.snapshot else {
            _ = self.settle(Err(error), now);
            return;
        };
        // Everything is in the log as it was before. What pieces say of messages does not count.
        warn!("{}: the journal cannot be made smaller now, and grows: {error}", self.dir.display());
        self.gave_up |= is_written;
        self.compact_at = self.log.end() + self.snapshot_after.max(old_end - old_begin);
        self.notes.begin_snapshot();
    }

    /// Removes what is before a snapshot, once that is on the disk.
    pub(super) fn release(&mut self) {
        let durable = self.log.durable();
        if let Some((begin, _)) = self.unreleased.take_if(|(_, end)| *end <= durable)
            && let Err(error) = self.log.release(begin)
        {
            warn!("{error}");
        }
    }

    fn no_room(&self, bytes: u64) -> AppendError {
        let free = (self.free)(&self.dir).unwrap_or(0);
        let text = format!("it needs {bytes} bytes, and {free} are free on the disk");
        let source =
            seglog::FileError { action: "write", path: self.dir.clone(), source: io::Error::other(text) };
        AppendError::NotWritten { end: self.log.end(), source }
    }

    fn write_piece(&mut self, pieces: &mut Pieces, flags: u8) {
        let bytes = self.notes.take();
        pieces.bytes += (HEAD + bytes.len()) as u64;
        if !pieces.is_measured && pieces.failed.is_none() {
            let flags = flags | if pieces.number == 0 { FIRST } else { 0 } | self.joined();
            let written = self.append([VERSION, SNAPSHOT, flags, 0], pieces.number, &bytes);
            pieces.is_written |= written.is_ok();
            pieces.failed = written.err();
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
            (Ok(()), Some(Failing { since, .. })) => {
                let seconds = now.saturating_duration_since(since).as_secs();
                info!("{dir}: the journal works again, after {seconds} s");
                self.failing = None;
                return true;
            }
            (Err(error), None) => {
                warn!("{dir}: the clients of the gateway wait, as the journal takes nothing: {error}");
                self.failing = Some(Failing { since: now, retry: now + RETRY, pause: RETRY });
            }
            (Err(_), Some(Failing { since, pause, .. })) => {
                let pause = (2 * pause).min(MAX_RETRY);
                self.failing = Some(Failing { since, retry: now + pause, pause });
            }
        }
        (self.snapshot, self.joined) = (None, false);
        self.notes.pause();
        false
    }
}

/// A snapshot that is being written.
#[derive(Debug)]
pub(in crate::mqtt) struct Pieces {
    begin: u64,
    number: u32,
    /// Their bytes so far.
    bytes: u64,
    /// Nothing is written.
    is_measured: bool,
    /// At least one is in the log.
    is_written: bool,
    failed: Option<AppendError>,
}

/// The bytes that are free on the disk of a folder, for programs without rights of their own.
fn free_bytes(dir: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(dir).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}
