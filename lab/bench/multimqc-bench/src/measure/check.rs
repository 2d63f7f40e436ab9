//! `multimqc-bench check`: every processor writes as fast as it can, and nothing is torn, and no hole is silent.
//!
//! Each processor has a generator of frames, whose messages are numbered. The reader looks at every byte of the log: it is a part of a
//! message that a generator has sent, later than the one before of that generator, or of a hole that was reported.

use std::time::{Duration, Instant};

use benchkit::output::write_json;
use commands::{Failure, Stop};
use serde::Serialize;

use super::follow::{MESSAGE, Seen, WRITER_SHIFT};
use super::placement::{Placement, Processors};
use super::process::{Process, sent_by};
use super::row;
use super::system::{PUSH_PORT, received_by_device};
use super::world::{SERVER_DEVICE, World};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  sudo multimqc-bench check --seconds 10 --rings 4096,1048576,67108864

Needs root. Exit status 1 if a message was torn, out of order, or missing without a hole.")]
pub struct Args {
    /// How long messages are written, for each ring
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = super::options::parse_seconds)]
    seconds: f64,
    /// Bytes of the ring, a power of two: a small one is overwritten before it is read
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [4096, 1 << 20, 64 << 20])]
    rings: Vec<u64>,
    /// Write the results to this file, as a JSON array
    #[arg(long, value_name = "FILE")]
    json: Option<std::path::PathBuf>,
}

/// The result for a ring.
#[derive(Debug, Serialize)]
struct Outcome {
    kernel: String,
    ring_bytes: u64,
    processors: usize,
    /// Messages stored per second, while all generators ran.
    messages_per_s: f64,
    sent: u64,
    /// Frames that the receiving device dropped before the level had them.
    lost_before: u64,
    #[serde(flatten)]
    seen: Seen,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let processors = Processors::find()?;
    let world = World::new(processors.count())?;
    world.require_frames()?;
    let mut outcomes = Vec::new();
    for ring_bytes in &args.rings {
        let outcome = check(&world, &processors, *ring_bytes, args.seconds)?;
        outcome.print()?;
        let failure = outcome.failure();
        outcomes.push(outcome);
        if let Some(path) = &args.json {
            write_json(path, &outcomes)?;
        }
        if let Some(why) = failure {
            return Err(Failure::Failed(why));
        }
        if stop.asked() {
            break;
        }
    }
    Ok(())
}

fn check(world: &World, processors: &Processors, ring_bytes: u64, seconds: f64) -> Result<Outcome, Failure> {
    let ring = ring_bytes.to_string();
    let args = ["follow", "--interface", SERVER_DEVICE, "--ring-bytes", &ring];
    let mut reader = Process::start(&world.server, &args.map(str::to_owned), "listening")?;
    let everywhere = processors.of_clients(Placement::Everywhere);
    let mut generators = Vec::new();
    for (writer, processor) in (1_u64..).zip(everywhere) {
        let first = ((writer << WRITER_SHIFT) + 1).to_string();
        let more = ["--kind", "frames", "--number-from", &first];
        generators.push(world.generator(Some(*processor), PUSH_PORT, MESSAGE as u16, seconds, &more)?);
    }
    let (begin, [before, _]) = (Instant::now(), received_by_device(reader.id(), SERVER_DEVICE)?);
    std::thread::sleep(Duration::from_secs_f64(seconds * 0.8));
    let (elapsed, [after, _]) = (begin.elapsed(), received_by_device(reader.id(), SERVER_DEVICE)?);
    let sent = sent_by(&generators)?;
    reader.ask_to_stop();
    let line = reader.line()?;
    let seen: Seen =
        serde_json::from_str(&line).map_err(|error| Failure::Failed(format!("{line}: {error}")))?;
    Ok(Outcome {
        kernel: row::kernel(),
        ring_bytes,
        processors: everywhere.len(),
        messages_per_s: (after - before) as f64 / elapsed.as_secs_f64(),
        sent,
        lost_before: sent.saturating_sub(seen.stored),
        seen,
    })
}

impl Outcome {
    /// Why the check has failed, if it has.
    fn failure(&self) -> Option<String> {
        let Seen { log_bytes, stored, read, hole_bytes, torn, disordered, missing, .. } = self.seen;
        let accounted = read * MESSAGE as u64 + hole_bytes;
        let why = if torn + disordered > 0 {
            "messages are torn or out of order"
        } else if accounted != log_bytes {
            "bytes of the log were neither read nor reported as a hole"
        } else if missing > self.lost_before {
            "messages are missing without a hole"
        } else if stored * MESSAGE as u64 != log_bytes || stored > self.sent {
            "the log is not what was stored"
        } else {
            return None;
        };
        Some(format!("a ring of {} bytes: {why}: {self:?}", self.ring_bytes))
    }

    fn print(&self) -> Result<(), Failure> {
        let Seen { stored, read, holes, hole_bytes, torn, disordered, lapped, .. } = self.seen;
        let line = format!(
            "ring {:>9} B  {} processors  {:>9.0}/s  stored {stored} of {}  read {read}  in {holes} holes {}  torn {torn}  out of order \
             {disordered}  lapped {lapped}\n",
            self.ring_bytes,
            self.processors,
            self.messages_per_s,
            self.sent,
            hole_bytes / MESSAGE as u64,
        );
        commands::print(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_loss_fails_the_check() {
        let seen = Seen { log_bytes: 320, stored: 10, read: 8, holes: 1, hole_bytes: 64, ..Seen::default() };
        let with = |seen: Seen| {
            let (kernel, messages_per_s) = (String::new(), 0.0);
            Outcome {
                kernel,
                ring_bytes: 4096,
                processors: 2,
                messages_per_s,
                sent: 12,
                lost_before: 2,
                seen,
            }
        };
        assert_eq!(with(seen.clone()).failure(), None);
        assert_eq!(with(Seen { missing: 2, ..seen.clone() }).failure(), None);
        for bad in [
            Seen { torn: 1, ..seen.clone() },
            Seen { disordered: 1, ..seen.clone() },
            Seen { missing: 3, ..seen.clone() },
            Seen { hole_bytes: 32, ..seen.clone() },
            Seen { stored: 9, ..seen.clone() },
        ] {
            assert!(with(bad.clone()).failure().is_some(), "{bad:?}");
        }
    }
}
