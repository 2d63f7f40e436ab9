//! `rbmq top` and `rbmq topics`: the topics of a broker, and slow subscribers.

mod blocking;
mod gateways;
mod groups;
mod keys;
mod members;
pub(super) mod picture;
mod reading;
pub(super) mod screen;
pub(super) mod table;
pub(super) mod text;

use std::time::Duration;

use commands::{Failure, Stdout, Stop, terminal};
use rbmq::{ConnectError, ObserveError, Observer, TopicFilter};

use super::client::ClientArgs;
use super::times;
use keys::Key;
use members::{Crowd, Members};
use reading::{Reading, Scroll, Size, Subject};
use screen::Screen;
use table::Sort;

/// How long the broker may take for an answer: longer than it ever needs, and short enough to wait for after Ctrl-C.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Lines of a window that do not scroll: three of the heading, the head of the table, the sum of the rest, and one line of overlap.
const FIXED_LINES: usize = 6;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq top
  rbmq top 'sensors/#' --sort lag
  rbmq top sensors/kitchen
  rbmq top --once --json | jq '.topics[] | select(.max_lag_bytes > 0)'
  rbmq top --cluster --config /etc/rbmq/rbmq.toml

With the name of a topic, the command draws the rings of the topic: the position of the publisher, the positions of the \
subscribers, and which of them hold the publisher. On a terminal, ? lists the keys, and q or Ctrl-C ends the command. \
Elsewhere, it prints plain text at each interval.")]
pub(super) struct Args {
    /// Only these topics ('+' is any one level, '#' the rest); a name without wildcards draws that topic's rings
    #[arg(value_name = "FILTER")]
    filter: Option<TopicFilter>,
    /// The interval between two samples
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = times::parse_interval)]
    interval: Duration,
    /// Take two samples, an interval apart, and print once
    #[arg(long)]
    once: bool,
    /// Print one JSON object per sample and line
    #[arg(long)]
    json: bool,
    /// Show the topics of all members of the cluster that the file of --config names, each with its member
    #[arg(long, requires = "config")]
    cluster: bool,
    /// The order: the highest rate first, the largest lag first, or by name
    #[arg(long, value_enum, default_value_t = Sort::Rate)]
    sort: Sort,
    #[command(flatten)]
    client: ClientArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq topics
  rbmq topics 'sensors/#' --json")]
pub(super) struct ListArgs {
    /// Only these topics: '+' is any one level, '#' the rest
    #[arg(value_name = "FILTER")]
    filter: Option<TopicFilter>,
    /// Print one JSON object per topic and line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientArgs,
}

fn connect(client: &ClientArgs) -> Result<Observer, Failure> {
    try_connect(client)?.map_err(|error| client.explain(&error))
}

fn try_connect(client: &ClientArgs) -> Result<Result<Observer, ConnectError>, Failure> {
    let config = client.config()?;
    Ok(Observer::builder()
        .name("rbmq top")
        .config(config)
        .login(client.login.read()?)
        .timeout(Some(ANSWER_TIMEOUT))
        .connect(&client.broker))
}

/// Prints a text to standard output.
fn print(text: &str) -> Result<(), Failure> {
    commands::print(format!("{text}\n"))
}

/// `rbmq top`.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let live = !args.once && !args.json && terminal::is_terminal() && !terminal::is_dumb();
    let stop = Stop::install()?;
    let mut source = match args.cluster {
        true => Source::Cluster(Box::new(Crowd::open(&args.client)?)),
        false => Source::Broker(Some(connect(&args.client)?)),
    };
    let subject = match &args.filter {
        // The rings of a topic are those of one broker.
        Some(filter) => match filter.as_topic().filter(|_| !args.cluster) {
            Some(topic) => Subject::Topic(topic),
            None => Subject::Topics(Some(filter.clone()), args.sort),
        },
        None => Subject::Topics(None, args.sort),
    };
    let top = Top { args, subject, broker: args.client.broker.clone() };
    let first = top.read(&mut source)?;
    if args.once {
        return top.once(&stop, &mut source, &first);
    }
    if live {
        return top.live(&stop, source, first);
    }
    top.print_on(&stop, source, first)
}

/// Who is asked.
enum Source {
    /// One broker; none while there is no connection.
    Broker(Option<Observer>),
    /// All members of a cluster.
    Cluster(Box<Crowd>),
}

/// A sample of what is asked.
enum Sample {
    Broker(Box<Reading>),
    Cluster(Members),
}

impl Sample {
    fn reading(&self) -> Option<&Reading> {
        match self {
            Self::Broker(reading) => Some(reading),
            Self::Cluster(_) => None,
        }
    }

    fn members(&self) -> Option<&Members> {
        match self {
            Self::Broker(_) => None,
            Self::Cluster(members) => Some(members),
        }
    }
}

struct Top<'a> {
    args: &'a Args,
    subject: Subject,
    broker: String,
}

impl Top<'_> {
    /// Takes a sample, which must be one.
    fn read(&self, source: &mut Source) -> Result<Sample, Failure> {
        self.look(source)?.map_err(Failure::Failed)
    }

    fn once(&self, stop: &Stop, source: &mut Source, first: &Sample) -> Result<(), Failure> {
        if stop.wait(Some(self.args.interval)) {
            return Ok(());
        }
        let reading = self.read(source)?;
        let is_missing = reading.reading().is_some_and(Reading::is_missing);
        if let (true, Subject::Topic(topic)) = (is_missing, &self.subject) {
            return Err(Failure::Failed(format!(
                "the broker has no topic '{topic}': it has no publisher, and no messages of it are kept"
            )));
        }
        commands::print(self.text(&reading, Some(first)))
    }

    /// Prints text or JSON to standard output until the command is asked to end.
    fn print_on(&self, stop: &Stop, mut source: Source, mut before: Sample) -> Result<(), Failure> {
        let mut out = Stdout::open(stop)?;
        while !stop.wait(Some(self.args.interval)) && !out.is_abandoned() {
            let reading = self.read(&mut source)?;
            out.write(self.text(&reading, Some(&before)).as_bytes())?;
            before = reading;
        }
        Ok(())
    }

    fn text(&self, sample: &Sample, old: Option<&Sample>) -> String {
        let (order, width) = (self.args.sort, terminal::width());
        if self.args.json {
            let json = match sample {
                Sample::Broker(reading) => {
                    reading.json(&self.subject, old.and_then(Sample::reading), &self.broker)
                }
                Sample::Cluster(members) => members.json(order, old.and_then(Sample::members)),
            };
            return ::text::json(&json.to_string()).into_owned() + "\n";
        }
        let lines = match sample {
            Sample::Broker(reading) => {
                reading.text(&self.subject, old.and_then(Sample::reading), &self.broker, width)
            }
            Sample::Cluster(members) => members.text(order, old.and_then(Sample::members), width),
        };
        // An empty line separates tables.
        lines.join("\n") + if self.args.once { "\n" } else { "\n\n" }
    }

    /// Shows the alternate screen until the command is asked to end. While the broker is offline, it shows the last state and
    /// reconnects.
    fn live(&self, stop: &Stop, mut source: Source, first: Sample) -> Result<(), Failure> {
        let screen = Screen::open(stop).map_err(Failure::failed)?;
        let mut scene =
            Scene { now: first, before: None, trouble: None, scroll: Scroll::default(), help: false };
        loop {
            self.draw(&screen, &mut scene)?;
            if self.wait(stop, &screen, &mut scene)? {
                return Ok(());
            }
            match self.look(&mut source)? {
                Ok(reading) => {
                    scene.before = Some(std::mem::replace(&mut scene.now, reading));
                    if scene.trouble.take().is_some() {
                        // Counters of another broker process would give wrong rates.
                        scene.before = None;
                    }
                }
                Err(why) => scene.trouble = Some(why),
            }
        }
    }

    /// Takes a sample. Connects first if there is no connection.
    fn look(&self, source: &mut Source) -> Result<Result<Sample, String>, Failure> {
        match source {
            Source::Broker(observer) => {
                let reading = self.look_at_broker(observer)?;
                Ok(reading.map(|reading| Sample::Broker(Box::new(reading))))
            }
            Source::Cluster(crowd) => Ok(Ok(Sample::Cluster(crowd.read(&self.subject)))),
        }
    }

    fn look_at_broker(&self, observer: &mut Option<Observer>) -> Result<Result<Reading, String>, Failure> {
        let mut open = match observer.take() {
            Some(open) => open,
            None => match try_connect(&self.args.client)? {
                Ok(open) => open,
                Err(error) => return Ok(Err(error.to_string())),
            },
        };
        match self.subject.read(&mut open) {
            Ok(reading) => {
                *observer = Some(open);
                Ok(Ok(reading))
            }
            Err(error) => {
                // The connection to a slow broker is kept.
                *observer = matches!(error, ObserveError::TimedOut { .. }).then_some(open);
                Ok(Err(error.to_string()))
            }
        }
    }

    fn draw(&self, screen: &Screen, scene: &mut Scene) -> Result<(), Failure> {
        let (width, height) = terminal::size();
        let Scene { now, before, trouble, scroll, help } = scene;
        let mut lines = match help {
            true => keys::help(width),
            false => self.window(now, before.as_ref(), Size { width, height }, scroll),
        };
        if let Some(why) = trouble {
            lines.insert(0, text::cut(&format!("as it was; trying again: {}", text::name(why, 200)), width));
        }
        screen.draw(&lines).map_err(|error| Failure::output(&error))
    }

    fn window(&self, now: &Sample, old: Option<&Sample>, size: Size, scroll: &mut Scroll) -> Vec<String> {
        match now {
            Sample::Broker(reading) => {
                reading.window(&self.subject, old.and_then(Sample::reading), &self.broker, size, scroll)
            }
            Sample::Cluster(members) => {
                members.window(self.args.sort, old.and_then(Sample::members), size, scroll)
            }
        }
    }

    /// Waits for the next sample. True if the command is asked to end.
    fn wait(&self, stop: &Stop, screen: &Screen, scene: &mut Scene) -> Result<bool, Failure> {
        let deadline = std::time::Instant::now() + self.args.interval;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let readable = stop.wait_any(&screen.sources(), Some(left)).map_err(Failure::failed)?;
            if stop.asked() {
                return Ok(true);
            }
            if readable.contains(&true) {
                if screen.take(&readable).into_iter().any(|key| scene.press(key)) {
                    return Ok(true);
                }
                self.draw(screen, scene)?;
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }
}

/// The state of the screen.
struct Scene {
    now: Sample,
    before: Option<Sample>,
    /// Why there is no newer sample.
    trouble: Option<String>,
    scroll: Scroll,
    /// Whether the list of keys is shown instead.
    help: bool,
}

impl Scene {
    /// Handles a key. True if the key ends the command.
    fn press(&mut self, key: Key) -> bool {
        if key == Key::Quit {
            return true;
        }
        if self.help || key == Key::Help {
            self.help = !self.help;
            return false;
        }
        // The last line of the previous page stays visible.
        let page = terminal::size().1.saturating_sub(FIXED_LINES).max(1);
        let Scroll { from, last } = self.scroll;
        let to = match key {
            Key::Lines(lines) => from.saturating_add_signed(lines),
            Key::Pages(pages) => from.saturating_add_signed(pages * page as isize),
            Key::First => 0,
            Key::Last => last,
            Key::Quit | Key::Help | Key::Other => from,
        };
        self.scroll.from = to.min(last);
        false
    }
}

/// `rbmq topics`.
pub(super) fn list(args: &ListArgs) -> Result<(), Failure> {
    let mut observer = connect(&args.client)?;
    let topics = observer.topics(args.filter.as_ref()).map_err(Failure::failed)?;
    if args.json {
        for topic in &topics {
            print(&::text::json(&serde_json::json!(topic).to_string()))?;
        }
        return Ok(());
    }
    print(&table::listing(&topics).join("\n"))
}
