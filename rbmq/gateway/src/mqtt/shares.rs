//! Shared subscriptions (`$share/GROUP/FILTER`): each message goes to one member of the group.

use std::cell::Cell;

use rbmq_wire::TopicFilter;
use slab::Slab;

use super::session::Session;
use super::state::{Group, Route, Subscriber};

/// What a subscription is about, as its text says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The filter of the topics.
    pub(super) filter: TopicFilter,
    /// The group that shares their messages; none: the session gets all of them.
    pub(super) group: Option<Box<str>>,
}

impl Target {
    /// None: the text is no filter, or names no group.
    pub(super) fn of(text: &str) -> Option<Self> {
        if text != "$share" && !text.starts_with("$share/") {
            return Some(Self { filter: text.parse().ok()?, group: None });
        }
        let (group, filter) = text.strip_prefix("$share/")?.split_once('/')?;
        let is_name = !group.is_empty() && !group.contains(['+', '#']);
        is_name.then_some(())?;
        Some(Self { filter: filter.parse().ok()?, group: Some(group.into()) })
    }
}

impl Group {
    /// The member that gets a message. They take turns: first those with a connection that has room, then those with a connection, then those
    /// without, and at last those that would drop it, as their queue is full. Whoever may not receive the message is passed over.
    pub(super) fn choose(
        &self,
        sessions: &Slab<Session>,
        takes: impl Fn(&Session) -> bool,
        mut may_receive: impl FnMut(&Session) -> bool,
    ) -> Option<Subscriber> {
        let (count, first) = (self.members.len(), self.turn.get());
        let mut best: Option<(u8, usize)> = None;
        for at in (0..count).map(|turn| (first + turn) % count) {
            let Some(session) = sessions.get(self.members[at].slot) else { continue };
            let rank = match &session.link {
                Some(link) if session.queued() == 0 && link.outstanding < link.window => 0,
                _ if !takes(session) => 3,
                Some(_) => 1,
                None => 2,
            };
            if best.is_none_or(|(best, _)| rank < best) && may_receive(session) {
                best = Some((rank, at));
                if rank == 0 {
                    break;
                }
            }
        }
        let (_, at) = best?;
        self.turn.set(at + 1);
        Some(self.members[at])
    }
}

impl Route {
    /// Without subscribers.
    pub(super) fn new(in_force: bool) -> Self {
        Self { in_force, subscribers: Vec::new(), groups: Vec::new() }
    }

    /// The subscribers that get all messages, or the members of a group.
    pub(super) fn members(&self, group: Option<&str>) -> &[Subscriber] {
        let Some(group) = group else { return &self.subscribers };
        self.groups.iter().find(|known| *known.name == *group).map_or(&[], |known| &known.members)
    }

    /// All subscribers.
    pub(super) fn all(&self) -> impl Iterator<Item = &Subscriber> {
        self.subscribers.iter().chain(self.groups.iter().flat_map(|group| &group.members))
    }

    /// The same list, for changes. It is made if there is none.
    pub(super) fn members_mut(&mut self, group: Option<&str>) -> &mut Vec<Subscriber> {
        let Some(name) = group else { return &mut self.subscribers };
        let at = self.groups.iter().position(|known| *known.name == *name).unwrap_or_else(|| {
            self.groups.push(Group { name: name.into(), members: Vec::new(), turn: Cell::new(0) });
            self.groups.len() - 1
        });
        &mut self.groups[at].members
    }

    /// Removes a subscriber. Returns whether nobody is left.
    pub(super) fn remove(&mut self, slot: usize, group: Option<&str>) -> bool {
        let members = self.members_mut(group);
        if let Ok(at) = members.binary_search_by_key(&slot, |known| known.slot) {
            members.remove(at);
        }
        self.groups.retain(|group| !group.members.is_empty());
        self.subscribers.is_empty() && self.groups.is_empty()
    }
}
