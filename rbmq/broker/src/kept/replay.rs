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

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rbmq_wire::{Control, ReplayFrom};
use rocketbufs::config::TransportKind;
use rocketbufs::inspect::BufferInfo;
use rocketbufs::{
    Bid, BufferOptions, Conn, GrowError, OutBuffer, OutWriter, Position, Progress, ROut, SegmentError,
};
use seglog::{Hole, Read, ReadError, Reader};
use tracing::{debug, warn};

use super::super::outgoing::send;
use super::archived::Archived;
use super::older::{Next, Older};

/// A step copies at most so many bytes, so that the replays of a thread take turns.
const STEP_BYTES: usize = 1 << 20;

/// The smallest ring of a replay, in bytes.
const MIN_RING_BYTES: u64 = 256 << 10;

/// The ring of a replay has room for deliveries of so many bytes at first, or smaller ones, and grows for larger ones.
const FIRST_DELIVERY_BYTES: u64 = 16 << 20;

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
    /// When the subscriber asked.
    pub(crate) asked: Instant,
    /// Where to begin.
    pub(crate) from: ReplayFrom,
    /// The id of the buffer for this subscriber.
    pub(crate) bid: Bid,
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
    /// Answers a request. None if the ring of the topic has everything that is asked for, or nothing can be done.
    pub(crate) fn begin(request: ReplayRequest, out: &ROut) -> Option<Self> {
        let ReplayRequest { conn, live, mut reader, archived, from, bid, .. } = request;
        let info = live.info()?;
        let older = archived.as_ref().and_then(|(archived, _)| archived.first());
        let start = match start_of(&mut reader, from) {
            Ok(start) if from == ReplayFrom::Oldest => older.map_or(start, |older| older.min(start)),
            Ok(start) => start,
            Err(error) => {
                warn!("buffer {}: a position is not found: {error}", live.bid());
                info.boundary
            }
        };
        let answer = |replay| send(&conn, &Control::Replayed { bid: live.bid(), replay, start });
        if has(&info, start) {
            answer(None);
            return None;
        }
        let grows = conn.peer_grows() && out.context().config().transport == TransportKind::Tcp;
        let most = if grows { FIRST_DELIVERY_BYTES } else { u64::MAX };
        let max_delivery = info.max_delivery_bytes.min(most);
        let options = BufferOptions::new()
            .size_bytes(max_delivery.saturating_mul(2).max(MIN_RING_BYTES))
            .retain_bytes(Some(0))
            .max_delivery_bytes(Some(max_delivery))
            .start(start)
            .epoch(Some(info.epoch));
        let writer = match out.create_buffer_with(bid, options).and_then(|buffer| buffer.writer()) {
            Ok(writer) => writer,
            Err(error) => {
                // The subscriber connects again, and then there may be room.
                conn.close(&format!("the broker cannot read the topic from its disk: {error}"));
                return None;
            }
        };
        debug!("buffer {}: replayed from {start} as buffer {bid}", live.bid());
        answer(Some(bid));
        let older = archived.map(|(archived, patience)| Older::new(archived, patience));
        let damaged = reader.stats().damaged_bytes;
        Some(Self { conn, live, reader, older, writer, position: start, damaged })
    }

    /// Copies as many bytes as the ring has room for.
    pub(crate) fn step(&mut self) -> Step {
        let mut bytes = 0;
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
        match self.writer.grow(size) {
            Ok(()) => self.deliver(bytes),
            Err(GrowError::Fixed) => {
                warn!(
                    "buffer {}: {size} bytes at {} are skipped: the topic's deliveries have at most {max} now (ring_bytes)",
                    self.live.bid(),
                    self.position
                );
                self.skip(self.position + size)
            }
            Err(error) => {
                // As at the beginning: there may be memory when the subscriber connects again.
                self.conn.close(&format!("the broker cannot read the topic from its disk: {error}"));
                Err(SegmentError::Closed)
            }
        }
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

/// Whether a subscription of the topic's ring may begin at a position: the ring has it, and the writer is not about to overwrite it.
fn has(info: &BufferInfo, position: Position) -> bool {
    let near = info.retain_bytes / 2;
    position >= info.tail && info.boundary.saturating_sub(position) <= near
}

/// The first position.
fn start_of(reader: &mut Reader, from: ReplayFrom) -> Result<Position, ReadError> {
    match from {
        ReplayFrom::Oldest => Ok(reader.first()),
        ReplayFrom::Position(position) => Ok(position),
        ReplayFrom::Age(ms) => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let since = now.saturating_sub(Duration::from_millis(ms));
            reader.find_time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        }
    }
}
