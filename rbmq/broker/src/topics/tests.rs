//! The directory against plain lists.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

pub(crate) fn buffer(topic: &str, in_bid: Bid) -> Buffer {
    let source = SourceBuffer { session: SessionKey { instance: 1, client: 2 }, bid: in_bid };
    let buffer = Buffer::opening(topic.parse().unwrap(), source, Framing::Records, 1024);
    Buffer { stage: Stage::Live, ..buffer }
}

#[test]
fn several_buffers_of_a_topic_and_a_limit_on_topics() {
    let mut table = Topics::default();
    let a = table.add(buffer("x", 1), 1).unwrap();
    let b = table.add(buffer("x", 1), 1).unwrap();
    assert_ne!(a, b);
    assert_eq!(table.add(buffer("y", 2), 1), Err(TooManyTopics { open: 1 }));
    assert_eq!(table.after(None).collect::<Vec<_>>(), [(&"x".parse().unwrap(), [a, b].as_slice())]);
    table.remove(a);
    table.remove(b);
    assert_eq!((table.len(), table.buffers()), (0, 0));
    assert!(table.add(buffer("y", 2), 1).is_ok());
}

/// A place that is kept for a topic is for no other one, also while topics are opened and removed.
#[test]
fn a_reserved_place_is_for_its_topic() {
    let mut table = Topics::default();
    let [x, y]: [TopicName; 2] = ["x", "y"].map(|name| name.parse().unwrap());
    assert_eq!([table.reserve(&x, 2), table.reserve(&x, 2)], [Ok(()), Ok(())]);
    let other = table.add(buffer("z", 1), 2).unwrap();
    assert!(table.is_full(2));
    assert_eq!(table.reserve(&y, 2), Err(TooManyTopics { open: 2 }));
    assert_eq!(table.add(buffer("y", 1), 2), Err(TooManyTopics { open: 2 }));
    // The topic comes from another broker for a while.
    let from_other = table.add(buffer("x", 1), 2).unwrap();
    assert_eq!(table.reserve(&y, 2), Err(TooManyTopics { open: 2 }));
    table.remove(from_other);
    assert_eq!(table.reserve(&y, 2), Err(TooManyTopics { open: 2 }));
    let own = table.add(buffer("x", 1), 2).unwrap();
    table.release(&x);
    assert!(table.is_full(2));
    table.remove(own);
    assert_eq!(table.reserve(&y, 2), Ok(()));
    let mut reserved = table.take_reserved();
    assert!(reserved.remove(&y) && reserved.is_empty());
    table.set_reserved(reserved);
    table.remove(other);
    assert_eq!([table.reserve(&x, 2), table.reserve(&y, 2)], [Ok(()), Ok(())]);
    table.release(&x);
    assert!(!table.is_full(2) && table.is_full(1));
}

fn filter(text: &str) -> TopicFilter {
    text.parse().unwrap()
}

fn limits(filters: usize) -> FilterLimits {
    FilterLimits { filters, patterns: filters }
}

#[test]
fn topics_are_listed_by_name_from_anywhere() {
    let mut table = Topics::default();
    for name in ["c", "a", "b"] {
        table.add(buffer(name, 1), 9).unwrap();
    }
    let after = |name: Option<&str>| {
        let name = name.map(|name| name.parse().unwrap());
        table.after(name.as_ref()).map(|(topic, _)| topic.to_string()).collect::<String>()
    };
    assert_eq!((after(None), after(Some("a"))), ("abc".into(), "bc".into()));
    // The topic of the name need not exist.
    assert_eq!((after(Some("aa")), after(Some("c"))), ("bc".into(), String::new()));
}

#[test]
fn filters_count_once_and_are_forgotten() {
    let mut table = Topics::default();
    let b = table.add(buffer("b", 1), 9).unwrap();
    assert_eq!(table.add_filters(7, vec![filter("a"), filter("a"), filter("b")], limits(2)), Ok(vec![b]));
    assert_eq!(table.add_filters(7, vec![filter("b")], limits(2)), Ok(vec![]));
    assert_eq!(table.add_filters(7, vec![filter("+")], limits(2)), Err(TooManyFilters::Filters(3)));
    assert_eq!(table.subscribers(&buffer("a", 1)), BTreeSet::from([7]));
    table.forget(7);
    assert!(table.subscribers(&buffer("a", 1)).is_empty());
    assert_eq!(table.by_filter.len(), 0);
}

#[test]
fn patterns_have_a_limit_of_their_own() {
    let mut table = Topics::default();
    let limits = FilterLimits { filters: 9, patterns: 2 };
    assert_eq!(table.add_filters(7, ["a", "b", "a/+", "a/+"].map(filter).into(), limits), Ok(vec![]));
    let refused = table.add_filters(7, ["c/#", "d", "+"].map(filter).into(), limits);
    assert_eq!(refused, Err(TooManyFilters::Patterns(3)));
    assert_eq!(table.add_filters(7, ["c", "c/#"].map(filter).into(), limits), Ok(vec![]));
    assert_eq!(table.add_filters(8, ["c/#", "+"].map(filter).into(), limits), Ok(vec![]));
}

/// Looking up each pattern would visit every topic, although none matches.
#[test]
fn thousands_of_patterns_beside_thousands_of_topics() {
    let mut table = Topics::default();
    let bids: Vec<Bid> =
        (0..10_000).map(|n| table.add(buffer(&format!("{n}/a/b"), 1), 10_000).unwrap()).collect();
    let patterns = (0..10_000).map(|n| filter(&format!("+/{n}/b"))).collect();
    assert_eq!(table.add_filters(7, patterns, limits(20_000)), Ok(vec![]));
    let patterns = ["+/a/0", "+/a/1", "+/a/2", "+/a/3", "+/a/b"].map(filter);
    assert_eq!(table.add_filters(7, patterns.into(), limits(20_000)).unwrap().len(), bids.len());
}

#[test]
fn filters_that_overlap_match_each_buffer_once() {
    let mut table = Topics::default();
    let [x, y] = ["a/x", "a/y"].map(|topic| table.add(buffer(topic, 1), 9).unwrap());
    let x2 = table.add(buffer("a/x", 2), 9).unwrap();
    table.add(buffer("$a/x", 3), 9).unwrap();
    assert_eq!(table.add_filters(7, vec![filter("a/x"), filter("+/x")], limits(9)), Ok(vec![x, x2]));
    assert_eq!(table.add_filters(7, vec![filter("#"), filter("a/#")], limits(9)), Ok(vec![y]));
    assert_eq!(table.add_filters(8, vec![filter("#")], limits(9)), Ok(vec![x, y, x2]));
    assert_eq!(table.subscribers(&buffer("a/x", 1)), BTreeSet::from([7, 8]));
    assert!(table.subscribers(&buffer("$a/x", 1)).is_empty());
}

#[test]
fn the_log_of_a_space_is_for_filters_of_its_topics() {
    let mut table = Topics::default();
    for (conn, text) in
        [(1, "d/7/temp"), (2, "+/7/#"), (3, "#"), (4, "$space/#"), (5, "e/#"), (6, "$space/d")]
    {
        table.add_filters(conn, vec![filter(text)], limits(9)).unwrap();
    }
    let log = table.add(buffer("$space/d", 1), 9).unwrap();
    assert_eq!(table.subscribers(&buffer("$space/d", 1)), BTreeSet::from([1, 2, 3, 6]));
    // One that matched before, one that matches now, and one that comes.
    assert_eq!(table.add_filters(1, vec![filter("d/8/temp")], limits(9)), Ok(vec![]));
    assert_eq!(table.add_filters(5, vec![filter("d/+")], limits(9)), Ok(vec![log]));
    assert_eq!(table.add_filters(7, vec![filter("x"), filter("d")], limits(9)), Ok(vec![log]));
    table.forget(3);
    assert_eq!(table.subscribers(&buffer("$space/d", 1)), BTreeSet::from([1, 2, 5, 6, 7]));
    let withheld = |filters: &[&str]| {
        let filters: Vec<TopicFilter> = filters.iter().map(|text| filter(text)).collect();
        table.withheld(&filters, |topic| !topic.as_str().starts_with("$space"))
    };
    assert_eq!(withheld(&["d/1"]), ["$space/d".parse().unwrap()]);
    assert!(withheld(&["#", "e"]).is_empty());
    // Who got the log learns that it is gone.
    let gone = table.remove(log).unwrap();
    assert_eq!(table.subscribers(&gone), BTreeSet::from([1, 2, 5, 6, 7]));
    assert!(table.withheld(&[filter("d/1")], |_| false).is_empty());
}

/// The log of `d/#`, of which `d/own/#` and `d/x` are no topics at this broker.
#[test]
fn topics_of_earlier_rules_want_no_log_of_a_space() {
    let before: Vec<TopicFilter> = ["d/own/#", "d/x"].map(filter).into();
    let space = Space::new(&filter("d/#")).unwrap();
    let mut table = Topics::with_spaces([InSpace { space, before }].into_iter());
    let own = table.add(buffer("$space/d", 1), 9).unwrap();
    for (conn, text, bids) in [
        (1, "d/x", vec![]),
        (2, "d/own/+", vec![]),
        (3, "d/+", vec![own]),
        (4, "d/#", vec![own]),
        (5, "$space/d", vec![own]),
    ] {
        assert_eq!(table.add_filters(conn, vec![filter(text)], limits(9)), Ok(bids), "{text}");
    }
    assert_eq!(table.subscribers(&buffer("$space/d", 1)), BTreeSet::from([3, 4, 5]));
    // Rules of other brokers are not known: their log may have all of it.
    let other = Buffer { path: vec![7], ..buffer("$space/d", 2) };
    assert_eq!(table.subscribers(&other), BTreeSet::from([1, 2, 3, 4, 5]));
    let other = table.add(other, 9).unwrap();
    assert_eq!(table.matched(1).iter().map(|(bid, _)| *bid).collect::<Vec<_>>(), [other]);
    assert_eq!(table.add_filters(6, vec![filter("d/x")], limits(9)), Ok(vec![other]));
    assert_eq!(table.add_filters(6, vec![filter("d/x"), filter("d/y")], limits(9)), Ok(vec![own]));
    assert!(table.wants(&filter("d/x"), table.get(other).unwrap()));
    assert!(!table.wants(&filter("d/x"), table.get(own).unwrap()));
    assert!(table.wants(&filter("d/y"), table.get(own).unwrap()));
}

#[test]
fn who_gets_a_topic_with_a_log_of_its_own_is_not_refused_the_space() {
    let mut table = Topics::default();
    for topic in ["$space/d", "d/feed/1", "d/secret"] {
        table.add(buffer(topic, 1), 9).unwrap();
    }
    let is_refused = |text: &str| {
        !table.withheld(&[filter(text)], |topic| topic.as_str().starts_with("d/feed/")).is_empty()
    };
    for text in ["d/feed/1", "d/feed/+", "d/#", "#"] {
        assert!(!is_refused(text), "{text}");
    }
    for text in ["d/feed/2", "d/secret", "d/+", "d/other/#"] {
        assert!(is_refused(text), "{text}");
    }
}

#[test]
fn buffers_are_announced_in_the_order_of_their_numbers() {
    let mut table = Topics::default();
    let bids: Vec<Bid> =
        (0..100).rev().map(|n| table.add(buffer(&format!("v/{n}"), 1), 100).unwrap()).collect();
    // The order of the ids is another one: the publisher that was asked first may answer last.
    let (late, early) = bids.split_at(50);
    let came: Vec<Bid> = early.iter().chain(late).copied().collect();
    came.iter().for_each(|bid| table.assign_number(*bid));
    let opening = Buffer { stage: Stage::Opening, ..buffer("v/0", 2) };
    table.add(opening, 100).unwrap();
    assert_eq!(table.add_filters(7, vec![filter("v/#")], limits(9)), Ok(came.clone()));
    assert_eq!(
        table.add_filters(8, (0..100).map(|n| filter(&format!("v/{n}"))).collect(), limits(100)),
        Ok(came)
    );
}

#[test]
fn ended_buffers_expire_in_order() {
    let mut table = Topics::default();
    let now = Instant::now();
    let bid = table.add(buffer("x", 1), 9).unwrap();
    let other = table.add(buffer("x", 2), 9).unwrap();
    assert_eq!(table.next_expiry(), None);
    let until = now + Duration::from_secs(5);
    table.end(bid, 0, until);
    table.end(other, 0, until + Duration::from_secs(1));
    assert_eq!(table.next_expiry(), Some(until));
    assert!(table.expired(now).is_empty());
    assert_eq!(table.expired(until), [bid]);
    table.remove(bid);
    assert!(table.expired(until).is_empty());
    table.remove(other);
    assert_eq!(table.next_expiry(), None);
}

/// An operation of the directory.
#[derive(Debug, Clone)]
enum Step {
    Add(String),
    Remove(usize),
    AddFilters(u64, Vec<String>),
    Forget(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || proptest::collection::vec("a|b|c|\\$a", 1..4).prop_map(|levels| levels.join("/"));
    let filter = || {
        let levels = proptest::collection::vec(r"a|b|\$a|\+", 0..3);
        (levels, "[a#+]").prop_map(|(mut levels, last)| {
            levels.push(last);
            levels.join("/")
        })
    };
    prop_oneof![
        3 => name().prop_map(Step::Add),
        1 => r"\$space(/a|/b/c|/a/b)?".prop_map(Step::Add),
        1 => any::<usize>().prop_map(Step::Remove),
        2 => (0..3_u64, proptest::collection::vec(filter(), 1..12)).prop_map(|(c, f)| Step::AddFilters(c, f)),
        1 => (0..3_u64).prop_map(Step::Forget),
    ]
}

proptest! {
    /// Every subscriber learns of exactly the buffers that its filters match, each once.
    #[test]
    fn subscribers_learn_of_the_buffers_that_a_plain_list_has(steps in proptest::collection::vec(step(), 1..60)) {
        let mut table = Topics::default();
        let mut topics: BTreeMap<Bid, TopicName> = BTreeMap::new();
        let mut filters_of: BTreeMap<u64, BTreeSet<TopicFilter>> = BTreeMap::new();
        let mut told: BTreeSet<(u64, Bid)> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Add(name) => {
                    let bid = table.add(buffer(&name, 1), 99).unwrap();
                    topics.insert(bid, name.parse().unwrap());
                    for conn in table.subscribers(table.get(bid).unwrap()) {
                        prop_assert!(told.insert((conn, bid)));
                    }
                }
                Step::Remove(n) => {
                    let Some(bid) = topics.keys().nth(n % topics.len().max(1)).copied() else { continue };
                    prop_assert_eq!(table.remove(bid).map(|b| b.topic), topics.remove(&bid));
                    told.retain(|(_, b)| *b != bid);
                }
                Step::AddFilters(conn, filters) => {
                    let filters: Vec<TopicFilter> = filters.iter().map(|text| filter(text)).collect();
                    for bid in table.add_filters(conn, filters.clone(), limits(999)).unwrap() {
                        prop_assert!(told.insert((conn, bid)), "{} learns of {} twice", conn, bid);
                    }
                    filters_of.entry(conn).or_default().extend(filters);
                }
                Step::Forget(conn) => {
                    table.forget(conn);
                    filters_of.remove(&conn);
                    told.retain(|(c, _)| *c != conn);
                }
            }
            let meant = |conn: &u64, topic| match Space::of_log(topic) {
                Some(space) => filters_of[conn].iter().any(|filter| space.is_wanted_by(filter)),
                None => filters_of[conn].iter().any(|filter| filter.matches(topic)),
            };
            let expected: BTreeSet<(u64, Bid)> = filters_of
                .keys()
                .flat_map(|conn| topics.iter().map(move |(bid, topic)| (*conn, *bid, topic)))
                .filter(|(conn, _, topic)| meant(conn, topic))
                .map(|(conn, bid, _)| (conn, bid))
                .collect();
            prop_assert_eq!(&told, &expected);
            for conn in filters_of.keys() {
                let matched: BTreeSet<Bid> = table.matched(*conn).into_iter().map(|(bid, _)| bid).collect();
                let expected: BTreeSet<Bid> = expected.iter().filter(|(c, _)| c == conn).map(|(_, bid)| *bid).collect();
                prop_assert_eq!(matched, expected);
            }
        }
    }
}
