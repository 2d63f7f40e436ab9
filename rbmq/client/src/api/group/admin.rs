//! The groups of a broker, for those who look after them.

use std::time::Duration;

use rocketbufs::InEvent;

use super::link::{Dialer, Link};
use crate::ground::deadline::Deadline;
use crate::ground::error::ConnectError;
use crate::ground::group_error::GroupError;
use crate::ground::options::SubscriberBuilder;
use crate::wire::{GroupAction, GroupMessage, GroupName, GroupStats, TopicName};

/// How long a call waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest wait before the connection is looked at.
const STEP: Duration = Duration::from_millis(50);

/// Where a group begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupStart {
    /// With the oldest message that is kept.
    Oldest,
    /// With the next message that is published.
    Newest,
    /// With the first message at this position of the log or behind it.
    Position(u64),
}

/// Lists, resets and deletes groups of a broker. A client sees the groups of the topics that it may subscribe to. It does not reconnect.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut groups = rbmq::Subscriber::builder().groups("127.0.0.1:7411")?;
/// for group in groups.list()? {
///     println!("{} of {}: {} bytes behind", group.group, group.topic, group.lag_bytes());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Groups {
    link: Link,
    _dialer: Dialer,
    requests: u32,
}

impl Groups {
    pub(super) fn connect(options: SubscriberBuilder, addr: &str) -> Result<Self, ConnectError> {
        let dialer = Dialer::new(options, addr)?;
        Ok(Self { link: dialer.dial()?, _dialer: dialer, requests: 0 })
    }

    /// All groups, sorted by topic and name.
    ///
    /// # Errors
    /// The connection is lost, or there is no answer within 10 s.
    pub fn list(&mut self) -> Result<Vec<GroupStats>, GroupError> {
        let mut all: Vec<GroupStats> = Vec::new();
        loop {
            let after = all.last().map(|last| (last.topic.clone(), last.group.clone()));
            let (rows, more) = self.ask(GroupAction::List, after)?;
            // A faulty broker does not make the list endless.
            let more = more && !rows.is_empty();
            all.extend(rows);
            if !more {
                return Ok(all);
            }
        }
    }

    /// A group begins anew. Its workers connect again, and what they have not acknowledged is forgotten.
    ///
    /// # Errors
    /// As [`Groups::list`], a name is not valid, or there is no such group.
    pub fn reset(&mut self, topic: &str, group: &str, start: GroupStart) -> Result<(), GroupError> {
        let action = match start {
            GroupStart::Oldest => GroupAction::ResetOldest,
            GroupStart::Newest => GroupAction::ResetNewest,
            GroupStart::Position(position) => GroupAction::ResetTo(position),
        };
        self.act(action, topic, group)
    }

    /// A group is forgotten. Its workers end with an error.
    ///
    /// # Errors
    /// As [`Groups::reset`].
    pub fn delete(&mut self, topic: &str, group: &str) -> Result<(), GroupError> {
        self.act(GroupAction::Delete, topic, group)
    }

    fn act(&mut self, action: GroupAction, topic: &str, group: &str) -> Result<(), GroupError> {
        let of: (TopicName, GroupName) = (topic.parse()?, group.parse()?);
        self.ask(action, Some(of)).map(drop)
    }

    fn ask(
        &mut self,
        action: GroupAction,
        of: Option<(TopicName, GroupName)>,
    ) -> Result<(Vec<GroupStats>, bool), GroupError> {
        self.requests = self.requests.wrapping_add(1);
        let wanted = self.requests;
        let group = of.as_ref().map(|(_, group)| group.to_string()).unwrap_or_default();
        let question = GroupMessage::Ask { request: wanted, action, of };
        // Lost, the connection has a reason below.
        let _ = self.link.conn.send_control(&question.encode());
        let deadline = Deadline::after(Some(TIMEOUT));
        loop {
            let event = self.link.rin.recv(Some(deadline.left_within(STEP)));
            if let Some(InEvent::Control { message }) = event.map_err(|_| GroupError::InCallback)? {
                match GroupMessage::decode(&message) {
                    Ok(GroupMessage::Rows { request, more, rows }) if request == wanted => {
                        return Ok((rows, more));
                    }
                    Ok(GroupMessage::Failed { request, reason }) if request == wanted => {
                        return Err(GroupError::Refused { group, reason });
                    }
                    _ => {}
                }
            } else if let Some(reason) = self.link.conn.down_reason() {
                return Err(GroupError::NoGroups { reason: reason.to_string() });
            }
            if deadline.has_passed() {
                return Err(GroupError::TimedOut { waited: TIMEOUT });
            }
        }
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.link.conn.close("the client is done");
    }
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups").field("conn", &self.link.conn).finish_non_exhaustive()
    }
}
