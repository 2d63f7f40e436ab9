//! `nic-sim`: the simulated NIC of MultiMQC in front of a server.
//!
//! ```text
//! namespace at the end of the cable      this namespace
//!                          ┌───────────────┐
//! multimqc push ── cable ──┤ simulated NIC ├── card ── multimqc serve
//! multimqc pull            └───────────────┘
//! ```
//!
//! The simulation (multimqc/rtl/tb/nic_tap.cpp) is a process that makes both devices. Its batches fill the levels of a server that this command starts.

#![forbid(unsafe_code)]

mod control;
mod devices;
mod lines;
mod server;
mod simulator;

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use commands::{Failure, Stop, print, print_error};
use serde_json::json;

use devices::{Device, Devices};
use lines::{Lines, Order};
use server::Server;
use simulator::Simulator;

/// The time between two checks of the processes.
const INTERVAL: Duration = Duration::from_millis(500);

/// Puts the simulated NIC of MultiMQC in front of a server, as root.
#[derive(Debug, Parser)]
#[command(name = "nic-sim", version, max_term_width = 100)]
#[command(after_help = "Examples:
  sudo nic-sim
  sudo nic-sim -- --levels kernel,user,disk --directory /tmp/multimqc
  echo levels none | sudo nic-sim --json

  date | sudo ip netns exec multimqc-outside multimqc push --server 10.77.0.1:19997 --topic 7
  sudo ip netns exec multimqc-outside multimqc pull --server 10.77.0.1:19997 --topic 7

Makes two TAP devices, one of them in the network namespace, and starts `multimqc serve` behind the
other one, with the arguments that follow `--`. Reads lines from standard input:
  levels LIST    the levels of the NIC that answer: level1,level2, level1, level2 or none.
                 With none, pushes pass the NIC too. Push nothing while the NIC returns.
  stat           print the counters of the NIC

The simulation takes a few thousand messages per second. In the source tree,
`scripts/nic setup tap` builds it.
SIGINT and SIGTERM stop the server in order, and remove what the command has made.")]
struct Args {
    /// The program that simulates the NIC [default: nic_tap beside this command, or the one that scripts/nic has built]
    #[arg(long, value_name = "FILE", env = "MULTIMQC_NIC_SIM")]
    simulator: Option<PathBuf>,
    /// The command `multimqc` [default: the one beside this command, or that of the shell's search path]
    #[arg(long, value_name = "FILE")]
    multimqc: Option<PathBuf>,
    /// The network namespace at the other end of the cable; made, and removed at the end, if there is none of this name
    #[arg(long, value_name = "NAME", default_value = "multimqc-outside")]
    namespace: String,
    /// The name of the NIC's interface
    #[arg(long, value_name = "NAME", default_value = "nic0")]
    interface: String,
    /// The name of the device in the namespace
    #[arg(long, value_name = "NAME", default_value = "cable0")]
    cable: String,
    /// The address of the NIC's interface, on which the server listens; its network has 24 bits
    #[arg(long, value_name = "ADDRESS", default_value = "10.77.0.1")]
    address: Ipv4Addr,
    /// The address of the device in the namespace
    #[arg(long, value_name = "ADDRESS", default_value = "10.77.0.2")]
    outside: Ipv4Addr,
    /// The address from which the NIC sends its batches
    #[arg(long, value_name = "ADDRESS", default_value = "10.77.0.3")]
    nic: Ipv4Addr,
    /// The topic that the NIC stores
    #[arg(long, value_name = "ID", default_value_t = 7)]
    topic: u16,
    /// The server's socket for `multimqc stat`
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print the counters as a JSON object
    #[arg(long)]
    json: bool,
    /// Arguments of `multimqc serve`
    #[arg(last = true, value_name = "ARGUMENT")]
    serve: Vec<String>,
}

fn main() -> ExitCode {
    let result = run(&commands::parse::<Args>());
    commands::status(Args::command, result)
}

/// The command `multimqc`.
fn multimqc(args: &Args) -> PathBuf {
    let beside = std::env::current_exe().ok().map(|command| command.with_file_name("multimqc"));
    let beside = beside.filter(|command| command.is_file());
    args.multimqc.clone().or(beside).unwrap_or_else(|| PathBuf::from("multimqc"))
}

fn run(args: &Args) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        let why =
            "nic-sim makes TAP devices and a network namespace, which only root can: start it with sudo";
        return Err(Failure::Failed(why.into()));
    }
    let program = simulator::find(args.simulator.as_deref())?;
    let stop = Stop::install()?;
    // In the order in which they are needed. At the end they are dropped in reverse order.
    let namespace = devices::Namespace::new(&args.namespace)?;
    let mut simulator = Simulator::start(&program, &args.cable, &args.interface, args.nic, args.address)?;
    let cable = Device { name: &args.cable, address: args.outside };
    let card = Device { name: &args.interface, address: args.address };
    let devices = Devices::set_up(&namespace, cable, card)?;
    let control = args.control.clone().unwrap_or_else(control::default_path);
    let mut server = Server::start(&multimqc(args), card, args.topic, &args.serve, control)?;
    let Some(log) = server.wait_for_log(args.topic, &stop)? else { return Ok(()) };
    simulator.open(&devices.mac, &log)?;
    announce(args)?;
    let mut nic = Nic { simulator, server, mac: devices.mac, topic: args.topic, bits: 3, json: args.json };
    let mut lines = Lines::new();
    while !stop.asked() {
        if lines.wait(&stop, INTERVAL)? {
            for line in lines.take()? {
                nic.obey(&line)?;
            }
        }
        nic.simulator.check()?;
        nic.server.check()?;
    }
    print_error("nic-sim", "stopping; the devices go with the simulation");
    Ok(())
}

/// Prints where the cable ends. With `--json`, standard output is for objects.
fn announce(args: &Args) -> Result<(), Failure> {
    let Args { namespace, interface, address, topic, .. } = args;
    let client = format!("--server {address}:{} --topic {topic}", server::HEADER_PORT);
    let text = format!(
        "nic-sim: the simulated NIC is {interface}; its cable ends in the namespace {namespace}\n\
         nic-sim: date | ip netns exec {namespace} multimqc push {client}\n\
         nic-sim: ip netns exec {namespace} multimqc pull {client}\n"
    );
    if args.json {
        let _ = std::io::stderr().write_all(text.as_bytes());
        return Ok(());
    }
    print(text)
}

/// The running NIC and its server, which ends first.
struct Nic {
    server: Server,
    simulator: Simulator,
    mac: String,
    topic: u16,
    /// The levels that answer.
    bits: u8,
    json: bool,
}

impl Nic {
    /// Executes the order in a line of standard input. A line without a valid order is reported, and changes nothing.
    fn obey(&mut self, line: &str) -> Result<(), Failure> {
        match line.parse() {
            Ok(Order::Levels { bits, names }) => {
                self.set_levels(bits)?;
                if self.json { Ok(()) } else { print(format!("nic-sim: the NIC has {names}\n")) }
            }
            Ok(Order::Stat) => print(self.counters()?),
            Err(why) => {
                print_error("nic-sim", why);
                Ok(())
            }
        }
    }

    fn set_levels(&mut self, bits: u8) -> Result<(), Failure> {
        if self.bits == 0 && bits != 0 {
            // Messages that were pushed meanwhile have gone to the server, whose log has grown.
            let log = self.server.log(self.topic)?;
            self.simulator.open(&self.mac, &log)?;
        }
        self.bits = bits;
        self.simulator.set_levels(bits)
    }

    fn counters(&mut self) -> Result<String, Failure> {
        let counters = self.simulator.counters()?;
        if !self.json {
            return Ok(counters.iter().map(|(name, count)| format!("{name:<12} {count:>12}\n")).collect());
        }
        let object: serde_json::Map<_, _> =
            counters.into_iter().map(|(name, count)| (name, json!(count))).collect();
        Ok(format!("{}\n", serde_json::Value::from(object)))
    }
}
