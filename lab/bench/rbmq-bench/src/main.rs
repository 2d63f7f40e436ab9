//! `rbmq-bench`: the capacity of a broker between publishers and subscribers, measured beside other systems and a bare relay,
//! which does the least that is possible in its place.
//!
//! ```text
//!   harness (this process) ──pipes──┬── publisher 0 ──┐                ┌── subscriber 0
//!     counts, CPU, other load       ├── publisher 1 ──┴── broker, or ──┼── subscriber 1
//!                                   └── …                 another      └── …
//! ```
//!
//! Every box is a process of its own, joined by loopback TCP or by shared memory (`ways`). All processes except the servers of
//! other systems run this program. Every received byte is compared with the expected byte of its topic and position
//! (`pattern`). Repetitions of the systems alternate, so that a disturbance of the machine affects them alike.
//! lab/bench/README.md describes the measurements and their limits.
#![forbid(unsafe_code)]

mod campaign;
mod client_of;
mod clients;
mod console;
mod counters;
mod counting;
mod cpu;
mod direct;
mod direct_peers;
mod direct_systems;
mod error;
mod flow;
mod flow_peers;
mod gateway;
mod handshakes;
mod kept;
mod latency;
mod libraries;
mod library_end;
mod library_rows;
mod load;
mod measure;
mod memory;
mod pattern;
mod peers;
mod ping;
mod rbmq_confirm;
mod rbmq_peers;
mod recovery;
mod relay;
mod relay_peers;
mod report;
mod scale;
mod search;
mod systems;
mod throughput;
mod tls;
mod tls_peers;
mod units;
mod ways;
mod wire_peers;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use commands::Failure;
use tracing::level_filters::LevelFilter;

use cpu::CpuArgs;
use error::BenchError;
use latency::LatencyArgs;
use recovery::RecoveryArgs;
use throughput::ThroughputArgs;

/// Measure RBMQ's broker and client library on this machine
#[derive(Debug, Parser)]
#[command(name = "rbmq-bench", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "Examples:
  rbmq-bench throughput --sizes 256 --subscribers 1 --seconds 1 --reps 1
  rbmq-bench latency --help

Each starts what it needs, on free ports of this machine, and leaves nothing behind.")]
struct Cli {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Messages per second from publishers through the broker to subscribers, on one machine
    Throughput(ThroughputArgs),
    /// Cost of ten thousand idle topics and a thousand idle connections
    Scale(scale::ScaleArgs),
    /// Round trips of small messages at given rates, each from its due time
    Latency(LatencyArgs),
    /// CPU seconds per million messages of publishers, broker and subscribers, at fixed loads
    Cpu(CpuArgs),
    /// Pauses and losses after a connection was cut or the broker was killed
    Recovery(RecoveryArgs),
    /// Instructions and system calls per delivered MiB, with flow control and without
    Flow(flow::FlowArgs),
    /// Messages per second with TLS 1.3 on every connection, beside a relay with rustls and Redis with TLS
    Tls(tls::TlsArgs),
    /// TLS handshakes per second and core, beside a bare loop with rustls
    Handshakes(handshakes::HandshakesArgs),
    /// Messages between two processes over shared memory, without a broker
    Direct(direct::DirectArgs),
    /// RBMQ's client library beside those of Redis, NATS, RabbitMQ, MQTT and zenoh, with their servers
    Libraries(libraries::LibrariesArgs),
    /// The broker's web console beside ten thousand topics: processor time, bytes, first paint, calls of the interface
    Console(console::ConsoleArgs),
    /// Messages that are kept on disk, beside streams of Redis and NATS
    Kept(kept::KeptArgs),
    /// RBMQ's gateways beside Redis and Mosquitto, with the same clients: processor time, rates and round trips
    Gateway(gateway::GatewayArgs),
    #[command(hide = true, subcommand)]
    /// A process of a bench; started by the bench itself
    Worker(worker::Worker),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Warnings of the broker and the client library.
    commands::log::start("RBMQ_LOG", LevelFilter::WARN);
    commands::status(Cli::command, run(cli.command).map_err(Failure::failed))
}

/// Runs a bench, or one worker of it.
///
/// # Errors
/// Why there is no result; nothing stays behind.
fn run(command: BenchCommand) -> Result<(), BenchError> {
    match command {
        BenchCommand::Scale(args) => scale::run(&args),
        BenchCommand::Throughput(args) => throughput::run(&args),
        BenchCommand::Latency(args) => latency::run(&args),
        BenchCommand::Cpu(args) => cpu::run(&args),
        BenchCommand::Recovery(args) => recovery::run(&args),
        BenchCommand::Flow(args) => flow::run(&args),
        BenchCommand::Tls(args) => tls::run(&args),
        BenchCommand::Handshakes(args) => handshakes::run(&args),
        BenchCommand::Direct(args) => direct::run(&args),
        BenchCommand::Libraries(args) => libraries::run(&args),
        BenchCommand::Console(args) => console::run(&args),
        BenchCommand::Kept(args) => kept::run(&args),
        BenchCommand::Gateway(args) => gateway::run(&args),
        BenchCommand::Worker(worker) => worker::run(worker),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_the_list_of_figures_are_accepted() {
        for words in reproduce::list::List::own().calls("rbmq-bench") {
            let parsed = Cli::try_parse_from([vec!["rbmq-bench".into()], words.clone()].concat());
            assert!(parsed.is_ok(), "{words:?}: {}", parsed.unwrap_err());
        }
    }
}
