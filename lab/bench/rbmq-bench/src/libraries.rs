//! `rbmq-bench libraries`: RBMQ's client libraries beside those of Redis, NATS, RabbitMQ, MQTT, zenoh and ZeroMQ, as people use
//! them.
//!
//! ```text
//!   publisher ──its library──▶ server ──its library──▶ 1 or 4 subscribers
//!     one publish per message             one item per message received; number and content checked
//! ```
//!
//! Each end is a process of its own and runs the loops of `benchkit::library`: RBMQ's ends are this program, the others are
//! `library-peers` (`lab/bench/peers/libraries`), and those in C are `c-library-peers` (`lab/bench/peers/c`). Servers keep their default
//! limits. The bench has three loads: full rate, a rate that every library carries, and round trips of one message at a time.

use std::{path::PathBuf, process::Command, time::Duration};

use benchkit::{
    credit,
    fleet::{Process, Used, words},
    folder::{Folder, unused},
    library::Role,
    named::Named,
    netns::{self, Congestion},
    output::{Output, human},
    server, sys,
    turns::Series,
    view::Columns,
};
use clap::Args;

use crate::{
    campaign::{Timing, least_disturbed_of},
    error::BenchError,
    library_rows::{Kind, Library, Row},
    measure::{Fleet, Measured, Method, Middle},
    report::{Figures, Setting},
    systems::System,
};

/// The program of the other libraries' ends in Rust.
const PEERS: &str = "library-peers";
/// The program of the ends in C.
const C_PEERS: &str = "c-library-peers";

/// The options of `rbmq-bench libraries`.
#[derive(Debug, Args)]
#[command(mut_arg("seconds", |seconds| seconds.default_value("600ms")))]
#[command(mut_arg("warmup", |warmup| warmup.default_value("400ms")))]
#[command(mut_arg("retries", |retries| retries.default_value("1")))]
#[command(after_help = "Examples:
  rbmq-bench libraries --library rbmq,async-nats --sizes 64 --subscribers 1 --reps 1
  rbmq-bench libraries --loads trips --trips-per-s 5000
  rbmq-bench libraries --loads full --sizes 1024 --not-held-back

scripts/bench-peers libraries installs what is missing; what is not there is left out, and named.")]
pub struct LibrariesArgs {
    /// Libraries to measure, in turn
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = ALL)]
    library: Vec<Library>,
    /// Loads to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Full, Kind::Paced, Kind::Trips])]
    loads: Vec<Kind>,
    /// Bytes of a message at full rate
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024,8192,65536")]
    #[arg(value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    sizes: Vec<u32>,
    /// Subscribers at full rate, each with every message
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    subscribers: Vec<u32>,
    /// Bytes of a message at a rate
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    paced_size: u32,
    /// Messages per second at a rate, with one subscriber
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    paced_per_s: u32,
    /// Bytes of a message that goes there and back
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    trip_size: u32,
    /// Round trips per second
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    trips_per_s: u32,
    /// Nothing but the library holds a publisher back. Otherwise publishers to Redis, NATS, RabbitMQ and Mosquitto, which
    /// drop messages or queue them without limit, are at most 4 MiB ahead of the slowest subscriber
    #[arg(long)]
    not_held_back: bool,
    #[command(flatten)]
    timing: Timing,
    /// TCP congestion control of all processes, where this program may make a network namespace; else the machine's default
    #[arg(long, default_value = "cubic")]
    congestion: String,
    #[command(flatten)]
    output: Output,
}

const ALL: [Library; 12] = [
    Library::Rbmq,
    Library::RedisPipelined,
    Library::RedisManager,
    Library::AsyncNats,
    Library::Lapin,
    Library::Rumqttc,
    Library::Zenoh,
    Library::RbmqC,
    Library::Hiredis,
    Library::NatsC,
    Library::Librabbitmq,
    Library::Libzmq,
];

impl Library {
    /// The server that the bench starts for the library; None if the server is a program of the bench.
    fn server(self) -> Option<System> {
        match self {
            Library::Rbmq | Library::RbmqC | Library::Zenoh | Library::Libzmq => None,
            Library::RedisPipelined | Library::RedisManager | Library::Hiredis => Some(System::Redis),
            Library::AsyncNats | Library::NatsC => Some(System::Nats),
            Library::Lapin | Library::Librabbitmq => Some(System::Rabbitmq),
            Library::Rumqttc => Some(System::Mosquitto),
        }
    }

    /// The program of the bench, and its argument, that runs as the library's server. None if the library has a server.
    fn relay(self) -> Option<(&'static str, &'static str)> {
        match self {
            Library::Zenoh => Some((PEERS, "router")),
            Library::Libzmq => Some((C_PEERS, "proxy")),
            _ => None,
        }
    }

    /// Whether something drops or queues messages without limit when a publisher is too fast.
    fn needs_hold(self) -> bool {
        self.server().is_some() || self == Library::Libzmq
    }

    /// The command that starts an end of the library, without the end's arguments; the error names the missing part.
    fn end(self) -> Result<Command, &'static str> {
        let mut command = match self {
            Library::Rbmq => sys::worker().map_err(|_| "this program")?,
            _ => {
                let program = if self.is_c() { C_PEERS } else { PEERS };
                Command::new(server::find(program).ok_or("its program in target/peers")?)
            }
        };
        match self {
            Library::Rbmq => command.arg("library"),
            _ => command.args(["end", &self.name()]),
        };
        Ok(command)
    }

    /// The installed ones of these libraries. Reports the others, and what they miss.
    pub fn installed(libraries: &[Library]) -> Vec<Library> {
        let mut there = Vec::new();
        for &library in libraries {
            let missing = match library.server() {
                Some(server) if server.find().is_none() => Some("its server"),
                _ => library.end().err(),
            };
            match missing {
                Some(what) => eprintln!(
                    "SKIPPED: {}: {what} is missing (scripts/bench-peers libraries installs it)",
                    library.name()
                ),
                None if there.contains(&library) => {}
                None => there.push(library),
            }
        }
        there
    }
}

const COLUMNS: Columns<'static> = Columns {
    who: &["library"],
    load: &["load", "size_bytes", "subscribers", "asked_per_s"],
    figures: &[
        "delivered_per_s",
        "p50_us",
        "p99_us",
        "publisher_cpu_s_per_million",
        "broker_cpu_s_per_million",
        "subscriber_cpu_s_per_million",
        "broker_rss_bytes",
        "dropped",
        "cut_off",
        "other_cores",
    ],
    ours: "rbmq",
};

/// A measured point.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    pub library: Library,
    pub kind: Kind,
    pub size: u32,
    pub subscribers: u32,
    pub rate: Option<u32>,
    pub held_back: bool,
    /// A server in place of the library's own.
    pub server: Option<System>,
}

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &LibrariesArgs) -> Result<(), BenchError> {
    const NAME: &str = "libraries";
    let method = method(args)?;
    let loads = loads(args, &Library::installed(&args.library));
    if loads.is_empty() {
        return Err(BenchError::NothingToMeasure);
    }
    let series = Series { reps: args.timing.reps, name: NAME, output: &args.output, by_load: false };
    let rows = series.run(&loads, |point, rep| {
        let others = |row: &Row| row.figures.other_cores;
        let row = least_disturbed_of(args.timing.retries, others, || measure(point, &method, rep))?;
        let summary = summary(&row);
        Ok::<_, BenchError>((vec![row], summary))
    })?;
    let text = format!("{}\n{}", head(args, &method, &rows), COLUMNS.table(&rows)?);
    Ok(args.output.publish(NAME, &text)?)
}

/// The method of all measurements. A congestion control cannot be set on the sockets of a library, so without a network namespace
/// all sockets keep the machine's default.
fn method(args: &LibrariesArgs) -> Result<Method, BenchError> {
    let congestion = match netns::set_congestion(&args.congestion) {
        Congestion::Sockets(_) => Congestion::Namespace(netns::default_congestion()),
        settled => settled,
    };
    args.timing.method(congestion)
}

/// All points, those of the same load together: they are measured in turn.
fn loads(args: &LibrariesArgs, libraries: &[Library]) -> Vec<Vec<Point>> {
    let held_back = |library: Library| !args.not_held_back && library.needs_hold();
    let load = |kind, size, subscribers, rate| {
        let point = |&library: &Library| {
            let held_back = kind == Kind::Full && held_back(library);
            Point { library, kind, size, subscribers, rate, held_back, server: None }
        };
        libraries.iter().map(point).collect::<Vec<Point>>()
    };
    let mut loads = Vec::new();
    for kind in &args.loads {
        match kind {
            Kind::Full => {
                for &subscribers in &args.subscribers {
                    loads.extend(args.sizes.iter().map(|&size| load(Kind::Full, size, subscribers, None)));
                }
            }
            Kind::Paced => loads.push(load(Kind::Paced, args.paced_size, 1, Some(args.paced_per_s))),
            Kind::Trips => loads.push(load(Kind::Trips, args.trip_size, 1, Some(args.trips_per_s))),
        }
    }
    loads.retain(|load| !load.is_empty());
    loads
}

/// A running server, and where it is.
struct Between {
    process: Process,
    addr: String,
    version: String,
    folder: PathBuf,
}

impl Between {
    fn start(library: Library, server: Option<System>) -> Result<Between, BenchError> {
        let folder = unused("rbmq-bench");
        let mut process = match (server.or(library.server()), library.relay()) {
            (Some(server), _) => {
                let args = ["server", "--limits", "--system", &server.name(), "--folder"];
                let mut args = words(&args);
                args.push(folder.to_string_lossy().into_owned());
                Process::start("server", &args)?
            }
            (None, Some((peer, role))) => {
                let program =
                    server::find(peer).ok_or_else(|| BenchError::NotInstalled { peer: peer.to_owned() })?;
                let mut command = Command::new(program);
                command.arg(role);
                Process::spawn(role, command)?
            }
            (None, None) => Process::start("broker", &words(&["broker"]))?,
        };
        let (addr, version) = Middle::await_ready(&mut process)?;
        Ok(Between { process, addr, version, folder })
    }
}

/// Starts one end of a point.
fn end(point: &Point, between: &Between, role: Role, more: &[&str]) -> Result<Process, BenchError> {
    let peer = point.library.name();
    let mut command = point.library.end().map_err(|_| BenchError::NotInstalled { peer })?;
    command.args([&role.name(), "--addr", &between.addr, "--size", &point.size.to_string()]);
    command.args(["--subscribers", &point.subscribers.to_string()]).args(more);
    if let Some(rate) = point.rate {
        command.args(["--rate", &rate.to_string()]);
    }
    if point.held_back {
        command.arg("--folder").arg(&between.folder);
    }
    Ok(Process::spawn(role.name(), command)?)
}

/// Measures a point once.
///
/// # Errors
/// A process could not be started, or died, or a message was wrong.
pub fn measure(point: &Point, method: &Method, rep: u32) -> Result<Row, BenchError> {
    let between = Between::start(point.library, point.server)?;
    match point.kind {
        Kind::Trips => trips(point, method, rep, between),
        Kind::Full | Kind::Paced => stream(point, method, rep, between),
    }
}

/// The version of the library, with which an end says that it is ready.
fn await_end(process: &Process) -> Result<String, BenchError> {
    Ok(process.answer("ready")?.join(" "))
}

/// A row of a point, with all figures zero.
fn row(point: &Point, method: &Method, rep: u32, server: &str, library_version: String) -> Row {
    // A relay has the version of its library.
    let server = if point.library.relay().is_some() { &library_version } else { server };
    Row {
        library: point.library,
        setting: Setting::new(System::Rbmq, server, &method.congestion),
        library_version,
        load: point.kind,
        held_back: point.held_back,
        size_bytes: point.size,
        subscribers: point.subscribers,
        rep,
        asked_per_s: f64::from(point.rate.unwrap_or(0)),
        figures: Figures::default(),
        dropped: 0,
        received: 0,
        cut_off: 0,
        p50_us: None,
        p99_us: None,
        max_us: None,
    }
}

/// Measures a publisher and its subscribers.
fn stream(point: &Point, method: &Method, rep: u32, between: Between) -> Result<Row, BenchError> {
    // The guard of a server makes the server's.
    let makes_folder = point.held_back && point.library.relay().is_some();
    let _made = makes_folder.then(|| Folder::make(between.folder.clone())).transpose()?;
    if point.held_back {
        credit::create(&between.folder, 1)?;
    }
    let subscribers: Vec<Process> = (0..point.subscribers)
        .map(|n| end(point, &between, Role::Subscribe, &["--number", &n.to_string()]))
        .collect::<Result<_, _>>()?;
    subscribers.iter().try_for_each(|subscriber| await_end(subscriber).map(drop))?;
    let publisher = end(point, &between, Role::Publish, &[])?;
    let library_version = await_end(&publisher)?;
    let Between { process, version, .. } = between;
    let fleet = Fleet { publishers: vec![publisher], subscribers, broker: process };
    let Measured { figures, lost, totals } = fleet.measure(method)?;
    let sum = |at: usize| totals.iter().filter_map(|totals| totals.get(at)).sum();
    Ok(Row {
        figures,
        dropped: lost,
        received: sum(0),
        cut_off: sum(1),
        ..row(point, method, rep, &version, library_version)
    })
}

/// A pinger and an echoer.
fn trips(point: &Point, method: &Method, rep: u32, between: Between) -> Result<Row, BenchError> {
    let (seconds, warmup) = (method.window.as_secs_f64(), method.warmup.as_secs_f64());
    let times = ["--seconds", &seconds.to_string(), "--warmup", &warmup.to_string()];
    let mut echo = end(point, &between, Role::Echo, &[])?;
    let mut pinger = end(point, &between, Role::Ping, &times)?;
    await_end(&echo)?;
    let library_version = await_end(&pinger)?;
    let before = Used::now([&echo, &pinger, &between.process]);
    pinger.send("go")?;
    // A library that cannot carry the rate needs longer, and is given it.
    let limit = (method.warmup + method.window) * 10 + Duration::from_secs(30);
    let numbers = pinger.numbers_within("total", limit)?;
    let after = Used::now([&echo, &pinger, &between.process]);
    // The ends are killed before the server, since they would report a lost connection.
    [&mut pinger, &mut echo].into_iter().for_each(Process::kill);
    let us = |at: usize| numbers.get(at).map(|nanos| *nanos as f64 / 1e3);
    let trips = numbers.first().copied().unwrap_or(0);
    Ok(Row {
        figures: Figures {
            published_per_s: trips as f64 / seconds,
            delivered_per_s: trips as f64 / seconds,
            other_cores: after.other_cores_since(&before),
            ..Figures::default()
        },
        received: trips,
        p50_us: us(1),
        p99_us: us(2),
        max_us: us(3),
        ..row(point, method, rep, &between.version, library_version)
    })
}

fn summary(row: &Row) -> String {
    let name = row.library.name();
    match (row.p50_us, row.p99_us) {
        (Some(p50), Some(p99)) => {
            format!("{name:<16} #{}  round trip p50 {p50:.0} us, p99 {p99:.0} us", row.rep)
        }
        _ => format!(
            "{:>6} B → {:<2} {name:<16} #{}  {:>8} msg/s to each  {:.2} us each  dropped {}  others {:.2}",
            row.size_bytes,
            row.subscribers,
            row.rep,
            human(row.to_each()),
            row.cpu_us(),
            row.dropped,
            row.figures.other_cores
        ),
    }
}

/// The head of the tables: machine, versions, how it was measured, and with which command.
fn head(args: &LibrariesArgs, method: &Method, rows: &[Row]) -> String {
    let program = |row: &Row| match row.library {
        Library::Rbmq => format!("rbmq {}", row.library_version),
        _ => {
            let server = row.library.server().map_or_else(|| "its relay".to_owned(), |server| server.name());
            let (name, version) = (row.library.name(), &row.library_version);
            format!("{name} {version} with {server} {}", row.setting.system_version)
        }
    };
    args.timing.head(rows.iter().map(program), &format!("TCP on loopback with {}", method.congestion.name()))
}
