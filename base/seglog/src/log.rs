//! The writer of a log.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use locks::{Condvar, Mutex};

use crate::append::Pending;
use crate::error::{AppendError, FileError, OpenError, SyncError};
use crate::format;
use crate::mark::{MarkWriter, Marks};
use crate::options::Options;
use crate::reader::Reader;
use crate::recover::{self, Found, Recovery};
use crate::segments;
use crate::shared::{AfterSync, Shared, State, Stats};
use crate::storage::{OsStorage, Storage};
use crate::ticker::Ticker;
use crate::writer::Writer;

/// The writer of a log. A log has one writer, in all processes.
///
/// Readers come from [`reader`](Self::reader), work in other threads, and outlive the writer. Dropping the writer syncs; an error of
/// that is lost, so call [`close`](Self::close) to know.
#[derive(Debug)]
pub struct Log {
    writer: Writer,
    recovery: Recovery,
}

impl Log {
    /// Opens the log in a directory, and makes both if they do not exist.
    ///
    /// After a crash the log has a prefix of what was appended, which includes all that was durable, and goes on behind all that was
    /// appended: no position is used twice. What is missing is a hole. [`recovery`](Self::recovery) tells what was cut and what is
    /// missing. Everything that the log then has is durable.
    ///
    /// # Errors
    /// [`OpenError::Locked`] if there is another writer. An error changes nothing that was durable.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(OsStorage), dir, options)
    }

    /// The same on another storage, for example on one that fails, in a test.
    pub fn open_on(
        storage: Arc<dyn Storage>,
        dir: impl AsRef<Path>,
        options: Options,
    ) -> Result<Self, OpenError> {
        options.check()?;
        let dir = dir.as_ref();
        storage.create_dir(dir).map_err(FileError::new("create", dir))?;
        let lock_path = dir.join(format::LOCK_FILE);
        let lock = storage.lock(&lock_path).map_err(FileError::new("lock", &lock_path))?;
        let Some(lock) = lock else { return Err(OpenError::Locked(dir.to_owned())) };
        let boot = storage.boot();
        let marks = Marks::read(&*lock, boot).map_err(FileError::new("read", &lock_path))?;
        let found = match recover::recover(&*storage, dir, &options, &marks, true)? {
            Some(found) => {
                // A rename of the last process may not be durable yet.
                storage.sync_dir(dir).map_err(FileError::new("sync", dir))?;
                found
            }
            None => first_segment(&*storage, dir, &options)?,
        };
        let Found { log_id, segments, recovery } = found;
        let end = segments.back().map_or(options.first_position, |last| last.records.end);
        let mut state = State::new(segments, end, end);
        recovery.damaged.iter().for_each(|range| state.note_damage(range.clone()));
        let interval = options.sync.interval();
        let shared = Arc::new(Shared {
            storage,
            dir: dir.to_owned(),
            options,
            log_id,
            state: Mutex::new(state),
            changed: Condvar::new(),
            sync_turn: Mutex::new(()),
            follows: None,
            after_sync: OnceLock::new(),
            mark: Some(MarkWriter::new(lock, log_id, boot)),
            missing: end..end,
        });
        let ticker = interval.map(|interval| Ticker::new(Arc::clone(&shared), interval)).transpose();
        let ticker = ticker.map_err(FileError::new("start the sync thread for", dir))?;
        let mut log = Self { writer: Writer::new(shared, ticker), recovery };
        log.begin_behind_the_missing()?;
        Ok(log)
    }

    /// Appends holes for what the segments do not have of the end of the log, and marks the log as it is then.
    fn begin_behind_the_missing(&mut self) -> Result<(), FileError> {
        let (kept, appended) = (self.recovery.unsynced.start, self.recovery.unsynced.end);
        let holes = [Pending::lost(kept), Pending::batch(appended, &[])];
        let end = self.end();
        for hole in holes.into_iter().filter(|_| appended > end) {
            self.writer.write(&[hole]).map_err(|error| self.file_error("complete", error))?;
        }
        if appended > end {
            self.sync().map_err(|error| error.source)?;
        }
        if let Some(mark) = &self.writer.shared.mark {
            mark.begin(self.end(), self.durable());
        }
        Ok(())
    }

    /// The failed operation of an append that the log makes by itself.
    fn file_error(&self, action: &'static str, error: AppendError) -> FileError {
        match error {
            AppendError::NotWritten { source, .. } | AppendError::NotDurable { source, .. } => source,
            other => FileError::new(action, &self.writer.shared.dir)(std::io::Error::other(other)),
        }
    }

    /// The findings of the opening of the log.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The random name of this log, which it got when it was made. A position means something only together with it.
    pub fn id(&self) -> [u8; 16] {
        self.writer.shared.log_id
    }

    /// A reader, which also waits for the end and for durability.
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.writer.shared))
    }

    /// The first position that is kept.
    pub fn first(&self) -> u64 {
        self.writer.first()
    }

    /// The position after the last appended byte, where the next batch goes.
    pub fn end(&self) -> u64 {
        self.writer.end()
    }

    /// When the last batch was appended, in milliseconds since 1970, as readers learn it; 0 before the first one since the log was opened.
    pub fn last_time(&self) -> u64 {
        self.writer.shared.state.lock().last_time
    }

    /// The bytes below this position are on the disk.
    pub fn durable(&self) -> u64 {
        self.writer.durable()
    }

    /// Counters since the log was opened.
    pub fn stats(&self) -> Stats {
        self.writer.shared.stats()
    }

    /// Appends a batch at the end. Returns its position. An empty batch is nothing.
    pub fn append(&mut self, batch: &[u8]) -> Result<u64, AppendError> {
        let position = self.end();
        self.append_at(position, batch)?;
        Ok(position)
    }

    /// Appends a batch at a position. Returns the new end. The range between the old end and the position becomes a
    /// hole, which readers are told of and nothing can fill.
    pub fn append_at(&mut self, position: u64, batch: &[u8]) -> Result<u64, AppendError> {
        self.append_parts(position, &[batch])
    }

    /// Appends one batch that lies in several parts of memory, as [`append_at`](Self::append_at) does.
    pub fn append_parts(&mut self, position: u64, parts: &[&[u8]]) -> Result<u64, AppendError> {
        self.writer.write(&[Pending::batch(position, parts)])
    }

    /// Appends many batches, each at its position, with one system call where they fit into the segment. After an error the log has
    /// the first of them, as the end in the error tells.
    pub fn append_many(&mut self, batches: &[(u64, &[u8])]) -> Result<u64, AppendError> {
        let parts: Vec<[&[u8]; 1]> = batches.iter().map(|(_, batch)| [*batch]).collect();
        let pending: Vec<Pending> = batches
            .iter()
            .zip(&parts)
            .map(|((position, _), parts)| Pending::batch(*position, parts))
            .collect();
        self.writer.write(&pending)
    }

    /// Makes the positions from the end to this one a hole. Returns the new end.
    pub fn append_hole(&mut self, to: u64) -> Result<u64, AppendError> {
        self.writer.write(&[Pending::batch(to, &[])])
    }

    /// Makes everything durable that was appended. After an earlier failure, what was not durable is first written anew to another
    /// file. Returns the durable end.
    pub fn sync(&mut self) -> Result<u64, SyncError> {
        self.writer.repair()?;
        let durable = self.durable();
        self.writer.cut_torn().map_err(|source| SyncError { durable, source })?;
        self.writer.shared.sync()
    }

    /// Has everything that was appended made durable soon, and not only at the end of the interval. The threads that
    /// sync in intervals do this work, and the call waits for nothing. [`Log::after_sync`] tells when the sync is done,
    /// and [`Log::durable`] and [`Log::sync_failed`] how it went. Calls before that sync begins are one with it. With a
    /// policy that has no interval the call does nothing.
    pub fn sync_soon(&mut self) {
        if let Some(ticker) = &mut self.writer.ticker {
            ticker.hurry();
        }
    }

    /// Has a function called after each sync by the threads that sync in intervals, whether the sync succeeded or
    /// failed. Such a thread calls the function without a lock of the log. The function should return soon: syncs of
    /// other logs may wait for it. The first function stays.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use seglog::{Log, Options, SyncPolicy};
    ///
    /// let dir = tempfile::tempdir()?;
    /// let hour = SyncPolicy::Interval(Duration::from_secs(3600));
    /// let mut log = Log::open(dir.path(), Options::default().sync(hour))?;
    /// let (synced, wait) = mpsc::sync_channel(1);
    /// log.after_sync(move || drop(synced.try_send(())));
    /// log.append(b"now")?;
    /// log.sync_soon();
    /// wait.recv()?;
    /// assert_eq!(log.durable(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn after_sync(&self, call: impl Fn() + Send + Sync + 'static) {
        // A second function is dropped.
        let _ = self.writer.shared.after_sync.set(AfterSync(Box::new(call)));
    }

    /// Whether the last sync failed. Nothing more becomes durable then before an append or [`Log::sync`] has written the last segment
    /// anew.
    pub fn sync_failed(&self) -> bool {
        self.writer.shared.state.lock().suspect
    }

    /// Removes segments as the limits of [`Retention`](crate::Retention) say. Returns the first position that is kept.
    pub fn apply_retention(&mut self) -> Result<u64, FileError> {
        self.writer.roll_old().map_err(|error| self.file_error("complete the last segment of", error))?;
        self.writer.retain()
    }

    /// Keeps retention from removing anything at a position or behind it, until the next call. A log that was opened has no such position.
    ///
    /// ```
    /// use seglog::{Log, Options, Retention};
    ///
    /// let dir = tempfile::tempdir()?;
    /// let retention = Retention { max_segments: Some(1), ..Retention::default() };
    /// let mut log = Log::open(dir.path(), Options::default().segment_bytes(4096).retention(retention))?;
    /// log.hold_from(1_000);
    /// (0..10).try_for_each(|_| log.append(&[0; 1_000]).map(drop))?;
    /// assert!(log.first() <= 1_000 && log.is_held());
    /// log.hold_from(log.end());
    /// assert!(log.apply_retention()? > 1_000 && !log.is_held());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold_from(&mut self, position: u64) {
        (self.writer.held_from, self.writer.is_held) = (position, false);
    }

    /// Whether retention would have removed more since the last [`Log::hold_from`].
    pub fn is_held(&self) -> bool {
        self.writer.is_held
    }

    /// Removes the complete segments that lie wholly below a position, whatever the limits say. Returns the first position that is
    /// kept.
    pub fn release(&mut self, below: u64) -> Result<u64, FileError> {
        self.writer.remove_while(|state| state.limit(0) <= below)
    }

    /// Removes the first segment, if it is complete and lies wholly below a position. Returns whether it was removed. [`Log::release`] waits for the disk
    /// for each of its segments, and this for one.
    pub fn release_one(&mut self, below: u64) -> Result<bool, FileError> {
        let first = self.first();
        Ok(self.writer.remove_while(|state| state.first() == first && state.limit(0) <= below)? != first)
    }

    /// Syncs and closes the log. Readers go on with the log as it is.
    pub fn close(mut self) -> Result<u64, SyncError> {
        self.writer.ticker = None;
        self.sync()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.writer.ticker = None;
        // `close` is there for callers that want to know.
        let _ = self.sync();
        if let Some(mark) = &self.writer.shared.mark {
            mark.settle(self.end(), self.durable());
            mark.close();
        }
        self.writer.shared.change(|state| state.writer = false);
        // Readers that wait for durability alone are not counted as waiting for the end.
        self.writer.shared.changed.notify_all();
    }
}

fn first_segment(storage: &dyn Storage, dir: &Path, options: &Options) -> Result<Found, OpenError> {
    let log_id = match options.log_id {
        Some(log_id) => log_id,
        None => {
            let mut log_id = [0; 16];
            storage.random(&mut log_id).map_err(FileError::new("name", dir))?;
            log_id
        }
    };
    let segment = segments::create(storage, dir, options.first_position, log_id)?;
    Ok(Found {
        log_id,
        segments: [segment].into(),
        recovery: Recovery { segments: 1, ..Recovery::default() },
    })
}
