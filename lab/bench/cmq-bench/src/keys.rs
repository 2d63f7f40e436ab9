//! `cmq-bench keys`: the cost of a push as the number of keys grows.
//!
//! A process pushes messages of 4 bytes to its keys in turn, in three ways, and measures its own processor
//! time:
//!
//! * `full`: as fast as possible. Batches leave when they are full, so that each key has the same number of
//!   messages in a datagram.
//! * `aged`: at a fixed rate. Batches leave after 200 ms: with many keys few messages share a datagram.
//! * `idle`: after a message to each key, nothing happens.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use benchkit::{
    fleet::Process,
    output::{self, Output},
    turns::Series,
    view::Columns,
};
use cmq::{Config, Key};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::error::BenchError;
use super::{field::Field, point::CONGESTION};

/// Options of `cmq-bench keys`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Numbers of keys
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,10000,100000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: Vec<u32>,
    /// Messages per second while batches leave by age
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: u32,
    /// Repetitions
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    #[command(flatten)]
    output: Output,
}

/// Options of the pushing process.
#[derive(Debug, clap::Args)]
pub struct Pushes {
    /// Its address
    #[arg(long)]
    bind: SocketAddr,
    /// The destination
    #[arg(long)]
    to: SocketAddr,
    /// Keys
    #[arg(long)]
    keys: u32,
    /// Messages per second while batches leave by age
    #[arg(long)]
    rate: u32,
}

#[derive(Debug, Clone, Serialize)]
struct Row {
    system: &'static str,
    keys: u32,
    rep: u32,
    full_ns: f64,
    full_per_datagram: f64,
    aged_ns: f64,
    aged_per_datagram: f64,
    idle_cpu_percent: f64,
    rss_bytes: u64,
}

/// The messages of `full` at least; also at least a hundred for each key, more than a batch.
const FULL_MESSAGES: u64 = 4_000_000;
/// The duration of `aged` and of `idle`.
const LAST: Duration = Duration::from_millis(800);

/// Runs the bench.
///
/// # Errors
/// Nothing could be measured.
pub fn run(args: &Args) -> Result<(), BenchError> {
    let series = Series { reps: args.reps, name: "keys", output: &args.output, by_load: true };
    let rows = series.run(std::slice::from_ref(&args.keys), |&keys, rep| {
        let row = one(args, keys, rep)?;
        let summary = format!("{keys} keys: {:.0} ns, {:.0} ns by age", row.full_ns, row.aged_ns);
        Ok::<_, BenchError>((vec![row], summary))
    })?;
    let measured = format!(
        "4 B, qthresh 512 B; by age: {} messages/s, 200 ms; processor time of the whole process, sending included",
        args.rate
    );
    let text = format!("# keys\n\n{}\n{}", output::head(&measured), COLUMNS.table(&rows)?);
    Ok(args.output.publish("keys", &text)?)
}

const COLUMNS: Columns<'static> = Columns {
    who: &["system"],
    load: &["keys"],
    figures: &[
        "full_ns",
        "full_per_datagram",
        "aged_ns",
        "aged_per_datagram",
        "idle_cpu_percent",
        "rss_bytes",
    ],
    ours: "cmq",
};

fn one(args: &Args, keys: u32, rep: u32) -> Result<Row, BenchError> {
    let field = Field::new(CONGESTION, 0, false)?;
    let (near, far) = Field::addresses();
    // No process reads this socket: the datagrams are dropped there at no cost for the sender.
    let _sink = field.far.inside(|| UdpSocket::bind(far)).flatten()?;
    let mut words = vec!["keys".to_owned()];
    for (option, value) in [
        ("--bind", near.to_string()),
        ("--to", far.to_string()),
        ("--keys", keys.to_string()),
        ("--rate", args.rate.to_string()),
    ] {
        words.extend([option.to_owned(), value]);
    }
    let process = field.near.inside(|| Process::start("process that pushes", &words))??;
    let said = process.numbers_within("pushed", Duration::from_secs(120))?;
    let [full_ps, full_datagrams, full, aged_ps, aged_datagrams, aged, idle_ppm] = said[..] else {
        return Err(BenchError::Answer { said: format!("{said:?}") });
    };
    Ok(Row {
        system: "cmq",
        keys,
        rep,
        full_ns: full_ps as f64 / 1e3,
        full_per_datagram: full as f64 / full_datagrams.max(1) as f64,
        aged_ns: aged_ps as f64 / 1e3,
        aged_per_datagram: aged as f64 / aged_datagrams.max(1) as f64,
        idle_cpu_percent: idle_ppm as f64 / 1e4,
        rss_bytes: process.rss_bytes(),
    })
}

/// The processor time of this process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn ps_each(time: Duration, messages: u64) -> u64 {
    (time.as_nanos() * 1000 / u128::from(messages.max(1))) as u64
}

/// Pushes, and prints the cost.
///
/// # Errors
/// The queue failed.
pub fn push(pushes: &Pushes) -> io::Result<()> {
    let to = |id| Key::new(pushes.to, id);
    let open = |timeout| {
        let config = Config::paper().qthresh(Config::paper().qthresh).timeout(timeout);
        cmq::new_raw_rq(pushes.bind, config).map_err(io::Error::other)
    };
    // No batch leaves by age.
    let queue = open(Duration::from_secs(3600))?;
    let messages = FULL_MESSAGES.max(100 * u64::from(pushes.keys));
    let round = |from: u64, until: u64, queue: &cmq::Cmq<bytes::Bytes>| {
        for number in from..until {
            let id = (number % u64::from(pushes.keys)) as u32;
            queue.push_bytes(to(id), &id.to_le_bytes()).map_err(io::Error::other)?;
        }
        io::Result::Ok(())
    };
    // Everything that is made once for each key is made before.
    round(0, u64::from(pushes.keys), &queue)?;
    let (began, before) = (cpu(), queue.stats().sent_datagrams);
    round(0, messages, &queue)?;
    let full = ps_each(cpu() - began, messages);
    let full_datagrams = queue.stats().sent_datagrams - before;
    drop(queue);

    let queue = open(Duration::from_millis(200))?;
    let (cpu_began, began) = (cpu(), Instant::now());
    let mut aged = 0;
    while began.elapsed() < LAST {
        let due = (began.elapsed().as_secs_f64() * f64::from(pushes.rate)) as u64;
        round(aged, due, &queue)?;
        aged = due;
        thread::sleep(Duration::from_millis(1));
    }
    while queue.stats().pending_bytes > 0 {
        thread::sleep(Duration::from_millis(10));
    }
    let aged_cost = ps_each(cpu() - cpu_began, aged);
    let aged_datagrams = queue.stats().sent_datagrams;

    round(0, u64::from(pushes.keys), &queue)?;
    // Wait until the last batch has left.
    while queue.stats().pending_bytes > 0 {
        thread::sleep(Duration::from_millis(100));
    }
    let began = cpu();
    thread::sleep(LAST);
    let idle = (cpu() - began).as_nanos() * 1_000_000 / LAST.as_nanos();
    println!("pushed {full} {full_datagrams} {messages} {aged_cost} {aged_datagrams} {aged} {idle}");
    // The harness reads the memory now. The end of input ends the process.
    io::stdin().read_line(&mut String::new()).map(drop)
}
