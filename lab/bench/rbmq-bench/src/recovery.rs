//! `rbmq-bench recovery`: the pause after a connection was cut or the broker was killed, and the messages that are missing or
//! came twice.
//!
//! ```text
//!   publisher of numbers ──(cut)── broker ──(cut)── subscriber that counts them
//!                                  (killed, and started again)
//! ```

use std::{thread, time::Duration};

use benchkit::{
    fleet::{Process, words},
    named::Named,
    view::Columns,
};
use clap::{Args, ValueEnum};
use serde::Serialize;
use testkit::Proxy;

use crate::{
    campaign::Common,
    counting,
    error::BenchError,
    measure::{Method, Middle, add_congestion},
    report::Setting,
    systems::System,
    ways::Way,
};

/// A pause that begins within this time after the cut follows from the cut: buffered messages still come after it.
const BEGINS_WITHIN_NS: u64 = 200_000_000;

/// The time within which all processes report their messages.
const REPORT_WITHIN: Duration = Duration::from_secs(30);

/// The options of `rbmq-bench recovery`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rbmq-bench recovery --cut subscriber --seconds 1 --reps 1
  rbmq-bench recovery --against redis")]
pub struct RecoveryArgs {
    #[command(flatten)]
    common: Common,
    /// The connections or processes to cut
    #[arg(long, value_enum, value_delimiter = ',', default_value = "subscriber,publisher,broker")]
    cut: Vec<Cut>,
    /// Messages per second
    #[arg(long, default_value_t = 1000.0)]
    rate: f64,
    /// Payload bytes of a message, at least 8
    #[arg(long, default_value_t = 256)]
    size: u32,
}

/// The connection or process that is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cut {
    /// The subscriber's connection
    Subscriber,
    /// The publisher's connection
    Publisher,
    /// The broker: killed, and started again at the same address
    Broker,
}

impl Cut {
    fn what(self) -> &'static str {
        match self {
            Cut::Subscriber => "subscriber's connection",
            Cut::Publisher => "publisher's connection",
            Cut::Broker => "broker",
        }
    }
}

/// A measurement: a flat object in the JSON. See lab/bench/README.md.
#[derive(Debug, Clone, Serialize)]
struct Row {
    system: System,
    cut: Cut,
    size_bytes: u32,
    rep: u32,
    asked_per_s: f64,
    /// From the cut to the first new message after the pause.
    resume_ms: f64,
    published: u64,
    lost: u64,
    repeated: u64,
    lost_bytes: u64,
    repeated_bytes: u64,
    #[serde(flatten)]
    setting: Setting,
}

const COLUMNS: Columns<'static> = Columns {
    who: &["system"],
    load: &["cut"],
    figures: &["resume_ms", "published", "lost", "repeated"],
    ours: "rbmq",
};

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &RecoveryArgs) -> Result<(), BenchError> {
    const NAME: &str = "recovery";
    if args.size < 8 || !(args.rate.is_finite() && args.rate > 0.0) {
        return Err(BenchError::BadPing);
    }
    let method = args.common.method()?;
    let mut systems = args.common.systems();
    if systems.contains(&System::Relay) {
        eprintln!("SKIPPED: the relay has no clients that reconnect");
        systems.retain(|system| *system != System::Relay);
    }
    if systems.contains(&System::RedisServers) {
        eprintln!("SKIPPED: redis-servers are many, of which only one would be cut");
        systems.retain(|system| *system != System::RedisServers);
    }
    if systems.is_empty() || args.cut.is_empty() {
        return Err(BenchError::NothingToMeasure);
    }
    let load = |cut: &Cut| systems.iter().map(|system| (*system, *cut)).collect::<Vec<_>>();
    let loads: Vec<_> = args.cut.iter().map(load).collect();
    let rows = args.common.series(NAME).run(&loads, |&(system, cut), rep| {
        let row = measure(args, &method, system, cut, rep)?;
        let (of, system, Row { resume_ms, lost, repeated, .. }) = (cut.what(), system.name(), &row);
        let summary =
            format!("{of:<24} {system:<9} #{rep}  {resume_ms:.1} ms  lost {lost}  repeated {repeated}");
        Ok::<_, BenchError>((vec![row], summary))
    })?;
    let versions = rows.iter().map(|row| (row.system, row.setting.system_version.as_str()));
    let text = format!("{}\n{}", args.common.head(&method, versions), COLUMNS.table(&rows)?);
    Ok(args.common.output.publish(NAME, &text)?)
}

fn measure(
    args: &RecoveryArgs,
    method: &Method,
    system: System,
    cut: Cut,
    rep: u32,
) -> Result<Row, BenchError> {
    let mut middle = Middle::start(system, Way::Tcp, method)?;
    let proxy = Proxy::to(&middle.addr);
    let (mut publisher, mut subscriber) = clients(args, method, system, cut, &middle.addr, &proxy)?;
    publisher.send("go")?;
    thread::sleep(method.warmup + Duration::from_millis(200));
    let at = counting::now_ns();
    match cut {
        Cut::Broker => middle.restart(system, method)?,
        Cut::Subscriber | Cut::Publisher => proxy.interrupt(),
    }
    thread::sleep(method.window);
    publisher.send("stop")?;
    let published = publisher.numbers_within("total", REPORT_WITHIN)?;
    let published = published.first().copied().unwrap_or(0);
    subscriber.send(&format!("expect {published}"))?;
    let came = subscriber.numbers_within("total", REPORT_WITHIN)?;
    let (received, repeated) = (came.first().copied().unwrap_or(0), came.get(1).copied().unwrap_or(0));
    let lost = published.saturating_sub(received);
    Ok(Row {
        system,
        cut,
        size_bytes: args.size,
        rep,
        asked_per_s: args.rate,
        resume_ms: resumed_after(at, came.get(2..).unwrap_or_default()) as f64 / 1e6,
        published,
        lost,
        repeated,
        lost_bytes: lost * u64::from(args.size),
        repeated_bytes: repeated * u64::from(args.size),
        setting: Setting::new(system, &middle.version, &method.congestion),
    })
}

/// The publisher and the subscriber, connected, one of them perhaps through the proxy.
fn clients(
    args: &RecoveryArgs,
    method: &Method,
    system: System,
    cut: Cut,
    addr: &str,
    proxy: &Proxy,
) -> Result<(Process, Process), BenchError> {
    let (size, rate) = (args.size.to_string(), args.rate.to_string());
    let start = |role, worker: &str, place: Cut| {
        let addr = if cut == place { &proxy.addr } else { addr };
        let mut args = words(&[worker, "--size", &size, "--rate", &rate]);
        args.extend(words(&["--system", &system.name(), "--addr", addr]));
        add_congestion(&mut args, method.congestion.for_sockets());
        Process::start(role, &args)
    };
    let subscriber = start("counting subscriber", "count-numbers", Cut::Subscriber)?;
    subscriber.answer("ready")?;
    let publisher = start("publisher of numbers", "publish-numbers", Cut::Publisher)?;
    publisher.answer("ready")?;
    Ok((publisher, subscriber))
}

/// Nanoseconds from the cut to the end of its pause: the longest pause that ends after the cut and begins before it or
/// soon after. 0 if there is none.
fn resumed_after(cut: u64, pauses: &[u64]) -> u64 {
    let of_the_cut = |pause: &&[u64]| pause[1] > cut && pause[0] < cut + BEGINS_WITHIN_NS;
    let longest = pauses.chunks_exact(2).filter(of_the_cut).max_by_key(|pause| pause[1] - pause[0]);
    longest.map_or(0, |pause| pause[1] - cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_of_a_cut_is_the_longest_around_it() {
        const MS: u64 = 1_000_000;
        let pauses = [1, 90, 95, 99, 104, 180, 190, 194, 900, 990].map(|ms| ms * MS);
        assert_eq!(resumed_after(100 * MS, &pauses), 80 * MS);
        assert_eq!(resumed_after(100 * MS, &[]), 0);
    }
}
