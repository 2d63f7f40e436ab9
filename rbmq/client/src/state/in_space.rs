//! Which topics are in a space, as the broker says.

use rbmq_wire::Levels;

use crate::wire::{Space, TopicFilter, TopicName};

/// A space, and the topics of its pattern that are not in it.
#[derive(Debug)]
pub(crate) struct InSpace {
    pub(crate) space: Space,
    /// The patterns of the broker's earlier rules.
    before: Levels<TopicFilter>,
}

impl InSpace {
    pub(crate) fn new(space: Space, before: &[TopicFilter]) -> Self {
        let mut levels = Levels::default();
        before.iter().for_each(|filter| _ = levels.insert(filter.as_str(), filter.clone()));
        Self { space, before: levels }
    }

    /// Whether a topic is in the space.
    pub(crate) fn contains(&self, topic: &TopicName) -> bool {
        self.space.contains(topic.as_str()) && (self.before.is_empty() || !self.before.any_matches(topic))
    }

    /// Whether every topic that a filter matches is in the space.
    pub(crate) fn covers(&self, filter: &TopicFilter) -> bool {
        self.space.pattern().covers(filter) && !self.before.values().any(|before| before.intersects(filter))
    }
}
