//! `seglog verify DIR` and `seglog dump DIR`: looks into a log, also while it is written.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use seglog::{Batch, HoleCause, Options, Read, Reader};

const USAGE: &str = "usage: seglog verify DIR              checks every record; exits with 1 if some are damaged
       seglog dump DIR [FROM [TO]]    lists batches and holes of these positions
       seglog cat DIR [FROM [TO]]     writes the bytes of these positions to standard output, without the holes
The log may have a writer. Nothing is changed.";

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    // A write beyond the limit of file sizes (`ulimit -f`) is an error of that write, where it would end the process without a word.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(code) => code,
        Err(error) => {
            // A program that reads the output and ends early, as `head` does, has seen enough.
            if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
                return ExitCode::SUCCESS;
            }
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "seglog: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(words: &[&str]) -> Result<ExitCode, Failure> {
    let out = &mut io::stdout().lock();
    match words {
        ["verify", dir] => verify(dir, out),
        ["dump", dir, range @ ..] if range.len() <= 2 => {
            each(dir, range, |read| Ok(out.write_all(line(read).as_bytes())?))
        }
        ["cat", dir, range @ ..] if range.len() <= 2 => each(dir, range, |read| match read {
            Read::Batch(batch) => Ok(out.write_all(&batch.bytes)?),
            _ => Ok(()),
        }),
        ["--help" | "-h"] => {
            writeln!(out, "{USAGE}")?;
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(USAGE.into()),
    }
}

/// Hands the batches and holes of a range to `take`, cut to the range.
fn each(
    dir: &str,
    range: &[&str],
    mut take: impl FnMut(&Read) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let position = |text: &&str| text.parse().map_err(|_| format!("{text} is no position"));
    let mut reader = Reader::open(dir, Options::default())?;
    let mut at = range.first().map(position).transpose()?.unwrap_or_else(|| reader.first());
    let to: u64 = range.get(1).map(position).transpose()?.unwrap_or(u64::MAX);
    while at < to {
        let mut read = reader.read(at)?;
        at = match &mut read {
            Read::Batch(batch) => {
                let len = usize::try_from(to - at).unwrap_or(usize::MAX).min(batch.bytes.len());
                batch.bytes.truncate(len);
                batch.end()
            }
            Read::Hole(hole) => {
                hole.range.end = hole.range.end.min(to);
                hole.range.end
            }
            Read::Removed { first } => *first,
            _ => break,
        };
        take(&read)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line of a dump: positions, what they are, the time, and the first bytes.
fn line(read: &Read) -> String {
    match read {
        Read::Batch(Batch { position, bytes, time, .. }) => {
            let mut line = format!("{position} {} data time={time} bytes=", position + bytes.len() as u64);
            for byte in bytes.iter().take(16) {
                // Writing to a string cannot fail.
                let _ = write!(line, "{byte:02x}");
            }
            line + if bytes.len() > 16 { "…\n" } else { "\n" }
        }
        Read::Hole(hole) => {
            let cause = if hole.cause == HoleCause::Damaged { "damaged" } else { "hole" };
            format!("{} {} {cause}\n", hole.range.start, hole.range.end)
        }
        Read::Removed { first } => format!("- {first} removed\n"),
        _ => String::new(),
    }
}

/// Reads everything, and tells its extent.
fn verify(dir: &str, out: &mut impl io::Write) -> Result<ExitCode, Failure> {
    let mut reader = Reader::open(dir, Options::default())?;
    let (first, mut at) = (reader.first(), reader.first());
    let (mut batches, mut bytes, mut holes, mut damaged) = (0u64, 0, 0, 0);
    loop {
        match reader.read(at)? {
            Read::Batch(batch) => {
                batches += 1;
                bytes += batch.bytes.len() as u64;
                at = batch.end();
            }
            Read::Hole(hole) => {
                let len = hole.range.end - hole.range.start;
                match hole.cause {
                    HoleCause::Damaged => {
                        damaged += len;
                        writeln!(out, "damaged: {} to {}", hole.range.start, hole.range.end)?;
                    }
                    _ => holes += len,
                }
                at = hole.range.end;
            }
            Read::Removed { first } => at = first,
            _ => break,
        }
    }
    let missing = reader.missing();
    // A writer that has opened the log meanwhile has made a hole of it.
    if !missing.is_empty() && at <= missing.start {
        damaged += missing.end - missing.start;
        writeln!(out, "missing at the end: {} to {}", missing.start, missing.end)?;
    }
    let id: String = reader.id().iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(out, "log {id}: positions {first} to {at}, {} segments", reader.stats().segments)?;
    writeln!(out, "{batches} batches, {bytes} bytes, {holes} in holes, {damaged} damaged")?;
    Ok(if damaged > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
