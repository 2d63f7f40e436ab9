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
//! the last bytes of the archive are compared with the disk, first and after each failure: all that this folder's broker does not know to be
//! its own. Where the disk has removed all of these bytes, the archive must end where this folder's broker has written last ([`Copied`]).
//!
//! Publishers are told that the archive has their bytes below `confirmed`: what this broker saw acknowledged, or compared. The archive's own
//! end may be that of somebody else. What may be missing below it, `missing_below`, is known before `confirmed` passes it.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use locks::{Condvar, Mutex};
use rbmq_wire::TopicName;
use rocketbufs::{Epoch, Position};
use seglog::{HoleCause, Read, ReadError, Reader};
use tracing::{info, warn};

use super::super::cluster::Cluster;
use super::archive::{Archive, ArchiveError, ArchiveLog, ArchiveRead, ArchivedLog};
use super::copied::Copied;
use super::takeover::MAX_AHEAD;
use super::trail::{Begun, Trail};

/// How long an archive that failed is left alone.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// The most batches of a topic that are copied before the next topic's turn.
const TURN: usize = 16;

/// The time for which an object stays for sure. Rules of stores that remove objects count in days.
const SURE: Duration = Duration::from_secs(3_600);

/// How many of the archive's last bytes are compared with the disk.
const COMPARED_BYTES: u64 = 16 << 10;

/// A topic with an archive.
pub(crate) struct Archived {
    topic: TopicName,
    disk: Reader,
    state: Mutex<State>,
    /// The archive has the same log below, as far as this broker knows.
    confirmed: AtomicU64,
    /// What is below may be missing in the archive.
    missing_below: AtomicU64,
    copier: Mutex<Copier>,
    counters: Counters,
    hurry: Arc<Hurry>,
    /// A publisher waits for what is not there yet.
    is_hurried: AtomicBool,
    /// Another broker may go on in the archive: what this one may write, and how much of its journal the archive has not passed.
    begun: Option<Begun>,
    /// The map of the cluster, which says which broker may write which positions. None: the log does not go on elsewhere.
    map: Option<Arc<dyn Cluster>>,
    /// Is called when more was copied, or nothing will be.
    changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// Has the copying thread begin at once.
#[derive(Default)]
pub(crate) struct Hurry {
    pub(crate) state: Mutex<Hurried>,
    pub(crate) changed: Condvar,
}

/// What the copying thread is to do before its time.
#[derive(Default)]
pub(crate) struct Hurried {
    /// Topics that are hurried.
    pub(crate) topics: bool,
    /// The end.
    pub(crate) stopped: bool,
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
    /// The archive has a note for its end, or gets one with the next batch.
    is_noted: bool,
    /// The publishers at the end of the archive, for a broker that goes on there.
    trail: Option<Trail>,
    /// The time of the last object that this broker has written. None: it has written none since its start, and nobody knows how old the last one is. Rules
    /// may remove that at any time, and its name is no fence then: the map is asked, whatever the lease says.
    wrote: Option<(Instant, SystemTime)>,
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

/// The result of a comparison.
#[derive(Debug, Default)]
struct Compared {
    /// Both have bytes in common, and they are the same.
    same: bool,
    /// They differ, in a piece that begins here.
    other: Option<Position>,
    /// What is below was not all compared: one has bytes where the other has none.
    unseen_below: Position,
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
    pub(crate) fn new(
        topic: &TopicName,
        disk: Reader,
        copied: &Path,
        batch_bytes: usize,
        hurry: Arc<Hurry>,
        trail: Option<Trail>,
    ) -> Self {
        let (reader, copied) = (disk.clone().durable_only(), Copied::open(copied));
        let begun = trail.as_ref().map(|trail| trail.begun().clone());
        let copier = Copier {
            reader,
            batch: Vec::new(),
            batch_bytes,
            agrees: false,
            copied,
            is_noted: false,
            trail,
            wrote: None,
        };
        Self {
            topic: topic.clone(),
            disk,
            state: Mutex::new(State { stage: Stage::Opening, retry_at: None, failure: None }),
            confirmed: AtomicU64::new(0),
            missing_below: AtomicU64::new(copier.copied.missing_below()),
            copier: Mutex::new(copier),
            counters: Counters::default(),
            hurry,
            is_hurried: AtomicBool::new(false),
            begun,
            map: None,
            changed: OnceLock::new(),
        }
    }

    /// The map says who may write which positions.
    pub(crate) fn with_map(self, map: Option<Arc<dyn Cluster>>) -> Self {
        Self { map, ..self }
    }

    /// The topic.
    pub(crate) fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// Calls this after each change of [`confirmed`](Self::confirmed).
    pub(crate) fn after_change(&self, changed: impl Fn() + Send + Sync + 'static) {
        // A topic is opened once.
        let _ = self.changed.set(Box::new(changed));
    }

    /// The archive has the log below. None: it does not take the log. Where another broker may have gone on, the questions are for that one.
    pub(crate) fn confirmed(&self) -> Option<Position> {
        let is_none = self.is_refused() && self.begun.is_none();
        // Pairs with the release of `confirm`.
        (!is_none).then(|| self.confirmed.load(Ordering::Acquire))
    }

    /// Whether it does not take the log.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.state.lock().stage, Stage::Refused)
    }

    /// Whether the positions that this broker may write are nearly used up.
    pub(crate) fn is_spent(&self) -> bool {
        let limit = self.begun.as_ref().map(Begun::limit);
        limit.is_some_and(|limit| self.disk.end().saturating_add(MAX_AHEAD) >= limit)
    }

    /// Whether another broker that goes on in the archive would not have all that is here, and the archive takes it.
    pub(crate) fn is_behind(&self) -> bool {
        let takes = self.begun.is_some() && !self.is_failing() && !self.is_refused();
        let confirmed = self.confirmed().filter(|_| takes);
        confirmed.is_some_and(|confirmed| confirmed < self.disk.end())
    }

    /// Why the disk may not have the log up to here before the archive has more: another broker that goes on there must not use positions
    /// that somebody has read. None: it may.
    pub(crate) fn why_not_yet(&self, end: Position) -> Option<String> {
        let begun = self.begun.as_ref()?;
        if self.is_refused() {
            return Some(
                "another broker has gone on in the topic's archive, or the archive does not take the log"
                    .into(),
            );
        }
        if end >= begun.limit() {
            return Some("it has all positions that this broker may write, and asks the map for more".into());
        }
        let confirmed = self.confirmed.load(Ordering::Acquire);
        let ahead = end.saturating_sub(confirmed.max(begun.archived()));
        // What the archive has passed counts from its next batch on.
        let is_full = || begun.is_full() && confirmed.max(begun.archived()) < self.disk.end();
        let is_far = ahead > MAX_AHEAD || is_full();
        is_far
            .then(|| format!("the archive (cluster.on_loss = \"archive\") is {ahead} bytes behind the disk"))
    }

    /// What is below may be missing in the archive. It is read after [`confirmed`](Self::confirmed).
    pub(crate) fn missing_below(&self) -> Position {
        self.missing_below.load(Ordering::Acquire)
    }

    /// The archive has the log up to its end.
    fn confirm(&self, copied: &Copied, end: Position) {
        if end > self.confirmed.load(Ordering::Acquire) {
            self.missing_below.fetch_max(copied.missing_below(), Ordering::Release);
        }
        self.confirmed.store(end, Ordering::Release);
    }

    /// Refuses a log that another broker has claimed. The name of the next object does not tell it where all objects have expired: a broker that
    /// found none has given its own first object another name.
    fn check_claim(&self, copier: &Copier) -> Result<(), ArchiveError> {
        let (Some(begun), Some(map)) = (&self.begun, &self.map) else { return Ok(()) };
        let is_sure = |(at, time): (Instant, SystemTime)| {
            at.elapsed() < SURE && time.elapsed().is_ok_and(|passed| passed < SURE)
        };
        if copier.wrote.is_some_and(is_sure) {
            return Ok(());
        }
        let claim = map.log_claim(&self.topic).map_err(ArchiveError::Down)?;
        match claim.is_some_and(|claim| claim.limit == begun.limit()) {
            true => Ok(()),
            false => {
                Err(ArchiveError::Refused("another broker has claimed the log, and goes on with it".into()))
            }
        }
    }

    /// Has what is on the disk copied at once.
    pub(crate) fn hurry(&self) {
        if !self.is_hurried.swap(true, Ordering::AcqRel) {
            self.hurry.state.lock().topics = true;
            self.hurry.changed.notify_all();
        }
    }

    /// Whether it was hurried since the last call.
    pub(crate) fn take_hurry(&self) -> bool {
        self.is_hurried.swap(false, Ordering::AcqRel)
    }

    /// A publisher waits still.
    pub(crate) fn keep_hurry(&self) {
        self.is_hurried.store(true, Ordering::Release);
    }

    /// Whether the last call failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.state.lock().failure.is_some()
    }

    fn tell_change(&self) {
        self.changed.get().into_iter().for_each(|changed| changed());
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
            lag: self.disk.durable().saturating_sub(self.confirmed.load(Ordering::Relaxed).max(on_disk)),
            first: if kept.is_empty() { on_disk } else { kept.start.min(on_disk) },
            is_failing: self.is_failing(),
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
        // The bytes behind may be those of somebody else.
        let confirmed = self.confirmed.load(Ordering::Acquire);
        let room = usize::try_from(confirmed.saturating_sub(position)).unwrap_or(usize::MAX).min(out.len());
        if confirmed <= position {
            return Ok(ArchiveRead::End);
        }
        // A subscriber's read switches nothing off: that is for the copying end.
        let read =
            log.read(position, &mut out[..room]).map_err(|error| ArchiveError::Down(error.to_string()));
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
        if is_stopped() {
            return Turn::Over;
        }
        let log = match self.ready() {
            Ok(Some(log)) => log,
            Ok(None) => match self.open(&mut copier, archive, &is_stopped) {
                Some(log) => log,
                None => return Turn::Over,
            },
            Err(_) => return Turn::Over,
        };
        for _ in 0..TURN {
            if is_stopped() {
                return Turn::Over;
            }
            match self.copy_next(&mut copier, &*log, &is_stopped) {
                Ok(Turn::Again) => {}
                Ok(Turn::Over) => return Turn::Over,
                Err(error) => {
                    copier.agrees = false;
                    self.note::<()>(&Err(error));
                    self.tell_change();
                    return Turn::Over;
                }
            }
        }
        Turn::Again
    }

    fn open(
        &self,
        copier: &mut Copier,
        archive: &dyn Archive,
        is_stopped: &dyn Fn() -> bool,
    ) -> Option<Arc<dyn ArchiveLog>> {
        let (topic, epoch) = (self.topic.clone(), Epoch(u128::from_le_bytes(self.disk.id())));
        let opened = archive.open(&ArchivedLog { topic, epoch, first: self.disk.first() }, is_stopped);
        // Records of another log are read by nobody.
        let opened = opened.and_then(|log| self.compare(copier, &*log, is_stopped).map(|()| log));
        self.note(&opened);
        if let Err(ArchiveError::Refused(_)) = opened {
            self.tell_change();
        }
        let log = opened.ok()?;
        let kept = log.kept();
        info!("topic '{}': its archive has {} to {}", self.topic, kept.start, kept.end);
        self.state.lock().stage = Stage::Open(log.clone());
        self.tell_change();
        Some(log)
    }

    fn copy_next(
        &self,
        copier: &mut Copier,
        log: &dyn ArchiveLog,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Turn, ArchiveError> {
        // Another broker has gone on there.
        copier.agrees &= log.kept().end <= self.disk.end();
        self.compare(copier, log, is_stopped)?;
        let at = log.kept().end;
        let next = copier.next(at).map_err(disk_failed)?;
        let (begin, end) = match next {
            Next::Nothing => {
                copier.note_end(log, at)?;
                copier.settle(at)?;
                return Ok(Turn::Over);
            }
            Next::Hole { to, .. } => (to, to),
            Next::Batch(begin) => (begin, begin + copier.batch.len() as u64),
        };
        // A hole is noted before the archive passes it: a publisher must not take it for archived, also after a restart.
        let missing_below = if let Next::Hole { to, missed: true } = next { to } else { 0 };
        copier.copied.note(at..=end.max(at), missing_below).map_err(not_noted)?;
        let note = copier.note(end)?;
        log.append_with(begin, &copier.batch, &note)?;
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
        self.check_claim(copier)?;
        copier.wrote = Some((Instant::now(), SystemTime::now()));
        copier.trail.iter_mut().for_each(|trail| trail.passed(end));
        self.confirm(&copier.copied, end);
        self.counters.bytes.fetch_add(end - at.max(begin), Ordering::Relaxed);
        self.note(&Ok(()));
        self.tell_change();
        Ok(Turn::Again)
    }

    /// Refuses an archive whose last bytes are others than those on the disk. If the disk has none of these any more, it must end where this
    /// folder's broker has written last.
    fn compare(
        &self,
        copier: &mut Copier,
        log: &dyn ArchiveLog,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(), ArchiveError> {
        if copier.agrees {
            return Ok(());
        }
        self.check_claim(copier)?;
        let (kept, copied) = (log.kept(), &mut copier.copied);
        let refused = |reason| {
            ArchiveError::Refused(format!(
                "{reason}: another broker has written this log, or this folder is an old copy"
            ))
        };
        let disk = self.disk.end();
        if kept.end > disk {
            return Err(refused(format!("it ends at {}, and the disk at {disk}", kept.end)));
        }
        // What is there above the least end may be of somebody else.
        let own = copied.start().unwrap_or(kept.end);
        let wanted = kept.end.saturating_sub(COMPARED_BYTES).min(own);
        let from = wanted.max(kept.start).max(self.disk.first());
        let compared = self.compare_range(from..kept.end, own, log, is_stopped)?;
        if let Some(at) = compared.other {
            return Err(refused(format!("it has other bytes at {at}")));
        }
        if !compared.same && !kept.is_empty() && !copied.includes(kept.end) {
            let first = self.disk.first();
            return Err(refused(format!("it ends at {}, before what the disk has, {first}", kept.end)));
        }
        // An empty archive, or one whose bytes could not be compared, proves nothing about the bytes that it had. The object with which this
        // broker has gone on is a proof too: its note names the bytes that are missing.
        let is_begun = self.begun.as_ref().is_some_and(|begun| begun.archived() == kept.end);
        let proves = !kept.is_empty() || is_begun && !log.note().is_empty();
        let is_own = copied.start().is_some_and(|own| proves && (kept.end <= own || from <= own));
        let missing_below = if is_own { compared.unseen_below } else { kept.end };
        copied.note(kept.end..=kept.end, missing_below).map_err(not_noted)?;
        if kept.is_empty() && own > kept.end {
            self.tell_empty(own, kept.end);
        }
        self.confirm(copied, kept.end);
        copier.agrees = true;
        Ok(())
    }

    /// The archive had more of this log once.
    fn tell_empty(&self, had: Position, end: Position) {
        warn!(
            "topic '{}': its archive has nothing now, and had the log up to {had}: its rules have removed all, or it was lost, or is another \
             one; it gets what the disk has, from {end} on",
            self.topic
        );
    }

    /// Compares the archive with the disk in a range. Up to `own` it is known whose bytes the archive has.
    fn compare_range(
        &self,
        range: Range<Position>,
        own: Position,
        log: &dyn ArchiveLog,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Compared, ArchiveError> {
        let (mut compared, mut at, end) = (Compared::default(), range.start, range.end);
        let (mut there, mut here) = (vec![0; COMPARED_BYTES as usize], vec![0; COMPARED_BYTES as usize]);
        while at < end {
            if is_stopped() {
                return Err(ArchiveError::Down("the broker stops".into()));
            }
            let len = (end - at).min(COMPARED_BYTES) as usize;
            let read = match log.read(at, &mut there[..len])? {
                ArchiveRead::Bytes(read) => read,
                ArchiveRead::Hole { to } => {
                    if self.had_bytes(at.max(own)..to).map_err(disk_failed)? {
                        compared.unseen_below = to;
                    }
                    at = to.max(at + 1);
                    continue;
                }
                ArchiveRead::Removed { first } => {
                    at = first.max(at + 1);
                    continue;
                }
                ArchiveRead::End => return Err(ArchiveError::Down(format!("it ends at {at} now"))),
            };
            let on_disk = self.disk.clone().read_into(at, &mut here[..read]).map_err(disk_failed)?.len;
            if here[..on_disk] != there[..on_disk] {
                return Ok(Compared { other: Some(at), ..compared });
            }
            compared.same |= on_disk > 0;
            // A hole of the disk has nothing to compare.
            at += if on_disk > 0 { on_disk } else { read } as u64;
            if on_disk == 0 && at > own {
                compared.unseen_below = at;
            }
        }
        Ok(compared)
    }

    /// Whether bytes were ever written to the disk in a range.
    fn had_bytes(&self, range: Range<Position>) -> Result<bool, ReadError> {
        let (mut disk, mut at) = (self.disk.clone(), range.start);
        while at < range.end {
            match disk.read(at)? {
                Read::Hole(hole) if hole.cause == HoleCause::Marked => at = hole.range.end,
                Read::End { .. } => break,
                _ => return Ok(true),
            }
        }
        Ok(false)
    }
}

fn not_noted(error: std::io::Error) -> ArchiveError {
    ArchiveError::Down(format!("the disk cannot be written: {error}"))
}

fn disk_failed(error: ReadError) -> ArchiveError {
    ArchiveError::Down(format!("the disk cannot be read: {error}"))
}

impl Copier {
    /// What a broker that goes on behind a batch has to know.
    fn note(&mut self, end: Position) -> Result<Vec<u8>, ArchiveError> {
        let Self { reader, trail: Some(trail), copied, .. } = self else { return Ok(Vec::new()) };
        let note = trail.note(end, copied.missing_below(), reader).map_err(disk_failed)?;
        note.ok_or_else(|| ArchiveError::Down("it waits for the disk to say where publishers are".into()))
    }

    /// Has the archive know the publishers at its end, if the last batch does not say them: it was written before another broker could go on.
    fn note_end(&mut self, log: &dyn ArchiveLog, at: Position) -> Result<(), ArchiveError> {
        if self.trail.is_none() || self.is_noted || log.kept().is_empty() || !log.note().is_empty() {
            return Ok(());
        }
        let note = self.note(at)?;
        log.note_end(&note)?;
        self.is_noted = true;
        Ok(())
    }

    /// The archive has all, up to here. The journal needs nothing of before, also where no batch follows.
    fn settle(&mut self, at: Position) -> Result<(), ArchiveError> {
        if let Self { reader, trail: Some(trail), .. } = self
            && trail.is_before(at)
            && trail.note(at, 0, reader).map_err(disk_failed)?.is_some()
        {
            trail.passed(at);
        }
        Ok(())
    }

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
mod tests;
