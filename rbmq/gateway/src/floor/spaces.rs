//! The spaces of the broker, as a gateway publishes into them: most topics live there, and their logs are open as long as the gateway runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rbmq::{PublishError, SpaceWriter};
use rbmq_broker::Gate;
use rbmq_wire::{Attributes, TopicName};
use tracing::warn;

use super::gathering::{ENDED, Way};
use super::wake::Bell;

/// The spaces.
pub(super) struct Spaces {
    all: Vec<Way<SpaceWriter>>,
    /// A log has taken what it had no room for before.
    has_room: Arc<AtomicBool>,
}

impl Spaces {
    /// The spaces of a broker in another process.
    pub(super) fn beside(writers: Vec<SpaceWriter>) -> Self {
        let all = writers.into_iter().map(Way::new).collect();
        Self { all, has_room: Arc::default() }
    }

    /// The spaces of a broker in this process, with its gate. The bell is rung when there is room again.
    pub(super) fn inside(writers: Vec<SpaceWriter>, gate: &Gate, bell: &Bell) -> Self {
        let mut spaces = Self::beside(writers);
        for Way { writer, local, .. } in &mut spaces.all {
            let (flag, bell) = (spaces.has_room.clone(), bell.clone());
            *local = gate.local_publisher(writer.space(), move || {
                // Release: pairs with the acquire of `take_has_room`.
                flag.store(true, Ordering::Release);
                bell.ring();
            });
        }
        spaces
    }

    /// The writers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SpaceWriter> {
        self.all.iter().map(|way| &way.writer)
    }

    /// Adds one of a broker in another process.
    pub(super) fn push(&mut self, writer: SpaceWriter) {
        self.all.push(Way::new(writer));
    }

    /// Removes the one of a log.
    pub(super) fn remove(&mut self, log: &TopicName) {
        self.all.retain(|way| way.writer.space().log() != log);
    }

    /// Whether there is room since the last call, where there was none.
    pub(super) fn take_has_room(&self) -> bool {
        self.has_room.load(Ordering::Acquire) && self.has_room.swap(false, Ordering::AcqRel)
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
