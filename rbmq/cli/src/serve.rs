//! `rbmq serve`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use commands::{Asked, Failure, Printer, Stop, terminal};
use rbmq_broker::http::{Endpoint, EndpointParts, Publishing, Reloading};
use rbmq_broker::{Broker, BrokerConfig, Cluster, EndpointConsole, GatewayProtocol, Parts};
use rbmq_gateway::{Gateway, Gateways};
use rbmq_ingest::Ingest;
use tracing::warn;

use super::archive;
use super::bytes;
use super::check;
use super::console::Desk;
use super::log::{BrokerLog, LogOptions};
use super::member::Member;
use super::reload::Endpoints;
use super::reload_desk::ReloadDesk;
use super::secrets;
use super::source::{self, Source};
use super::supervisor;
use super::times;
use super::top::table::{self, Before, Sort};

/// How often gateways are looked after.
pub(super) const STEP: Duration = Duration::from_millis(500);

/// The same as long as they may be there in a moment.
const SHORT_STEP: Duration = Duration::from_millis(2);

/// Waits for a request until gateways that began to start then are looked after again. A supervisor learns that it takes longer.
pub(super) fn wait_for_start(began: Instant, stop: &Stop) -> Option<Asked> {
    let is_short = began.elapsed() < STEP;
    if !is_short {
        supervisor::still_waiting();
    }
    stop.wait_asked(Some(if is_short { SHORT_STEP } else { STEP }))
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq serve
  rbmq serve --stats 2s
  rbmq serve --http 127.0.0.1:7412                        # metrics, and the console for a browser: /ui
  rbmq serve --gateway resp --gateway mqtt                # clients of Redis and MQTT, too
  rbmq serve --config rbmq.toml --users users.toml        # users, and their rights: docs/security/README.md
  rbmq serve --keep ./kept                                # all topics on disk: rbmq sub TOPIC --from -2h
  rbmq config --default > rbmq.toml && rbmq serve --config rbmq.toml
  rbmq serve --listen 127.0.0.1:7511 --upstream '127.0.0.1:7411=sensors/#,news'
  rbmq serve --listen 0.0.0.0:7411 --insecure             # in a network that you trust
  sudo rbmq serve --ingest multimqc:eth0/0=sensors        # datagrams to port 19999 of eth0 are messages

SIGINT and SIGTERM stop the broker in order: subscribers receive the remaining messages (within \
broker.drain_timeout_ms). SIGHUP reloads the configuration file and the users, and logs which changes are in force and which need a \
restart.")]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) source: Source,
    /// Print a table of topics at this interval
    #[arg(long, value_name = "TIME", value_parser = times::parse_interval)]
    stats: Option<Duration>,
    /// With --stats: print each table as a JSON object in one line
    #[arg(long, requires = "stats")]
    json: bool,
}

pub(super) fn run(args: &Args, log_options: LogOptions) -> Result<(), Failure> {
    let config = args.source.load().map_err(Failure::failed)?;
    if let Some(exposed) = config.exposed().first() {
        return Err(Failure::failed(exposed));
    }
    let log = log_options.start_broker(&config.log)?;
    if secrets::are_in(&config) {
        secrets::protect();
    }
    source::warn_of_unknown_variables();
    let stop = Stop::install()?.with_reload()?;
    let (member, archive) = (Member::of(&config)?, archive::of(&config)?);
    let cluster = member.clone().map(|member| member as Arc<dyn Cluster>);
    let mut broker = Broker::start_with(config, Parts { archive, cluster })?;
    // The HTTP endpoint starts before the broker reports that it listens.
    let reloads = ReloadDesk::new(&args.source, stop.waker()?);
    let http = start_http(&broker, &reloads, &log)?;
    let printer = Printer::start(|text| tracing::warn!("{text}"))?;
    let addr = broker.addr();
    printer.print(&format!("rbmq: listening on {addr}"));
    warn_of(broker.config());
    http.iter().for_each(|http| print_http(http, broker.config(), &printer));
    member.iter().try_for_each(|member| member.start(&broker))?;
    let ingest = Ingest::start(&broker).map_err(Failure::failed)?;
    for line in ingest.describe() {
        printer.print(&format!("rbmq: {line}"));
    }
    // Last of all: what its clients publish finds its subscribers.
    let on_wake = |broker: &mut Broker, gateways: &Gateways, asked| {
        let endpoints = Endpoints { http: http.as_ref(), gateways };
        reloads.on_wake(asked == Some(Asked::Reload), broker, endpoints, &log);
    };
    let (gateways, mut asked) = start_gateways(&mut broker, &stop, &printer, on_wake)?;
    supervisor::ready(&broker);
    let mut stats = args.stats.map(|interval| Stats::new(interval, args.json));
    loop {
        match asked.take().or_else(|| stop.wait_asked(stats.as_ref().map(Stats::due))) {
            Some(Asked::End) => break,
            asked => on_wake(&mut broker, &gateways, asked),
        }
        if stats.as_mut().is_some_and(|stats| !stats.show(&broker, &printer)) {
            stats = None;
        }
    }
    supervisor::stopping();
    reloads.close();
    printer.print("rbmq: shutting down; subscribers receive the remaining messages");
    // Messages that have arrived are delivered too.
    drop((ingest, gateways));
    end(broker, member.as_deref());
    // The endpoint answers until the end, so that monitoring sees how the broker drains.
    drop(http);
    Ok(())
}

/// Ends the broker. Other members learn of it first.
fn end(broker: Broker, member: Option<&Member>) {
    let leaves_late = member.is_some_and(Member::gives_what_is_archived);
    member.into_iter().filter(|_| !leaves_late).for_each(Member::leave);
    let left = broker.stop_with(|| member.into_iter().filter(|_| leaves_late).for_each(Member::leave));
    member.into_iter().for_each(Member::stop);
    if left > 0 {
        warn!("a subscriber did not receive the last {left} bytes in time (broker.drain_timeout_ms)");
    }
}

/// Starts the HTTP endpoint, if one is configured.
fn start_http(broker: &Broker, reloads: &ReloadDesk, log: &BrokerLog) -> Result<Option<Endpoint>, Failure> {
    let settings = &broker.config().http;
    if settings.listen.is_empty() {
        return Ok(None);
    }
    let writes = settings.console == EndpointConsole::Write;
    let desk = || broker.gate().map(|gate| Arc::new(Desk::new(gate)) as Arc<dyn Publishing>);
    let publishing = writes.then(desk).transpose().map_err(Failure::failed)?;
    let reloading: Option<Arc<dyn Reloading>> = Some(Arc::new(reloads.clone()));
    let parts = EndpointParts { log_lines_dropped: log.dropped(), publishing, reloading };
    let endpoint = Endpoint::start_with(broker.watch(), settings, parts);
    endpoint.map(Some).map_err(Failure::failed)
}

/// Starts the gateways, if there are some, and says where they are, as soon as clients are served. Returns what the command was asked meanwhile, too.
fn start_gateways(
    broker: &mut Broker,
    stop: &Stop,
    printer: &Printer,
    on_wake: impl Fn(&mut Broker, &Gateways, Option<Asked>),
) -> Result<(Gateways, Option<Asked>), Failure> {
    let Some(gateways) = wait_for_owners(broker, stop, on_wake)? else {
        return Ok((Gateways::default(), Some(Asked::End)));
    };
    let (began, mut asked) = (Instant::now(), None);
    while !gateways.are_serving() && !gateways.has_ended() && asked != Some(Asked::End) {
        asked = wait_for_start(began, stop).or(asked);
    }
    gateways.list().iter().for_each(|gateway| print_gateway(gateway, printer));
    Ok((gateways, asked))
}

/// Starts the gateways. In a cluster the member that has a space may be away: it is waited for, and the broker serves its other clients. None: the
/// command is to end.
fn wait_for_owners(
    broker: &mut Broker,
    stop: &Stop,
    on_wake: impl Fn(&mut Broker, &Gateways, Option<Asked>),
) -> Result<Option<Gateways>, Failure> {
    let mut told = String::new();
    loop {
        let why = match Gateways::start(broker) {
            Ok(gateways) => return Ok(Some(gateways)),
            Err(error) if error.is_away() && broker.config().cluster.is_used() => error.to_string(),
            Err(error) => return Err(Failure::failed(error)),
        };
        supervisor::waiting(&format!("not ready: {why}"));
        if told != why {
            warn!("not ready: {why}; trying again");
            told = why;
        }
        match stop.wait_asked(Some(STEP)) {
            Some(Asked::End) => return Ok(None),
            asked => on_wake(broker, &Gateways::default(), asked),
        }
    }
}

/// Says where a gateway is.
pub(super) fn print_gateway(gateway: &Gateway, printer: &Printer) {
    let clients = match gateway.protocol() {
        GatewayProtocol::Resp => "redis",
        other => other.as_str(),
    };
    printer.print(&format!("rbmq: {clients} clients at {}", gateway.address()));
}

fn print_http(endpoint: &Endpoint, config: &BrokerConfig, printer: &Printer) {
    let addr = endpoint.addr();
    let scheme = if endpoint.is_encrypted() { "https" } else { "http" };
    printer.print(&format!("rbmq: metrics on {scheme}://{addr}/metrics"));
    if config.http.console != EndpointConsole::Off {
        printer.print(&format!("rbmq: console at {scheme}://{addr}/ui/"));
    }
}

/// Says what is probably not meant.
fn warn_of(config: &BrokerConfig) {
    if config.access.insecure {
        warn_of_exposure(config);
    }
    source::warn_of_missing_rules(config);
    check::few_descriptors(config).iter().for_each(|few| warn!("{few}"));
}

/// Says what --insecure accepts.
fn warn_of_exposure(config: &BrokerConfig) {
    let mut protected = config.clone();
    protected.access.insecure = false;
    for exposed in protected.exposed() {
        let text = exposed.to_string();
        warn!("insecure: {}", text.lines().next().unwrap_or_default());
    }
}

/// The table of topics that is printed at an interval.
struct Stats {
    interval: Duration,
    json: bool,
    at: Instant,
    before: Before,
}

impl Stats {
    fn new(interval: Duration, json: bool) -> Self {
        Self { interval, json, at: Instant::now(), before: Before::new() }
    }

    /// The time until the next table.
    fn due(&self) -> Duration {
        self.interval.saturating_sub(self.at.elapsed())
    }

    /// Prints the table, if it is due. False if the output has failed.
    fn show(&mut self, broker: &Broker, printer: &Printer) -> bool {
        if !self.due().is_zero() {
            return true;
        }
        let elapsed = self.at.elapsed();
        self.at = Instant::now();
        let topics = broker.topics();
        let text = if self.json {
            let memory = broker.memory_in_use();
            let json = serde_json::json!({ "ring_memory_bytes": memory, "topics": topics }).to_string();
            text::json(&json).into_owned()
        } else {
            let lines = table::lines(topics.clone(), &self.before, elapsed, Sort::Name);
            // Only output to a terminal is cut.
            let width = if terminal::is_terminal() { terminal::width() } else { usize::MAX };
            let mut lines = table::table(&lines, width, usize::MAX);
            let memory = bytes::show(broker.memory_in_use() as f64);
            lines.push(format!("{} topics, rings of {memory}", topics.len()));
            lines.join("\n")
        };
        self.before = table::before(&topics);
        printer.print(&text)
    }
}
