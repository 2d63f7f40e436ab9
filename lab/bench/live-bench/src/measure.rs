//! The measurements. Each starts its programs anew; the measured one has a core of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use testkit::own_addr;

use crate::failure::Result;
use crate::lab::{LOAD, Limit, Program, SERVER, limit, memory_mib, on, ready};
use crate::row::Row;
use crate::servers::{self, certificate, redis, stunnel};
use crate::source;
use crate::wrk;

/// The Mbit per second of a stream: the paper's.
const MBIT: f64 = 2.0;
/// The time before a measurement, in which every buffer goes round once: memory that is written first costs more.
const SETTLE: Duration = Duration::from_secs(18);
/// The streams of the part `memory`.
const MANY_STREAMS: u32 = 1000;
/// The longest wait until their buffers are full.
const MOST_TIME_TO_FILL: Duration = Duration::from_secs(120);
/// The time in which viewers come.
const RAMP_S: f64 = 6.0;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The measurements
    #[arg(value_enum, required = true)]
    parts: Vec<Part>,
    /// The command rblive
    #[arg(long)]
    rblive: PathBuf,
    /// The command rblive-load
    #[arg(long)]
    load: PathBuf,
    /// Mbit per second of all streams into a delivery node
    #[arg(long, value_delimiter = ',', default_value = "800")]
    incoming: Vec<u32>,
    /// Viewers where their number is not searched for
    #[arg(long, default_value_t = 300)]
    viewers: u32,
    /// The share of a core that a searched server has
    #[arg(long, default_value_t = 0.25)]
    share: f64,
    /// How long each row is measured: 3 seconds to an hour
    #[arg(long, default_value_t = 10.0, value_parser = parse_seconds)]
    seconds: f64,
    #[arg(long, default_value_t = 3)]
    reps: u32,
    /// The file for the rows
    #[arg(long)]
    json: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Processor time of a delivery node for what it receives
    Receive,
    /// Processor time of a delivery node that also serves viewers
    Serve,
    /// The most viewers without an error
    Most,
    /// Processor time of servers of the same segments
    Peers,
    /// From a chunk's last byte in to its first byte at a viewer
    Latency,
    /// Ingest with TLS
    Ingest,
    /// Memory of a delivery node with 1,000 streams, and of its viewers
    Memory,
}

/// A chunk has two seconds, and the processor time of the last half second of the viewers is not taken.
fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (3.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "use 3 to 3600 seconds".to_owned())
}

/// A delivery node with what feeds it.
struct Node {
    node: Program,
    viewers: String,
    _limit: Option<Limit>,
    _source: Program,
    _redis: Option<Program>,
}

pub fn run(args: &Args) -> Result<()> {
    let mut rows = Vec::new();
    for part in &args.parts {
        for rep in 0..args.reps {
            let measured = match part {
                Part::Receive => delivery(args, rep, 0, &["redis", "redis-bare", "tcp", "shm"]),
                Part::Serve => delivery(args, rep, args.viewers, &["redis", "tcp", "shm"]),
                Part::Most => most(args, rep),
                Part::Peers => peers(args, rep),
                Part::Latency => latency(args, rep),
                Part::Ingest => ingest(args, rep),
                Part::Memory => memory(args, rep),
            };
            match measured {
                Ok(more) => {
                    for row in &more {
                        eprintln!(
                            "{} {} {}: {:.3} cores, {:.0} Mbit/s, {} viewers, {} errors {}",
                            row.part,
                            row.system,
                            row.nodes,
                            row.cores,
                            row.mbit_per_s,
                            row.viewers,
                            row.errors,
                            row.first_error.as_deref().unwrap_or("")
                        );
                    }
                    rows.extend(more);
                    benchkit::output::write_json(&args.json, &rows)?;
                }
                Err(error) => eprintln!("FAILED: {part:?}: {error}"),
            }
        }
    }
    Ok(())
}

fn own(core: &str) -> Result<Command> {
    Ok(on(core, &std::env::current_exe()?))
}

/// A configuration file for RBLive's nodes. Node 1 is where streams come from.
fn configuration(folder: &Path, transport: &str, addresses: &[String], more: &str) -> Result<PathBuf> {
    let mut text =
        format!("transport = '{transport}'\n[[nodes]]\nname = 'source'\nid = 1\nrole = 'dissemination'\n");
    for (at, address) in addresses.iter().enumerate() {
        text += &format!(
            "[[nodes]]\nname = 'n{at}'\nid = {}\nrole = 'delivery'\naddress = '{address}'\n",
            at + 2
        );
    }
    let names: Vec<_> = (0..addresses.len()).map(|at| format!("'n{at}'")).collect();
    text += &format!("[[rules]]\nstreams = '*'\nnodes = [{}]\n{more}", names.join(", "));
    let file = folder.join("nodes.toml");
    fs::write(&file, text)?;
    Ok(file)
}

fn transport(system: &str) -> &str {
    if system == "shm" { "auto" } else { "tcp" }
}

/// Starts RBLive's delivery node `at` of a configuration.
fn deliver(args: &Args, core: &str, config: &Path, at: usize) -> Result<(Program, String)> {
    let mut command = on(core, &args.rblive);
    command.args(["serve", "--config"]).arg(config).args(["--node", &format!("n{at}")]);
    command.args(["--control", "", "--listen", "127.0.0.1:0"]);
    ready(command, "viewers at https://")
}

fn start(args: &Args, system: &str, incoming: u32, share: Option<f64>, folder: &Path) -> Result<Node> {
    let streams = (f64::from(incoming) / MBIT) as u32;
    let mut source = own(LOAD)?;
    source.args(["source", "--streams", &streams.to_string(), "--mbit", &MBIT.to_string()]);
    if let Some(client) = system.strip_prefix("redis") {
        let (redis, address) = redis(LOAD)?;
        let mut command = own(SERVER)?;
        command.args(["redis-node", "--redis", &address, "--streams", &streams.to_string()]);
        command.args(["--client", if client.is_empty() { "hiredis" } else { "bare" }]);
        let (node, viewers) = ready(command, "viewers at https://")?;
        let limit = share.map(|share| limit(&node, share)).transpose()?;
        source.args(["--redis", &address]);
        let (source, _) = ready(source, "turn 0")?;
        return Ok(Node { node, viewers, _limit: limit, _source: source, _redis: Some(redis) });
    }
    let address = own_addr();
    let config =
        configuration(folder, transport(system), std::slice::from_ref(&address), "[deliver]\nthreads = 1\n")?;
    let (node, viewers) = deliver(args, SERVER, &config, 0)?;
    let limit = share.map(|share| limit(&node, share)).transpose()?;
    source.args(["--node", &address, "--transport", transport(system)]);
    let (source, _) = ready(source, "turn 0")?;
    Ok(Node { node, viewers, _limit: limit, _source: source, _redis: None })
}

/// The command that is viewers of streams.
fn viewers_of(args: &Args, more: &[&str], urls: &[String]) -> Command {
    let mut command = on(LOAD, &args.load);
    command.args(["watch", "--json", "--quiet", "--stamped", "--ramp", &RAMP_S.to_string()]);
    command.args(["--seconds", &args.seconds.to_string(), "--mode", "live"]).args(more).args(urls);
    command
}

/// Runs viewers, and returns what they say and the processor time of `programs` per second meanwhile.
fn watch(args: &Args, more: &[&str], urls: &[String], programs: &[&Program]) -> Result<(Value, Vec<f64>)> {
    let child = viewers_of(args, more, urls).stdout(Stdio::piped()).spawn()?;
    thread::sleep(Duration::from_secs_f64(RAMP_S));
    let before: Vec<_> = programs.iter().map(|program| program.cpu_s()).collect();
    thread::sleep(Duration::from_secs_f64(args.seconds - 0.5));
    let cores = programs
        .iter()
        .zip(before)
        .map(|(program, before)| (program.cpu_s() - before) / (args.seconds - 0.5));
    let cores = cores.collect();
    let output = child.wait_with_output()?;
    Ok((serde_json::from_slice(&output.stdout)?, cores))
}

fn urls(viewers: &str, streams: u32) -> Vec<String> {
    (1..=streams).map(|number| format!("https://{viewers}/live/s{number}/index.m3u8")).collect()
}

/// A folder in memory.
fn scratch() -> Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("live-bench-").tempdir_in("/dev/shm")?)
}

fn delivery(args: &Args, rep: u32, viewers: u32, systems: &[&str]) -> Result<Vec<Row>> {
    let folder = scratch()?;
    let mut rows = Vec::new();
    let turns = args.incoming.iter().flat_map(|incoming| systems.iter().map(|system| (*system, *incoming)));
    for (system, incoming) in turns {
        let node = start(args, system, incoming, None, folder.path())?;
        thread::sleep(SETTLE);
        let mut row = Row::new(if viewers == 0 { "receive" } else { "serve" }, system, rep);
        row.incoming_mbit = f64::from(incoming);
        if viewers == 0 {
            let before = node.node.cpu_s();
            thread::sleep(Duration::from_secs_f64(args.seconds));
            row.cores = (node.node.cpu_s() - before) / args.seconds;
        } else {
            let urls = urls(&node.viewers, 20.min(viewers));
            let (said, cores) = watch(args, &["--viewers", &viewers.to_string()], &urls, &[&node.node])?;
            row.cores = cores[0];
            row.heard(&said);
        }
        rows.push(row);
    }
    Ok(rows)
}

fn most(args: &Args, rep: u32) -> Result<Vec<Row>> {
    let folder = scratch()?;
    let mut rows = Vec::new();
    let incoming = args.incoming.iter().copied().max().unwrap_or(0);
    for system in ["redis", "tcp", "shm"] {
        let node = start(args, system, incoming, Some(args.share), folder.path())?;
        thread::sleep(SETTLE);
        let search = ["--find-max", "--precision", "5", "--viewers", &args.viewers.to_string()];
        let mut command = viewers_of(args, &search, &urls(&node.viewers, 20));
        let said: Value = serde_json::from_slice(&command.output()?.stdout)?;
        let mut row = Row::new("most", system, rep);
        (row.incoming_mbit, row.share) = (f64::from(incoming), Some(args.share));
        row.heard(&said);
        row.cores = args.share;
        let last =
            said["runs"].as_array().and_then(|runs| runs.iter().rfind(|run| run["error_free"] == false));
        row.first_error = last.and_then(|run| run["first_error"]["message"].as_str()).map(str::to_owned);
        rows.push(row);
    }
    Ok(rows)
}

/// Memory of a node that receives many streams, before viewers come and while they watch.
fn memory(args: &Args, rep: u32) -> Result<Vec<Row>> {
    let folder = scratch()?;
    let incoming = (f64::from(MANY_STREAMS) * MBIT) as u32;
    let node = start(args, "tcp", incoming, None, folder.path())?;
    thread::sleep(SETTLE);
    let mut idle = Row::new("memory", "tcp", rep);
    idle.incoming_mbit = f64::from(incoming);
    idle.buffers_mib = f64::from(MANY_STREAMS) * source::buffer_bytes(MBIT) as f64 / f64::from(1 << 20);
    let begun = Instant::now();
    // A source that is late fills the buffers later.
    while idle.memory_mib < idle.buffers_mib && begun.elapsed() < MOST_TIME_TO_FILL {
        thread::sleep(Duration::from_secs(1));
        idle.memory_mib = memory_mib(&node.node)?;
    }
    thread::sleep(Duration::from_secs(2));
    idle.memory_mib = memory_mib(&node.node)?;
    let count = args.viewers.to_string();
    let mut command = viewers_of(args, &["--viewers", &count], &urls(&node.viewers, 20));
    let child = command.stdout(Stdio::piped()).spawn()?;
    thread::sleep(Duration::from_secs_f64(RAMP_S + args.seconds / 2.0));
    let mut watched = idle.clone();
    watched.memory_mib = memory_mib(&node.node)?;
    watched.heard(&serde_json::from_slice(&child.wait_with_output()?.stdout)?);
    Ok(vec![idle, watched])
}

/// Servers of the same segments: RBLive from its rings, nginx from files in memory, and the bare loop.
fn peers(args: &Args, rep: u32) -> Result<Vec<Row>> {
    let folder = scratch()?;
    let streams = 20;
    let incoming = (f64::from(streams) * MBIT) as u32;
    let count = args.viewers.to_string();
    let mut rows = Vec::new();
    let mut measure = |system: &str, urls: &[String], program: &Program| -> Result<()> {
        let (said, cores) = watch(args, &["--viewers", &count], urls, &[program])?;
        let mut row = Row::new("peers", system, rep);
        row.cores = cores[0];
        row.heard(&said);
        rows.push(row);
        rows.extend(wrk::wrk(system, rep, args.seconds, &urls[0], program)?);
        Ok(())
    };
    for system in ["shm", "tcp"] {
        let node = start(args, system, incoming, None, folder.path())?;
        thread::sleep(SETTLE);
        measure(&format!("rblive {system}"), &urls(&node.viewers, streams), &node.node)?;
    }
    let (certificate, key) = certificate(folder.path())?;
    let files = folder.path().join("www");
    fs::create_dir_all(&files)?;
    let mut source = own(LOAD)?;
    source
        .args(["source", "--streams", &streams.to_string(), "--mbit", &MBIT.to_string(), "--folder"])
        .arg(&files);
    let _source = ready(source, "turn 2")?;
    let lists = |address: &str| -> Vec<String> {
        (1..=streams).map(|number| format!("https://{address}/s{number}/media.m3u8")).collect()
    };
    let mut command = own(SERVER)?;
    command
        .args(["bare", "--folder"])
        .arg(&files)
        .arg("--certificate")
        .arg(&certificate)
        .arg("--key")
        .arg(&key);
    let (bare, address) = ready(command, "viewers at https://")?;
    measure("bare loop", &lists(&address), &bare)?;
    drop(bare);
    if let Some((nginx, address)) = servers::nginx(folder.path())? {
        measure("nginx", &lists(&address), &nginx)?;
    }
    Ok(rows)
}

/// An ingest node and delivery nodes, all on the core of the server or each on its own.
fn latency(args: &Args, rep: u32) -> Result<Vec<Row>> {
    let folder = scratch()?;
    let mut rows = Vec::new();
    for system in ["shm", "tcp"] {
        let address = own_addr();
        let config = configuration(folder.path(), transport(system), &[address], "[deliver]\nthreads = 1\n")?;
        let (node, viewers) = deliver(args, SERVER, &config, 0)?;
        let mut command = on(SERVER, &args.rblive);
        command.args(["serve", "--config"]).arg(&config).args(["--node", "source", "--control", ""]);
        command.args(["--http", "127.0.0.1:0"]);
        let (ingest, encoders) = ready(command, "encoders at http://")?;
        let mut command = own(LOAD)?;
        command.args(["latency", "--ingest", &encoders, "--viewers", &viewers, "--samples", "200"]);
        let output = command.stderr(Stdio::inherit()).output()?;
        let mut row = Row::new("latency", system, rep);
        row.times_us = serde_json::from_slice(&output.stdout)?;
        rows.push(row);
        drop((node, ingest));
    }
    Ok(rows)
}

/// Producers with TLS into an ingest node, and into Redis behind stunnel, with 1, 2 and 4 delivery nodes, which share the core of the
/// producers.
fn ingest(args: &Args, rep: u32) -> Result<Vec<Row>> {
    let folder = scratch()?;
    let (certificate, key) = certificate(folder.path())?;
    let mut rows = Vec::new();
    for nodes in [1, 2, 4] {
        for system in ["redis", "tcp", "shm"] {
            let (mut receivers, mut servers) = (Vec::new(), Vec::new());
            let mut producers = own(LOAD)?;
            producers.args(["producers", "--seconds", &args.seconds.to_string()]);
            if system == "redis" {
                let (redis, address) = redis(SERVER)?;
                for _ in 0..nodes {
                    let mut command = own(LOAD)?;
                    command.args(["redis-node", "--redis", &address, "--streams", "8"]);
                    receivers.push(ready(command, "viewers at https://")?.0);
                }
                let (stunnel, secure) = stunnel(folder.path(), &certificate, &key, &address)?;
                servers.extend([("redis", redis), ("stunnel", stunnel)]);
                producers.args(["--redis", &secure]);
            } else {
                let addresses = (0..nodes).map(|_| own_addr()).collect::<Vec<_>>();
                let more = format!(
                    "[ingest]\nhttps = '127.0.0.1:0'\ncertificate = '{}'\nprivate_key = '{}'\n\
                     [ingest.limits]\nbytes_per_second = 2000000000\n",
                    certificate.display(),
                    key.display()
                );
                let config = configuration(folder.path(), transport(system), &addresses, &more)?;
                for at in 0..nodes {
                    receivers.push(deliver(args, LOAD, &config, at)?.0);
                }
                let mut command = on(SERVER, &args.rblive);
                command.args(["serve", "--config"]).arg(&config).args(["--node", "source", "--control", ""]);
                let (ingest, encoders) = ready(command, "encoders at https://")?;
                servers.push(("rblive", ingest));
                producers.args(["--ingest", &encoders]);
            }
            thread::sleep(Duration::from_secs(1));
            rows.push(produced(args, system, nodes as u32, rep, producers, &servers)?);
        }
    }
    Ok(rows)
}

/// Runs producers, and measures the servers meanwhile.
fn produced(
    args: &Args,
    system: &str,
    nodes: u32,
    rep: u32,
    mut producers: Command,
    servers: &[(&str, Program)],
) -> Result<Row> {
    let child = producers.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
    thread::sleep(Duration::from_secs(2));
    let before: Vec<_> = servers.iter().map(|(_, program)| program.cpu_s()).collect();
    thread::sleep(Duration::from_secs_f64(args.seconds));
    let cores = servers
        .iter()
        .zip(before)
        .map(|((name, program), before)| ((*name).to_owned(), (program.cpu_s() - before) / args.seconds));
    let mut row = Row::new("ingest", system, rep);
    row.cores_by_program = cores.collect();
    row.cores = row.cores_by_program.iter().map(|(_, cores)| cores).sum();
    row.nodes = nodes;
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    let rate: f64 = text.lines().last().unwrap_or("").parse().map_err(|_| "the producers failed")?;
    row.mbit_per_s = rate * 8e-6;
    Ok(row)
}
