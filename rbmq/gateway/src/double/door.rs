//! A door with a list of users.

use std::collections::{BTreeMap, VecDeque};

use rbmq_wire::{TopicFilter, TopicName};

use crate::protocol::{ConnId, Door, Entry, FilterCount};
use rbmq_broker::GroupCharge;

/// What a user of the door may do.
#[derive(Debug, Clone)]
pub(crate) struct MemoryUser {
    /// The name; tokens have it too.
    pub(crate) name: &'static str,
    /// The password, or the token.
    pub(crate) secret: &'static str,
    /// Whether the secret is a token, which needs no name.
    pub(crate) is_token: bool,
    /// What the user may publish to.
    pub(crate) publish: TopicFilter,
    /// What the user may receive.
    pub(crate) subscribe: TopicFilter,
}

/// A door with a list of users.
#[derive(Debug, Default)]
pub(crate) struct MemoryDoor {
    /// Users; without any, everybody is let in and may do everything.
    pub(crate) users: Vec<MemoryUser>,
    /// Whether clients without credentials are let in nevertheless, with every right.
    pub(crate) lets_in_anonymous: bool,
    /// Whether passwords are checked later.
    pub(crate) is_slow: bool,
    /// Checks that are not answered yet, with their outcome.
    pub(super) checks: VecDeque<(ConnId, Option<&'static str>)>,
    /// Who has logged in.
    pub(super) entered: BTreeMap<ConnId, &'static str>,
    /// The number of refusals.
    pub(crate) refusals: usize,
    /// The filters of each client.
    pub(crate) filters: BTreeMap<ConnId, FilterCount>,
    /// The most filters of a client.
    pub(crate) most_filters: Option<FilterCount>,
    /// Whether the quota has no group left.
    pub(crate) refuses_groups: bool,
}

impl MemoryDoor {
    fn has_right(&self, conn: ConnId, allowed: impl Fn(&MemoryUser) -> bool) -> bool {
        match self.entered.get(&conn) {
            Some(name) => self.users.iter().any(|user| user.name == *name && allowed(user)),
            None => self.lets_in_anonymous(),
        }
    }

    fn may(&mut self, conn: ConnId, allowed: impl Fn(&MemoryUser) -> bool) -> bool {
        let may = self.has_right(conn, allowed);
        self.refusals += usize::from(!may);
        may
    }
}

impl Door for MemoryDoor {
    fn lets_in_anonymous(&self) -> bool {
        self.users.is_empty() || self.lets_in_anonymous
    }

    fn log_in(&mut self, conn: ConnId, user: Option<&str>, secret: &str) -> Entry {
        let matches = |known: &&MemoryUser| {
            known.secret == secret && user.map_or(known.is_token, |name| name == known.name)
        };
        let found = self.users.iter().find(matches).map(|user| user.name);
        if self.is_slow {
            self.checks.push_back((conn, found));
            return Entry::Wait;
        }
        match found {
            Some(name) => {
                self.entered.insert(conn, name);
                Entry::In
            }
            None => {
                self.refusals += 1;
                Entry::Refused
            }
        }
    }

    fn log_out(&mut self, conn: ConnId) {
        self.entered.remove(&conn);
    }

    fn user(&self, conn: ConnId) -> Option<&str> {
        self.entered.get(&conn).copied()
    }

    fn may_publish(&mut self, conn: ConnId, topic: &TopicName) -> bool {
        self.may(conn, |user| user.publish.matches(topic))
    }

    fn may_user_publish(&mut self, user: &str, topic: &TopicName) -> bool {
        let may = match user {
            _ if self.users.is_empty() => true,
            "" => self.lets_in_anonymous,
            _ => self.users.iter().any(|known| known.name == user && known.publish.matches(topic)),
        };
        self.refusals += usize::from(!may);
        may
    }

    fn may_subscribe(&mut self, conn: ConnId, topic: &TopicName) -> bool {
        self.may(conn, |user| user.subscribe.matches(topic))
    }

    fn may_receive(&mut self, conn: ConnId, topic: &TopicName) -> bool {
        self.has_right(conn, |user| user.subscribe.matches(topic))
    }

    fn may_user_receive(&mut self, user: &str, topic: &TopicName) -> bool {
        self.users.is_empty()
            || self.users.iter().any(|known| known.name == user && known.subscribe.matches(topic))
    }

    fn may_subscribe_to_some(&mut self, conn: ConnId, filter: &TopicFilter) -> bool {
        // Enough for tests: one of the two has the other's beginning.
        let beginning = |filter: &TopicFilter| filter.as_str().trim_end_matches(['#', '+']).to_owned();
        let asked = beginning(filter);
        self.may(conn, |user| {
            let has = beginning(&user.subscribe);
            asked.starts_with(&has) || has.starts_with(&asked)
        })
    }

    fn ask_for_filters(&mut self, conn: ConnId, count: FilterCount) -> Result<(), String> {
        if self.most_filters.is_some_and(|most| count.all > most.all || count.patterns > most.patterns) {
            self.refusals += 1;
            return Err("the quota is used up".to_owned());
        }
        self.set_filters(conn, count);
        Ok(())
    }

    fn charge_group(&mut self, _conn: ConnId) -> Result<Option<GroupCharge>, String> {
        match self.refuses_groups {
            true => Err("the quota is used up".to_owned()),
            false => Ok(None),
        }
    }

    fn set_filters(&mut self, conn: ConnId, count: FilterCount) {
        self.filters.insert(conn, count);
    }
}
