//! `rbmq top` and `rbmq topics`: what a broker does, and who is slow.

mod holding;
mod keys;
pub(super) mod picture;
mod reading;
pub(super) mod screen;
pub(super) mod table;
pub(super) mod text;

use std::io::Write;
use std::time::Duration;

use rbmq::{ConnectError, ObserveError, Observer, TopicFilter};

use super::client::ClientArgs;
use super::failure::Failure;
use super::stop::Stop;
use super::terminal::is_dumb;
use super::times;
use keys::Key;
use reading::{Reading, Scroll, Subject};
use screen::Screen;
use table::Sort;

/// How long the broker may take for an answer: longer than it ever does, and short enough to wait for after Ctrl-C.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lines of a window that do not move: three of head, the table's own, the sum of the rest, and one that is seen again.
const PAGE_LESS: usize = 6;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq top
  rbmq top 'sensors/#' --sort lag
  rbmq top sensors/kitchen
  rbmq top --once --json | jq '.topics[] | select(.max_lag_bytes > 0)'

With a topic's name it draws the topic's rings: where its publisher writes, where each subscriber is, and who holds \
whom. On a terminal ? tells the keys, q or Ctrl-C ends it; elsewhere it prints plain text every so often.")]
pub(super) struct Args {
    /// Only these topics ('+' is any one level, '#' the rest); a name without wildcards draws that topic's rings
    #[arg(value_name = "FILTER")]
    filter: Option<TopicFilter>,
    /// How often to look
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = times::parse_interval)]
    interval: Duration,
    /// Look twice, an interval apart, and print once
    #[arg(long)]
    once: bool,
    /// Print JSON, an object in a line for each look
    #[arg(long)]
    json: bool,
    /// What comes first: the highest rate, the largest lag, or by name
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
    /// One JSON object per topic, in a line
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
    Ok(Observer::builder().name("rbmq top").config(config).timeout(Some(PATIENCE)).connect(&client.broker))
}

/// Prints; whoever reads may stop.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// `rbmq top`.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let live = !args.once && !args.json && screen::is_terminal() && !is_dumb();
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
                "the broker has no topic '{topic}' now: nobody publishes it, and nothing of it is kept"
            )));
        }
        self.print(&reading, Some(first))
    }

    /// Text or JSON for whoever reads standard output, until told to end.
    fn print_on(&self, stop: &Stop, mut observer: Observer, mut before: Reading) -> Result<(), Failure> {
        while !stop.wait(Some(self.args.interval)) {
            let reading = self.subject.read(&mut observer).map_err(Failure::failed)?;
            self.print(&reading, Some(&before))?;
            before = reading;
        }
        Ok(())
    }

    fn print(&self, reading: &Reading, old: Option<&Reading>) -> Result<(), Failure> {
        if self.args.json {
            return print(&reading.json(&self.subject, old, &self.broker).to_string());
        }
        let lines = reading.text(&self.subject, old, &self.broker, screen::width());
        print(&lines.join("\n"))?;
        // Tables that follow each other are told apart.
        if self.args.once { Ok(()) } else { print("") }
    }

    /// The alternate screen, until told to end. While the broker is away it shows what was last, and tries again.
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
                        // What passed meanwhile, perhaps at another broker process, says nothing of now.
                        scene.before = None;
                    }
                }
                Err(why) => scene.trouble = Some(why),
            }
        }
    }

    /// Reads again, over another connection if there is none.
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
                // A broker that is only slow is asked again over the same connection.
                *observer = matches!(error, ObserveError::TimedOut { .. }).then_some(open);
                Ok(Err(error.to_string()))
            }
        }
    }

    fn draw(&self, screen: &Screen, scene: &mut Scene) -> Result<(), Failure> {
        let (width, height) = screen::size();
        let Scene { now, before, trouble, scroll, help } = scene;
        let mut lines = match help {
            true => keys::help(width),
            false => now.window(&self.subject, before.as_ref(), &self.broker, (width, height), scroll),
        };
        if let Some(why) = trouble {
            lines.insert(0, text::cut(&format!("as it was; trying again: {}", text::name(why, 200)), width));
        }
        screen.draw(&lines).map_err(|error| Failure::output(&error))
    }

    /// Waits for the next look; true if it is to end.
    fn wait(&self, stop: &Stop, screen: &Screen, scene: &mut Scene) -> Result<bool, Failure> {
        let deadline = std::time::Instant::now() + self.args.interval;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let readable = stop.wait_any(&screen.sources(), left).map_err(Failure::failed)?;
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

/// What is shown, and how much of it.
struct Scene {
    now: Reading,
    before: Option<Reading>,
    /// Why there is nothing newer.
    trouble: Option<String>,
    scroll: Scroll,
    /// Whether the page about keys is shown instead.
    help: bool,
}

impl Scene {
    /// Does what a key says; true if that is to end.
    fn press(&mut self, key: Key) -> bool {
        if key == Key::Quit {
            return true;
        }
        if self.help || key == Key::Help {
            self.help = !self.help;
            return false;
        }
        // A line of the window before is seen again.
        let page = screen::size().1.saturating_sub(PAGE_LESS).max(1);
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
            print(&serde_json::json!(topic).to_string())?;
        }
        return Ok(());
    }
    print(&table::listing(&topics).join("\n"))
}
