//! The spaces of the broker, as a gateway publishes into them: most topics live there, and their logs are open as long as the gateway runs.

use rbmq::{PublishError, SpaceWriter};
use rbmq_wire::{Attributes, TopicName};
use tracing::warn;

use super::gathering::{ENDED, Inside, Way};
use super::openings::START_TIMEOUT;

/// The spaces.
pub(super) struct Spaces {
    all: Vec<Way<SpaceWriter>>,
}

impl Spaces {
    /// The spaces of a broker in this process, or of another one.
    pub(super) fn new(writers: Vec<SpaceWriter>, inside: Option<&Inside>) -> Self {
        let way = |writer: SpaceWriter| {
            let local = inside.and_then(|inside| inside.publisher(writer.space().log(), START_TIMEOUT));
            Way::new(writer, local)
        };
        Self { all: writers.into_iter().map(way).collect() }
    }

    /// The writers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SpaceWriter> {
        self.all.iter().map(|way| &way.writer)
    }

    /// Adds one of a broker in another process.
    pub(super) fn push(&mut self, writer: SpaceWriter) {
        self.all.push(Way::new(writer, None));
    }

    /// Removes the one of a log, as nothing comes there any more.
    pub(super) fn remove(&mut self, log: &TopicName, why: &str) {
        let removed = self.all.extract_if(.., |way| way.writer.space().log() == log);
        removed.for_each(|way| way.warn_of_lost(log, why));
    }

    /// Publishes without waiting. None: no space has the topic.
    pub(super) fn put(
        &mut self,
        topic: &TopicName,
        attributes: Attributes<'_>,
        payload: &[u8],
    ) -> Option<Result<(), PublishError>> {
        // What a space has no room for is no affair of other topics.
        let way = self.all.iter_mut().find(|way| way.writer.contains(topic))?;
        Some(way.put(topic, attributes, payload))
    }

    /// Publishes what is kept to be published together. What finds no room stays, and nothing more is taken until there is some. Returns the logs
    /// whose messages are lost, and why.
    pub(super) fn flush(&mut self) -> Vec<(TopicName, String)> {
        let mut lost = Vec::new();
        for way in &mut self.all {
            let why = match way.flush() {
                Ok(()) | Err(PublishError::TimedOut { .. }) if way.has_lost => ENDED.to_owned(),
                Ok(()) | Err(PublishError::TimedOut { .. }) => continue,
                Err(error) => error.to_string(),
            };
            way.has_lost = false;
            warn!("messages of clients are lost: {why}");
            lost.push((way.writer.space().log().clone(), why));
        }
        lost
    }

    /// Whether nothing is kept to be published.
    pub(super) fn are_flushed(&self) -> bool {
        self.all.iter().all(Way::is_flushed)
    }
}
