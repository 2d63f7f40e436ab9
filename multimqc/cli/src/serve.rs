//! `multimqc serve`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use commands::{Failure, Printer, Stop, print_error};
use multimqc::{Repair, Server};
use tracing::level_filters::LevelFilter;

use super::config::{Config, Topic};
use super::control::Control;
use super::interface::Interface;
use super::limits;
use super::report::report;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  multimqc serve --levels user
  multimqc serve --levels user,disk --directory /var/lib/multimqc
  sudo multimqc serve --levels kernel,user,disk --interface eth0 --address 192.0.2.7
  multimqc serve --topic 1 --topic 2 --stats 2s --json
  multimqc config > multimqc.toml && multimqc serve --config multimqc.toml

SIGINT and SIGTERM stop the server in order: what was received moves to the last level first.")]
pub struct Args {
    /// The configuration file; options take precedence
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The levels, separated by commas: kernel, user, disk, kafka [default: user,disk]
    #[arg(long, value_name = "LEVELS", value_delimiter = ',')]
    levels: Option<Vec<String>>,
    /// The interface of the level in the kernel
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Where the level in the kernel is attached: auto, xdp-native, xdp-generic, tcx, netfilter [default: auto]
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// The folder of the disk level [default: multimqc in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// Addresses of Kafka's brokers [default: 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    brokers: Option<String>,
    /// The address of all sockets [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// The port of the header form; 0 for any [default: 19997]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// A topic for the header form only; may be repeated. Replaces the topics of the file and the default topic
    #[arg(long, value_name = "ID")]
    topic: Vec<u16>,
    /// Allow replies that are longer than their requests: only where nobody forges addresses
    #[arg(long)]
    trusted: bool,
    /// The socket for `multimqc stat`
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print the state at this interval
    #[arg(long, value_name = "TIME", value_parser = settings::time_argument)]
    stats: Option<Duration>,
    /// With --stats: as a JSON object in each line
    #[arg(long, requires = "stats")]
    json: bool,
}

impl Args {
    fn load(&self) -> Result<Config, Failure> {
        let mut config = Config::load(self.config.as_deref())?;
        if let Some(levels) = &self.levels {
            config.levels.clone_from(levels);
        }
        if !self.topic.is_empty() {
            let topic =
                |id: &u16| Topic { id: *id, push_port: None, pull_port: None, input: None, output: None };
            config.topics = self.topic.iter().map(topic).collect();
        }
        if let Some(interface) = &self.interface {
            config.kernel.interface.clone_from(interface);
        }
        if let Some(mode) = &self.mode {
            config.kernel.mode.clone_from(mode);
        }
        if let Some(brokers) = &self.brokers {
            config.kafka.brokers.clone_from(brokers);
        }
        config.disk.directory = self.directory.clone().or(config.disk.directory.take());
        config.control = self.control.clone().or(config.control.take());
        config.address = self.address.unwrap_or(config.address);
        config.header_port = self.port.unwrap_or(config.header_port);
        config.trusted |= self.trusted;
        Ok(config)
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let _log = commands::log::start_server("MULTIMQC_LOG", LevelFilter::WARN)?;
    let config = args.load()?;
    limits::check(&config)?;
    let stop = Stop::install()?;
    let functions = config.functions()?;
    let (stack, kernel) = config.stack()?;
    let mut interface = kernel.map(|level| Interface::new(level, &config.kernel.interface));
    let stack = Arc::new(stack);
    let mut control = Control::listen(config.control())?;
    let server = Server::start(stack, &config.server(), functions).map_err(Failure::failed)?;
    let started = Instant::now();
    let printer = Printer::start(|text| print_error("multimqc", text))?;
    announce(&server, &config, &printer);
    tell_repairs(&server);
    let mut due = args.stats.map(|interval| started + interval);
    while !stop.asked() {
        let others = [control.due(), interface.as_ref().map(Interface::due)];
        let next = due.into_iter().chain(others.into_iter().flatten()).min();
        let left = next.map(|due| due.saturating_duration_since(Instant::now()));
        // A wait that fails only costs another turn.
        let _ = stop.wait_either(&[control.fd()], &control.outputs(), left);
        control.answer(|| report(&server, started, interface.as_ref()));
        interface.iter_mut().for_each(Interface::check);
        if let (Some(interval), Some(at)) = (args.stats, due)
            && Instant::now() >= at
        {
            due = Some(Instant::now() + interval);
            printer.print(&text(&server, &report(&server, started, interface.as_ref()), args.json));
        }
    }
    print_error("multimqc", "stopping; what was received moves to the last level");
    Ok(())
}

/// Prints where the server listens.
fn announce(server: &Server, config: &Config, printer: &Printer) {
    let mut text = String::new();
    if let Some(address) = server.addresses().header {
        text += &format!("multimqc: listening on {address} (levels {})\n", config.levels.join(","));
    }
    for (topic, push, pull) in &server.addresses().topics {
        if let Some(push) = push {
            text += &format!("multimqc: topic {topic}: pushes on {push}\n");
        }
        if let Some(pull) = pull {
            text += &format!("multimqc: topic {topic}: pulls on {pull}\n");
        }
    }
    printer.print(text.trim_end());
    if !config.address.is_loopback() {
        print_error(
            "multimqc",
            format_args!(
                "{} can be reached from other machines, and there is no authentication: everybody may push and pull",
                config.address
            ),
        );
    }
}

/// Prints which bytes have new offsets.
fn tell_repairs(server: &Server) {
    for repair in server.stack().repairs() {
        let Repair { topic, lower, upper, from, to, bytes, lost_bytes } = repair;
        let (lower, upper) = (lower.name(), upper.name());
        print_error(
            "multimqc",
            format_args!(
                "topic {topic}: the levels {lower} and {upper} have gone on without each other from offset {from} on; {bytes} \
             bytes that only {lower} had are at {to} now, and {lost_bytes} were overwritten before"
            ),
        );
    }
}

/// The text of the statistics.
fn text(server: &Server, state: &serde_json::Value, json: bool) -> String {
    if json {
        state.to_string()
    } else {
        let report = server.report();
        let heads: Vec<String> = server
            .stack()
            .topics()
            .into_iter()
            .map(|topic| format!("topic {topic} ends at {}", server.stack().head(topic).unwrap_or(0)))
            .collect();
        format!(
            "{} pushes, {} pulls, {} lost; {}",
            report.pushes,
            report.pulls,
            report.senders.lost,
            heads.join(", ")
        )
    }
}
