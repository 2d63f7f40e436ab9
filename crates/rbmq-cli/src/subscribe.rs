//! `rbmq sub`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::builder::{NonEmptyStringValueParser, PossibleValue, TypedValueParser};
use rbmq::{Event, Notice, SlowPolicy, StartFrom, Subscriber, TopicFilter};
use rocketbufs::{Epoch, Position};
use tracing::{debug, info, warn};

use super::begin::Beginnings;
use super::failure::Failure;
use super::sink::{Format, Pace, Sink};
use super::stop::Stop;
use super::terminal::print_error;
use super::{bytes, client, times};

/// How long one wait lasts before the command looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq sub news
  rbmq sub 'sensors/#' --print-topic
  rbmq sub news --from oldest --count 10 --json
  rbmq sub 'sensors/#' --from last --print-topic
  rbmq sub news --from -10m
  rbmq sub news --policy drop --max-lag 1M
  rbmq sub backup --output etc.tar --until-closed --name attic --hold 1m

With --output, FILE.rbmq-state says which bytes are in FILE: started again after any end, it cuts FILE to \
those and goes on exactly there. Give it a --name and a --hold so that the broker keeps its place meanwhile.

A topic need not exist yet. One that was closed stays readable for a while (broker.closed_linger_ms, a minute): \
it counts for --from oldest, and for --until-closed.")]
pub(super) struct Args {
    /// The topics, or filters of topics: + is any one level, # the rest, as in 'sensors/+/temp' and 'sensors/#'
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<TopicFilter>,
    /// Where to begin: newest, oldest (of what the broker still has), last (the last delivery: a last value), how
    /// long ago (-30s, -1h), a time (2026-11-21T10:00:00Z, in UTC), a position at which a message begins, or
    /// EPOCH:POSITION, as --json tells them; publishers that come later are received from their beginning
    #[arg(long, default_value = "newest", value_parser = From, allow_hyphen_values = true, hide_possible_values = true)]
    from: StartFrom,
    /// End after so many messages
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_count)]
    count: Option<u64>,
    /// End when every topic was closed by its publishers; with a pattern, every topic that it has matched by then, and
    /// at least one
    #[arg(long)]
    until_closed: bool,
    /// Write to this file, and go on where it stopped; with several topics or a pattern, to files in this directory
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// With --output: have everything on the disk before it counts as received, so that also a crash of the machine costs
    /// nothing; slower
    #[arg(long, requires = "output")]
    sync: bool,
    /// Name of this subscriber: in the broker's log, and for --hold
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    name: Option<String>,
    /// With --name: how long the broker keeps this subscriber's place when it is away
    #[arg(long, value_name = "TIME", requires = "name", default_value = "0", value_parser = times::parse)]
    hold: Duration,
    /// What happens when this subscriber is slow
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = WhenSlow::Block)]
    policy: WhenSlow,
    /// With --policy drop or disconnect: the lag at which it acts; 0, as without it: the broker's default
    #[arg(long, value_name = "BYTES", requires = "policy", value_parser = bytes::parse)]
    max_lag: Option<u64>,
    /// Read so many bytes per second at most
    #[arg(long, value_name = "BYTES", value_parser = parse_rate)]
    rate: Option<u64>,
    /// One JSON object per message
    #[arg(long)]
    json: bool,
    /// Write the topic and a tab before each message
    #[arg(long, conflicts_with = "json")]
    print_topic: bool,
    /// Ring for each publisher's messages here
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse)]
    ring_bytes: Option<u64>,
    /// What the rings of all topics that only patterns match take together, 64 MiB unless it is said; a slow reader holds
    /// back publishers when they are full of it
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse)]
    budget: Option<u64>,
    #[command(flatten)]
    client: client::ClientArgs,
}

fn parse_count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("at least 1".into()),
        Ok(count) => Ok(count),
        Err(_) => Err(format!("'{text}' is no number of messages")),
    }
}

fn parse_rate(text: &str) -> Result<u64, String> {
    match bytes::parse(text)? {
        0 => Err("at least 1 byte per second; without --rate it reads as fast as it can".into()),
        rate => Ok(rate),
    }
}

/// What `--policy` may say. The framework has a policy more, which needs a buffer made for it: the broker's are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum WhenSlow {
    /// Publishers wait for it
    Block,
    /// It loses what it is too late for, and is told how much
    Drop,
    /// The broker ends its subscription
    Disconnect,
}

impl Args {
    fn slow_policy(&self) -> SlowPolicy {
        // Zero is the broker's default.
        let max_lag_bytes = self.max_lag.filter(|lag| *lag > 0);
        match self.policy {
            WhenSlow::Block => SlowPolicy::Block,
            WhenSlow::Drop => SlowPolicy::Drop { max_lag_bytes },
            WhenSlow::Disconnect => SlowPolicy::Disconnect { max_lag_bytes },
        }
    }
}

/// A time, or how long ago it is: `-30s`, `2026-11-21T10:00:00Z`.
fn parse_time(text: &str) -> Result<StartFrom, String> {
    let time = match text.strip_prefix('-') {
        Some(ago) => {
            let ago = times::parse(ago).map_err(|error| format!("{error}; as -30s or -1h30m"))?;
            SystemTime::now().checked_sub(ago).ok_or_else(|| format!("'{text}' is too long ago"))?
        }
        None => humantime::parse_rfc3339_weak(text)
            .map_err(|error| format!("'{text}' is no time in UTC, as 2026-11-21T10:00:00Z: {error}"))?,
    };
    Ok(StartFrom::Time(time))
}

/// Reads `--from`, and names to shells those of its values that are words.
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
        // A function is a parser too, and words its error as clap does everywhere.
        TypedValueParser::parse_ref(&parse_from, command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(["newest", "oldest", "last"].into_iter().map(PossibleValue::new)))
    }
}

fn parse_from(text: &str) -> Result<StartFrom, String> {
    let position = |text: &str| text.parse::<Position>().map_err(|_| format!("'{text}' is no position"));
    match text {
        "newest" => Ok(StartFrom::Newest),
        "oldest" => Ok(StartFrom::Oldest),
        "last" => Ok(StartFrom::Last),
        _ if text.contains('-') => parse_time(text),
        _ => match text.split_once(':') {
            None => position(text).map(StartFrom::Position).map_err(|_| {
                format!("'{text}' is none of newest, oldest, last, -AGO, TIME, POSITION, EPOCH:POSITION")
            }),
            Some((epoch, at)) => {
                let epoch = u128::from_str_radix(epoch, 16)
                    .map_err(|_| format!("'{epoch}' is no epoch: 32 hexadecimal digits"))?;
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
    // Written as slowly as whoever reads it takes it: no publisher waits for more than a little of all others.
    let ring_bytes = args.ring_bytes.unwrap_or(config.buffers.size_bytes);
    builder = builder.batch_bytes(ring_bytes / 16).config(config);
    if let Some(bytes) = args.ring_bytes {
        builder = builder.ring_bytes(bytes);
    }
    if let Some(bytes) = args.budget {
        builder = builder.budget_bytes(bytes);
    }
    builder.connect(&args.client.broker).map_err(|e| args.client.explain(&e))
}

pub(super) fn run(args: &Args, quiet: bool) -> Result<(), Failure> {
    if args.max_lag.is_some() && args.policy == WhenSlow::Block {
        let text = "--max-lag needs --policy drop or --policy disconnect: with block nothing acts at a lag";
        return Err(Failure::Usage("sub", text.into()));
    }
    let stop = Stop::install()?;
    let format = Format { json: args.json, print_topic: args.print_topic };
    let sink = match &args.output {
        None => Sink::stdout(format, &stop)?,
        Some(output) => Sink::files(output, &args.topics, format, args.sync)?,
    };
    let mut subscriber = connect(args)?;
    if !quiet && matches!(args.from, StartFrom::Time(time) if time > SystemTime::now()) {
        print_error("--from: that time is still to come (times are in UTC); begins about now");
    }
    let mut beginnings = Beginnings::new();
    for topic in &args.topics {
        let from = match sink.positions(topic) {
            Some(positions) => {
                info!("'{topic}': going on where the output ends");
                beginnings.add(topic, None);
                StartFrom::Positions(positions)
            }
            None => {
                // A place that the broker keeps counts more than --from.
                beginnings.add(topic, args.hold.is_zero().then(|| args.from.clone()));
                beginnings.expect(&args.from);
                args.from.clone()
            }
        };
        subscriber.subscribe_from(topic.as_str(), from).map_err(Failure::failed)?;
    }
    // A position that somebody gave may be none at which a message begins.
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
        return Err(Failure::Lost(missing_text(job.missing, job.gone)));
    }
    Ok(())
}

fn missing_text(bytes: u64, gone: u64) -> String {
    match (bytes, gone) {
        (0, _) => "not complete: a publisher went away without closing its topic".into(),
        (bytes, 0) => format!("not complete: {bytes} bytes were lost"),
        (bytes, _) => {
            format!("not complete: {bytes} bytes were lost, and a publisher went away without closing")
        }
    }
}

/// What is received so far.
struct Job<'a> {
    sink: Sink<'a>,
    beginnings: Beginnings,
    /// Whether receiving can go on where a log begins here, before anything of it came.
    resumable: bool,
    received: u64,
    /// Bytes that were lost.
    missing: u64,
    /// Publishers that went away without closing.
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
            // What is written is pushed out as soon as nothing more is there.
            let wait = if self.sink.is_pending() { Duration::ZERO } else { LOOK };
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
                if self.resumable {
                    self.sink.begin(&topic, epoch, start)?;
                }
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
            Notice::OptionClamped(text) => self.report(&text),
            Notice::Disconnected(why) => warn!("the broker is away ({why}); trying again"),
            Notice::Reconnected => info!("the broker is back"),
            Notice::Refused { topic: Some(topic), reason } => {
                return Err(Failure::Failed(format!("topic '{topic}': {reason}")));
            }
            Notice::Refused { topic: None, reason } => return Err(Failure::Failed(reason)),
            other => debug!("{other:?}"),
        }
        Ok(())
    }

    /// What is missing or waited for is told whatever the level of logging, but for --quiet.
    fn report(&self, text: &str) {
        if !self.quiet {
            print_error(text);
        }
    }
}
