//! The measurement of a point: starts broker, subscribers and publishers, and takes the figures of a window of steady state.
//!
//! ```text
//!   start all ── go ── warm-up ──┬── window ──┬── stop ── everything published has arrived? ── kill all
//!                                mark         mark
//! ```

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use benchkit::{
    credit,
    fleet::{Process, Used, words},
    folder::unused,
    named::Named,
    netns::Congestion,
};
use rocketbufs::config::TransportKind;

use crate::{
    error::BenchError,
    peers::Peer,
    report::{Figures, Row, Setting},
    systems::{Api, Confirm, System},
    ways::Way,
};

/// RabbitMQ takes seconds to start, more of them on a busy machine.
const SERVER_READY_WITHIN: Duration = Duration::from_secs(120);

/// What is under way at the end arrives within this time, also where a slow server has a hundred thousand small messages.
const END_WITHIN: Duration = Duration::from_secs(120);

/// A measured point.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// The system in the middle.
    pub system: System,
    /// The transports.
    pub way: Way,
    /// Message by message or in batches.
    pub api: Api,
    /// Bytes of a message.
    pub size: usize,
    /// Publishers, each with its own topic.
    pub publishers: u8,
    /// Whether the number of publishers is the one with the highest rate. Systems with different numbers are then comparable.
    pub publishers_auto: bool,
    /// Subscribers, each with all topics.
    pub subscribers: u32,
    /// The confirmation that publishers wait for.
    pub confirm: Confirm,
    /// Messages per second of all publishers together; None for the full rate.
    pub rate: Option<f64>,
}

/// How it is measured; the same for all points.
#[derive(Debug, Clone)]
pub struct Method {
    /// Time between the start and the window.
    pub warmup: Duration,
    /// The window.
    pub window: Duration,
    /// How the congestion control is set.
    pub congestion: Congestion,
    /// Bytes of a topic's ring, if not the default.
    pub ring_bytes: Option<u64>,
    /// Bytes that the relay reads at once.
    pub relay_read_bytes: usize,
}

/// The system in the middle, running, and where.
pub struct Middle {
    /// The process that runs it, or guards it.
    pub process: Process,
    /// Its address, or those of its servers with commas between them.
    pub addr: String,
    /// Its version.
    pub version: String,
    /// A folder that another system's guard makes and removes.
    pub folder: PathBuf,
}

/// The processes of a point, connected and waiting for the word to go.
pub struct Fleet {
    // Dropped in this order: no server ends before its clients.
    /// Each with its own topic.
    pub publishers: Vec<Process>,
    /// Each with all topics.
    pub subscribers: Vec<Process>,
    /// The server between them, or its guard.
    pub broker: Process,
}

/// What came of a point.
pub struct Measured {
    /// The figures of the window.
    pub figures: Figures,
    /// Messages published and never delivered, summed over subscribers.
    pub lost: u64,
    /// The numbers that each subscriber reported at the end.
    pub totals: Vec<Vec<u64>>,
}

/// Messages and CPU seconds of one side in the window.
#[derive(Default)]
struct Side {
    messages_per_s: f64,
    messages: u64,
    cpu_s: f64,
}

impl Side {
    fn cpu_s_per_million(&self) -> f64 {
        per_million(self.cpu_s, self.messages)
    }
}

fn per_million(cpu_s: f64, messages: u64) -> f64 {
    if messages == 0 { 0.0 } else { cpu_s * 1e6 / messages as f64 }
}

/// Measures one point once.
///
/// # Errors
/// A worker could not be started, died, or found a wrong byte.
pub fn measure(point: &Point, method: &Method, rep: u32) -> Result<Row, BenchError> {
    let Middle { process: broker, addr, version, folder } = Middle::start(point.system, point.way, method)?;
    let Clients { publishers, subscribers } = Clients::start(point, method, &addr, &folder)?;
    let Measured { figures, lost, .. } = Fleet { publishers, subscribers, broker }.measure(method)?;
    Ok(Row {
        system: point.system,
        transport: point.way,
        api: point.api,
        confirm: point.confirm,
        size_bytes: point.size,
        publishers: point.publishers,
        publishers_auto: point.publishers_auto,
        subscribers: point.subscribers,
        rep,
        asked_per_s: point.rate.unwrap_or(0.0),
        goodput_bytes_per_s: figures.delivered_per_s * point.size as f64,
        lost,
        figures,
        setting: Setting::new(point.system, &version, &method.congestion),
    })
}

impl Middle {
    /// Starts a system and waits until it can be connected to.
    ///
    /// # Errors
    /// The server is not installed, or did not start.
    pub fn start(system: System, way: Way, method: &Method) -> Result<Middle, BenchError> {
        let folder = unused("rbmq-bench");
        let mut args = match Peer::of(system) {
            Some(_) => words(&["server", "--system", &system.name(), "--folder", &folder.to_string_lossy()]),
            None if system == System::Relay => {
                words(&["relay", "--read-bytes", &method.relay_read_bytes.to_string()])
            }
            None => words(&["broker", "--transport", way.of_broker().as_str()]),
        };
        if Peer::of(system).is_none() {
            add_congestion(&mut args, method.congestion.for_sockets());
        }
        let mut process = Process::start("broker or relay", &args)?;
        let (addr, version) = Middle::await_ready(&mut process)?;
        Ok(Middle { process, addr, version, folder })
    }

    /// Kills the system and starts it again at the same address. Returns when it can be connected to.
    ///
    /// # Errors
    /// The server did not start again.
    pub fn restart(&mut self, system: System, method: &Method) -> Result<(), BenchError> {
        if Peer::of(system).is_some() {
            self.process.send("restart")?;
        } else {
            let mut args = words(&["broker", "--listen", &self.addr]);
            add_congestion(&mut args, method.congestion.for_sockets());
            // Only the kill is waited for: the address is free then.
            self.process.kill_and_wait();
            self.process = Process::start("broker or relay", &args)?;
        }
        Middle::await_ready(&mut self.process).map(drop)
    }

    /// Reads `ready ADDRESS [GROUP VERSION]`, of several servers their addresses and groups with commas between them.
    pub fn await_ready(process: &mut Process) -> Result<(String, String), BenchError> {
        let mut words = process.answer_within("ready", SERVER_READY_WITHIN)?.into_iter();
        let addr = words.next().unwrap_or_default();
        if let Some(groups) = words.next() {
            process.measure_groups(groups.split(',').filter_map(|group| group.parse().ok()).collect());
        }
        Ok((addr, words.next().unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned())))
    }
}

/// A point's publishers and subscribers, connected and waiting for the word to go.
pub struct Clients {
    /// Publishers, each with its own topic.
    pub publishers: Vec<Process>,
    /// Subscribers, each with all of them.
    pub subscribers: Vec<Process>,
}

impl Clients {
    /// Starts them.
    ///
    /// # Errors
    /// A process could not connect.
    pub fn start(point: &Point, method: &Method, addr: &str, folder: &Path) -> Result<Clients, BenchError> {
        if Peer::of(point.system).is_some() {
            credit::create(folder, point.publishers)?;
        }
        let load = load(point, method, addr, folder);
        let start = |role, which: &str, transport: TransportKind, own: &[String]| {
            let mut args = words(&[which, "--transport", transport.as_str()]);
            args.extend_from_slice(own);
            args.extend_from_slice(&load);
            Process::start(role, &args)
        };
        let topics = point.publishers.to_string();
        let subscribers: Vec<Process> = (0..point.subscribers)
            .map(|n| {
                let own = words(&["--topics", &topics, "--number", &n.to_string()]);
                start("subscriber", "subscriber", point.way.of_subscribers(), &own)
            })
            .collect::<Result<_, _>>()?;
        for subscriber in &subscribers {
            subscriber.answer("ready")?;
        }
        let publishers: Vec<Process> = (0..point.publishers)
            .map(|topic| {
                let own = words(&["--topic", &topic.to_string()]);
                start("publisher", "publisher", point.way.of_publishers(), &own)
            })
            .collect::<Result<_, _>>()?;
        for publisher in &publishers {
            publisher.answer("ready")?;
        }
        Ok(Clients { publishers, subscribers })
    }
}

impl Fleet {
    /// Lets the publishers begin, and measures a window of steady state.
    ///
    /// # Errors
    /// A worker died, or found a wrong byte.
    pub fn measure(mut self, method: &Method) -> Result<Measured, BenchError> {
        self.publishers.iter_mut().try_for_each(|publisher| publisher.send("go"))?;
        std::thread::sleep(method.warmup);
        let before = self.mark()?;
        std::thread::sleep(method.window);
        let after = self.mark()?;
        let (lost, totals) = self.end()?;
        let publishers = before.side(&after, 1..1 + self.publishers.len());
        let subscribers = before.side(&after, 1 + self.publishers.len()..after.workers.len());
        let broker_cpu_s = after.workers[0].cpu_s - before.workers[0].cpu_s;
        let handled = if self.subscribers.is_empty() { publishers.messages } else { subscribers.messages };
        let figures = Figures {
            published_per_s: publishers.messages_per_s,
            delivered_per_s: subscribers.messages_per_s,
            publisher_cpu_s_per_million: publishers.cpu_s_per_million(),
            subscriber_cpu_s_per_million: subscribers.cpu_s_per_million(),
            broker_cpu_s_per_million: per_million(broker_cpu_s, handled),
            broker_rss_bytes: after.broker_rss_bytes,
            other_cores: after.used.other_cores_since(&before.used),
        };
        Ok(Measured { figures, lost, totals })
    }

    /// All processes: the broker, then publishers, then subscribers.
    fn everybody(&self) -> impl Iterator<Item = &Process> {
        std::iter::once(&self.broker).chain(&self.publishers).chain(&self.subscribers)
    }

    fn mark(&mut self) -> Result<Mark, BenchError> {
        let counted = self.publishers.iter_mut().chain(&mut self.subscribers);
        counted.into_iter().try_for_each(|worker| worker.send("mark"))?;
        let mut workers: Vec<WorkerMark> = self
            .everybody()
            .map(|worker| WorkerMark { cpu_s: worker.cpu_s(), messages: 0, nanos: 0 })
            .collect();
        let used = Used::beside(workers.iter().map(|worker| worker.cpu_s).sum());
        for (worker, mark) in self.everybody().zip(&mut workers).skip(1) {
            let numbers = worker.numbers("count")?;
            (mark.messages, mark.nanos) = (numbers[0], numbers[1]);
        }
        Ok(Mark { used, workers, broker_rss_bytes: self.broker.rss_bytes() })
    }

    /// Ends the publishers and waits until all published messages have arrived everywhere, or no more come. Returns the number
    /// of missing messages, and the report of each subscriber.
    fn end(&mut self) -> Result<(u64, Vec<Vec<u64>>), BenchError> {
        self.publishers.iter_mut().try_for_each(|publisher| publisher.send("stop"))?;
        let mut published = Vec::new();
        for publisher in &self.publishers {
            published.extend(publisher.numbers_within("total", END_WITHIN)?);
        }
        let words: Vec<String> = published.iter().map(u64::to_string).collect();
        let expect = format!("expect {}", words.join(" "));
        self.subscribers.iter_mut().try_for_each(|subscriber| subscriber.send(&expect))?;
        let totals = self.subscribers.iter().map(|subscriber| subscriber.numbers_within("total", END_WITHIN));
        let totals: Vec<Vec<u64>> = totals.collect::<Result<_, _>>()?;
        let of_one = |received: &Vec<u64>| {
            published.iter().zip(received).map(|(sent, got)| sent.saturating_sub(*got)).sum::<u64>()
        };
        Ok((totals.iter().map(of_one).sum(), totals))
    }
}

struct WorkerMark {
    cpu_s: f64,
    messages: u64,
    nanos: u64,
}

struct Mark {
    used: Used,
    workers: Vec<WorkerMark>,
    broker_rss_bytes: u64,
}

impl Mark {
    fn side(&self, after: &Mark, which: std::ops::Range<usize>) -> Side {
        let mut side = Side::default();
        for (before, after) in self.workers[which.clone()].iter().zip(&after.workers[which]) {
            let messages = after.messages - before.messages;
            side.messages += messages;
            side.messages_per_s += messages as f64 * 1e9 / (after.nanos - before.nanos).max(1) as f64;
            side.cpu_s += after.cpu_s - before.cpu_s;
        }
        side
    }
}

/// The arguments of all publishers and subscribers of a point.
fn load(point: &Point, method: &Method, addr: &str, folder: &Path) -> Vec<String> {
    let mut load = words(&["--system", &point.system.name(), "--api", &point.api.name()]);
    load.extend(words(&["--confirm", &point.confirm.name()]));
    load.extend(words(&["--addr", addr, "--size", &point.size.to_string()]));
    load.extend(words(&["--subscribers", &point.subscribers.to_string()]));
    load.extend(words(&["--folder", &folder.to_string_lossy()]));
    if let Some(bytes) = method.ring_bytes {
        load.extend(words(&["--ring-bytes", &bytes.to_string()]));
    }
    if let Some(rate) = point.rate {
        load.extend(words(&["--rate", &(rate / f64::from(point.publishers)).to_string()]));
    }
    add_congestion(&mut load, method.congestion.for_sockets());
    load
}

/// Adds the option of the congestion control, if it must be set on each socket.
pub fn add_congestion(args: &mut Vec<String>, congestion: Option<&str>) {
    if let Some(name) = congestion {
        args.extend(words(&["--congestion", name]));
    }
}
