//! The files of `sub --output`: one for each topic.
//!
//! A topic that the arguments name has its file as soon as the broker is there. The topics of a pattern are known only when they appear. State
//! files in the directory identify the topics of an earlier run, whose files are continued.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use commands::Failure;
use rbmq::{Batch, DeferredBatch, OutputState, Space, TopicFilter, TopicName};
use rocketbufs::{Epoch, Position};

use super::files::{OutputFile, file_name};
use super::space_outputs::SpaceOutputs;

/// The most open files. Many processes may have no more than 1,024 descriptors.
const MAX_OPEN: usize = 256;

/// The output files.
pub(super) struct Outputs {
    output: PathBuf,
    /// Whether `output` is a directory; otherwise it is the only file.
    directory: bool,
    files: HashMap<TopicName, OutputFile>,
    /// Topics with written bytes that are not recorded.
    pending: HashSet<TopicName>,
    open: HashSet<TopicName>,
    /// The topics that the arguments name.
    named: Vec<TopicName>,
    spaces: SpaceOutputs,
    durable: bool,
}

impl Outputs {
    /// Writes to `output` itself for one topic, and to files in it if it is a directory. `durable`: syncs files before recording.
    /// Opens what an earlier run has written, and makes nothing.
    pub(super) fn new(output: &Path, filters: &[TopicFilter], durable: bool) -> Result<Self, Failure> {
        let directory = output.is_dir();
        // The name of the log of a space stands for all of its topics.
        let is_log = |topic: &TopicName| Space::of_log(topic).is_some();
        let is_many = |filter: &TopicFilter| filter.as_topic().is_none_or(|topic| is_log(&topic));
        let several = filters.len() > 1 || filters.iter().any(is_many);
        if several && !directory {
            let what = match filters {
                [pattern] => format!("the topics of '{pattern}'"),
                _ => format!("{} topics", filters.len()),
            };
            return Err(Failure::Failed(format!(
                "{what} need a directory to write to, and {} is not one; create it, or receive one topic",
                output.display()
            )));
        }
        let (files, pending, open) = Default::default();
        let named: Vec<TopicName> =
            filters.iter().filter_map(TopicFilter::as_topic).filter(|topic| !is_log(topic)).collect();
        let mut outputs = Self {
            output: output.to_owned(),
            directory,
            files,
            pending,
            open,
            named: named.clone(),
            spaces: SpaceOutputs::new(directory.then_some(output), filters, durable),
            durable,
        };
        for topic in named {
            let path = outputs.path(&topic);
            if path.exists() || OutputState::path_of(&path).exists() {
                outputs.add(&topic)?;
            }
        }
        if directory {
            outputs.find(filters)?;
        }
        Ok(outputs)
    }

    /// Makes the files of the topics that the arguments name.
    pub(super) fn make(&mut self) -> Result<(), Failure> {
        std::mem::take(&mut self.named).iter().try_for_each(|topic| self.add(topic))
    }

    fn path(&self, topic: &TopicName) -> PathBuf {
        if self.directory { self.output.join(file_name(topic)) } else { self.output.clone() }
    }

    /// Opens the files of an earlier run.
    fn find(&mut self, filters: &[TopicFilter]) -> Result<(), Failure> {
        let cannot = |path: &Path, e| Failure::Failed(format!("cannot read {}: {e}", path.display()));
        for entry in std::fs::read_dir(&self.output).map_err(|e| cannot(&self.output, e))? {
            let path = entry.map_err(|e| cannot(&self.output, e))?.path();
            if !path.as_os_str().as_encoded_bytes().ends_with(OutputState::SUFFIX.as_bytes()) {
                continue;
            }
            let Some(recorded) = OutputState::read(&path).map_err(|e| cannot(&path, e))? else { continue };
            self.spaces.take_state(&path, &recorded);
            // Renamed files are left alone.
            let Ok(topic) = recorded.topic.parse::<TopicName>() else { continue };
            if path == OutputState::path_of(&self.path(&topic))
                && filters.iter().any(|filter| filter.matches(&topic))
            {
                self.add(&topic)?;
            }
        }
        Ok(())
    }

    /// Opens the file of a topic, unless it is known.
    fn add(&mut self, topic: &TopicName) -> Result<(), Failure> {
        if !self.files.contains_key(topic) {
            self.make_room()?;
            self.files.insert(topic.clone(), OutputFile::open(&self.path(topic), topic, self.durable)?);
            self.open.insert(topic.clone());
        }
        Ok(())
    }

    /// Closes all files if the limit is reached.
    fn make_room(&mut self) -> Result<(), Failure> {
        if self.open.len() < MAX_OPEN {
            return Ok(());
        }
        self.record()?;
        for topic in self.open.drain() {
            if let Some(file) = self.files.get_mut(&topic) {
                file.close();
            }
        }
        Ok(())
    }

    /// The file of a topic, ready for a write.
    fn file(&mut self, topic: &TopicName) -> Result<&mut OutputFile, Failure> {
        self.add(topic)?;
        if !self.open.contains(topic) {
            self.make_room()?;
            self.open.insert(topic.clone());
        }
        match self.files.get_mut(topic) {
            Some(file) => Ok(file),
            None => Err(Failure::Failed(format!("no file for topic '{topic}'"))),
        }
    }

    /// The positions at which topics of the filter continue; none if no such topic was written before.
    pub(super) fn positions(&self, filter: &TopicFilter) -> Option<Vec<(Epoch, Position)>> {
        let files = self.files.iter().filter(|(topic, _)| filter.matches(topic));
        let positions = files.filter_map(|(_, file)| file.positions()).flatten();
        let mut positions: Vec<_> = positions.filter(|(epoch, _)| !self.spaces.knows(*epoch)).collect();
        let of_spaces = self.spaces.positions(filter);
        let is_known = !positions.is_empty() || of_spaces.is_some();
        positions.extend(of_spaces.unwrap_or_default());
        // Files of one log begin where the first of them ends.
        positions.sort_unstable();
        positions.dedup_by_key(|(epoch, _)| *epoch);
        is_known.then_some(positions)
    }

    /// A log of a topic begins at a position. A later run resumes there, even if nothing was received.
    pub(super) fn begin(&mut self, topic: &TopicName, epoch: Epoch, start: Position) -> Result<(), Failure> {
        self.file(topic)?.begin(epoch, start);
        self.pending.insert(topic.clone());
        Ok(())
    }

    /// A log of a topic has ended.
    pub(super) fn end(&mut self, topic: &TopicName, epoch: Epoch) {
        if let Some(file) = self.files.get_mut(topic) {
            file.end(epoch);
            self.pending.insert(topic.clone());
        }
    }

    /// The log of a space begins at a position. As [`Outputs::begin`], if a later run can resume there.
    pub(super) fn begin_space(
        &mut self,
        log: &TopicName,
        epoch: Epoch,
        start: Position,
        resumable: bool,
    ) -> Result<(), Failure> {
        let left = self.spaces.begin(log, epoch, start, resumable);
        self.end_runs(left, None);
        // The one file has the position of the log.
        if !self.directory && resumable {
            for (topic, file) in &mut self.files {
                file.begin(epoch, start);
                self.pending.insert(topic.clone());
            }
        }
        Ok(())
    }

    /// The log of a space has ended.
    pub(super) fn end_space(&mut self, log: &TopicName, epoch: Epoch) {
        let left = self.spaces.end(log, epoch);
        self.end_runs(left, None);
        if !self.directory {
            let topics: Vec<_> = self.files.keys().cloned().collect();
            topics.iter().for_each(|topic| self.end(topic, epoch));
        }
    }

    fn end_runs(&mut self, topics: Vec<TopicName>, reached: Option<(Epoch, Position)>) {
        for topic in topics {
            if let Some(file) = self.files.get_mut(&topic) {
                file.end_run(reached);
                self.pending.insert(topic);
            }
        }
    }

    /// Whether the file of a topic has a run of a space, from an earlier run of the command.
    pub(super) fn has(&self, topic: &TopicName, epoch: Epoch, run: Position) -> bool {
        self.files.get(topic).is_some_and(|file| file.has(epoch, run))
    }

    /// Passes over a batch of a space that the file of its topic has.
    pub(super) fn skip(&mut self, batch: Batch<'_>) -> Result<(), Failure> {
        let (topic, epoch, end) = (batch.topic().clone(), batch.epoch(), batch.end());
        let end = (end > batch.position()).then_some(end);
        self.reached_in_space(&topic, epoch, 0, end, batch.defer())
    }

    /// So many bytes of a batch of a space are in the file of its topic. `end` is behind the batch's position if the run ends with it.
    pub(super) fn reached_in_space(
        &mut self,
        topic: &TopicName,
        epoch: Epoch,
        bytes: u64,
        end: Option<Position>,
        batch: DeferredBatch,
    ) -> Result<(), Failure> {
        if bytes > 0
            && self.spaces.wrote(epoch, topic, bytes)
            && let Some(file) = self.files.get_mut(topic)
        {
            file.begin_run();
        }
        // The next batches of the run hold it too.
        let Some(end) = end else { return Ok(()) };
        let topics = self.spaces.reached(epoch, end, batch);
        self.end_runs(topics, Some((epoch, end)));
        if self.spaces.is_due(epoch) { self.record() } else { Ok(()) }
    }

    /// As [`OutputFile::write`].
    pub(super) fn write(&mut self, topic: &TopicName, bytes: &[u8]) -> Result<(), Failure> {
        self.file(topic)?.write(bytes)
    }

    /// As [`OutputFile::reached`]. The position is the one before the last `loose` bytes.
    pub(super) fn reached(
        &mut self,
        topic: &TopicName,
        epoch: Epoch,
        position: Position,
        loose: u64,
        kept: DeferredBatch,
    ) -> Result<(), Failure> {
        let file = self.file(topic)?;
        file.reached(epoch, position, loose, kept)?;
        if file.is_pending() {
            self.pending.insert(topic.clone());
        } else {
            self.pending.remove(topic);
        }
        Ok(())
    }

    /// Whether written bytes are not recorded yet.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty() || self.spaces.is_pending()
    }

    /// Records everything that was written.
    pub(super) fn record(&mut self) -> Result<(), Failure> {
        let mut is_in_run = false;
        for topic in self.pending.drain() {
            if let Some(file) = self.files.get_mut(&topic) {
                file.record()?;
                is_in_run |= file.is_in_run();
            }
        }
        // The state of a space is ahead of no file.
        if is_in_run {
            return Ok(());
        }
        let cannot = |(path, error): (PathBuf, std::io::Error)| {
            Failure::Failed(format!("cannot write {}: {error}", path.display()))
        };
        self.spaces.record().map_err(cannot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(text: &str) -> Vec<TopicFilter> {
        text.split(' ').map(|filter| filter.parse().unwrap()).collect()
    }

    #[test]
    fn many_topics_have_a_file_each_and_continue_with_a_pattern() {
        let dir = tempfile::tempdir().unwrap();
        let topics: Vec<TopicName> = (0..MAX_OPEN + 50).map(|n| format!("a/{n}").parse().unwrap()).collect();
        let mut outputs = Outputs::new(dir.path(), &filters("a/#"), false).unwrap();
        assert_eq!(outputs.positions(&filters("a/#")[0]), None);
        for round in 0..2 {
            for topic in &topics {
                outputs.begin(topic, Epoch(1), 5).unwrap();
                outputs.write(topic, format!("{round} {topic}\n").as_bytes()).unwrap();
                assert!(outputs.open.len() <= MAX_OPEN);
            }
        }
        outputs.record().unwrap();
        drop(outputs);
        let outputs = Outputs::new(dir.path(), &filters("+/7 b a/8"), true).unwrap();
        let positions = |filter: &str| outputs.positions(&filters(filter)[0]).unwrap_or_default();
        assert_eq!(positions("+/7"), [(Epoch(1), 5)]);
        assert_eq!(positions("#"), [(Epoch(1), 5)], "the same log");
        assert_eq!(positions("b"), []);
        // Bytes that were written after the last recorded position do not count.
        assert_eq!(std::fs::read(dir.path().join("a%2F7")).unwrap(), b"");
    }

    #[test]
    fn several_topics_need_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        for (wanted, what) in
            [("a b", "2 topics need a directory"), ("a/#", "the topics of 'a/#' need a directory")]
        {
            let Err(Failure::Failed(error)) = Outputs::new(&file, &filters(wanted), false) else {
                panic!("{wanted}")
            };
            assert!(error.starts_with(what), "{error}");
        }
        let mut outputs = Outputs::new(&file, &filters("a"), false).unwrap();
        assert!(!file.exists(), "there may be no broker");
        outputs.make().unwrap();
        assert!(file.exists());
    }
}
