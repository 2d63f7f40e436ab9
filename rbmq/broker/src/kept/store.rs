//! The folder of a kept topic: its log, and the journal of its publishers.
//!
//! ```text
//!   keep_dir/plant%2Fsensors/
//!     topic          the topic's name
//!     log/           a seglog: what the ring of the topic had, at the same positions
//!     publishers/    a seglog: the journal
//!     archive        how far the log was copied to the archive, if there is one
//! ```
//!
//! A delivery is appended before any subscriber can see it. So a subscriber never has a position that the log does not have, unless
//! the machine itself crashed; then the log continues behind everything that a subscriber may have seen.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rbmq_wire::TopicName;
use rocketbufs::{Epoch, Position};
use seglog::storage::{OsStorage, Storage};
use seglog::{AppendError, FileError, HoleCause, Log, Options, Read, Recovery, Retention, SyncPolicy};
use tracing::{debug, info, warn};

use super::super::session_key::SessionKey;
use super::clock::Clock;
use super::error::KeepError;
use super::folder::write_name;
use super::news::{News, Stored};
use super::places::{Entry, Journaled, Place, Places};
use super::trail::{Begun, Trail};

/// Bytes of the topic's log between two snapshots of its publishers: a restarted broker reads at most so much. Fewer if fewer are kept.
const SNAPSHOT_BYTES: u64 = 16 << 20;

/// Bytes of the journal behind a snapshot, before the next one.
const JOURNAL_BYTES: u64 = 1 << 20;

/// The same at least, where the archive keeps the journal and few bytes of the log are kept.
const MIN_JOURNAL_BYTES: u64 = 4 << 10;

/// The most bytes that are not on the disk. A machine that crashes loses at most so many, and one delivery.
const UNSYNCED_BYTES: u64 = 8 << 20;

/// The most bytes of a delivery that a restarted broker has in the ring from the beginning, for `--from last`.
const LAST_BYTES: u64 = 64 << 10;

/// Segments of a topic that stay on the disk whatever `keep_bytes` says. Usually that is a quarter of what is kept; of deliveries that are larger
/// than a segment, each has one of its own, and small ones between them another.
const MIN_SEGMENTS: usize = 4;

/// The options of the store of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreOptions {
    /// The most bytes on the disk.
    pub(crate) max_bytes: Option<u64>,
    /// The longest time.
    pub(crate) max_age: Option<Duration>,
    /// How long a delivery waits for the disk.
    pub(crate) sync: Duration,
    /// The most bytes of a delivery.
    pub(crate) max_delivery: u64,
    /// The most publishers that are remembered.
    pub(crate) max_publishers: usize,
    /// The name of a new log, and where it begins. None: a random one, at 0.
    pub(crate) begin: Option<(Epoch, Position)>,
    /// Another broker may go on in the archive: the journal keeps what that has not passed.
    pub(crate) is_shared: bool,
}

impl StoreOptions {
    fn log(&self) -> Options {
        // Retention works in segments, and keeps up to one more than its limits say.
        let segment = self.max_bytes.map_or(64 << 20, |max| (max / 16).clamp(1 << 20, 64 << 20));
        Options::default()
            .segment_bytes(segment)
            .segment_age(self.max_age.map(|age| (age / 16).max(Duration::from_secs(1))))
            .max_batch(u32::try_from(self.max_delivery.clamp(16 << 20, 1 << 30)).unwrap_or(1 << 30))
            .sync(SyncPolicy::BytesOrInterval(UNSYNCED_BYTES, self.sync))
            .retention(Retention {
                max_bytes: self.max_bytes,
                min_segments: MIN_SEGMENTS,
                max_age: self.max_age,
                max_segments: None,
            })
            .open_segments(16)
            .log_id(self.begin.map(|(epoch, _)| epoch.0.to_le_bytes()))
            .first_position(self.begin.map_or(0, |(_, at)| at))
    }

    /// Bytes of the log between two snapshots: retention must not come to runs that are behind the last one.
    fn snapshot_bytes(&self) -> u64 {
        self.max_bytes.map_or(SNAPSHOT_BYTES, |max| (max / 4).min(SNAPSHOT_BYTES))
    }

    /// Bytes of the journal behind a snapshot, before the next one.
    fn journal_bytes(&self) -> u64 {
        match self.is_shared {
            true => self.snapshot_bytes().clamp(MIN_JOURNAL_BYTES, JOURNAL_BYTES),
            false => JOURNAL_BYTES,
        }
    }

    fn journal(&self) -> Options {
        Options::default()
            .segment_bytes(self.journal_bytes())
            .max_batch(1 << 30)
            .sync(SyncPolicy::Interval(self.sync))
            .open_segments(1)
    }
}

/// The contents of an opened store.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The name of the log.
    pub(crate) epoch: Epoch,
    /// The last delivery, if it is small, and where it begins; otherwise nothing, and the end of the log.
    pub(crate) last: (Position, Bytes),
    /// The publishers.
    pub(crate) places: Vec<Place>,
    /// A number that no publisher has had.
    pub(crate) next_number: u32,
}

/// The log of a kept topic, with its one writer.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    log: Log,
    journal: Log,
    places: Places,
    max_publishers: usize,
    snapshot_bytes: u64,
    journal_bytes: u64,
    boot: u128,
    /// Where the last snapshot is: in the log, and where it ends in the journal.
    snapshot: (Position, u64),
    /// Where it begins in the journal.
    snapshot_at: u64,
    /// The end of the journal, if that says that the log is closed.
    closed_at: Option<u64>,
    /// Whether the journal on the disk says that the log is not closed any more.
    is_begun: bool,
    /// How far the clock was ahead when retention was applied last.
    clock_ahead_ms: u64,
    clock: Clock,
    /// The time of the last delivery.
    last_time: u64,
    /// The journal lacks the last floor of the clock.
    lacks_floor: bool,
    /// The disk lacks the last publishers of the journal.
    lacks_begun: bool,
    /// Who is told of appends, and of which topic.
    news: Option<(TopicName, News)>,
    /// The part of the journal that the archive has not passed.
    begun: Option<Begun>,
}

/// Opens the log and the journal. What the journal does not say yet stays in the log.
fn open_logs(
    storage: Arc<dyn Storage>,
    dir: &Path,
    topic: &TopicName,
    options: &StoreOptions,
) -> Result<(Log, Log), KeepError> {
    let mut log = Log::open_on(Arc::clone(&storage), dir.join("log"), options.log())?;
    log.hold_from(0);
    let journal = Log::open_on(storage, dir.join("publishers"), options.journal())?;
    warn_of_damage(topic, "messages", "subscribers that come to them get Lost", log.recovery());
    let consequence = "publishers that were there may send messages twice";
    warn_of_damage(topic, "the journal of publishers", consequence, journal.recovery());
    Ok((log, journal))
}

/// Fills a log that is shorter than its journal says up to there. Says whether it was.
fn fill_up(log: &mut Log, journaled: &mut Journaled, topic: &TopicName) -> Result<bool, KeepError> {
    let is_short = journaled.at > log.end();
    if is_short {
        warn!("topic '{topic}': positions {} to {} of messages are missing", log.end(), journaled.at);
        log.append_hole(journaled.at)?;
        journaled.lacks();
    }
    Ok(is_short)
}

impl Store {
    /// Opens the folder of a topic, or makes it.
    pub(crate) fn open(
        dir: &Path,
        topic: &TopicName,
        options: &StoreOptions,
    ) -> Result<(Self, Recovered), KeepError> {
        private_files::create_durable_folder(dir).map_err(KeepError::file(dir))?;
        write_name(dir, topic)?;
        Self::open_on(Arc::new(OsStorage), dir, topic, options)
    }

    /// Opens the log and the journal of a topic on a storage.
    fn open_on(
        storage: Arc<dyn Storage>,
        dir: &Path,
        topic: &TopicName,
        options: &StoreOptions,
    ) -> Result<(Self, Recovered), KeepError> {
        let boot = u128::from_be_bytes(storage.boot());
        let (mut log, journal) = open_logs(storage, dir, topic, options)?;
        let (mut journaled, snapshot_at) = read_journal(&journal)?;
        let is_closed = journaled.clean && journaled.at == log.end();
        let is_short = fill_up(&mut log, &mut journaled, topic)?;
        let crashed = read_runs(&log, &mut journaled)? && journal.end() > 0 && journaled.boot != boot;
        let clock = Clock::new(std::mem::take(&mut journaled.floors));
        let (last_time, lacks_floor) = clock.recover(&mut log.reader())?;
        let places = journaled.finish(crashed);
        if crashed {
            continue_behind(&mut log, topic, options)?;
        }
        let last = last_delivery(&log)?;
        let (epoch, snapshot) = (Epoch(u128::from_le_bytes(log.id())), (log.end(), 0));
        info!("topic '{topic}': {} to {} are kept in {}", log.first(), log.end(), dir.display());
        let recovered = Recovered { epoch, last, places: places.all(), next_number: places.next_number() };
        let mut store = Self {
            begun: options.is_shared.then(|| Begun::of(journal.first()..journal.end())),
            closed_at: is_closed.then(|| journal.end()),
            dir: dir.to_owned(),
            log,
            journal,
            places,
            max_publishers: options.max_publishers,
            snapshot_bytes: options.snapshot_bytes(),
            journal_bytes: options.journal_bytes(),
            boot,
            snapshot,
            snapshot_at,
            is_begun: false,
            clock_ahead_ms: 0,
            clock,
            last_time,
            lacks_floor,
            lacks_begun: false,
            news: None,
        };
        // A log that was closed, or left by a killed process, needs no entry before the first delivery.
        if (crashed || is_short)
            && let Err(error) = store.begin()
        {
            // Subscribers can read the log as it is, and publishers wait for the disk.
            warn!("topic '{topic}': {error}");
        }
        Ok((store, recovered))
    }

    /// Tells of appends from now on.
    pub(crate) fn tell(&mut self, topic: &TopicName, news: &News) {
        self.news = Some((topic.clone(), news.clone()));
    }

    /// What the archive is told of the publishers, if another broker may go on there: the archive ends here now, and this broker may write so far.
    pub(crate) fn trail(&self, term: u64, archived: Position, limit: Position) -> Option<Trail> {
        let begun = self.begun.as_ref()?.within(archived, limit);
        Some(Trail::new(term, begun, self.journal.reader(), self.max_publishers))
    }

    /// The log is new, and goes on where another broker's log ends that had these publishers.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn go_on(&mut self, next_number: u32, places: Vec<Place>) -> Result<(), AppendError> {
        self.places.restore(self.log.end(), next_number, places);
        self.begin()
    }

    /// The clock of the topic's times.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// A reader of the topic's log.
    pub(crate) fn reader(&self) -> seglog::Reader {
        self.log.reader()
    }

    /// Appends a delivery that is one run of a publisher, whose bytes begin at its place.
    ///
    /// # Errors
    /// Nothing was appended. The next call tries again.
    pub(crate) fn append(&mut self, place: Place, run: u64, bytes: &[u8]) -> Result<(), AppendError> {
        self.begin_all(&[place])?;
        self.write_floor()?;
        let at = self.log.end();
        in_log(self.log.append_at(at, bytes).map(drop), &self.dir)?;
        let end = at + bytes.len() as u64;
        self.places.stored(place.number, run, end);
        self.keep_time(at);
        if let Some((topic, news)) = &self.news {
            let Place { epoch: log, position: from, .. } = place;
            let time_ms = self.last_time;
            news.appended(topic, Stored { log, from, to: from + run, at: end - run, time_ms });
        }
        let behind = (end - self.snapshot.0, self.journal.end() - self.snapshot.1);
        let is_due = behind.0 > self.snapshot_bytes || behind.1 > self.journal_bytes;
        if is_due && let Err(error) = self.write_snapshot(false) {
            warn!("{}: {error}", self.dir.display());
            // The next attempt follows after as many bytes.
            self.snapshot = (end, self.journal.end());
        }
        if self.log.is_held()
            && let Err(error) = self.apply_retention()
        {
            warn!("{}: old data is not removed: {error}", self.dir.display());
        }
        Ok(())
    }

    /// Whether the disk knows where a publisher is whose next run begins at its place.
    pub(crate) fn knows(&self, place: Place) -> bool {
        // A publisher of this process ends with it: nobody goes on behind its runs.
        place.key == SessionKey::BROKER || (self.places.are_before(place) && !self.lacks_begun)
    }

    /// The next runs of these publishers begin at their places, which are durable before any of their bytes are in the log. Otherwise a machine
    /// that stops may have the runs on its disk, and not whose they are: their publishers would send them again.
    ///
    /// # Errors
    /// Nothing is known of some of them. The next call tries again.
    pub(crate) fn begin_all(&mut self, places: &[Place]) -> Result<(), AppendError> {
        self.begin()?;
        let at = self.log.end();
        for place in places.iter().filter(|place| place.key != SessionKey::BROKER).copied() {
            if self.places.are_before(place) {
                continue;
            }
            let entry = Entry::Begins { at, place };
            self.journal.append(&entry.encode()).map(drop).or_else(in_journal)?;
            self.lacks_begun = true;
            self.places.apply(at, place);
            self.begun.iter().for_each(|begun| begun.grows_to(self.journal.end()));
        }
        if self.lacks_begun {
            self.sync_journal()?;
            self.lacks_begun = false;
            self.places.shrink(self.max_publishers);
        }
        Ok(())
    }

    /// What the journal has is on the disk before what follows in the log.
    fn sync_journal(&mut self) -> Result<(), AppendError> {
        let end = self.log.end();
        self.journal.sync().map(drop).map_err(|error| AppendError::NotWritten { end, source: error.source })
    }

    /// Makes durable that the log is open, before a subscriber can see a delivery. Otherwise the journal of a machine that stops then
    /// says that the log was closed, and the positions of that delivery would be used again.
    fn begin(&mut self) -> Result<(), AppendError> {
        if self.is_begun {
            return Ok(());
        }
        self.write_snapshot(false)?;
        self.sync_journal()?;
        self.is_begun = true;
        Ok(())
    }

    /// Makes durable where the publishers are now.
    fn begin_anew(&mut self) -> Result<(), AppendError> {
        self.is_begun = false;
        self.begin()
    }

    /// The topic's log.
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// The topic's log, for what concerns only the disk.
    pub(crate) fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Removes segments that are too old or too many, and what nobody needs of the journal. The journal says first where the publishers are: the runs that
    /// go do not say it any more.
    pub(crate) fn apply_retention(&mut self) -> Result<(), FileError> {
        let first = self.log.first();
        let mut applied = self.log.apply_retention();
        if (self.log.is_held() || self.begun.as_ref().is_some_and(Begun::lacks))
            && let Err(error) = self.begin_anew()
        {
            warn!("{}: {error}", self.dir.display());
        }
        if self.log.is_held() {
            // A disk that is full gets room in any case. The publishers are known here, and the next delivery waits for the journal.
            self.log.hold_from(self.log.end());
            applied = self.log.apply_retention();
        }
        if let Err(error) = self.release() {
            warn!("{}: {error}", self.dir.display());
        }
        let ahead = self.log.stats().clock_ahead_ms;
        let (now, end, dir) = (self.log.first(), self.log.end(), self.dir.display());
        let has_lasted = ahead == 0 && self.clock_ahead_ms > 0;
        if ahead > 0 && self.clock_ahead_ms == 0 {
            let ahead = ahead / 1000;
            warn!(
                "{dir}: the clock has stepped ahead by {ahead} s; in ten minutes positions from {now} on may be too old (keep_ms)"
            );
        } else if has_lasted && now > first {
            warn!(
                "{dir}: positions {first} to {now} of {end} are removed, for the clock is still ahead (keep_ms)"
            );
        } else if has_lasted {
            info!("{dir}: the clock goes as before, and nothing is removed for its step");
        } else if now > first {
            debug!("{dir}: positions {first} to {now} are removed (keep_bytes, keep_ms)");
        }
        self.clock_ahead_ms = ahead;
        applied.map(drop)
    }

    /// A delivery was appended. Where the machine's clock has gone back, its time does not.
    fn keep_time(&mut self, at: Position) {
        let time = self.log.last_time();
        if self.clock.appended(at, time, self.last_time) {
            self.lacks_floor = true;
            // If this fails, nothing more is appended before it was written.
            if let Err(error) = self.write_floor() {
                warn!("{}: {error}", self.dir.display());
            }
        }
        self.last_time = self.clock.time(at, time);
    }

    fn write_floor(&mut self) -> Result<(), AppendError> {
        if !self.lacks_floor {
            return Ok(());
        }
        self.journal.append(&Entry::Floors(self.clock.floors()).encode())?;
        self.sync_journal()?;
        self.lacks_floor = false;
        Ok(())
    }

    fn write_snapshot(&mut self, clean: bool) -> Result<(), AppendError> {
        let at = self.log.end();
        let snapshot = self.places.snapshot(at, self.boot, clean).encode();
        self.snapshot_at = self.journal.append(&snapshot)?;
        self.clock.forget_before(self.log.first());
        let floors = self.clock.floors();
        if !floors.is_empty() {
            self.journal.append(&Entry::Floors(floors).encode())?;
        }
        self.snapshot = (at, self.journal.end());
        self.closed_at = clean.then(|| self.journal.end());
        self.begun.iter().for_each(|begun| begun.has_snapshot(self.journal.end()));
        self.release()
    }

    /// Removes what the last snapshot of the journal replaces, and the archive has passed.
    fn release(&mut self) -> Result<(), AppendError> {
        let needed = self.begun.as_ref().map_or(u64::MAX, Begun::needs_from).min(self.snapshot_at);
        if self.journal.stats().segments > 1 && needed > self.journal.first() {
            // The snapshot is on the disk first.
            self.sync_journal()?;
            if let Err(error) = self.journal.release(needed) {
                warn!("{error}");
            }
        }
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The journal says that the log is complete, so the log must be on the disk first.
        let synced = self.log.sync().map_err(|error| error.to_string()).and_then(|_| {
            if self.closed_at != Some(self.journal.end()) {
                self.write_snapshot(true).map_err(|error| error.to_string())?;
            }
            self.journal.sync().map(drop).map_err(|error| error.to_string())
        });
        if let Err(error) = synced {
            warn!("{}: the log is not closed in order: {error}", self.dir.display());
        }
    }
}

/// After a crash of the machine, the log goes on behind everything that somebody may have seen.
fn continue_behind(log: &mut Log, topic: &TopicName, options: &StoreOptions) -> Result<(), AppendError> {
    let to = log.end() + UNSYNCED_BYTES + options.log().max_batch as u64;
    warn!(
        "topic '{topic}': the machine stopped without closing the log; it continues at position {to}, behind everything \
         that subscribers may have received"
    );
    log.append_hole(to).map(drop)
}

/// A batch that is in the log and not on the disk yet is appended: the log repairs itself with the next one.
fn in_log(appended: Result<(), AppendError>, dir: &Path) -> Result<(), AppendError> {
    match appended {
        Err(error @ AppendError::NotDurable { .. }) => {
            warn!("{}: {error}", dir.display());
            Ok(())
        }
        other => other,
    }
}

/// An entry that is in the journal and not on the disk yet is appended: a sync follows.
fn in_journal(error: AppendError) -> Result<(), AppendError> {
    match error {
        AppendError::NotDurable { .. } => Ok(()),
        other => Err(other),
    }
}

/// Says what the log `of` something does not have any more, and what comes of it.
fn warn_of_damage(topic: &TopicName, of: &str, consequence: &str, recovery: &Recovery) {
    for std::ops::Range { start, end } in &recovery.damaged {
        let bytes = end - start;
        warn!(
            "topic '{topic}': {of}: {bytes} bytes from {start} to {end} are damaged or missing; {consequence}"
        );
    }
    if recovery.torn_bytes > 0 {
        let bytes = recovery.torn_bytes;
        warn!("topic '{topic}': {of}: {bytes} bytes at the end were not written whole, and are cut");
    }
}

/// Reads the last snapshot of the journal and what is behind it, and returns also where that begins. The archive may keep very many snapshots before: an
/// entry of those is not looked at, except for the floors, which the last snapshot may lack.
fn read_journal(journal: &Log) -> Result<(Journaled, u64), KeepError> {
    let (mut reader, mut entries, mut snapshot_at) = (journal.reader(), Vec::new(), journal.first());
    let mut position = journal.first();
    loop {
        position = match reader.read(position)? {
            Read::Batch(batch) => {
                let end = batch.end();
                if Entry::is_snapshot(&batch.bytes) {
                    snapshot_at = batch.position;
                    entries.retain(|entry: &Bytes| Entry::is_floors(entry));
                }
                entries.push(batch.bytes);
                end
            }
            Read::Hole(hole) => hole.range.end,
            Read::Removed { first } => first,
            _ => break,
        };
    }
    let mut journaled = Journaled::default();
    for bytes in entries {
        match Entry::decode(&bytes) {
            Ok(entry) => journaled.add(entry),
            Err(error) => warn!("an entry of the journal is skipped: {error}"),
        }
    }
    Ok((journaled, snapshot_at))
}

/// Reads the runs behind the last snapshot. Returns whether the log was not closed in order. Where runs are damaged or gone nobody knows whose they were, and
/// the publishers lack all that is before.
fn read_runs(log: &Log, journaled: &mut Journaled) -> Result<bool, KeepError> {
    let is_open = !journaled.clean;
    let mut reader = log.reader();
    let (mut position, mut lacks) = (journaled.at, false);
    loop {
        position = match reader.read(position)? {
            Read::Batch(batch) => {
                journaled.batch(batch.position, &batch.bytes);
                batch.end()
            }
            Read::Hole(hole) => {
                lacks |= hole.cause == HoleCause::Damaged;
                hole.range.end
            }
            Read::Removed { first } => {
                lacks = true;
                first
            }
            _ => break,
        };
    }
    if lacks {
        journaled.lacks();
    }
    Ok(is_open)
}

/// The last delivery, if it is small.
fn last_delivery(log: &Log) -> Result<(Position, Bytes), KeepError> {
    let (end, mut reader) = (log.end(), log.reader());
    if end > log.first()
        && let Read::Batch(last) = reader.read(end - 1)?
        && end - last.batch <= LAST_BYTES
        && let Read::Batch(whole) = reader.read(last.batch)?
    {
        return Ok((whole.position, whole.bytes));
    }
    Ok((end, Bytes::new()))
}

#[cfg(test)]
mod tests;
