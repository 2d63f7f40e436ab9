//! `multimqc pull`.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use commands::{Failure, Stdout, Stop, print_error};
use multimqc::{Fetched, MAX_OFFSET, Offset, Puller, TopicId, wire};

use super::client::{find_server, server_failed};

/// How long to wait at the end of the log before asking again.
const IDLE: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  multimqc pull                              # from the oldest byte to the newest
  multimqc pull --follow --from newest       # what comes from now on
  multimqc pull --topic 3 --from 4096 --length 512 > range

What is missing is reported on standard error, and the exit status is then 3.")]
pub struct Args {
    /// The server's address for the header form
    #[arg(long, value_name = "HOST:PORT", default_value_t = format!("127.0.0.1:{}", wire::HEADER_PORT))]
    server: String,
    /// The topic
    #[arg(long, value_name = "ID", default_value_t = 0)]
    topic: u16,
    /// Where to begin: an offset, oldest or newest
    #[arg(long, value_name = "OFFSET", default_value = "oldest")]
    from: From,
    /// How many bytes [default: up to the end of the log]
    #[arg(long, value_name = "BYTES")]
    length: Option<u64>,
    /// Wait for further bytes at the end of the log
    #[arg(long)]
    follow: bool,
    /// Give up after this time without a reply
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = settings::time_argument)]
    timeout: Duration,
}

#[derive(Debug, Clone, Copy)]
enum From {
    Offset(Offset),
    Oldest,
    Newest,
}

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "oldest" => Ok(From::Oldest),
            "newest" => Ok(From::Newest),
            number => match number.parse() {
                Ok(offset) if offset <= MAX_OFFSET => Ok(From::Offset(offset)),
                _ => Err("use an offset, oldest or newest".into()),
            },
        }
    }
}

/// The result of a turn.
enum Turn {
    Bytes(usize),
    End(Offset),
    Missing { bytes: u64, hole: bool },
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let topic = TopicId(args.topic);
    let server = find_server(&args.server)?;
    let mut puller = Puller::connect(server, topic).map_err(|error| server_failed(server, &error))?;
    let mut at = match args.from {
        From::Offset(offset) => offset,
        From::Oldest => 0,
        From::Newest => match turn(args, server, &mut puller, MAX_OFFSET, 1, |_| Ok(()))? {
            Turn::End(head) => head,
            _ => return Err(Failure::Failed("the log is full".into())),
        },
    };
    // A user who asks for the oldest byte misses nothing before it, so such bytes are not reported.
    let (mut reported, mut began) = (0, matches!(args.from, From::Offset(_) | From::Newest));
    let end = args.length.map_or(MAX_OFFSET, |length| at.saturating_add(length));
    let mut out = Stdout::open(&stop)?;
    while at < end && !stop.asked() {
        let length = usize::try_from(end - at).unwrap_or(usize::MAX);
        match turn(args, server, &mut puller, at, length, |bytes| out.write(bytes))? {
            Turn::Bytes(bytes) => at += bytes as u64,
            Turn::Missing { bytes, hole } => {
                if hole || began {
                    let why = if hole { "were lost (a hole)" } else { "are no longer kept" };
                    print_error("multimqc", format_args!("{bytes} bytes from {at} on {why}"));
                    reported += bytes.min(end - at);
                }
                at += bytes;
                continue;
            }
            Turn::End(_) if args.follow => {
                if out.is_abandoned() {
                    return Err(Failure::OutputClosed);
                }
                stop.wait(Some(IDLE));
            }
            Turn::End(head) if at > head => {
                let message =
                    format!("offset {at} is beyond the end of the log, {head}; --follow waits for it");
                return Err(Failure::Incomplete(message));
            }
            Turn::End(_) => break,
        }
        began = true;
    }
    match reported {
        0 => Ok(()),
        bytes => Err(Failure::Incomplete(format!("{bytes} bytes are missing"))),
    }
}

/// Asks once, and writes the bytes.
fn turn(
    args: &Args,
    server: SocketAddr,
    puller: &mut Puller,
    at: Offset,
    length: usize,
    take: impl FnOnce(&[u8]) -> Result<(), Failure>,
) -> Result<Turn, Failure> {
    let fetched = puller.fetch(at, length, Some(args.timeout));
    match fetched.map_err(|error| server_failed(server, &error))? {
        Some(Fetched::Data(bytes)) => {
            take(bytes)?;
            Ok(Turn::Bytes(bytes.len()))
        }
        Some(Fetched::End(head)) => Ok(Turn::End(head)),
        Some(Fetched::Hole(bytes)) => Ok(Turn::Missing { bytes, hole: true }),
        Some(Fetched::Gone(bytes)) => Ok(Turn::Missing { bytes, hole: false }),
        Some(Fetched::UnknownTopic) => Err(Failure::Failed(format!("{server} has no topic {}", args.topic))),
        Some(Fetched::OtherEpoch(_)) => {
            Err(Failure::Failed("the log was made anew: offsets from before mean nothing in it".into()))
        }
        None => Err(Failure::Failed(format!("no reply from {server} within {:?}", args.timeout))),
    }
}
