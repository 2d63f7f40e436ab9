//! A sample of the groups of workers: how far each is, and whether it falls behind.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rbmq_wire::GroupStats;
use serde::Serialize;

use super::due::Taken;
use super::engine::Engine;
use crate::groups::GroupRow;

/// Lags are compared over twice this time.
const HALF: Duration = Duration::from_secs(30);

/// A lag that has grown by less is not told.
const GROWTH: u64 = 64 << 10;

/// How a group is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// The disk does not take acknowledgements, or does not give messages.
    Failing,
    /// Messages wait, and nobody works.
    NoWorkers,
    /// As many messages are pending as may be, and no more are read.
    Full,
    /// The lag has grown for a minute.
    Behind,
    Well,
}

/// A group in a sample.
#[derive(Debug, Clone, Serialize)]
pub(super) struct GroupEntry {
    #[serde(flatten)]
    pub(super) stats: GroupStats,
    pub(super) lag_bytes: u64,
    pub(super) unread_bytes: u64,
    /// Pending messages, and about so many that were not read. None: nobody knows yet how large messages are.
    pub(super) lag_messages: Option<u64>,
    pub(super) state: State,
    #[serde(skip)]
    trend: Trend,
}

/// The least lag of this half minute and of the two before.
#[derive(Debug, Clone, Copy)]
struct Trend {
    since: Instant,
    least: u64,
    last: Option<u64>,
    before: Option<u64>,
}

impl Trend {
    fn begin(now: Instant, lag: u64) -> Self {
        Self { since: now, least: lag, last: None, before: None }
    }

    fn goes_on(self, now: Instant, lag: u64) -> Self {
        let passed = now.saturating_duration_since(self.since);
        if passed >= 2 * HALF {
            // Nobody has looked for long.
            return Self::begin(now, lag);
        }
        if passed >= HALF {
            return Self { since: now, least: lag, last: Some(self.least), before: self.last };
        }
        Self { least: self.least.min(lag), ..self }
    }

    /// Whether the least lag has grown.
    fn grows(&self) -> bool {
        matches!((self.before, self.last), (Some(before), Some(last)) if last > before + GROWTH && self.least > before)
    }
}

/// The groups of a broker, by topic and name. `before` is the sample before.
pub(super) fn take(engine: &Engine, before: Option<&Vec<GroupEntry>>) -> Taken<Vec<GroupEntry>> {
    let begin = Instant::now();
    let old: HashMap<_, _> = before.into_iter().flatten().map(|entry| (key(&entry.stats), entry)).collect();
    let with_trend = |row: GroupRow| {
        let lag = row.stats.lag_bytes();
        let trend = match old.get(&key(&row.stats)) {
            Some(old) => old.trend.goes_on(begin, lag),
            None => Trend::begin(begin, lag),
        };
        entry(&row, trend)
    };
    let value = engine.watch.group_rows().into_iter().map(with_trend).collect();
    // The thread of the groups shares a lock with those who look.
    Taken { value, work: begin.elapsed() }
}

/// What names a group.
pub(super) fn key(stats: &GroupStats) -> (&str, &str) {
    (stats.topic.as_str(), stats.group.as_str())
}

fn entry(row: &GroupRow, trend: Trend) -> GroupEntry {
    let stats = row.stats.clone();
    let (lag_bytes, unread_bytes) = (stats.lag_bytes(), stats.unread_bytes());
    let state = match &stats {
        GroupStats { failing: true, .. } => State::Failing,
        GroupStats { workers: 0, .. } if lag_bytes > 0 => State::NoWorkers,
        GroupStats { full: true, .. } => State::Full,
        _ if trend.grows() => State::Behind,
        _ => State::Well,
    };
    GroupEntry { stats, lag_bytes, unread_bytes, lag_messages: row.lag_messages(), state, trend }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A group with so many workers, and a lag.
    pub(in super::super) fn group(name: &str, workers: u32, state: State) -> GroupEntry {
        let stats = GroupStats {
            topic: "t".parse().unwrap(),
            group: name.parse().unwrap(),
            workers,
            pending: 0,
            held: 0,
            floor: 0,
            next: 0,
            end: 100,
            delivered: 0,
            acked: 0,
            failed: 0,
            dead: 0,
            lost: 0,
            lost_bytes: 0,
            damaged_bytes: 0,
            ack_ms: 0,
            max_attempts: 0,
            dead_letter: String::new(),
            ordered: false,
            full: false,
            failing: false,
        };
        let trend = Trend::begin(Instant::now(), 100);
        GroupEntry { stats, lag_bytes: 100, unread_bytes: 100, lag_messages: None, state, trend }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lags at times in seconds; whether the last one has grown.
    fn grows(lags: impl IntoIterator<Item = (u64, u64)>) -> bool {
        let begin = Instant::now();
        let mut lags = lags.into_iter();
        let first = lags.next().unwrap();
        let trend = Trend::begin(begin + Duration::from_secs(first.0), first.1);
        let last = lags.fold(trend, |trend, (s, lag)| trend.goes_on(begin + Duration::from_secs(s), lag));
        last.grows()
    }

    #[test]
    fn a_group_falls_behind_whose_least_lag_grows() {
        let mib = |n: u64| n << 20;
        assert!(grows((0..90).map(|s| (s, mib(s)))));
        assert!(!grows((0..50).map(|s| (s, mib(s)))), "it is too early to tell");
        assert!(!grows((0..900).map(|s| (s, mib(s % 20)))), "it catches up again and again");
        assert!(!grows((0..900).map(|s| (s, mib(1_000 - s)))), "it catches up");
        assert!(!grows((0..900).map(|s| (s, mib(7)))), "it stays");
        assert!(!grows((0..10).map(|n| (n * 100, mib(n)))), "nobody has looked in between");
    }
}
