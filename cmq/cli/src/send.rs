//! `cmq send`.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cmq::{Cmq, Config, Key, PushError};
use commands::input::Input;
use commands::{Failure, Stop};

use crate::options::{Queue, any_like, report_security};

/// How long to wait before a look whether the command was asked to end.
const STEP: Duration = Duration::from_millis(50);

/// How long the command waits for messages after it was asked to end.
const GRACE: Duration = Duration::from_secs(1);

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
    let to = args.queue.resolve(&args.to)?;
    let from = args.bind.as_deref().map_or(Ok(any_like(to)), |text| args.queue.resolve(text))?;
    let queue = args.queue.open(from, false, &[])?;
    if to.ip().is_multicast() {
        queue.multicast().set_interface(args.queue.interface(), args.ttl)?;
    }
    let stop = Stop::install()?;
    let (key, reliable) = (Key::new(to, args.id), args.queue.reliable);
    let sender = Sender { queue: &queue, key, reliable, stop: &stop, left_out: Cell::new(false) };
    match args.count {
        Some(count) => (0..count).try_for_each(|number| sender.push(&numbered(number, args.size)))?,
        None => {
            let input = Input::open(Path::new("-"))?;
            let longest = Config::default().max_message;
            input.each_line(longest, &stop, |line| {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                Ok(sender.push(&Bytes::copy_from_slice(line))?)
            })?;
        }
    }
    queue.finish();
    let is_done = sender.wait_done();
    let stats = queue.stats();
    std::iter::from_fn(|| queue.next_event()).for_each(|event| report_security(&event));
    let failed = stats.send_failed + stats.reliable.failed;
    if failed > 0 {
        return Err(Failure::Failed(format!("{failed} messages were not sent")));
    }
    if !is_done {
        return Err(Failure::Failed("asked to end before all messages were sent and confirmed".into()));
    }
    Ok(())
}

/// A message of this size that begins with its number.
fn numbered(number: u64, size: usize) -> Bytes {
    let mut message = number.to_le_bytes().to_vec();
    message.resize(size, 0);
    message.into()
}

/// Where the messages go.
struct Sender<'a> {
    queue: &'a Cmq<Bytes>,
    key: Key,
    reliable: bool,
    stop: &'a Stop,
    /// Whether a message was not pushed, since the command was asked to end.
    left_out: Cell<bool>,
}

impl Sender<'_> {
    /// Pushes a message, and retries while the queue is full: the command has nothing else to do.
    fn push(&self, message: &Bytes) -> Result<(), PushError> {
        while !self.stop.asked() {
            let pushed = match self.reliable {
                true => self.queue.push_reliable(self.key, message).map(drop),
                false => self.queue.cw_push(self.key, message),
            };
            match pushed {
                Err(PushError::Full) => std::thread::sleep(Duration::from_millis(1)),
                other => return other,
            }
        }
        self.left_out.set(true);
        Ok(())
    }

    /// Waits until each message is sent, and confirmed or given up. Handshakes, for which messages wait, end within their time-out. False
    /// if the command was asked to end, and some were left out, or the others take longer than a moment.
    fn wait_done(&self) -> bool {
        let mut until = None;
        while !self.queue.wait_all_confirmed(Some(STEP)) || self.queue.stats().pending_bytes > 0 {
            if self.stop.asked() && Instant::now() >= *until.get_or_insert_with(|| Instant::now() + GRACE) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        !self.left_out.get()
    }
}
