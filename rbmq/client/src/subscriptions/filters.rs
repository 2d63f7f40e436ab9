//! The filters that the application subscribed to.

use rbmq_wire::Levels;

use crate::ground::options::StartFrom;
use crate::wire::{TopicFilter, TopicName};

/// A filter and its state.
#[derive(Debug)]
struct Filter {
    filter: TopicFilter,
    /// The number of the request. Later requests have larger numbers.
    number: u64,
    start: StartFrom,
    /// Whether the broker has announced a buffer that the filter matches.
    matched: bool,
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
}

impl Filters {
    /// Adds a filter. Returns false if it exists: then only its start changes. `matched`: the filter matches a known buffer,
    /// which the broker does not announce again.
    pub(super) fn add(&mut self, filter: &TopicFilter, start: StartFrom, matched: bool) -> bool {
        if let Some(known) = self.filters.get_mut(filter.as_str()) {
            known.start = start;
            return false;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.filters.insert(filter.as_str(), Filter { filter: filter.clone(), number, start, matched });
        self.unmatched += usize::from(!matched);
        true
    }

    /// Removes a filter; false if it does not exist.
    pub(super) fn remove(&mut self, filter: &TopicFilter) -> bool {
        let Some(removed) = self.filters.remove(filter.as_str()) else { return false };
        self.unmatched -= usize::from(!removed.matched);
        true
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
    pub(super) fn on_announced(&mut self, topic: &TopicName) -> Option<(StartFrom, Answered)> {
        let mut first: Option<&Filter> = None;
        let (mut new, mut answered) = (Vec::new(), Answered::NotRequested);
        let (requested_below, answered_below) = self.before_loss;
        self.filters.matching(topic, &mut |filter| {
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
            false
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

    /// Whether a filter matches the topic.
    pub(super) fn any_matches(&self, topic: &TopicName) -> bool {
        self.filters.any_matches(topic)
    }

    /// Whether the topic was requested by its name, and not only by filters with wildcards.
    pub(super) fn has_name(&self, topic: &TopicName) -> bool {
        self.filters.get(topic.as_str()).is_some()
    }

    /// All filters.
    pub(super) fn all(&self) -> Vec<TopicFilter> {
        self.filters.values().map(|filter| filter.filter.clone()).collect()
    }

    /// Whether there are filters, and each has matched a buffer.
    pub(super) fn all_matched(&self) -> bool {
        !self.filters.is_empty() && self.unmatched == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> TopicName {
        name.parse().unwrap()
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
        assert_eq!(filters.all().len(), 5);
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
