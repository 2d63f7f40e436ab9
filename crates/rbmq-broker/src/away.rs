//! Named subscribers that are away: which buffers appeared that they would have been told of.
//!
//! ```text
//!   number of the buffer   … 7   8   9   10   11 …            "attic" left at 8, wanting y/# and z
//!                              y/a  b   y/c  z                 and is back: y/c and z are new to it, y/a is not
//! ```
//!
//! The framework keeps a place in each buffer that such a subscriber had. In those that appear meanwhile nobody has one,
//! so what is kept here is up to which buffer it was told, for each of its filters, and which of those that it was told of
//! as new it had not subscribed to yet. That lasts as long as its hold, and is bounded for all of them together.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use rbmq_wire::Levels;
use rbmq_wire::TopicFilter;
use rocketbufs::Bid;
use rocketnet::LogLimiter;
use tracing::warn;

use super::session::display_name;
use super::topics::Buffer;

/// Filters and buffers that are kept of all who are away, and their names: about 20 MiB at the longest names. Whose hold
/// is over first is forgotten first.
const MAX_KEPT: usize = 1 << 16;

/// What is kept of a name.
#[derive(Debug)]
struct Left {
    until: Instant,
    /// The number of the last buffer that was told, by filter.
    since: Levels<u64>,
    /// Buffers that were told as new, and were not subscribed to.
    untaken: BTreeSet<Bid>,
}

impl Left {
    fn cost(&self) -> usize {
        1 + self.since.len() + self.untaken.len()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Away {
    names: HashMap<String, Left>,
    ends: BTreeSet<(Instant, String)>,
    kept: usize,
    max_kept: usize,
    /// Tells who was forgotten.
    forgotten: LogLimiter,
    /// The connection that said a name last: who comes under that name may be the same, and the connection only look up.
    here: HashMap<String, u64>,
}

impl Default for Away {
    fn default() -> Self {
        Self {
            names: HashMap::new(),
            ends: BTreeSet::new(),
            kept: 0,
            max_kept: MAX_KEPT,
            forgotten: LogLimiter::default(),
            here: HashMap::new(),
        }
    }
}

impl Away {
    /// A connection has this name now. Returns the one that had it, if there is one still.
    pub(super) fn here(&mut self, name: &str, conn: u64) -> Option<u64> {
        self.here.insert(name.to_owned(), conn).filter(|before| *before != conn)
    }

    /// A connection of this name is gone. Whether no other one has the name by now.
    pub(super) fn gone(&mut self, name: &str, conn: u64) -> bool {
        let last = self.here.get(name) == Some(&conn);
        if last {
            self.here.remove(name);
        }
        last
    }

    /// A subscriber left that was told of all buffers up to number `told`, wanted these filters, and had not taken these
    /// buffers of those.
    pub(super) fn leave<'f>(
        &mut self,
        (name, until): (&str, Instant),
        (filters, told): (impl Iterator<Item = &'f TopicFilter>, u64),
        untaken: BTreeSet<Bid>,
    ) {
        let mut left = self.take(name).unwrap_or_else(|| Left {
            until,
            since: Levels::default(),
            untaken: BTreeSet::new(),
        });
        left.until = left.until.max(until);
        left.untaken.extend(untaken);
        for filter in filters {
            left.since.insert(filter.as_str(), told);
        }
        self.put(name, left);
        while self.kept > self.max_kept
            && let Some((_, first)) = self.ends.first().cloned()
        {
            if let Some(more) = self.forgotten.allow(Instant::now()) {
                warn!(
                    more,
                    "subscriber {} is away, as are so many others that topics which appear meanwhile will not be new to it",
                    display_name(&first)
                );
            }
            self.take(&first);
        }
    }

    /// Whether a buffer is new to a subscriber that has come back under this name.
    pub(super) fn missed(&self, name: &str, bid: Bid, buffer: &Buffer) -> bool {
        self.names.get(name).is_some_and(|left| {
            left.untaken.contains(&bid)
                || left.since.matching(&buffer.topic, &mut |told| buffer.number > *told)
        })
    }

    /// A subscriber of this name was told of these buffers, which are all that these filters match.
    pub(super) fn back(&mut self, name: &str, filters: &[TopicFilter], told: &[Bid]) {
        let Some(mut left) = self.take(name) else { return };
        for filter in filters {
            left.since.remove(filter.as_str());
        }
        for bid in told {
            left.untaken.remove(bid);
        }
        if left.cost() > 1 {
            self.put(name, left);
        }
    }

    /// Forgets those whose hold is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((until, name)) = self.ends.first()
            && *until <= now
        {
            let name = name.clone();
            self.take(&name);
        }
    }

    /// When the next hold is over.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.ends.first().map(|(until, _)| *until)
    }

    fn take(&mut self, name: &str) -> Option<Left> {
        let left = self.names.remove(name)?;
        self.ends.remove(&(left.until, name.to_owned()));
        self.kept -= left.cost();
        Some(left)
    }

    fn put(&mut self, name: &str, left: Left) {
        self.kept += left.cost();
        self.ends.insert((left.until, name.to_owned()));
        self.names.insert(name.to_owned(), left);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::topics::tests::buffer;
    use super::*;

    fn filters(texts: &[&str]) -> Vec<TopicFilter> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn numbered(topic: &str, number: u64) -> Buffer {
        Buffer { number, ..buffer(topic, 1) }
    }

    #[test]
    fn what_appeared_since_it_left_is_new_until_it_is_told_or_the_hold_is_over() {
        let (mut away, now) = (Away::default(), Instant::now());
        let until = now + Duration::from_secs(1);
        away.leave(("n", until), (filters(&["y/#", "z"]).iter(), 8), BTreeSet::from([3]));
        let missed = |away: &Away, topic, number| away.missed("n", 1, &numbered(topic, number));
        assert!(!missed(&away, "y/a", 8) && missed(&away, "y/a", 9) && missed(&away, "z", 9));
        assert!(!missed(&away, "x", 9) && !away.missed("m", 1, &numbered("y/a", 9)));
        assert!(away.missed("n", 3, &numbered("y/a", 2)), "it had not taken it");
        away.back("n", &filters(&["y/#"]), &[3]);
        assert!(!missed(&away, "y/a", 9) && missed(&away, "z", 9));
        assert!(!away.missed("n", 3, &numbered("y/a", 2)));
        assert_eq!((away.next_due(), away.kept), (Some(until), 2));
        away.expire(now);
        assert!(missed(&away, "z", 9));
        away.expire(until);
        assert!(!missed(&away, "z", 9));
        assert_eq!((away.next_due(), away.kept, away.names.len()), (None, 0, 0));
    }

    #[test]
    fn who_leaves_again_counts_from_then_on() {
        let (mut away, now) = (Away::default(), Instant::now());
        away.leave(("n", now), (filters(&["a", "b"]).iter(), 5), BTreeSet::new());
        away.leave(("n", now + Duration::from_secs(1)), (filters(&["b"]).iter(), 7), BTreeSet::new());
        assert!(away.missed("n", 1, &numbered("a", 6)) && !away.missed("n", 1, &numbered("b", 6)));
        away.expire(now);
        assert_eq!(away.kept, 3);
        away.back("n", &filters(&["a", "b"]), &[]);
        assert_eq!((away.next_due(), away.kept, away.names.len()), (None, 0, 0));
    }

    #[test]
    fn what_is_kept_has_a_limit_and_the_first_to_end_goes_first() {
        let (mut away, now) = (Away { max_kept: 5, ..Away::default() }, Instant::now());
        for (name, secs) in [("a", 2), ("b", 1), ("c", 3)] {
            let until = now + Duration::from_secs(secs);
            away.leave((name, until), (filters(&["x"]).iter(), 1), BTreeSet::new());
        }
        assert_eq!(away.kept, 4);
        let missed = ["a", "b", "c"].map(|name| away.missed(name, 1, &numbered("x", 2)));
        assert_eq!(missed, [true, false, true]);
    }

    #[test]
    fn a_name_is_that_of_who_said_it_last() {
        let mut away = Away::default();
        assert_eq!([away.here("n", 1), away.here("n", 1), away.here("n", 2)], [None, None, Some(1)]);
        assert!(!away.gone("n", 1));
        assert_eq!(away.here("n", 3), Some(2));
        assert!(away.gone("n", 3));
        assert!(away.here.is_empty());
    }
}
