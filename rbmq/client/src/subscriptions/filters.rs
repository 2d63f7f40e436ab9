//! The filters that the application subscribed to.

use std::sync::Arc;

use rbmq_wire::Levels;

use crate::ground::options::StartFrom;
use crate::wire::{Space, Topic, TopicFilter, TopicName};

/// A filter and its state.
#[derive(Debug)]
struct Filter {
    filter: TopicFilter,
    /// The number of the request. Later requests have larger numbers.
    number: u64,
    start: StartFrom,
    /// Whether the broker has announced a buffer that the filter matches.
    matched: bool,
    /// Whether the broker has refused its last request, as far as it has named the filter.
    refused: bool,
}

/// How far the broker had answered the request for a filter when the connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answered {
    /// The filter was not requested then.
    NotRequested,
    /// The broker had not announced all existing buffers. An unknown buffer may be old or new.
    Partly,
    /// All existing buffers were announced. Any other buffer is new.
    Fully,
}

/// The filters of a subscriber.
#[derive(Debug, Default)]
pub(super) struct Filters {
    filters: Levels<Filter>,
    /// The number of the next request.
    next_number: u64,
    /// How many filters have not matched any buffer yet.
    unmatched: usize,
    /// The broker has announced all existing buffers for requests below this number.
    answered: u64,
    /// `next_number` and `answered` when the connection was lost.
    before_loss: (u64, u64),
    /// The filters alone, since they were first asked for.
    wanted: Option<Arc<Levels<()>>>,
}

impl Filters {
    /// Adds a filter. Returns false if it exists and was not refused: then only its start changes. `matched`: the filter matches a
    /// known buffer, which the broker does not announce again.
    pub(super) fn add(&mut self, filter: &TopicFilter, start: StartFrom, matched: bool) -> bool {
        let number = self.next_number;
        if let Some(known) = self.filters.get_mut(filter.as_str()) {
            known.start = start;
            if !std::mem::take(&mut known.refused) {
                return false;
            }
            known.number = number;
            self.next_number += 1;
            return true;
        }
        self.next_number += 1;
        let added = Filter { filter: filter.clone(), number, start, matched, refused: false };
        self.filters.insert(filter.as_str(), added);
        self.wanted = None;
        self.unmatched += usize::from(!matched);
        true
    }

    /// Removes a filter; false if it does not exist.
    pub(super) fn remove(&mut self, filter: &TopicFilter) -> bool {
        let Some(removed) = self.filters.remove(filter.as_str()) else { return false };
        self.unmatched -= usize::from(!removed.matched);
        self.wanted = None;
        true
    }

    /// The broker has refused a filter. Returns whether it is still wanted.
    pub(super) fn on_refused(&mut self, filter: &TopicFilter) -> bool {
        self.filters.get_mut(filter.as_str()).map(|known| known.refused = true).is_some()
    }

    /// The broker has announced all existing buffers for all requests.
    pub(super) fn on_all_answered(&mut self) {
        self.answered = self.next_number;
    }

    /// The connection was lost. All filters are requested again.
    pub(super) fn on_connection_lost(&mut self) {
        self.before_loss = (self.next_number, self.answered);
    }

    /// The broker announced a buffer of this topic. Returns the start of the earliest filter that matches, and the most
    /// complete answer to a matching filter before the connection was lost.
    pub(super) fn on_announced(&mut self, topic: &Topic) -> Option<(StartFrom, Answered)> {
        let mut first: Option<&Filter> = None;
        let (mut new, mut answered) = (Vec::new(), Answered::NotRequested);
        let (requested_below, answered_below) = self.before_loss;
        self.each_matching(topic, &mut |filter| {
            answered = answered.max(match filter.number {
                number if number < answered_below => Answered::Fully,
                number if number < requested_below => Answered::Partly,
                _ => Answered::NotRequested,
            });
            if first.is_none_or(|first| filter.number < first.number) {
                first = Some(filter);
            }
            if !filter.matched {
                new.push(filter.filter.clone());
            }
        });
        let start = first.map(|filter| (filter.start.clone(), answered));
        for filter in new {
            if let Some(filter) = self.filters.get_mut(filter.as_str()) {
                filter.matched = true;
                self.unmatched -= 1;
            }
        }
        start
    }

    /// Visits the filters that match the topic, or some topic of the space.
    fn each_matching<'f>(&'f self, topic: &Topic, visit: &mut impl FnMut(&'f Filter)) {
        if topic.space.is_some() {
            return self
                .filters
                .values()
                .filter(|filter| topic.is_matched_by(&filter.filter))
                .for_each(visit);
        }
        self.filters.matching(&topic.topic, &mut |filter| {
            visit(filter);
            false
        });
    }

    /// Whether a filter matches the topic, or some topic of the space.
    pub(super) fn any_matches(&self, topic: &Topic) -> bool {
        match topic.space {
            Some(_) => self.filters.values().any(|filter| topic.is_matched_by(&filter.filter)),
            None => self.filters.any_matches(&topic.topic),
        }
    }

    /// The same for the name of a topic, or of the log of a space.
    pub(super) fn any_is_for(&self, name: &TopicName) -> bool {
        match Space::of_log(name) {
            Some(space) => self.filters.values().any(|filter| space.is_wanted_by(&filter.filter)),
            None => self.filters.any_matches(name),
        }
    }

    /// Whether the topic has a ring of its own: it was requested by its name, and not only by filters with wildcards, or it is a space.
    pub(super) fn has_name(&self, topic: &Topic) -> bool {
        topic.space.is_some() || self.filters.get(topic.topic.as_str()).is_some()
    }

    /// The filters, for the records of spaces.
    pub(super) fn wanted(&mut self) -> Arc<Levels<()>> {
        let all = || {
            let mut all = Levels::default();
            self.filters.values().for_each(|filter| _ = all.insert(filter.filter.as_str(), ()));
            Arc::new(all)
        };
        self.wanted.get_or_insert_with(all).clone()
    }

    /// All filters: those whose requests the broker had answered before the connection was lost, and the others.
    pub(super) fn all(&self) -> (Vec<TopicFilter>, Vec<TopicFilter>) {
        let (mut answered, mut others) = (Vec::new(), Vec::new());
        for filter in self.filters.values() {
            let of = if filter.number < self.before_loss.1 { &mut answered } else { &mut others };
            of.push(filter.filter.clone());
        }
        (answered, others)
    }

    /// Whether there are filters, and each has matched a buffer.
    pub(super) fn all_matched(&self) -> bool {
        !self.filters.is_empty() && self.unmatched == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Framing;

    fn topic(name: &str) -> Topic {
        let topic: TopicName = name.parse().unwrap();
        let (framing, space) = (Framing::Merged, Space::of_log(&topic));
        Topic { bid: 1, epoch: 1, framing, fresh: false, kept: false, max_delivery_bytes: 1, topic, space }
    }

    fn filter(text: &str) -> TopicFilter {
        text.parse().unwrap()
    }

    #[test]
    fn the_earliest_filter_decides_the_start() {
        let mut filters = Filters::default();
        assert!(!filters.all_matched(), "there are no filters");
        assert!(filters.add(&filter("a/#"), StartFrom::Oldest, false));
        assert!(filters.add(&filter("a/b"), StartFrom::Position(7), false));
        assert!(filters.add(&filter("c"), StartFrom::Newest, false));
        assert_eq!(filters.on_announced(&topic("x")), None);
        let announced = |filters: &mut Filters, name| filters.on_announced(&topic(name)).unwrap();
        assert_eq!(announced(&mut filters, "a/b"), (StartFrom::Oldest, Answered::NotRequested));
        assert!(!filters.all_matched());
        assert!(!filters.add(&filter("a/#"), StartFrom::Newest, false));
        assert_eq!(announced(&mut filters, "a/b"), (StartFrom::Newest, Answered::NotRequested));
        filters.on_all_answered();
        assert!(filters.add(&filter("d"), StartFrom::Newest, false));
        filters.on_connection_lost();
        assert!(filters.add(&filter("e"), StartFrom::Newest, false));
        assert_eq!(announced(&mut filters, "c").1, Answered::Fully);
        assert_eq!(announced(&mut filters, "d").1, Answered::Partly);
        assert_eq!(announced(&mut filters, "e").1, Answered::NotRequested);
        assert!(filters.all_matched());
        let (answered, others) = filters.all();
        assert_eq!((answered.len(), others.len()), (3, 2));
    }

    #[test]
    fn a_filter_of_some_topics_of_a_space_matches_its_log() {
        let mut filters = Filters::default();
        filters.add(&filter("$space/#"), StartFrom::Newest, false);
        assert_eq!(filters.on_announced(&topic("$space/d")), None);
        filters.add(&filter("+/7/temp"), StartFrom::Oldest, false);
        filters.add(&filter("d/#"), StartFrom::Newest, false);
        assert!(filters.any_matches(&topic("$space/d")) && filters.any_is_for(&topic("$space/d").topic));
        assert_eq!(filters.on_announced(&topic("$space/d")).unwrap().0, StartFrom::Oldest);
        assert!(filters.wanted().any_matches(&"d/7/door".parse().unwrap()));
        assert!(filters.remove(&filter("d/#")));
        assert!(!filters.wanted().any_matches(&"d/7/door".parse().unwrap()));
        assert!(filters.remove(&filter("+/7/temp")) && !filters.any_is_for(&topic("$space/d").topic));
        // Only what is announced as a space is one.
        let ordinary = Topic { space: None, ..topic("$space/d") };
        assert!(filters.any_matches(&ordinary) && !filters.any_matches(&topic("$space/d")));
    }

    #[test]
    fn a_removed_filter_matches_nothing() {
        let mut filters = Filters::default();
        assert!(!filters.remove(&filter("a")));
        filters.add(&filter("a"), StartFrom::Oldest, false);
        filters.add(&filter("+"), StartFrom::Newest, true);
        assert!(filters.remove(&filter("a")));
        assert!(filters.all_matched() && filters.any_matches(&topic("a")) && !filters.has_name(&topic("a")));
        assert!(filters.remove(&filter("+")));
        assert!(!filters.all_matched() && !filters.any_matches(&topic("a")));
        assert_eq!(filters.on_announced(&topic("a")), None);
    }
}
