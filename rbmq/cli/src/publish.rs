//! `rbmq pub`.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use commands::input::{Input, Lines};
use commands::terminal::is_dumb;
use commands::{Failure, Stop};
use rbmq::{
    AttributesBuf, Framing, PublishError, Publisher, PublisherWaitError, TopicName, TopicOptions, TopicWriter,
};
use tracing::info;

use super::absence::OfflineTimer;
use super::attributes::{AttributeArgs, header_bytes};
use super::confirm::{Confirm, ConfirmThread, Output};
use super::{bytes, client, times};

/// The longest wait before the command checks whether it was asked to end.
const STEP: Duration = Duration::from_millis(200);

/// The largest raw delivery: large enough for efficient reads, and small enough to be sent while the next one is read.
const RAW_BYTES: u64 = 256 << 10;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  journalctl -f | rbmq pub log
  date | rbmq pub news --confirm delivered
  rbmq pub users --file /etc/passwd --wait-subscribers 1
  echo 'what time is it?' | rbmq pub questions --reply-to answers/7 --property lang=en
  tar c /etc | rbmq pub backup --raw --wait-subscribers 1 --progress

Each line, without its newline, is a message. At the end of the input, the command waits until the broker has \
everything, and closes the topic. SIGINT ends the input.")]
pub(super) struct Args {
    /// The topic: 1 to 255 bytes, without control characters, '+' and '#'
    topic: TopicName,
    /// The file to publish; '-' is standard input
    #[arg(short, long, default_value = "-", value_name = "FILE")]
    file: PathBuf,
    /// Publish plain bytes instead of lines
    #[arg(long)]
    raw: bool,
    /// Before publishing, wait until the topic has this many subscribers, which then receive everything
    #[arg(long, value_name = "N", default_value_t = 0)]
    wait_subscribers: u32,
    /// Publish only while the topic has this many subscribers, and confirm only what this many have
    #[arg(long, value_name = "N", default_value_t = 0)]
    min_subscribers: u32,
    /// With --wait-subscribers or --min-subscribers: fail after waiting this long; 0: no limit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = times::parse)]
    wait_timeout: Duration,
    /// Show the progress
    #[arg(long)]
    progress: bool,
    /// At the end, print the totals as a JSON object
    #[arg(long)]
    json: bool,
    /// Name of this publisher in the broker's log
    #[arg(long, default_value = "rbmq pub", value_name = "NAME")]
    name: String,
    /// Size of the topic's ring, here and at the broker; default 1 MiB
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse)]
    ring_bytes: Option<u64>,
    /// Largest message; the ring has room for at least two. Default: what the broker takes; the rings grow when it comes
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse)]
    max_message_bytes: Option<u64>,
    /// How long the broker may take to accept the topic and its end, and how long it may be offline after the end of the
    /// input. Slow subscribers of a broker that is online may take any time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = times::parse)]
    timeout: Duration,
    /// Wait until everything is confirmed, and exit with 0 only then
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = Confirm::None)]
    confirm: Confirm,
    /// With --confirm: print the number of confirmed messages after each delivery
    #[arg(long, requires = "confirm")]
    confirm_each: bool,
    #[command(flatten)]
    attributes: AttributeArgs,
    #[command(flatten)]
    client: client::ClientArgs,
}

/// The published messages and bytes so far.
#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    messages: u64,
    bytes: u64,
}

impl Args {
    /// Starts to wait for confirmations, if the arguments ask for them.
    fn confirming(&self) -> Result<Option<ConfirmThread>, Failure> {
        let output = Output { each: self.confirm_each, json: self.json };
        match self.confirm.level() {
            Some(level) => ConfirmThread::start(level, output).map(Some),
            None => Ok(None),
        }
    }

    fn topic_options(&self, attributes: &AttributesBuf) -> TopicOptions {
        let mut options = TopicOptions::default()
            .framing(if self.raw { Framing::Raw } else { Framing::Records })
            .open_timeout(Some(self.timeout))
            // A publisher that waits for confirmations sends messages again that are lost with a broker.
            .keep_until_delivered(self.confirm.is_of_subscribers() || self.min_subscribers > 0)
            .min_subscribers(self.min_subscribers);
        if let Some(bytes) = self.ring_bytes {
            options = options.ring_bytes(bytes);
        }
        if let Some(bytes) = self.max_message_bytes {
            options = options.max_delivery_bytes(bytes.saturating_add(header_bytes(attributes) as u64));
        }
        options
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    // Before the command connects.
    if args.confirm_each && args.confirm == Confirm::None {
        let text = "--confirm-each needs --confirm LEVEL, with one of the levels accepted, delivered, consumed, stored, synced, archived";
        return Err(Failure::Usage("pub", text.into()));
    }
    let cannot = |e: std::io::Error| Failure::Failed(format!("cannot read {}: {e}", args.file.display()));
    let attributes = args.attributes.read()?;
    let input = Input::open(&args.file).map_err(cannot)?;
    let stop = Stop::install()?;
    let publisher = Publisher::builder()
        .name(&args.name)
        .config(args.client.config()?)
        .login(args.client.login.read()?)
        .connect(&args.client.broker)
        .map_err(|e| args.client.explain(&e))?;
    let options = args.topic_options(&attributes);
    let writer = publisher.topic_with(args.topic.as_str(), options).map_err(Failure::failed)?;
    let waited = wait_subscribers(&writer, args, &stop)?;
    let mut job = Job {
        too_few: TooFewTimer::new(args),
        writer,
        attributes,
        stop,
        totals: Totals::default(),
        rest: Rest { waited, ..Rest::default() },
        confirming: args.confirming()?,
        progress: Progress { enabled: args.progress, shown: Instant::now(), bytes: 0 },
    };
    match args.raw {
        true => job.publish_raw(&input, args)?,
        false => job.publish_lines(&input, args)?,
    }
    let unfinished = job.unfinished(args);
    let (totals, position, confirmed) = job.finish(args.timeout)?;
    publisher.close();
    info!("published {} messages, {} bytes", totals.messages, totals.bytes);
    if args.json {
        let Totals { messages, bytes } = totals;
        let mut line = serde_json::json!({
            "topic": args.topic.as_str(), "messages": messages, "bytes": bytes, "position": position,
        });
        if let Some(confirmed) = confirmed {
            line["confirmed"] = confirmed;
        }
        commands::print(format!("{line}\n"))?;
    }
    unfinished.map_or(Ok(()), |text| Err(Failure::Failed(text)))
}

/// Waits for `--wait-subscribers`. False if the command was asked to end before.
fn wait_subscribers(writer: &TopicWriter, args: &Args, stop: &Stop) -> Result<bool, Failure> {
    let started = Instant::now();
    let limit = (!args.wait_timeout.is_zero()).then_some(args.wait_timeout);
    let wanted = args.wait_subscribers.max(args.min_subscribers);
    while !stop.asked() {
        match writer.wait_subscribers(wanted, Some(STEP)) {
            Ok(()) => return Ok(true),
            Err(PublisherWaitError::TooFewSubscribers { .. })
                if limit.is_none_or(|limit| started.elapsed() < limit) => {}
            Err(PublisherWaitError::TooFewSubscribers { present, wanted, .. }) => {
                let waited = args.wait_timeout;
                return Err(Failure::Failed(format!(
                    "topic '{}' has {present} of {wanted} subscribers after {waited:?} (--wait-timeout)",
                    args.topic
                )));
            }
            Err(error) => return Err(Failure::failed(error)),
        }
    }
    // Nothing to wait for: what was not read is not missing.
    Ok(wanted == 0)
}

/// The input that was not published when the command was asked to end.
#[derive(Debug, Default)]
struct Rest {
    /// Whether the topic had the required subscribers.
    waited: bool,
    /// Whether the input was read to its end.
    ended: bool,
    /// The bytes of lines that were read and not published.
    bytes: usize,
}

/// The limit for the time with fewer subscribers than `--min-subscribers`.
struct TooFewTimer {
    min: u32,
    limit: Option<Duration>,
    since: Cell<Option<Instant>>,
}

impl TooFewTimer {
    fn new(args: &Args) -> Self {
        let limit = (!args.wait_timeout.is_zero()).then_some(args.wait_timeout);
        Self { min: args.min_subscribers, limit, since: Cell::new(None) }
    }

    /// Fails if the topic has had too few subscribers for too long.
    fn check(&self, writer: &TopicWriter) -> Result<(), Failure> {
        if self.min == 0 {
            return Ok(());
        }
        let (present, wanted) = (writer.subscribers(), self.min);
        if present >= wanted {
            self.since.set(None);
            return Ok(());
        }
        let since = self.since.get().unwrap_or_else(Instant::now);
        self.since.set(Some(since));
        match self.limit.filter(|limit| since.elapsed() >= *limit) {
            None => Ok(()),
            Some(limit) => Err(Failure::Failed(format!(
                "topic '{}' has had fewer than {wanted} subscribers for {limit:?} (--wait-timeout): {present}",
                writer.topic()
            ))),
        }
    }
}

/// A topic being published.
struct Job {
    too_few: TooFewTimer,
    writer: TopicWriter,
    /// Of each line.
    attributes: AttributesBuf,
    stop: Stop,
    totals: Totals,
    rest: Rest,
    progress: Progress,
    confirming: Option<ConfirmThread>,
}

impl Job {
    fn publish_raw(&mut self, input: &Input, args: &Args) -> Result<(), Failure> {
        let piece = self.writer.max_delivery_bytes().min(RAW_BYTES);
        while !self.stop.asked() {
            self.too_few.check(&self.writer)?;
            let (writer, stop, ended) = (&mut self.writer, &self.stop, &mut self.rest.ended);
            let read = match writer.fill_raw(piece, Some(STEP), |room| {
                let read = input.read(room, stop)?;
                *ended = read == Some(0);
                // A request to end is the end of the input.
                Ok::<_, io::Error>(read.unwrap_or_default())
            }) {
                Err(PublishError::TimedOut { .. } | PublishError::TooFewSubscribers { .. }) => continue,
                other => other.map_err(Failure::failed)?,
            };
            let cannot = |e| Failure::Failed(format!("cannot read {}: {e}", args.file.display()));
            match read.map_err(cannot)? {
                0 => break,
                n => {
                    self.totals.bytes += n as u64;
                    self.totals.messages += 1;
                    self.published(self.writer.position())?;
                }
            }
            self.progress.show(&self.totals, false);
        }
        Ok(())
    }

    fn publish_lines(&mut self, input: &Input, args: &Args) -> Result<(), Failure> {
        let cannot = |e| Failure::Failed(format!("cannot read {}: {e}", args.file.display()));
        let max_line = self.max_line();
        let mut lines = Lines::new(max_line);
        while lines.fill(input, &self.stop).map_err(cannot)? {
            let complete = lines.complete();
            if !complete.is_empty() {
                self.publish_records(complete)?;
                self.progress.show(&self.totals, false);
            }
            if lines.too_long() {
                return Err(self.too_long(max_line));
            }
        }
        self.rest.ended = lines.ended();
        if self.rest.ended {
            self.publish_records(lines.rest())?;
        }
        Ok(())
    }

    /// The longest line that is a message of this topic.
    fn max_line(&self) -> usize {
        let max = usize::try_from(self.writer.largest_delivery_bytes()).unwrap_or(usize::MAX);
        max.saturating_sub(header_bytes(&self.attributes))
    }

    /// Publishes lines, with as many as fit in each delivery. The last line may lack its newline.
    fn publish_records(&mut self, mut lines: &[u8]) -> Result<(), Failure> {
        let max = self.writer.max_delivery_bytes();
        while !lines.is_empty() && !self.stop.asked() {
            self.too_few.check(&self.writer)?;
            let count = lines.iter().filter(|b| **b == b'\n').count() as u64 + 1;
            let size = (lines.len() as u64 + header_bytes(&self.attributes) as u64 * count).min(max);
            // A line that is larger than deliveries were so far.
            let first = lines.iter().position(|b| *b == b'\n').unwrap_or(lines.len());
            let size = size.max((first + header_bytes(&self.attributes)) as u64);
            let mut batch = match self.writer.batch_timeout(size, Some(STEP)) {
                Err(PublishError::TimedOut { .. } | PublishError::TooFewSubscribers { .. }) => continue,
                other => other.map_err(Failure::failed)?,
            };
            let begin = (self.totals, lines);
            while !lines.is_empty() {
                let end = lines.iter().position(|b| *b == b'\n');
                if !batch.push_with(&self.attributes, &lines[..end.unwrap_or(lines.len())]) {
                    break;
                }
                self.totals.messages += 1;
                self.totals.bytes += end.unwrap_or(lines.len()) as u64;
                lines = &lines[end.map_or(lines.len(), |at| at + 1)..];
            }
            if batch.is_empty() {
                drop(batch);
                return Err(self.too_long(self.max_line()));
            }
            match batch.deliver() {
                Ok(position) => self.published(position)?,
                // In a space the lines need more room than the batch was promised, for the name of the topic.
                Err(PublishError::TimedOut { .. }) => (self.totals, lines) = begin,
                Err(error) => return Err(Failure::failed(error)),
            }
        }
        self.rest.bytes += lines.len();
        Ok(())
    }

    /// The failure if the command was asked to end before everything was published. A request to end is the normal end of
    /// standard input that is typed or endless. Only lines that were read count there.
    fn unfinished(&self, args: &Args) -> Option<String> {
        let Rest { waited, ended, bytes } = self.rest;
        let Totals { messages, bytes: published } = self.totals;
        if !waited {
            let wanted = args.wait_subscribers.max(args.min_subscribers);
            let present = self.writer.subscribers();
            return Some(format!(
                "asked to end, nothing was published: the topic had {present} of {wanted} subscribers"
            ));
        }
        let (few, least) = (self.writer.subscribers(), args.min_subscribers);
        let why =
            if few < least { format!(" ({few} of {least} subscribers are there)") } else { String::new() };
        if args.file != Path::new("-") && !(ended && bytes == 0) {
            let file = args.file.display();
            return Some(format!(
                "asked to end, {file} was not published to its end, only {messages} messages, {published} bytes{why}"
            ));
        }
        (bytes > 0)
            .then(|| format!("asked to end, {bytes} bytes of lines that were read were not published{why}"))
    }

    fn too_long(&self, max_line: usize) -> Failure {
        Failure::Failed(format!(
            "line {} has more than {max_line} bytes, the largest message of this topic; use a larger \
             --max-message-bytes, or --raw",
            self.totals.messages + 1
        ))
    }

    /// Another delivery was published.
    fn published(&self, position: u64) -> Result<(), Failure> {
        let Some(confirming) = &self.confirming else { return Ok(()) };
        let confirmation = self.writer.confirmation(position, confirming.level());
        let check = || self.too_few.check(&self.writer);
        confirming.push(confirmation, self.totals.messages, self.totals.bytes, &self.stop, check)
    }

    /// Waits until everything is confirmed and accepted, and closes the topic. Fails after `timeout` if the broker is offline.
    /// Returns the totals, the end of the topic, and the summary of the confirmations.
    fn finish(mut self, timeout: Duration) -> Result<(Totals, u64, Option<serde_json::Value>), Failure> {
        let offline = OfflineTimer::new(timeout, self.confirming.as_ref().map(ConfirmThread::level));
        let check = || {
            self.too_few.check(&self.writer)?;
            offline.check(&self.writer)
        };
        let confirming = self.confirming.take();
        let confirmed = confirming.map(|all| all.finish(timeout, &self.stop, check)).transpose()?;
        let position = self.writer.position();
        loop {
            match self.writer.flush(Some(STEP)) {
                Ok(()) => break,
                // After a request to end, only closing waits.
                Err(PublisherWaitError::NotAccepted { .. }) if self.stop.asked() => break,
                Err(error @ PublisherWaitError::NotAccepted { .. }) => {
                    offline.on_flush_error(&self.writer, error)?;
                    self.progress.show(&self.totals, false);
                }
                Err(error) => return Err(Failure::failed(error)),
            }
        }
        self.progress.show(&self.totals, true);
        self.writer.close_timeout(Some(timeout)).map_err(Failure::failed)?;
        Ok((self.totals, position, confirmed))
    }
}

/// A progress line on standard error.
struct Progress {
    enabled: bool,
    shown: Instant,
    bytes: u64,
}

impl Progress {
    fn show(&mut self, totals: &Totals, last: bool) {
        let elapsed = self.shown.elapsed();
        if !self.enabled || (!last && elapsed < Duration::from_millis(500)) {
            return;
        }
        let rate = (totals.bytes - self.bytes) as f64 / elapsed.as_secs_f64().max(1e-9);
        let line = format!(
            "{} messages, {} ({}/s)",
            totals.messages,
            bytes::show(totals.bytes as f64),
            bytes::show(rate)
        );
        let mut stderr = std::io::stderr();
        // A standard error without a reader is no failure.
        let _ = match (stderr.is_terminal() && !is_dumb(), last) {
            (true, false) => write!(stderr, "\r\x1b[K{line}"),
            (true, true) => writeln!(stderr, "\r\x1b[K{line}"),
            (false, _) => writeln!(stderr, "{line}"),
        };
        self.shown = Instant::now();
        self.bytes = totals.bytes;
    }
}
