//! The topics whose log goes on in the archive, as the broker's thread knows them.

use std::collections::{BTreeSet, HashMap};

use rbmq_wire::TopicName;

use super::super::kept::TakeOvers;

/// The topics whose log goes on in the archive.
pub(super) struct Sharing {
    pub(super) takeovers: TakeOvers,
    /// The terms of those that are open.
    pub(super) terms: HashMap<TopicName, u64>,
    /// Why some cannot be opened.
    pub(super) failures: HashMap<TopicName, String>,
    /// Those whose log was on the disk when the broker was started.
    pub(super) on_disk: BTreeSet<TopicName>,
    /// Some are to be closed when their publishers were sent away.
    pub(super) is_closing: bool,
    /// Some wait for a place among the topics of this broker (`broker.max_topics`).
    pub(super) lacks_room: bool,
}
