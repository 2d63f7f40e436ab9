//! A measurement: two processes in two namespaces, a broker if the system has one, and a row.

use std::{io, thread, time::Duration};

use benchkit::{
    fleet::Process,
    folder::{Folder, unused},
    server::{self, Group, Start},
    sys,
};
use serde::Serialize;

use super::error::BenchError;
use super::{
    field::{FAR, Field},
    system::{Pattern, System},
};

/// The TCP congestion control of every system.
pub const CONGESTION: &str = "cubic";
/// The most outstanding bytes: more overrun the socket buffers of systems without flow control.
const MAX_OUTSTANDING_BYTES: u32 = 1 << 20;
/// A point that takes longer has failed.
const POINT_WITHIN: Duration = Duration::from_secs(120);
/// How long messages may still arrive, or be reported as lost, after the driver has finished.
const SETTLE: Duration = Duration::from_millis(100);

/// A point to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The system.
    pub system: System,
    /// The pattern.
    pub pattern: Pattern,
    /// The size of a message in bytes.
    pub size: u32,
    /// The packets of each thousand that are dropped.
    pub dropped_of_1000: u32,
    /// True if large segments are cut before the link.
    pub cut: bool,
    /// The most outstanding messages, before [`MAX_OUTSTANDING_BYTES`].
    pub outstanding: u32,
    /// The messages of an exchange.
    pub messages: u32,
    /// The timed exchanges at least.
    pub least: u32,
    /// The time of timed exchanges at least.
    pub time: Duration,
}

impl Point {
    /// The window beyond the last answered number: the same for every system.
    pub fn window(&self) -> u32 {
        match self.pattern {
            Pattern::Pingpong => 1,
            _ => self.outstanding.min(MAX_OUTSTANDING_BYTES / self.size).max(1),
        }
    }

    /// The share of incoming packets that are dropped.
    pub fn loss(&self) -> f64 {
        f64::from(self.dropped_of_1000) / 1000.0
    }

    fn answer_every(&self) -> u32 {
        if self.pattern == Pattern::Oneway { (self.window() / 4).max(1) } else { 1 }
    }
}

/// A measurement: a flat object in the JSON, units in the keys. See lab/bench/README.md.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The system.
    pub system: System,
    /// The pattern.
    pub pattern: Pattern,
    /// The size of a message in bytes.
    pub size_bytes: u32,
    /// The share of incoming packets that were dropped.
    pub loss: f64,
    /// The most outstanding messages.
    pub outstanding: u32,
    /// Repetition, from 0.
    pub rep: u32,
    /// The messages of an exchange.
    pub messages: u32,
    /// The number of timed exchanges.
    pub exchanges: u64,
    /// Mean time of an exchange.
    pub mean_ms: f64,
    /// Standard deviation of these times.
    pub stddev_ms: f64,
    /// Messages of an exchange divided by its mean time, times the share of messages that the answerer
    /// received.
    pub messages_per_s: f64,
    /// The bytes of these messages.
    pub bytes_per_s: f64,
    /// Messages that the driver sent, with warm-up.
    pub sent: u64,
    /// Messages that the answerer received.
    pub received: u64,
    /// Messages that the answerer's system reported as lost.
    pub lost_reported: u64,
    /// Messages of CMQ in the dropped packets.
    pub lost_by_filter: u64,
    /// Packets that were dropped.
    pub packets_by_filter: u64,
    /// How often the driver gave up outstanding messages.
    pub given_up: u64,
    /// `qthresh` of CMQ.
    pub qthresh_bytes: usize,
    /// `timeout` of CMQ.
    pub timeout_ms: f64,
    /// The TCP congestion control.
    pub congestion_control: &'static str,
    /// The kernel.
    pub kernel: String,
    /// The processor and its cores.
    pub cpu: String,
    /// The command line of the bench.
    pub command: String,
}

/// A NATS server, and a folder of its own, which is removed after it.
type Broker = (Group, Folder);

fn start_broker(field: &Field) -> io::Result<Broker> {
    let program = server::find("nats-server").ok_or(io::ErrorKind::NotFound)?;
    let folder = Folder::make(unused("cmq-bench"))?;
    let args = ["--addr", FAR, "--port", "4222"].map(str::to_owned).to_vec();
    let start = Start { program, args, env: Vec::new() };
    let group = field.far.inside(|| Group::start(&start, folder.path(), "server.log")).flatten()?;
    Ok((group, folder))
}

/// The two ends of a point, connected and ready to begin.
pub struct Pair {
    /// Sends numbers.
    pub driver: Process,
    /// Answers them.
    pub answerer: Process,
    _broker: Option<Broker>,
}

impl Pair {
    /// Starts them.
    ///
    /// # Errors
    /// A program is missing or failed.
    pub fn start(point: &Point, field: &Field) -> Result<Pair, BenchError> {
        let broker = (point.system == System::Nats).then(|| start_broker(field)).transpose()?;
        let (near, far) = Field::addresses();
        let answerer = Pair::end(point, "answer", |command| {
            field.far.inside(|| Process::spawn("answerer", command(far, near)?))
        })?;
        let driver = Pair::end(point, "drive", |command| {
            field.near.inside(|| Process::spawn("driver", command(near, far)?))
        })?;
        Ok(Pair { driver, answerer, _broker: broker })
    }

    fn end(
        point: &Point,
        role: &str,
        start: impl FnOnce(
            &dyn Fn(std::net::SocketAddr, std::net::SocketAddr) -> io::Result<std::process::Command>,
        ) -> io::Result<Result<Process, benchkit::Error>>,
    ) -> Result<Process, BenchError> {
        let (qthresh, timeout) = point.system.batches(point.pattern);
        let command = |bind, to| {
            let command = point.system.command(role, bind, to);
            let mut command = command.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            for (option, value) in [
                ("--size", u64::from(point.size)),
                ("--outstanding", u64::from(point.window())),
                ("--answer-every", u64::from(point.answer_every())),
                ("--messages", u64::from(point.messages)),
                ("--warmup", 1),
                ("--least", u64::from(point.least)),
                ("--time-ms", point.time.as_millis() as u64),
                ("--give-up-us", point.system.give_up().as_micros() as u64),
                ("--qthresh", qthresh as u64),
                ("--timeout-us", timeout.as_micros() as u64),
            ] {
                command.args([option, &value.to_string()]);
            }
            Ok(command)
        };
        let process = start(&command)??;
        process.answer("ready")?;
        Ok(process)
    }
}

/// Received messages per second. An exchange also ends when its messages are lost or given up.
fn delivered_per_s(messages: f64, mean_ns: u64, received: u64, sent: u64) -> f64 {
    let share = received.min(sent) as f64 / sent.max(1) as f64;
    messages * share / (mean_ns.max(1) as f64 / 1e9)
}

/// Measures a point once.
///
/// # Errors
/// A program is missing or failed, or a wrong message arrived.
pub fn measure(point: &Point, rep: u32) -> Result<Row, BenchError> {
    let field = Field::new(CONGESTION, point.dropped_of_1000, point.cut)?;
    let mut pair = Pair::start(point, &field)?;
    pair.driver.send("go")?;
    let done = pair.driver.numbers_within("done", POINT_WITHIN + point.time)?;
    let [sent, _answers, _lost, given_up, exchanges, mean_ns, deviation_ns] = done[..] else {
        return Err(BenchError::Answer { said: format!("{done:?}") });
    };
    thread::sleep(SETTLE);
    pair.answerer.send("stop")?;
    let total = pair.answerer.numbers_within("total", POINT_WITHIN)?;
    let [received, lost_reported] = total[..] else {
        return Err(BenchError::Answer { said: format!("{total:?}") });
    };
    let dropped = field.dropped()?;
    let (qthresh, timeout) = point.system.batches(point.pattern);
    let messages_per_s = delivered_per_s(f64::from(point.messages), mean_ns, received, sent);
    Ok(Row {
        system: point.system,
        pattern: point.pattern,
        size_bytes: point.size,
        loss: point.loss(),
        outstanding: point.window(),
        rep,
        messages: point.messages,
        exchanges,
        mean_ms: mean_ns as f64 / 1e6,
        stddev_ms: deviation_ns as f64 / 1e6,
        messages_per_s,
        bytes_per_s: messages_per_s * f64::from(point.size),
        sent,
        received,
        lost_reported,
        lost_by_filter: dropped.messages_of(point.system),
        packets_by_filter: dropped.packets,
        given_up,
        qthresh_bytes: if point.system.is_ours() { qthresh } else { 0 },
        timeout_ms: if point.system.is_ours() { timeout.as_secs_f64() * 1e3 } else { 0.0 },
        congestion_control: CONGESTION,
        kernel: sys::kernel(),
        cpu: sys::cpu(),
        command: sys::command(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_messages_do_not_count() {
        assert_eq!(delivered_per_s(1000.0, 1_000_000, 500, 500), 1e6);
        assert_eq!(delivered_per_s(1000.0, 1_000_000, 250, 500), 5e5);
        assert_eq!(delivered_per_s(1000.0, 1_000_000, 0, 0), 0.0);
        assert_eq!(delivered_per_s(1000.0, 1_000_000, 501, 500), 1e6, "a duplicate counts once");
    }
}
