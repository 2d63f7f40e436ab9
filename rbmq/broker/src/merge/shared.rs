//! The topics whose log goes on in the archive, as the broker's thread knows them.

use std::collections::{BTreeSet, HashMap};

use rbmq_wire::TopicName;

use super::super::kept::TakeOvers;

/// The largest number of topics that are known and not on the disk. Other topics are opened when a publisher asks for them.
pub(super) const MAX_KNOWN: usize = 100_000;

/// The topics whose log goes on in the archive.
pub(super) struct Sharing {
    pub(super) takeovers: TakeOvers,
    /// The terms of those that are open.
    pub(super) terms: HashMap<TopicName, u64>,
    /// Why some cannot be opened.
    pub(super) failures: HashMap<TopicName, String>,
    /// Topics that this broker serves whenever it is their owner, also if none of their buffers is here: their log is on its disk, or came from
    /// another owner. At most [`MAX_KNOWN`] names come from others.
    pub(super) known: BTreeSet<TopicName>,
    /// What the cluster said of its groups when the store of the map was asked for the topics last.
    pub(super) groups: (usize, u64),
    /// Some are to be closed when their publishers were sent away.
    pub(super) is_closing: bool,
    /// Whether topics wait for a place among those of this broker (`broker.max_topics`).
    pub(super) lacks_room: bool,
}
