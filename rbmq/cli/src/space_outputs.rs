//! The spaces of `sub --output`: how far the files have the log that all topics of a space share.
//!
//! ```text
//!   log of the space     ├─ run: a b a ─┼─ run: a c ─┼─ run: b ─┤
//!   states of files                     b            a c              each ends at the end of a run
//!   state of the log     ▲ written after those of all files, so it is ahead of none
//! ```
//!
//! The next process begins at the position of the log's state, and each file skips the runs that it has. In a directory the log's state is a state
//! file without an output, which also has the filters: with others, the next process begins at the oldest run. A single file needs no other state
//! than its own.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rbmq::{DeferredBatch, OutputState, Space, TopicFilter, TopicName};
use rocketbufs::{Epoch, Position};

use super::files::{RECORD_AFTER, RECORD_BYTES, file_name};

/// The spaces, by their logs.
pub(super) struct SpaceOutputs {
    /// The directory of the states; none: there is one file.
    folder: Option<PathBuf>,
    /// What the command subscribes to.
    filters: String,
    states: HashMap<TopicName, OutputState>,
    logs: HashMap<Epoch, Log>,
    durable: bool,
}

/// A log that was announced.
struct Log {
    name: TopicName,
    /// The topics whose files have messages of a run of which more follows.
    open: HashSet<TopicName>,
    /// The end of the last run that the files have.
    reached: Option<Position>,
    /// The last batch of that run.
    deferred: Option<DeferredBatch>,
    bytes: u64,
    /// What is to be recorded, since then.
    since: Option<Instant>,
}

impl SpaceOutputs {
    pub(super) fn new(folder: Option<&Path>, filters: &[TopicFilter], durable: bool) -> Self {
        let mut filters: Vec<&str> = filters.iter().map(TopicFilter::as_str).collect();
        filters.sort_unstable();
        filters.dedup();
        let (states, logs) = (HashMap::new(), HashMap::new());
        Self { folder: folder.map(Path::to_owned), filters: filters.join("\t"), states, logs, durable }
    }

    /// Takes a state file of an earlier run, if it is one of a space.
    pub(super) fn take_state(&mut self, path: &Path, state: &OutputState) {
        let name = state.topic.split('\t').next().and_then(|name| name.parse::<TopicName>().ok());
        let Some(name) = name.filter(|name| Space::of_log(name).is_some()) else { return };
        // Renamed files are left alone.
        if self.path(&name).as_deref() == Some(path) {
            self.states.insert(name, state.clone());
        }
    }

    /// Whether a log is known to be one of a space.
    pub(super) fn knows(&self, epoch: Epoch) -> bool {
        self.states.values().any(|state| state.position(epoch).is_some())
    }

    /// The positions at which spaces of the filter continue; none if there are no states of such spaces.
    pub(super) fn positions(&self, filter: &TopicFilter) -> Option<Vec<(Epoch, Position)>> {
        let is_for = |name: &TopicName| Space::of_log(name).is_some_and(|space| space.is_wanted_by(filter));
        let mut states = self.states.iter().filter(|(name, _)| is_for(name)).peekable();
        states.peek()?;
        // With other filters, files that are new want what was not for the others.
        let same = states.filter(|(name, state)| state.topic == self.title(name));
        Some(same.flat_map(|(_, state)| state.positions()).collect())
    }

    /// The log of a space begins at a position, at which a later run can resume or not. Returns the topics of a run of an earlier log of the space
    /// that has no end.
    pub(super) fn begin(
        &mut self,
        name: &TopicName,
        epoch: Epoch,
        start: Position,
        resumable: bool,
    ) -> Vec<TopicName> {
        let others = self.logs.iter_mut().filter(|(other, log)| **other != epoch && log.name == *name);
        let left = others.flat_map(|(_, log)| log.open.drain()).collect();
        let log = self.logs.entry(epoch).or_insert_with(|| Log::new(name));
        if self.folder.is_some() {
            let title = format!("{name}\t{}", self.filters);
            let state = self.states.entry(name.clone()).or_insert_with(|| OutputState::new(&title));
            if state.topic != title {
                *state = OutputState::new(&title);
            }
            if resumable && state.position(epoch).is_none() {
                state.reached(epoch, start);
                log.since.get_or_insert_with(Instant::now);
            }
        }
        left
    }

    /// The log of a space has ended. Returns the topics of a run that has no end.
    pub(super) fn end(&mut self, name: &TopicName, epoch: Epoch) -> Vec<TopicName> {
        let Some(log) = self.logs.get_mut(&epoch) else { return Vec::new() };
        if let Some(state) = self.states.get_mut(name) {
            state.end(epoch);
        }
        log.since.get_or_insert_with(Instant::now);
        log.open.drain().collect()
    }

    /// The file of a topic has so many bytes more of a run. True for the first ones.
    pub(super) fn wrote(&mut self, epoch: Epoch, topic: &TopicName, bytes: u64) -> bool {
        let Some(log) = self.logs.get_mut(&epoch) else { return false };
        log.bytes += bytes;
        log.open.insert(topic.clone())
    }

    /// The files have all of a run. Returns the topics that it had messages of.
    pub(super) fn reached(&mut self, epoch: Epoch, end: Position, last: DeferredBatch) -> Vec<TopicName> {
        let Some(log) = self.logs.get_mut(&epoch) else { return Vec::new() };
        (log.reached, log.deferred) = (Some(end), Some(last));
        log.since.get_or_insert_with(Instant::now);
        log.open.drain().collect()
    }

    /// Whether there is something to record.
    pub(super) fn is_pending(&self) -> bool {
        self.logs.values().any(|log| log.since.is_some())
    }

    /// Whether something is to be recorded at once.
    pub(super) fn is_due(&self, epoch: Epoch) -> bool {
        let is_old = |log: &Log| log.since.is_some_and(|since| since.elapsed() >= RECORD_AFTER);
        self.logs.get(&epoch).is_some_and(|log| log.bytes >= RECORD_BYTES || is_old(log))
    }

    /// All files are recorded up to the runs that they have: records that of the logs, and consumes their messages.
    ///
    /// # Errors
    /// With the path of a state that cannot be written.
    pub(super) fn record(&mut self) -> Result<(), (PathBuf, io::Error)> {
        let pending = self.logs.iter_mut().filter_map(|(epoch, log)| log.since.take().map(|_| (epoch, log)));
        let mut changed = HashSet::new();
        let mut consumed = Vec::new();
        for (epoch, log) in pending {
            log.bytes = 0;
            let reached = log.reached.take();
            if let (Some(reached), Some(state)) = (reached, self.states.get_mut(&log.name)) {
                state.reached(*epoch, reached);
            }
            consumed.extend(log.deferred.take().zip(reached));
            changed.insert(log.name.clone());
        }
        for name in changed {
            if let (Some(path), Some(state)) = (self.path(&name), self.states.get(&name)) {
                state.write(&path, self.durable).map_err(|error| (path, error))?;
            }
        }
        consumed.into_iter().for_each(|(batch, position)| batch.consume_up_to(position));
        Ok(())
    }

    /// What the state of a log is called.
    fn title(&self, name: &TopicName) -> String {
        format!("{name}\t{}", self.filters)
    }

    fn path(&self, name: &TopicName) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| OutputState::path_of(&folder.join(file_name(name))))
    }
}

impl Log {
    fn new(name: &TopicName) -> Self {
        let (open, reached, deferred) = (HashSet::new(), None, None);
        Self { name: name.clone(), open, reached, deferred, bytes: 0, since: None }
    }
}
