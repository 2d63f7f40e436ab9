//! The stack: levels in order, pushes into the first, pulls from the first that has the range.
//!
//! ```text
//!   append ─▶ ┌ first ┐ ◀─ read: has all of [from, to)?            yes: the reply
//!             └───┬───┘      │ no
//!    transfer ────┤          ▼
//!             ┌ next  ┐ ◀─ has all of it?                          yes: the same reply
//!             └───┬───┘      │ no
//!                 ▼          ▼
//!             ┌ last  ┐ ◀─ has all of it?                          yes: the same reply
//!             └───────┘      │ no: piece by piece, from whichever level has the next byte; then what is missing, and why
//! ```

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::level::{Appended, Level, LevelError, LevelKind, Stop, Written};
use crate::log::{Batch, Hole, Offset, Window};
use crate::topic::{Epoch, TopicId};

/// Why a stack was not made, or a topic not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// The configuration's: a stack has at least one level.
    #[error("a stack needs at least one level")]
    NoLevel,
    /// The configuration's: there are two levels of one kind.
    #[error("the level {} is named twice", .0.name())]
    Twice(LevelKind),
    /// A level did not open the topic.
    #[error("topic {topic} in the level {}: {error}", level.name())]
    Open {
        /// The topic.
        topic: TopicId,
        /// The level.
        level: LevelKind,
        /// Why.
        error: LevelError,
    },
    /// Two levels have parts of different logs of this topic, left from earlier runs. One of them must be cleared.
    #[error("topic {topic}: the level {} has another log than the level {}; clear one of them", lower.name(), upper.name())]
    OtherLog {
        /// The topic.
        topic: TopicId,
        /// The level nearer to the network.
        lower: LevelKind,
        /// The next level.
        upper: LevelKind,
    },
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// How many bytes at the beginning of the buffer are of the log.
    pub bytes: usize,
    /// The level that answered. None if no level has the whole range: the bytes, if any, are put together from several.
    pub level: Option<LevelKind>,
    /// What follows the bytes.
    pub rest: Rest,
}

/// What follows the bytes of an [`Answer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// All bytes are there.
    Nothing,
    /// Bytes that were not written yet.
    Later,
    /// A hole.
    Hole(Hole),
    /// Bytes that no level keeps any more, up to here.
    Gone(Offset),
    /// Bytes of a level that failed. Asking again may help.
    Failed,
}

/// Levels in order, the first level first.
pub struct Stack {
    levels: Vec<Arc<dyn Level>>,
    topics: RwLock<HashMap<TopicId, Epoch>>,
}

impl Stack {
    /// A stack of these levels, in any order.
    ///
    /// # Errors
    /// [`StackError::NoLevel`], [`StackError::Twice`].
    pub fn new(mut levels: Vec<Arc<dyn Level>>) -> Result<Stack, StackError> {
        levels.sort_by_key(|level| level.kind());
        if levels.is_empty() {
            return Err(StackError::NoLevel);
        }
        if let Some(pair) = levels.windows(2).find(|pair| pair[0].kind() == pair[1].kind()) {
            return Err(StackError::Twice(pair[0].kind()));
        }
        Ok(Stack { levels, topics: RwLock::default() })
    }

    /// The levels, the first level first.
    pub fn levels(&self) -> &[Arc<dyn Level>] {
        &self.levels
    }

    /// Opens a topic in all levels, and returns the window of the first. The last level is opened first: the log goes on where the
    /// last level ends, under its epoch. A log that no level has begins at 0 with the epoch `new_epoch`.
    ///
    /// # Errors
    /// [`StackError`].
    pub fn open(&self, topic: TopicId, new_epoch: Epoch) -> Result<Window, StackError> {
        let mut above: Option<(LevelKind, Window)> = None;
        for level in self.levels.iter().rev() {
            let (start, epoch) = above.map_or((0, new_epoch), |(_, window)| (window.head, window.epoch));
            let opened = level.open(topic, start, epoch);
            let window = opened.map_err(|error| StackError::Open { topic, level: level.kind(), error })?;
            if let Some((upper, _)) = above.filter(|_| window.head < start || window.epoch != epoch) {
                return Err(StackError::OtherLog { topic, lower: level.kind(), upper });
            }
            above = Some((level.kind(), window));
        }
        let (_, window) = above.expect("a stack has a level");
        self.topics.write().unwrap_or_else(PoisonError::into_inner).insert(topic, window.epoch);
        Ok(window)
    }

    /// The epoch of an open topic.
    pub fn epoch(&self, topic: TopicId) -> Option<Epoch> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner).get(&topic).copied()
    }

    /// The open topics, in order.
    pub fn topics(&self) -> Vec<TopicId> {
        let topics = self.topics.read().unwrap_or_else(PoisonError::into_inner);
        let mut topics: Vec<TopicId> = topics.keys().copied().collect();
        topics.sort();
        topics
    }

    /// Appends messages in the first level.
    ///
    /// # Errors
    /// [`LevelError`].
    pub fn append(
        &self,
        topic: TopicId,
        messages: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<Appended, LevelError> {
        self.levels[0].append(topic, messages)
    }

    /// Writes a batch from a level outside of this process into the first level here.
    ///
    /// # Errors
    /// [`LevelError`].
    pub fn write(&self, topic: TopicId, batch: Batch<'_>) -> Result<Written, LevelError> {
        self.levels[0].write(topic, batch)
    }

    /// The end of a topic's log.
    pub fn head(&self, topic: TopicId) -> Option<Offset> {
        self.levels[0].window(topic).map(|window| window.head)
    }

    /// Fills `out` with bytes from `from` on: from the first level that has all of them, or else piece by piece. None if the topic
    /// is not open.
    pub fn read(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Option<Answer> {
        self.epoch(topic)?;
        for level in &self.levels {
            if let Ok(found) = level.read(topic, from, out)
                && found.stop == Stop::Filled
            {
                return Some(Answer { bytes: out.len(), level: Some(level.kind()), rest: Rest::Nothing });
            }
        }
        Some(self.assemble(topic, from, out))
    }

    /// Reads piece by piece. Each round takes the bytes of the first level that has the next one.
    fn assemble(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Answer {
        let mut bytes = 0;
        loop {
            let at = from + bytes as u64;
            let mut missing = Missing::default();
            let next = self.levels.iter().enumerate().find_map(|(index, level)| {
                match level.transfer(topic, at, &mut out[bytes..]) {
                    Ok(found) if found.bytes > 0 || found.stop == Stop::Filled => Some(found),
                    Ok(found) => {
                        missing.add(index == 0, at, found.stop);
                        None
                    }
                    Err(_) => {
                        missing.failed = true;
                        None
                    }
                }
            });
            match next {
                Some(found) if found.stop == Stop::Filled => {
                    return Answer { bytes: out.len(), level: None, rest: Rest::Nothing };
                }
                Some(found) => bytes += found.bytes,
                None => return Answer { bytes, level: None, rest: missing.rest(at) },
            }
        }
    }
}

/// Why no level has a byte.
#[derive(Default)]
struct Missing {
    /// The log has not come so far.
    later: bool,
    /// A level says that it is in a hole, or has not got it although the first level had it.
    hole: bool,
    failed: bool,
    /// The nearest offset at which a level may have bytes again.
    next: Option<Offset>,
}

impl Missing {
    fn add(&mut self, first_level: bool, at: Offset, stop: Stop) {
        let next = match stop {
            Stop::Head if first_level => {
                self.later = true;
                return;
            }
            Stop::Filled | Stop::Head => {
                self.hole = true;
                return;
            }
            Stop::Hole(hole) => {
                self.hole = true;
                hole.to
            }
            Stop::Gone(first) => first,
        };
        self.next = Some(self.next.map_or(next, |other| other.min(next)).max(at + 1));
    }

    fn rest(&self, at: Offset) -> Rest {
        match self.next {
            _ if self.later => Rest::Later,
            _ if self.failed => Rest::Failed,
            Some(to) if self.hole => Rest::Hole(Hole { from: at, to }),
            Some(to) => Rest::Gone(to),
            None => Rest::Failed,
        }
    }
}
