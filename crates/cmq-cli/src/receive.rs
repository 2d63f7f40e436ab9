//! `cmq receive`.

use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cmq::{Cmq, Event, Stats};
use serde_json::json;

use crate::options::{Done, Queue, resolve};

/// How long to look for messages before what was written is flushed.
const LOOK: Duration = Duration::from_millis(50);

/// Messages between two looks at what happened, so that no more waits to be told than is kept.
const TELL_EVERY: u64 = 1024;

/// What to receive, and until when.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cmq receive 127.0.0.1:4711
  cmq receive 127.0.0.1:4711 --closed --quiet --json      # until the sender is done; what was counted
  cmq receive 0.0.0.0:4711 --join 239.1.2.3 --interface eth0")]
pub struct Args {
    /// The address of the queue: HOST:PORT
    addr: String,
    /// End after this many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End when every sender has closed; add --idle for those that go without a word
    #[arg(long)]
    closed: bool,
    /// End when nothing came for so many seconds
    #[arg(long, value_name = "SECONDS")]
    idle: Option<f64>,
    /// Take only messages for this mailbox
    #[arg(long)]
    id: Option<u32>,
    /// Join this multicast group
    #[arg(long, value_name = "ADDRESS")]
    join: Vec<IpAddr>,
    /// Do not write the messages
    #[arg(long, short)]
    quiet: bool,
    /// Write what was counted as JSON, on the last line of standard output
    #[arg(long)]
    json: bool,
    /// End with status 3 if messages were lost
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    queue: Queue,
}

pub fn run(args: &Args) -> Done {
    let queue = args.queue.open(resolve(&args.addr)?, !args.join.is_empty())?;
    for &group in &args.join {
        queue.multicast().join(group, args.queue.interface())?;
    }
    eprintln!("cmq: receiving at {}", queue.local_addr());
    let idle = args.idle.map(Duration::try_from_secs_f64).transpose()?;
    let mailbox = args.id.map(|id| queue.mailbox(id));
    let mut out = BufWriter::new(std::io::stdout().lock());
    let (mut received, mut last) = (0_u64, Instant::now());
    while args.count.is_none_or(|count| received < count) {
        let popped = match &mailbox {
            Some(mailbox) => mailbox.pop_timeout(LOOK),
            None => queue.pop_timeout(LOOK),
        };
        if let Some((message, _)) = popped {
            (received, last) = (received + 1, Instant::now());
            if !args.quiet {
                out.write_all(&message)?;
                out.write_all(b"\n")?;
            }
            if received.is_multiple_of(TELL_EVERY) {
                tell_all(&queue);
            }
            continue;
        }
        out.flush()?;
        tell_all(&queue);
        if (args.closed && all_closed(&queue)) || idle.is_some_and(|idle| last.elapsed() >= idle) {
            break;
        }
    }
    let stats = queue.stats();
    if args.json {
        writeln!(out, "{}", summary(received, &stats))?;
    }
    out.flush()?;
    let lost = stats.counts.lost + stats.counts.missed;
    Ok(if args.strict && lost > 0 { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

/// Whether there were senders and all are done. Events do not say: those that find no room are dropped.
fn all_closed(queue: &Cmq<Bytes>) -> bool {
    let senders = queue.senders();
    !senders.is_empty() && senders.iter().all(|sender| sender.closed)
}

fn tell_all(queue: &Cmq<Bytes>) {
    std::iter::from_fn(|| queue.event()).for_each(|event| tell(&event));
}

/// What a person wants to know at once.
fn tell(event: &Event) {
    match event {
        Event::Lost { from, count, .. } => eprintln!("cmq: {count} messages of {from} were lost"),
        Event::Joined { from, missed, .. } if *missed > 0 => {
            eprintln!("cmq: {from} had sent {missed} messages before");
        }
        Event::Overflowed { count, .. } => eprintln!("cmq: {count} messages found no room"),
        _ => {}
    }
}

fn summary(popped: u64, stats: &Stats) -> serde_json::Value {
    json!({
        "popped": popped,
        "received": stats.counts.received,
        "lost": stats.counts.lost,
        "missed": stats.counts.missed,
        "duplicated": stats.counts.duplicated,
        "reordered": stats.counts.reordered,
        "late": stats.counts.late,
        "overflowed": stats.counts.overflowed,
        "datagrams": stats.datagrams,
        "malformed": stats.malformed,
        "senders": stats.senders,
    })
}

#[cfg(test)]
mod tests {
    use cmq::Config;

    use super::*;

    /// Nothing is kept to be told, as where more happened than is kept.
    #[test]
    fn the_end_is_seen_though_nobody_tells_it() {
        let open = |config| cmq::new_raw_rq("127.0.0.1:0", config).expect("a queue on loopback");
        let queue = open(Config { max_events: 0, ..Config::default() });
        assert!(!all_closed(&queue), "nobody was there");
        let sender = open(Config::immediate());
        sender.push_bytes((queue.local_addr(), 0), b"one").expect("room");
        assert!(queue.pop_timeout(Duration::from_secs(20)).is_some());
        assert!(!all_closed(&queue) && queue.event().is_none());
        drop(sender);
        let until = Instant::now() + Duration::from_secs(20);
        while !all_closed(&queue) {
            assert!(Instant::now() < until, "the sender is done");
            std::thread::sleep(LOOK);
        }
    }
}
