//! `rblive-load watch`: many viewers of a live stream, which check what they get.
//!
//! ```text
//!   threads ─▶ viewers ─▶ HTTP/1.1 or 2 over TLS ─▶ playlists, segments, parts
//!                │
//!                └─▶ in time (playout buffer)? the bytes of all other viewers? media (boxes, packets, times)? frames of rblive-load push?
//! ```
//!
//! The server can be any HLS server, so that servers can be compared with the same viewers.

mod address;
mod answer;
mod audience;
mod connection;
mod fault;
mod inspect;
mod known;
mod outcome;
mod playback;
mod playlist;
mod search;
mod tls;
mod trial;
mod viewer;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use address::Address;
use audience::{Mode, Settings};
use commands::{Failure, Stop};
use connection::{Dialer, Version};
use outcome::Outcome;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use trial::Plan;

/// Descriptors that are no viewers' connections.
const SPARE_DESCRIPTORS: u64 = 64;
/// The pause between two runs of a search, in which the server closes the old connections.
const BETWEEN: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rblive-load watch https://127.0.0.1:8443/live/demo/index.m3u8
  rblive-load watch --viewers 1000 --seconds 30 URL
  rblive-load watch --viewers 100 --find-max --json URL
  rblive-load watch --viewers 200 https://127.0.0.1:8443/live/s{1..20}/index.m3u8

Each viewer has a connection of its own and follows the playlist as a player does. An error is: a playout buffer that runs empty, a
segment that is gone before the viewer had it, an answer with another status than 200, a broken connection, media that is damaged or
does not continue the media before, or other bytes than another viewer got at the same address.

Exit status: 0 without errors (with --find-max: if one viewer had none); 1 otherwise.")]
pub struct Args {
    /// Playlists; viewers take them in turn
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// Viewers; with --find-max, those of the first run
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    viewers: u32,
    /// Seconds that are measured, after all viewers have come
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds)]
    seconds: f64,
    /// Seconds in which the viewers come. Each fetches several segments at once when it comes: a short time is a high load
    #[arg(long, value_name = "S", default_value_t = 6.0, value_parser = seconds)]
    ramp: f64,
    /// Threads; each takes one core under load
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// The version of HTTP
    #[arg(long, value_enum, default_value = "1.1")]
    http: Version,
    /// The kind of media that viewers fetch
    #[arg(long, value_enum, default_value = "auto")]
    mode: Mode,
    /// Seconds between the end of the playlist and a viewer, which are its playout buffer [default: what the playlist says]
    #[arg(long, value_name = "S", value_parser = seconds)]
    buffer: Option<f64>,
    /// Every piece of media must have frames of rblive-load push, whose every byte is checked
    #[arg(long)]
    stamped: bool,
    /// Certificates (PEM) that the server's must come from. Without them, every certificate is accepted
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Seconds that a connection or an answer may take
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds)]
    timeout: f64,
    /// Search for the highest number of viewers without an error: twice as many in each run, then halfway between
    #[arg(long)]
    find_max: bool,
    /// How exact the search is, in percent
    #[arg(long, value_name = "P", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
    precision: u8,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print nothing about the progress
    #[arg(long, short)]
    quiet: bool,
}

/// The JSON object that is printed.
#[derive(Debug, Serialize)]
struct Printed<'a> {
    urls: &'a [String],
    http: &'static str,
    threads: u16,
    /// The highest number of viewers without an error; absent without a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_viewers: Option<usize>,
    /// The run, or the best one of the search.
    #[serde(flatten)]
    outcome: Option<&'a Outcome>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    runs: &'a [Outcome],
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.0..=1e6).contains(value));
    value.ok_or_else(|| "a number from 0 to 1,000,000 is needed".to_owned())
}

/// Runs viewers until the time is over or a signal comes.
pub fn run(args: &Args) -> Result<(), Failure> {
    let plan = plan(args)?;
    let stop = Stop::install()?;
    if args.find_max {
        return find_max(args, plan, &stop);
    }
    allow_descriptors(plan.viewers)?;
    let Some(outcome) = trial::run(&plan, &stop)? else { return Ok(()) };
    print(args, None, Some(&outcome), &[])?;
    match outcome.first_error_text() {
        Some(first) => Err(Failure::Failed(format!("{} errors; the first: {first}", outcome.errors))),
        None => Ok(()),
    }
}

fn find_max(args: &Args, mut plan: Plan, stop: &Stop) -> Result<(), Failure> {
    plan.stop_at_first_fault = true;
    let start = plan.viewers;
    let most = allow_descriptors(usize::MAX).unwrap_or(start);
    let mut runs: Vec<Outcome> = Vec::new();
    let works = |viewers| {
        plan.viewers = viewers;
        if !runs.is_empty() && stop.wait(Some(BETWEEN)) {
            return Err(None);
        }
        let outcome = trial::run(&plan, stop).map_err(Some)?.ok_or(None)?;
        if !args.quiet {
            // Standard error may be closed.
            let _ = write!(std::io::stderr(), "{outcome}");
        }
        let works = outcome.error_free;
        runs.push(outcome);
        Ok(works)
    };
    let found = match search::highest(start, most, f64::from(args.precision) / 100.0, works) {
        Ok(found) => found,
        Err(None) => return Ok(()),
        Err(Some(failure)) => return Err(failure),
    };
    let best = runs.iter().find(|run| run.viewers == found && run.error_free);
    print(args, Some(found), best, &runs)?;
    match (found, runs.last().and_then(Outcome::first_error_text)) {
        (0, Some(first)) => Err(Failure::Failed(format!("one viewer had an error: {first}"))),
        _ => Ok(()),
    }
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let address = |url: &String| {
        Address::parse(url)
            .ok_or_else(|| Failure::Failed(format!("'{url}' is no http or https address of a playlist")))
    };
    let addresses = args.urls.iter().map(address).collect::<Result<Vec<_>, _>>()?;
    let tls = tls::config(args.ca.as_deref(), args.http.protocol()).map_err(Failure::Failed)?;
    let patience = Duration::from_secs_f64(args.timeout);
    let dialer = Dialer { version: args.http, tls, patience };
    Ok(Plan {
        settings: Settings { dialer, mode: args.mode, buffer_s: args.buffer, stamped: args.stamped },
        addresses,
        viewers: args.viewers as usize,
        threads: usize::from(args.threads),
        ramp: Duration::from_secs_f64(args.ramp),
        time: Duration::from_secs_f64(args.seconds),
        stop_at_first_fault: false,
        progress: !args.quiet,
    })
}

/// Raises the limit of descriptors as far as it goes, and returns how many viewers it allows.
fn allow_descriptors(viewers: usize) -> Result<usize, Failure> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If that is refused, the limit stays as it was.
    let _ = setrlimit(Resource::Nofile, limit);
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(SPARE_DESCRIPTORS);
    let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
    if viewers != usize::MAX && viewers > allowed {
        let text = format!(
            "{viewers} viewers need as many descriptors, and the system allows {allowed}; see ulimit -n"
        );
        return Err(Failure::Failed(text));
    }
    Ok(allowed)
}

fn print(
    args: &Args,
    max_viewers: Option<usize>,
    outcome: Option<&Outcome>,
    runs: &[Outcome],
) -> Result<(), Failure> {
    let text = if args.json {
        let http = if args.http == Version::Http1 { "1.1" } else { "2" };
        let printed = Printed { urls: &args.urls, http, threads: args.threads, max_viewers, outcome, runs };
        serde_json::to_string(&printed).map_err(Failure::failed)? + "\n"
    } else {
        let found = max_viewers.map(|found| format!("at most {found} viewers without an error\n"));
        format!("{}{}", found.unwrap_or_default(), outcome.map_or(String::new(), ToString::to_string))
    };
    commands::print(text)
}
