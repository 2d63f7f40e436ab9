//! Rows of a bench and the table made of them.

use std::{fmt::Write, fs, io, path::Path};

use serde::Serialize;

use super::{Api, System};

/// One measurement of one point: a flat object in the JSON, units in the keys. See bench/README.md.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Who was between publishers and subscribers.
    pub system: System,
    /// Always `tcp`.
    pub transport: &'static str,
    /// Message by message or in batches.
    pub api: Api,
    /// Payload bytes of a message.
    pub size_bytes: usize,
    /// Publishers, each with its own topic.
    pub publishers: u8,
    /// Subscribers, each with all topics.
    pub subscribers: u32,
    /// Repetition, from 0.
    pub rep: u32,
    /// Messages that all publishers together handed over per second.
    pub published_per_s: f64,
    /// Messages that all subscribers together received and checked per second.
    pub delivered_per_s: f64,
    /// Payload bytes of what was delivered.
    pub goodput_bytes_per_s: f64,
    /// Messages published and never delivered, summed over subscribers.
    pub lost: u64,
    /// CPU seconds of all publishers per million messages published.
    pub publisher_cpu_s_per_million: f64,
    /// CPU seconds of all subscribers per million messages delivered.
    pub subscriber_cpu_s_per_million: f64,
    /// CPU seconds of the broker per million messages delivered; published, where nobody subscribes.
    pub broker_cpu_s_per_million: f64,
    /// The broker's resident memory at the end of the window.
    pub broker_rss_bytes: u64,
    /// Cores that processes outside the bench kept busy in the window.
    pub other_cores: f64,
    /// Congestion control in force on the publishers' sockets.
    pub congestion_control: String,
}

impl Row {
    /// The figure that rows of one kind are compared by.
    pub fn rate(&self) -> f64 {
        if self.subscribers == 0 { self.published_per_s } else { self.delivered_per_s }
    }

    fn same_point(&self, other: &Row) -> bool {
        self.same_load(other) && self.system == other.system && self.api == other.api
    }

    fn same_load(&self, other: &Row) -> bool {
        (self.size_bytes, self.publishers, self.subscribers)
            == (other.size_bytes, other.publishers, other.subscribers)
    }
}

/// Writes all rows as one JSON list.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(path: &Path, rows: &[Row]) -> io::Result<()> {
    let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
    fs::write(path, format!("[\n{}\n]\n", lines?.join(",\n")))
}

/// A Markdown table with one line per point: medians over the repetitions, and the ratio to the relay's.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| size | subs | system | api | msg/s | GB/s | min..max | ×relay | cpu s/M pub | sub | broker \
         | RSS MiB | lost | others |\n|---:|---:|---|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut points: Vec<&Row> = Vec::new();
    for row in rows {
        if !points.iter().any(|point| point.same_point(row)) {
            points.push(row);
        }
    }
    for point in points {
        let same: Vec<&Row> = rows.iter().filter(|row| row.same_point(point)).collect();
        let relay: Vec<&Row> =
            rows.iter().filter(|row| row.same_load(point) && row.system == System::Relay).collect();
        line(&mut out, point, &same, &relay);
    }
    out
}

fn line(out: &mut String, point: &Row, same: &[&Row], relay: &[&Row]) {
    let rate = median(same, Row::rate);
    let rates = || same.iter().map(|row| row.rate());
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let ratio = match point.system {
        System::Relay => String::new(),
        _ if relay.is_empty() => String::new(),
        _ => format!("{:.2}", rate / median(relay, Row::rate)),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "| {} | {} | {} | {} | {} | {:.2} | {}..{} | {ratio} | {:.4} | {:.4} | {:.4} | {:.1} | {} | {:.2} |",
        point.size_bytes,
        point.subscribers,
        point.system.name(),
        point.api.name(),
        human(rate),
        rate * point.size_bytes as f64 / 1e9,
        human(least),
        human(most),
        median(same, |row| row.publisher_cpu_s_per_million),
        median(same, |row| row.subscriber_cpu_s_per_million),
        median(same, |row| row.broker_cpu_s_per_million),
        median(same, |row| row.broker_rss_bytes as f64) / f64::from(1 << 20),
        same.iter().map(|row| row.lost).sum::<u64>(),
        same.iter().map(|row| row.other_cores).fold(0.0, f64::max),
    );
}

/// The middle one; of an even number the mean of the two in the middle.
fn median(rows: &[&Row], figure: impl Fn(&Row) -> f64) -> f64 {
    let mut figures: Vec<f64> = rows.iter().map(|row| figure(row)).collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    if figures.len().is_multiple_of(2) {
        f64::midpoint(figures[middle - 1], figures[middle])
    } else {
        figures[middle]
    }
}

/// A rate with three significant digits.
pub fn human(rate: f64) -> String {
    let (scaled, unit) = match rate {
        _ if rate >= 1e6 => (rate / 1e6, " M"),
        _ if rate >= 1e3 => (rate / 1e3, " k"),
        _ => (rate, ""),
    };
    let digits = if scaled >= 100.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: System, rep: u32, delivered_per_s: f64) -> Row {
        Row {
            system,
            transport: "tcp",
            api: Api::Batch,
            size_bytes: 8,
            publishers: 2,
            subscribers: 1,
            rep,
            published_per_s: 0.0,
            delivered_per_s,
            goodput_bytes_per_s: delivered_per_s * 8.0,
            lost: 0,
            publisher_cpu_s_per_million: 0.0,
            subscriber_cpu_s_per_million: 0.0,
            broker_cpu_s_per_million: 0.0,
            broker_rss_bytes: 0,
            other_cores: 0.0,
            congestion_control: "cubic".to_owned(),
        }
    }

    #[test]
    fn a_line_shows_the_median_and_its_ratio_to_the_relay() {
        let rows = [3e6, 1e6, 2e6].map(|rate| row(System::Relay, 0, rate));
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[2].starts_with("| 8 | 1 | relay | batch | 2.00 M | 0.02 | 1.00 M..3.00 M |"),
            "{}",
            lines[2]
        );
    }

    #[test]
    fn json_is_one_list_of_flat_rows_with_the_agreed_keys() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_json(file.path(), &[row(System::Relay, 0, 1.0), row(System::Relay, 1, 2.0)]).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        let rows: Vec<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(&text).unwrap();
        let keys: Vec<&str> = rows[1].keys().map(String::as_str).collect();
        let mut agreed = vec![
            "system",
            "transport",
            "api",
            "size_bytes",
            "publishers",
            "subscribers",
            "rep",
            "published_per_s",
            "delivered_per_s",
            "goodput_bytes_per_s",
            "lost",
            "publisher_cpu_s_per_million",
            "subscriber_cpu_s_per_million",
            "broker_cpu_s_per_million",
            "broker_rss_bytes",
            "other_cores",
            "congestion_control",
        ];
        agreed.sort_unstable();
        assert_eq!(keys, agreed);
        assert!(rows[0].values().all(|value| !value.is_object() && !value.is_array()));
    }

    #[test]
    fn rates_keep_three_digits() {
        assert_eq!(["5.00", "42.0 k", "193 M"].map(str::to_owned), [5.0, 42_000.0, 193.4e6].map(human));
    }
}
