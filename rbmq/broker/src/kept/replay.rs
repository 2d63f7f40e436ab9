//! A replay: the kept log of a topic, for one subscriber, in a buffer of its own.
//!
//! ```text
//!   disk          ──┬───────────────────────────────────────────────┬──▶
//!                   │ start                          position │     │ end
//!   replay buffer   └──────────────────▶ the subscriber's ring│     │
//!   topic's ring                                       tail ──┼─────┴──▶ head
//!                                                             └ near the head: the replay ends here, and the subscriber goes on
//!                                                               in the ring of the topic
//! ```
//!
//! Where the disk begins too late, an archive may have the bytes before (`older`). Its threads read them, so that a
//! replay from the disk never waits for the archive.
//!
//! The ring of the topic does not wait for a replay. A subscriber that is too late for the ring asks for another replay, so it stays
//! on the disk until it is as fast as the publishers, and nothing is missing or comes twice.

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rbmq_wire::{Control, ReplayFrom};
use rocketbufs::config::TransportKind;
use rocketbufs::inspect::BufferInfo;
use rocketbufs::{
    Bid, BufferOptions, Conn, GrowError, OutBuffer, OutWriter, PoolError, Position, Progress, ROut,
    SegmentError,
};
use seglog::{Hole, Read, ReadError, Reader};
use tracing::{debug, warn};

use super::super::admission::Admission;
use super::super::outgoing::send;
use super::archived::Archived;
use super::older::{Next, Older};

/// A step copies at most so many bytes, so that the replays of a thread take turns.
const STEP_BYTES: usize = 1 << 20;

/// The smallest ring of a replay, in bytes.
const MIN_RING_BYTES: u64 = 256 << 10;

/// The ring of a replay has room for deliveries of so many bytes at first, or smaller ones, and grows for larger ones: then it leaves memory to
/// others, and counts for the quotas of its subscriber.
const FIRST_DELIVERY_BYTES: u64 = 1 << 20;

/// Longest time for which a request is assumed to have been under way. The age in it was true when it was sent, and nothing may be skipped
/// that came since.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// A subscriber asks for a kept log.
pub(crate) struct ReplayRequest {
    /// The subscriber.
    pub(crate) conn: Conn,
    /// The buffer of the topic.
    pub(crate) live: OutBuffer,
    /// The log of this buffer on disk.
    pub(crate) reader: Reader,
    /// The archive of the topic, and how long the subscriber waits for that if it does not answer.
    pub(crate) archived: Option<(Arc<Archived>, Duration)>,
    /// When the question came.
    pub(crate) asked: Instant,
    /// Where to begin.
    pub(crate) from: ReplayFrom,
    /// The id of the buffer for this subscriber.
    pub(crate) bid: Bid,
    /// Whose quotas the ring counts for when it grows.
    pub(crate) admission: Admission,
    /// It was said that the request waits for memory.
    pub(crate) waits: bool,
}

/// What becomes of a request.
pub(crate) enum Begun {
    /// The replay is under way.
    Running(Box<Replay>),
    /// The ring of the topic has everything that is asked for, or nothing can be done.
    Over,
    /// There is no memory for a ring now.
    NoMemory(Box<ReplayRequest>),
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// More can be done at once.
    Again,
    /// The replay goes on in the archive.
    Archive,
    /// The replay goes on, on the disk.
    Disk,
    /// The replay goes on when the archive answers again.
    Later,
    /// The replay goes on where it is when there may be memory again.
    NoMemory,
    /// The ring of the replay is full, or nobody reads it yet. An event follows.
    Full,
    /// The replay has ended.
    Over,
}

/// A replay that is under way.
pub(crate) struct Replay {
    conn: Conn,
    live: OutBuffer,
    reader: Reader,
    older: Option<Older>,
    writer: OutWriter,
    position: Position,
    /// Damaged bytes of the log, as far as this replay knows them.
    damaged: u64,
    /// The delivery for which there was no memory; 0: none.
    needs: u64,
    /// The bytes by which the ring has grown. Quotas and the pool count them until the replay ends.
    grown: u64,
    admission: Admission,
}

/// Why the ring of a replay does not grow.
enum NotGrown {
    /// The ring never grows, and why: the subscriber or the transport does not know how, or a limit is too small by itself.
    Never(String),
    /// The pool or a quota has no memory now, and why.
    NoMemory(String),
}

impl NotGrown {
    /// The limit refuses `asked` bytes, those of the replay's ring among them, and has room for `limit` when nothing else is there.
    fn of_limit(asked: u64, limit: u64, why: String) -> Self {
        if asked > limit { Self::Never(why) } else { Self::NoMemory(why) }
    }
}

impl ReplayRequest {
    /// Whether the first position is not known before the archive answers.
    pub(crate) fn must_wait(&self) -> bool {
        let opening = |(archived, patience): &(Arc<Archived>, Duration)| {
            archived.is_opening() && self.asked.elapsed() < *patience
        };
        self.from == ReplayFrom::Oldest && self.archived.as_ref().is_some_and(opening)
    }
}

impl Replay {
    /// Answers a request, if there is memory for it.
    pub(crate) fn begin(mut request: Box<ReplayRequest>, out: &ROut) -> Begun {
        let (from, bid, live) = (request.from, request.bid, request.live.bid());
        let Some(info) = request.live.info() else { return Begun::Over };
        let older = request.archived.as_ref().and_then(|(archived, _)| archived.first());
        let start = match start_of(&mut request.reader, from, request.asked) {
            Ok(start) if from == ReplayFrom::Oldest => older.map_or(start, |older| older.min(start)),
            Ok(start) => start,
            Err(error) => {
                warn!("buffer {live}: a position is not found: {error}");
                info.boundary
            }
        };
        if has(&info, start) {
            send(&request.conn, &Control::Replayed { bid: live, replay: None, start });
            return Begun::Over;
        }
        let made = out.create_buffer_with(bid, options(&request.conn, &info, start, out));
        let writer = match made.and_then(|buffer| buffer.writer()) {
            Ok(writer) => writer,
            Err(error) => {
                if !std::mem::replace(&mut request.waits, true) {
                    warn!(
                        "buffer {live}: a replay for {} waits for memory: {error}",
                        request.conn.peer_addr()
                    );
                }
                return Begun::NoMemory(request);
            }
        };
        debug!("buffer {live}: replayed from {start} as buffer {bid}");
        send(&request.conn, &Control::Replayed { bid: live, replay: Some(bid), start });
        let ReplayRequest { conn, live, reader, archived, admission, .. } = *request;
        let older = archived.map(|(archived, patience)| Older::new(archived, patience));
        let damaged = reader.stats().damaged_bytes;
        let replay = Self {
            conn,
            live,
            reader,
            older,
            writer,
            position: start,
            damaged,
            needs: 0,
            grown: 0,
            admission,
        };
        Begun::Running(Box::new(replay))
    }

    /// Copies as many bytes as the ring has room for.
    pub(crate) fn step(&mut self) -> Step {
        let mut bytes = 0;
        if !self.has_memory() {
            return Step::NoMemory;
        }
        while bytes < STEP_BYTES {
            if self.is_over() {
                return self.end();
            }
            let done = match self.reader.read(self.position) {
                Ok(Read::Batch(batch)) => {
                    bytes += batch.bytes.len();
                    self.deliver(&batch.bytes)
                }
                Ok(Read::Hole(hole)) => {
                    self.warn_of_damage(&hole);
                    self.skip(hole.range.end)
                }
                Ok(Read::Removed { .. }) if self.older.is_some() => return Step::Archive,
                Ok(Read::Removed { first }) => self.skip(first),
                // The ring has the bytes that the disk does not have.
                Ok(_) => return self.end(),
                Err(error) => self.give_up(&error),
            };
            if let Err(error) = done {
                return self.stop(&error);
            }
        }
        Step::Again
    }

    /// Copies as many bytes from the archive as the ring has room for, up to where the disk begins. May wait for the
    /// archive.
    pub(crate) fn step_older(&mut self) -> Step {
        if !self.has_memory() {
            return Step::NoMemory;
        }
        let Some(mut older) = self.older.take() else { return Step::Disk };
        let step = self.copy_older(&mut older);
        if step == Step::Disk {
            older.clear();
        }
        self.older = Some(older);
        step
    }

    fn copy_older(&mut self, older: &mut Older) -> Step {
        let begin = self.position;
        while self.position - begin < STEP_BYTES as u64 {
            let info = self.live.info();
            let Some(info) = info.filter(|_| !self.is_over()) else { return self.end() };
            let first = self.reader.first();
            if self.position >= first {
                return Step::Disk;
            }
            let done = match older.next(self.position, first, info.max_delivery_bytes) {
                Next::Run(run) => self.deliver(run),
                Next::Lost(to) => self.skip(to),
                Next::Later => return Step::Later,
            };
            if let Err(error) = done {
                return self.stop(&error);
            }
        }
        Step::Again
    }

    /// Whether there is memory again for the delivery that had none, which is not read before.
    fn has_memory(&mut self) -> bool {
        let needs = self.needs;
        let has = needs == 0 || self.is_over() || !matches!(self.grow(needs), Err(NotGrown::NoMemory(_)));
        if has {
            self.needs = 0;
        }
        has
    }

    /// Whether the log goes on in the ring, or the broker stops.
    fn is_over(&self) -> bool {
        self.live.info().is_none_or(|info| info.ended || has(&info, self.position))
    }

    /// The ring of the replay has taken nothing.
    fn stop(&self, error: &SegmentError) -> Step {
        if matches!(error, SegmentError::Full) {
            self.writer.buffer().notify_progress(Progress::Room);
            return Step::Full;
        }
        if matches!(error, SegmentError::TooLarge { .. }) {
            return Step::NoMemory;
        }
        self.end()
    }

    fn deliver(&mut self, bytes: &[u8]) -> Result<(), SegmentError> {
        match self.writer.append(&[bytes]) {
            Ok(end) => {
                self.position = end;
                Ok(())
            }
            Err(SegmentError::TooLarge { size, max }) => self.deliver_large(bytes, size, max),
            Err(error) => Err(error),
        }
    }

    /// A delivery that came when the ring of the topic was larger.
    #[cold]
    fn deliver_large(&mut self, bytes: &[u8], size: u64, max: u64) -> Result<(), SegmentError> {
        match self.grow(size) {
            Ok(()) => self.deliver(bytes),
            Err(NotGrown::Never(why)) => {
                let (bid, at, addr) = (self.live.bid(), self.position, self.conn.peer_addr());
                warn!(
                    "buffer {bid}: {size} bytes at {at} are skipped in the replay for {addr}: its deliveries have at most {max} now, and {why}"
                );
                self.skip(self.position + size)
            }
            Err(NotGrown::NoMemory(why)) => {
                if std::mem::replace(&mut self.needs, size) == 0 {
                    let (bid, at, addr) = (self.live.bid(), self.position, self.conn.peer_addr());
                    warn!("buffer {bid}: the replay for {addr} waits at {at} for memory: {why}");
                }
                Err(SegmentError::TooLarge { size, max })
            }
        }
    }

    /// Lets the ring grow, if the quotas of the subscriber allow it.
    fn grow(&mut self, size: u64) -> Result<(), NotGrown> {
        let fixed = |why: &dyn Display| NotGrown::Never(format!("its ring does not grow ({why})"));
        if !self.conn.peer_grows() {
            return Err(fixed(&"the subscriber does not know how"));
        }
        let (bid, more) = (self.writer.buffer().bid(), self.writer.bytes_to_grow(size));
        let charge = self.admission.charge_replay(bid, more);
        let charge = charge.map_err(|exceeded| {
            NotGrown::of_limit(more + self.grown, exceeded.limit, exceeded.to_string())
        })?;
        self.writer.grow(size).map_err(|error| match error {
            GrowError::Pool(PoolError::Limit { asked, max, .. }) => {
                NotGrown::of_limit(asked + self.grown, max, error.to_string())
            }
            GrowError::Pool(error) => NotGrown::NoMemory(error.to_string()),
            error => fixed(&error),
        })?;
        self.grown += more;
        charge.into_iter().for_each(|charge| self.admission.keep_replay(bid, charge));
        Ok(())
    }

    /// Says what is lost, if no reader has found it before.
    fn warn_of_damage(&mut self, hole: &Hole) {
        let damaged = self.reader.stats().damaged_bytes;
        if std::mem::replace(&mut self.damaged, damaged) != damaged {
            let Range { start, end } = hole.range;
            let bytes = end - start;
            warn!(
                "buffer {}: {bytes} bytes from {start} to {end} are damaged on the disk; subscribers that come to them get Lost",
                self.live.bid()
            );
        }
    }

    /// Skips the bytes below `to`, which are gone and told as lost.
    fn skip(&mut self, to: Position) -> Result<(), SegmentError> {
        self.writer.skip(to)?;
        self.position = to;
        Ok(())
    }

    /// Skips to the boundary of the live log, since the disk cannot be read. The bytes between are told as lost.
    fn give_up(&mut self, error: &ReadError) -> Result<(), SegmentError> {
        warn!("buffer {}: a replay skips what the disk does not give: {error}", self.live.bid());
        let to = self.live.info().map_or(self.position, |info| info.boundary);
        self.skip(to)
    }

    /// The subscriber gets the bytes in the ring of the replay, and then its end.
    fn end(&self) -> Step {
        debug!("buffer {}: a replay ends at {}", self.live.bid(), self.position);
        self.writer.buffer().destroy();
        Step::Over
    }
}

/// The options of the buffer of a replay.
fn options(conn: &Conn, info: &BufferInfo, start: Position, out: &ROut) -> BufferOptions {
    let grows = conn.peer_grows() && out.context().config().transport == TransportKind::Tcp;
    let most = if grows { FIRST_DELIVERY_BYTES } else { u64::MAX };
    let max_delivery = info.max_delivery_bytes.min(most);
    BufferOptions::new()
        .size_bytes(max_delivery.saturating_mul(2).max(MIN_RING_BYTES))
        .retain_bytes(Some(0))
        .max_delivery_bytes(Some(max_delivery))
        .start(start)
        .epoch(Some(info.epoch))
}

/// Whether a subscription of the topic's ring may begin at a position: the ring has it, and the writer is not about to overwrite it.
fn has(info: &BufferInfo, position: Position) -> bool {
    let near = info.retain_bytes / 2;
    position >= info.tail && info.boundary.saturating_sub(position) <= near
}

/// The first position. An age is counted from `asked`, however long the request has waited.
fn start_of(reader: &mut Reader, from: ReplayFrom, asked: Instant) -> Result<Position, ReadError> {
    match from {
        ReplayFrom::Oldest => Ok(reader.first()),
        ReplayFrom::Position(position) => Ok(position),
        ReplayFrom::Age(ms) => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let age = Duration::from_millis(ms).saturating_add(asked.elapsed()).saturating_add(UNDER_WAY);
            let since = now.saturating_sub(age);
            reader.find_time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        }
    }
}
