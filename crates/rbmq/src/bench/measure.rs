//! One point: start broker, subscribers and publishers, let them run, and look at a window of steady state.
//!
//! ```text
//!   start all ── go ── warm-up ──┬── window ──┬── stop ── everything published has arrived? ── kill all
//!                                mark         mark
//! ```

use std::time::{Duration, Instant};

use super::{
    Api, BenchError, System,
    fleet::Process,
    report::Row,
    sys::{self, Congestion},
};

/// What is measured at one point.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Broker or relay.
    pub system: System,
    /// Message by message or in batches.
    pub api: Api,
    /// Bytes of a message.
    pub size: usize,
    /// Publishers, each with its own topic.
    pub publishers: u8,
    /// Subscribers, each with all topics.
    pub subscribers: u32,
}

/// How it is measured; the same for all points.
#[derive(Debug, Clone)]
pub struct Method {
    /// Time between the start and the window.
    pub warmup: Duration,
    /// The window.
    pub window: Duration,
    /// Who sets the congestion control.
    pub congestion: Congestion,
    /// Bytes of a topic's ring, if not the default.
    pub ring_bytes: Option<u64>,
    /// Bytes that the relay reads at once.
    pub relay_read_bytes: usize,
}

struct Fleet {
    broker: Process,
    publishers: Vec<Process>,
    subscribers: Vec<Process>,
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
    let mut fleet = Fleet::start(point, method)?;
    fleet.publishers.iter_mut().try_for_each(|publisher| publisher.tell("go"))?;
    std::thread::sleep(method.warmup);
    let before = fleet.mark()?;
    std::thread::sleep(method.window);
    let after = fleet.mark()?;
    let lost = fleet.lost()?;
    let publishers = before.side(&after, 1..1 + fleet.publishers.len());
    let subscribers = before.side(&after, 1 + fleet.publishers.len()..after.workers.len());
    let broker_cpu_s = after.workers[0].cpu_s - before.workers[0].cpu_s;
    let handled = if point.subscribers == 0 { publishers.messages } else { subscribers.messages };
    Ok(Row {
        system: point.system,
        transport: "tcp",
        api: point.api,
        size_bytes: point.size,
        publishers: point.publishers,
        subscribers: point.subscribers,
        rep,
        published_per_s: publishers.messages_per_s,
        delivered_per_s: subscribers.messages_per_s,
        goodput_bytes_per_s: subscribers.messages_per_s * point.size as f64,
        lost,
        publisher_cpu_s_per_million: publishers.cpu_s_per_million(),
        subscriber_cpu_s_per_million: subscribers.cpu_s_per_million(),
        broker_cpu_s_per_million: per_million(broker_cpu_s, handled),
        broker_rss_bytes: after.broker_rss_bytes,
        other_cores: before.other_cores(&after),
        congestion_control: method.congestion.name().to_owned(),
    })
}

impl Fleet {
    fn start(point: &Point, method: &Method) -> Result<Fleet, BenchError> {
        let congestion = method.congestion.for_sockets();
        let mut args = match point.system {
            System::Rbmq => words(&["broker"]),
            System::Relay => words(&["relay", "--read-bytes", &method.relay_read_bytes.to_string()]),
        };
        add_congestion(&mut args, congestion);
        let broker = Process::start("broker or relay", &args)?;
        let addr = broker.answer("ready")?.join(" ");
        let size = point.size.to_string();
        let mut load = words(&["--system", point.system.name(), "--api", point.api.name()]);
        load.extend(words(&["--addr", &addr, "--size", &size]));
        load.extend(words(&["--subscribers", &point.subscribers.to_string()]));
        if let Some(bytes) = method.ring_bytes {
            load.extend(words(&["--ring-bytes", &bytes.to_string()]));
        }
        add_congestion(&mut load, congestion);
        let start = |role, which: &str, option: &str, number: u8| {
            let mut args = words(&[which, option, &number.to_string()]);
            args.extend_from_slice(&load);
            Process::start(role, &args)
        };
        let subscribers: Vec<Process> = (0..point.subscribers)
            .map(|_| start("subscriber", "subscriber", "--topics", point.publishers))
            .collect::<Result<_, _>>()?;
        for subscriber in &subscribers {
            subscriber.answer("ready")?;
        }
        let publishers: Vec<Process> = (0..point.publishers)
            .map(|topic| start("publisher", "publisher", "--topic", topic))
            .collect::<Result<_, _>>()?;
        for publisher in &publishers {
            publisher.answer("ready")?;
        }
        Ok(Fleet { broker, publishers, subscribers })
    }

    /// Everybody: the broker, then publishers, then subscribers.
    fn everybody(&self) -> impl Iterator<Item = &Process> {
        std::iter::once(&self.broker).chain(&self.publishers).chain(&self.subscribers)
    }

    fn mark(&mut self) -> Result<Mark, BenchError> {
        let counted = self.publishers.iter_mut().chain(&mut self.subscribers);
        counted.into_iter().try_for_each(|worker| worker.tell("mark"))?;
        let at = Instant::now();
        let busy_s = sys::machine_busy_s();
        let own_cpu_s = sys::process_cpu_s(std::process::id());
        let mut workers: Vec<WorkerMark> = self
            .everybody()
            .map(|worker| WorkerMark { cpu_s: sys::process_cpu_s(worker.pid()), messages: 0, nanos: 0 })
            .collect();
        for (worker, mark) in self.everybody().zip(&mut workers).skip(1) {
            let numbers = worker.numbers("count")?;
            (mark.messages, mark.nanos) = (numbers[0], numbers[1]);
        }
        Ok(Mark {
            at,
            busy_s,
            own_cpu_s,
            workers,
            broker_rss_bytes: sys::process_rss_bytes(self.broker.pid()),
        })
    }

    /// Ends the publishers and waits until what they published has arrived everywhere, or nothing more does.
    fn lost(&mut self) -> Result<u64, BenchError> {
        self.publishers.iter_mut().try_for_each(|publisher| publisher.tell("stop"))?;
        let mut published = Vec::new();
        for publisher in &self.publishers {
            published.extend(publisher.numbers("total")?);
        }
        let words: Vec<String> = published.iter().map(u64::to_string).collect();
        let expect = format!("expect {}", words.join(" "));
        self.subscribers.iter_mut().try_for_each(|subscriber| subscriber.tell(&expect))?;
        let mut lost = 0;
        for subscriber in &self.subscribers {
            let received = subscriber.numbers("total")?;
            lost += published.iter().zip(&received).map(|(sent, got)| sent.saturating_sub(*got)).sum::<u64>();
        }
        Ok(lost)
    }
}

struct WorkerMark {
    cpu_s: f64,
    messages: u64,
    nanos: u64,
}

struct Mark {
    at: Instant,
    busy_s: f64,
    own_cpu_s: f64,
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

    fn other_cores(&self, after: &Mark) -> f64 {
        let ours = |mark: &Mark| mark.own_cpu_s + mark.workers.iter().map(|worker| worker.cpu_s).sum::<f64>();
        let others_s = (after.busy_s - self.busy_s) - (ours(after) - ours(self));
        (others_s / (after.at - self.at).as_secs_f64()).max(0.0)
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn add_congestion(args: &mut Vec<String>, congestion: Option<&str>) {
    if let Some(name) = congestion {
        args.extend(words(&["--congestion", name]));
    }
}
