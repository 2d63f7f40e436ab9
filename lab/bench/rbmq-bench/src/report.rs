//! Rows of a bench and the columns of their table.

use benchkit::{
    named::Named,
    netns::{self, Congestion},
    sys,
    view::Columns,
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
}

/// The columns of rows of this kind.
pub const COLUMNS: Columns<'static> = Columns {
    who: &["system", "api", "transport", "confirm"],
    load: &["size_bytes", "subscribers", "publishers", "publishers_auto", "asked_per_s"],
    figures: &[
        "delivered_per_s",
        "published_per_s",
        "publisher_cpu_s_per_million",
        "subscriber_cpu_s_per_million",
        "broker_cpu_s_per_million",
        "broker_rss_bytes",
        "lost",
        "other_cores",
    ],
    ours: "rbmq",
};

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
