//! The table of topics. Pure functions from two samples to lines of text.

use std::collections::HashMap;
use std::time::Duration;

use rbmq::{BlockReason, TopicStats};
use serde::Serialize;

use super::text;
use crate::bytes;

/// The order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sort {
    /// Bytes per second in and out, the highest first
    Rate,
    /// The lag of the slowest subscriber, the largest first
    Lag,
    /// By name
    Name,
}

/// A topic, with its rates since the former sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Line {
    /// The member of a cluster that says so; empty if there is one broker.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) member: String,
    #[serde(flatten)]
    pub(crate) stats: TopicStats,
    /// Bytes per second from publishers; none if the former sample did not have the topic.
    pub(crate) received_per_second: Option<f64>,
    /// Bytes per second to subscribers.
    pub(crate) delivered_per_second: Option<f64>,
}

/// The former sample, by topic.
pub(crate) type Before = HashMap<String, TopicStats>;

/// Returns a sample as the former sample of the next one.
pub(crate) fn before(topics: &[TopicStats]) -> Before {
    topics.iter().map(|topic| (topic.topic.to_string(), topic.clone())).collect()
}

/// Returns the lines of a sample, with rates since the former one.
pub(crate) fn lines(topics: Vec<TopicStats>, before: &Before, elapsed: Duration, sort: Sort) -> Vec<Line> {
    let mut lines: Vec<Line> = topics
        .into_iter()
        .map(|stats| {
            let old = before.get(stats.topic.as_str());
            let (received, delivered) = (old.map(|o| o.received_bytes), old.map(|o| o.delivered_bytes));
            Line {
                member: String::new(),
                received_per_second: text::rate(stats.received_bytes, received, elapsed),
                delivered_per_second: text::rate(stats.delivered_bytes, delivered, elapsed),
                stats,
            }
        })
        .collect();
    self::sort(&mut lines, sort);
    lines
}

/// Sorts lines that are sorted by name already, which decides between equal values.
pub(super) fn sort(lines: &mut [Line], sort: Sort) {
    match sort {
        Sort::Name => {}
        Sort::Lag => lines.sort_by_key(|line| std::cmp::Reverse(line.stats.max_lag_bytes)),
        Sort::Rate => lines.sort_by(|a, b| moved(b).total_cmp(&moved(a))),
    }
}

fn moved(line: &Line) -> f64 {
    line.received_per_second.unwrap_or(0.0) + line.delivered_per_second.unwrap_or(0.0)
}

/// The titles of the columns. `LEAST` has their minimum widths; only the first and the last column shrink that far.
const HEADS: [&str; COLUMNS] =
    ["TOPIC", "MEMBER", "PUBS", "SUBS", "IN/S", "OUT/S", "LAG", "RING", "LOST", "POLICY", "SLOWEST"];
const LEAST: [usize; COLUMNS] = [12, 6, 4, 6, 8, 8, 8, 6, 8, 10, 8];
const COLUMNS: usize = 11;
const TOPIC: usize = 0;
/// Of a cluster alone.
const MEMBER: usize = 1;
const POLICY: usize = 9;
const SLOWEST: usize = 10;
/// The columns that a narrow terminal omits, in this order. The lag stays the longest.
const GIVEN_UP: [usize; COLUMNS - 1] = [POLICY, SLOWEST, 2, 5, 4, 3, 8, 7, MEMBER, 6];

type Row = [String; COLUMNS];

/// The width of each column; none for an omitted column.
struct Widths([Option<usize>; COLUMNS]);

impl Widths {
    fn new(rows: &[Row], width: usize) -> Self {
        let longest = |column: usize| {
            rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(LEAST[column])
        };
        // A column of numbers is as wide as its longest number, since a number that is cut is another number.
        let mut widths: [Option<usize>; COLUMNS] = std::array::from_fn(|column| match column {
            TOPIC | SLOWEST => Some(LEAST[column]),
            _ => Some(longest(column)),
        });
        // If no subscriber is slow, the topic names use the space of the last columns.
        let is_empty = |column: usize| rows.iter().skip(1).all(|row| row[column].is_empty());
        if is_empty(MEMBER) {
            widths[MEMBER] = None;
        }
        let taken = |widths: &[Option<usize>; COLUMNS]| {
            let shown = widths.iter().flatten();
            shown.clone().sum::<usize>() + shown.count().saturating_sub(1)
        };
        for column in [SLOWEST, POLICY].into_iter().filter(|column| is_empty(*column)) {
            let needed = taken(&widths) - LEAST[TOPIC] + longest(TOPIC);
            widths[column] = widths[column].filter(|_| needed <= width);
        }
        let mut given_up = GIVEN_UP.into_iter();
        while taken(&widths) > width
            && let Some(column) = given_up.next()
        {
            widths[column] = None;
        }
        let left = width.saturating_sub(taken(&widths));
        let more = |column: usize| longest(column).saturating_sub(widths[column].unwrap_or(usize::MAX));
        let (name, slowest) = (more(TOPIC), if is_empty(SLOWEST) { 0 } else { more(SLOWEST) });
        // Each of the two columns gets half of the remaining space, or more if the other one needs less.
        let name = name.min((left / 2).max(left.saturating_sub(slowest)));
        widths[TOPIC] = widths[TOPIC].map(|least| least + name);
        widths[SLOWEST] = widths[SLOWEST].map(|least| least + slowest.min(left - name));
        Self(widths)
    }

    fn line(&self, row: &Row, width: usize) -> String {
        let mut line = String::new();
        for (column, (cell, shown)) in row.iter().zip(self.0).enumerate() {
            let Some(shown) = shown else { continue };
            let space = if column == TOPIC { "" } else { " " };
            let cell = match column {
                TOPIC | MEMBER | POLICY | SLOWEST => format!("{space}{:<shown$}", text::cut(cell, shown)),
                _ => format!("{space}{cell:>shown$}"),
            };
            line.push_str(&cell);
        }
        text::cut(line.trim_end(), width)
    }
}

/// The table, in lines of at most `width` characters, with at most `most` topics. The others are summed.
pub(crate) fn table(lines: &[Line], width: usize, most: usize) -> Vec<String> {
    table_from(lines, width, 0, most)
}

/// The same without the first `from` topics, which are summed with the others.
pub(super) fn table_from(lines: &[Line], width: usize, from: usize, most: usize) -> Vec<String> {
    let mut rows = vec![HEADS.map(str::to_owned)];
    let (above, below) = lines.split_at(from.min(lines.len()));
    let (shown, below) = below.split_at(most.min(below.len()));
    rows.extend(shown.iter().map(topic_row));
    let rest: Vec<&Line> = above.iter().chain(below).collect();
    if !rest.is_empty() {
        let name = match above.len() {
            0 => format!("and {} more", rest.len()),
            above => format!("{above} above, {} below", below.len()),
        };
        rows.push(rest_row(name, &rest));
    }
    let widths = Widths::new(&rows, width);
    rows.iter().map(|row| widths.line(row, width)).collect()
}

fn topic_row(line: &Line) -> Row {
    let stats = &line.stats;
    let slowest = stats.slowest.as_ref();
    let ring = slowest.map_or(String::new(), |s| text::percent(stats.max_lag_bytes, s.ring_bytes));
    let policy = slowest.map_or_else(String::new, |s| policy(s.policy));
    let slowest_cell = slowest_cell(stats);
    let offline = if stats.offline > 0 { format!("+{}", stats.offline) } else { String::new() };
    let ended = if stats.publishers == 0 && stats.ended > 0 { "end" } else { "" };
    [
        name(stats),
        text::name(&line.member, usize::MAX),
        if ended.is_empty() { stats.publishers.to_string() } else { ended.to_owned() },
        format!("{}{offline}", stats.subscribers),
        text::bytes_or_dash(line.received_per_second),
        text::bytes_or_dash(line.delivered_per_second),
        bytes::show(stats.max_lag_bytes as f64),
        ring,
        bytes::show(stats.dropped_bytes as f64),
        policy,
        slowest_cell,
    ]
}

/// The cell of the column `SLOWEST`: the slowest subscriber, or the reason why the publisher waits.
fn slowest_cell(stats: &TopicStats) -> String {
    let reason = stats.blocked_by.map(|reason| match reason {
        BlockReason::MergeTableFull => "the full merge table blocks the publishers",
        BlockReason::Disk => "the disk blocks the publishers",
        _ => "min_subscribers blocks the publisher",
    });
    let Some(slowest) = &stats.slowest else { return reason.unwrap_or_default().into() };
    let name = text::name(&slowest.name, usize::MAX);
    match (slowest.blocks_publisher, slowest.offline, reason) {
        (true, true, _) => format!("{name}: offline, blocks the publisher"),
        (true, false, _) => format!("{name}: blocks the publisher, {}", text::time(slowest.idle_ms)),
        (false, _, Some(reason)) => reason.into(),
        (false, true, None) => format!("{name}: offline"),
        (false, false, None) => name,
    }
}

fn rest_row(name: String, rest: &[&Line]) -> Row {
    let sum =
        |of: fn(&TopicStats) -> u64| rest.iter().map(|line| of(&line.stats)).fold(0, u64::saturating_add);
    let rates = |of: fn(&Line) -> Option<f64>| rest.iter().filter_map(|line| of(line)).sum::<f64>();
    let lag = rest.iter().map(|line| line.stats.max_lag_bytes).max().unwrap_or(0);
    [
        name,
        String::new(),
        sum(|s| s.publishers.into()).to_string(),
        sum(|s| s.subscribers.into()).to_string(),
        bytes::show(rates(|line| line.received_per_second)),
        bytes::show(rates(|line| line.delivered_per_second)),
        bytes::show(lag as f64),
        String::new(),
        bytes::show(sum(|s| s.dropped_bytes) as f64),
        String::new(),
        String::new(),
    ]
}

/// The plain list of topics, for programs too: nothing is cut.
pub(crate) fn listing(topics: &[TopicStats]) -> Vec<String> {
    let width = topics.iter().map(|topic| name(topic).chars().count()).max().unwrap_or(0).max(5);
    let mut lines =
        vec![format!("{:<width$} {:>5} {:>5} {:>12} BOUNDARY", "TOPIC", "PUBS", "SUBS", "RING BYTES")];
    lines.extend(topics.iter().map(|topic| {
        // Several buffers have no common position.
        let boundary = topic.boundary.map_or_else(|| "-".to_owned(), |boundary| boundary.to_string());
        format!(
            "{:<width$} {:>5} {:>5} {:>12} {boundary}",
            name(topic),
            topic.publishers,
            topic.subscribers,
            topic.ring_bytes
        )
    }));
    lines
}

fn name(topic: &TopicStats) -> String {
    text::name(topic.topic.as_str(), usize::MAX)
}

/// The name of a policy, as in the configuration.
pub(crate) fn policy(policy: rocketbufs::Policy) -> String {
    format!("{policy:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use rbmq::SlowestSubscriber;
    use rocketbufs::Policy;

    use super::*;

    fn topic(name: &str, received: u64, lag: u64) -> TopicStats {
        let mut stats = TopicStats::new(name.parse().unwrap());
        (stats.publishers, stats.subscribers, stats.ring_bytes) = (1, 2, 65536);
        (stats.received_bytes, stats.delivered_bytes) = (received, 2 * received);
        stats.max_lag_bytes = lag;
        stats
    }

    fn sample() -> Vec<Line> {
        let mut slow = topic("sensors/kitchen", 3_000_000, 40_000);
        let slowest = SlowestSubscriber {
            name: "dash".into(),
            blocks_publisher: true,
            idle_ms: 3200,
            ..SlowestSubscriber::default()
        };
        slow.slowest = Some(SlowestSubscriber { ring_bytes: 65536, ..slowest });
        let mut lossy = topic("sensors/attic", 1_000_000, 12_000);
        lossy.slowest = Some(SlowestSubscriber {
            name: "log\x1b".into(),
            policy: Policy::Drop,
            ring_bytes: 65536,
            ..SlowestSubscriber::default()
        });
        lossy.dropped_bytes = 7_000_000;
        let mut away = topic("away", 500, 500);
        away.offline = 1;
        away.slowest = Some(SlowestSubscriber {
            name: "attic".into(),
            offline: true,
            ring_bytes: 65536,
            ..SlowestSubscriber::default()
        });
        let mut ended = topic("ended", 10, 0);
        (ended.publishers, ended.ended) = (0, 1);
        let old = [
            topic("sensors/kitchen", 1_000_000, 0),
            topic("sensors/attic", 1_000_000, 0),
            topic("away", 0, 0),
        ];
        lines(vec![away, ended, lossy, slow], &before(&old), Duration::from_secs(2), Sort::Rate)
    }

    #[test]
    fn topics_outside_of_the_window_are_summed() {
        let lines = sample();
        let rows = table_from(&lines, 120, 1, 1);
        assert_eq!(rows.len(), 3);
        assert!(rows[2].starts_with(&format!("1 above, {} below", lines.len() - 2)), "{rows:?}");
        assert_eq!(table_from(&lines, 120, 0, 100), table(&lines, 120, 100));
        assert!(table_from(&lines, 120, 100, 100)[1].contains("above, 0 below"));
    }

    #[test]
    fn a_wide_table() {
        let expected = "\
TOPIC           PUBS   SUBS     IN/S    OUT/S      LAG   RING     LOST POLICY     SLOWEST
sensors/kitchen    1      2  1.00 MB  2.00 MB  40.0 kB   61 %      0 B block      dash: blocks the publisher, 3.2 s
away               1    2+1    250 B    500 B    500 B    0 %      0 B block      attic: offline
ended            end      2        -        -      0 B             0 B
sensors/attic      1      2      0 B      0 B  12.0 kB   18 %  7.00 MB drop       log\\u{1b}";
        assert_eq!(table(&sample(), 120, 100).join("\n"), expected);
    }

    #[test]
    fn lines_of_a_cluster_say_the_member() {
        let of = |member: &str, line: Line| Line { member: member.into(), ..line };
        let lines: Vec<Line> =
            sample().into_iter().zip(["m1", "m2\x1b", "m1", "m3"]).map(|(line, id)| of(id, line)).collect();
        let rows = table(&lines, 120, 2);
        assert!(rows[0].starts_with("TOPIC           MEMBER   PUBS   SUBS"), "{rows:?}");
        assert!(rows[1].starts_with("sensors/kitchen m1          1      2"), "{rows:?}");
        assert!(rows[2].starts_with("away            m2\\u{1b}    1    2+1"), "{rows:?}");
        assert!(rows[3].starts_with("and 2 more "), "{rows:?}");
        for width in 0..200 {
            assert!(table(&lines, width, 9).iter().all(|line| line.chars().count() <= width), "{width}");
        }
    }

    #[test]
    fn a_narrow_table_omits_columns_and_cuts_names() {
        let expected = "\
TOPIC          PUBS   SUBS     IN/S    OUT/S      LAG   RING     LOST SLOWEST
sensors/kitch…    1      2  1.00 MB  2.00 MB  40.0 kB   61 %      0 B dash: blo…
and 3 more        2      6    250 B    500 B  12.0 kB         7.00 MB";
        assert_eq!(table(&sample(), 80, 1).join("\n"), expected);
        for width in 0..200 {
            assert!(table(&sample(), width, 9).iter().all(|line| line.chars().count() <= width), "{width}");
        }
        assert_eq!(table(&[], 30, 9), ["TOPIC             LAG   RING"]);
    }

    #[test]
    fn numbers_are_never_cut_and_names_use_the_free_space() {
        let mut long = topic("sensors/kitchen/window", 195, 195);
        long.subscribers = 1_234_567;
        let lines = lines(vec![long], &Before::new(), Duration::from_secs(1), Sort::Name);
        let at = |width| table(&lines, width, 9)[1].clone();
        // If no subscriber is slow, the name uses the space of the column SLOWEST.
        assert_eq!(at(80), "sensors/kitchen/window    1 1234567        -        -    195 B             0 B");
        assert_eq!(at(40), "sensors/kitche…    195 B             0 B");
        assert!(at(usize::MAX).starts_with("sensors/kitchen/window    1 1234567 "));
        for width in 21..200 {
            let cells: Vec<String> = at(width).split_whitespace().skip(1).map(str::to_owned).collect();
            let whole = ["1", "1234567", "-", "195", "0", "B"];
            assert!(cells.iter().all(|cell| whole.contains(&cell.as_str())), "{width}: {cells:?}");
        }
    }

    #[test]
    fn sorts() {
        let names = |sort| {
            let read = sample().into_iter().map(|line| line.stats);
            let mut read: Vec<_> = read.collect();
            read.sort_by(|a, b| a.topic.cmp(&b.topic));
            let sorted = lines(read, &Before::new(), Duration::from_secs(1), sort);
            sorted.into_iter().map(|line| line.stats.topic.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(Sort::Name), ["away", "ended", "sensors/attic", "sensors/kitchen"]);
        assert_eq!(names(Sort::Lag), ["sensors/kitchen", "sensors/attic", "away", "ended"]);
        // Without a former sample there are no rates.
        assert_eq!(names(Sort::Rate), ["away", "ended", "sensors/attic", "sensors/kitchen"]);
    }
}
