//! `rbmq top` and `rbmq topics`: the topics of a broker, and slow subscribers.

mod blocking;
mod gateways;
mod keys;
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
    let mut observer = connect(&args.client)?;
    let subject = match &args.filter {
        Some(filter) => match filter.as_topic() {
            Some(topic) => Subject::Topic(topic),
            None => Subject::Topics(Some(filter.clone()), args.sort),
        },
        None => Subject::Topics(None, args.sort),
    };
    let first = subject.read(&mut observer).map_err(Failure::failed)?;
    let top = Top { args, subject, broker: args.client.broker.clone() };
    if args.once {
        return top.once(&stop, &mut observer, &first);
    }
    if live {
        return top.live(&stop, observer, first);
    }
    top.print_on(&stop, observer, first)
}

struct Top<'a> {
    args: &'a Args,
    subject: Subject,
    broker: String,
}

impl Top<'_> {
    fn once(&self, stop: &Stop, observer: &mut Observer, first: &Reading) -> Result<(), Failure> {
        if stop.wait(Some(self.args.interval)) {
            return Ok(());
        }
        let reading = self.subject.read(observer).map_err(Failure::failed)?;
        if let (true, Subject::Topic(topic)) = (reading.is_missing(), &self.subject) {
            return Err(Failure::Failed(format!(
                "the broker has no topic '{topic}': it has no publisher, and no messages of it are kept"
            )));
        }
        commands::print(self.text(&reading, Some(first)))
    }

    /// Prints text or JSON to standard output until the command is asked to end.
    fn print_on(&self, stop: &Stop, mut observer: Observer, mut before: Reading) -> Result<(), Failure> {
        let mut out = Stdout::open(stop)?;
        while !stop.wait(Some(self.args.interval)) && !out.is_abandoned() {
            let reading = self.subject.read(&mut observer).map_err(Failure::failed)?;
            out.write(self.text(&reading, Some(&before)).as_bytes())?;
            before = reading;
        }
        Ok(())
    }

    fn text(&self, reading: &Reading, old: Option<&Reading>) -> String {
        if self.args.json {
            let json = reading.json(&self.subject, old, &self.broker).to_string();
            return ::text::json(&json).into_owned() + "\n";
        }
        let lines = reading.text(&self.subject, old, &self.broker, terminal::width());
        // An empty line separates tables.
        lines.join("\n") + if self.args.once { "\n" } else { "\n\n" }
    }

    /// Shows the alternate screen until the command is asked to end. While the broker is offline, it shows the last state and
    /// reconnects.
    fn live(&self, stop: &Stop, observer: Observer, first: Reading) -> Result<(), Failure> {
        let screen = Screen::open(stop).map_err(Failure::failed)?;
        let mut observer = Some(observer);
        let mut scene =
            Scene { now: first, before: None, trouble: None, scroll: Scroll::default(), help: false };
        loop {
            self.draw(&screen, &mut scene)?;
            if self.wait(stop, &screen, &mut scene)? {
                return Ok(());
            }
            match self.look(&mut observer)? {
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
    fn look(&self, observer: &mut Option<Observer>) -> Result<Result<Reading, String>, Failure> {
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
            false => now.window(&self.subject, before.as_ref(), &self.broker, Size { width, height }, scroll),
        };
        if let Some(why) = trouble {
            lines.insert(0, text::cut(&format!("as it was; trying again: {}", text::name(why, 200)), width));
        }
        screen.draw(&lines).map_err(|error| Failure::output(&error))
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
    now: Reading,
    before: Option<Reading>,
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
