//! The options of a worker, and of the group that it may make.

use std::time::Duration;

use super::admin::Groups;
use super::link::millis;
use super::worker::GroupWorker;
use crate::ground::error::ConnectError;
use crate::ground::group_error::GroupError;
use crate::ground::options::SubscriberBuilder;
use crate::wire::{GroupJoin, GroupName, TopicName};

/// How many messages a worker has at a time by default.
const CREDIT: u32 = 100;

/// How long a worker may have a message by default.
const ACK_TIME: Duration = Duration::from_secs(30);

/// Options of a [`GroupWorker`], from [`SubscriberBuilder::group`]. Those of the group count when it is made: by its first worker.
#[derive(Clone)]
pub struct GroupBuilder {
    pub(super) subscriber: SubscriberBuilder,
    pub(super) group: String,
    pub(super) credit: u32,
    pub(super) ack_time: Duration,
    pub(super) dead_letters: Option<(u16, String)>,
    pub(super) ordered: bool,
    pub(super) from_newest: bool,
}

impl SubscriberBuilder {
    /// A worker of a group: workers share a kept topic, and each message goes to one of them. Of the subscriber's options the name, the
    /// login, the configuration and the context apply.
    ///
    /// The name has 1 to 64 letters, digits, and `.`, `_` and `-`.
    #[must_use]
    pub fn group(self, name: &str) -> GroupBuilder {
        GroupBuilder {
            subscriber: self,
            group: name.to_owned(),
            credit: CREDIT,
            ack_time: ACK_TIME,
            dead_letters: None,
            ordered: false,
            from_newest: false,
        }
    }

    /// Asks a broker for its groups, to list, reset and delete them.
    ///
    /// # Errors
    /// As [`SubscriberBuilder::connect`].
    pub fn groups(self, addr: &str) -> Result<Groups, ConnectError> {
        Groups::connect(self, addr)
    }
}

option_setters::setters! { GroupBuilder:
    /// The most messages that this worker has at a time: those that it works on and those that wait here. Default: 100, at least 1. With
    /// few, a slow worker leaves more to the others; with many, a fast worker waits less. The broker has a limit (`broker.max_group_credit`).
    credit(messages: u32) = messages.max(1);
    /// Of a new group: how long a worker may have a message before others get it. Default: 30 s, 1 ms to 49 days.
    /// [`GroupMessage::extend`](super::GroupMessage::extend) gives more time.
    ack_time(time: Duration);
    /// Of a new group: messages with the same key are handed out one after the other, in the order of the log. Messages without a key
    /// ([`Attributes::key`](crate::Attributes::key)) have no order.
    ordered(ordered: bool);
    /// Of a new group: it begins with the next message that is published, and not with the oldest one that is kept.
    from_newest(newest: bool);
}

impl GroupBuilder {
    /// Of a new group: a message whose attempts have failed so many times goes to another topic, which is kept and exists too: a
    /// publisher has made it. By default it comes again without a limit.
    #[must_use]
    pub fn dead_letters(mut self, max_attempts: u16, topic: &str) -> Self {
        self.dead_letters = Some((max_attempts.max(1), topic.to_owned()));
        self
    }

    /// Connects to a broker and joins the group for a topic. The group is made if it does not exist.
    ///
    /// # Errors
    /// No broker answers, a name is not valid, or the broker refuses: the topic is not kept or has had no publisher yet, the user may
    /// not subscribe to it, the broker is a member of a cluster, or a limit is reached.
    pub fn join(self, addr: &str, topic: &str) -> Result<GroupWorker, GroupError> {
        let topic: TopicName = topic.parse()?;
        let group: GroupName = self.group.parse()?;
        let (max_attempts, letters) = self.dead_letters.clone().unzip();
        let dead_letter = letters.map(|letters| letters.parse::<TopicName>()).transpose()?;
        let join = GroupJoin {
            topic,
            group,
            credit: self.credit,
            from_newest: self.from_newest,
            ack_ms: millis(self.ack_time).max(1),
            max_attempts: max_attempts.unwrap_or(0),
            dead_letter,
            ordered: self.ordered,
        };
        GroupWorker::join(self.subscriber, addr, join)
    }
}

impl std::fmt::Debug for GroupBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupBuilder").field("group", &self.group).finish_non_exhaustive()
    }
}
