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
use std::sync::Arc;

use locks::{Mutex, RwLock};

use crate::level::{Appended, Kept, Level, LevelError, LevelKind, Stop, Written};
use crate::log::{Batch, Hole, MAX_OFFSET, Offset, Window};
use crate::sessions::{Session, Sessions};
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
    #[error(
        "topic {topic}: the level {} has another log than the level {}, from an earlier run; clear one of them, or use the \
         storage that belongs to it",
        lower.name(),
        upper.name()
    )]
    OtherLog {
        /// The topic.
        topic: TopicId,
        /// The level nearer to the network.
        lower: LevelKind,
        /// The next level.
        upper: LevelKind,
    },
}

/// Bytes that got new offsets when a topic was opened. A level had continued without the next one, which meanwhile had given the same
/// offsets to other bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repair {
    /// The topic.
    pub topic: TopicId,
    /// The level whose bytes were moved.
    pub lower: LevelKind,
    /// The level whose bytes kept their offsets.
    pub upper: LevelKind,
    /// The offset at which the bytes were, and from which both logs differ.
    pub from: Offset,
    /// Their offset now, behind a hole.
    pub to: Offset,
    /// The number of moved bytes.
    pub bytes: u64,
    /// The number of further bytes that the level had overwritten before.
    pub lost_bytes: u64,
}

/// The log that a level has from before the stack was opened.
struct RecoveredLog {
    kept: Kept,
    /// `None` in a level that keeps no sessions.
    sessions: Option<Sessions>,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// How many bytes at the beginning of the buffer are of the log.
    pub bytes: usize,
    /// The level that answered. `None`: no level has the whole range, and the bytes, if any, come from several levels.
    pub level: Option<LevelKind>,
    /// The state of the bytes of the asked range that follow.
    pub tail: Tail,
}

/// The state of the bytes of the asked range that follow those of an [`Answer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// No bytes follow: the answer has the whole range.
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

impl RecoveredLog {
    /// How many bytes after the head readers may have seen although no level has them. 0 if the level before has kept its window of the
    /// session that was killed.
    fn unsure_beside(&self, before: Option<&RecoveredLog>) -> u64 {
        let knows = |before: &RecoveredLog| match (&self.sessions, &before.sessions) {
            (Some(these), Some(those)) => these.end_together(those),
            _ => true,
        };
        if before.is_some_and(knows) { 0 } else { self.kept.unsure_bytes }
    }

    /// The offset from which the log of this level differs from that of the level above it, if both have bytes there.
    fn conflict(&self, above: &RecoveredLog) -> Option<Offset> {
        let (head, above_head) = (self.kept.window.head, above.kept.window.head);
        let agreed = self.sessions.as_ref()?.agreement(head, above.sessions.as_ref()?, above_head);
        (agreed < head.min(above_head)).then_some(agreed)
    }
}

/// Levels in order, the first level first.
pub struct Stack {
    levels: Vec<Arc<dyn Level>>,
    topics: RwLock<HashMap<TopicId, Epoch>>,
    repairs: Mutex<Vec<Repair>>,
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
        Ok(Stack { levels, topics: RwLock::default(), repairs: Mutex::default() })
    }

    /// The levels, the first level first.
    pub fn levels(&self) -> &[Arc<dyn Level>] {
        &self.levels
    }

    /// Opens a topic in all levels, and returns the window of the first. An open topic stays as it is.
    ///
    /// Levels that kept parts of the log decide on its epoch. A level without a log begins where the next level ends. Without such a next
    /// level it begins where the level before it begins, and so gets all bytes that are left. A level that ends before the next one
    /// continues behind a hole. So does a log of which readers may have seen more than is left ([`Kept`]). A log that no level has begins
    /// at 0 with the epoch `new_epoch`. If a level and the next one have given the same offsets to different bytes ([`Sessions`]), those
    /// of the first are moved behind the end of the next one ([`Stack::repairs`]).
    ///
    /// # Errors
    /// [`StackError`].
    pub fn open(&self, topic: TopicId, new_epoch: Epoch) -> Result<Window, StackError> {
        if let Some(window) = self.epoch(topic).and_then(|_| self.levels[0].window(topic)) {
            return Ok(window);
        }
        let mut recovered = self.recovered(topic)?;
        let sessions = self.reconcile(topic, &mut recovered)?;
        let epoch =
            recovered.iter().flatten().next().map_or(new_epoch, |recovered| recovered.kept.window.epoch);
        let mut next: Option<(LevelKind, Window)> = None;
        for (index, level) in self.levels.iter().enumerate().rev() {
            let before = recovered[..index].iter().flatten().next_back();
            let end = next.map(|(_, window)| window.head);
            let start = end.or(before.map(|recovered| recovered.kept.window.first)).unwrap_or(0);
            let failed = |error| StackError::Open { topic, level: level.kind(), error };
            let mut window = level.open(topic, start, epoch).map_err(failed)?;
            let unsure = recovered[index].as_ref().map_or(0, |recovered| recovered.unsure_beside(before));
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
        for level in &self.levels {
            let failed = |error| StackError::Open { topic, level: level.kind(), error };
            level.keep_sessions(topic, &sessions).map_err(failed)?;
        }
        self.topics.write().insert(topic, epoch);
        Ok(window)
    }

    /// Opens many topics, as [`open`](Self::open) does, each with the epoch for a new log. Several topics are opened at the same time,
    /// because a level that makes the opened log durable mostly waits for its disk.
    ///
    /// # Errors
    /// [`StackError`]. Some of the topics may be open then.
    pub fn open_all(&self, topics: &[(TopicId, Epoch)]) -> Result<(), StackError> {
        spread::for_each(topics, |(topic, new_epoch)| self.open(*topic, *new_epoch).map(drop))
    }

    /// The log of a topic that each level has. All levels that have a log must have the same epoch.
    fn recovered(&self, topic: TopicId) -> Result<Vec<Option<RecoveredLog>>, StackError> {
        let mut all: Vec<Option<RecoveredLog>> = Vec::with_capacity(self.levels.len());
        let mut lower: Option<(LevelKind, Epoch)> = None;
        for level in &self.levels {
            let failed = |error| StackError::Open { topic, level: level.kind(), error };
            let Some(kept) = level.kept(topic).map_err(failed)? else {
                all.push(None);
                continue;
            };
            if let Some((lower, _)) = lower.filter(|(_, epoch)| *epoch != kept.window.epoch) {
                return Err(StackError::OtherLog { topic, lower, upper: level.kind() });
            }
            lower = Some((level.kind(), kept.window.epoch));
            all.push(Some(RecoveredLog { kept, sessions: level.sessions(topic).map_err(failed)? }));
        }
        Ok(all)
    }

    /// Makes one log of the logs that the levels have kept, and returns the sessions of this log, with that of this stack.
    fn reconcile(
        &self,
        topic: TopicId,
        recovered: &mut [Option<RecoveredLog>],
    ) -> Result<Sessions, StackError> {
        let id = getrandom::u64().map_err(|error| StackError::Open {
            topic,
            level: self.levels[0].kind(),
            error: LevelError::Io(std::io::Error::other(error)),
        })?;
        let mut sessions = Sessions::default();
        let mut start = 0;
        let mut upper: Option<usize> = None;
        for lower in (0..recovered.len()).rev() {
            let (until, rest) = recovered.split_at_mut(lower + 1);
            let Some(below) = until[lower].as_mut() else { continue };
            let above = upper.and_then(|upper| Some((upper, rest[upper - lower - 1].as_ref()?)));
            upper = Some(lower);
            if let Some((upper, above)) = above
                && let Some(agreed) = below.conflict(above)
            {
                let to = above.kept.window.head.saturating_add(above.unsure_beside(Some(below)));
                below.kept.window = self.part(topic, lower, &below.kept.window, upper, agreed, to)?;
                below.sessions.clone_from(&above.sessions);
                continue;
            }
            let head = below.kept.window.head;
            if let Some(kept) = below.sessions.as_ref()
                && (head > start || sessions.list().is_empty())
            {
                sessions = kept.clone();
            }
            start = start.max(head);
        }
        Ok(sessions.with(start, Session { id: id.max(1), start }))
    }

    /// Moves the bytes from `agreed` on of the level `lower`, which has continued without the level `upper`, behind the end of `upper`.
    fn part(
        &self,
        topic: TopicId,
        lower: usize,
        window: &Window,
        upper: usize,
        agreed: Offset,
        to: Offset,
    ) -> Result<Window, StackError> {
        let (low, high) = (&self.levels[lower], &self.levels[upper]);
        let failed = |error| StackError::Open { topic, level: low.kind(), error };
        low.open(topic, window.head, window.epoch).map_err(failed)?;
        let moved = match low.rebase(topic, agreed.max(window.first), to) {
            Err(LevelError::NotWritable) => {
                return Err(StackError::OtherLog { topic, lower: low.kind(), upper: high.kind() });
            }
            moved => moved.map_err(failed)?,
        };
        self.repairs.lock().push(Repair {
            topic,
            lower: low.kind(),
            upper: high.kind(),
            from: agreed,
            to: moved.first,
            bytes: moved.bytes(),
            lost_bytes: window.first.saturating_sub(agreed),
        });
        Ok(moved)
    }

    /// The repairs that were needed when topics were opened, in the order of their opening.
    pub fn repairs(&self) -> Vec<Repair> {
        self.repairs.lock().clone()
    }

    /// The epoch of an open topic.
    pub fn epoch(&self, topic: TopicId) -> Option<Epoch> {
        self.topics.read().get(&topic).copied()
    }

    /// The open topics, in order.
    pub fn topics(&self) -> Vec<TopicId> {
        let topics = self.topics.read();
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

    /// Fills `out` with bytes from `from` on: from the first level that has all of them, or else piece by piece. `None`: the topic is not
    /// open.
    pub fn read(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Option<Answer> {
        self.epoch(topic)?;
        for level in &self.levels {
            if let Ok(found) = level.read(topic, from, out)
                && found.stop == Stop::Filled
            {
                return Some(Answer { bytes: out.len(), level: Some(level.kind()), tail: Tail::Nothing });
            }
        }
        Some(self.assemble(topic, from, out))
    }

    /// Reads piece by piece. Each round reads from the first level that has the next byte.
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
                    return Answer { bytes: out.len(), level: None, tail: Tail::Nothing };
                }
                Some(found) => bytes += found.bytes,
                None => return Answer { bytes, level: None, tail: missing.tail(at) },
            }
        }
    }
}

/// The reasons why no level has a byte.
#[derive(Default)]
struct Missing {
    /// The byte was not written yet.
    later: bool,
    /// The byte is in a hole of a level, or a level never got it although the first level had it.
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

    fn tail(&self, at: Offset) -> Tail {
        match self.next {
            _ if self.later => Tail::Later,
            _ if self.failed => Tail::Failed,
            Some(to) if self.hole => Tail::Hole(Hole { from: at, to }),
            Some(to) => Tail::Gone(to),
            None => Tail::Failed,
        }
    }
}
