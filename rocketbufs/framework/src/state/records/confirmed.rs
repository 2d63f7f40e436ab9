//! Confirmed positions, and the waiting parties: calls, contexts, upstream senders, and writers and tasks that must not block.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

use rocketring::NotifyFlag;

use crate::ground::lock::lock;
use crate::ground::types::{Bid, Position, ProgressLevel};
use crate::proto::{AskedLevels, Coverage};

/// How far a buffer is confirmed by everyone that counts now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConfirmedPositions {
    /// Bytes below this position are in the memory of every subscriber; without subscribers, all written bytes.
    pub landed: Position,
    /// Bytes below this position are in the memory of every last receiver of a chain.
    pub delivered: Position,
    /// Bytes below this position were released by all counted receivers.
    pub consumed: Position,
    /// The receivers that the positions speak for, and how many have gone or lost something since the buffer
    /// was created.
    pub coverage: Coverage,
    /// Connected subscriptions, and durable ones that are offline.
    pub subscriptions: usize,
}

impl ConfirmedPositions {
    /// Returns the position of a level.
    pub fn at(&self, level: ProgressLevel) -> Position {
        [self.landed, self.delivered, self.consumed][level as usize]
    }
}

/// The positions that one subscriber has confirmed, for
/// [`ROut::set_subscriber_progress_cb`](crate::ROut::set_subscriber_progress_cb).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberProgress {
    /// The buffer.
    pub bid: Bid,
    /// The subscriber's connection.
    pub conn: u64,
    /// Bytes below this position are in the subscriber's memory.
    pub landed: Position,
    /// Bytes below this position are in the memory of every receiver downstream of the subscriber.
    pub delivered: Position,
    /// Bytes below this position were released by all counted receivers.
    pub consumed: Position,
    /// The receivers that the subscriber speaks for, and how many of the whole buffer have gone or lost
    /// something.
    pub coverage: Coverage,
}

/// The positions that calls and upstream senders wait for.
#[derive(Default)]
pub(crate) struct Waits {
    /// Whether anything ever waited: applications that never wait pay nothing. Set before a buffer's workers
    /// are marked; that barrier orders it, so a worker that finds the mark sees it.
    any: AtomicBool,
    list: Mutex<WaitList>,
}

#[derive(Default)]
struct WaitList {
    /// Waiting calls by level. Each is a thread.
    calls: [BTreeMap<Position, usize>; ProgressLevel::ALL.len()],
    asked: AskedLevels,
}

impl Waits {
    /// Returns whether anything ever waited.
    pub(crate) fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Records that something waits.
    pub(crate) fn note(&self) {
        self.any.store(true, Ordering::Relaxed);
    }

    /// Registers positions that others asked for, by level; 0: none.
    pub(crate) fn ask(&self, wanted: [Position; 3], confirmed: [Position; 3]) {
        let mut list = lock(&self.list);
        for ((asked, wanted), confirmed) in list.asked.iter_mut().zip(wanted).zip(confirmed) {
            asked.add(wanted, confirmed);
        }
        self.note();
    }

    pub(crate) fn begin(&self, level: ProgressLevel, position: Position) {
        *lock(&self.list).calls[level as usize].entry(position).or_default() += 1;
        self.any.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(&self, level: ProgressLevel, position: Position) {
        let calls = &mut lock(&self.list).calls[level as usize];
        if let Some(count) = calls.get_mut(&position) {
            *count -= 1;
            if *count == 0 {
                calls.remove(&position);
            }
        }
    }

    /// Returns the smallest waited-for position beyond `known`, by level.
    pub(crate) fn next(&self, known: [Position; 3]) -> [Option<Position>; 3] {
        let list = lock(&self.list);
        let next = |n: usize| {
            let call = list.calls[n].range(known[n].saturating_add(1)..).next().map(|(at, _)| *at);
            call.into_iter().chain(list.asked[n].next(known[n])).min()
        };
        [next(0), next(1), next(2)]
    }
}

/// Contexts of deliveries with their ends, in the order of the calls. The writer adds them, workers take
/// them.
#[derive(Default)]
pub(crate) struct Contexts {
    list: Mutex<VecDeque<(Position, u64)>>,
    /// The length of the list. Written under the lock. Only the writer adds contexts, so the writer never
    /// reads a value that is too small.
    count: AtomicUsize,
}

impl Contexts {
    pub(crate) fn lock(&self) -> MutexGuard<'_, VecDeque<(Position, u64)>> {
        lock(&self.list)
    }

    /// Updates the count of a list whose lock the caller has.
    pub(crate) fn counts(&self, list: &VecDeque<(Position, u64)>) {
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// Returns the number of contexts without the lock.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// The condition that [`OutBuffer::notify_progress`](crate::OutBuffer::notify_progress) waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Room for the segment that [`SegmentError::Full`](crate::SegmentError::Full) refused last.
    Room,
    /// Every present subscriber has released everything below this position.
    Consumed(Position),
}

/// The conditions that the application waits for, if any.
#[derive(Debug, Default)]
pub(crate) struct ProgressWatch {
    /// Lock-free mirror of `wanted.is_any()`. Written under the lock.
    pub(crate) armed: NotifyFlag,
    pub(crate) wanted: Mutex<Wanted>,
}

#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// The condition for an event.
    pub(crate) event: Option<Progress>,
    /// Tasks that wait for room.
    pub(crate) room: Vec<Waker>,
}

impl Wanted {
    /// Returns whether anything is waited for.
    pub(crate) fn is_any(&self) -> bool {
        self.event.is_some() || !self.room.is_empty()
    }
}
