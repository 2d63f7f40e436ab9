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

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use benchkit::{
    messages::Messages,
    named::Named,
    output::{self, Output},
    server,
    turns::Series,
    view::Columns,
};
use clap::Args;
use serde::Serialize;

use crate::{
    error::BenchError,
    peers::Guard,
    systems::{Setup, System},
};
use parts::{Kept, Load, UNCONFIRMED};

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
    /// The systems beside RBMQ: redis, nats, or resp, RBMQ's gateway for clients of Redis
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
    let keeps = |system: &System| matches!(system, System::Redis | System::Nats | System::Resp);
    systems.extend(args.against.iter().copied().filter(keeps));
    let load: Vec<_> =
        args.size.iter().flat_map(|size| systems.iter().map(move |system| (*system, *size))).collect();
    let series = Series { reps: args.reps, name: "kept", output: &args.output, by_load: true };
    let rows = series.run(&[load], |&(system, size), rep| {
        let (folder, rbmq) = (&args.folder, args.rbmq.as_deref());
        let point = Point { system, size, messages: args.messages, folder, rbmq };
        let rows = match point.server().and_then(|(server, _)| measure(&point, &server, rep)) {
            Err(BenchError::NotInstalled { peer }) => {
                eprintln!("SKIPPED: {peer} is not installed");
                Vec::new()
            }
            row => vec![row?],
        };
        Ok::<_, BenchError>((rows, format!("{} of {size} bytes", system.name())))
    })?;
    let measured =
        format!("one publisher with at most {UNCONFIRMED} unconfirmed messages, {} messages", args.messages);
    let text = format!("{}\n{}", output::head(&measured), COLUMNS.table(&rows)?);
    Ok(args.output.publish("kept", &text)?)
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
    /// Starts the server, and returns its version too.
    ///
    /// # Errors
    /// It is not there, or does not start.
    pub fn server(&self) -> Result<(Guard, String), BenchError> {
        let program = match self.system {
            System::Rbmq => {
                let beside = || Some(std::env::current_exe().ok()?.with_file_name("rbmq"));
                let beside = || beside().filter(|path| path.is_file());
                self.rbmq.map(Path::to_owned).or_else(beside).or_else(|| server::find("rbmq"))
            }
            other => other.find(),
        };
        let program = program.and_then(|path| std::path::absolute(path).ok());
        let folder = self.folder.canonicalize()?.join(format!("rbmq-bench-kept-{}", std::process::id()));
        let setup = Setup { keep: true, ..Setup::default() };
        let mut server = Guard::start(self.system, program, setup, folder)?;
        let version = server.wait_ready()?;
        Ok((server, version))
    }
}

/// Measures a point once.
///
/// # Errors
/// The server is not there, does not start, or says something else than it should.
pub fn measure(point: &Point<'_>, server: &Guard, rep: u32) -> Result<Row, BenchError> {
    let Point { system, size, messages: count, .. } = *point;
    let kept: &dyn Kept = match system {
        System::Redis | System::Resp => &redis::Redis,
        System::Nats => &nats::Nats,
        _ => &rbmq::Rbmq,
    };
    let size_bytes = size as usize;
    let mut load = Load { count, size: size_bytes, messages: Messages::new(size_bytes) };
    let timed = |half: &mut dyn FnMut() -> Result<(), BenchError>| -> Result<(f64, f64), BenchError> {
        let (cpu_s, begun) = (server.cpu_s(), Instant::now());
        half()?;
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        Ok((rate, (server.cpu_s() - cpu_s) * 1e6 / count as f64))
    };
    let (written_per_s, write_cpu_us) = timed(&mut || kept.write(server, &mut load))?;
    let (replayed_per_s, replay_cpu_us) = timed(&mut || kept.replay(server, &load))?;
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

const COLUMNS: Columns<'static> = Columns {
    who: &["system"],
    load: &["size_bytes"],
    figures: &["written_per_s", "write_cpu_us", "replayed_per_s", "replay_cpu_us"],
    ours: "rbmq",
};
