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

use crate::level::{Appended, Kept, Level, LevelError, LevelKind, Stop, Written};
use crate::log::{Batch, Hole, MAX_OFFSET, Offset, Window};
use crate::spread;
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

    /// Opens a topic in all levels, and returns the window of the first.
    ///
    /// Levels that kept parts of the log decide on its epoch. A level that has nothing begins where the next one ends; without
    /// such a next level it begins where the level before it begins, and so gets all that is left. A level that ends before the
    /// next one goes on behind a hole, and so does a log of which readers may have seen more than is left ([`Kept`]). A log that
    /// no level has begins at 0 with the epoch `new_epoch`.
    ///
    /// # Errors
    /// [`StackError`].
    pub fn open(&self, topic: TopicId, new_epoch: Epoch) -> Result<Window, StackError> {
        let kept = self.kept(topic)?;
        let epoch = kept.iter().flatten().next().map_or(new_epoch, |kept| kept.window.epoch);
        let mut next: Option<(LevelKind, Window)> = None;
        for (index, level) in self.levels.iter().enumerate().rev() {
            let before = kept[..index].iter().flatten().next_back().map(|kept| kept.window);
            let end = next.map(|(_, window)| window.head);
            let start = end.or(before.map(|window| window.first)).unwrap_or(0);
            let failed = |error| StackError::Open { topic, level: level.kind(), error };
            let mut window = level.open(topic, start, epoch).map_err(failed)?;
            let unsure = kept[index].filter(|_| before.is_none()).map_or(0, |kept| kept.unsure_bytes);
            let offset = window.head.saturating_add(unsure).min(MAX_OFFSET).max(end.unwrap_or(0));
            if window.head < offset {
                match (level.write(topic, Batch { offset, bytes: &[] }), next) {
                    (Ok(_), _) => window.head = offset,
                    (Err(LevelError::NotWritable), Some((upper, _))) => {
                        return Err(StackError::OtherLog { topic, lower: level.kind(), upper });
                    }
                    (Err(error), _) => return Err(failed(error)),
                }
            }
            next = Some((level.kind(), window));
        }
        let (_, window) = next.expect("a stack has a level");
        self.topics.write().unwrap_or_else(PoisonError::into_inner).insert(topic, epoch);
        Ok(window)
    }

    /// Opens many topics, each with the epoch of a new log, as [`open`](Self::open) does: some at the same time, because a level that
    /// makes what it opens durable mostly waits for its disk.
    ///
    /// # Errors
    /// [`StackError`]. Some of the topics may be open then.
    pub fn open_all(&self, topics: &[(TopicId, Epoch)]) -> Result<(), StackError> {
        spread::for_each(topics, |(topic, new_epoch)| self.open(*topic, *new_epoch).map(drop))
    }

    /// What each level has of a topic. All that have something must have the same log.
    fn kept(&self, topic: TopicId) -> Result<Vec<Option<Kept>>, StackError> {
        let mut all = Vec::with_capacity(self.levels.len());
        let mut lower: Option<(LevelKind, Epoch)> = None;
        for level in &self.levels {
            let kept = level.kept(topic);
            let kept = kept.map_err(|error| StackError::Open { topic, level: level.kind(), error })?;
            if let Some(Kept { window, .. }) = kept {
                if let Some((lower, _)) = lower.filter(|(_, epoch)| *epoch != window.epoch) {
                    return Err(StackError::OtherLog { topic, lower, upper: level.kind() });
                }
                lower = Some((level.kind(), window.epoch));
            }
            all.push(kept);
        }
        Ok(all)
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
