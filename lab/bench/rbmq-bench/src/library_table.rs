//! The results of `rbmq-bench libraries` as tables and plots.

use std::fmt::Write;

use benchkit::{
    output::{human, span},
    plot::Chart,
    stats::{self, Estimate},
};

use crate::library_rows::{Kind, Library, Row};

/// The message size whose rate the overview also shows for many subscribers.
const SIZE_OF_MANY: u32 = 1024;

/// The overview, and a line for each point.
pub fn tables(rows: &[Row]) -> String {
    format!("{}\n{}", overview(rows), details(rows))
}

/// A line for each library: messages per second to each subscriber, round trips, and processor time.
pub fn overview(rows: &[Row]) -> String {
    let full: Vec<&Row> = rows.iter().filter(|row| row.load == Kind::Full).collect();
    let few = full.iter().map(|row| row.subscribers).min().unwrap_or(1);
    let many = full.iter().map(|row| row.subscribers).max().filter(|many| *many > few);
    let mut columns: Vec<(String, Cell)> = Vec::new();
    for size in distinct(full.iter().filter(|row| row.subscribers == few).map(|row| row.size_bytes)) {
        columns.push((size_name(size), Box::new(move |rows| rate(rows, size, few))));
    }
    if let Some(many) = many.filter(|_| full.iter().any(|row| row.size_bytes == SIZE_OF_MANY)) {
        let title = format!("{}, {many} subscribers", size_name(SIZE_OF_MANY));
        columns.push((title, Box::new(move |rows| rate(rows, SIZE_OF_MANY, many))));
    }
    if rows.iter().any(|row| row.load == Kind::Trips) {
        columns.push(("round trip, p50 / p99".to_owned(), Box::new(round_trip)));
    }
    if rows.iter().any(|row| row.load == Kind::Paced) {
        columns.push(("processor time per message".to_owned(), Box::new(processor_time)));
    }
    let titles: Vec<&str> = columns.iter().map(|(title, _)| title.as_str()).collect();
    let mut out = format!("| | {} |\n|---|{}\n", titles.join(" | "), "---:|".repeat(columns.len()));
    for library in distinct(rows.iter().map(|row| row.library)) {
        let own: Vec<&Row> = rows.iter().filter(|row| row.library == library).collect();
        let cells: Vec<String> = columns.iter().map(|(_, cell)| cell(&own)).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "| {} | {} |", library.title(), cells.join(" | "));
    }
    out
}

/// A cell of the overview, from the rows of one library.
type Cell = Box<dyn Fn(&[&Row]) -> String>;

/// Each value once, in the order in which they come.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

fn size_name(bytes: u32) -> String {
    if bytes >= 1024 && bytes.is_multiple_of(1024) {
        format!("{} KiB", bytes / 1024)
    } else {
        format!("{bytes} B")
    }
}

fn estimate(rows: &[&Row], figure: impl Fn(&Row) -> f64) -> Option<Estimate> {
    stats::estimate(rows.iter().map(|row| figure(row)))
}

fn rate(rows: &[&Row], size: u32, subscribers: u32) -> String {
    let is = |row: &&&Row| row.load == Kind::Full && (row.size_bytes, row.subscribers) == (size, subscribers);
    let same: Vec<&Row> = rows.iter().filter(is).copied().collect();
    let Some(rate) = estimate(&same, Row::to_each) else { return String::new() };
    let dropped = dropped(&same);
    if dropped.is_empty() {
        human(rate.median)
    } else {
        format!("{} ({dropped} dropped)", human(rate.median))
    }
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

fn round_trip(rows: &[&Row]) -> String {
    let trips: Vec<&Row> = rows.iter().filter(|row| row.load == Kind::Trips).copied().collect();
    match (
        estimate(&trips, |row| row.p50_us.unwrap_or(0.0)),
        estimate(&trips, |row| row.p99_us.unwrap_or(0.0)),
    ) {
        (Some(p50), Some(p99)) => format!("{:.0} / {:.0} us", p50.median, p99.median),
        _ => String::new(),
    }
}

fn processor_time(rows: &[&Row]) -> String {
    let paced: Vec<&Row> = rows.iter().filter(|row| row.load == Kind::Paced).copied().collect();
    estimate(&paced, Row::cpu_us).map_or_else(String::new, |us| format!("{:.1} us", us.median))
}

/// A line for each point: medians over the repetitions with their 95 % intervals.
fn details(rows: &[Row]) -> String {
    let mut out = String::from(
        "| load | size | subs | library | msg/s to each | 95 % | MB/s to each | rbmq is | p50 us | p99 us \
         | publisher us | server us | subscriber us | server MiB | dropped | cut off | others |\n\
         |---|---:|---:|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut points: Vec<&Row> = Vec::new();
    for row in rows {
        if !points.iter().any(|point| point.library == row.library && point.same_load(row)) {
            points.push(row);
        }
    }
    points.sort_by_key(|row| (row.load as u8, row.subscribers, row.size_bytes));
    for point in points {
        line(&mut out, rows, point);
    }
    out
}

fn line(out: &mut String, rows: &[Row], point: &Row) {
    let same: Vec<&Row> =
        rows.iter().filter(|row| row.library == point.library && row.same_load(point)).collect();
    let middle = |figure: fn(&Row) -> f64| estimate(&same, figure).map_or(0.0, |estimate| estimate.median);
    let us = |figure: fn(&Row) -> Option<f64>| match figure(point) {
        Some(_) => {
            format!("{:.0}", estimate(&same, |row| figure(row).unwrap_or(0.0)).map_or(0.0, |us| us.median))
        }
        None => String::new(),
    };
    // Of round trips only times are measured.
    let cost = |figure: fn(&Row) -> f64| match point.load {
        Kind::Trips => String::new(),
        Kind::Full | Kind::Paced => format!("{:.2}", middle(figure)),
    };
    let interval = estimate(&same, Row::to_each).and_then(|rate| rate.interval);
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "| {} | {} | {} | {} | {} | {} | {:.1} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.2} |",
        match point.load {
            Kind::Full => "full",
            Kind::Paced => "paced",
            Kind::Trips => "round trips",
        },
        point.size_bytes,
        point.subscribers,
        point.library.name(),
        human(middle(Row::to_each)),
        span(interval, human),
        middle(Row::to_each) * f64::from(point.size_bytes) / 1e6,
        times(rows, &same),
        us(|row| row.p50_us),
        us(|row| row.p99_us),
        cost(|row| row.figures.publisher_cpu_s_per_million),
        cost(|row| row.figures.broker_cpu_s_per_million),
        cost(|row| row.figures.subscriber_cpu_s_per_million),
        cost(|row| row.figures.broker_rss_bytes as f64 / f64::from(1 << 20)),
        dropped(&same),
        same.iter().map(|row| row.cut_off).sum::<u64>(),
        same.iter().map(|row| row.figures.other_cores).fold(0.0, f64::max),
    );
}

/// How many times this library's rate RBMQ's is, which was measured in turn with it.
fn times(rows: &[Row], same: &[&Row]) -> String {
    let Some(first) = same.first().filter(|row| row.library != Library::Rbmq && row.load == Kind::Full)
    else {
        return String::new();
    };
    let ours = rows.iter().filter(|row| row.library == Library::Rbmq && row.same_load(first));
    let ours: Vec<(u32, f64)> = ours.map(|row| (row.rep, row.to_each())).collect();
    let theirs: Vec<(u32, f64)> = same.iter().map(|row| (row.rep, row.to_each())).collect();
    stats::times(&ours, &theirs).map_or_else(String::new, |times| format!("{times:.1}×"))
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
                .points(&some, |row| row.library.name().to_owned(), |row| f64::from(row.size_bytes), figure)
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
    use crate::{
        report::{Figures, Setting},
        systems::System,
    };

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
