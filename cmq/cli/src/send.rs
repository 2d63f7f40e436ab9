//! `cmq send`.

use std::io::BufRead;
use std::time::Duration;

use bytes::Bytes;
use cmq::{Cmq, Key, PushError};
use commands::Failure;

use crate::options::{Queue, any_like, report_security, resolve};

/// The options of `cmq send`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  echo hello | cmq send 127.0.0.1:4711
  cmq send 127.0.0.1:4711 --count 10000 --size 4        # as in the paper's figure 2
  echo hello | cmq send 192.0.2.7:4711 --peer-key server.key.pub
  cmq send 192.0.2.7:4711 --reliable < messages          # with cmq receive --reliable at the other end
  date | cmq send 239.1.2.3:4711 --ttl 4 --interface eth0")]
pub struct Args {
    /// The destination: HOST:PORT, or a multicast group
    to: String,
    /// The mailbox of the destination
    #[arg(long, default_value_t = 0)]
    id: u32,
    /// Send this many messages instead of standard input; each begins with its number
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// The size of each of these messages
    #[arg(long, value_name = "BYTES", default_value_t = 4, requires = "count")]
    size: usize,
    /// Send from this address
    #[arg(long, value_name = "HOST:PORT")]
    bind: Option<String>,
    /// The TTL of multicast messages: 1 stays in the local network
    #[arg(long, default_value_t = 1)]
    ttl: u32,
    #[command(flatten)]
    queue: Queue,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let to = resolve(&args.to)?;
    let from = args.bind.as_deref().map_or(Ok(any_like(to)), resolve)?;
    let queue = args.queue.open(from, false, &[])?;
    if to.ip().is_multicast() {
        queue.multicast().set_interface(args.queue.interface(), args.ttl)?;
    }
    let key = Key::new(to, args.id);
    match args.count {
        Some(count) => (0..count)
            .try_for_each(|number| push(&queue, key, &numbered(number, args.size), args.queue.reliable))?,
        None => {
            for line in std::io::stdin().lock().split(b'\n') {
                push(&queue, key, &Bytes::from(line?), args.queue.reliable)?;
            }
        }
    }
    queue.finish();
    // Each message is confirmed, or given up in time.
    queue.wait_all_confirmed(None);
    // Messages may wait for a handshake, which ends within its time-out.
    while queue.stats().pending_bytes > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let stats = queue.stats();
    std::iter::from_fn(|| queue.next_event()).for_each(|event| report_security(&event));
    let failed = stats.send_failed + stats.reliable.failed;
    if failed > 0 {
        return Err(Failure::Failed(format!("{failed} messages were not sent")));
    }
    Ok(())
}

/// A message of this size that begins with its number.
fn numbered(number: u64, size: usize) -> Bytes {
    let mut message = number.to_le_bytes().to_vec();
    message.resize(size, 0);
    message.into()
}

/// Pushes a message, and retries while the queue is full: the command has nothing else to do.
fn push(queue: &Cmq<Bytes>, key: Key, message: &Bytes, reliable: bool) -> Result<(), PushError> {
    loop {
        let pushed =
            if reliable { queue.push_reliable(key, message).map(drop) } else { queue.cw_push(key, message) };
        match pushed {
            Err(PushError::Full) => std::thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
}
