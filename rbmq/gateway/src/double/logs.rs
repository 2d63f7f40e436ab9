//! The logs of kept topics in memory, and the disk that has to be waited for.

use rbmq_broker::{Consumers, GroupChange, GroupRoom, KeptBatch, KeptRead};
use rbmq_wire::{Attributes, GroupName, RUN_HEADER_BYTES, TopicName, push_record_with, run_header};
use rocketbufs::Position;

use super::bus::MemoryBus;
use crate::protocol::{Bus, ConnId, Fetch, Groups, Kept, Logs, PublishError, Ticket};

/// What is read from the disk.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cold {
    From(Position),
    Before(Position),
    Time(u64),
}

/// The log of a kept topic.
#[derive(Debug, Default)]
pub(crate) struct MemoryLog {
    batches: Vec<KeptBatch>,
    /// What is not kept any more.
    pub(crate) first: Position,
    end: Position,
}

impl MemoryLog {
    /// Appends records as one run.
    pub(crate) fn append(&mut self, time_ms: u64, records: &[u8]) -> Position {
        let mut bytes = run_header(7, records.len()).expect("tests have small runs").to_vec();
        bytes.extend_from_slice(records);
        let batch = KeptBatch::new(self.end, time_ms, bytes);
        self.end = batch.end();
        let first = batch.position() + RUN_HEADER_BYTES as u64;
        self.batches.push(batch);
        first
    }

    /// Leaves positions out.
    pub(crate) fn skip(&mut self, positions: u64) {
        self.end += positions;
    }

    /// The batches that are kept.
    fn kept(&self) -> impl DoubleEndedIterator<Item = &KeptBatch> {
        self.batches.iter().filter(|batch| batch.position() >= self.first)
    }
}

impl MemoryBus {
    /// Takes a message that was appended, which is never stored.
    pub(crate) fn take_unstored(&mut self) -> Option<(TopicName, Ticket)> {
        self.unstored.pop_front().map(|(topic, _, ticket)| (topic, ticket))
    }

    /// Nothing of the logs is in memory any more.
    pub(crate) fn forget_logs(&mut self) {
        self.warm.clear();
    }

    /// An error if the disk has to be waited for.
    fn warm(&mut self, topic: &TopicName, part: Cold) -> Result<(), String> {
        let (ranges, times) = self.warm.entry(topic.clone()).or_default();
        let has = |position: Position| ranges.iter().any(|range| range.contains(&position));
        let is_warm = match part {
            Cold::From(position) => has(position),
            Cold::Before(position) => has(position.saturating_sub(1)),
            Cold::Time(time) => times.contains(&time),
        };
        if is_warm || !self.is_cold || self.is_in_place {
            return Ok(());
        }
        self.put_off = Some((topic.clone(), part));
        Err("cold".to_owned())
    }
}

impl Logs for MemoryBus {
    fn kept(&mut self, topic: &TopicName) -> Kept {
        match self.logs.get(topic) {
            Some(log) => Kept::Yes { first: log.first, end: log.end },
            None if self.kept_space.as_ref().is_some_and(|space| space.matches(topic)) => Kept::InSpace,
            None => Kept::No,
        }
    }

    fn is_beside(&self) -> bool {
        self.is_beside
    }

    fn append(
        &mut self,
        topic: &TopicName,
        attributes: &[u8],
        payload: &[u8],
        ticket: Ticket,
    ) -> Result<(), PublishError> {
        self.publish(topic, attributes, payload)?;
        let published = self.published.pop_back().expect("it was published");
        if self.filters.keys().any(|filter| filter.matches(topic)) {
            self.published.push_back(published.clone());
        }
        let mut record = Vec::new();
        push_record_with(&mut record, Attributes::checked_before(&published.attributes), payload);
        self.unstored.push_back((topic.clone(), record, ticket));
        Ok(())
    }

    fn follow_log(&mut self, topic: &TopicName, follow: bool) {
        if follow {
            if self.vanishing.as_ref() == Some(topic) {
                self.logs.remove(topic);
            }
            self.followed.insert(topic.clone());
        } else {
            self.followed.remove(topic);
        }
    }

    fn read_log(&mut self, topic: &TopicName, position: Position) -> Result<KeptRead, String> {
        self.warm(topic, Cold::From(position))?;
        let Some(log) = self.logs.get(topic).filter(|log| position < log.end) else {
            return Ok(KeptRead::End);
        };
        let next = log.kept().find(|batch| batch.end() > position);
        Ok(match next {
            Some(batch) if batch.position() <= position => {
                self.read_bytes += batch.bytes().len() as u64;
                KeptRead::Batch(batch.clone())
            }
            Some(batch) => KeptRead::Gap(batch.position()),
            None => KeptRead::Gap(log.end),
        })
    }

    fn read_log_before(
        &mut self,
        topic: &TopicName,
        position: Position,
    ) -> Result<Option<KeptBatch>, String> {
        self.warm(topic, Cold::Before(position))?;
        let Some(log) = self.logs.get(topic) else { return Ok(None) };
        let found = log.kept().rev().find(|batch| batch.position() < position).cloned();
        self.read_bytes += found.as_ref().map_or(0, |batch| batch.bytes().len() as u64);
        Ok(found)
    }

    fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    fn find_time(&mut self, topic: &TopicName, time_ms: u64) -> Result<Position, String> {
        self.warm(topic, Cold::Time(time_ms))?;
        let Some(log) = self.logs.get(topic) else { return Ok(0) };
        let looked_at = log.kept().take_while(|batch| batch.time_ms() < time_ms);
        self.read_bytes += looked_at.map(|batch| batch.bytes().len() as u64).sum::<u64>();
        Ok(log.kept().find(|batch| batch.time_ms() >= time_ms).map_or(log.end, KeptBatch::position))
    }

    fn fetch(&mut self, conn: ConnId, bytes: u64) -> Fetch {
        self.is_in_place = false;
        let Some((topic, part)) = self.put_off.take() else { return Fetch::Nothing };
        self.fetching.push_back((conn, topic, part, bytes));
        Fetch::Waits
    }

    fn read_in_place(&mut self) {
        self.is_in_place = true;
    }

    fn forget_fetch(&mut self, conn: ConnId) {
        self.fetching.retain(|(of, ..)| *of != conn);
        self.changed.remove(&conn);
    }
}

impl Groups for MemoryBus {
    fn with_group(
        &mut self,
        topic: &TopicName,
        group: &GroupName,
        act: &mut dyn FnMut(&mut Consumers, GroupRoom),
    ) -> Result<bool, String> {
        let Some(group) = self.groups.get_mut(&(topic.clone(), group.clone())) else { return Ok(false) };
        self.group_looks += 1;
        if let Some(rival) = self.rivals.pop_front().flatten() {
            rival(group);
        }
        let entries = self.max_pending.map_or(usize::MAX, |most| most.saturating_sub(group.pending()));
        act(group, GroupRoom { entries, consumers: 4 });
        Ok(true)
    }

    fn group_names(&mut self, topic: &TopicName) -> Vec<GroupName> {
        self.groups.keys().filter(|(of, _)| of == topic).map(|(_, group)| group.clone()).collect()
    }

    fn write_groups(&mut self) -> Result<(), String> {
        if let Some(error) = &self.unwritten {
            return Err(error.clone());
        }
        self.groups.values_mut().for_each(Consumers::written);
        Ok(())
    }

    fn change_group(&mut self, conn: ConnId, change: GroupChange) {
        let GroupChange { topic, group, make, .. } = change;
        let key = (topic.clone(), group);
        let done = match make {
            Some(_) if self.groups.contains_key(&key) => false,
            Some(made) => self.groups.insert(key, made).is_none(),
            None => self.groups.remove(&key).is_some(),
        };
        self.told.insert(topic.clone());
        self.changed.insert(conn, Ok(done));
        self.fetching.push_back((conn, topic, Cold::Time(0), 0));
    }

    fn changed_group(&mut self, conn: ConnId) -> Option<Result<bool, String>> {
        self.changed.remove(&conn)
    }

    fn tell_of(&mut self, topic: &TopicName) {
        self.told.insert(topic.clone());
    }

    fn open_log(&mut self, topic: &TopicName) -> Result<(), PublishError> {
        self.refusal.clone().map_or(Ok(()), Err)?;
        self.logs.entry(topic.clone()).or_default();
        Ok(())
    }
}
