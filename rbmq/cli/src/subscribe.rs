//! `rbmq sub`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::builder::{NonEmptyStringValueParser, PossibleValue, TypedValueParser};
use commands::{Failure, Stop, print_error};
use rbmq::{Event, Notice, SlowPolicy, StartFrom, Subscriber, TopicFilter};
use rocketbufs::{Epoch, Position};
use tracing::{debug, info, warn};

use super::begin::Beginnings;
use super::sink::{Format, Pace, Sink};
use super::{bytes, client, times, worker};

/// The longest wait before the command checks whether it was asked to end.
const STEP: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq sub news
  rbmq sub 'sensors/#' --print-topic
  rbmq sub news --from oldest --count 10 --json
  rbmq sub 'sensors/#' --from last --print-topic
  rbmq sub news --from -10m
  rbmq sub news --policy drop --max-lag 1M
  rbmq sub orders --group billing --from oldest
  rbmq sub backup --output etc.tar --until-closed --name attic --hold 1m

With --output, FILE.rbmq-state records the positions of the messages in FILE. When the command is started again, it \
truncates FILE to the recorded length and continues there. Use --name and --hold so that the broker keeps the place meanwhile.

A topic need not exist yet. A closed topic stays readable for a minute (broker.closed_linger_ms): --from oldest reads \
it, and --until-closed counts it.")]
pub(super) struct Args {
    /// Topics or filters: + is any one level, # the rest, as in 'sensors/+/temp' and 'sensors/#'
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<TopicFilter>,
    /// Where to begin: newest, oldest (that the broker still has), last (the last delivery, a last value), an age (-30s,
    /// -1h), a time (2026-11-21T10:00:00Z, in UTC), the position of a message, or EPOCH:POSITION, as printed by --json.
    /// Publishers that appear later are received from their first message
    #[arg(long, default_value = "newest", value_parser = From, allow_hyphen_values = true, hide_possible_values = true)]
    from: StartFrom,
    /// End after this many messages
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_count)]
    count: Option<u64>,
    /// End when the publishers have closed every topic; with a pattern, every topic that it has matched so far, at least
    /// one
    #[arg(long)]
    until_closed: bool,
    /// Write to this file, and continue it when started again; with several topics or a pattern, write to files in this
    /// directory
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// With --output: sync the file to disk before its messages count as received. Survives a crash of the machine; slower
    #[arg(long, requires = "output")]
    sync: bool,
    /// Name of this subscriber in the broker's log, and for --hold
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    name: Option<String>,
    /// With --name: how long the broker keeps the place of this subscriber while it is offline
    #[arg(long, value_name = "TIME", requires = "name", default_value = "0", value_parser = times::parse)]
    hold: Duration,
    /// The policy when this subscriber is slow [default: block where the broker's rules allow it; otherwise drop, or disconnect,
    /// with a report]
    #[arg(long, value_name = "POLICY", value_enum)]
    policy: Option<WhenSlow>,
    /// With --policy drop or disconnect: the lag at which the policy acts; 0: the broker's default
    #[arg(long, value_name = "BYTES", requires = "policy", value_parser = bytes::parse)]
    max_lag: Option<u64>,
    /// Read at most this many bytes per second
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    rate: Option<u64>,
    /// Print one JSON object per message
    #[arg(long)]
    json: bool,
    /// Print the topic and a tab before each message
    #[arg(long, conflicts_with = "json")]
    print_topic: bool,
    /// Size of the ring for each publisher's messages in this process
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse)]
    ring_bytes: Option<u64>,
    /// Memory for the rings of all topics that only patterns match; default 64 MiB. When a slow reader fills it, publishers
    /// wait
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse)]
    budget: Option<u64>,
    /// Largest message for which a ring grows when it comes; default 64 MiB. A topic with a larger one ends with an error
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse)]
    max_message_bytes: Option<u64>,
    #[command(flatten)]
    worker: worker::GroupArgs,
    #[command(flatten)]
    client: client::ClientArgs,
}

fn parse_count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".into()),
        Ok(count) => Ok(count),
        Err(_) => Err(format!("'{text}' is not a number of messages")),
    }
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match bytes::parse(text)? {
        0 => Err("at least 1 byte per second; without --rate there is no limit".into()),
        rate => Ok(rate),
    }
}

/// The values of `--policy`. The framework's policy `overwrite` needs other buffers than the broker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum WhenSlow {
    /// Publishers wait for the subscriber
    Block,
    /// The subscriber skips messages, and reports how many bytes it lost
    Drop,
    /// The broker ends the subscription
    Disconnect,
}

impl Args {
    fn slow_policy(&self) -> SlowPolicy {
        // Zero is the broker's default.
        let max_lag_bytes = self.max_lag.filter(|lag| *lag > 0);
        match self.policy {
            None => SlowPolicy::BlockIfAllowed,
            Some(WhenSlow::Block) => SlowPolicy::Block,
            Some(WhenSlow::Drop) => SlowPolicy::Drop { max_lag_bytes },
            Some(WhenSlow::Disconnect) => SlowPolicy::Disconnect { max_lag_bytes },
        }
    }
}

/// Parses a time or an age: `2026-11-21T10:00:00Z`, `-30s`.
fn parse_time(text: &str) -> Result<StartFrom, String> {
    let time = match text.strip_prefix('-') {
        Some(ago) => {
            let ago = times::parse(ago).map_err(|error| format!("{error}; as -30s or -1h30m"))?;
            SystemTime::now().checked_sub(ago).ok_or_else(|| format!("'{text}' is too long ago"))?
        }
        None => humantime::parse_rfc3339_weak(text)
            .map_err(|error| format!("'{text}' is not a time in UTC, as 2026-11-21T10:00:00Z: {error}"))?,
    };
    Ok(StartFrom::Time(time))
}

/// Parses `--from`, and offers the values that are words to shell completions.
#[derive(Debug, Clone, Copy)]
struct From;

impl TypedValueParser for From {
    type Value = StartFrom;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<StartFrom, clap::Error> {
        // The error then has the same form as the others of clap.
        TypedValueParser::parse_ref(&parse_from, command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(["newest", "oldest", "last"].into_iter().map(PossibleValue::new)))
    }
}

fn parse_from(text: &str) -> Result<StartFrom, String> {
    let position = |text: &str| text.parse::<Position>().map_err(|_| format!("'{text}' is not a position"));
    match text {
        "newest" => Ok(StartFrom::Newest),
        "oldest" => Ok(StartFrom::Oldest),
        "last" => Ok(StartFrom::Last),
        _ if text.contains('-') => parse_time(text),
        _ => match text.split_once(':') {
            None => position(text).map(StartFrom::Position).map_err(|_| {
                format!("'{text}' must be newest, oldest, last, -AGE, TIME, POSITION or EPOCH:POSITION")
            }),
            Some((epoch, at)) => {
                let epoch = u128::from_str_radix(epoch, 16)
                    .map_err(|_| format!("'{epoch}' is not an epoch, which has 32 hexadecimal digits"))?;
                Ok(StartFrom::Positions(vec![(Epoch(epoch), position(at)?)]))
            }
        },
    }
}

fn connect(args: &Args) -> Result<Subscriber, Failure> {
    let mut builder = Subscriber::builder()
        .durable(args.name.as_deref().unwrap_or("rbmq sub"), args.hold)
        .slow(args.slow_policy())
        .confirm_consumed(args.output.is_some());
    let config = args.client.config()?;
    // The reader of the output may be slow. With small batches, no publisher waits long for the batches of others.
    let ring_bytes = args.ring_bytes.unwrap_or(config.buffers.size_bytes);
    builder = builder.batch_bytes(ring_bytes / 16).config(config);
    if let Some(bytes) = args.ring_bytes {
        builder = builder.ring_bytes(bytes);
    }
    if let Some(bytes) = args.budget {
        builder = builder.budget_bytes(bytes);
    }
    if let Some(bytes) = args.max_message_bytes {
        builder = builder.max_message_bytes(bytes);
    }
    builder.login(args.client.login.read()?).connect(&args.client.broker).map_err(|e| args.client.explain(&e))
}

pub(super) fn run(args: &Args, quiet: bool) -> Result<(), Failure> {
    if args.max_lag.is_some() && args.policy == Some(WhenSlow::Block) {
        let text = "--max-lag needs --policy drop or --policy disconnect: the policy block has no lag";
        return Err(Failure::Usage("sub", text.into()));
    }
    if args.worker.group.is_some() {
        return work(args);
    }
    let stop = Stop::install()?;
    let format = Format { json: args.json, print_topic: args.print_topic };
    let mut sink = match &args.output {
        None => Sink::stdout(format, &stop)?,
        Some(output) => Sink::files(output, &args.topics, format, args.sync)?,
    };
    let mut subscriber = connect(args)?;
    // Without a broker nothing is made.
    sink.make()?;
    if !quiet && matches!(args.from, StartFrom::Time(time) if time > SystemTime::now()) {
        print_error("rbmq", "--from: this time is in the future (times are in UTC); begins about now");
    }
    let mut beginnings = Beginnings::new();
    for topic in &args.topics {
        let from = match sink.positions(topic) {
            Some(positions) => {
                info!("'{topic}': continuing at the end of the output");
                beginnings.add(topic, None);
                StartFrom::Positions(positions)
            }
            None => {
                // A place that the broker keeps takes precedence over --from.
                beginnings.add(topic, args.hold.is_zero().then(|| args.from.clone()));
                beginnings.expect(&args.from);
                args.from.clone()
            }
        };
        subscriber.subscribe_from(topic.as_str(), from).map_err(Failure::failed)?;
    }
    // A position from the command line need not be the start of a message.
    let resumable = !matches!(args.from, StartFrom::Position(_) | StartFrom::Positions(_));
    let mut job = Job { sink, beginnings, resumable, received: 0, missing: 0, gone: 0, quiet };
    let result = job.receive(&mut subscriber, args, &stop);
    if let Some(text) = job.beginnings.unknown_logs() {
        job.report(&text);
    }
    let settled = job.sink.settle();
    result.and(settled)?;
    drop(job.sink);
    subscriber.close_timeout(Some(Duration::from_secs(2)));
    if job.missing > 0 || job.gone > 0 {
        return Err(Failure::Incomplete(missing_text(job.missing, job.gone)));
    }
    Ok(())
}

/// Works for a group.
fn work(args: &Args) -> Result<(), Failure> {
    let name = args.name.as_deref().unwrap_or("rbmq sub");
    let options =
        Subscriber::builder().name(name).config(args.client.config()?).login(args.client.login.read()?);
    let Args { topics, from, count, json, print_topic, client, .. } = args;
    let (count, json, print_topic) = (*count, *json, *print_topic);
    worker::run(&args.worker, options, &worker::Work { topics, from, count, json, print_topic, client })
}

fn missing_text(bytes: u64, gone: u64) -> String {
    match (bytes, gone) {
        (0, _) => "not complete: a publisher ended without closing its topic".into(),
        (bytes, 0) => format!("not complete: {bytes} bytes were lost"),
        (bytes, _) => {
            format!("not complete: {bytes} bytes were lost, and a publisher ended without closing its topic")
        }
    }
}

/// The state of receiving.
struct Job<'a> {
    sink: Sink<'a>,
    beginnings: Beginnings,
    /// Whether a later run can resume at the start of a log of which nothing was received.
    resumable: bool,
    received: u64,
    /// The number of lost bytes.
    missing: u64,
    /// The number of publishers that ended without closing.
    gone: u64,
    quiet: bool,
}

impl Job<'_> {
    fn receive(&mut self, subscriber: &mut Subscriber, args: &Args, stop: &Stop) -> Result<(), Failure> {
        let mut pace = Pace::new(args.rate, stop);
        while !stop.asked() {
            let most = args.count.map_or(u64::MAX, |count| count - self.received);
            if most == 0 || (args.until_closed && subscriber.ended()) {
                break;
            }
            if let Some(text) = self.beginnings.overdue(subscriber.is_connected()) {
                self.report(&text);
            }
            // Output is flushed as soon as no message waits.
            let wait = if self.sink.is_pending() { Duration::ZERO } else { STEP };
            match subscriber.next_event(Some(wait)).map_err(Failure::failed)? {
                Some(Event::Batch(batch)) => {
                    self.beginnings.check(&batch).map_err(Failure::Failed)?;
                    self.received += self.sink.write(batch, most, &mut pace)?;
                }
                Some(Event::Notice(notice)) => self.on_notice(notice)?,
                Some(_) => {}
                None => {
                    self.sink.settle()?;
                    if self.sink.is_abandoned() {
                        return Err(Failure::OutputClosed);
                    }
                }
            }
        }
        Ok(())
    }

    fn on_notice(&mut self, notice: Notice) -> Result<(), Failure> {
        if let Some(text) = self.beginnings.on_notice(&notice) {
            self.report(&text);
        }
        match notice {
            Notice::Joined { topic, epoch, start } => {
                debug!("topic '{topic}': receiving log {epoch} from position {start}");
                self.sink.begin(&topic, epoch, start, self.resumable)?;
            }
            Notice::Lost { topic, epoch, from, to } => {
                self.missing = self.missing.saturating_add(to.saturating_sub(from));
                self.report(&format!(
                    "topic '{topic}': {} bytes of log {epoch} were lost (positions {from} to {to})",
                    to.saturating_sub(from)
                ));
            }
            Notice::Closed { topic, epoch, end } => {
                info!("topic '{topic}': closed at {end}");
                self.sink.end(&topic, epoch);
            }
            Notice::Gone { topic, epoch, end } => {
                self.gone += 1;
                self.sink.end(&topic, epoch);
                self.report(&format!("topic '{topic}': its publisher is gone; its log ends at {end}"));
            }
            Notice::LogReplaced { topic, epoch } => self.report(&format!(
                "topic '{topic}': the broker was restarted and has another log ({epoch}); messages that it had accepted before may \
                 be missing"
            )),
            Notice::OptionClamped(text) => self.report(&text),
            Notice::Disconnected(why) => warn!("the connection to the broker is down ({why}); trying again"),
            Notice::Reconnected => info!("connected again"),
            Notice::Refused { topic: Some(topic), reason } => {
                return Err(Failure::Failed(format!("topic '{topic}': {reason}")));
            }
            Notice::Refused { topic: None, reason } => return Err(Failure::Failed(reason)),
            other => debug!("{other:?}"),
        }
        Ok(())
    }

    /// Prints a message about missing or awaited data at any log level, but not with --quiet.
    fn report(&self, text: &str) {
        if !self.quiet {
            print_error("rbmq", text);
        }
    }
}
