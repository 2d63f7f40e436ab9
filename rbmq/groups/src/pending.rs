//! The pending set: messages that were read and are not done, in the order of the log.
//!
//! ```text
//!   chunks:  │ e e · e e │ e e e e │ · e e │      · is done, and leaves with its chunk's next clean-up
//!              └ ready, dead and the next due time are counted for each chunk
//! ```
//!
//! Entries come in the order of their positions, so a place is found by halving. The next ready message and the next due one are
//! found by the counts of the chunks: there is no second index, and an entry costs its own bytes and the share of a third.

use std::collections::VecDeque;

use crate::worker::Attempt;

/// The entries of a chunk.
const CHUNK: usize = 512;

/// A neighbour takes a chunk in, if both have together at most so many entries.
const SMALL: usize = CHUNK / 2;

/// The largest memory that an entry costs, in bytes, with its share of what is done and not removed yet.
pub const ENTRY_BYTES: usize = 64;

const _: () = assert!(size_of::<Entry>() * 4 / 3 + 8 <= ENTRY_BYTES);

/// No next message of the key.
pub(crate) const NONE: u64 = u64::MAX;

/// What happens with a pending message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A worker may get it.
    Ready,
    /// An earlier message of its key is not done.
    Blocked,
    /// It is done, and an earlier message of its key is not.
    Early,
    /// A worker has it until `due`.
    Held,
    /// It is ready at `due`.
    Delayed,
    /// It goes to the dead-letter topic.
    Dying,
    /// It is done.
    Done,
}

/// A pending message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) position: u64,
    pub(crate) due: u64,
    /// The next message of the same key.
    pub(crate) next: u64,
    pub(crate) len: u32,
    /// 0: no key.
    pub(crate) key: u32,
    pub(crate) worker: u32,
    /// Attempts that have failed.
    pub(crate) attempts: u16,
    pub(crate) stage: Stage,
}

impl Entry {
    /// The attempt that is under way, or the next one.
    pub(crate) fn attempt(&self) -> Attempt {
        Attempt { position: self.position, number: self.attempts.saturating_add(1) }
    }
}

/// The place of an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(usize, usize);

#[derive(Debug)]
struct Chunk {
    entries: Vec<Entry>,
    dead: usize,
    ready: usize,
    /// No entry is due before.
    due: u64,
}

/// All pending messages of a group.
#[derive(Debug)]
pub(crate) struct Pending {
    chunks: VecDeque<Chunk>,
    len: usize,
    ready: usize,
    /// No ready entry is below this position.
    ready_from: u64,
    /// Nothing is due before.
    due: u64,
}

impl Chunk {
    fn first(&self) -> u64 {
        self.entries.first().map_or(NONE, |entry| entry.position)
    }

    fn take_due(&mut self, now: u64, positions: &mut Vec<u64>) {
        self.due = NONE;
        for entry in &self.entries {
            if !matches!(entry.stage, Stage::Held | Stage::Delayed | Stage::Dying) {
                continue;
            }
            if entry.due <= now {
                positions.push(entry.position);
            } else {
                self.due = self.due.min(entry.due);
            }
        }
    }

    fn clean(&mut self) {
        self.entries.retain(|entry| entry.stage != Stage::Done);
        self.dead = 0;
        self.entries.shrink_to(self.entries.len());
    }
}

impl Default for Pending {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), len: 0, ready: 0, ready_from: 0, due: NONE }
    }
}

impl Pending {
    /// The messages that are not done.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The messages that a worker may get.
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// Adds a message behind all others.
    pub(crate) fn push(&mut self, entry: Entry) {
        if self.chunks.back().is_none_or(|chunk| chunk.entries.len() >= CHUNK) {
            self.chunks.push_back(Chunk { entries: Vec::new(), dead: 0, ready: 0, due: NONE });
        }
        let Some(chunk) = self.chunks.back_mut() else { return };
        if chunk.entries.len() == chunk.entries.capacity() {
            let more = chunk.entries.len().max(4).min(CHUNK - chunk.entries.len());
            chunk.entries.reserve_exact(more);
        }
        chunk.entries.push(entry);
        self.len += 1;
        let is_ready = entry.stage == Stage::Ready;
        chunk.ready += usize::from(is_ready);
        self.ready += usize::from(is_ready);
        if is_ready {
            self.ready_from = self.ready_from.min(entry.position);
        }
    }

    /// The place of a message that is not done.
    pub(crate) fn find(&self, position: u64) -> Option<Place> {
        let chunk = self.chunks.partition_point(|chunk| chunk.first() <= position).checked_sub(1)?;
        let at = self.chunks[chunk].entries.binary_search_by_key(&position, |entry| entry.position).ok()?;
        (self.chunks[chunk].entries[at].stage != Stage::Done).then_some(Place(chunk, at))
    }

    pub(crate) fn get(&self, Place(chunk, at): Place) -> &Entry {
        &self.chunks[chunk].entries[at]
    }

    /// Changes what is not the stage.
    pub(crate) fn change(&mut self, Place(chunk, at): Place, change: impl FnOnce(&mut Entry)) {
        change(&mut self.chunks[chunk].entries[at]);
    }

    /// Changes the stage of a message that is not done. The place is not valid after [`Stage::Done`].
    pub(crate) fn set(&mut self, Place(at_chunk, at): Place, stage: Stage, due: u64) {
        let chunk = &mut self.chunks[at_chunk];
        let entry = &mut chunk.entries[at];
        let (before, position) = (entry.stage, entry.position);
        (entry.stage, entry.due) = (stage, due);
        if before == Stage::Ready {
            chunk.ready -= 1;
            self.ready -= 1;
        }
        match stage {
            Stage::Ready => {
                chunk.ready += 1;
                self.ready += 1;
                self.ready_from = self.ready_from.min(position);
            }
            Stage::Held | Stage::Delayed | Stage::Dying => {
                chunk.due = chunk.due.min(due);
                self.due = self.due.min(due);
            }
            Stage::Blocked | Stage::Early => {}
            Stage::Done => {
                chunk.dead += 1;
                self.len -= 1;
                self.tidy(at_chunk);
            }
        }
    }

    /// Removes what is done, where it is a quarter of a chunk.
    fn tidy(&mut self, at: usize) {
        let chunk = &mut self.chunks[at];
        if chunk.dead == chunk.entries.len() {
            return self.remove(at);
        }
        if chunk.dead * 4 < chunk.entries.len() {
            return;
        }
        chunk.clean();
        let alive = chunk.entries.len();
        let fits = |other: Option<&Chunk>| other.is_some_and(|other| other.entries.len() + alive <= SMALL);
        if fits(self.chunks.get(at + 1)) {
            self.join(at);
        } else if at > 0 && fits(self.chunks.get(at - 1)) {
            self.join(at - 1);
        }
    }

    fn remove(&mut self, at: usize) {
        self.chunks.remove(at);
        self.shrink();
    }

    fn shrink(&mut self) {
        if self.chunks.capacity() > 4 * self.chunks.len() + 16 {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
    }

    /// Makes one chunk of two.
    fn join(&mut self, at: usize) {
        let Some(after) = self.chunks.remove(at + 1) else { return };
        self.shrink();
        let chunk = &mut self.chunks[at];
        chunk.entries.reserve_exact(after.entries.len());
        chunk.entries.extend(after.entries);
        chunk.dead += after.dead;
        chunk.ready += after.ready;
        chunk.due = chunk.due.min(after.due);
    }

    /// The first message that a worker may get.
    pub(crate) fn first_ready(&mut self) -> Option<Place> {
        if self.ready == 0 {
            self.ready_from = NONE;
            return None;
        }
        let from = self.chunks.partition_point(|chunk| chunk.first() <= self.ready_from).saturating_sub(1);
        let chunk = (from..self.chunks.len()).find(|at| self.chunks[*at].ready > 0)?;
        let entries = &self.chunks[chunk].entries;
        let begin = entries.partition_point(|entry| entry.position < self.ready_from);
        let at = begin + entries[begin..].iter().position(|entry| entry.stage == Stage::Ready)?;
        self.ready_from = entries[at].position;
        Some(Place(chunk, at))
    }

    /// When the next message may be due; [`NONE`]: none is.
    pub(crate) fn due(&self) -> u64 {
        self.due
    }

    /// The positions of messages that are due, which have to be set to another stage or a later time: those of some chunks, with
    /// `enough` or a chunk more. [`Pending::due`] says whether there are others.
    pub(crate) fn take_due(&mut self, now: u64, enough: usize) -> Vec<u64> {
        let mut positions = Vec::new();
        if self.due > now {
            return positions;
        }
        self.due = NONE;
        for chunk in &mut self.chunks {
            if chunk.due <= now && positions.len() < enough {
                chunk.take_due(now, &mut positions);
            }
            self.due = self.due.min(chunk.due);
        }
        positions
    }

    /// Every message that is not done, in the order of the log.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flat_map(|chunk| &chunk.entries).filter(|entry| entry.stage != Stage::Done)
    }

    /// The memory of the entries, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let entries = self.chunks.iter().map(|chunk| chunk.entries.capacity() * size_of::<Entry>());
        entries.sum::<usize>() + self.chunks.capacity() * size_of::<Chunk>()
    }
}
