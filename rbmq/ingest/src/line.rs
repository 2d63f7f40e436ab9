//! One topic: from the level's log into the feed.

use std::sync::Arc;

use multimqc::{Found, Level, Offset, Stop, TopicId};
use multimqc_kernel::Topic;
use rbmq_broker::{Batch, Feed, FeedCounters, FeedError};
use tracing::warn;

use super::boundaries::Boundaries;
use super::records;

/// Batches of a topic before the next topic's turn.
const TURN: usize = 64;

/// A reader that was overtaken goes on this part of the ring behind the oldest byte, so that it is not overtaken again at once.
const HEAD_START_PART: u64 = 8;

/// A topic of a level, and the feed that it fills. The feed's position is the offset of the next byte.
#[derive(Debug)]
pub(crate) struct Line {
    topic: TopicId,
    feed: Feed,
    boundaries: Boundaries,
    ring_bytes: u64,
    /// The level's messages before the feed began; none until they are known.
    before: Option<u64>,
    taken: u64,
    /// The level's messages at the last look at which nothing was left.
    settled: Option<u64>,
    /// The ring, if it may outlive this process.
    kept: Option<Topic>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// Everything was taken.
    Done,
    /// The ring of the topic is full.
    Full,
    /// The turn is over.
    More,
}

/// The result of filling a batch.
enum Filled {
    Records(u64),
    Stopped(Stop),
    Damaged,
    Failed,
}

impl Line {
    /// The line of an open topic. `kept` is its ring, if it may outlive this process.
    pub fn new(level: &dyn Level, topic: TopicId, feed: Feed, kept: Option<Topic>) -> Self {
        let ring_bytes = level.capacity_bytes().unwrap_or(u64::MAX);
        let boundaries = Boundaries::new(ring_bytes);
        // The first message of all is the feed's too.
        let before = (feed.position() == 0).then_some(0);
        Self { topic, feed, boundaries, ring_bytes, before, taken: 0, settled: None, kept }
    }

    pub fn counters(&self) -> &Arc<FeedCounters> {
        self.feed.counters()
    }

    /// Takes the messages that have arrived, as far as the topic has room.
    ///
    /// # Errors
    /// The broker has stopped.
    pub fn turn(&mut self, level: &dyn Level) -> Result<Turn, FeedError> {
        let mut turn = Turn::More;
        for _ in 0..TURN {
            let Some(window) = level.window(self.topic) else { return Ok(Turn::Done) };
            self.boundaries.note(window.head);
            let left = window.head.saturating_sub(self.feed.position());
            if left == 0 {
                turn = Turn::Done;
                break;
            }
            if !self.batch(level, left, window.head)? {
                turn = Turn::Full;
                break;
            }
        }
        let lag =
            level.window(self.topic).map_or(0, |window| window.head.saturating_sub(self.feed.position()));
        self.counters().set_lag(lag, turn == Turn::Full);
        self.leave_marks();
        Ok(turn)
    }

    /// Notes boundaries for the next process, the oldest for what its subscribers may still need. The last one is most certainly
    /// still there.
    fn leave_marks(&self) {
        if let Some(ring) = &self.kept {
            let at = self.feed.position();
            let before = |eighths: u64| at.saturating_sub(self.ring_bytes / 8 * eighths);
            let mark = |from| self.boundaries.after(from).map_or(at, |mark| mark.min(at));
            ring.set_marks([mark(before(7)), mark(before(4)), mark(before(2)), at]);
        }
    }

    /// Takes a batch of at most `left` bytes. False if the topic has no room.
    fn batch(&mut self, level: &dyn Level, left: u64, head: Offset) -> Result<bool, FeedError> {
        let (topic, from) = (self.topic, self.feed.position());
        let size = left.min(self.feed.max_batch_bytes());
        let mut filled = Filled::Records(0);
        let batch = self.feed.batch(size, |out| {
            let (what, bytes) = fill(level, topic, from, out);
            filled = what;
            bytes
        })?;
        let bytes = match batch {
            Batch::Taken(bytes) => bytes as u64,
            _ => return Ok(false),
        };
        match filled {
            Filled::Records(messages) => {
                self.taken += messages;
                self.counters().add(messages, bytes);
            }
            Filled::Stopped(Stop::Gone(first)) => return self.leave_hole(first, head),
            Filled::Stopped(Stop::Hole(hole)) => return self.leave_hole(hole.to, head),
            Filled::Damaged => {
                let skipped = self.feed.skip(head)?;
                if skipped {
                    warn!("topic {topic}: the bytes from {from} to {head} are no records and are left out");
                }
                return Ok(skipped);
            }
            Filled::Stopped(_) | Filled::Failed => {}
        }
        Ok(true)
    }

    /// The level has nothing below `first`: goes on at a boundary behind it. False if a subscriber holds bytes before the hole.
    fn leave_hole(&mut self, first: Offset, head: Offset) -> Result<bool, FeedError> {
        let from = self.feed.position();
        let wanted = first.saturating_add(self.ring_bytes / HEAD_START_PART);
        let to = self.boundaries.after(wanted).unwrap_or(head).max(from);
        if to < first {
            // The window's head comes up to there once the writers under way are done.
            return Ok(true);
        }
        if !self.feed.skip(to)? {
            return Ok(false);
        }
        let topic = self.counters().values().topic;
        let lost = to - from;
        warn!(
            "topic '{topic}': {lost} bytes ({from} to {to}) were overwritten before the topic had room for them"
        );
        Ok(true)
    }

    /// Compares the level's messages with those that were taken. Messages that are missing when nothing is left were lost.
    pub fn settle(&mut self, level: &dyn Level) {
        let at = self.feed.position();
        let stored = level.counters(self.topic).messages;
        let settled = level.window(self.topic).is_some_and(|window| window.head == at);
        // A message under way may be counted before it is stored, but not for so long.
        if settled && self.settled == Some(stored) {
            let before = *self.before.get_or_insert(stored.saturating_sub(self.taken));
            let lost = stored.saturating_sub(before).saturating_sub(self.taken);
            self.counters().set_lost_messages(lost);
        }
        self.settled = settled.then_some(stored);
    }
}

/// Copies bytes of the level and counts the records among them. Returns how many bytes are whole records.
fn fill(level: &dyn Level, topic: TopicId, from: Offset, out: &mut [u8]) -> (Filled, usize) {
    let Found { bytes, stop } = match level.transfer(topic, from, out) {
        Ok(found) => found,
        Err(error) => {
            warn!("topic {topic}: the level cannot be read: {error}");
            return (Filled::Failed, 0);
        }
    };
    if bytes == 0 {
        return (Filled::Stopped(stop), 0);
    }
    match records::whole(&out[..bytes]) {
        Some(found) if found.messages > 0 => (Filled::Records(found.messages), found.bytes),
        _ => (Filled::Damaged, 0),
    }
}
