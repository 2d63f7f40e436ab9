//! The log of a space, which all topics of the space that a publisher has open share.
//!
//! ```text
//!   topic("devices/1/temp") ┐
//!   topic("devices/2/temp") ┼──▶ one buffer "$space/devices": records with the attribute *topic* ══▶ broker
//!   space("devices/#")      ┘
//! ```
//!
//! Positions, confirmations and room are those of the log. Each writer has its name, and is told under it.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;
use std::{future::Future, pin::pin};

use rocketbufs::{OutBuffer, OutSegment, OutWriter, Position, SegmentError};

use crate::connection::lock;
use crate::ground::deadline::Deadline;
use crate::ground::error::Over;
use crate::state::publisher_shared::PublisherShared;
use crate::state::topic_state::TopicState;
use crate::wire::{Attributes, AttributesBuf, Space, record_header, record_header_with};

/// The logs of spaces that a publisher's writers use.
#[derive(Default)]
pub(crate) struct SpaceLogs(Mutex<Vec<Weak<SpaceLog>>>);

impl SpaceLogs {
    /// The first log that takes records and is wanted.
    pub(crate) fn find(&self, is_wanted: impl Fn(&SpaceLog) -> bool) -> Option<LogUser> {
        let mut logs = lock(&self.0);
        logs.retain(|log| log.strong_count() > 0);
        let mut usable = logs.iter().filter_map(Weak::upgrade).filter(|log| log.state.end().is_none());
        usable.find(|log| is_wanted(log)).map(LogUser::new)
    }

    pub(crate) fn add(&self, log: SpaceLog) -> LogUser {
        let log = Arc::new(log);
        let mut logs = lock(&self.0);
        logs.push(Arc::downgrade(&log));
        LogUser::new(log)
    }
}

/// The log.
pub(crate) struct SpaceLog {
    pub(crate) space: Space,
    spaces: Arc<SpaceLogs>,
    shared: Arc<PublisherShared>,
    pub(crate) state: Arc<TopicState>,
    pub(crate) buffer: OutBuffer,
    pub(crate) keep_until_delivered: bool,
    writer: Mutex<OutWriter>,
    /// How many writers have it open. Changes under the lock of `spaces`.
    users: AtomicUsize,
}

impl SpaceLog {
    pub(crate) fn new(
        space: Space,
        spaces: Arc<SpaceLogs>,
        shared: Arc<PublisherShared>,
        state: Arc<TopicState>,
        writer: OutWriter,
        keep_until_delivered: bool,
    ) -> Self {
        let buffer = writer.buffer().clone();
        let (writer, users) = (Mutex::new(writer), AtomicUsize::new(0));
        Self { space, spaces, shared, state, buffer, keep_until_delivered, writer, users }
    }

    /// Appends a delivery. Does not wait for room.
    pub(crate) fn append(&self, parts: &[&[u8]]) -> Result<Position, SegmentError> {
        lock(&self.writer).append(parts)
    }

    /// Looks for room for a delivery. Another writer of the log may take it.
    fn has_room(&self, bytes: u64) -> Result<(), SegmentError> {
        let mut writer = lock(&self.writer);
        let segment = writer.segment(bytes, Some(Duration::ZERO))?;
        // The newest segment can be returned.
        let _ = writer.deliver(segment, 0, None);
        Ok(())
    }

    pub(crate) fn head(&self) -> Position {
        lock(&self.writer).head()
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        lock(&self.writer).free_bytes()
    }

    /// Tries something that needs room, and once more after a wait.
    fn blocking<T>(
        &self,
        wait: Duration,
        mut attempt: impl FnMut() -> Result<T, SegmentError>,
    ) -> Result<T, SegmentError> {
        match attempt() {
            Err(SegmentError::Full | SegmentError::TimedOut) if !wait.is_zero() => {
                self.wait_for_room(wait);
                attempt()
            }
            other => other,
        }
    }

    /// Waits until a delivery that found no room may have some, or the time is over. No other writer of the log waits for this one.
    fn wait_for_room(&self, timeout: Duration) {
        let deadline = Deadline::after(Some(timeout));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let (mut task, mut room) = (Context::from_waker(&waker), pin!(self.buffer.room()));
        while room.as_mut().poll(&mut task).is_pending() && !deadline.has_passed() {
            std::thread::park_timeout(deadline.left_within(timeout));
        }
    }
}

/// A log that a writer has open.
pub(crate) struct LogUser {
    log: Arc<SpaceLog>,
    left: AtomicBool,
}

impl LogUser {
    /// The caller has the lock of the logs.
    fn new(log: Arc<SpaceLog>) -> Self {
        log.users.fetch_add(1, Ordering::Relaxed);
        Self { log, left: AtomicBool::new(false) }
    }

    /// The writer closes its topic. Returns whether the log has no other writer that is open; then no other one finds it any more.
    pub(crate) fn leave(&self) -> bool {
        let mut logs = lock(&self.log.spaces.0);
        if !self.left.swap(true, Ordering::Relaxed) {
            self.log.users.fetch_sub(1, Ordering::Relaxed);
        }
        let is_last = self.log.users.load(Ordering::Relaxed) == 0;
        if is_last {
            logs.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(&self.log)));
        }
        is_last
    }
}

impl Deref for LogUser {
    type Target = SpaceLog;

    fn deref(&self) -> &SpaceLog {
        &self.log
    }
}

impl Drop for LogUser {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Drop for SpaceLog {
    fn drop(&mut self) {
        self.state.confirmations.close(Over::Closed);
        // No effect if the log was closed: the buffer is destroyed then.
        self.buffer.destroy();
        self.shared.remove(self.state.bid);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Where the records of a writer go: into a buffer of its own, or with the name of its topic into the log of a space.
pub(crate) enum Output {
    Own(OutWriter),
    Shared {
        log: LogUser,
        /// The attribute with the name of the topic. The writer of a space names a topic for each record, and has none.
        topic: AttributesBuf,
    },
}

/// Room for a delivery.
pub(crate) enum Room {
    Ring(OutSegment),
    /// For the log of a space, where the room of one writer must not keep others waiting.
    Memory(Vec<u8>),
}

impl Room {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Ring(segment) => segment.bytes_mut(),
            Self::Memory(bytes) => bytes,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Ring(segment) => segment.len(),
            Self::Memory(bytes) => bytes.len(),
        }
    }
}

impl Output {
    pub(crate) fn buffer(&self) -> &OutBuffer {
        match self {
            Self::Own(writer) => writer.buffer(),
            Self::Shared { log, .. } => &log.buffer,
        }
    }

    pub(crate) fn log(&self) -> Option<&LogUser> {
        match self {
            Self::Own(_) => None,
            Self::Shared { log, .. } => Some(log),
        }
    }

    pub(crate) fn head(&self) -> Position {
        match self {
            Self::Own(writer) => writer.head(),
            Self::Shared { log, .. } => log.head(),
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        match self {
            Self::Own(writer) => writer.free_bytes(),
            Self::Shared { log, .. } => log.free_bytes(),
        }
    }

    /// The attributes of every record of this writer.
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        match self {
            Self::Own(_) => Attributes::EMPTY,
            Self::Shared { topic, .. } => topic.attributes(),
        }
    }

    /// Appends a record with its header, if there is room. In a space the header is another one.
    #[inline]
    pub(crate) fn append_record(&mut self, header: &[u8], record: &[u8]) -> Result<Position, SegmentError> {
        match self {
            Self::Own(writer) => writer.append(&[header, record]),
            Self::Shared { log, topic } => append_to_space(log, topic.attributes(), record),
        }
    }

    /// Appends a delivery, if there is room.
    #[inline]
    pub(crate) fn append(&mut self, parts: &[&[u8]]) -> Result<Position, SegmentError> {
        match self {
            Self::Own(writer) => writer.append(parts),
            Self::Shared { log, .. } => log.append(parts),
        }
    }

    /// As [`Output::append_record`], waiting at most `wait` for room.
    pub(crate) fn append_record_blocking(
        &mut self,
        record: &[u8],
        wait: Duration,
    ) -> Result<Position, SegmentError> {
        match self {
            Self::Own(writer) => {
                let header = record_header(record.len()).ok_or(SegmentError::Empty)?;
                writer.append_blocking(&[&header, record], Some(wait))
            }
            Self::Shared { log, topic } => {
                log.blocking(wait, || append_to_space(log, topic.attributes(), record))
            }
        }
    }

    /// Appends a delivery. Waits at most `wait` for room.
    pub(crate) fn append_blocking(
        &mut self,
        parts: &[&[u8]],
        wait: Duration,
    ) -> Result<Position, SegmentError> {
        match self {
            Self::Own(writer) => writer.append_blocking(parts, Some(wait)),
            Self::Shared { log, .. } => log.blocking(wait, || log.append(parts)),
        }
    }

    /// Room for a delivery. Waits at most `wait` for it.
    pub(crate) fn room(&mut self, bytes: u64, wait: Duration) -> Result<Room, SegmentError> {
        match self {
            Self::Own(writer) => writer.segment(bytes, Some(wait)).map(Room::Ring),
            Self::Shared { log, .. } => {
                log.blocking(wait, || log.has_room(bytes))?;
                // There was room for as many bytes.
                Ok(Room::Memory(vec![0; bytes as usize]))
            }
        }
    }
}

#[inline(never)]
fn append_to_space(
    log: &SpaceLog,
    attributes: Attributes<'_>,
    record: &[u8],
) -> Result<Position, SegmentError> {
    let header = record_header_with(attributes, record.len());
    let header = header
        .ok_or(SegmentError::TooLarge { size: record.len() as u64, max: log.state.max_delivery_bytes() })?;
    log.append(&[&header, attributes.as_bytes(), record])
}
