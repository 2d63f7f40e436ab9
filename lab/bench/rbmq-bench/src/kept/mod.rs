//! `rbmq-bench kept`: messages that a server keeps on disk, beside the streams of Redis and of NATS, natively or by a gateway: how fast they are written, and
//! how fast a subscriber that begins with the oldest gets them back.
//!
//! ```text
//!   publisher (this process) ──▶ server ──▶ files        until the server has confirmed the last message
//!   subscriber (this process) ◀── server ◀── files       until the last message, each with its number
//! ```

mod nats;
mod parts;
mod rbmq;
mod redis;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use benchkit::output::Output;
use benchkit::turns::Series;
use benchkit::{stats, sys};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::error::BenchError;
pub use parts::Server;
use parts::{Kept, Messages, UNCONFIRMED};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rbmq-bench kept --size 256 --messages 200000 --reps 1
  rbmq-bench kept --against redis --folder /var/tmp

Every server keeps its files in a folder of its own, and has the durability that it starts with: RBMQ syncs every 200 ms, Redis every
second (appendfsync everysec), NATS every two minutes.")]
pub struct KeptArgs {
    /// Payload bytes of a message
    #[arg(long, value_delimiter = ',', default_value = "64,256,1024")]
    size: Vec<u32>,
    /// Messages of each measurement
    #[arg(long, default_value_t = 1_000_000)]
    messages: u64,
    #[arg(long, default_value_t = 3)]
    reps: u32,
    /// The systems beside RBMQ
    #[arg(long, value_enum, value_delimiter = ',', default_value = "redis,nats")]
    against: Vec<System>,
    /// The folder for the servers' files; a disk, and no memory
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// The command rbmq [default: beside this program]
    #[arg(long)]
    rbmq: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// A kept topic
    Rbmq,
    /// A stream (XADD, XREAD), in the append-only file
    Redis,
    /// A stream of `JetStream`, in files
    Nats,
    /// A kept topic by way of RBMQ's gateway for clients of Redis
    Resp,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            Self::Rbmq => "rbmq",
            Self::Redis => "redis",
            Self::Nats => "nats",
            Self::Resp => "resp",
        }
    }
}

/// A measurement: a flat object in the JSON.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    system: System,
    size_bytes: u32,
    rep: u32,
    messages: u64,
    pub written_per_s: f64,
    /// Processor time of the server for a message, written and read.
    pub write_cpu_us: f64,
    pub replayed_per_s: f64,
    pub replay_cpu_us: f64,
}

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &KeptArgs) -> Result<(), BenchError> {
    if args.size.iter().any(|size| *size < 8) || args.messages == 0 {
        return Err(BenchError::BadPing);
    }
    let mut systems = vec![System::Rbmq];
    systems.extend(args.against.iter().copied().filter(|system| *system != System::Rbmq));
    let load: Vec<_> =
        args.size.iter().flat_map(|size| systems.iter().map(move |system| (*system, *size))).collect();
    let series = Series { reps: args.reps, name: "kept", output: &args.output, by_load: true };
    let rows = series.run(&[load], |&(system, size), rep| {
        let (folder, rbmq) = (&args.folder, args.rbmq.as_deref());
        let point = Point { system, size, messages: args.messages, folder, rbmq };
        let rows = match point.server().and_then(|server| measure(&point, &server, rep)) {
            Err(BenchError::NotInstalled { peer }) => {
                eprintln!("SKIPPED: {peer} is not installed");
                Vec::new()
            }
            row => vec![row?],
        };
        Ok::<_, BenchError>((rows, format!("{} of {size} bytes", system.name())))
    })?;
    args.output.publish("kept", &table(args, &rows), &[])?;
    Ok(())
}

/// A measured point.
#[derive(Clone, Copy)]
pub struct Point<'a> {
    pub system: System,
    pub size: u32,
    pub messages: u64,
    /// The folder for the server's files.
    pub folder: &'a Path,
    /// The command rbmq, if it is not beside this program.
    pub rbmq: Option<&'a Path>,
}

impl Point<'_> {
    /// Starts the server.
    ///
    /// # Errors
    /// It is not there, or does not start.
    pub fn server(&self) -> Result<Server, BenchError> {
        match self.system {
            System::Rbmq => rbmq::start(self.folder, self.rbmq),
            System::Redis => redis::start(self.folder),
            System::Nats => nats::start(self.folder),
            System::Resp => redis::start_gateway(self.folder),
        }
    }
}

/// Measures a point once.
///
/// # Errors
/// The server is not there, does not start, or says something else than it should.
pub fn measure(point: &Point<'_>, server: &Server, rep: u32) -> Result<Row, BenchError> {
    let Point { system, size, messages: count, .. } = *point;
    let kept: &dyn Kept = match system {
        System::Rbmq => &rbmq::Rbmq,
        System::Redis | System::Resp => &redis::Redis,
        System::Nats => &nats::Nats,
    };
    let mut messages = Messages::new(count, size);
    let timed = |half: &mut dyn FnMut() -> Result<(), BenchError>| -> Result<(f64, f64), BenchError> {
        let (cpu_s, begun) = (server.cpu_s(), Instant::now());
        half()?;
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        Ok((rate, (server.cpu_s() - cpu_s) * 1e6 / count as f64))
    };
    let (written_per_s, write_cpu_us) = timed(&mut || kept.write(server, &mut messages))?;
    let (replayed_per_s, replay_cpu_us) = timed(&mut || kept.replay(server, &messages))?;
    Ok(Row {
        system,
        size_bytes: size,
        rep,
        messages: count,
        written_per_s,
        write_cpu_us,
        replayed_per_s,
        replay_cpu_us,
    })
}

fn table(args: &KeptArgs, rows: &[Row]) -> String {
    let mut text = format!(
        "# Messages that are kept on disk\n\n{}, {}. One publisher with at most {UNCONFIRMED} unconfirmed messages, then one subscriber \
         from the oldest message on; {} messages, medians of {} repetitions.\n\n\
         | bytes | system | written per s | of rbmq's | server's us per message | replayed per s | of rbmq's | server's us per message |\n\
         | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        sys::kernel(),
        sys::cpu(),
        args.messages,
        args.reps
    );
    let median = |system: System, size: u32, value: fn(&Row) -> f64| {
        let own = rows.iter().filter(|row| row.system == system && row.size_bytes == size);
        stats::median(own.map(value))
    };
    for size in &args.size {
        for system in [System::Rbmq, System::Redis, System::Nats, System::Resp] {
            let of = |value| median(system, *size, value);
            let (Some(written), Some(replayed)) = (of(|row| row.written_per_s), of(|row| row.replayed_per_s))
            else {
                continue;
            };
            let ours = |value| median(System::Rbmq, *size, value).unwrap_or(f64::NAN);
            let _ = writeln!(
                text,
                "| {size} | {} | {written:.0} | {:.3} | {:.3} | {replayed:.0} | {:.3} | {:.3} |",
                system.name(),
                written / ours(|row| row.written_per_s),
                of(|row| row.write_cpu_us).unwrap_or(f64::NAN),
                replayed / ours(|row| row.replayed_per_s),
                of(|row| row.replay_cpu_us).unwrap_or(f64::NAN),
            );
        }
    }
    text
}
