//! `multimqc push`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use commands::input::Input;
use commands::{Failure, Stop};
use multimqc::{Pusher, TopicId, wire};

use super::client::{find_server, server_failed};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  date | multimqc push
  multimqc push --topic 3 readings.txt
  multimqc push --count 1000000 --size 32 --rate 100000

Nothing is confirmed: the server counts what it misses (`multimqc stat`).")]
pub struct Args {
    /// The file whose lines are sent, with their ends [default: standard input]
    #[arg(conflicts_with_all = ["count"])]
    file: Option<PathBuf>,
    /// The server's address for the header form
    #[arg(long, value_name = "HOST:PORT", default_value_t = format!("127.0.0.1:{}", wire::HEADER_PORT))]
    server: String,
    /// The topic
    #[arg(long, value_name = "ID", default_value_t = 0)]
    topic: u16,
    /// Send this many messages of --size bytes instead of lines
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
    /// Bytes of each message of --count; the first eight are its number
    #[arg(long, value_name = "BYTES", default_value_t = 32, requires = "count", value_parser = clap::value_parser!(u16).range(1..=65_000))]
    size: u16,
    /// The most messages in a second
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let server = find_server(&args.server)?;
    let fail = |error: io::Error| server_failed(server, &error);
    let mut pusher = Pusher::connect(server, TopicId(args.topic)).map_err(fail)?;
    let mut pace = Pace { rate: args.rate, began: Instant::now(), sent: 0 };
    if let Some(count) = args.count {
        let mut message = vec![0; args.size.into()];
        for number in 0..count {
            let bytes = number.to_le_bytes();
            let used = bytes.len().min(message.len());
            message[..used].copy_from_slice(&bytes[..used]);
            if !pace.wait(&stop) {
                break;
            }
            pusher.push(&message).map_err(fail)?;
        }
        return Ok(());
    }
    let path = args.file.as_deref().unwrap_or(Path::new("-"));
    let input = Input::open(path).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    input.each_line(Pusher::MAX_MESSAGE_BYTES, &stop, |line| {
        if pace.wait(&stop) { pusher.push(line).map_err(fail) } else { Ok(()) }
    })
}

/// Limits the rate.
struct Pace {
    rate: Option<u64>,
    began: Instant,
    sent: u64,
}

impl Pace {
    /// Waits until the next message is due. False if the command was asked to end.
    fn wait(&mut self, stop: &Stop) -> bool {
        if let Some(rate) = self.rate {
            let due = self.began
                + Duration::from_nanos((u128::from(self.sent) * 1_000_000_000 / u128::from(rate)) as u64);
            let left = due.saturating_duration_since(Instant::now());
            // Shorter pauses are added to those of the next messages.
            if left > Duration::from_millis(1) {
                stop.wait(Some(left));
            }
        }
        self.sent += 1;
        !stop.asked()
    }
}
