//! Named subscribers that are disconnected: the buffers that are new to them when they come back.
//!
//! ```text
//!   number of the buffer   … 7   8   9   10   11 …            "attic" left at 8, with the filters y/# and z.
//!                              y/a  b   y/c  z                 When it is back, y/c and z are new to it, y/a is not.
//! ```
//!
//! The framework keeps the position of such a subscriber in each buffer that it had subscribed to. For buffers that appear
//! while it is away there is no position. So this module keeps, for each filter, the number of the last buffer that was announced,
//! and the announced new buffers that were not subscribed to. The state lives as long as the subscriber's hold, and is
//! bounded for all subscribers together.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use peers::LogLimiter;
use rbmq_wire::{Levels, Space, TopicFilter};
use rocketbufs::Bid;
use tracing::warn;

use super::names::display_name;
use super::topics::{Buffer, Topics};

/// Most filters, buffers and names of all disconnected subscribers: about 20 MiB with the longest names. At the limit, the
/// subscriber whose hold ends first is forgotten.
const MAX_ENTRIES: usize = 1 << 16;

/// The state of a disconnected subscriber.
#[derive(Debug)]
struct State {
    until: Instant,
    /// The filters, with the number of the last announced buffer.
    announced: Levels<(TopicFilter, u64)>,
    /// Buffers that were announced as new and were not subscribed to.
    not_subscribed: BTreeSet<Bid>,
}

impl State {
    fn cost(&self) -> usize {
        1 + self.announced.len() + self.not_subscribed.len()
    }
}

/// The disconnected subscribers whose hold is not over.
#[derive(Debug)]
pub(super) struct OfflineSubscribers {
    by_name: HashMap<String, State>,
    ends: BTreeSet<(Instant, String)>,
    entries: usize,
    max_entries: usize,
    /// Limits the lines of the log about forgotten subscribers.
    log: LogLimiter,
    /// The newest connection of each name. An older connection of the same subscriber may not be known as down yet.
    online: HashMap<String, u64>,
}

impl Default for OfflineSubscribers {
    fn default() -> Self {
        Self {
            by_name: HashMap::new(),
            ends: BTreeSet::new(),
            entries: 0,
            max_entries: MAX_ENTRIES,
            log: LogLimiter::default(),
            online: HashMap::new(),
        }
    }
}

impl OfflineSubscribers {
    /// Makes a connection the newest one of its name. Returns the connection that was the newest before.
    pub(super) fn connected(&mut self, name: &str, conn: u64) -> Option<u64> {
        self.online.insert(name.to_owned(), conn).filter(|before| *before != conn)
    }

    /// A connection of this name is down. Returns whether it was the newest one.
    pub(super) fn disconnected(&mut self, name: &str, conn: u64) -> bool {
        let last = self.online.get(name) == Some(&conn);
        if last {
            self.online.remove(name);
        }
        last
    }

    /// Keeps the state of a subscriber: its filters, the number of the last announced buffer, and the new buffers that it
    /// had not subscribed to.
    pub(super) fn leave<'f>(
        &mut self,
        name: &str,
        until: Instant,
        filters: impl Iterator<Item = &'f TopicFilter>,
        last: u64,
        not_subscribed: BTreeSet<Bid>,
    ) {
        let mut state = self.take(name).unwrap_or_else(|| State {
            until,
            announced: Levels::default(),
            not_subscribed: BTreeSet::new(),
        });
        state.until = state.until.max(until);
        state.not_subscribed.extend(not_subscribed);
        for filter in filters {
            state.announced.insert(filter.as_str(), (filter.clone(), last));
        }
        self.put(name, state);
        while self.entries > self.max_entries
            && let Some((_, first)) = self.ends.first().cloned()
        {
            if let Some(more) = self.log.allow(Instant::now()) {
                warn!(
                    more,
                    "too many subscribers are disconnected: subscriber {} is forgotten, and topics that appear until it is back will not be new \
                     to it",
                    display_name(&first)
                );
            }
            self.take(&first);
        }
    }

    /// Whether a buffer is new to a subscriber that comes back with this name.
    pub(super) fn is_new(&self, name: &str, bid: Bid, buffer: &Buffer, topics: &Topics) -> bool {
        self.by_name.get(name).is_some_and(|state| {
            state.not_subscribed.contains(&bid)
                || match Space::of_log(&buffer.topic) {
                    None => state.announced.matching(&buffer.topic, &mut |(_, last)| buffer.number > *last),
                    Some(_) => {
                        let mut announced = state.announced.values();
                        announced.any(|(filter, last)| buffer.number > *last && topics.wants(filter, buffer))
                    }
                }
        })
    }

    /// A subscriber of this name is back, with these filters. `announced` are all buffers that they match.
    pub(super) fn back(&mut self, name: &str, filters: &[TopicFilter], announced: &[Bid]) {
        let Some(mut state) = self.take(name) else { return };
        for filter in filters {
            state.announced.remove(filter.as_str());
        }
        for bid in announced {
            state.not_subscribed.remove(bid);
        }
        if state.cost() > 1 {
            self.put(name, state);
        }
    }

    /// Forgets the subscribers whose hold is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((until, name)) = self.ends.first()
            && *until <= now
        {
            let name = name.clone();
            self.take(&name);
        }
    }

    /// The end of the next hold.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.ends.first().map(|(until, _)| *until)
    }

    fn take(&mut self, name: &str) -> Option<State> {
        let state = self.by_name.remove(name)?;
        self.ends.remove(&(state.until, name.to_owned()));
        self.entries -= state.cost();
        Some(state)
    }

    fn put(&mut self, name: &str, state: State) {
        self.entries += state.cost();
        self.ends.insert((state.until, name.to_owned()));
        self.by_name.insert(name.to_owned(), state);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::topics::tests::buffer;

    fn filters(texts: &[&str]) -> Vec<TopicFilter> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn numbered(topic: &str, number: u64) -> Buffer {
        Buffer { number, ..buffer(topic, 1) }
    }

    #[test]
    fn buffers_are_new_until_they_are_announced_or_the_hold_is_over() {
        let (mut offline, now) = (OfflineSubscribers::default(), Instant::now());
        let until = now + Duration::from_secs(1);
        offline.leave("n", until, filters(&["y/#", "z"]).iter(), 8, BTreeSet::from([3]));
        let is_new = |offline: &OfflineSubscribers, topic, number| {
            offline.is_new("n", 1, &numbered(topic, number), &Topics::default())
        };
        assert!(!is_new(&offline, "y/a", 8) && is_new(&offline, "y/a", 9) && is_new(&offline, "z", 9));
        assert!(
            !is_new(&offline, "x", 9) && !offline.is_new("m", 1, &numbered("y/a", 9), &Topics::default())
        );
        assert!(
            offline.is_new("n", 3, &numbered("y/a", 2), &Topics::default()),
            "the subscriber had not subscribed to this buffer"
        );
        offline.back("n", &filters(&["y/#"]), &[3]);
        assert!(!is_new(&offline, "y/a", 9) && is_new(&offline, "z", 9));
        assert!(!offline.is_new("n", 3, &numbered("y/a", 2), &Topics::default()));
        assert_eq!((offline.next_due(), offline.entries), (Some(until), 2));
        offline.expire(now);
        assert!(is_new(&offline, "z", 9));
        offline.expire(until);
        assert!(!is_new(&offline, "z", 9));
        assert_eq!((offline.next_due(), offline.entries, offline.by_name.len()), (None, 0, 0));
    }

    #[test]
    fn the_log_of_a_space_is_new_to_filters_of_its_topics() {
        let (mut offline, now) = (OfflineSubscribers::default(), Instant::now());
        offline.leave("n", now, filters(&["d/+/temp"]).iter(), 8, BTreeSet::new());
        let mut topics = Topics::default();
        for log in ["$space", "$space/d", "$space/e"] {
            topics.add(buffer(log, 1), 9).unwrap();
        }
        let is_new = |topic, number| offline.is_new("n", 1, &numbered(topic, number), &topics);
        assert!(is_new("$space/d", 9) && is_new("$space", 9));
        assert!(!is_new("$space/d", 8) && !is_new("$space/e", 9));
    }

    #[test]
    fn a_second_disconnection_replaces_the_state_of_its_filters() {
        let (mut offline, now) = (OfflineSubscribers::default(), Instant::now());
        offline.leave("n", now, filters(&["a", "b"]).iter(), 5, BTreeSet::new());
        offline.leave("n", now + Duration::from_secs(1), filters(&["b"]).iter(), 7, BTreeSet::new());
        assert!(
            offline.is_new("n", 1, &numbered("a", 6), &Topics::default())
                && !offline.is_new("n", 1, &numbered("b", 6), &Topics::default())
        );
        offline.expire(now);
        assert_eq!(offline.entries, 3);
        offline.back("n", &filters(&["a", "b"]), &[]);
        assert_eq!((offline.next_due(), offline.entries, offline.by_name.len()), (None, 0, 0));
    }

    #[test]
    fn at_the_limit_the_subscriber_whose_hold_ends_first_is_forgotten() {
        let (mut offline, now) =
            (OfflineSubscribers { max_entries: 5, ..OfflineSubscribers::default() }, Instant::now());
        for (name, secs) in [("a", 2), ("b", 1), ("c", 3)] {
            let until = now + Duration::from_secs(secs);
            offline.leave(name, until, filters(&["x"]).iter(), 1, BTreeSet::new());
        }
        assert_eq!(offline.entries, 4);
        let is_new =
            ["a", "b", "c"].map(|name| offline.is_new(name, 1, &numbered("x", 2), &Topics::default()));
        assert_eq!(is_new, [true, false, true]);
    }

    #[test]
    fn a_name_belongs_to_its_newest_connection() {
        let mut offline = OfflineSubscribers::default();
        assert_eq!(
            [offline.connected("n", 1), offline.connected("n", 1), offline.connected("n", 2)],
            [None, None, Some(1)]
        );
        assert!(!offline.disconnected("n", 1));
        assert_eq!(offline.connected("n", 3), Some(2));
        assert!(offline.disconnected("n", 3));
        assert!(offline.online.is_empty());
    }
}
