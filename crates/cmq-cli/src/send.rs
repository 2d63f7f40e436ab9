//! `cmq send`.

use std::io::BufRead;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use cmq::{Cmq, Key, PushError};

use crate::options::{Done, Queue, any_like, resolve};

/// What to send, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  echo hello | cmq send 127.0.0.1:4711
  cmq send 127.0.0.1:4711 --count 10000 --size 4        # as in the paper's figure 2
  date | cmq send 239.1.2.3:4711 --ttl 4 --interface eth0")]
pub struct Args {
    /// Whom to: HOST:PORT, or a multicast group
    to: String,
    /// The mailbox there
    #[arg(long, default_value_t = 0)]
    id: u32,
    /// Send this many messages instead of lines of standard input; they begin with their number
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Bytes of each of them
    #[arg(long, value_name = "BYTES", default_value_t = 4, requires = "count")]
    size: usize,
    /// Send from this address
    #[arg(long, value_name = "HOST:PORT")]
    bind: Option<String>,
    /// How many routers a multicast message may pass
    #[arg(long, default_value_t = 1)]
    ttl: u32,
    #[command(flatten)]
    queue: Queue,
}

pub fn run(args: &Args) -> Done {
    let to = resolve(&args.to)?;
    let from = args.bind.as_deref().map_or(Ok(any_like(to)), resolve)?;
    let queue = args.queue.open(from, false)?;
    if to.ip().is_multicast() {
        queue.multicast().send_by(args.queue.interface(), args.ttl)?;
    }
    let key = Key::new(to, args.id);
    match args.count {
        Some(count) => (0..count).try_for_each(|number| push(&queue, key, &numbered(number, args.size)))?,
        None => {
            for line in std::io::stdin().lock().split(b'\n') {
                push(&queue, key, &Bytes::from(line?))?;
            }
        }
    }
    queue.finish();
    let stats = queue.stats();
    if stats.send_failed > 0 {
        let failed = stats.send_failed;
        return Err(format!("{failed} messages were not sent: the system refused them").into());
    }
    Ok(ExitCode::SUCCESS)
}

/// A message that begins with its number and has this many bytes.
fn numbered(number: u64, size: usize) -> Bytes {
    let mut message = number.to_le_bytes().to_vec();
    message.resize(size, 0);
    message.into()
}

/// Pushes; waits where the library does not, because there is nothing else to do here.
fn push(queue: &Cmq<Bytes>, key: Key, message: &Bytes) -> Result<(), PushError> {
    loop {
        match queue.cw_push(key, message) {
            Err(PushError::Full) => std::thread::sleep(Duration::from_millis(1)),
            other => return other,
        }
    }
}
