//! The results of `rbmq-bench libraries` as tables and plots.

use benchkit::{
    named::Named,
    output::human,
    plot::Chart,
    stats,
    table::{self, Reps, Table, distinct},
};

use crate::{
    library_rows::{Kind, Library, Row},
    report::Figures,
};

/// The message size whose rate the overview also shows for many subscribers.
const SIZE_OF_MANY: u32 = 1024;

/// The overview, and a line for each point.
pub fn tables(rows: &[Row]) -> String {
    format!("{}\n{}", overview(rows), details(rows))
}

/// A line for each library: messages per second to each subscriber, round trips, and processor time.
pub fn overview(rows: &[Row]) -> String {
    let full = || rows.iter().filter(|row| row.load == Kind::Full);
    let few = full().map(|row| row.subscribers).min().unwrap_or(1);
    let many = full().map(|row| row.subscribers).max().filter(|many| *many > few);
    let libraries = table::points(rows, |row| row.rep, |one, other| one.library == other.library);
    let mut table = Table::of(&libraries).left("", |own| own.first().library.title());
    for size in distinct(full().filter(|row| row.subscribers == few).map(|row| row.size_bytes)) {
        table = table.right(size_name(size), move |own| rate(own, size, few));
    }
    if let Some(many) = many.filter(|_| full().any(|row| row.size_bytes == SIZE_OF_MANY)) {
        let title = format!("{}, {many} subscribers", size_name(SIZE_OF_MANY));
        table = table.right(title, move |own| rate(own, SIZE_OF_MANY, many));
    }
    if rows.iter().any(|row| row.load == Kind::Trips) {
        table = table.right("round trip, p50 / p99", |own| {
            let us = [own.median(|row| row.p50_us), own.median(|row| row.p99_us)];
            if let [Some(p50), Some(p99)] = us { format!("{p50:.0} / {p99:.0} us") } else { String::new() }
        });
    }
    if rows.iter().any(|row| row.load == Kind::Paced) {
        let paced = |row: &Row| (row.load == Kind::Paced).then(|| row.cpu_us());
        table = table.figure("processor time per message", paced, |us| format!("{us:.1} us"));
    }
    table.text()
}

fn size_name(bytes: u32) -> String {
    if bytes >= 1024 && bytes.is_multiple_of(1024) {
        format!("{} KiB", bytes / 1024)
    } else {
        format!("{bytes} B")
    }
}

fn rate(own: &Reps<'_, Row>, size: u32, subscribers: u32) -> String {
    let is = |row: &&&Row| row.load == Kind::Full && (row.size_bytes, row.subscribers) == (size, subscribers);
    let same: Vec<&Row> = own.rows().iter().filter(is).copied().collect();
    let Some(rate) = stats::median(same.iter().map(|row| row.to_each())) else { return String::new() };
    let dropped = dropped(&same);
    if dropped.is_empty() { human(rate) } else { format!("{} ({dropped} dropped)", human(rate)) }
}

/// The share of the messages that were dropped; nothing where none was.
fn dropped(rows: &[&Row]) -> String {
    let dropped: u64 = rows.iter().map(|row| row.dropped).sum();
    let received: u64 = rows.iter().map(|row| row.received).sum();
    match dropped {
        0 => String::new(),
        _ => format!("{:.1} %", dropped as f64 * 100.0 / (dropped + received) as f64),
    }
}

/// A line for each point: medians over the repetitions with their 95 % intervals.
fn details(rows: &[Row]) -> String {
    let same = |one: &Row, other: &Row| one.library == other.library && one.same_load(other);
    let mut points = table::points(rows, |row| row.rep, same);
    points.sort_by_key(|point| {
        let row = point.first();
        (row.load as u8, row.subscribers, row.size_bytes)
    });
    // Of round trips only times are measured.
    let cost = |of: fn(&Figures) -> f64| move |row: &Row| (row.load != Kind::Trips).then(|| of(&row.figures));
    Table::of(&points)
        .left("load", |point| match point.first().load {
            Kind::Full => "full",
            Kind::Paced => "paced",
            Kind::Trips => "round trips",
        })
        .right("size", |point| point.first().size_bytes)
        .right("subs", |point| point.first().subscribers)
        .left("library", |point| point.first().library.name())
        .interval("msg/s to each", Row::to_each, human)
        .median("MB/s to each", 1, |row| row.to_each() * f64::from(row.size_bytes) / 1e6)
        .right("rbmq is", |point| times(&points, point))
        .median("p50 us", 0, |row| row.p50_us)
        .median("p99 us", 0, |row| row.p99_us)
        .median("publisher us", 2, cost(|of| of.publisher_cpu_s_per_million))
        .median("server us", 2, cost(|of| of.broker_cpu_s_per_million))
        .median("subscriber us", 2, cost(|of| of.subscriber_cpu_s_per_million))
        .median("server MiB", 2, cost(|of| of.broker_rss_bytes as f64 / f64::from(1 << 20)))
        .right("dropped", |point| dropped(point.rows()))
        .sum("cut off", |row| row.cut_off)
        .most("others", |row| row.figures.other_cores)
        .text()
}

/// How many times this library's rate RBMQ's is, which was measured in turn with it.
fn times(points: &[Reps<'_, Row>], point: &Reps<'_, Row>) -> String {
    let theirs = point.first();
    let is_ours = |row: &Row| row.library == Library::Rbmq && row.same_load(theirs);
    let ours = points.iter().find(|other| is_ours(other.first()));
    let ours = ours.filter(|_| theirs.library != Library::Rbmq && theirs.load == Kind::Full);
    ours.and_then(|ours| ours.times(point, Row::to_each))
        .map_or_else(String::new, |times| format!("{times:.1}×"))
}

/// Messages, bytes and processor time over sizes, for each number of subscribers.
pub fn plots(rows: &[Row]) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    let full: Vec<Row> = rows.iter().filter(|row| row.load == Kind::Full).cloned().collect();
    for subscribers in distinct(full.iter().map(|row| row.subscribers)) {
        let some: Vec<Row> = full.iter().filter(|row| row.subscribers == subscribers).cloned().collect();
        let which =
            if subscribers == 1 { "1 subscriber".to_owned() } else { format!("each of {subscribers}") };
        let chart = |title: &str, unit: &str, figure: fn(&Row) -> f64| {
            Chart::new(&format!("{title}, {which}"), "payload bytes", unit)
                .sizes()
                .log_y()
                .points(&some, |row| row.library.name(), |row| f64::from(row.size_bytes), figure)
                .svg()
        };
        let messages = chart("Messages received per second", "messages/s", Row::to_each);
        plots.push((format!("messages-{subscribers}"), messages));
        let goodput = |row: &Row| row.to_each() * f64::from(row.size_bytes) / 1e6;
        plots.push((format!("goodput-{subscribers}"), chart("Goodput", "MB/s", goodput)));
        let cpu = chart("Processor time per message at full rate, all ends and server", "us", Row::cpu_us);
        plots.push((format!("cpu-{subscribers}"), cpu));
    }
    plots
}

#[cfg(test)]
mod tests {
    use benchkit::netns::Congestion;

    use super::*;
    use crate::{report::Setting, systems::System};

    fn row(library: Library, rep: u32, delivered_per_s: f64) -> Row {
        Row {
            library,
            library_version: "1.0".to_owned(),
            load: Kind::Full,
            held_back: library != Library::Rbmq,
            size_bytes: 1024,
            subscribers: 1,
            rep,
            asked_per_s: 0.0,
            figures: Figures {
                delivered_per_s,
                publisher_cpu_s_per_million: 1.0,
                subscriber_cpu_s_per_million: 2.0,
                broker_cpu_s_per_million: 3.0,
                ..Figures::default()
            },
            dropped: 0,
            received: 300,
            cut_off: 0,
            p50_us: None,
            p99_us: None,
            max_us: None,
            setting: Setting::new(System::Rbmq, "1", &Congestion::Namespace("cubic".to_owned())),
        }
    }

    #[test]
    fn the_overview_has_a_line_for_each_library() {
        let four = Row { subscribers: 4, dropped: 100, ..row(Library::AsyncNats, 0, 8e6) };
        let trip =
            Row { load: Kind::Trips, p50_us: Some(90.4), p99_us: Some(200.0), ..row(Library::Rbmq, 0, 0.0) };
        let paced = Row { load: Kind::Paced, ..row(Library::Rbmq, 0, 0.0) };
        let rows = [row(Library::Rbmq, 0, 4e6), row(Library::AsyncNats, 0, 1e6), four, trip, paced];
        let overview = overview(&rows);
        let lines: Vec<&str> = overview.lines().collect();
        assert_eq!(
            lines[0],
            "| | 1 KiB | 1 KiB, 4 subscribers | round trip, p50 / p99 | processor time per message |"
        );
        assert_eq!(lines[2], "| `rbmq` | 4.00 M |  | 90 / 200 us | 6.0 us |");
        assert_eq!(lines[3], "| `async-nats` (NATS) | 1.00 M | 2.00 M (25.0 % dropped) |  |  |");
    }

    #[test]
    fn a_line_has_the_ratio_of_pairs() {
        let rows = [
            row(Library::Rbmq, 0, 4e6),
            row(Library::Zenoh, 0, 2e6),
            row(Library::Rbmq, 1, 2e6),
            row(Library::Zenoh, 1, 1e6),
        ];
        let details = details(&rows);
        assert!(details.contains("| full | 1024 | 1 | zenoh | 1.50 M |"), "{details}");
        assert!(details.contains("| 2.0× |"), "{details}");
    }

    #[test]
    fn no_rows_make_empty_tables_and_no_plots() {
        assert_eq!((overview(&[]).lines().count(), details(&[]).lines().count()), (2, 2));
        assert!(plots(&[]).is_empty());
    }
}
