//! Viewers of one live stream: of a delivery node, and of the bare loop, in turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use commands::Failure;

use super::bare::Bare;
use super::node::{Certificate, Nodes, Stream};
use super::viewers::{self, Asking, Tally, Viewers};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Viewers
    #[arg(long, default_value_t = 500)]
    viewers: usize,
    /// Bits per second of the stream
    #[arg(long, default_value_t = 4_000_000)]
    rate: u64,
    /// Milliseconds of a part
    #[arg(long, default_value_t = 500)]
    part_ms: u64,
    /// Parts of a segment
    #[arg(long, default_value_t = 4)]
    parts: u32,
    /// The resource that viewers of the node ask for
    #[arg(long, value_enum, default_values_t = [Asking::Segments, Asking::Parts], value_delimiter = ',')]
    asking: Vec<Asking>,
    /// Seconds of each turn
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Turns
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Threads of the server
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Threads of the viewers
    #[arg(long, default_value_t = 1)]
    viewer_threads: usize,
    /// File for the rows, as JSON
    #[arg(long)]
    json: Option<std::path::PathBuf>,
}

/// The figures of a turn.
#[derive(Debug, Clone, serde::Serialize)]
struct Row {
    served_by: String,
    viewers: usize,
    rate: u64,
    gbit: f64,
    requests: u64,
    cpu_seconds: f64,
    cpu_seconds_per_gbit: f64,
    failed: usize,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..args.turns {
        for asking in args.asking.iter().copied().filter(|asking| *asking != Asking::Nothing) {
            rows.push(turn(args, Asking::Nothing, asking)?);
            rows.push(turn(args, asking, asking)?);
            for row in &rows[rows.len() - 2..] {
                println!(
                    "{:<14} {:>6.2} Gbit, {:>7} requests, {:.4} s of a processor per Gbit, {} failed",
                    row.served_by, row.gbit, row.requests, row.cpu_seconds_per_gbit, row.failed
                );
            }
        }
    }
    for asking in args.asking.iter().copied().filter(|asking| *asking != Asking::Nothing) {
        let of = |by: String| {
            let own = rows.iter().filter(|row| row.served_by == by);
            benchkit::stats::median(own.map(|row| row.cpu_seconds_per_gbit)).unwrap_or(f64::NAN)
        };
        let (bare, node) = (of(format!("bare {asking:?}")), of(format!("node {asking:?}")));
        println!(
            "{asking:?}: the node takes {:.3} of the bare loop (medians of {})",
            node / bare,
            args.turns
        );
    }
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}

/// The server of a turn.
enum Side {
    Bare(Bare),
    Node(Box<Nodes>),
}

impl Side {
    fn start(
        args: &Args,
        asking: Asking,
        certificate: &Certificate,
        stream: Stream,
    ) -> Result<Self, Failure> {
        Ok(match asking {
            Asking::Nothing => Self::Bare(Bare::start(certificate.server()?, args.viewers)?),
            _ => Self::Node(Box::new(Nodes::start(certificate, args.threads, stream)?)),
        })
    }

    fn address(&self) -> std::net::SocketAddr {
        match self {
            Self::Bare(bare) => bare.address,
            Self::Node(nodes) => nodes.address(),
        }
    }

    /// The name of the threads that serve.
    fn threads(&self) -> &'static str {
        match self {
            Self::Bare(_) => "bare",
            Self::Node(_) => "rblive-deliver",
        }
    }

    /// Writes a part. The bare loop sends a whole segment at once where viewers ask for segments, since that is when they can.
    fn write(&self, number: u64, bytes: &Arc<Vec<u8>>, at_once: u64) -> Result<(), Failure> {
        match self {
            Self::Node(nodes) => nodes.part(number)?,
            Self::Bare(bare) if (number + 1).is_multiple_of(at_once) => {
                let sent = bare.parts.send(bytes.clone());
                sent.map_err(|_| Failure::Failed("the bare loop has ended".into()))?;
            }
            Self::Bare(_) => {}
        }
        Ok(())
    }
}

fn turn(args: &Args, asking: Asking, like: Asking) -> Result<Row, Failure> {
    let certificate = Certificate::new()?;
    let part_bytes = (args.rate * args.part_ms / 8000) as usize;
    let stream = Stream { part_bytes, part: Duration::from_millis(args.part_ms), parts: args.parts };
    let side = Side::start(args, asking, &certificate, stream)?;
    let tally = Arc::new(Tally::default());
    let parts = u64::from(args.parts);
    if let Side::Node(nodes) = &side {
        // The first segment, so that the stream is there.
        (0..parts).try_for_each(|number| nodes.part(number))?;
        std::thread::sleep(Duration::from_millis(200));
    }
    tally.produced.store(parts, Ordering::Relaxed);
    let viewers = Viewers { count: args.viewers, threads: args.viewer_threads, asking, parts: args.parts };
    let threads = viewers::start(side.address(), &certificate.client()?, viewers, &tally)?;
    tally.wait_connected(args.viewers);
    let at_once = if like == Asking::Segments { parts } else { 1 };
    let bytes = Arc::new((0..part_bytes * at_once as usize).map(|at| at as u8).collect::<Vec<u8>>());
    let (began, warm) = (Instant::now(), parts * 2);
    let mut before = (0, 0.0, 0);
    for step in 0..warm + args.seconds * 1000 / args.part_ms {
        let due = began + Duration::from_millis((step + 1) * args.part_ms);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if step == warm {
            before = totals(&tally, side.threads())?;
        }
        side.write(parts + step, &bytes, at_once)?;
        tally.produced.store(parts + step + 1, Ordering::Relaxed);
    }
    std::thread::sleep(Duration::from_millis(args.part_ms));
    let after = totals(&tally, side.threads())?;
    let failed = tally.failed.load(Ordering::Relaxed);
    tally.stopped.store(true, Ordering::Relaxed);
    drop(side);
    for thread in threads {
        let _ = thread.join();
    }
    let served_by = match asking {
        Asking::Nothing => format!("bare {like:?}"),
        _ => format!("node {asking:?}"),
    };
    Ok(Row::new(args, served_by, before, after, failed))
}

/// Bytes of media, processor time, requests.
type Totals = (u64, f64, u64);

impl Row {
    fn new(args: &Args, served_by: String, before: Totals, after: Totals, failed: usize) -> Self {
        let (gbit, cpu_seconds) = ((after.0 - before.0) as f64 * 8.0 / 1e9, after.1 - before.1);
        Self {
            served_by,
            viewers: args.viewers,
            rate: args.rate,
            gbit,
            requests: after.2 - before.2,
            cpu_seconds,
            cpu_seconds_per_gbit: cpu_seconds / gbit,
            failed,
        }
    }
}

/// Bytes of media that viewers got, processor time of the serving threads, requests.
fn totals(tally: &Tally, thread: &str) -> Result<Totals, Failure> {
    let mut nanoseconds = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if std::fs::read_to_string(path.join("comm"))?.trim() == thread {
            let stat = std::fs::read_to_string(path.join("schedstat"))?;
            nanoseconds += stat.split(' ').next().and_then(|own| own.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    let (bytes, requests) = (&tally.bytes, &tally.requests);
    Ok((bytes.load(Ordering::Relaxed), nanoseconds as f64 / 1e9, requests.load(Ordering::Relaxed)))
}
