//! `cmq receive`.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cmq::{Cmq, Event, Mailbox, Stats};
use commands::{Failure, Stdout, Stop, print_error};
use serde_json::json;

use crate::options::{Queue, report_security};

/// How long to wait for a message before the output is flushed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The bytes of one write to the output.
const OUTPUT_BYTES: usize = 64 << 10;

/// The most messages between two reports, so that the event queue does not overflow.
const REPORT_EVERY: u64 = 1024;

/// The options of `cmq receive`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cmq receive 127.0.0.1:4711
  cmq receive 127.0.0.1:4711 --closed --quiet --json      # until the sender closes; prints the counters
  cmq receive 0.0.0.0:4711 --key server.key --allow client.key.pub
  cmq receive 0.0.0.0:4711 --reliable --closed
  cmq receive 0.0.0.0:4711 --join 239.1.2.3 --interface eth0

SIGINT and SIGTERM end the command in order: what was received is written, and the counters too.")]
pub struct Args {
    /// The address to receive at: HOST:PORT
    addr: String,
    /// End after this many messages
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End when every sender has closed; --idle ends also if one vanishes
    #[arg(long)]
    closed: bool,
    /// End when no message arrived for this long
    #[arg(long, value_name = "TIME", value_parser = settings::time_argument, allow_negative_numbers = true)]
    idle: Option<Duration>,
    /// Receive only the messages for this mailbox
    #[arg(long)]
    id: Option<u32>,
    /// Join this multicast group
    #[arg(long, value_name = "ADDRESS")]
    join: Vec<IpAddr>,
    /// Do not write the messages
    #[arg(long, short)]
    quiet: bool,
    /// Write the counters as JSON, in the last line of standard output
    #[arg(long)]
    json: bool,
    /// Exit with status 3 if messages were lost
    #[arg(long)]
    strict: bool,
    /// Let only the queue with this public key send, and those of further --allow; for --key
    #[arg(long, value_name = "KEY|FILE")]
    allow: Vec<String>,
    #[command(flatten)]
    queue: Queue,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let queue = args.queue.open(args.queue.resolve(&args.addr)?, !args.join.is_empty(), &args.allow)?;
    for &group in &args.join {
        queue.multicast().join(group, args.queue.interface())?;
    }
    let stop = Stop::install()?;
    let mailbox = args.id.map(|id| queue.mailbox(id));
    print_error("cmq", format_args!("receiving at {}", queue.local_addr()));
    let mut out = Output { to: Stdout::open(&stop)?, lines: Vec::new() };
    let (mut received, mut last, mut ended) = (0_u64, Instant::now(), false);
    while args.count.is_none_or(|count| received < count) && !stop.asked() {
        if let Some(message) = next(&queue, mailbox.as_ref()) {
            (received, last, ended) = (received + 1, Instant::now(), false);
            if !args.quiet {
                out.line(&message)?;
            }
            if received.is_multiple_of(REPORT_EVERY) {
                report_events(&queue);
            }
            continue;
        }
        out.flush()?;
        if !args.quiet && out.to.is_abandoned() {
            return Err(Failure::OutputClosed);
        }
        report_events(&queue);
        // Messages may have arrived between the last pop and this moment: the end counts when another pop finds nothing.
        let ends = args.closed && all_closed(&queue) || args.idle.is_some_and(|idle| last.elapsed() >= idle);
        if ends && ended {
            break;
        }
        ended = ends;
    }
    let stats = queue.stats();
    if args.json {
        out.line(summary(received, &stats).to_string().as_bytes())?;
    }
    out.flush()?;
    let lost = stats.counts.lost + stats.counts.missed;
    match lost {
        1.. if args.strict => Err(Failure::Incomplete(format!("{lost} messages were lost"))),
        _ => Ok(()),
    }
}

/// The next message of the mailbox, or of all. Messages for it that came before it was opened are in the common one, where nobody wants
/// the others.
fn next(queue: &Cmq<Bytes>, mailbox: Option<&Mailbox<Bytes>>) -> Option<Bytes> {
    let Some(mailbox) = mailbox else { return queue.pop_timeout(POLL_INTERVAL).map(|(message, _)| message) };
    let early = std::iter::from_fn(|| queue.cw_pop()).find(|(_, from)| from.id == mailbox.id());
    early.or_else(|| mailbox.pop_timeout(POLL_INTERVAL)).map(|(message, _)| message)
}

/// Standard output, written in larger pieces.
struct Output<'a> {
    to: Stdout<'a>,
    lines: Vec<u8>,
}

impl Output<'_> {
    fn line(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.lines.extend_from_slice(bytes);
        self.lines.push(b'\n');
        if self.lines.len() < OUTPUT_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let written = self.to.write(&self.lines);
        self.lines.clear();
        written
    }
}

/// True if there were senders, and all of them have closed. Events cannot tell: those that find no room are
/// dropped.
fn all_closed(queue: &Cmq<Bytes>) -> bool {
    let senders = queue.senders();
    !senders.is_empty() && senders.iter().all(|sender| sender.closed)
}

fn report_events(queue: &Cmq<Bytes>) {
    std::iter::from_fn(|| queue.next_event()).for_each(|event| report(&event));
}

/// Reports an event that a person wants to know at once.
fn report(event: &Event) {
    match event {
        Event::Lost { from, count, .. } => {
            print_error("cmq", format_args!("{count} messages from {from} were lost"))
        }
        Event::Joined { from, missed, .. } if *missed > 0 => {
            print_error("cmq", format_args!("missed {missed} earlier messages from {from}"));
        }
        Event::Overflowed { count, .. } => {
            print_error("cmq", format_args!("a full mailbox dropped {count} messages"))
        }
        other => report_security(other),
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
        "reliable": stats.reliable.received,
        "handshakes": stats.security.handshakes,
        "refused_plain": stats.security.plain,
        "refused_forged": stats.security.forged,
        "refused_replayed": stats.security.replayed,
        "refused_unknown_sessions": stats.security.unknown_sessions,
        "refused_strangers": stats.security.strangers,
    })
}

#[cfg(test)]
mod tests {
    use cmq::Config;

    use super::*;

    /// A message that comes before its mailbox is opened is received too, and those for others are not.
    #[test]
    fn a_message_for_a_mailbox_that_opens_later_is_received() {
        let open = || cmq::new_raw_rq("127.0.0.1:0", Config::immediate()).expect("a queue on loopback");
        let (queue, sender) = (open(), open());
        for (id, text) in [(8, &b"other"[..]), (7, b"one")] {
            sender.push_bytes((queue.local_addr(), id), text).expect("room");
        }
        let until = Instant::now() + Duration::from_secs(20);
        while queue.waiting() < 2 {
            assert!(Instant::now() < until, "the messages arrive");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mailbox = queue.mailbox(7);
        sender.push_bytes((queue.local_addr(), 7), b"two").expect("room");
        let mut received = Vec::new();
        while received.len() < 2 {
            assert!(Instant::now() < until, "both messages are received: {received:?}");
            received.extend(next(&queue, Some(&mailbox)));
        }
        assert_eq!(received, ["one", "two"]);
        assert_eq!(queue.waiting(), 0);
    }

    /// The event queue is full, so no event says that the sender has closed.
    #[test]
    fn the_end_is_seen_without_an_event() {
        let open = |config| cmq::new_raw_rq("127.0.0.1:0", config).expect("a queue on loopback");
        let queue = open(Config::default().max_events(0));
        assert!(!all_closed(&queue), "no sender was here");
        let sender = open(Config::immediate());
        sender.push_bytes((queue.local_addr(), 0), b"one").expect("room");
        assert!(queue.pop_timeout(Duration::from_secs(20)).is_some());
        assert!(!all_closed(&queue) && queue.next_event().is_none());
        drop(sender);
        let until = Instant::now() + Duration::from_secs(20);
        while !all_closed(&queue) {
            assert!(Instant::now() < until, "the sender has closed");
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
