//! Kept topics, as protocols have them.

use rbmq_broker::{Keeping, KeptBatch, KeptRead};
use rbmq_wire::{ATTRIBUTES_HEADER_BYTES, RECORD_HEADER_BYTES, TopicName};
use rocketbufs::Position;

use super::bus::Topics;
use super::logs::Pending;
use crate::protocol::{Bus as _, Kept, Logs, PublishError, Ticket};

impl Topics {
    /// The first position of the record of a message that was just published.
    fn start_of(end: Position, attributes: &[u8], payload: &[u8]) -> Position {
        let attributes = if attributes.is_empty() { 0 } else { ATTRIBUTES_HEADER_BYTES + attributes.len() };
        end - (RECORD_HEADER_BYTES + attributes + payload.len()) as u64
    }
}

impl Logs for Topics {
    fn kept(&mut self, topic: &TopicName) -> Kept {
        if let Some(log) = self.desk.log(topic) {
            return Kept::Yes { first: log.first(), end: log.end() };
        }
        match self.desk.kept.keeping(topic) {
            Keeping::Yes => Kept::Yes { first: 0, end: 0 },
            Keeping::InSpace => Kept::InSpace,
            _ => Kept::No,
        }
    }

    fn append(
        &mut self,
        topic: &TopicName,
        attributes: &[u8],
        payload: &[u8],
        ticket: Ticket,
    ) -> Result<(), PublishError> {
        // Before anything of it can be stored.
        let log = self.log_of(topic)?;
        if let Some(failure) = self.disk_failure(topic) {
            return Err(PublishError::Refused(format!(
                "the disk of the broker takes nothing now, and nothing was stored: {failure}"
            )));
        }
        self.desk.follow(log, topic);
        self.publish(topic, attributes, payload)?;
        let start = Self::start_of(self.end_of(topic), attributes, payload);
        self.desk.published(log, Pending { start, ticket });
        Ok(())
    }

    fn follow_log(&mut self, topic: &TopicName, follow: bool) {
        self.desk.kept.follow_topic(topic, follow);
    }

    fn read_log(&mut self, topic: &TopicName, position: Position) -> Result<KeptRead, String> {
        let Some(log) = self.desk.log(topic) else { return Ok(KeptRead::End) };
        log.read(position).map_err(|error| error.to_string())
    }

    fn read_log_before(
        &mut self,
        topic: &TopicName,
        position: Position,
    ) -> Result<Option<KeptBatch>, String> {
        let Some(log) = self.desk.log(topic) else { return Ok(None) };
        log.read_before(position).map_err(|error| error.to_string())
    }

    fn find_time(&mut self, topic: &TopicName, time_ms: u64) -> Result<Position, String> {
        let Some(log) = self.desk.log(topic) else { return Ok(0) };
        log.find_time(time_ms).map_err(|error| error.to_string())
    }
}
