//! `rbmq-bench console`: the web console of a broker with many topics and clients.
//!
//! ```text
//!   this process: publishers of N topics, subscribers ──▶ broker with an HTTP endpoint, a process
//!                 streams of pages, calls, and windows of Chromium ──▶ its threads `rbmq-http` and `rbmq-console`
//! ```
//!
//! The bench counts the processor time of the broker's threads while nobody looks, while pages are open, and after they have closed. The console's
//! own threads have names; the others do the broker's work, and more of it while somebody looks. It also measures the bytes of each page,
//! the calls of the interface, and, where Chromium is installed, how soon a page shows something and how much of it moves then.

use std::{
    collections::HashMap,
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use benchkit::{
    fleet::{Process, words},
    output::{self, Output, human},
    sys,
};
use chromium::Browser;
use clap::Args;
use rbmq::{Publisher, Subscriber, TopicWriter};
use rocketbufs::{Context, config::TransportKind};
use serde::Serialize;

use crate::{
    campaign::check_times,
    error::BenchError,
    rbmq_peers::{config, failed},
    units,
};

/// Topics of one publisher: fewer than a broker allows one by default.
const TOPICS_PER_PUBLISHER: u32 = 1000;

/// The names of the console's threads.
const CONSOLE: [&str; 2] = ["rbmq-http", "rbmq-console"];

/// The size of a window.
const WINDOW: (u32, u32) = (1300, 850);

/// How long anything may take that comes before a measurement.
const PATIENCE: Duration = Duration::from_secs(600);

/// Pages that a person opens: the page, and the path of the interface that it follows.
const PAGES: [(&str, &str); 6] = [
    ("", "/overview"),
    ("topics", "/topics?limit=50"),
    ("topics?sort=rate", "/topics?sort=rate&limit=50"),
    ("topic?name=bench/0", "/topic?name=bench/0"),
    ("clients", "/clients?limit=50"),
    ("groups", "/groups?limit=50"),
];

/// The options of `rbmq-bench console`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rbmq-bench console --topics 100 --clients 20 --seconds 3s --calls 5 --windows 2
  rbmq-bench console --json console.json")]
pub struct ConsoleArgs {
    /// Topics, 1 to 100000
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    topics: u32,
    /// Publishers and subscribers, 1 to 10000
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Messages per second, each to the next topic
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Pages that are open at once, each of the next kind
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=32))]
    pages: u32,
    /// Windows of Chromium that show them, if it is installed
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=32))]
    windows: u32,
    /// How often each path is called
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    calls: u32,
    /// How long processor time and bytes are counted, with pages and without
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::seconds)]
    seconds: f64,
    #[command(flatten)]
    output: Output,
}

/// The processor time of the broker's threads for a while, in percent of a core.
#[derive(Debug, Clone, Serialize)]
struct Share {
    /// Who looks.
    pages: String,
    endpoint_percent: f64,
    console_percent: f64,
    broker_percent: f64,
    /// Of all other processes of the machine, in cores.
    other_cores: f64,
}

/// The stream of a page, or the calls of its path.
#[derive(Debug, Clone, Default)]
struct Line {
    path: String,
    bytes_per_minute: f64,
    call_bytes: usize,
    p50_ms: f64,
    p99_ms: f64,
}

/// What a browser says of a page.
#[derive(Debug, Clone, Default)]
struct Shown {
    page: String,
    first_ms: f64,
    largest_ms: f64,
    shift: f64,
}

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &ConsoleArgs) -> Result<(), BenchError> {
    const NAME: &str = "console";
    check_times(args.seconds, 0.0)?;
    let bench = Bench::start(args)?;
    let mut shares = vec![bench.share("none", || ())];
    let (lines, own) = bench.streams(&PAGES.map(|(_, path)| path.to_owned()));
    shares.push(own);
    // All look for something else, so that no two have the same answer.
    let different: Vec<_> = (0..args.pages).map(|n| format!("/topics?search={n}&limit=50")).collect();
    shares.push(bench.streams(&different).1);
    let lines: Vec<_> = lines.into_iter().map(|line| bench.calls(line)).collect::<Result<_, _>>()?;
    let (shown, own) = bench.windows();
    shares.extend(own);
    thread::sleep(Duration::from_secs(2));
    shares.push(bench.share("none any more", || ()));
    args.output.write_rows(NAME, &shares)?;
    let head = output::head(&format!(
        "rbmq {}\n{} topics, {} clients, {} messages per second, {} pages",
        env!("CARGO_PKG_VERSION"),
        args.topics,
        args.clients,
        args.rate,
        args.pages
    ));
    Ok(args.output.publish(NAME, &format!("{head}\n{}", tables(&shares, &lines, &shown)))?)
}

struct Bench<'a> {
    args: &'a ConsoleArgs,
    broker: Process,
    http: String,
    is_over: Arc<AtomicBool>,
    _publishers: Vec<Publisher>,
    _subscribers: Vec<Subscriber>,
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl<'a> Bench<'a> {
    fn start(args: &'a ConsoleArgs) -> Result<Self, BenchError> {
        let broker = Process::start("broker", &words(&["broker", "--http", "127.0.0.1:0"]))?;
        let mut ready = broker.answer("ready")?;
        let addr = ready.pop().unwrap_or_default();
        let http = ready.pop().unwrap_or_default();
        rbmq_broker::raise_descriptor_limit();
        let context = Context::new(config(TransportKind::Tcp, None)?).map_err(failed)?;
        let (mut publishers, mut topics) = (Vec::new(), Vec::new());
        for topic in 0..args.topics {
            if topic.is_multiple_of(TOPICS_PER_PUBLISHER) {
                let name = format!("publisher {topic}");
                let builder = Publisher::builder().context(&context).name(&name);
                publishers.push(builder.connect(&addr).map_err(failed)?);
            }
            let publisher = publishers.last().expect("the first topic made one");
            topics.push(publisher.topic(&format!("bench/{topic}")).map_err(failed)?);
        }
        let mut subscribers = Vec::new();
        for n in 0..args.clients.saturating_sub(publishers.len() as u32) {
            let name = format!("subscriber {n}");
            let builder = Subscriber::builder().context(&context).name(&name);
            let mut subscriber = builder.connect(&addr).map_err(failed)?;
            subscriber.subscribe(&format!("bench/{}", n % args.topics)).map_err(failed)?;
            subscribers.push(subscriber);
        }
        eprintln!("  {} topics, {} subscribers", topics.len(), subscribers.len());
        if !subscribers.is_empty() {
            topics[0].wait_subscribers(1, Some(PATIENCE)).map_err(failed)?;
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let (rate, over) = (args.rate, is_over.clone());
        thread::spawn(move || publish(topics, rate, &over));
        Ok(Self { args, broker, http, is_over, _publishers: publishers, _subscribers: subscribers })
    }

    /// The processor time while something else happens.
    fn share(&self, pages: &str, begin: impl FnOnce()) -> Share {
        begin();
        let (before, machine) = (threads(self.broker.id()), sys::machine_busy_s());
        let started = Instant::now();
        thread::sleep(Duration::from_secs_f64(self.args.seconds));
        let wall = started.elapsed().as_secs_f64();
        let after = threads(self.broker.id());
        let of = |name: &str| 100.0 * used_s(&before, &after, name) / wall;
        let share = Share {
            pages: pages.to_owned(),
            endpoint_percent: of("rbmq-http"),
            console_percent: of("rbmq-console"),
            broker_percent: of(""),
            other_cores: (sys::machine_busy_s() - machine) / wall,
        };
        eprintln!("  {share:?}");
        share
    }

    /// Opens as many streams as there are pages, and counts their bytes.
    fn streams(&self, paths: &[String]) -> (Vec<Line>, Share) {
        let over = AtomicBool::new(false);
        let counts: Vec<_> = (0..self.args.pages).map(|_| AtomicU64::new(0)).collect();
        let count = |n: usize| counts.get(n).map_or(0, |count| count.load(Ordering::Relaxed));
        let name = if paths.len() == PAGES.len() { "of all kinds" } else { "of topics, each with a search" };
        let mut before = Vec::new();
        let share = thread::scope(|scope| {
            for (count, path) in counts.iter().zip(paths.iter().cycle()) {
                let (http, over) = (&self.http, &over);
                scope.spawn(move || follow(http, path, count, over));
            }
            let share = self.share(name, || {
                // The first events are the beginning of a page, and not its changes.
                thread::sleep(Duration::from_secs(5));
                before = (0..paths.len()).map(count).collect();
            });
            over.store(true, Ordering::Relaxed);
            share
        });
        let minutes = self.args.seconds / 60.0;
        let line = |(n, path): (usize, &String)| Line {
            path: path.clone(),
            bytes_per_minute: (count(n) - before[n]) as f64 / minutes,
            ..Line::default()
        };
        (paths.iter().enumerate().map(line).collect(), share)
    }

    /// Calls a path again and again.
    fn calls(&self, line: Line) -> Result<Line, BenchError> {
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..self.args.calls {
            let started = Instant::now();
            bytes = get(&self.http, &format!("/api/v1{}", line.path))?.len();
            times.push(started.elapsed().as_secs_f64() * 1e3);
            thread::sleep(Duration::from_millis(50));
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        Ok(Line { call_bytes: bytes, p50_ms: at(0.5), p99_ms: at(0.99), ..line })
    }

    /// Shows the pages in windows of Chromium.
    fn windows(&self) -> (Vec<Shown>, Option<Share>) {
        let (width, height) = WINDOW;
        let Some(browser) = (self.args.windows > 0).then(|| Browser::open(width, height)).flatten() else {
            return (Vec::new(), None);
        };
        let shown = PAGES.iter().map(|(page, _)| self.shown(&browser, page)).collect();
        let mut in_sight = 0;
        for n in 1..=self.args.windows as usize {
            if n > 1 {
                browser.open_window(width, height);
            }
            browser.go(&self.page(PAGES[n % PAGES.len()].0));
            browser.wait("document.getElementById('live').className === 'live live'");
            in_sight += u32::from(browser.run("return document.hidden") == false);
        }
        let name = format!("in {in_sight} windows of Chromium");
        (shown, Some(self.share(&name, || thread::sleep(Duration::from_secs(3)))))
    }

    /// Loads a page, and asks the browser how it came.
    fn shown(&self, browser: &Browser, page: &str) -> Shown {
        browser.go("about:blank");
        browser.go(&self.page(page));
        browser.wait("document.getElementById('live').className === 'live live'");
        // Some changes of the page.
        thread::sleep(Duration::from_secs(5));
        let entries = browser.finish(
            "Promise.all(['paint', 'largest-contentful-paint', 'layout-shift'].map((type) => new Promise((done) => {
               new PerformanceObserver((list, own) => { own.disconnect(); done(list.getEntries().map(({ startTime, value }) => ({ startTime, value }))); })
                 .observe({ type, buffered: true });
               setTimeout(() => done([]), 1000);
             })))",
        );
        let all = |n: usize, name: &'static str| {
            let own = entries[n].as_array().cloned().unwrap_or_default();
            own.into_iter().filter_map(move |entry| entry[name].as_f64())
        };
        let shown = Shown {
            page: format!("#/{page}"),
            first_ms: all(0, "startTime").fold(f64::INFINITY, f64::min),
            largest_ms: all(1, "startTime").fold(0.0, f64::max),
            shift: all(2, "value").sum(),
        };
        eprintln!("  {shown:?}");
        shown
    }

    fn page(&self, page: &str) -> String {
        format!("http://{}/ui/#/{page}", self.http)
    }
}

/// Publishes one message after the other, each to the next topic.
fn publish(mut topics: Vec<TopicWriter>, rate: u32, over: &AtomicBool) {
    let (started, mut sent) = (Instant::now(), 0_u64);
    let count = topics.len();
    while !over.load(Ordering::Relaxed) {
        let due = (started.elapsed().as_secs_f64() * f64::from(rate)) as u64;
        while sent < due {
            // A subscriber that has no room any more is no fault of this bench.
            let _ = topics[sent as usize % count].publish_timeout(&[7; 100], Some(Duration::ZERO));
            sent += 1;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The threads of a process by their numbers: the name of those of the console (else nothing), and the processor time in seconds.
fn threads(pid: u32) -> HashMap<String, (String, f64)> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let thread = |entry: fs::DirEntry| {
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let nanos: f64 = read("schedstat").split_whitespace().next()?.parse().ok()?;
        let name = Some(read("comm").trim().to_owned()).filter(|name| CONSOLE.contains(&name.as_str()));
        Some((entry.file_name().to_string_lossy().into_owned(), (name.unwrap_or_default(), nanos / 1e9)))
    };
    entries.filter_map(thread).collect()
}

/// The processor time of all threads of a name between two looks. A thread that has ended meanwhile counts as if it had done nothing.
fn used_s(
    before: &HashMap<String, (String, f64)>,
    after: &HashMap<String, (String, f64)>,
    name: &str,
) -> f64 {
    let own = after.iter().filter(|(_, (of, _))| of == name);
    own.map(|(number, (_, seconds))| seconds - before.get(number).map_or(0.0, |(_, before)| *before)).sum()
}

fn request(http: &str, path: &str, close: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(http)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {http}\r\n{close}\r\n").as_bytes())?;
    Ok(stream)
}

/// The answer to a call, with its head.
fn get(http: &str, path: &str) -> Result<Vec<u8>, BenchError> {
    let mut answer = Vec::new();
    request(http, path, "Connection: close\r\n")?.read_to_end(&mut answer)?;
    match answer.starts_with(b"HTTP/1.1 200") {
        true => Ok(answer),
        false => Err(BenchError::Refused { reason: String::from_utf8_lossy(&answer).into_owned() }),
    }
}

/// Counts the bytes of a stream, and opens it again when it ends, as a browser does.
fn follow(http: &str, path: &str, count: &AtomicU64, over: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    while !over.load(Ordering::Relaxed) {
        let Ok(mut stream) = request(http, &format!("/api/v1/stream{path}"), "") else { return };
        while let Ok(read @ 1..) = stream.read(&mut bytes) {
            count.fetch_add(read as u64, Ordering::Relaxed);
            if over.load(Ordering::Relaxed) {
                return;
            }
        }
        thread::sleep(Duration::from_secs(1));
    }
}

fn tables(shares: &[Share], lines: &[Line], shown: &[Shown]) -> String {
    let mut out =
        "| pages | endpoint % | console % | broker % | machine cores |\n|---|---:|---:|---:|---:|\n"
            .to_owned();
    for Share { pages, endpoint_percent, console_percent, broker_percent, other_cores } in shares {
        out += &format!(
            "| {pages} | {endpoint_percent:.2} | {console_percent:.2} | {broker_percent:.2} | {other_cores:.1} |\n"
        );
    }
    out += "\n| path | bytes a minute | bytes of a call | p50 ms | p99 ms |\n|---|---:|---:|---:|---:|\n";
    for Line { path, bytes_per_minute, call_bytes, p50_ms, p99_ms } in lines {
        let (minute, call) = (human(*bytes_per_minute), human(*call_bytes as f64));
        out += &format!("| `{path}` | {minute} | {call} | {p50_ms:.1} | {p99_ms:.1} |\n");
    }
    if !shown.is_empty() {
        out += "\n| page | first paint ms | largest paint ms | moved |\n|---|---:|---:|---:|\n";
    }
    for Shown { page, first_ms, largest_ms, shift } in shown {
        out += &format!("| `{page}` | {first_ms:.0} | {largest_ms:.0} | {shift:.3} |\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_by_name_and_new_ones_count() {
        let of = |all: &[(&str, &str, f64)]| {
            all.iter().map(|(number, name, s)| ((*number).to_owned(), ((*name).to_owned(), *s))).collect()
        };
        let before = of(&[("1", "", 5.0), ("2", "rbmq-console", 1.0), ("3", "rbmq-console", 1.0)]);
        let after = of(&[("1", "", 6.0), ("2", "rbmq-console", 1.5), ("4", "rbmq-console", 2.0)]);
        assert_eq!(used_s(&before, &after, "rbmq-console"), 2.5);
        assert_eq!(used_s(&before, &after, ""), 1.0);
        assert!(!threads(std::process::id()).is_empty());
    }
}
