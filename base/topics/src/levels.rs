//! A table with topics or filters as keys. The topics that a filter matches, and the filters that match a topic, are found
//! without visiting other entries.
//!
//! The table is an ordered map. In a key, the smallest character, which no name has, replaces each slash. Therefore all entries
//! below a level are one range of keys, behind that level and before its siblings:
//!
//! ```text
//!   a      a·b    a·b·c    a·d    a!    b·x            · is U+0000, which sorts before '!'
//!   └──────── a/# ────────┘
//!          └── a/b/# ┘
//! ```
//!
//! A search follows a filter level by level: a name costs one lookup, `+` one lookup for each different level, and `#` is a range.
//! A topic is followed through filters in the same way: at each level its own name, `+` and `#` may match. The search visits only
//! prefixes that match so far. A tree would do the same, but needs a node for each level, and a name of 255 bytes can have 128
//! levels.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::{TopicFilter, TopicName};

/// Separates the levels of a key.
const BETWEEN: char = '\0';

/// Sorts behind all entries below a level, and before its next sibling.
const BEHIND: char = '\u{1}';

/// A level in a table of filters that no name and no filter has. This level stands for the level that a search names
/// ([`Levels::matching_own`]).
pub const OWN_LEVEL: &str = "\u{2}";

/// The table. See the module.
#[derive(Debug, Clone)]
pub struct Levels<T>(BTreeMap<Box<str>, T>);

impl<T> Default for Levels<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

fn key(name: &str) -> Box<str> {
    name.replace('/', "\0").into()
}

/// The followed part of a path, a prefix of a key. The root is not a level.
struct Path {
    text: String,
    depth: usize,
}

impl Path {
    fn root() -> Self {
        Self { text: String::new(), depth: 0 }
    }

    /// Goes down a level. Returns the argument of [`Path::pop`] to go up again.
    fn push(&mut self, level: &str) -> usize {
        let before = self.text.len();
        if self.depth > 0 {
            self.text.push(BETWEEN);
        }
        self.text.push_str(level);
        self.depth += 1;
        before
    }

    fn pop(&mut self, before: usize) {
        self.text.truncate(before);
        self.depth -= 1;
    }

    /// The prefix of the keys below.
    fn below(&self) -> String {
        if self.depth == 0 { String::new() } else { format!("{}{BETWEEN}", self.text) }
    }

    /// The smallest key behind this one and all keys below it.
    fn behind(&self) -> String {
        format!("{}{BEHIND}", self.text)
    }
}

impl<T> Levels<T> {
    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.get(&key(name))
    }

    /// The value of a name, for changes.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.0.get_mut(&key(name))
    }

    /// Sets the value of a name. Returns the former value.
    pub fn insert(&mut self, name: &str, value: T) -> Option<T> {
        self.0.insert(key(name), value)
    }

    /// Removes a name, and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<T> {
        self.0.remove(&key(name))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All values, in order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values()
    }

    /// The values behind a name, in order, level by level. The name need not be in the table.
    pub fn after(&self, name: Option<&str>) -> impl Iterator<Item = &T> {
        let from = name.map(key);
        let from = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.0.range::<str, _>((from, Bound::Unbounded)).map(|(_, value)| value)
    }

    /// The value of a name, inserted if there is none.
    pub fn entry(&mut self, name: &str) -> &mut T
    where
        T: Default,
    {
        self.0.entry(key(name)).or_default()
    }

    /// In a table of topics: visits the values that a filter matches, each once.
    pub fn matched_by<'t>(&'t self, filter: &TopicFilter, visit: &mut impl FnMut(&'t T)) {
        let levels: Vec<&str> = filter.levels().collect();
        self.follow_filter(&mut Path::root(), &levels, visit);
    }

    fn follow_filter<'t>(&'t self, path: &mut Path, filter: &[&str], visit: &mut impl FnMut(&'t T)) {
        match filter {
            [] => self.0.get(path.text.as_str()).into_iter().for_each(visit),
            ["#"] if path.depth == 0 => {
                // Without the names that begin with '$', which are one range.
                self.range("", Some("$")).chain(self.range("%", None)).for_each(|(_, value)| visit(value));
            }
            ["#"] => {
                self.range(&path.text, Some(&path.behind())).for_each(|(_, value)| visit(value));
            }
            ["+", rest @ ..] => {
                let below = path.below();
                let mut from = below.clone();
                while let Some(level) = self.level_from(&from, &below) {
                    let before = path.push(level);
                    from = path.behind();
                    if !(before == 0 && path.depth == 1 && level.starts_with('$')) {
                        self.follow_filter(path, rest, visit);
                    }
                    path.pop(before);
                }
            }
            [level, rest @ ..] => {
                let before = path.push(level);
                if self.is_there(path) {
                    self.follow_filter(path, rest, visit);
                }
                path.pop(before);
            }
        }
    }

    fn range(&self, from: &str, before: Option<&str>) -> impl Iterator<Item = (&str, &T)> + use<'_, T> {
        let range = (Bound::Included(from), before.map_or(Bound::Unbounded, Bound::Excluded));
        self.0.range::<str, _>(range).map(|(key, value)| (&**key, value))
    }

    /// The level after `below` in the first key at or behind `from`.
    fn level_from(&self, from: &str, below: &str) -> Option<&str> {
        let (key, _) = self.range(from, None).next()?;
        key.strip_prefix(below)?.split(BETWEEN).next()
    }

    /// Whether the table has this key or a key below it.
    fn is_there(&self, path: &Path) -> bool {
        let first = self.range(&path.text, None).next();
        let rest = first.and_then(|(key, _)| key.strip_prefix(path.text.as_str()));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(BETWEEN))
    }

    /// In a table of filters: visits the values that match a topic, each once, until `visit` returns true. Returns whether it did.
    pub fn matching<'t>(&'t self, topic: &TopicName, visit: &mut impl FnMut(&'t T) -> bool) -> bool {
        self.matching_own(topic, None, visit)
    }

    /// As [`Levels::matching`], where [`OWN_LEVEL`] in a filter matches the level `own`. Without `own` it matches nothing.
    pub fn matching_own<'t>(
        &'t self,
        topic: &TopicName,
        own: Option<&str>,
        visit: &mut impl FnMut(&'t T) -> bool,
    ) -> bool {
        let levels: Vec<&str> = topic.as_str().split('/').collect();
        let hidden = topic.as_str().starts_with('$');
        self.follow_topic(&mut Path::root(), &levels, hidden, own, visit)
    }

    fn follow_topic<'t>(
        &'t self,
        path: &mut Path,
        topic: &[&str],
        hidden: bool,
        own: Option<&str>,
        visit: &mut impl FnMut(&'t T) -> bool,
    ) -> bool {
        let wildcards = !(hidden && path.depth == 0);
        if wildcards {
            let before = path.push("#");
            let found = self.0.get(path.text.as_str());
            path.pop(before);
            if found.is_some_and(&mut *visit) {
                return true;
            }
        }
        let [level, rest @ ..] = topic else {
            return self.0.get(path.text.as_str()).is_some_and(visit);
        };
        let own_level = own.filter(|own| own == level).map(|_| OWN_LEVEL);
        for child in [Some(*level), wildcards.then_some("+"), own_level].into_iter().flatten() {
            let before = path.push(child);
            let enough = self.is_there(path) && self.follow_topic(path, rest, hidden, own, visit);
            path.pop(before);
            if enough {
                return true;
            }
        }
        false
    }

    /// In a table of filters: whether any filter matches a topic.
    pub fn any_matches(&self, topic: &TopicName) -> bool {
        self.matching(topic, &mut |_| true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Option<TopicName> {
        text.parse().ok()
    }

    fn filter(text: &str) -> Option<TopicFilter> {
        text.parse().ok()
    }

    /// Names and filters with few different levels, some of which are prefixes of others or sort near the separators.
    fn path(wildcards: bool) -> impl Strategy<Value = String> {
        let level = if wildcards { r"a|ab|\$|\$a|!|%||\+|\+|#" } else { r"a|ab|\$|\$a|!|%|" };
        proptest::collection::vec(level, 1..5).prop_map(|levels| levels.join("/"))
    }

    fn found<'t>(table: &'t Levels<String>, filter: &TopicFilter) -> Vec<&'t str> {
        let mut found = Vec::new();
        table.matched_by(filter, &mut |value| found.push(value.as_str()));
        found.sort_unstable();
        found
    }

    proptest! {
        #[test]
        fn finds_the_topics_that_a_filter_matches(
            names in proptest::collection::vec((path(false), any::<bool>()), 0..60),
            filters in proptest::collection::vec(path(true), 1..20),
        ) {
            let (mut table, mut model) = (Levels::default(), BTreeMap::new());
            for (text, there) in &names {
                let Some(topic) = name(text) else { continue };
                match there {
                    true => prop_assert_eq!(table.insert(text, text.clone()), model.insert(topic, text.clone())),
                    false => prop_assert_eq!(table.remove(text), model.remove(&topic)),
                }
            }
            prop_assert_eq!(table.len(), model.len());
            for filter in filters.iter().filter_map(|text| filter(text)) {
                let expected: Vec<&str> =
                    model.iter().filter(|(topic, _)| filter.matches(topic)).map(|(_, text)| text.as_str()).collect();
                prop_assert_eq!(found(&table, &filter), expected, "{}", filter);
            }
        }

        #[test]
        fn finds_the_filters_that_match_a_topic(
            filters in proptest::collection::vec((path(true), any::<bool>()), 0..60),
            names in proptest::collection::vec(path(false), 1..20),
        ) {
            let (mut table, mut model) = (Levels::default(), BTreeSet::new());
            for (filter, there) in filters.iter().filter_map(|(text, there)| Some((filter(text)?, there))) {
                match there {
                    true => {
                        table.insert(filter.as_str(), filter.clone());
                        model.insert(filter);
                    }
                    false => prop_assert_eq!(table.remove(filter.as_str()).is_some(), model.remove(&filter)),
                }
            }
            for topic in names.iter().filter_map(|text| name(text)) {
                let mut found = Vec::new();
                table.matching(&topic, &mut |filter| {
                    found.push(filter);
                    false
                });
                found.sort_unstable();
                let expected: Vec<&TopicFilter> = model.iter().filter(|filter| filter.matches(&topic)).collect();
                prop_assert_eq!(table.any_matches(&topic), !expected.is_empty());
                prop_assert_eq!(found, expected, "{}", topic);
            }
        }
    }

    #[test]
    fn ten_thousand_topics_and_many_filters() {
        let mut table = Levels::default();
        let mut topics = Vec::new();
        for n in 0..10_000 {
            let text = format!("site{}/room{}/{}", n % 10, n / 10 % 100, ["temp", "door", "co2"][n % 3]);
            let text = format!("{text}/{n}");
            table.insert(&text, text.clone());
            topics.push(name(&text).unwrap());
        }
        topics.sort_unstable();
        let mut asked = 0;
        for site in ["+", "site3", "site99"] {
            for room in ["+", "room7", "room"] {
                for kind in ["+/+", "temp/+", "+/4073", "#", "temp/#", "door"] {
                    let filter = filter(&format!("{site}/{room}/{kind}")).unwrap();
                    let expected: Vec<&str> =
                        topics.iter().filter(|topic| filter.matches(topic)).map(TopicName::as_str).collect();
                    assert_eq!(found(&table, &filter), expected, "{filter}");
                    asked += expected.len();
                }
            }
        }
        assert!(asked > 10_000);
        assert_eq!(found(&table, &TopicFilter::all()).len(), 10_000);
    }

    #[test]
    fn a_name_of_many_levels_and_filters_of_every_kind_for_it() {
        // 2^14 filters match its first fourteen levels: each is found, and none is looked for that is not there.
        let topic = name(&["a"; 128].join("/")).unwrap();
        let mut table = Levels::default();
        for bits in 0..1 << 14 {
            let levels: Vec<&str> = (0..14).map(|bit| if bits >> bit & 1 == 0 { "a" } else { "+" }).collect();
            table.insert(&format!("{}/#", levels.join("/")), bits);
        }
        let mut found = 0;
        table.matching(&topic, &mut |_| {
            found += 1;
            false
        });
        assert_eq!(found, 1 << 14);
    }
}
