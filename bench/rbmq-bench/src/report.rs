//! Rows of a bench and the table made of them.

use std::fmt::Write;

use benchkit::{
    netns::{self, Congestion},
    output::{human, span},
    stats, sys,
};
use serde::{Deserialize, Serialize};

use crate::{
    systems::{Api, Confirm, System},
    ways::Way,
};

/// What a row was measured on and with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setting {
    /// The version of the system in the middle.
    pub system_version: String,
    /// Congestion control in force; where nobody could tell somebody else's server, its own as well.
    pub congestion_control: String,
    /// The kernel.
    pub kernel: String,
    /// The processor and its cores.
    pub cpu: String,
    /// What the bench was called with.
    pub command: String,
}

impl Setting {
    /// Of this machine, now.
    pub fn new(system: System, version: &str, congestion: &Congestion) -> Setting {
        let ours = matches!(system, System::Rbmq | System::Relay);
        let congestion_control = match congestion {
            Congestion::Sockets(name) if !ours => {
                format!("{name} (the server: {})", netns::default_congestion())
            }
            known => known.name().to_owned(),
        };
        Setting {
            system_version: version.to_owned(),
            congestion_control,
            kernel: sys::kernel(),
            cpu: sys::cpu(),
            command: sys::command(),
        }
    }
}

/// One measurement of one point: a flat object in the JSON, units in the keys. See bench/README.md.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Who was between publishers and subscribers.
    pub system: System,
    /// What carried the bytes, to the broker and from it.
    pub transport: Way,
    /// Message by message or in batches.
    pub api: Api,
    /// What publishers waited for.
    pub confirm: Confirm,
    /// Payload bytes of a message.
    pub size_bytes: usize,
    /// Publishers, each with its own topic.
    pub publishers: u8,
    /// Whether that many publishers were found to carry the most.
    pub publishers_auto: bool,
    /// Subscribers, each with all topics.
    pub subscribers: u32,
    /// Repetition, from 0.
    pub rep: u32,
    /// Messages per second that all publishers together were to hand over; 0: as many as go.
    pub asked_per_s: f64,
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
    /// On what, and with what.
    #[serde(flatten)]
    pub setting: Setting,
}

impl Row {
    /// The figure that rows of one kind are compared by.
    pub fn rate(&self) -> f64 {
        if self.subscribers == 0 { self.published_per_s } else { self.delivered_per_s }
    }

    fn same_point(&self, other: &Row) -> bool {
        self.same_load(other) && self.series() == other.series() && self.publishers == other.publishers
    }

    /// Where everybody has the publishers that suit it best, their number is no part of the load.
    fn same_load(&self, other: &Row) -> bool {
        (self.size_bytes, self.subscribers, self.asked_per_s)
            == (other.size_bytes, other.subscribers, other.asked_per_s)
            && self.publishers_auto == other.publishers_auto
            && (self.publishers == other.publishers || self.publishers_auto)
    }

    /// What tells lines of one plot apart.
    pub fn series(&self) -> String {
        let mut name = format!("{} {}", self.system.name(), self.api.name());
        if self.transport != Way::Tcp {
            name = format!("{name} over {}", self.transport.name());
        }
        if self.confirm != Confirm::None {
            name = format!("{name}, {}", self.confirm.name());
        }
        name
    }

    /// Whether this is who `ours` is compared with: of the same kind, or the relay, which has one kind only.
    pub fn is_reference_of(&self, ours: &Row) -> bool {
        let same_kind = self.api == self.system.own(ours.api) && self.confirm == ours.confirm;
        self.same_load(ours) && (same_kind || self.system == System::Relay)
    }
}

/// Those rows that are each the first of its point.
pub fn points(rows: &[Row]) -> Vec<&Row> {
    let mut points: Vec<&Row> = Vec::new();
    for row in rows {
        if !points.iter().any(|point| point.same_point(row)) {
            points.push(row);
        }
    }
    points
}

/// All repetitions of a point.
pub fn repetitions<'r>(rows: &'r [Row], point: &Row) -> Vec<&'r Row> {
    rows.iter().filter(|row| row.same_point(point)).collect()
}

/// A figure over the repetitions of one point; there is at least one.
pub fn estimate(rows: &[&Row], figure: impl Fn(&Row) -> f64) -> stats::Estimate {
    let figures: Vec<f64> = rows.iter().map(|row| figure(row)).collect();
    stats::estimate(&figures).unwrap_or(stats::Estimate { median: 0.0, interval: None })
}

/// Everybody that ours is compared with, as far as they are in these rows.
fn references(rows: &[Row]) -> Vec<System> {
    let others = [
        System::Relay,
        System::Redis,
        System::RedisThreads,
        System::RedisServers,
        System::Nats,
        System::Rabbitmq,
    ];
    others.into_iter().filter(|other| rows.iter().any(|row| row.system == *other)).collect()
}

/// A Markdown table with one line per point: medians over the repetitions with their 95 % intervals, and how many
/// times the others' rates ours is, from pairs that were measured in turn. Where somebody waited for confirmations, also
/// how many times its own rate without; where something else than TCP carried ours, how many times its rate over TCP.
pub fn table(rows: &[Row]) -> String {
    let mut references: Vec<Reference> = references(rows).into_iter().map(Reference::Other).collect();
    if rows.iter().any(|row| row.confirm != Confirm::None) {
        references.push(Reference::Unconfirmed);
    }
    if rows.iter().any(|row| row.transport != Way::Tcp) {
        references.push(Reference::Tcp);
    }
    let times: String = references.iter().map(|reference| format!(" ×{} |", reference.name())).collect();
    let mut out = format!(
        "| size | subs | pubs | system | msg/s | 95 % | GB/s |{times} cpu s/M pub | sub | broker | RSS MiB \
         | lost | others |\n|---:|---:|---:|---|---:|---|---:|{}---:|---:|---:|---:|---:|---:|\n",
        "---:|".repeat(references.len()),
    );
    for point in points(rows) {
        line(&mut out, rows, point, &references);
    }
    out
}

/// What a rate is compared with.
#[derive(Clone, Copy)]
enum Reference {
    /// Ours with another system's.
    Other(System),
    /// Anybody's with its own where nobody waits for confirmations.
    Unconfirmed,
    /// Ours with its own over TCP on both sides.
    Tcp,
}

impl Reference {
    fn name(self) -> &'static str {
        match self {
            Reference::Other(system) => system.name(),
            Reference::Unconfirmed => "unconfirmed",
            Reference::Tcp => "tcp",
        }
    }

    /// Whether this row is what `row` is compared with.
    fn is(self, other: &Row, row: &Row) -> bool {
        match self {
            Reference::Other(system) => {
                row.system == System::Rbmq && other.system == system && other.is_reference_of(row)
            }
            Reference::Unconfirmed => {
                row.confirm != Confirm::None
                    && other.confirm == Confirm::None
                    && (other.system, other.api, other.transport) == (row.system, row.api, row.transport)
                    && other.same_load(row)
            }
            Reference::Tcp => {
                row.transport != Way::Tcp
                    && other.transport == Way::Tcp
                    && other.system == row.system
                    && other.is_reference_of(row)
            }
        }
    }
}

fn line(out: &mut String, rows: &[Row], point: &Row, references: &[Reference]) {
    let same = repetitions(rows, point);
    let rate = estimate(&same, Row::rate);
    let times: String =
        references.iter().map(|reference| format!(" {} |", ratio(rows, &same, *reference))).collect();
    let middle = |figure: fn(&Row) -> f64| estimate(&same, figure).median;
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "| {} | {} | {}{} | {} | {} | {} | {:.2} |{times} {:.4} | {:.4} | {:.4} | {:.1} | {} | {:.2} |",
        point.size_bytes,
        point.subscribers,
        point.publishers,
        if point.publishers_auto { " (auto)" } else { "" },
        point.series(),
        human(rate.median),
        span(rate.interval, human),
        rate.median * point.size_bytes as f64 / 1e9,
        middle(|row| row.publisher_cpu_s_per_million),
        middle(|row| row.subscriber_cpu_s_per_million),
        middle(|row| row.broker_cpu_s_per_million),
        middle(|row| row.broker_rss_bytes as f64) / f64::from(1 << 20),
        same.iter().map(|row| row.lost).sum::<u64>(),
        same.iter().map(|row| row.other_cores).fold(0.0, f64::max),
    );
}

/// How many times the reference's rate this is: of each repetition with the other's of the same number.
fn ratio(rows: &[Row], same: &[&Row], reference: Reference) -> String {
    let pairs = same.iter().filter_map(|row| {
        let is_pair = |other: &&Row| other.rep == row.rep && reference.is(other, row) && other.rate() > 0.0;
        Some(row.rate() / rows.iter().find(is_pair)?.rate())
    });
    let Some(ratio) = stats::estimate(&pairs.collect::<Vec<f64>>()) else { return String::new() };
    let digits = |ratio: f64| if ratio < 10.0 { format!("{ratio:.2}") } else { format!("{ratio:.1}") };
    match ratio.interval {
        Some(interval) => format!("{} ({})", digits(ratio.median), span(Some(interval), digits)),
        None => digits(ratio.median),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: System, rep: u32, delivered_per_s: f64) -> Row {
        Row {
            system,
            transport: Way::Tcp,
            api: Api::Batch,
            confirm: Confirm::None,
            size_bytes: 8,
            publishers: 2,
            publishers_auto: false,
            subscribers: 1,
            rep,
            asked_per_s: 0.0,
            published_per_s: 0.0,
            delivered_per_s,
            goodput_bytes_per_s: delivered_per_s * 8.0,
            lost: 0,
            publisher_cpu_s_per_million: 0.0,
            subscriber_cpu_s_per_million: 0.0,
            broker_cpu_s_per_million: 0.0,
            broker_rss_bytes: 0,
            other_cores: 0.0,
            setting: Setting::new(system, "1", &Congestion::Namespace("cubic".to_owned())),
        }
    }

    #[test]
    fn a_line_shows_the_median_its_interval_and_ratios_of_pairs() {
        let mut rows: Vec<Row> =
            (0..).zip([3e6, 1e6, 2e6]).map(|(rep, rate)| row(System::Relay, rep, rate)).collect();
        rows.extend((0..).zip([6e6, 3e6, 8e6]).map(|(rep, rate)| row(System::Rbmq, rep, rate)));
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        let relay = "| 8 | 1 | 2 | relay batch | 2.00 M | 0.00..4.48 M | 0.02 |  | 0.0000 |";
        assert!(lines[2].starts_with(relay), "{}", lines[2]);
        let rbmq = "| 8 | 1 | 2 | rbmq batch | 6.00 M | 0.00..11.9 M | 0.05 | 3.00 (0.52..5.48) |";
        assert!(lines[3].starts_with(rbmq), "{}", lines[3]);
    }

    #[test]
    fn ends_without_a_library_are_compared_with_others_that_have_none() {
        let wire = Row { api: Api::Wire, ..row(System::Rbmq, 0, 6e6) };
        let table = table(&[row(System::Rbmq, 0, 4e6), wire, row(System::Redis, 0, 2e6)]);
        assert!(table.contains("| rbmq batch | 4.00 M |  | 0.03 | 2.00 |"), "{table}");
        assert!(table.contains("| rbmq wire | 6.00 M |  | 0.05 | 3.00 |"), "{table}");
        assert!(table.contains("| redis batch | 2.00 M |  | 0.02 |  |"), "{table}");
    }

    #[test]
    fn confirmed_rates_are_compared_with_ones_own_without() {
        let confirmed = Row { confirm: Confirm::Accepted, ..row(System::Redis, 0, 3e6) };
        let table = table(&[row(System::Redis, 0, 4e6), confirmed]);
        assert!(
            table
                .starts_with("| size | subs | pubs | system | msg/s | 95 % | GB/s | ×redis | ×unconfirmed |")
        );
        assert!(table.contains("| redis batch | 4.00 M |  | 0.03 |  |  |"), "{table}");
        assert!(table.contains("| redis batch, accepted | 3.00 M |  | 0.02 |  | 0.75 |"), "{table}");
    }

    #[test]
    fn another_transport_is_compared_with_ones_own_over_tcp() {
        let shm = Row { transport: Way::Shm, ..row(System::Rbmq, 0, 8e6) };
        let table = table(&[row(System::Rbmq, 0, 4e6), shm, row(System::Relay, 0, 2e6)]);
        assert!(table.contains("| ×relay | ×tcp |"), "{table}");
        assert!(table.contains("| rbmq batch | 4.00 M |  | 0.03 | 2.00 |  |"), "{table}");
        assert!(table.contains("| rbmq batch over shm | 8.00 M |  | 0.06 | 4.00 | 2.00 |"), "{table}");
    }

    #[test]
    fn no_rows_make_an_empty_table() {
        assert_eq!(table(&[]).lines().count(), 2);
    }

    #[test]
    fn json_is_one_list_of_flat_rows_with_the_agreed_keys() {
        let file = tempfile::NamedTempFile::new().unwrap();
        benchkit::output::write_json(file.path(), &[row(System::Relay, 0, 1.0), row(System::Relay, 1, 2.0)])
            .unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let rows: Vec<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(&text).unwrap();
        let keys: Vec<&str> = rows[1].keys().map(String::as_str).collect();
        let mut agreed = vec![
            "system",
            "transport",
            "api",
            "confirm",
            "size_bytes",
            "publishers",
            "publishers_auto",
            "subscribers",
            "rep",
            "asked_per_s",
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
            "system_version",
            "kernel",
            "cpu",
            "command",
        ];
        agreed.sort_unstable();
        assert_eq!(keys, agreed);
        assert!(rows[0].values().all(|value| !value.is_object() && !value.is_array()));
    }
}
