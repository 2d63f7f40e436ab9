//! Kept topics, as protocols have them.

use std::time::Instant;

use rbmq_broker::{Consumers, GroupChange, GroupRoom, Keeping, KeptBatch, KeptRead, KeptTopics};
use rbmq_wire::{ATTRIBUTES_HEADER_BYTES, GroupName, RECORD_HEADER_BYTES, TopicName};
use rocketbufs::{Epoch, Position};

use super::bus::Topics;
use super::fetching::Part;
use super::logs::Pending;
use crate::protocol::{Bus as _, ConnId, Fetch, Groups, Kept, Logs, PublishError, Ticket};

impl Topics {
    /// The first position of the record of the last message, of which the end is known.
    fn start_of(end: Position, attributes: &[u8], payload: &[u8]) -> Position {
        let attributes = if attributes.is_empty() { 0 } else { ATTRIBUTES_HEADER_BYTES + attributes.len() };
        end - (RECORD_HEADER_BYTES + attributes + payload.len()) as u64
    }

    /// A topic is open and not kept, since it was open when a rule began to keep it. It is closed, so that a later try opens it as a kept one.
    fn close_unkept(&mut self, topic: &TopicName, log: Epoch) -> PublishError {
        if !self.desk.awaits(log) && self.flush_topic(topic) {
            self.close(topic, "the topic is opened anew, to be kept");
        }
        self.desk.rest(topic, Instant::now());
        self.not_kept(topic)
    }

    /// The first time, the message is tried again. Then others have the topic open too, or had it a moment ago.
    fn not_kept(&mut self, topic: &TopicName) -> PublishError {
        if self.desk.has_rested(topic) {
            return PublishError::Refused(format!(
                "the topic '{topic}' is not kept yet: it was open when a rule began to say so, and is kept once all its publishers have closed it"
            ));
        }
        self.is_missing = true;
        PublishError::Full
    }

    /// The log of the publisher of a topic, which is opened before anything of it can be stored.
    fn open_kept(&mut self, topic: &TopicName) -> Result<Epoch, PublishError> {
        if self.desk.rests(topic, Instant::now()) {
            return Err(self.not_kept(topic));
        }
        let log = self.log_of(topic)?;
        if self.is_elsewhere(topic) {
            return Err(PublishError::Refused(format!(
                "another member of the cluster has the log of '{topic}', so nobody here learns when it is stored: publish there, or without \
                 waiting for that"
            )));
        }
        Ok(log)
    }

    /// Whether an open topic has its log on the disk.
    fn is_kept(&mut self, topic: &TopicName, log: Epoch) -> Result<(), PublishError> {
        if self.desk.log(topic).is_none() {
            return Err(self.close_unkept(topic, log));
        }
        self.desk.is_kept_now(topic);
        Ok(())
    }

    /// The protocol goes through a delivery, which may have been in memory.
    fn count_read(&mut self, batch: &KeptBatch) {
        self.desk.read_bytes += batch.bytes().len() as u64;
    }
}

impl Logs for Topics {
    fn kept(&mut self, topic: &TopicName) -> Kept {
        if let Some(log) = self.desk.log(topic) {
            return Kept::Yes { first: log.first(), end: log.end() };
        }
        match self.desk.keeping(topic) {
            Some(Keeping::Yes) => Kept::Yes { first: 0, end: 0 },
            Some(Keeping::InSpace) => Kept::InSpace,
            Some(_) => Kept::No,
            None => Kept::Elsewhere,
        }
    }

    fn is_beside(&self) -> bool {
        self.confirms.is_some()
    }

    fn comes_back(&self, topic: &TopicName) -> bool {
        self.confirms.is_none() || self.receives(topic)
    }

    fn append(
        &mut self,
        topic: &TopicName,
        attributes: &[u8],
        payload: &[u8],
        ticket: Ticket,
    ) -> Result<(), PublishError> {
        if self.confirms.is_some() {
            return self.append_beside(topic, attributes, payload, ticket);
        }
        let log = self.open_kept(topic)?;
        if let Some(failure) = self.disk_failure(topic) {
            self.is_missing = true;
            return Err(PublishError::NoDisk(format!(
                "the disk of the broker takes nothing now, and nothing was stored: {failure}"
            )));
        }
        // Nobody would ever tell where the message is.
        self.is_kept(topic, log)?;
        self.desk.follow(log);
        self.publish(topic, attributes, payload)?;
        let start = Self::start_of(self.end_of(topic), attributes, payload);
        self.desk.published(log, Pending { start, ticket });
        Ok(())
    }

    fn follow_log(&mut self, topic: &TopicName, follow: bool) {
        self.desk.follow_topic(topic, follow);
    }

    fn read_log(&mut self, topic: &TopicName, position: Position) -> Result<KeptRead, String> {
        let read = self
            .desk
            .read(topic, Part::From(position), |log| log.read(position))
            .unwrap_or(Ok(KeptRead::End));
        if let Ok(KeptRead::Batch(batch)) = &read {
            self.count_read(batch);
        }
        read
    }

    fn read_log_before(
        &mut self,
        topic: &TopicName,
        position: Position,
    ) -> Result<Option<KeptBatch>, String> {
        let read = self
            .desk
            .read(topic, Part::Before(position), |log| log.read_before(position))
            .unwrap_or(Ok(None));
        if let Ok(Some(batch)) = &read {
            self.count_read(batch);
        }
        read
    }

    fn read_bytes(&self) -> u64 {
        self.desk.read_bytes
    }

    fn find_time(&mut self, topic: &TopicName, time_ms: u64) -> Result<Position, String> {
        self.desk.read(topic, Part::Time(time_ms), |log| log.find_time(time_ms)).unwrap_or(Ok(0))
    }

    fn fetch(&mut self, conn: ConnId, bytes: u64) -> Fetch {
        self.desk.fetch(conn, bytes)
    }

    fn read_in_place(&mut self) {
        self.desk.is_in_place = true;
    }

    fn forget_fetch(&mut self, conn: ConnId) {
        self.desk.forget_fetch(conn);
    }
}

impl Groups for Topics {
    fn with_group(
        &mut self,
        topic: &TopicName,
        group: &GroupName,
        act: &mut dyn FnMut(&mut Consumers, GroupRoom),
    ) -> Result<bool, String> {
        self.desk.kept().map_or(Ok(false), |kept| kept.with_group(topic, group, act))
    }

    fn group_names(&mut self, topic: &TopicName) -> Vec<GroupName> {
        self.desk.kept().map_or_else(Vec::new, |kept| kept.group_names(topic))
    }

    fn write_groups(&mut self) -> Result<(), String> {
        self.desk.kept().map_or(Ok(()), KeptTopics::write_groups)
    }

    fn change_group(&mut self, conn: ConnId, change: GroupChange) {
        self.desk.change_group(conn, change);
    }

    fn changed_group(&mut self, conn: ConnId) -> Option<Result<bool, String>> {
        self.desk.changed_group(conn)
    }

    fn tell_of(&mut self, topic: &TopicName) {
        if let Some(kept) = self.desk.kept() {
            kept.tell_of(topic);
        }
    }

    fn open_log(&mut self, topic: &TopicName) -> Result<(), PublishError> {
        if self.desk.log(topic).is_some() {
            return Ok(());
        }
        let log = self.open_kept(topic)?;
        self.is_kept(topic, log)
    }
}

#[cfg(test)]
mod tests;
