//! Rows of a bench and the table made of them.

use benchkit::{
    named::Named,
    netns::{self, Congestion},
    output::{human, span},
    stats, sys,
    table::{self, Reps, Table},
};
use serde::{Deserialize, Serialize};

use crate::{
    systems::{Api, Confirm, System},
    ways::Way,
};

/// The machine and the programs of a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setting {
    /// The version of the system in the middle.
    pub system_version: String,
    /// Congestion control in force, and the server's, if it cannot be set there.
    pub congestion_control: String,
    /// The kernel.
    pub kernel: String,
    /// The processor and its cores.
    pub cpu: String,
    /// The command line of the bench.
    pub command: String,
}

impl Setting {
    /// Of this machine, now.
    pub fn new(system: System, version: &str, congestion: &Congestion) -> Setting {
        let ours = system == System::Rbmq || system == System::Relay;
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

/// Rates and processor time in a window of steady state: a part of rows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Messages that all publishers together handed over per second.
    pub published_per_s: f64,
    /// Messages that all subscribers together received and checked per second.
    pub delivered_per_s: f64,
    /// CPU seconds of all publishers per million messages published.
    pub publisher_cpu_s_per_million: f64,
    /// CPU seconds of all subscribers per million messages delivered.
    pub subscriber_cpu_s_per_million: f64,
    /// CPU seconds of the broker per million delivered messages; without subscribers, per million published messages.
    pub broker_cpu_s_per_million: f64,
    /// The broker's resident memory at the end of the window.
    pub broker_rss_bytes: u64,
    /// Cores that processes outside the bench kept busy in the window.
    pub other_cores: f64,
}

/// A measurement of a point: a flat object in the JSON, units in the keys. See lab/bench/README.md.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The system between publishers and subscribers.
    pub system: System,
    /// The transports to the broker and from it.
    pub transport: Way,
    /// Message by message or in batches.
    pub api: Api,
    /// The confirmation that publishers waited for.
    pub confirm: Confirm,
    /// Payload bytes of a message.
    pub size_bytes: usize,
    /// Publishers, each with its own topic.
    pub publishers: u8,
    /// Whether the number of publishers is the one with the highest rate.
    pub publishers_auto: bool,
    /// Subscribers, each with all topics.
    pub subscribers: u32,
    /// Repetition, from 0.
    pub rep: u32,
    /// Messages per second that all publishers together were to hand over; 0: as many as go.
    pub asked_per_s: f64,
    /// Delivered payload bytes per second.
    pub goodput_bytes_per_s: f64,
    /// Published messages that were not delivered, summed over subscribers.
    pub lost: u64,
    /// Rates and processor time.
    #[serde(flatten)]
    pub figures: Figures,
    /// On what, and with what.
    #[serde(flatten)]
    pub setting: Setting,
}

impl Row {
    /// The figure that rows of one kind are compared by.
    pub fn rate(&self) -> f64 {
        if self.subscribers == 0 { self.figures.published_per_s } else { self.figures.delivered_per_s }
    }

    /// Whether both rows have the same load. If each system has its best number of publishers, the number is no part of the load.
    fn same_load(&self, other: &Row) -> bool {
        (self.size_bytes, self.subscribers, self.asked_per_s)
            == (other.size_bytes, other.subscribers, other.asked_per_s)
            && self.publishers_auto == other.publishers_auto
            && (self.publishers == other.publishers || self.publishers_auto)
    }

    /// The name of the row's line in a plot.
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

    /// Whether `ours` is compared with this row: a row of the same kind, or of the relay, which has one kind only.
    pub fn is_reference_of(&self, ours: &Row) -> bool {
        let same_kind = self.api == self.system.own(ours.api) && self.confirm == ours.confirm;
        self.same_load(ours) && (same_kind || self.system == System::Relay)
    }
}

/// The points of these rows.
pub fn points(rows: &[Row]) -> Vec<Reps<'_, Row>> {
    table::points(
        rows,
        |row| row.rep,
        |one, other| {
            one.same_load(other) && one.series() == other.series() && one.publishers == other.publishers
        },
    )
}

/// The systems in these rows that ours is compared with.
fn references(rows: &[Row]) -> Vec<System> {
    let others = [
        System::Relay,
        System::Redis,
        System::RedisThreads,
        System::RedisServers,
        System::Nats,
        System::Rabbitmq,
        System::Mosquitto,
    ];
    others.into_iter().filter(|other| rows.iter().any(|row| row.system == *other)).collect()
}

/// A Markdown table with a line for each point: medians over the repetitions with their 95 % intervals, and the ratio of our
/// rate to the others', from pairs that were measured in turn. A row with confirmations also has the ratio to the rate without
/// them, and a row over another transport than TCP the ratio to the rate over TCP.
pub fn table(rows: &[Row]) -> String {
    let mut references: Vec<Reference> = references(rows).into_iter().map(Reference::Other).collect();
    if rows.iter().any(|row| row.confirm != Confirm::None) {
        references.push(Reference::Unconfirmed);
    }
    if rows.iter().any(|row| row.transport != Way::Tcp) {
        references.push(Reference::Tcp);
    }
    let points = points(rows);
    let mut table = Table::of(&points)
        .right("size", |point| point.first().size_bytes)
        .right("subs", |point| point.first().subscribers)
        .right("pubs", |point| {
            let Row { publishers, publishers_auto, .. } = point.first();
            format!("{publishers}{}", if *publishers_auto { " (auto)" } else { "" })
        })
        .left("system", |point| point.first().series())
        .interval("msg/s", Row::rate, human)
        .median("GB/s", 2, |row| row.rate() * row.size_bytes as f64 / 1e9);
    for reference in references {
        table = table.right(format!("×{}", reference.name()), move |point| ratio(rows, point, reference));
    }
    table
        .median("cpu s/M pub", 4, |row| row.figures.publisher_cpu_s_per_million)
        .median("sub", 4, |row| row.figures.subscriber_cpu_s_per_million)
        .median("broker", 4, |row| row.figures.broker_cpu_s_per_million)
        .median("RSS MiB", 1, |row| row.figures.broker_rss_bytes as f64 / f64::from(1 << 20))
        .sum("lost", |row| row.lost)
        .most("others", |row| row.figures.other_cores)
        .text()
}

/// The reference of a ratio.
#[derive(Clone, Copy)]
enum Reference {
    /// The rate of another system.
    Other(System),
    /// The same system's rate without confirmations.
    Unconfirmed,
    /// Our rate over TCP on both sides.
    Tcp,
}

impl Reference {
    fn name(self) -> String {
        match self {
            Reference::Other(system) => system.name(),
            Reference::Unconfirmed => "unconfirmed".to_owned(),
            Reference::Tcp => "tcp".to_owned(),
        }
    }

    /// Whether `row` is compared with `other`.
    fn is(self, other: &Row, row: &Row) -> bool {
        match self {
            Reference::Other(system) => {
                row.system.is_ours() && other.system == system && other.is_reference_of(row)
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

/// How many times the reference's rate this is: of each repetition with the other's of the same number.
fn ratio(rows: &[Row], point: &Reps<'_, Row>, reference: Reference) -> String {
    let pairs = point.rows().iter().filter_map(|row| {
        let is_pair = |other: &&Row| other.rep == row.rep && reference.is(other, row) && other.rate() > 0.0;
        Some(row.rate() / rows.iter().find(is_pair)?.rate())
    });
    let Some(ratio) = stats::estimate(pairs) else { return String::new() };
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
            goodput_bytes_per_s: delivered_per_s * 8.0,
            lost: 0,
            figures: Figures { delivered_per_s, ..Figures::default() },
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
