//! The points of `rbmq-bench gateway`, each measured by the code of another bench.

use std::path::PathBuf;

use benchkit::named::Named;
use clap::Args;
use serde::Serialize;

use super::benchmark::{Benchmark, Measured};
use crate::{
    error::BenchError,
    kept, latency, libraries,
    library_rows::{Kind, Library},
    measure::{self, Method, Middle},
    peers::Peer,
    report::Setting,
    systems::{Api, Confirm, System},
    ways::Way,
};

/// Publishers of bare clients, each with its own topic.
const PUBLISHERS: u8 = 2;
/// Round trips per second: of bare clients, and one at a time through libraries.
const TRIPS_PER_S: u32 = 10_000;
const LIBRARY_TRIPS_PER_S: u32 = 1000;
/// The options of what is measured by a number of messages.
#[derive(Debug, Args)]
pub struct Counted {
    /// Messages of a measurement of streams, and of redis-benchmark with pipelines; a tenth of it without
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1..))]
    messages: u64,
    /// The folder for the files of streams; a disk, and no memory
    #[arg(long, default_value = ".")]
    folder: PathBuf,
}

/// What the clients are, and what they do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    Bare(Confirm),
    Trips,
    Library(Library, Kind),
    Benchmark(Benchmark),
    Streams,
}

/// A measured point.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    pub system: System,
    pub load: Load,
    pub size: u32,
    pub subscribers: u32,
}

/// A measurement: a flat object in the JSON. See lab/bench/README.md.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The server.
    pub system: System,
    /// What the clients are, and what they do.
    pub load: String,
    pub size_bytes: u32,
    pub subscribers: u32,
    pub rep: u32,
    /// Deliveries per second, round trips, answered commands, or entries of a stream.
    pub per_s: f64,
    /// Processor time of the server for each of them.
    pub server_cpu_us: Option<f64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    pub lost: u64,
    pub other_cores: Option<f64>,
    #[serde(flatten)]
    pub setting: Setting,
}

impl Point {
    /// Measures it once.
    ///
    /// # Errors
    /// A process could not be started, died, or a message was wrong.
    pub fn measure(&self, counted: &Counted, method: &Method, rep: u32) -> Result<Vec<Row>, BenchError> {
        match self.load {
            Load::Bare(confirm) => self.bare(confirm, method, rep),
            Load::Trips => self.trips(method, rep),
            Load::Library(library, kind) => self.library(library, kind, method, rep),
            Load::Benchmark(run) => self.benchmark(run, counted, method, rep),
            Load::Streams => self.streams(counted, method, rep),
        }
    }

    /// A row without figures.
    fn row(&self, method: &Method, rep: u32, load: String, version: &str) -> Row {
        Row {
            system: self.system,
            load,
            size_bytes: self.size,
            subscribers: self.subscribers,
            rep,
            per_s: 0.0,
            server_cpu_us: None,
            p50_us: None,
            p99_us: None,
            lost: 0,
            other_cores: None,
            setting: Setting::new(self.system, version, &method.congestion),
        }
    }

    fn bare(&self, confirm: Confirm, method: &Method, rep: u32) -> Result<Vec<Row>, BenchError> {
        let point = measure::Point {
            system: self.system,
            way: Way::Tcp,
            api: if confirm == Confirm::None { Api::Batch } else { Api::Message },
            size: self.size as usize,
            publishers: PUBLISHERS,
            publishers_auto: false,
            subscribers: self.subscribers,
            confirm,
            rate: None,
        };
        let row = measure::measure(&point, method, rep)?;
        let load = match (Peer::of(self.system), confirm) {
            (Some(Peer::Mqtt), Confirm::None) => "bare, QoS 0",
            (Some(Peer::Mqtt), _) => "bare, QoS 1",
            _ => "bare",
        };
        Ok(vec![Row {
            per_s: row.figures.delivered_per_s,
            server_cpu_us: Some(row.figures.broker_cpu_s_per_million),
            lost: row.lost,
            other_cores: Some(row.figures.other_cores),
            ..self.row(method, rep, load.to_owned(), &row.setting.system_version)
        }])
    }

    fn trips(&self, method: &Method, rep: u32) -> Result<Vec<Row>, BenchError> {
        let rate = f64::from(TRIPS_PER_S);
        let trip = latency::Trip { system: self.system, way: Way::Tcp, rate, size: self.size, beside: None };
        let row = latency::measure(method, trip, rep)?;
        let load = format!("bare, round trips, {TRIPS_PER_S} per s");
        Ok(vec![Row {
            per_s: row.returned_per_s,
            p50_us: Some(row.p50_us),
            p99_us: Some(row.p99_us),
            lost: row.lost,
            ..self.row(method, rep, load, &row.setting.system_version)
        }])
    }

    fn library(
        &self,
        library: Library,
        kind: Kind,
        method: &Method,
        rep: u32,
    ) -> Result<Vec<Row>, BenchError> {
        let trips = kind == Kind::Trips;
        let point = libraries::Point {
            library,
            kind,
            size: self.size,
            subscribers: self.subscribers,
            rate: trips.then_some(LIBRARY_TRIPS_PER_S),
            held_back: !trips,
            server: Some(self.system),
        };
        let row = libraries::measure(&point, method, rep)?;
        let what = if trips { ", round trips" } else { "" };
        let load = format!("{} {}{what}", library.name(), row.library_version);
        Ok(vec![Row {
            per_s: row.figures.delivered_per_s,
            server_cpu_us: (!trips).then_some(row.figures.broker_cpu_s_per_million),
            p50_us: row.p50_us,
            p99_us: row.p99_us,
            lost: row.dropped,
            other_cores: Some(row.figures.other_cores),
            ..self.row(method, rep, load, &row.setting.system_version)
        }])
    }

    fn benchmark(
        &self,
        run: Benchmark,
        counted: &Counted,
        method: &Method,
        rep: u32,
    ) -> Result<Vec<Row>, BenchError> {
        let messages = counted.messages;
        let (version, measured) = if run.stream {
            let (server, version) = self.kept(counted).server()?;
            (version, run.measure(self.size, messages, &server.addr(), || server.cpu_s())?)
        } else {
            let Middle { process, addr, version, .. } = Middle::start(self.system, Way::Tcp, method)?;
            (version, run.measure(self.size, messages, &addr, || process.cpu_s())?)
        };
        let Measured { per_s, server_cpu_us, p50_us } = measured;
        let row = self.row(method, rep, run.name(), &version);
        Ok(vec![Row { per_s, server_cpu_us: Some(server_cpu_us), p50_us: Some(p50_us), ..row }])
    }

    fn streams(&self, counted: &Counted, method: &Method, rep: u32) -> Result<Vec<Row>, BenchError> {
        let point = self.kept(counted);
        let (server, version) = point.server()?;
        let kept = kept::measure(&point, &server, rep)?;
        let row = |load: &str, per_s, cpu_us| Row {
            per_s,
            server_cpu_us: Some(cpu_us),
            ..self.row(method, rep, load.to_owned(), &version)
        };
        Ok(vec![
            row("XADD, 16,384 on their way", kept.written_per_s, kept.write_cpu_us),
            row("XREAD COUNT 4096", kept.replayed_per_s, kept.replay_cpu_us),
        ])
    }

    /// The server of streams.
    fn kept<'a>(&self, counted: &'a Counted) -> kept::Point<'a> {
        let Counted { messages, folder } = counted;
        kept::Point { system: self.system, size: self.size, messages: *messages, folder, rbmq: None }
    }
}
