//! A kept topic and its archive: the bytes on the disk are copied there in batches, by a thread that nobody waits for.
//!
//! ```text
//!   archive  first ──────────────────────────▶ end: the next position to be copied; nothing else is remembered
//!   disk                      first ─────────────────────▶ synced ──▶ end
//!                                    │ batch │ batch │ … │
//! ```
//!
//! Only synced bytes are copied. So after a crash of the machine the archive has nothing that the disk has not, and
//! positions mean the same in both. Bytes that the disk removes before they were copied are a hole of the archive.
//!
//! The folder of a topic can be copied, and a second broker can run with the copy. Its log has the same name and goes another way. So
//! the last bytes of the archive are compared with the disk, first and after each failure. Where the disk has removed all of these bytes,
//! the archive must end where this folder's broker has written last ([`Copied`]).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use locks::Mutex;
use rbmq_wire::TopicName;
use rocketbufs::{Epoch, Position};
use seglog::{HoleCause, Read, ReadError, Reader};
use tracing::{info, warn};

use super::archive::{Archive, ArchiveError, ArchiveLog, ArchiveRead, ArchivedLog};
use super::copied::Copied;

/// How long an archive that failed is left alone.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// The most batches of a topic that are copied before the next topic's turn.
const TURN: usize = 16;

/// How many of the archive's last bytes are compared with the disk.
const COMPARED_BYTES: u64 = 16 << 10;

/// A topic with an archive.
pub(crate) struct Archived {
    topic: TopicName,
    disk: Reader,
    state: Mutex<State>,
    copier: Mutex<Copier>,
    counters: Counters,
}

struct State {
    stage: Stage,
    /// The archive failed, and is not asked before.
    retry_at: Option<Instant>,
    /// The last failure, until a call succeeds.
    failure: Option<ArchiveError>,
}

/// The way to the archive's log.
enum Stage {
    /// The log was not opened yet.
    Opening,
    Open(Arc<dyn ArchiveLog>),
    /// The log is not for this broker.
    Refused,
}

#[derive(Default)]
struct Counters {
    bytes: AtomicU64,
    replayed_bytes: AtomicU64,
    failures: AtomicU64,
    holes: AtomicU64,
    hole_bytes: AtomicU64,
}

/// The copying end.
struct Copier {
    reader: Reader,
    batch: Vec<u8>,
    batch_bytes: usize,
    /// The archive has the same log as the disk.
    agrees: bool,
    copied: Copied,
}

/// The counters of a topic and its archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ArchiveLoad {
    /// Bytes that were copied to the archive.
    pub(crate) bytes: u64,
    /// Bytes that subscribers got from the archive.
    pub(crate) replayed_bytes: u64,
    /// Calls that failed.
    pub(crate) failures: u64,
    /// Times that the disk had removed bytes before they were copied.
    pub(crate) holes: u64,
    /// Such bytes.
    pub(crate) hole_bytes: u64,
    /// Bytes on the disk that are to be copied.
    pub(crate) lag: u64,
    /// The first position that can be read, from the archive or else the disk.
    pub(crate) first: Position,
    /// The last call failed.
    pub(crate) is_failing: bool,
}

/// The end of a turn of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// More is to be copied at once.
    Again,
    /// Everything was copied, or the archive failed.
    Over,
}

/// The next thing to copy.
enum Next {
    /// The batch, which begins here.
    Batch(Position),
    /// The log goes on at `to`. `missed`: the bytes between were on the disk once.
    Hole {
        to: Position,
        missed: bool,
    },
    Nothing,
}

impl Archived {
    /// `copied` is the file that says how far the topic was copied.
    pub(crate) fn new(topic: &TopicName, disk: Reader, copied: &Path, batch_bytes: usize) -> Self {
        let (reader, copied) = (disk.clone().durable_only(), Copied::open(copied));
        let copier = Copier { reader, batch: Vec::new(), batch_bytes, agrees: false, copied };
        Self {
            topic: topic.clone(),
            disk,
            state: Mutex::new(State { stage: Stage::Opening, retry_at: None, failure: None }),
            copier: Mutex::new(copier),
            counters: Counters::default(),
        }
    }

    /// Whether the archive may still become available for the first time.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Opening)
    }

    /// The first position of the archive, if it is open and has any.
    pub(crate) fn first(&self) -> Option<Position> {
        let kept = self.log()?.kept();
        (!kept.is_empty()).then_some(kept.start)
    }

    pub(crate) fn load(&self) -> ArchiveLoad {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let on_disk = self.disk.first();
        let kept = self.log().map_or(on_disk..on_disk, |log| log.kept());
        ArchiveLoad {
            bytes: get(&self.counters.bytes),
            replayed_bytes: get(&self.counters.replayed_bytes),
            failures: get(&self.counters.failures),
            holes: get(&self.counters.holes),
            hole_bytes: get(&self.counters.hole_bytes),
            lag: self.disk.durable().saturating_sub(kept.end),
            first: if kept.is_empty() { on_disk } else { kept.start.min(on_disk) },
            is_failing: self.state.lock().failure.is_some(),
        }
    }

    fn log(&self) -> Option<Arc<dyn ArchiveLog>> {
        match &self.state.lock().stage {
            Stage::Open(log) => Some(log.clone()),
            Stage::Opening | Stage::Refused => None,
        }
    }

    /// Reads from the archive, for a subscriber. May wait.
    ///
    /// # Errors
    /// The archive does not answer now, or does not have this log.
    pub(crate) fn read(&self, position: Position, out: &mut [u8]) -> Result<ArchiveRead, ArchiveError> {
        let log = match self.ready()? {
            Some(log) => log,
            None => return Err(ArchiveError::Down("it was not opened yet".into())),
        };
        // A subscriber's read switches nothing off: that is for the copying end.
        let read = log.read(position, out).map_err(|error| ArchiveError::Down(error.to_string()));
        self.note(&read);
        if let Ok(ArchiveRead::Bytes(bytes)) = read {
            self.counters.replayed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        read
    }

    /// The archive's log if it may be asked now; none if it is not open.
    fn ready(&self) -> Result<Option<Arc<dyn ArchiveLog>>, ArchiveError> {
        let state = self.state.lock();
        if state.retry_at.is_some_and(|at| Instant::now() < at)
            && let Some(failure) = &state.failure
        {
            return Err(failure.clone());
        }
        match &state.stage {
            Stage::Opening => Ok(None),
            Stage::Open(log) => Ok(Some(log.clone())),
            Stage::Refused => Err(ArchiveError::Refused("the archive does not take this log".into())),
        }
    }

    /// Notes how a call of the archive ended, and tells people when that changes.
    fn note<T>(&self, done: &Result<T, ArchiveError>) {
        let mut state = self.state.lock();
        match done {
            Ok(_) => {
                state.retry_at = None;
                if state.failure.take().is_some() {
                    info!("topic '{}': its archive answers again", self.topic);
                }
            }
            Err(error) => {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                state.retry_at = Some(Instant::now() + RETRY);
                if let ArchiveError::Refused(_) = error {
                    state.stage = Stage::Refused;
                    warn!("topic '{}': nothing more goes to its archive: {error}", self.topic);
                } else if state.failure.is_none() {
                    warn!(
                        "topic '{}': its archive fails, and the disk keeps what is not there as long as its limits allow: {error}",
                        self.topic
                    );
                }
                state.failure = Some(error.clone());
            }
        }
    }

    /// Copies some batches to the archive, which is opened first. A single thread calls this, and may wait for the archive, but not for a
    /// second call of it if the broker stops.
    pub(crate) fn copy(&self, archive: &dyn Archive, is_stopped: impl Fn() -> bool) -> Turn {
        let mut copier = self.copier.lock();
        let log = match self.ready() {
            Ok(Some(log)) => log,
            Ok(None) => match self.open(&mut copier, archive) {
                Some(log) => log,
                None => return Turn::Over,
            },
            Err(_) => return Turn::Over,
        };
        for _ in 0..TURN {
            if is_stopped() {
                return Turn::Over;
            }
            match self.copy_next(&mut copier, &*log) {
                Ok(Turn::Again) => {}
                Ok(Turn::Over) => return Turn::Over,
                Err(error) => {
                    copier.agrees = false;
                    self.note::<()>(&Err(error));
                    return Turn::Over;
                }
            }
        }
        Turn::Again
    }

    fn open(&self, copier: &mut Copier, archive: &dyn Archive) -> Option<Arc<dyn ArchiveLog>> {
        let (topic, epoch) = (self.topic.clone(), Epoch(u128::from_le_bytes(self.disk.id())));
        let opened = archive.open(&ArchivedLog { topic, epoch, first: self.disk.first() });
        // Records of another log are read by nobody.
        let opened = opened.and_then(|log| self.compare(copier, &*log).map(|()| log));
        self.note(&opened);
        let log = opened.ok()?;
        let kept = log.kept();
        info!("topic '{}': its archive has {} to {}", self.topic, kept.start, kept.end);
        self.state.lock().stage = Stage::Open(log.clone());
        Some(log)
    }

    fn copy_next(&self, copier: &mut Copier, log: &dyn ArchiveLog) -> Result<Turn, ArchiveError> {
        let at = log.kept().end;
        self.compare(copier, log)?;
        let next = copier.next(at).map_err(disk_failed)?;
        let (begin, end) = match next {
            Next::Nothing => return Ok(Turn::Over),
            Next::Hole { to, .. } => (to, to),
            Next::Batch(begin) => (begin, begin + copier.batch.len() as u64),
        };
        copier.copied.note(at..=end.max(at)).map_err(not_noted)?;
        log.append(begin, &copier.batch)?;
        let now = log.kept().end;
        if now != end {
            // An earlier call has succeeded after all, or somebody else writes.
            return Err(ArchiveError::Down(format!("it ends at {now} instead of {end}")));
        }
        if let Next::Hole { missed: true, .. } = next {
            warn!("topic '{}': the disk has removed {at} to {end} before its archive got it", self.topic);
            self.counters.holes.fetch_add(1, Ordering::Relaxed);
            self.counters.hole_bytes.fetch_add(end - at, Ordering::Relaxed);
        }
        self.counters.bytes.fetch_add(end - at.max(begin), Ordering::Relaxed);
        self.note(&Ok(()));
        Ok(Turn::Again)
    }

    /// Refuses an archive whose last bytes are others than those on the disk. If the disk has none of these any more, it must end where this
    /// folder's broker has written last.
    fn compare(&self, copier: &mut Copier, log: &dyn ArchiveLog) -> Result<(), ArchiveError> {
        if copier.agrees {
            return Ok(());
        }
        let (kept, end) = (log.kept(), self.disk.end());
        let refused = |reason| {
            ArchiveError::Refused(format!(
                "{reason}: another broker has written this log, or this folder is an old copy"
            ))
        };
        if kept.end > end {
            return Err(refused(format!("it ends at {}, and the disk at {end}", kept.end)));
        }
        let from = kept.start.max(kept.end.saturating_sub(COMPARED_BYTES)).max(self.disk.first());
        let mut there = vec![0; kept.end.saturating_sub(from) as usize];
        let mut count = 0;
        while count < there.len() {
            let ArchiveRead::Bytes(bytes) = log.read(from + count as u64, &mut there[count..])? else {
                break;
            };
            count += bytes;
        }
        let mut here = vec![0; count];
        let count = self.disk.clone().read_into(from, &mut here).map_err(disk_failed)?.len;
        if here[..count] != there[..count] {
            return Err(refused(format!("it has other bytes at {from}")));
        }
        if count == 0 && !kept.is_empty() && !copier.copied.includes(kept.end) {
            let first = self.disk.first();
            return Err(refused(format!("it ends at {}, before what the disk has, {first}", kept.end)));
        }
        copier.copied.note(kept.end..=kept.end).map_err(not_noted)?;
        copier.agrees = true;
        Ok(())
    }
}

fn not_noted(error: std::io::Error) -> ArchiveError {
    ArchiveError::Down(format!("the disk cannot be written: {error}"))
}

fn disk_failed(error: ReadError) -> ArchiveError {
    ArchiveError::Down(format!("the disk cannot be read: {error}"))
}

impl Copier {
    /// Finds the batch that follows `at`. Batches contain whole deliveries, so that the archive can remove them from its
    /// front.
    fn next(&mut self, at: Position) -> Result<Next, ReadError> {
        self.batch.clear();
        let (mut begin, mut end) = (at, at);
        while self.batch.len() < self.batch_bytes {
            let read = self.reader.read(end)?;
            let is_first = self.batch.is_empty();
            match read {
                Read::Batch(batch) => {
                    let mut found = batch;
                    // An earlier call has put a part of the delivery into the archive, which drops it now.
                    if is_first
                        && found.batch < found.position
                        && let Read::Batch(whole) = self.reader.read(found.batch)?
                    {
                        found = whole;
                        begin = found.position;
                    }
                    if !is_first && self.batch.len() + found.bytes.len() > self.batch_bytes {
                        break;
                    }
                    self.batch.extend_from_slice(&found.bytes);
                    end = found.end();
                }
                Read::Hole(hole) if is_first => {
                    let missed = hole.cause == HoleCause::Damaged;
                    return Ok(Next::Hole { to: hole.range.end, missed });
                }
                Read::Removed { first } if is_first => return Ok(Next::Hole { to: first, missed: true }),
                _ => break,
            }
        }
        Ok(if self.batch.is_empty() { Next::Nothing } else { Next::Batch(begin) })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use seglog::{Log, Options, SyncPolicy};

    use super::*;

    /// An archive that notes the batches it gets.
    #[derive(Default)]
    struct Notes(Mutex<Vec<(Position, usize)>>);

    impl Archive for Arc<Notes> {
        fn open(&self, _: &ArchivedLog) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
            Ok(self.clone())
        }
    }

    impl ArchiveLog for Notes {
        fn kept(&self) -> Range<Position> {
            0..self.0.lock().last().map_or(0, |(at, len)| at + *len as u64)
        }

        fn append(&self, position: Position, bytes: &[u8]) -> Result<(), ArchiveError> {
            self.0.lock().push((position, bytes.len()));
            Ok(())
        }

        fn read(&self, _: Position, _: &mut [u8]) -> Result<ArchiveRead, ArchiveError> {
            Ok(ArchiveRead::End)
        }
    }

    /// Bytes that a crash of the machine can still take from the disk are not copied: their positions may get other bytes.
    #[test]
    fn only_what_is_on_the_disk_is_copied_and_holes_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), Options::default().sync(SyncPolicy::Never)).unwrap();
        let archived = Archived::new(&"a".parse().unwrap(), log.reader(), &dir.path().join("archive"), 250);
        let notes = Arc::<Notes>::default();
        let copied = || {
            while archived.copy(&notes, || false) == Turn::Again {}
            notes.0.lock().clone()
        };
        for _ in 0..5 {
            log.append(&[7; 100]).unwrap();
        }
        assert_eq!(copied(), []);
        log.sync().unwrap();
        assert_eq!(archived.copy(&notes, || true), Turn::Over);
        assert_eq!(*notes.0.lock(), [], "the broker stops");
        // Whole deliveries, as many as fit.
        assert_eq!(copied(), [(0, 200), (200, 200), (400, 100)]);
        log.append_hole(900).unwrap();
        log.append(&[7; 600]).unwrap();
        log.sync().unwrap();
        assert_eq!(copied()[3..], [(900, 0), (900, 600)]);
        let load = archived.load();
        assert_eq!((load.bytes, load.holes, load.lag, load.is_failing), (1100, 0, 0, false));
    }
}
